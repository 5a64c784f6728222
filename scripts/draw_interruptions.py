"""Draw the figures of interruptions."""

from midtrace import logs
from midtrace.figures import interruptions as interruption_figures


def main(tables: dict[str, str], folder: str, index: str, settings: dict) -> None:
    """See :func:`midtrace.figures.interruptions.run`."""
    interruption_figures.run(tables, folder, index, settings)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        main(dict(snakemake.input.items()), snakemake.output.folder, snakemake.output.index, snakemake.params.settings)
