"""Read and grade the answers of interrupted traces."""

from midtrace import grading, logs
from midtrace.interruptions import grade as interruption_grading


def main(
    items: str,
    fresh: str,
    traces: str,
    raw: str,
    output: str,
    study: str,
    settings: dict,
    programs: grading.Programs | None = None,
    judge: grading.Judge | None = None,
) -> None:
    """See :func:`midtrace.interruptions.grade.run`."""
    interruption_grading.run(items, fresh, traces, raw, output, study, settings, programs, judge)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        where = (snakemake.threads, snakemake.params.machine, snakemake.params.service)
        main(
            snakemake.input.item_table,
            snakemake.input.fresh,
            snakemake.input.traces,
            snakemake.input.raw,
            snakemake.output[0],
            snakemake.params.study,
            snakemake.params.settings,
            grading.Programs.read(
                snakemake.input.get("tests"), snakemake.params.settings["fresh"]["items"], snakemake.params.programs, snakemake.threads
            ),
            grading.Judge.read(snakemake.output[0], snakemake.params.settings, snakemake.resources.batch, *where),
        )
