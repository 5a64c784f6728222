"""Read the controls of a model on a benchmark."""

from midtrace import controls, logs, store
from midtrace.engines import Engine


def main(items: str, traces: str, output: str, study: str, settings: dict, engine: Engine) -> None:
    """See :func:`midtrace.controls.run`."""
    controls.run(items, traces, output, study, settings, engine)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        model = snakemake.params.settings["traces"]["model"]
        main(
            snakemake.input.item_table,
            snakemake.input.traces,
            snakemake.output[0],
            snakemake.params.study,
            snakemake.params.settings,
            store.engine_of(snakemake.output[0], model, snakemake.threads, snakemake.params.machine, service=snakemake.params.service),
        )
