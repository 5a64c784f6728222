"""Print what a study will take; nothing is run."""

from midtrace import plan


def main(config: dict, results: str) -> None:
    """See :func:`midtrace.plan.describe`."""
    print(plan.describe(config, results), end="")


if __name__ == "__main__":
    main(snakemake.params.config, snakemake.params.results)
