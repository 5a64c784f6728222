"""Answer availability: how early the right answer can be read, as an area under the gold log-odds (method, 4.6)."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from midtrace.estimands.terms import named

KEYS = ["item_id", "replicate"]


def area(log_odds: np.ndarray, horizons: Sequence[float]) -> np.ndarray:
    """Area under gold log-odds by the trapezoid rule, divided by the span: a mean log-odds over reasoning tokens.

    Parameters
    ----------
    log_odds
        Shape (runs, horizons), natural logarithm.
    horizons
        Tokens, increasing, at least two.

    Returns
    -------
    numpy.ndarray
        Shape (runs,); NaN where a value is missing.
    """
    grid = np.asarray(horizons, dtype=float)
    if len(grid) < 2:
        raise ValueError(f"{len(grid)} horizons; an area needs at least 2")
    steps = np.diff(grid)
    return ((log_odds[:, 1:] + log_odds[:, :-1]) / 2 * steps).sum(axis=1) / steps.sum()


def carried(outcomes: pl.DataFrame, horizons: Sequence[int]) -> pl.DataFrame:
    """Gold log-odds of every run at every horizon, the terminal distribution carried forward.

    Parameters
    ----------
    outcomes
        ``symmetric`` rows of one arm in one context: ``item_id``, ``replicate``, ``horizon``, ``complete``, ``gold_log_odds``.
    horizons
        The grid, in reasoning tokens.

    Returns
    -------
    polars.DataFrame
        ``item_id``, ``replicate``, ``log_odds`` list of one value per horizon; null where a run was not read at a horizon and had not been
        read after its end before.
    """
    grid = outcomes.select(KEYS).unique(maintain_order=True).join(pl.DataFrame({"horizon": horizons}, schema={"horizon": pl.Int32}), how="cross")
    read = outcomes.select(*KEYS, pl.col("horizon").cast(pl.Int32), "gold_log_odds", "complete")
    # Readouts off the grid count too: a run read after its end at 100 tokens has its value at 128.
    ends = read.filter("complete").group_by(KEYS).agg(terminal_from=pl.col("horizon").min(), last=pl.col("gold_log_odds").sort_by("horizon").last())
    placed = grid.join(read, on=[*KEYS, "horizon"], how="left").join(ends, on=KEYS, how="left").sort(*KEYS, "horizon")
    value = pl.coalesce("gold_log_odds", pl.when(pl.col("horizon") >= pl.col("terminal_from")).then("last"))
    return placed.with_columns(value.alias("log_odds")).group_by(KEYS, maintain_order=True).agg("log_odds")


def availability_terms(outcomes: pl.DataFrame, treatment: str, reference: str, common: str | None, horizons: Sequence[int]) -> pl.DataFrame:
    """Terms of the availability area of both arms and of their contrast.

    Parameters
    ----------
    outcomes
        The outcomes table; ``symmetric`` rows are used.
    treatment, reference, common
        Arms; see :func:`midtrace.estimands.pairs`.
    horizons
        The grid B_0 < ... < B_K, in reasoning tokens.

    Returns
    -------
    polars.DataFrame
        Key ``estimand``: ``auc_treatment``, ``auc_reference``, ``auc_contrast`` (nats); for pairs whose areas are both finite, with
        AUC = sum_k (B_k - B_{k-1}) (o_{k-1} + o_k) / 2 / (B_K - B_0) and o the gold log-odds. ``auc_undefined`` is the share of pairs left
        out: a side was not read at some horizon, or its log-odds are infinite.
    """
    kept = outcomes.filter(pl.col("readout") == "symmetric")
    if common is not None:
        kept = kept.filter(pl.col("context_arm") == common)
    sides = []
    for arm in (treatment, reference):
        runs = carried(kept.filter(pl.col("arm") == arm), horizons)
        values = np.array(runs["log_odds"].to_list(), dtype=float).reshape(len(runs), len(horizons))
        with np.errstate(invalid="ignore"):  # infinities of both signs have no area
            sides.append(runs.select(KEYS).with_columns(area=pl.Series(area(values, horizons), dtype=pl.Float64)))
    pairs = sides[0].join(sides[1], on=KEYS, suffix="_r", validate="1:1").sort(KEYS)
    defined = pl.col("area").is_finite() & pl.col("area_r").is_finite()
    means = {"auc_treatment": pl.col("area"), "auc_reference": pl.col("area_r"), "auc_contrast": pl.col("area") - pl.col("area_r")}
    found = [named(pairs, name, [], value, defined) for name, value in means.items()]
    return pl.concat([*found, named(pairs, "auc_undefined", [], ~defined)])
