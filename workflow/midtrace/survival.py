"""Reasoning length as a survival time: a run completes when its reasoning closes; a run that hits the token cap is right-censored."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from statsmodels.duration.survfunc import SurvfuncRight

from midtrace.inference import resample_weights


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


def summary(traces: pl.DataFrame, horizons: Sequence[int], *, resamples: int, level: float, seed: int) -> pl.DataFrame:
    """Completion curve and restricted mean of one arm, with item-bootstrap limits.

    Parameters
    ----------
    traces
        ``item_id``, ``n_reasoning``, ``status`` of one arm; malformed runs are left out (their length is not known).
    horizons
        Horizons B.
    resamples, level, seed
        See :func:`midtrace.inference.item_bootstrap`; at most 1,000 resamples are used, each refits the curve.

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
    items, codes = np.unique(kept["item_id"].to_numpy(), return_inverse=True)
    until = max(horizons)

    def values(weights: np.ndarray | None) -> np.ndarray:
        if weights is None:
            return np.array([*completion_curve(lengths, completed, horizons), restricted_mean(lengths, completed, until)])
        drawn = weights > 0
        chosen = lengths[drawn], completed[drawn]
        return np.array([*completion_curve(*chosen, horizons, weights[drawn]), restricted_mean(*chosen, until, weights[drawn])])

    draws = min(resamples, 1_000)
    found = np.stack([values(weights[codes]) for weights in resample_weights(len(items), draws, seed)])
    tail = (1 - level) / 2
    low, high = np.quantile(found, [tail, 1 - tail], axis=0)
    return pl.DataFrame(
        {
            "estimand": ["completion"] * len(horizons) + ["restricted_mean_length"],
            "horizon": [*horizons, until],
            "estimate": values(None),
            "ci_low": low,
            "ci_high": high,
            "n_items": len(items),
            "n_pairs": len(kept),
            "method": f"Kaplan-Meier, item bootstrap, percentile, {draws} resamples",
        }
    )
