"""Bootstraps that resample replicates too, with simultaneous bands over a family of estimands.

Both are sensitivity analyses and lean to the wide side: the noise of a replicate is already in the spread of the item means, and resampling
replicates adds part of it again. With item variance s_i^2, residual variance s_e^2 and R replicates the nested bootstrap has, next to
s_i^2 + s_e^2 / R, a further s_e^2 (R - 1) / R^2; the two-way bootstrap about twice that. Measured in docs/inference.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from midtrace.inference.bootstrap import ratio, shared_columns, weight_chunks
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
        Values of pairs, shape (items, replicates) or (items, replicates, estimands); NaN where a pair does not exist for an estimand.
    denominators
        Same shape, for ratios (an indicator of the pairs that count); None for means over pairs. Where the numerator is NaN it is not read.
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
        Replicates are averaged within item first, over the pairs that exist for the estimand; items weigh equally. With c the ``level``
        quantile over resamples of max_k |T*_k - T_k|, the band is T_k ± c (scaled: max_k |T*_k - T_k| / se_k and T_k ± c se_k).

    Raises
    ------
    ValueError
        If there is no item.

    References
    ----------
    Davison and Hinkley (1997), Bootstrap Methods and their Application, section 3.8; Mandel and Betensky (2008), Computational Statistics
    and Data Analysis 52, 2158-2165 (bands).
    """
    cells = _Cells.of(numerators, denominators)
    rng = np.random.default_rng(stable_hash("nested", seed, cells.n_items))
    draws = np.empty((resamples, cells.n_columns))
    for at, weights in _chunks(cells.n_items, resamples, seed, strata):
        sums = np.zeros((len(weights), cells.n_columns))
        for columns, members, mask, values in cells.groups:
            sums[:, columns] += _drawn_within(rng, weights[:, members], int(mask.sum())) @ values[:, mask].reshape(-1, len(columns)) / mask.sum()
        draws[at : at + len(weights)] = sums
    return _bands(cells, draws, level, families, scaled, f"nested bootstrap (items, replicates within item), {resamples} resamples")


def _drawn_within(rng: np.random.Generator, weights: np.ndarray, count: int) -> np.ndarray:
    """How often each of ``count`` replicates of each item is drawn, shape (draws, items x count): an item drawn w times brings w x count draws."""
    if count == 1:
        return weights
    draws, items = weights.shape
    owner = np.repeat(np.arange(draws * items), weights.astype(np.int64).ravel())
    cells = rng.integers(count, size=(count, len(owner))) + count * owner
    return np.bincount(cells.ravel(), minlength=draws * items * count).reshape(draws, items * count).astype(np.float64)


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
    out an item of which none was drawn.

    References
    ----------
    Owen (2007), Annals of Applied Statistics 1, 386-411 (the pigeonhole bootstrap).
    """
    cells = _Cells.of(numerators, denominators)
    rng = np.random.default_rng(stable_hash("two-way", seed, cells.n_items, cells.n_replicates))
    replicates = rng.multinomial(cells.n_replicates, np.full(cells.n_replicates, 1 / cells.n_replicates), size=resamples).astype(float)
    draws = np.empty((resamples, cells.n_columns))
    for at, weights in _chunks(cells.n_items, resamples, seed, strata):
        drawn = replicates[at : at + len(weights)]
        sums = np.zeros((len(weights), cells.n_columns))
        for columns, members, mask, values in cells.groups:
            count = drawn @ mask
            share = np.divide(drawn * mask, count[:, None], out=np.zeros(drawn.shape), where=count[:, None] > 0)
            by_replicate = (weights[:, members] @ values.reshape(len(members), -1)).reshape(len(weights), cells.n_replicates, -1)
            sums[:, columns] += np.einsum("dr,drk->dk", share, by_replicate)
        draws[at : at + len(weights)] = sums
    return _bands(cells, draws, level, families, scaled, f"two-way bootstrap (items x replicates), {resamples} resamples")


def _chunks(n_items: int, resamples: int, seed: int, strata: Sequence[object] | np.ndarray | None) -> Iterator[tuple[int, np.ndarray]]:
    """Weights of items with the number of the first resample of each chunk."""
    at = 0
    for weights in weight_chunks(n_items, resamples, seed, strata, CHUNK):
        yield at, weights
        at += len(weights)


@dataclass(frozen=True)
class _Cells:
    """Distinct columns of numerators and denominators, shape (items, replicates, columns), 0 where a pair does not exist for the column.

    Columns of the same pairs and items with the same replicates are averaged alike, so they are resampled together.
    """

    values: np.ndarray
    present: np.ndarray
    top: np.ndarray
    bottom: np.ndarray

    @classmethod
    def of(cls, numerators: np.ndarray, denominators: np.ndarray | None) -> "_Cells":
        top = np.asarray(numerators, dtype=float)
        top = top[:, :, None] if top.ndim == 2 else top
        if len(top) == 0:
            raise ValueError("no items to resample")
        missing = np.isnan(top)
        bottom = np.ones_like(top) if denominators is None else np.asarray(denominators, dtype=float).reshape(top.shape)
        flat = [np.where(missing, np.nan, part).reshape(-1, top.shape[2]) for part in (top, bottom)]
        columns, at_top, at_bottom = shared_columns(*flat)
        columns = columns.reshape(*top.shape[:2], -1)
        missing = np.isnan(columns)
        return cls(np.where(missing, 0.0, columns), ~missing, at_top, at_bottom)

    @property
    def n_items(self) -> int:
        return self.values.shape[0]

    @property
    def n_replicates(self) -> int:
        return self.values.shape[1]

    @property
    def n_columns(self) -> int:
        return self.values.shape[2]

    @cached_property
    def groups(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Columns, items, the replicates that exist for both, and the values of these columns and items: all in one group for complete data."""
        found = []
        flat = self.present.reshape(-1, self.n_columns)
        for pattern, columns in _alike(flat.T):
            for mask, members in _alike(pattern.reshape(self.n_items, self.n_replicates)):
                if mask.any():
                    found.append((columns, members, mask, self.values[np.ix_(members, np.arange(self.n_replicates), columns)]))
        return found

    def estimate(self) -> np.ndarray:
        """Ratios of item means."""
        count = np.maximum(self.present.sum(1, keepdims=True), 1)
        sums = (self.values / count).sum((0, 1))
        return ratio(sums[self.top], sums[self.bottom])


def _alike(rows: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Distinct rows, each with the indices of the rows that equal it."""
    distinct, which = np.unique(rows, axis=0, return_inverse=True)
    return [(row, np.flatnonzero(which.ravel() == code)) for code, row in enumerate(distinct)]


def _bands(cells: _Cells, sums: np.ndarray, level: float, families: Sequence[object] | np.ndarray | None, scaled: bool, method: str) -> Bands:
    estimate, draws = cells.estimate(), ratio(sums[:, cells.top], sums[:, cells.bottom])
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
