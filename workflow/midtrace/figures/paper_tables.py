"""Tables for readers in the form that papers of this kind print: one row per arm or comparison, what belongs together side by side."""

from collections.abc import Mapping, Sequence

import polars as pl

from midtrace.estimands import TERMINATION
from midtrace.figures.catalogue import PAPER_TABLES

PAIR = ["model", "benchmark", "treatment", "reference"]
LIMITS = ("estimate", "ci_low", "ci_high")


def paper_tables(found: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """The tables of ``catalogue.PAPER_TABLES``.

    Parameters
    ----------
    found
        Decomposition tables by name.

    Returns
    -------
    dict
        ``completed_block_agreement``: how often the probe on a completed block reads the run's own answer, by arm and context of the reading.
        ``generated_answer_check``: at the matched horizon, the accuracies of both sides and their difference by the probe, and again by what the
        model writes. ``termination_strata``: the contrast at every horizon, and share, difference and contribution of each stratum. All
        numbers as in the tables that they come from; ``method`` is that of the intervals.
    """
    return {name: table(found) for name, table in zip(PAPER_TABLES, (completed_blocks, generated_answers, termination_strata), strict=True)}


def completed_blocks(found: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Agreement, kappa and accuracies of the probe and the run's own answer on completed blocks; one row per arm and reading."""
    rows = found["agreement"].filter(pl.col("reading").str.starts_with("probe_natural_complete"))
    names = ["agreement", "kappa", "accuracy_probe", "accuracy_answer"]
    keys = ["model", "benchmark", "treatment", "reading", *(column for column in ("context", "context_arm") if column in rows.columns)]
    return spread(rows, keys, names, ["agreement"]).rename({"treatment": "arm"})


def generated_answers(found: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Accuracies and contrast at the matched horizon, a row per comparison for each way of reading: probe and generated answer."""
    names = ["matched_contrast", "matched_accuracy_treatment", "matched_accuracy_reference"]
    return spread(found["matched"], [*PAIR, "readout"], names, ["matched_contrast"])


def termination_strata(found: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """The contrast beside the four strata, a row per comparison, readout and horizon."""
    keys = [*PAIR, "readout", "horizon"]
    table = spread(found["policy"], keys, ["contrast"], ["contrast"])
    for state in TERMINATION:
        own = found["strata"].filter(pl.col("termination") == state)
        columns = [pl.col(name).alias(f"{state}_{name}") for name in ("share", "difference", "contribution", "ci_low", "ci_high")]
        table = table.join(own.select(*keys, *columns), on=keys, how="left", maintain_order="left")
    return table.select(*(column for column in table.columns if column != "method"), "method")


def spread(frame: pl.DataFrame, keys: Sequence[str], estimands: Sequence[str], limited: Sequence[str]) -> pl.DataFrame:
    """Estimands as columns, in the order of the rows.

    Parameters
    ----------
    frame
        A decomposition table.
    keys
        What a row is about.
    estimands
        The first of them says which rows there are, how many items and pairs they have, and the method.
    limited
        Estimands whose limits are shown, as ``{estimand}_ci_low`` and ``{estimand}_ci_high``.
    """
    first = frame.filter(pl.col("estimand") == estimands[0])
    found = first.select(*keys, "n_items", "n_pairs", "method")
    for name in estimands:
        own = frame.filter(pl.col("estimand") == name)
        columns = [pl.col("estimate").alias(name)]
        columns += [pl.col(limit).alias(f"{name}_{limit}") for limit in LIMITS[1:]] if name in limited else []
        found = found.join(own.select(*keys, *columns), on=keys, how="left", nulls_equal=True, validate="1:1", maintain_order="left")
    return found.select(*(column for column in found.columns if column != "method"), "method")
