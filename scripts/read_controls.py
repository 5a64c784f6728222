"""Read the controls of a model on a benchmark."""

from midtrace import controls, logs


def main(items: str, traces: str, output: str, study: str, settings: dict, threads: int, machine: dict) -> None:
    """See :func:`midtrace.controls.run`."""
    controls.run(items, traces, output, study, settings, threads, machine=machine)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        main(
            snakemake.input.item_table,
            snakemake.input.traces,
            snakemake.output[0],
            snakemake.params.study,
            snakemake.params.settings,
            snakemake.threads,
            snakemake.params.machine,
        )
