"""Probe the cuts of an arm and replicate."""

from midtrace import logs, probe


def main(items: str, traces: str, cuts: str, output: str, study: str, settings: dict, batch: int, threads: int, machine: dict) -> None:
    """See :func:`midtrace.probe.run`."""
    probe.run(items, traces, cuts, output, study, settings, batch, threads, machine=machine)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        main(
            snakemake.input.item_table,
            snakemake.input.traces,
            snakemake.input.cuts,
            snakemake.output[0],
            snakemake.params.study,
            snakemake.params.settings,
            snakemake.resources.batch,
            snakemake.threads,
            snakemake.params.machine,
        )
