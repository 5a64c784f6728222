"""Draw the figures of interruptions."""

from midtrace import interruption_figures, logs


def main(tables: dict[str, str], folder: str) -> None:
    """See :func:`midtrace.interruption_figures.run`."""
    interruption_figures.run(tables, folder)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        main(dict(snakemake.input.items()), snakemake.output[0])
