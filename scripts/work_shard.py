"""Do the engine's work for a shard of the items, of one table or of several."""

from midtrace import logs, shards
from midtrace.shard import Shard


def main(
    stage: str,
    jobs: list[tuple[dict, str, dict]],
    identities: dict[str, str],
    receipt: str,
    shard: tuple[int, int],
    batch: int,
    threads: int,
    machine: dict,
    service: dict | None,
) -> None:
    """See :func:`midtrace.shards.work`."""
    shards.work(stage, jobs, identities, receipt, Shard(*shard), batch, threads, machine, service)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        main(
            snakemake.params.stage,
            snakemake.params.jobs,
            dict(snakemake.params.tables),
            snakemake.output[0],
            (int(snakemake.wildcards.shard) - 1, snakemake.params.shards),
            snakemake.resources.batch,
            snakemake.threads,
            snakemake.params.machine,
            snakemake.params.service,
        )
