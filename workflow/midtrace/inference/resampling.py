"""Bootstraps that resample replicates too, with simultaneous bands over a family of estimands.

Both are sensitivity analyses and lean to the wide side: the noise of a replicate is already in the spread of the item means, and resampling
replicates adds part of it again. With item variance s_i^2, residual variance s_e^2 and R replicates the nested bootstrap has, next to
s_i^2 + s_e^2 / R, a further s_e^2 (R - 1) / R^2; the two-way bootstrap about twice that. Measured in docs/inference.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from midtrace.inference.bootstrap import ratio, weight_chunks
from midtrace.seeds import stable_hash

CHUNK = 500  # resamples at a time: bounds memory at CHUNK x items x replicates


@dataclass(frozen=True)
class Bands:
    """Estimates with pointwise limits (``low``, ``high``) and simultaneous ones (``band_low``, ``band_high``); each of shape (estimands,)."""

    estimate: np.ndarray
    low: np.ndarray
    high: np.ndarray
    band_low: np.ndarray
    band_high: np.ndarray
    method: str


def nested_bootstrap(
    numerators: np.ndarray,
    denominators: np.ndarray | None = None,
    *,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
    strata: Sequence[object] | np.ndarray | None = None,
    families: Sequence[object] | np.ndarray | None = None,
    scaled: bool = False,
) -> Bands:
    """Bootstrap of items, then of replicates within each drawn item.

    Parameters
    ----------
    numerators
        Values of pairs, shape (items, replicates) or (items, replicates, estimands); NaN in all estimands where a pair is missing.
    denominators
        Same shape, for ratios (an indicator of the pairs that count); None for means over pairs.
    resamples, level, seed, strata
        See :func:`midtrace.inference.resample_weights`: items are drawn with the very weights of the item bootstrap.
    families
        Family of each estimand, shape (estimands,): bands are simultaneous within a family. None: all are one family.
    scaled
        False: bands of one width, from the largest absolute deviation. True: from the largest deviation in units of its standard error, so
        that bands are narrower where the estimate is more precise.

    Returns
    -------
    Bands
        Replicates are averaged within item first, items weigh equally. With c the ``level`` quantile over resamples of
        max_k |T*_k - T_k|, the band is T_k ± c (scaled: max_k |T*_k - T_k| / se_k and T_k ± c se_k).

    Raises
    ------
    ValueError
        If there is no item, an item has no pair, or a pair lacks some estimands only (use ``denominators``).

    References
    ----------
    Davison and Hinkley (1997), Bootstrap Methods and their Application, section 3.8; Mandel and Betensky (2008), Computational Statistics
    and Data Analysis 52, 2158-2165 (bands).
    """
    top, bottom, present = _cells(numerators, denominators)
    counts = present.sum(1)
    rng = np.random.default_rng(stable_hash("nested", seed, len(top)))
    draws = []
    groups = [(int(count), np.flatnonzero(counts == count)) for count in np.unique(counts)]
    for chunk in weight_chunks(len(top), resamples, seed, strata, CHUNK):
        sums = np.zeros((len(chunk), 2 * top.shape[2]))
        for count, alike in groups:
            # An item drawn w times brings w x count independent draws of its replicates.
            drawn = rng.multinomial(chunk[:, alike].astype(np.int64) * count, np.full(count, 1 / count)) / count
            cells = np.concatenate([top[alike][present[alike]], bottom[alike][present[alike]]], axis=1)
            sums += drawn.reshape(len(chunk), -1) @ cells
        draws.append(ratio(sums[:, : top.shape[2]], sums[:, top.shape[2] :]))
    share = present / counts[:, None]
    estimate = ratio(np.einsum("ir,irk->k", share, top), np.einsum("ir,irk->k", share, bottom))
    return _bands(
        estimate, np.concatenate(draws), level, families, scaled, f"nested bootstrap (items, replicates within item), {resamples} resamples"
    )


def two_way_bootstrap(
    numerators: np.ndarray,
    denominators: np.ndarray | None = None,
    *,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
    strata: Sequence[object] | np.ndarray | None = None,
    families: Sequence[object] | np.ndarray | None = None,
    scaled: bool = False,
) -> Bands:
    """Bootstrap of items and, independently, of replicates: a cell counts as often as its item times its replicate was drawn.

    Parameters and returns as in :func:`nested_bootstrap`. Where pairs are missing, a resample averages the drawn pairs of an item, and leaves
    an item out of which none was drawn.

    References
    ----------
    Owen (2007), Annals of Applied Statistics 1, 386-411 (the pigeonhole bootstrap).
    """
    top, bottom, present = _cells(numerators, denominators)
    n_items, n_replicates, _ = top.shape
    rng = np.random.default_rng(stable_hash("two-way", seed, n_items, n_replicates))
    replicates = rng.multinomial(n_replicates, np.full(n_replicates, 1 / n_replicates), size=resamples).astype(float)
    # There are few distinct draws of replicates (10 for 3): item means are computed once for each.
    distinct, which = np.unique(replicates, axis=0, return_inverse=True)
    means = []
    for weight in distinct:
        total = present @ weight
        share = np.divide(present * weight, total[:, None], out=np.zeros(present.shape), where=total[:, None] > 0)
        means.append((np.einsum("ir,irk->ik", share, top), np.einsum("ir,irk->ik", share, bottom)))
    draws, at = np.empty((resamples, top.shape[2])), 0
    for chunk in weight_chunks(n_items, resamples, seed, strata, CHUNK):
        own = which.reshape(-1)[at : at + len(chunk)]
        for index in np.unique(own):
            rows = np.flatnonzero(own == index)
            draws[at + rows] = ratio(chunk[rows] @ means[index][0], chunk[rows] @ means[index][1])
        at += len(chunk)
    share = present / present.sum(1, keepdims=True)
    estimate = ratio(np.einsum("ir,irk->k", share, top), np.einsum("ir,irk->k", share, bottom))
    return _bands(estimate, draws, level, families, scaled, f"two-way bootstrap (items x replicates), {resamples} resamples")


def _cells(numerators: np.ndarray, denominators: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numerators and denominators of shape (items, replicates, estimands), zero where missing, and which pairs are present."""
    top = np.asarray(numerators, dtype=float)
    top = top[:, :, None] if top.ndim == 2 else top
    bottom = np.ones_like(top) if denominators is None else np.asarray(denominators, dtype=float).reshape(top.shape)
    missing = np.isnan(top)
    present = ~missing.all(2)
    if len(top) == 0:
        raise ValueError("no items to resample")
    if (missing.any(2) & present).any():
        raise ValueError("a pair has a value in some estimands only; put 0 there and in the denominators")
    if not present.any(1).all():
        raise ValueError(f"item {int(np.argmin(present.any(1)))} has no pair")
    return np.where(missing, 0.0, top), np.where(missing, 0.0, bottom), present


def _bands(estimate: np.ndarray, draws: np.ndarray, level: float, families: Sequence[object] | np.ndarray | None, scaled: bool, method: str) -> Bands:
    tail = (1 - level) / 2
    low, high, width = np.full((3, len(estimate)), np.nan)
    family = np.zeros(len(estimate), int) if families is None else np.unique(np.asarray(families, dtype=str), return_inverse=True)[1]
    for code in range(family.max() + 1):
        own = np.flatnonzero((family == code) & ~np.isnan(estimate))
        if not len(own):
            continue
        kept = draws[:, own]
        low[own], high[own] = np.nanquantile(kept, [tail, 1 - tail], axis=0)
        error = np.nanstd(kept, axis=0, ddof=1) if scaled else np.ones(len(own))
        deviation = np.divide(np.abs(kept - estimate[own]), error, out=np.zeros_like(kept), where=error > 0)
        # A resample in which an estimand is undefined says nothing about it.
        width[own] = np.quantile(np.nan_to_num(deviation).max(axis=1), level) * error
    return Bands(estimate, low, high, estimate - width, estimate + width, method)
