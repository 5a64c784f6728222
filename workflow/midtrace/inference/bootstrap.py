"""Bootstrap over items. One set of resamples, a matrix of weights, serves all estimands of a call: weights times item sums."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import stats

from midtrace.seeds import stable_hash

CHUNK = 1_000  # resamples per matrix product: bounds memory at CHUNK x items
CACHED = 100_000_000  # numbers (two bytes each) of a matrix of weights that is kept: every table of a study draws the same items


@dataclass(frozen=True)
class Intervals:
    """Estimates with limits, each of shape (estimands,)."""

    estimate: np.ndarray
    low: np.ndarray
    high: np.ndarray
    method: str


def resample_weights(n_items: int, resamples: int, seed: int, strata: Sequence[object] | np.ndarray | None = None) -> np.ndarray:
    """How often each item is drawn in each resample.

    Parameters
    ----------
    n_items, resamples, seed
        Shape and seed; the same values give the same weights in every process.
    strata
        Stratum of each item, shape (n_items,): items are drawn within strata, so every resample keeps their sizes. None: one stratum.

    Returns
    -------
    numpy.ndarray
        Shape (resamples, n_items); rows sum to ``n_items``.
    """
    return np.concatenate(list(weight_chunks(n_items, resamples, seed, strata)))


def weight_chunks(
    n_items: int, resamples: int, seed: int, strata: Sequence[object] | np.ndarray | None = None, chunk: int | None = None
) -> Iterator[np.ndarray]:
    """The rows of :func:`resample_weights`, ``chunk`` at a time (default ``CHUNK``): the whole matrix need not fit in memory."""
    chunk = chunk or CHUNK
    if strata is None:
        if n_items * resamples <= CACHED:
            weights = _weights(n_items, resamples, seed)
            yield from (weights[at : at + chunk].astype(np.float64) for at in range(0, resamples, chunk))
        else:
            rng = _generator(n_items, seed)
            yield from (_draw(rng, n_items, min(chunk, resamples - at)) for at in range(0, resamples, chunk))
        return
    codes = stratum_codes(strata)
    if len(codes) != n_items:
        raise ValueError(f"{len(codes)} strata for {n_items} items")
    groups = [np.flatnonzero(codes == code) for code in range(codes.max() + 1)]
    streams = [_generator(len(members), stable_hash("stratum", seed, code)) for code, members in enumerate(groups)]
    for at in range(0, resamples, chunk):
        weights = np.empty((min(chunk, resamples - at), n_items))
        for members, stream in zip(groups, streams, strict=True):
            weights[:, members] = _draw(stream, len(members), len(weights))
        yield weights


def stratum_codes(strata: Sequence[object] | np.ndarray) -> np.ndarray:
    """Integer code of each item's stratum."""
    return np.unique(np.asarray(strata, dtype=str), return_inverse=True)[1]


def _generator(n_items: int, seed: int) -> np.random.Generator:
    return np.random.default_rng(stable_hash("bootstrap", seed, n_items))


def _draw(rng: np.random.Generator, n_items: int, rows: int) -> np.ndarray:
    # Drawing items and counting them is ten times as fast as drawing the counts (a binomial each).
    drawn = rng.integers(n_items, size=(rows, n_items)) + n_items * np.arange(rows)[:, None]
    return np.bincount(drawn.ravel(), minlength=rows * n_items).reshape(rows, n_items).astype(np.float64)


@lru_cache(maxsize=4)
def _weights(n_items: int, resamples: int, seed: int) -> np.ndarray:
    rng = _generator(n_items, seed)
    # No item is ever drawn 65,536 times unless there are as many items, and then nothing is cached.
    weights = np.empty((resamples, n_items), np.uint16)
    for at in range(0, resamples, CHUNK):
        weights[at : at + CHUNK] = _draw(rng, n_items, min(CHUNK, resamples - at))
    weights.flags.writeable = False
    return weights


def bootstrap_statistic(
    n_items: int,
    statistic: Callable[[np.ndarray], np.ndarray],
    *,
    estimate: np.ndarray | None = None,
    left_out: Callable[[], np.ndarray] | None = None,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
    method: str = "percentile",
    strata: Sequence[object] | np.ndarray | None = None,
) -> Intervals:
    """Bootstrap over items of any statistic of weighted items.

    Parameters
    ----------
    n_items
        Number of items.
    statistic
        From weights of items, shape (draws, items), to estimands, shape (draws, estimands); NaN where undefined.
    estimate
        The statistic of the items as they are; None: that of weights 1.
    left_out
        The statistic without each item in turn, shape (items, estimands), for BCa; None: computed from weights.
    resamples, level, seed, strata
        Number of resamples, level of the interval, seed; see :func:`resample_weights`.
    method
        ``percentile`` or ``bca`` (bias-corrected and accelerated, by the jackknife over items).

    Returns
    -------
    Intervals
        Resamples in which an estimand is undefined are left out of its limits; an estimand that is infinite or undefined has NaN limits.

    References
    ----------
    Efron and Tibshirani (1993), An Introduction to the Bootstrap, chapters 13 and 14.
    """
    if method not in ("percentile", "bca"):
        raise ValueError(f"method is {method!r}; allowed: percentile, bca")
    if estimate is None:
        estimate = statistic(np.ones((1, n_items)))[0]
    draws = np.concatenate([statistic(weights) for weights in weight_chunks(n_items, resamples, seed, strata)])
    tail = (1 - level) / 2
    probabilities = np.tile([tail, 1 - tail], (len(estimate), 1))
    if method == "bca":
        probabilities = _bca(draws, estimate, left_out() if left_out else _jackknife(n_items, statistic), probabilities, strata)
    low, high = np.where(np.isfinite(estimate), _quantiles(draws, probabilities), np.nan)
    return Intervals(estimate, low, high, f"item bootstrap, {method}, {resamples} resamples{', within strata' if strata is not None else ''}")


