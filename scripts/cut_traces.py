"""Cut the traces of an arm and replicate."""

from midtrace import logs, replay
from midtrace.tables import TableKey


def main(traces: str, partners: list[str], output: str, study: str, settings: dict) -> None:
    """See :func:`midtrace.replay.run`; a partner file is known by the arm in its path."""
    by_arm = {TableKey.parse(path).arm: path for path in partners}
    replay.run(traces, by_arm, output, study, settings)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        main(
            snakemake.input.traces,
            list(snakemake.input.get("partners", [])),
            snakemake.output[0],
            snakemake.params.study,
            snakemake.params.settings,
        )
