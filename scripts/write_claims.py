"""Write the headline estimates as JSON."""

from midtrace import claims, logs


def main(inputs: dict[str, str], output: str, study: str, settings: dict) -> None:
    """See :func:`midtrace.claims.run`."""
    claims.run(inputs, output, study, settings)


if __name__ == "__main__":
    with logs.to_log(snakemake.log[0]):
        main(dict(snakemake.input.items()), snakemake.output[0], snakemake.params.study, snakemake.params.settings)
