"""The both-active contrast is one of survivors: its pairs are selected by what both arms did. Bounds and a standardised version (method, 4.12)."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from midtrace.estimands.terms import item_means
from midtrace.inference.bootstrap import ratio

SURVIVORS = ("trimmed_lower", "trimmed_upper")
STANDARDISED = ("standardised_contrast", "standardised_items")


def survivor_means(pairs: pl.DataFrame, readout: str) -> pl.DataFrame:
    """Who is still active, and right, in either arm: item means by ``horizon``.

    Parameters
    ----------
    pairs
        See :func:`midtrace.estimands.pairs`.
    readout
        The readout of the outcomes: ``symmetric``, or ``symmetric_continuation`` for free-form answers.

    Returns
    -------
    polars.DataFrame
        ``horizon``, ``item_id``; ``active_t``, ``active_r`` = share of active runs; ``right_t``, ``right_r`` = share of active and right ones;
        ``both_active`` and ``difference`` = mean of difference x [both are active]; ``pairs``.
    """
    active_t, active_r = ~pl.col("complete_t"), ~pl.col("complete_r")
    values = {
        "active_t": active_t,
        "active_r": active_r,
        "right_t": pl.col("correct_t") * active_t,
        "right_r": pl.col("correct_r") * active_r,
        "both_active": active_t & active_r,
        "difference": pl.col("difference") * (active_t & active_r),
    }
    return item_means(pairs.filter(pl.col("readout") == readout), ["horizon"], values)


def trimmed(sums: np.ndarray) -> np.ndarray:
    """Trimming bounds of the contrast among pairs that would be active under both arms.

    Parameters
    ----------
    sums
        Shape (..., 4 or more): sums over items of ``active_t``, ``active_r``, ``right_t``, ``right_r``; further columns are ignored.

    Returns
    -------
    numpy.ndarray
        Shape (..., 2), in the order of ``SURVIVORS``; NaN where an arm has no active run.

    Notes
    -----
    Nothing is used of which runs are paired. With a_t, a_c the shares of active runs and m_t, m_c those of active and right ones, a = min(a_t,
    a_c): if whoever is active under the arm with fewer active runs is active under the other one too (monotonicity), the survivors are a share
    a of all, and the accuracy of arm z among them lies between max(0, (m_z - (a_z - a)) / a) and min(1, m_z / a): all trimmed runs right, or
    all wrong. The arm with fewer active runs is not trimmed.

    References
    ----------
    Lee (2009), Review of Economic Studies 76, 1071-1102.
    """
    active, right = sums[..., 0:2], sums[..., 2:4]
    survivors = active.min(axis=-1, keepdims=True)
    low = np.clip(ratio(right - (active - survivors), np.broadcast_to(survivors, right.shape)), 0, None)
    high = np.clip(ratio(right, np.broadcast_to(survivors, right.shape)), None, 1)
    return np.stack([low[..., 0] - high[..., 1], high[..., 0] - low[..., 1]], axis=-1)


def length_strata(traces: pl.DataFrame, edges: Sequence[float]) -> pl.DataFrame:
    """Items by the mean length of their runs.

    Parameters
    ----------
    traces
        ``item_id``, ``n_reasoning``, ``status`` of the reference arm. Truncated runs count with their length at the cap; malformed ones have no
        length, and an item that has no others is left out.
    edges
        Upper edges of all strata but the last, in tokens, increasing; an edge belongs to the stratum below.

    Returns
    -------
    polars.DataFrame
        ``item_id``, ``stratum`` = 0, 1, ..., in the order of the items.
    """
    means = item_lengths(traces)
    return means.select("item_id", stratum=pl.Series(np.searchsorted(list(edges), means["length"].to_numpy(), side="left"), dtype=pl.Int64))


def quantile_edges(traces: pl.DataFrame, count: int) -> list[float]:
    """Edges between ``count`` groups of items of about equal size by mean length; fewer where lengths repeat. See :func:`length_strata`."""
    lengths = item_lengths(traces)["length"].to_numpy()
    if not len(lengths):
        return []
    edges = np.unique(np.quantile(lengths, np.arange(1, count) / count, method="inverted_cdf"))
    return [float(edge) for edge in edges if edge < lengths.max()]


def item_lengths(traces: pl.DataFrame) -> pl.DataFrame:
    """``item_id`` and ``length``, the mean reasoning length of its runs that are not malformed, sorted."""
    known = traces.filter(pl.col("status") != "malformed")
    return known.group_by("item_id").agg(length=pl.col("n_reasoning").cast(pl.Float64).mean()).sort("item_id")


def standardised(sums: np.ndarray) -> np.ndarray:
    """The both-active contrast with the strata of the reference's length weighed as among all items.

    Parameters
    ----------
    sums
        Shape (..., strata, 3): sums over the items of a stratum of ``difference``, ``both_active`` (:func:`survivor_means`), and their number.

    Returns
    -------
    numpy.ndarray
        Shape (..., 2), in the order of ``STANDARDISED``: sum_s w_s d_s / sum_s w_s with d_s the both-active contrast in stratum s, w_s its share of
        the items, over the strata with a both-active pair; and the sum of their w_s. Below 1, that many items only are spoken of.
    """
    contrast = ratio(sums[..., 0], sums[..., 1])
    weight = np.where(np.isnan(contrast), 0.0, sums[..., 2])
    known = weight.sum(axis=-1)
    total = ratio((weight * np.nan_to_num(contrast)).sum(axis=-1), known)
    return np.stack([total, ratio(known, sums[..., 2].sum(axis=-1))], axis=-1)
