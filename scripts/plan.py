"""Print what a study will take; nothing is run."""

import os

from midtrace import logs, plan


def main(config: dict, results: str) -> str:
    """See :func:`midtrace.plan.describe`."""
    return plan.describe(config, results)


if __name__ == "__main__":
    terminal = os.dup(1)
    with logs.to_log(snakemake.log[0]):
        text = main(snakemake.params.config, snakemake.params.results)
        print(text, end="")
        os.write(terminal, text.encode())
