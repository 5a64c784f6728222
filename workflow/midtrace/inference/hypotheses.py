"""Tests of means over items, and of ratios of means: equivalence to zero, difference from zero, and their adjustment within a family."""

from collections.abc import Sequence

import numpy as np
from scipy import stats
from statsmodels.stats.multitest import multipletests

from midtrace.inference.bootstrap import stratum_codes


def linear_scores(numerators: np.ndarray, denominators: np.ndarray) -> np.ndarray:
    """Item scores of a ratio of item means, whose mean is the ratio and whose spread is that of its linearisation.

    Parameters
    ----------
    numerators, denominators
        Item terms of one estimand, shape (items,); items with denominator 0 do not count and have no score.

    Returns
    -------
    numpy.ndarray
        With T = sum_i n_i / sum_i d_i over the m items that count: T + (n_i - T d_i) m / sum_i d_i. Where all d_i are 1 these are the n_i.

    References
    ----------
    Cochran (1977), Sampling Techniques, chapter 6.
    """
    numerators, denominators = np.asarray(numerators, dtype=float), np.asarray(denominators, dtype=float)
    counts = denominators != 0
    top, bottom = numerators[counts], denominators[counts]
    if not len(bottom) or (bottom == 1).all():
        return top
    ratio = top.sum() / bottom.sum()
    return ratio + (top - ratio * bottom) * len(bottom) / bottom.sum()


def mean_error(values: np.ndarray, strata: Sequence[object] | np.ndarray | None = None) -> tuple[float, int]:
    """Standard error of a mean over items, and its degrees of freedom; items are drawn within strata if these are given.

    A stratum of one item has no spread that could be measured, and adds none, as in the bootstrap.
    """
    codes = np.zeros(len(values), int) if strata is None else stratum_codes(strata)
    groups = [values[codes == code] for code in range(codes.max() + 1)]
    squares = sum(len(group) * group.var(ddof=1) for group in groups if len(group) > 1)
    error = float(np.sqrt(squares) / len(values))
    # Equal values that were averaged in another order differ in the last bits.
    return (error if error > 1e-15 * np.abs(values).max() else 0.0), len(values) - len(groups)


def equivalence(
    values: np.ndarray, margin: float, level: float = 0.95, strata: Sequence[object] | np.ndarray | None = None
) -> dict[str, float | bool]:
    """Two one-sided t tests of a mean against ``±margin``.

    Parameters
    ----------
    values
        Item means of a paired difference, or :func:`linear_scores`, shape (items,).
    margin
        Half width of the region that counts as no difference.
    level
        ``equivalent`` is claimed where p < 1 - level.
    strata
        Stratum of each item; None: one.

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
    mean, (error, df) = values.mean(), mean_error(values, strata)
    p = float("nan")  # items that all agree leave the test no measure of their spread: however few they are, it would be certain
    if error > 0 and df > 0:
        p = float(max(stats.t.sf((mean + margin) / error, df), stats.t.cdf((mean - margin) / error, df)))
    return {"estimate": float(mean), "p": p, "equivalent": bool(p < 1 - level)}


def mean_p(values: np.ndarray, strata: Sequence[object] | np.ndarray | None = None) -> float:
    """Two-sided p value of the t test that a mean over items is zero.

    Parameters
    ----------
    values
        Item means, or :func:`linear_scores`, shape (items,).
    strata
        Stratum of each item; None: one.

    Returns
    -------
    float
        NaN below 2 items. Where all items have one value, 1 if it is 0 and else NaN: there is no spread to test with.
    """
    values = np.asarray(values, dtype=float)
    if len(values) < 2:
        return float("nan")
    mean, (error, df) = values.mean(), mean_error(values, strata)
    if error == 0 or df < 1:
        return 1.0 if not values.any() else float("nan")
    return float(2 * stats.t.sf(abs(mean) / error, df))


def holm(p: Sequence[float] | np.ndarray) -> np.ndarray:
    """Step-down adjustment of the p values of one family, by statsmodels.

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
    tested = ~np.isnan(p)
    if tested.any():
        adjusted[tested] = multipletests(p[tested], method="holm")[1]
    return adjusted
