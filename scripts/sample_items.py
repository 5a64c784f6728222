"""Write the items of a benchmark, the rows that are none, and the tests of code items."""

from midtrace import items, logs


def main(output: str, excluded: str, tests: str, study: str, settings: dict) -> None:
    """See :func:`midtrace.items.run`."""
    items.run(output, excluded, tests, study, settings)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        main(snakemake.output.item_table, snakemake.output.excluded, snakemake.output.tests, snakemake.params.study, snakemake.params.settings)
