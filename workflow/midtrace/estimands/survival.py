"""Reasoning length as a survival time: a run completes when its reasoning closes; a run that hits the token cap is right-censored."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from statsmodels.duration.survfunc import SurvfuncRight

from midtrace.inference.bootstrap import weight_chunks


def completion_curve(lengths: np.ndarray, completed: np.ndarray, horizons: Sequence[int], weights: np.ndarray | None = None) -> np.ndarray:
    """P(L <= B) at each horizon by Kaplan-Meier.

    Parameters
    ----------
    lengths
        Reasoning tokens, shape (runs,).
    completed
        Whether each run terminated (else censored at its length), shape (runs,).
    horizons
        Horizons B, increasing.
    weights
        Frequency weights, shape (runs,); None for all 1.

    Returns
    -------
    numpy.ndarray
        Shape (horizons,).

    References
    ----------
    Kaplan and Meier (1958), JASA 53, 457-481; computed by statsmodels.
    """
    if not completed.any():
        return np.zeros(len(horizons))
    fit = SurvfuncRight(lengths, completed.astype(int), freq_weights=weights)
    at = np.searchsorted(fit.surv_times, horizons, side="right")
    return 1 - np.concatenate([[1.0], fit.surv_prob])[at]


def restricted_mean(lengths: np.ndarray, completed: np.ndarray, until: int, weights: np.ndarray | None = None) -> float:
    """Restricted mean reasoning length, the integral of the survival curve from 0 to ``until`` tokens."""
    if not completed.any():
        return float(until)
    fit = SurvfuncRight(lengths, completed.astype(int), freq_weights=weights)
    times = np.concatenate([[0.0], fit.surv_times[fit.surv_times < until], [float(until)]])
    heights = np.concatenate([[1.0], fit.surv_prob[fit.surv_times < until]])
    return float((np.diff(times) * heights).sum())


def summary(
    traces: pl.DataFrame, horizons: Sequence[int], *, resamples: int, level: float, seed: int, strata: Mapping[str, str] | None = None
) -> pl.DataFrame:
    """Completion curve and restricted mean of one arm, with item-bootstrap limits.

    Parameters
    ----------
    traces
        ``item_id``, ``n_reasoning``, ``status`` of one arm; malformed runs are left out (their length is not known).
    horizons
        Horizons B.
    resamples, level, seed
        See :func:`midtrace.inference.item_bootstrap`; the items are drawn with the same weights.
    strata
        Item -> stratum; items are resampled within strata.

    Returns
    -------
    polars.DataFrame
        ``estimand`` (``completion`` by ``horizon``; ``restricted_mean_length`` up to the largest), ``estimate``, ``ci_low``, ``ci_high``,
        ``n_items``, ``n_pairs`` (runs), ``method``.
    """
    kept = traces.filter(pl.col("status") != "malformed")
    if kept.is_empty() or not len(horizons):
        return pl.DataFrame()
    lengths, completed = kept["n_reasoning"].to_numpy(), (kept["status"] == "terminated").to_numpy()
    items, owner = np.unique(kept["item_id"].to_numpy(), return_inverse=True)
    until = max(horizons)
    groups = None if strata is None else [strata[item] for item in items]
    found = np.concatenate(
        [resampled(lengths, completed, owner, weights, horizons) for weights in weight_chunks(len(items), resamples, seed, groups)]
    )
    tail = (1 - level) / 2
    low, high = np.quantile(found, [tail, 1 - tail], axis=0)
    return pl.DataFrame(
        {
            "estimand": ["completion"] * len(horizons) + ["restricted_mean_length"],
            "horizon": [*horizons, until],
            "estimate": [*completion_curve(lengths, completed, horizons), restricted_mean(lengths, completed, until)],
            "ci_low": low,
            "ci_high": high,
            "n_items": len(items),
            "n_pairs": len(kept),
            "method": f"Kaplan-Meier, item bootstrap, percentile, {resamples} resamples",
        }
    )


def resampled(lengths: np.ndarray, completed: np.ndarray, owner: np.ndarray, weights: np.ndarray, horizons: Sequence[int]) -> np.ndarray:
    """Completion curves and restricted means of many resamples at once, equal to the functions above on the repeated runs.

    Parameters
    ----------
    lengths, completed, owner
        Reasoning tokens, whether terminated, and index of the item; shape (runs,).
    weights
        How often each item was drawn, shape (draws, items).
    horizons
        Horizons B, increasing.

    Returns
    -------
    numpy.ndarray
        Shape (draws, horizons + 1): P(L <= B), then the restricted mean up to the last horizon.
    """
    order = np.argsort(lengths, kind="stable")
    times, starts = np.unique(lengths[order], return_index=True)
    drawn = weights[:, owner[order]]
    events = np.add.reduceat(drawn * completed[order], starts, axis=1)
    runs = np.add.reduceat(drawn, starts, axis=1)
    at_risk = runs[:, ::-1].cumsum(axis=1)[:, ::-1]
    hazard = np.divide(events, at_risk, out=np.zeros_like(events), where=at_risk > 0)
    surviving = np.column_stack([np.ones(len(weights)), np.cumprod(1 - hazard, axis=1)])
    curve = 1 - surviving[:, np.searchsorted(times, horizons, side="right")]
    until = max(horizons)
    inside = times[times < until]
    mean = surviving[:, : len(inside) + 1] @ np.diff(np.concatenate([[0.0], inside, [float(until)]]))
    return np.column_stack([curve, mean])