def _jackknife(n_items: int, statistic: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The statistic without each item in turn."""
    rows = np.arange(n_items)
    return np.concatenate([statistic(1.0 - (rows == rows[at : at + CHUNK, None])) for at in range(0, n_items, CHUNK)])


def bootstrap_function(sums: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], **settings: Any) -> Intervals:
    """Bootstrap over items of any function of sums over items.

    Parameters
    ----------
    sums
        What is summed over items, shape (items, columns).
    statistic
        From sums over items, shape (draws, columns), to estimands, shape (draws, estimands); NaN where undefined.
    **settings
        ``resamples``, ``level``, ``seed``, ``method``, ``strata``: see :func:`bootstrap_statistic`.

    Returns
    -------
    Intervals
        As :func:`bootstrap_statistic`.
    """
    sums = np.asarray(sums, dtype=float)
    if len(sums) == 0:
        raise ValueError("no items to resample")
    # An infinite item would make 0 x infinity of every resample without it; its estimands have no limits anyway.
    finite = np.where(np.isfinite(sums), sums, 0.0)
    return bootstrap_statistic(
        len(sums),
        lambda weights: statistic(weights @ finite),
        estimate=statistic(sums.sum(0, keepdims=True))[0],
        left_out=lambda: statistic(finite.sum(0) - finite),
        **settings,
    )


def item_bootstrap(
    numerators: np.ndarray,
    denominators: np.ndarray | None = None,
    *,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
    method: str = "percentile",
    strata: Sequence[object] | np.ndarray | None = None,
) -> Intervals:
    """Bootstrap over items of many means, or ratios of means, with one set of resamples.

    Parameters
    ----------
    numerators
        Item means, shape (items,) or (items, estimands).
    denominators
        Same shape, for ratios; None for plain means.
    resamples, level, seed, method, strata
        See :func:`bootstrap_function`.

    Returns
    -------
    Intervals
        Estimate ``sum_i numerator / sum_i denominator`` and its limits; NaN where no item has a denominator.
    """
    numerators = np.asarray(numerators, dtype=float)
    numerators = numerators[:, None] if numerators.ndim == 1 else numerators
    if len(numerators) == 0:
        raise ValueError("no items to resample")
    settings: dict[str, Any] = {"resamples": resamples, "level": level, "seed": seed, "method": method, "strata": strata}
    if denominators is None:
        return bootstrap_function(numerators, lambda sums: sums / len(numerators), **settings)
    columns, top, bottom = shared_columns(numerators, np.asarray(denominators, dtype=float).reshape(numerators.shape))
    return bootstrap_function(columns, lambda sums: ratio(sums.take(top, axis=1), sums.take(bottom, axis=1)), **settings)


def shared_columns(numerators: np.ndarray, denominators: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct columns of both, and where each numerator and denominator is among them.

    Many estimands share a column: denominators that are all 1, or an indicator that is the numerator of a share. Each is summed once.
    """
    both = np.hstack([numerators, denominators])
    places: dict[bytes, int] = {}
    at = np.array([places.setdefault(column.tobytes(), len(places)) for column in np.ascontiguousarray(both.T)], dtype=int)
    first = np.unique(at, return_index=True)[1]
    return both[:, first], at[: numerators.shape[1]], at[numerators.shape[1] :]


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """``numerator / denominator``, NaN where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.full(np.shape(numerator), np.nan), where=denominator != 0)


def _quantiles(draws: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Quantiles per column that leave NaN out; draws (resamples, estimands), probabilities (estimands, 2), result (2, estimands)."""
    ordered = np.ascontiguousarray(draws.T)
    ordered.sort(axis=1)  # NaN last
    defined = (~np.isnan(ordered)).sum(1)[:, None]
    at = np.clip(probabilities * (defined - 1), 0, None)
    below = np.floor(at).astype(int)
    above = np.minimum(below + 1, np.maximum(defined - 1, 0))
    low, high = (np.take_along_axis(ordered, place, axis=1) for place in (below, above))
    return (low + (high - low) * (at - below)).T


def _bca(draws: np.ndarray, estimate: np.ndarray, left_out: np.ndarray, probabilities: np.ndarray, strata: Any) -> np.ndarray:
    """Probabilities moved for bias and acceleration; unmoved where all resamples lie on one side or do not spread."""
    defined = np.maximum((~np.isnan(draws)).sum(0), 1)
    below = ((draws < estimate).sum(0) + (draws <= estimate).sum(0)) / (2 * defined)
    codes = np.zeros(len(left_out), int) if strata is None else stratum_codes(strata)
    deviation = np.zeros_like(left_out)
    for code in range(codes.max() + 1):
        inside = left_out[codes == code]
        count = np.maximum((~np.isnan(inside)).sum(0), 1)
        deviation[codes == code] = np.nan_to_num(np.nansum(inside, axis=0) / count - inside)
    spread = (deviation**2).sum(0) ** 1.5
    acceleration = np.divide((deviation**3).sum(0), 6 * spread, out=np.zeros_like(spread), where=spread > 0)
    movable = (below > 0) & (below < 1)
    bias = stats.norm.ppf(np.where(movable, below, 0.5))[:, None]
    z = bias + stats.norm.ppf(probabilities)
    return np.where(movable[:, None], stats.norm.cdf(bias + z / (1 - acceleration[:, None] * z)), probabilities)
