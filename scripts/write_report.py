"""Write the report of a study."""

from pathlib import Path

from midtrace import logs, report
from midtrace.tables import DECOMPOSITION


def main(
    decomposition: dict[str, str],
    inputs: dict[str, list[str]],
    figures: list[str],
    output: str,
    study: str,
    settings: dict,
    interrupted: dict | None = None,
) -> None:
    """See :func:`midtrace.report.run`."""
    report.run(decomposition, inputs, figures, output, study, settings, interrupted)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        listed = snakemake.input.get("interruptions")  # figures/interruptions.json; the figures are in the folder of that name
        drawn = sorted(Path(listed).with_suffix("").glob("*.svg")) if listed else []
        stages = ("item_tables", "traces", "readouts", "control_tables", "interruption_tables")
        main(
            {table: snakemake.input[table] for table in DECOMPOSITION},
            {stage: list(snakemake.input.get(stage, [])) for stage in stages},
            [*snakemake.input.figures, *map(str, drawn)],
            snakemake.output[0],
            snakemake.params.study,
            snakemake.params.settings,
            snakemake.params.interrupted,
        )
