"""Equal-token split: what a difference is at equal length, and what the reference's further tokens change (method, 4.13)."""

import polars as pl

from midtrace.estimands.terms import named

PARTS = {"contrast": "difference", "equal_tokens": "equal", "further_tokens": "further"}


def split_pairs(pairs: pl.DataFrame, matched: pl.DataFrame) -> pl.DataFrame:
    """The two parts of the difference of every pair, in the common context.

    Parameters
    ----------
    pairs
        Rows of :func:`midtrace.estimands.pairs` under ``symmetric`` (or ``symmetric_continuation``).
    matched
        Pairs at the matched horizon by the same reading (:func:`midtrace.estimands.matched_pairs`): ``item_id``, ``replicate``, ``correct_r`` =
        the reference at L_t tokens, Y_c(L_t).

    Returns
    -------
    polars.DataFrame
        ``item_id``, ``replicate``, ``horizon``, ``readout``, ``finished`` = whether the treatment is complete at B, ``difference`` = Y_t(B) -
        Y_c(B), ``equal`` = Y_t(B) - Y_c(min(B, L_t)), ``further`` = Y_c(min(B, L_t)) - Y_c(B). A treatment that is active at B has not closed its
        reasoning by then: min(B, L_t) is B, and all of its difference is at equal length. A pair whose treatment is complete and whose reference
        was not read at L_t is left out.
    """
    at = matched.select("item_id", "replicate", at_length="correct_r")
    joined = pairs.join(at, on=["item_id", "replicate"], how="left", validate="m:1")
    shorter = pl.when("complete_t").then("at_length").otherwise("correct_r")
    found = joined.with_columns(equal=pl.col("correct_t") - shorter, further=shorter - pl.col("correct_r"))
    kept = found.filter(pl.col("equal").is_not_null())
    return kept.select("item_id", "replicate", "horizon", "readout", "difference", "equal", "further", finished="complete_t")


def split_terms(frame: pl.DataFrame) -> pl.DataFrame:
    """Terms of Delta(B) and of its two parts, which add up to it.

    Parameters
    ----------
    frame
        See :func:`split_pairs`.

    Returns
    -------
    polars.DataFrame
        Keys ``estimand``, ``horizon``, ``readout``. ``contrast``, ``equal_tokens``, ``further_tokens`` over all pairs; with ``_finished`` over those
        whose treatment is complete at B, which alone can have a second part.
    """
    keys = ["horizon", "readout"]
    found = [named(frame, name, keys, pl.col(column)) for name, column in PARTS.items()]
    found += [named(frame, f"{name}_finished", keys, pl.col(column), pl.col("finished")) for name, column in PARTS.items()]
    return pl.concat(found)
