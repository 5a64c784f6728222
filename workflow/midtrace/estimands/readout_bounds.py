"""How far the reading of unfinished runs could carry a difference: bounds and tipping point (method, 4.11).

Where only one run of a pair is complete, its own answer stands against a *reading* of an unfinished run. That is the one stratum in which a
fault of the readout cannot cancel.
"""

import numpy as np
import polars as pl

from midtrace.estimands.terms import item_means, named
from midtrace.inference.bootstrap import ratio

# Readings of the unfinished run, and the readout whose rows have them.
MEASURED = {
    "probe_own": "terminal",
    "probe_common": "symmetric",
    "continuation_own": "terminal_continuation",
    "continuation_common": "symmetric_continuation",
}
COMBINED = ("any_right", "all_right", "lowest", "highest", "final")
ONE_SIDED = ("treatment_complete", "reference_complete")
TIPPING = ("tipping_share", "tipping_reach")
PAIR = ["item_id", "replicate", "horizon"]


def reading_pairs(pairs: pl.DataFrame, traces: pl.DataFrame, treatment: str, reference: str) -> pl.DataFrame:
    """Every pair under every reading of its unfinished run.

    Parameters
    ----------
    pairs
        See :func:`midtrace.estimands.pairs`.
    traces
        ``item_id``, ``arm``, ``replicate``, ``correct`` (N, the run's own final answer) of both arms.
    treatment, reference
        Arms.

    Returns
    -------
    polars.DataFrame
        ``item_id``, ``replicate``, ``horizon``, ``reading``, ``termination``, ``value`` (of the unfinished run of a one-sided pair, else null),
        ``difference``. Readings: those of ``MEASURED`` that the study has; ``any_right`` = the largest of them, ``all_right`` = the smallest;
        ``lowest`` = the one of these two that makes the difference smallest (any_right where the reference is unfinished, all_right where the
        treatment is), ``highest`` = the other; ``final`` = what the unfinished run answered in the end, a benchmark and no bound. Pairs in
        which both runs are complete, or both active, keep their Y. One-sided pairs that lack a reading are left out under all of them, so that
        readings differ in nothing else.
    """
    present = [name for name, readout in MEASURED.items() if (pairs["readout"] == readout).any()]
    outcome = next((name for name in ("terminal", "terminal_continuation") if (pairs["readout"] == name).any()), None)
    if outcome is None:
        return pl.DataFrame()
    found = pairs.filter(pl.col("readout") == outcome).select(*PAIR, "termination", "correct_t", "correct_r", "difference")
    first = pl.col("termination") == "treatment_complete"
    unfinished = pl.when(first).then(pl.col("correct_r")).when(pl.col("termination") == "reference_complete").then(pl.col("correct_t"))
    for name in present:
        values = pairs.filter(pl.col("readout") == MEASURED[name]).select(*PAIR, unfinished.alias(name))
        found = found.join(values, on=PAIR, how="left", validate="1:1")
    ends = traces.select("item_id", "replicate", "arm", final=pl.col("correct").cast(pl.Float64))
    for arm, side in ((treatment, "t"), (reference, "r")):
        own = ends.filter(pl.col("arm") == arm).select("item_id", "replicate", pl.col("final").alias(f"final_{side}"))
        found = found.join(own, on=["item_id", "replicate"], how="left", validate="m:1")
    one_sided = pl.col("termination").is_in(ONE_SIDED)
    found = found.filter(~one_sided | pl.all_horizontal(pl.col(name).is_not_null() for name in present)).with_columns(
        any_right=pl.max_horizontal(present), all_right=pl.min_horizontal(present), final=pl.when(first).then("final_r").otherwise("final_t")
    )
    found = found.with_columns(
        lowest=pl.when(first).then("any_right").otherwise("all_right"), highest=pl.when(first).then("all_right").otherwise("any_right")
    )
    # The complete run is scored by its own answer under Y.
    replaced = [
        found.select(
            *PAIR,
            pl.lit(name).alias("reading"),
            "termination",
            pl.when(one_sided).then(pl.col(name)).alias("value"),
            pl.when(first)
            .then(pl.col("correct_t") - pl.col(name))
            .when(one_sided)
            .then(pl.col(name) - pl.col("correct_r"))
            .otherwise("difference")
            .alias("difference"),
        )
        for name in (*present, *COMBINED)
    ]
    return pl.concat(replaced).sort("reading", *PAIR, maintain_order=True)


def reading_terms(frame: pl.DataFrame) -> pl.DataFrame:
    """Terms of the contrast and of the one-sided contributions under each reading.

    Parameters
    ----------
    frame
        See :func:`reading_pairs`.

    Returns
    -------
    polars.DataFrame
        Keys ``estimand``, ``horizon``, ``reading``, ``termination``: ``contrast`` = Delta(B), ``termination`` null; ``contribution`` = mean of
        difference x [in the stratum] for each of ``ONE_SIDED``.
    """
    keys = ["horizon", "reading", "termination"]
    whole = named(frame.with_columns(termination=pl.lit(None, pl.String)), "contrast", keys, pl.col("difference"))
    found = [whole]
    for state in ONE_SIDED:
        inside = (pl.col("state") == state).cast(pl.Float64)
        spread = frame.rename({"termination": "state"}).with_columns(termination=pl.lit(state))
        found.append(named(spread, "contribution", keys, pl.col("difference") * inside))
    return pl.concat(found)


def tipping_means(frame: pl.DataFrame) -> pl.DataFrame:
    """What the tipping point is made of, as item means by ``horizon`` and ``reading``, of the measured readings.

    Returns
    -------
    polars.DataFrame
        ``horizon``, ``reading``, ``item_id``; ``contrast``; ``one_sided`` = share of one-sided pairs; ``lowering``, ``raising`` = share of pairs
        whose unfinished run, read the other way round, would lower or raise the contrast; ``pairs``.
    """
    first, second = (pl.col("termination") == state for state in ONE_SIDED)
    right = pl.col("value") == 1
    values = {
        "contrast": pl.col("difference"),
        "one_sided": first | second,
        "lowering": (first & ~right) | (second & right),
        "raising": (first & right) | (second & ~right),
    }
    return item_means(frame.filter(pl.col("reading").is_in(list(MEASURED))), ["horizon", "reading"], values)


def tipping(sums: np.ndarray) -> np.ndarray:
    """The tipping point from sums over items.

    Parameters
    ----------
    sums
        Shape (..., 5): sums over items of ``contrast``, ``one_sided``, ``lowering``, ``raising`` (:func:`tipping_means`), and the number of
        items (not used).

    Returns
    -------
    numpy.ndarray
        Shape (..., 2), in the order of ``TIPPING``. ``tipping_share`` = Delta(B) / share of one-sided pairs: its size is the part of these pairs
        that would have to be misread, all against the winner, for Delta(B) to reach 0; its sign is that of Delta(B). ``tipping_reach`` = the part
        of these pairs whose reading, if it were wrong, would move Delta(B) towards 0: a tipping share of a larger size cannot be reached.
    """
    contrast, one_sided, lowering, raising = (sums[..., k] for k in range(4))
    return np.stack([ratio(contrast, one_sided), ratio(np.where(contrast >= 0, lowering, raising), one_sided)], axis=-1)
