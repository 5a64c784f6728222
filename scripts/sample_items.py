"""Write the items of a benchmark."""

from midtrace import items, logs


def main(output: str, study: str, settings: dict) -> None:
    """See :func:`midtrace.items.run`."""
    items.run(output, study, settings)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        main(snakemake.output[0], snakemake.params.study, snakemake.params.settings)
