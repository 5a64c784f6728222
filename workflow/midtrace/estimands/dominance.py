"""Is a difference mostly one of finishing earlier? Contribution of the pairs of which only the treatment has finished (method, 4.10)."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from scipy import stats

from midtrace.estimands.terms import item_means
from midtrace.inference.bootstrap import ratio
from midtrace.inference.hypotheses import mean_error

STATES = {"finishing": "treatment_complete", "active": "both_active"}
ROUNDING = 1e-12
DOMINANCE = ("contrast", "finishing", "lead", "finishing_share")


def dominance_means(pairs: pl.DataFrame) -> pl.DataFrame:
    """What dominance is made of, as item means by ``horizon`` and ``readout``.

    Parameters
    ----------
    pairs
        See :func:`midtrace.estimands.pairs`.

    Returns
    -------
    polars.DataFrame
        ``horizon``, ``readout``, ``item_id``, ``contrast`` = mean of the differences; ``finishing``, ``active`` = mean of difference x [only the
        treatment is complete], x [both are active]; ``pairs``.
    """
    inside = {name: pl.col("difference") * (pl.col("termination") == state) for name, state in STATES.items()}
    return item_means(pairs, ["horizon", "readout"], {"contrast": pl.col("difference"), **inside})


def dominance(sums: np.ndarray) -> np.ndarray:
    """Estimands of dominance from sums over items.

    Parameters
    ----------
    sums
        Shape (..., 4): sums over items of ``contrast``, ``finishing``, ``active`` (:func:`dominance_means`), and the number of items.

    Returns
    -------
    numpy.ndarray
        Shape (..., 4), in the order of ``DOMINANCE``: Delta(B); the contribution F(B) of treatment_complete; F(B) minus the contribution of
        both_active; F(B) / Delta(B), NaN where Delta(B) is 0.
    """
    contrast, finishing, active = (ratio(sums[..., k], sums[..., 3]) for k in range(3))
    # A sum of differences that is 0 but for rounding must not make a share.
    divided = ratio(finishing, np.where(np.abs(contrast) > ROUNDING, contrast, 0.0))
    return np.stack([contrast, finishing, finishing - active, divided], axis=-1)


def positive_p(values: np.ndarray, strata: Sequence[object] | None = None) -> float:
    """One-sided p value of the t test that a mean over items is at most 0.

    Parameters
    ----------
    values
        Item means, shape (items,).
    strata
        Stratum of each item; None: one.

    Returns
    -------
    float
        NaN below two items, and where all items have one value other than 0; 1 where all are 0.
    """
    values = np.asarray(values, dtype=float)
    if len(values) < 2:
        return float("nan")
    mean, (error, df) = values.mean(), mean_error(values, strata)
    if error == 0 or df < 1:
        return float("nan") if values.any() else 1.0
    return float(stats.t.sf(mean / error, df))


def intersection_union(p: Sequence[float]) -> float:
    """P value of the claim that every one of several alternatives holds: the largest of their p values.

    Each test at level a keeps the chance of a false claim at most a, without adjustment and whatever the dependence: the claim is false if any
    null hypothesis is true, and then already its own test rejects with chance at most a.

    Parameters
    ----------
    p
        P values of the alternatives, at least one; NaN where a test could not be made, and then nothing is claimed (NaN).

    References
    ----------
    Berger (1982), Technometrics 24, 295-300.
    """
    if not len(p):
        raise ValueError("no test to combine")
    return float(np.max(p))  # NaN if any is
