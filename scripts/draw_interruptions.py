"""Draw the figures of interruptions."""

from midtrace import logs
from midtrace.figures import interruptions as interruption_figures


def main(tables: dict[str, str], folder: str, settings: dict) -> None:
    """See :func:`midtrace.figures.interruptions.run`."""
    interruption_figures.run(tables, folder, settings)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        main(dict(snakemake.input.items()), snakemake.output[0], snakemake.params.settings)
