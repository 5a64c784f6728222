"""Read and grade continuations and compare them with the probe."""

from midtrace import grading, logs
from midtrace.grading import answers


def main(
    items: str,
    traces: str,
    cuts: str,
    raw: str,
    readouts: str | None,
    output: str,
    study: str,
    settings: dict,
    programs: grading.Programs | None = None,
    judge: grading.Judge | None = None,
) -> None:
    """See :func:`midtrace.grading.answers.grade_continuations`."""
    answers.grade_continuations(items, traces, cuts, raw, readouts, output, study, settings, programs, judge)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        where = (snakemake.threads, snakemake.params.machine, snakemake.params.service)
        main(
            snakemake.input.item_table,
            snakemake.input.traces,
            snakemake.input.cuts,
            snakemake.input.raw,
            snakemake.input.get("readouts") or None,
            snakemake.output[0],
            snakemake.params.study,
            snakemake.params.settings,
            grading.Programs.read(
                snakemake.input.get("tests"), snakemake.params.settings["replay"]["traces"]["items"], snakemake.params.programs, snakemake.threads
            ),
            grading.Judge.read(snakemake.output[0], snakemake.params.settings, snakemake.resources.batch, *where),
        )
