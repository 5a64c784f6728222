"""Read and grade the natural answers of raw traces."""

from midtrace import grading, logs
from midtrace.grading import answers


def main(
    raw: str,
    items: str,
    output: str,
    study: str,
    settings: dict,
    programs: grading.Programs | None = None,
    judge: grading.Judge | None = None,
) -> None:
    """See :func:`midtrace.grading.answers.grade_traces`."""
    answers.grade_traces(raw, items, output, study, settings, programs, judge)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        where = (snakemake.threads, snakemake.params.machine, snakemake.params.service)
        main(
            snakemake.input.raw,
            snakemake.input.item_table,
            snakemake.output[0],
            snakemake.params.study,
            snakemake.params.settings,
            grading.Programs.read(snakemake.input.get("tests"), snakemake.params.settings["items"], snakemake.params.programs, snakemake.threads),
            grading.Judge.read(snakemake.output[0], snakemake.params.settings, snakemake.resources.batch, *where),
        )
