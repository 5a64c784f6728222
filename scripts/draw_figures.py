"""Draw the figures and write the tables for readers."""

from midtrace import logs
from midtrace.figures import run
from midtrace.tables import DECOMPOSITION


def main(
    decomposition: dict[str, str], item_tables: list[str], traces: list[str], figures: list[str], text_tables: list[str], settings: dict
) -> None:
    """See :func:`midtrace.figures.run.run`."""
    run.run(decomposition, item_tables, traces, figures, text_tables, settings)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        main(
            {table: snakemake.input[table] for table in DECOMPOSITION},
            list(snakemake.input.item_tables),
            list(snakemake.input.traces),
            [*snakemake.output.figures, *snakemake.output.vector],
            list(snakemake.output.text_tables),
            snakemake.params.settings,
        )
