"""Interrupt the traces of an arm and replicate with one intervention."""

from midtrace import logs, store
from midtrace.engines import Engine
from midtrace.interruptions import interrupt


def main(items: str, traces: str, output: str, study: str, settings: dict, batch: int, engine: Engine) -> None:
    """See :func:`midtrace.interruptions.interrupt.run`."""
    interrupt.run(items, traces, output, study, settings, batch, engine)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        model = snakemake.params.settings["traces"]["model"]
        where = (snakemake.threads, snakemake.params.machine, snakemake.params.receipts, snakemake.params.service)
        main(
            snakemake.input.item_table,
            snakemake.input.traces,
            snakemake.output[0],
            snakemake.params.study,
            snakemake.params.settings,
            snakemake.resources.batch,
            store.engine_of(snakemake.output[0], model, *where),
        )
