"""Write the outcomes table from the shards of all stages."""

from midtrace import logs, outcomes


def main(inputs: dict[str, list[str]], output: str, study: str, settings: dict) -> None:
    """See :func:`midtrace.outcomes.run`."""
    outcomes.run(inputs, output, study, settings)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        stages = ("item_tables", "traces", "cuts", "readouts", "continuations")
        inputs = {stage: list(snakemake.input.get(stage, [])) for stage in stages}
        main(inputs, snakemake.output[0], snakemake.params.study, snakemake.params.settings)
