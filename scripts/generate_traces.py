"""Generate the raw traces of an arm and replicate."""

from midtrace import generation, logs, store
from midtrace.engines import Engine


def main(items: str, output: str, study: str, settings: dict, batch: int, engine: Engine) -> None:
    """See :func:`midtrace.generation.run`."""
    generation.run(items, output, study, settings, batch, engine)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        model = snakemake.params.settings["model"]
        where = (snakemake.threads, snakemake.params.machine, snakemake.params.receipts, snakemake.params.service)
        main(
            snakemake.input.item_table,
            snakemake.output[0],
            snakemake.params.study,
            snakemake.params.settings,
            snakemake.resources.batch,
            store.engine_of(snakemake.output[0], model, *where),
        )
