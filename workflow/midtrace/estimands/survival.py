"""Reasoning length as a survival time: a run completes when its reasoning closes; the token cap censors it, and a broken format never completes.

Items weigh equally: each of an item's n_i runs weighs 1 / n_i.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from midtrace.estimands.lengths import by_value
from midtrace.estimands.terms import item_terms
from midtrace.inference.bootstrap import bootstrap_statistic
from midtrace.inference.intervals import bounded, intervals

NEVER = np.inf


def completion_curve(traces: pl.DataFrame, horizons: Sequence[int]) -> np.ndarray:
    """P(L <= B) of one arm at each horizon by Kaplan-Meier, items weighing equally.

    Parameters
    ----------
    traces
        ``item_id``, ``n_reasoning``, ``status``.
    horizons
        Horizons B, increasing.

    Returns
    -------
    numpy.ndarray
        Shape (horizons,).
    """
    times, completed, owner = _runs(traces)
    return curves(times, completed, owner, np.ones((1, owner.max() + 1)), horizons)[0, :-1]


def summary(traces: pl.DataFrame, horizons: Sequence[int], *, strata: Mapping[str, str] | None = None, **settings: Any) -> pl.DataFrame:
    """Completion curve and restricted mean of one arm, with item-bootstrap limits.

    Parameters
    ----------
    traces
        ``item_id``, ``n_reasoning``, ``status`` of one arm.
    horizons
        Horizons B.
    strata
        Item -> stratum; items are resampled within strata.
    **settings
        ``resamples``, ``level``, ``seed``, ``method``: see :func:`midtrace.inference.item_bootstrap`; the items are drawn with the same weights.

    Returns
    -------
    polars.DataFrame
        ``estimand`` (``completion`` by ``horizon``; ``restricted_mean_length`` up to the largest), ``estimate``, ``ci_low``, ``ci_high``,
        ``n_items``, ``n_pairs`` (runs), ``method``.

    Notes
    -----
    Where no run is cut before the largest horizon, Kaplan-Meier's curve is the share of runs that are complete, and is computed as such.
    """
    if traces.is_empty() or not len(horizons):
        return pl.DataFrame()
    grid, until = sorted(horizons), max(horizons)
    cut = (pl.col("status") == "truncated") & (pl.col("n_reasoning") < until)
    whole = not traces.select(cut.any()).item()
    table = _shares(traces, grid, strata, settings) if whole else _kaplan_meier(traces, grid, strata, settings)
    return table.with_columns(method="Kaplan-Meier, " + pl.col("method"))


def _shares(traces: pl.DataFrame, horizons: Sequence[int], strata: Mapping[str, str] | None, settings: Mapping[str, Any]) -> pl.DataFrame:
    """The summary of runs of which none is cut before the largest horizon."""
    done, length = pl.col("status") == "terminated", pl.col("n_reasoning")
    at = pl.DataFrame({"horizon": horizons}, schema={"horizon": pl.Int64})
    spread = traces.join(at, how="cross").with_columns(estimand=pl.lit("completion"))
    by = ["estimand", "horizon"]
    completion = item_terms(spread, by, done & (length <= pl.col("horizon")))
    reached = pl.when(done).then(pl.min_horizontal(length, pl.lit(max(horizons)))).otherwise(max(horizons))
    last = traces.with_columns(estimand=pl.lit("restricted_mean_length"), horizon=pl.lit(max(horizons), pl.Int64))
    return intervals(pl.concat([completion, item_terms(last, by, reached)]), by, strata=strata, **settings)


def _kaplan_meier(traces: pl.DataFrame, horizons: Sequence[int], strata: Mapping[str, str] | None, settings: Mapping[str, Any]) -> pl.DataFrame:
    """The summary where runs are cut before the largest horizon."""
    times, completed, owner = _runs(traces)
    n_items = owner.max() + 1
    groups = None if strata is None else [strata[item] for item in np.unique(traces["item_id"].to_numpy())]
    result = bootstrap_statistic(n_items, lambda weights: curves(times, completed, owner, weights, horizons), strata=groups, **settings)
    columns = {"estimand": ["completion"] * len(horizons) + ["restricted_mean_length"], "horizon": [*horizons, max(horizons)]}
    # A curve at 0 or 1 is one at which no item, or every item, has come to its end.
    alike = np.isin(result.estimate, (0.0, 1.0)) & (np.arange(len(result.estimate)) < len(horizons))
    counts = np.full(len(alike), n_items)
    table = pl.concat([pl.DataFrame(columns), bounded(result, alike, settings["level"], counts, alike)], how="horizontal")
    return table.with_columns(n_items=pl.lit(n_items, pl.Int64), n_pairs=pl.lit(len(traces), pl.Int64))


def _runs(traces: pl.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Time (infinite where the format broke), whether the reasoning was closed, and index of the item, of every run."""
    status = traces["status"].to_numpy()
    times = np.where(status == "malformed", NEVER, traces["n_reasoning"].to_numpy().astype(float))
    return times, status == "terminated", np.unique(traces["item_id"].to_numpy(), return_inverse=True)[1]


def curves(times: np.ndarray, completed: np.ndarray, owner: np.ndarray, weights: np.ndarray, horizons: Sequence[int]) -> np.ndarray:
    """Kaplan-Meier curves and restricted means of many weightings of the items.

    Parameters
    ----------
    times, completed, owner
        Reasoning tokens (infinite for a run that never completes), whether terminated (else censored there), and index of the item; shape (runs,).
    weights
        How often each item was drawn, shape (draws, items); each of its n_i runs weighs 1 / n_i of that.
    horizons
        Horizons B, increasing.

    Returns
    -------
    numpy.ndarray
        Shape (draws, horizons + 1): P(L <= B) = 1 - prod_{l <= B} (1 - d_l / w_l), with d_l the weight of the runs that complete at l tokens and
        w_l that of the runs that are not over before; then the restricted mean, the integral of the survival curve from 0 to the last horizon.

    References
    ----------
    Kaplan and Meier (1958), JASA 53, 457-481.
    """
    distinct, place = np.unique(times, return_inverse=True)
    each = weights / np.bincount(owner, minlength=weights.shape[1])
    events, others = (np.zeros((len(distinct), len(weights))) for _ in range(2))
    for total, which in ((events, completed), (others, ~completed)):
        if which.any():
            rows = by_value(place[which], owner[which], each)
            total[: len(rows)] = rows
    at_risk = (events + others)[::-1].cumsum(axis=0)[::-1]
    hazard = np.divide(events, at_risk, out=np.zeros_like(events), where=at_risk > 0)
    surviving = np.concatenate([np.ones((1, len(weights))), np.cumprod(1 - hazard, axis=0)])
    curve = 1 - surviving[np.searchsorted(distinct, horizons, side="right")]
    until = max(horizons)
    inside = distinct[distinct < until]
    mean = np.diff(np.concatenate([[0.0], inside, [float(until)]])) @ surviving[: len(inside) + 1]
    return np.vstack([curve, mean]).T
