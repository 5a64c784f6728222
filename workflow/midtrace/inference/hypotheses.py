"""Tests of means over items: equivalence to zero, difference from zero, and their adjustment within a family."""

from collections.abc import Sequence

import numpy as np
from scipy import stats


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
        ``estimate``, ``p`` (the larger of the two one-sided p values; NaN where all items agree), ``equivalent``.

    References
    ----------
    Schuirmann (1987), Journal of Pharmacokinetics and Biopharmaceutics 15, 657-680.
    """
    values = np.asarray(values, dtype=float)
    if len(values) < 2:
        raise ValueError(f"{len(values)} items; an equivalence test needs at least 2")
    mean, error = values.mean(), values.std(ddof=1) / np.sqrt(len(values))
    if error == 0:
        p = float("nan")  # items that all agree leave the test no measure of their spread: however few they are, it would be certain
    else:
        p = float(max(stats.t.sf((mean + margin) / error, len(values) - 1), stats.t.cdf((mean - margin) / error, len(values) - 1)))
    return {"estimate": float(mean), "p": p, "equivalent": bool(p < 1 - level)}


def mean_p(values: np.ndarray) -> float:
    """Two-sided p value of the t test that a mean over items is zero; item means, shape (items,); NaN below 2 items.

    Where all items have one value, p is 1 if it is 0 and else NaN: there is no spread to test with.
    """
    values = np.asarray(values, dtype=float)
    if len(values) < 2:
        return float("nan")
    mean, error = values.mean(), values.std(ddof=1) / np.sqrt(len(values))
    if error == 0:
        return 1.0 if mean == 0 else float("nan")
    return float(2 * stats.t.sf(abs(mean) / error, len(values) - 1))


def holm(p: Sequence[float] | np.ndarray) -> np.ndarray:
    """Step-down adjustment of the p values of one family.

    Parameters
    ----------
    p
        Shape (tests,); NaN (no test) is not counted and stays NaN.

    Returns
    -------
    numpy.ndarray
        For the k-th smallest of m: max over j <= k of min(1, (m - j + 1) p_(j)). Rejecting what is at most a keeps the chance of any false
        rejection in the family at most a, whatever the dependence.

    References
    ----------
    Holm (1979), Scandinavian Journal of Statistics 6, 65-70.
    """
    p = np.asarray(p, dtype=float)
    adjusted = np.full(p.shape, np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)))
    return adjusted
