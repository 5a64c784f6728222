"""Estimates whose items are all alike: resampling them has no width, so a share has exact limits and anything else has none."""

import numpy as np
from statsmodels.stats.proportion import proportion_confint

EXACT_SHARE = "Clopper-Pearson over items: all are {}"
NO_SPREAD = "no limits: all items have this value"
ONE_ITEM = "no limits: one item"
BY_CONSTRUCTION = "no limits: exactly 0 by construction"
INFINITE = "no limits: infinite"


def all_alike(numerators: np.ndarray, denominators: np.ndarray) -> np.ndarray:
    """Whether all items that count have one value.

    Parameters
    ----------
    numerators, denominators
        Item terms, shape (items, estimands); an item counts where its denominator is not 0.

    Returns
    -------
    numpy.ndarray
        Shape (estimands,); False where no item counts.
    """
    counts = denominators != 0
    values = np.divide(numerators, denominators, out=np.zeros(numerators.shape), where=counts)
    low = np.where(counts, values, np.inf).min(axis=0, initial=np.inf)
    high = np.where(counts, values, -np.inf).max(axis=0, initial=-np.inf)
    finite = np.isfinite(low) & np.isfinite(high)
    low, high = np.where(finite, low, 0.0), np.where(finite, high, 0.0)
    # Equal values that were averaged in another order differ in the last bits.
    return finite & (high - low <= 1e-14 * np.maximum(np.abs(low), np.abs(high)))


def share_limits(share: float, n_items: int, level: float) -> tuple[float, float]:
    """Clopper-Pearson limits of a share that is 0 or 1 in all of ``n_items`` items.

    References
    ----------
    Clopper and Pearson (1934), Biometrika 26, 404-413; computed by statsmodels.
    """
    low, high = proportion_confint(round(share * n_items), n_items, alpha=1 - level, method="beta")
    return float(low), float(high)


def without_spread(
    estimate: float, n_items: int, level: float, *, alike: bool, is_share: bool, by_construction: bool = False
) -> tuple[float, float, str] | None:
    """Limits and method of an estimate that the bootstrap cannot bound; None where it can.

    Parameters
    ----------
    estimate, n_items, level
        The estimate, the items that count, the level.
    alike
        Whether all these items have one value.
    is_share
        Whether the estimate is a share of yes and no.
    by_construction
        Whether it is 0 because nothing in it can differ.
    """
    nothing = float("nan")
    if by_construction and estimate == 0:
        return nothing, nothing, BY_CONSTRUCTION
    if np.isinf(estimate):
        return nothing, nothing, INFINITE
    if is_share and alike and estimate in (0.0, 1.0):
        return *share_limits(estimate, n_items, level), EXACT_SHARE.format(int(estimate))
    if n_items == 1:
        return nothing, nothing, ONE_ITEM
    return (nothing, nothing, NO_SPREAD) if alike else None
