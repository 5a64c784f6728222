"""Write the tables of estimates of interruptions."""

from midtrace import logs
from midtrace.interruptions import estimates as interruption_estimates


def main(shards: list[str], traces: list[str], item_tables: list[str], outputs: dict[str, str], study: str, settings: dict) -> None:
    """See :func:`midtrace.interruptions.estimates.run`."""
    interruption_estimates.run(shards, traces, item_tables, outputs, study, settings)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        main(
            list(snakemake.input.shards),
            list(snakemake.input.traces),
            list(snakemake.input.item_tables),
            dict(snakemake.output.items()),
            snakemake.params.study,
            snakemake.params.settings,
        )
