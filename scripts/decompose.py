"""Write the tables of estimates."""

from midtrace import decomposition, logs


def main(outcomes: str, inputs: dict[str, list[str]], planted: str | None, outputs: dict[str, str], study: str, settings: dict) -> None:
    """See :func:`midtrace.decomposition.run`."""
    decomposition.run(outcomes, inputs, planted, outputs, study, settings)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        stages = ("item_tables", "traces", "cuts", "readouts", "continuations", "controls", "interruptions")
        main(
            snakemake.input.outcomes,
            {stage: list(snakemake.input.get(stage, [])) for stage in stages},
            snakemake.params.planted,
            dict(snakemake.output.items()),
            snakemake.params.study,
            snakemake.params.settings,
        )
