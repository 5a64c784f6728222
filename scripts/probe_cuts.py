"""Probe the cuts of an arm and replicate."""

from midtrace import logs, probe, store
from midtrace.engines import Engine


def main(items: str, traces: str, cuts: str, output: str, study: str, settings: dict, batch: int, engine: Engine) -> None:
    """See :func:`midtrace.probe.run`."""
    probe.run(items, traces, cuts, output, study, settings, batch, engine)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        model = snakemake.params.settings["replay"]["traces"]["model"]
        where = (snakemake.threads, snakemake.params.machine, snakemake.params.receipts, snakemake.params.service)
        main(
            snakemake.input.item_table,
            snakemake.input.traces,
            snakemake.input.cuts,
            snakemake.output[0],
            snakemake.params.study,
            snakemake.params.settings,
            snakemake.resources.batch,
            store.engine_of(snakemake.output[0], model, *where),
        )
