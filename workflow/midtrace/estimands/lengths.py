"""Reasoning lengths of pairs (method, 4.1); completion curves are in :mod:`midtrace.estimands.survival`."""

from typing import Any

import numpy as np
import polars as pl
from scipy import sparse

from midtrace.inference.bootstrap import Intervals, bootstrap_statistic, ratio


def length_pairs(traces: pl.DataFrame, treatment: str, reference: str) -> pl.DataFrame:
    """Pairs of reasoning lengths (method, 4.1), of well-formed runs: where the format broke, the length of the reasoning is not known.

    Returns
    -------
    polars.DataFrame
        ``item_id``, ``replicate``, ``length_t``, ``length_r`` (tokens; truncated runs at their cut), ``truncated_t``, ``truncated_r``,
        ``log_ratio`` = ln(L_t / L_r), null where a length is 0.
    """
    keys = ["item_id", "replicate"]
    columns = [*keys, pl.col("n_reasoning").alias("length"), (pl.col("status") == "truncated").alias("truncated")]
    formed = traces.filter(pl.col("status") != "malformed")
    t, r = (formed.filter(pl.col("arm") == arm).select(columns) for arm in (treatment, reference))
    joined = t.join(r, on=keys, suffix="_r", validate="1:1").rename({"length": "length_t", "truncated": "truncated_t"})
    positive = (pl.col("length_t") > 0) & (pl.col("length_r") > 0)
    return joined.with_columns(log_ratio=pl.when(positive).then((pl.col("length_t") / pl.col("length_r")).log())).sort(keys)


def median_ratio(frame: pl.DataFrame, **settings: Any) -> Intervals:
    """Ratio of the median reasoning lengths, treatment over reference, with item-bootstrap limits.

    Parameters
    ----------
    frame
        See :func:`length_pairs`.
    **settings
        ``resamples``, ``level``, ``seed``, ``method``, ``strata`` (of each item, in order of ``item_id``): see
        :func:`midtrace.inference.bootstrap_statistic`.

    Returns
    -------
    Intervals
        Arrays of shape (1,). Items weigh equally: each of an item's n_i runs weighs 1 / n_i. A resample whose reference median is 0 is left out.
    """
    items, codes = np.unique(frame["item_id"].to_numpy(), return_inverse=True)
    sides = [frame["length_t"].to_numpy(), frame["length_r"].to_numpy()]

    def statistic(weights: np.ndarray) -> np.ndarray:
        above, below = (weighted_medians(side, codes, weights) for side in sides)
        return ratio(above, below)[:, None]

    return bootstrap_statistic(len(items), statistic, **settings)


def weighted_medians(values: np.ndarray, items: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Median of runs in which items weigh equally, for many weightings of the items.

    Parameters
    ----------
    values, items
        Value and index of the item of each run, shape (runs,).
    weights
        How often each item was drawn, shape (draws, items): whole numbers. Each of its n_i runs weighs 1 / n_i of that.

    Returns
    -------
    numpy.ndarray
        Shape (draws,): the mean of the lowest value up to which at least half of the weight lies and the lowest up to which more than half does.
    """
    counts = np.bincount(items, minlength=weights.shape[1])
    # Whole numbers in proportion to 1 / n_i, so that "exactly half" is exact.
    shares = np.lcm.reduce(counts[counts > 0]) // np.maximum(counts, 1)
    distinct, place = np.unique(values, return_inverse=True)
    reached = np.cumsum(by_value(place, items, weights * shares), axis=0)
    half = reached[-1] / 2
    lower, upper = (below.sum(axis=0) for below in (reached < half, reached <= half))
    return (distinct[lower] + distinct[np.minimum(upper, len(distinct) - 1)]) / 2


def by_value(place: np.ndarray, items: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Total weight of the runs of each value; value and item of each run (runs,), weights (draws, items), result (values, draws)."""
    counts = sparse.csr_array((np.ones(len(place)), (place, items)), shape=(place.max() + 1, weights.shape[1]))
    return counts @ np.ascontiguousarray(weights.T)
