"""Write the report of a study."""

from midtrace import logs, report
from midtrace.tables import DECOMPOSITION


def main(decomposition: dict[str, str], inputs: dict[str, list[str]], figures: list[str], output: str, study: str, settings: dict) -> None:
    """See :func:`midtrace.report.run`."""
    report.run(decomposition, inputs, figures, output, study, settings)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        stages = ("item_tables", "traces", "readouts", "control_tables")
        main(
            {table: snakemake.input[table] for table in DECOMPOSITION},
            {stage: list(snakemake.input.get(stage, [])) for stage in stages},
            list(snakemake.input.figures),
            snakemake.output[0],
            snakemake.params.study,
            snakemake.params.settings,
        )
