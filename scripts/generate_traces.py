"""Generate the raw traces of an arm and replicate."""

from midtrace import generation, logs


def main(items: str, output: str, study: str, settings: dict, batch: int, threads: int, machine: dict) -> None:
    """See :func:`midtrace.generation.generate`."""
    generation.generate(items, output, study, settings, batch, threads, machine=machine)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        main(
            snakemake.input.item_table,
            snakemake.output[0],
            snakemake.params.study,
            snakemake.params.settings,
            snakemake.resources.batch,
            snakemake.threads,
            snakemake.params.machine,
        )
