"""Inference: intervals and tests over items. Items are the sampling unit; replicates are averaged within item before anything else."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy import stats

from midtrace.seeds import stable_hash

CHUNK = 2_000  # resamples per matrix product: bounds memory at CHUNK x items


@dataclass(frozen=True)
class Intervals:
    """Estimates with limits, each of shape (estimands,)."""

    estimate: np.ndarray
    low: np.ndarray
    high: np.ndarray
    method: str


def resample_weights(n_items: int, resamples: int, seed: int) -> np.ndarray:
    """How often each item is drawn in each resample: shape (resamples, n_items), rows sum to ``n_items``."""
    rng = np.random.default_rng(stable_hash("bootstrap", seed, n_items))
    return rng.multinomial(n_items, np.full(n_items, 1 / n_items), size=resamples).astype(np.float64)


def item_bootstrap(
    numerators: np.ndarray,
    denominators: np.ndarray | None = None,
    *,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
    method: str = "percentile",
) -> Intervals:
    """Bootstrap over items of many means, or ratios of means, with one set of resamples.

    Parameters
    ----------
    numerators
        Item means, shape (items,) or (items, estimands).
    denominators
        Same shape, for ratios; None for plain means.
    resamples, level, seed
        Number of resamples, level of the interval, seed.
    method
        ``percentile`` or ``bca`` (bias-corrected and accelerated).

    Returns
    -------
    Intervals
        Estimate ``sum_i numerator / sum_i denominator`` and its limits; NaN where no item has a denominator. Resamples in which an
        estimand is undefined are left out of its limits.

    References
    ----------
    Efron and Tibshirani (1993), An Introduction to the Bootstrap, chapters 13 and 14.
    """
    numerators = np.asarray(numerators, dtype=float)
    numerators = numerators[:, None] if numerators.ndim == 1 else numerators
    denominators = np.ones_like(numerators) if denominators is None else np.asarray(denominators, dtype=float).reshape(numerators.shape)
    if len(numerators) == 0:
        raise ValueError("no items to resample")
    if method not in ("percentile", "bca"):
        raise ValueError(f"method is {method!r}; allowed: percentile, bca")
    estimate = _ratio(numerators.sum(0), denominators.sum(0))
    weights = resample_weights(len(numerators), resamples, seed)
    draws = np.concatenate(
        [_ratio(weights[at : at + CHUNK] @ numerators, weights[at : at + CHUNK] @ denominators) for at in range(0, resamples, CHUNK)]
    )
    tail = (1 - level) / 2
    defined = ~np.isnan(estimate)
    low, high = np.full_like(estimate, np.nan), np.full_like(estimate, np.nan)
    for k in np.flatnonzero(defined):
        kept = draws[~np.isnan(draws[:, k]), k]
        probabilities = np.array([tail, 1 - tail])
        if method == "bca":
            probabilities = _bca(kept, estimate[k], numerators[:, k], denominators[:, k], probabilities)
        low[k], high[k] = np.quantile(kept, probabilities)
    return Intervals(estimate, low, high, f"item bootstrap, {method}, {resamples} resamples")


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    return np.divide(numerator, denominator, out=np.full(np.shape(numerator), np.nan), where=denominator != 0)


def _bca(draws: np.ndarray, estimate: float, numerator: np.ndarray, denominator: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    below = (np.mean(draws < estimate) + np.mean(draws <= estimate)) / 2
    if not 0 < below < 1:
        return probabilities  # all resamples on one side, or no spread: nothing to correct
    bias = stats.norm.ppf(below)
    left_out = _ratio(numerator.sum() - numerator, denominator.sum() - denominator)
    deviation = np.nanmean(left_out) - left_out
    spread = np.nansum(deviation**2) ** 1.5
    acceleration = np.nansum(deviation**3) / (6 * spread) if spread > 0 else 0.0
    z = bias + stats.norm.ppf(probabilities)
    return stats.norm.cdf(bias + z / (1 - acceleration * z))


def intervals(terms: pl.DataFrame, by: Sequence[str], *, resamples: int, level: float, seed: int, method: str = "percentile") -> pl.DataFrame:
    """Estimates and item-bootstrap limits for every combination of ``by``.

    Parameters
    ----------
    terms
        Columns ``by``, ``item_id``, ``numerator``, ``denominator`` (item means, see :func:`midtrace.estimands.item_terms`), ``pairs``.
    by
        Key columns of the estimands; nulls are values of their own.
    resamples, level, seed, method
        See :func:`item_bootstrap`. All estimands share the same resamples of items.

    Returns
    -------
    polars.DataFrame
        ``by``, ``estimate``, ``ci_low``, ``ci_high``, ``n_items``, ``n_pairs``, ``method``; null where undefined.
    """
    if terms.is_empty():
        found = {"estimate": pl.Float64, "ci_low": pl.Float64, "ci_high": pl.Float64, "n_items": pl.Int64, "n_pairs": pl.Int64, "method": pl.String}
        return pl.DataFrame(schema={**{key: terms.schema[key] for key in by}, **found})
    keys = terms.select(by).unique(maintain_order=True).with_row_index("column")
    items = terms["item_id"].unique().sort()
    rows = pl.DataFrame({"item_id": items}).with_row_index("row")
    placed = terms.join(keys, on=by, nulls_equal=True).join(rows, on="item_id")
    numerators, denominators = np.zeros((len(items), len(keys))), np.zeros((len(items), len(keys)))
    at = placed["row"].to_numpy(), placed["column"].to_numpy()
    numerators[at], denominators[at] = placed["numerator"].to_numpy(), placed["denominator"].to_numpy()
    result = item_bootstrap(numerators, denominators, resamples=resamples, level=level, seed=seed, method=method)
    counts = placed.group_by("column").agg(n_items=(pl.col("denominator") > 0).sum(), n_pairs=pl.col("pairs").sum())
    return (
        keys.join(counts, on="column")
        .sort("column")
        .with_columns(
            estimate=pl.Series(result.estimate).fill_nan(None),
            ci_low=pl.Series(result.low).fill_nan(None),
            ci_high=pl.Series(result.high).fill_nan(None),
            method=pl.lit(result.method),
        )
        .select(*by, "estimate", "ci_low", "ci_high", pl.col("n_items", "n_pairs").cast(pl.Int64), "method")
    )


def equivalence(values: np.ndarray, margin: float, level: float = 0.95) -> dict[str, float | bool]:
    """Two one-sided t tests of a mean against ``±margin``.

    Parameters
    ----------
    values
        Item means of a paired difference, shape (items,).
    margin
        Half width of the region that counts as no difference.
    level
        ``equivalent`` is claimed where p < 1 - level.

    Returns
    -------
    dict
        ``estimate``, ``p`` (the larger of the two one-sided p values), ``equivalent``.

    References
    ----------
    Schuirmann (1987), Journal of Pharmacokinetics and Biopharmaceutics 15, 657-680.
    """
    values = np.asarray(values, dtype=float)
    if len(values) < 2:
        raise ValueError(f"{len(values)} items; an equivalence test needs at least 2")
    mean, error = values.mean(), values.std(ddof=1) / np.sqrt(len(values))
    if error == 0:
        p = 0.0 if abs(mean) < margin else 1.0
    else:
        p = float(max(stats.t.sf((mean + margin) / error, len(values) - 1), stats.t.cdf((mean - margin) / error, len(values) - 1)))
    return {"estimate": float(mean), "p": p, "equivalent": p < 1 - level}
