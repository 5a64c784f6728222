"""Interrupt the traces of an arm and replicate with one intervention."""

from midtrace import interruption, logs


def main(items: str, traces: str, output: str, study: str, settings: dict, batch: int, threads: int, machine: dict) -> None:
    """See :func:`midtrace.interruption.run`."""
    interruption.run(items, traces, output, study, settings, batch, threads, machine=machine)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        main(
            snakemake.input.item_table,
            snakemake.input.traces,
            snakemake.output[0],
            snakemake.params.study,
            snakemake.params.settings,
            snakemake.resources.batch,
            snakemake.threads,
            snakemake.params.machine,
        )
