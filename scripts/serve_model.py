"""Start the server of a model for the time of a run."""

from pathlib import Path

from midtrace import logs, serving


def main(address: str, log: str, settings: dict, threads: int, machine: dict, owner: dict) -> None:
    """See :func:`midtrace.serving.start`."""
    serving.start(settings, address, log, threads, machine, owner)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        main(
            snakemake.output[0],
            str(Path(snakemake.log[0]).with_suffix(".server.log")),
            snakemake.params.settings,
            snakemake.threads,
            snakemake.params.machine,
            snakemake.params.owner,
        )
