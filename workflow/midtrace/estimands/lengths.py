"""Reasoning lengths of pairs (method, 4.1); completion curves are in :mod:`midtrace.estimands.survival`."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from midtrace.inference.bootstrap import Intervals, weight_chunks


def length_pairs(traces: pl.DataFrame, treatment: str, reference: str) -> pl.DataFrame:
    """Pairs of reasoning lengths (method, 4.1).

    Returns
    -------
    polars.DataFrame
        ``item_id``, ``replicate``, ``length_t``, ``length_r`` (tokens; truncated runs at their cut), ``truncated_t``, ``truncated_r``,
        ``log_ratio`` = ln(L_t / L_r), null where a length is 0.
    """
    keys = ["item_id", "replicate"]
    columns = [*keys, pl.col("n_reasoning").alias("length"), (pl.col("status") == "truncated").alias("truncated")]
    t, r = (traces.filter(pl.col("arm") == arm).select(columns) for arm in (treatment, reference))
    joined = t.join(r, on=keys, suffix="_r", validate="1:1").rename({"length": "length_t", "truncated": "truncated_t"})
    positive = (pl.col("length_t") > 0) & (pl.col("length_r") > 0)
    return joined.with_columns(log_ratio=pl.when(positive).then((pl.col("length_t") / pl.col("length_r")).log())).sort(keys)


def median_ratio(frame: pl.DataFrame) -> float:
    """Ratio of the median reasoning lengths, treatment over reference."""
    return float(np.median(frame["length_t"]) / np.median(frame["length_r"]))


def median_ratio_interval(frame: pl.DataFrame, *, resamples: int, level: float, seed: int, strata: Sequence[str] | None = None) -> Intervals:
    """Ratio of medians with item-bootstrap limits.

    Parameters
    ----------
    frame
        See :func:`length_pairs`.
    resamples, level, seed
        See :func:`midtrace.inference.item_bootstrap`; the items are drawn with the same weights.
    strata
        Stratum of each item in order of ``item_id``; None: one.

    Returns
    -------
    Intervals
        Arrays of shape (1,); a resample whose reference median is 0 is left out.
    """
    items, codes = np.unique(frame["item_id"].to_numpy(), return_inverse=True)
    sides = [frame["length_t"].to_numpy(), frame["length_r"].to_numpy()]
    chunks = weight_chunks(len(items), resamples, seed, strata)
    above, below = np.concatenate([[weighted_medians(side, codes, weights) for side in sides] for weights in chunks], axis=1)
    draws = np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0)
    tail = (1 - level) / 2
    low, high = np.nanquantile(draws, [tail, 1 - tail]) if (below > 0).any() else (np.nan, np.nan)
    return Intervals(np.array([median_ratio(frame)]), np.array([low]), np.array([high]), f"item bootstrap, percentile, {resamples} resamples")


def weighted_medians(values: np.ndarray, items: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Median of ``values`` (runs,), each repeated as often as its item was drawn; items (runs,), weights (draws, items), result (draws,)."""
    order = np.argsort(values, kind="stable")
    ordered, owner = np.asarray(values)[order], items[order]
    reached = np.cumsum(weights[:, owner], axis=1)
    total = reached[:, -1:]
    # The (k + 1)-th value is the first whose cumulative count exceeds k.
    lower, upper = ((reached <= rank).sum(axis=1) for rank in ((total - 1) // 2, total // 2))
    return (ordered[lower] + ordered[upper]) / 2
