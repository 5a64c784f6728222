"""Item terms: what every estimand is made of.

An estimand is a ratio of item means: within an item, the mean over its pairs of ``value x indicator`` (numerator) and of ``indicator``
(denominator); over items, the sum of the numerators over the sum of the denominators. Items weigh equally; intervals resample items.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import polars as pl

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)


def item_terms(frame: Frame, by: Sequence[str], value: pl.Expr, within: pl.Expr | None = None, *, by_construction: pl.Expr | None = None) -> Frame:
    """Numerator and denominator of every item, for each combination of ``by``.

    Parameters
    ----------
    frame
        One row per pair (or trace), with ``item_id`` and the ``by`` columns; eager or lazy.
    by
        Keys of the estimand.
    value
        What is averaged; a Boolean is a share.
    within
        Condition (default: all rows).
    by_construction
        Where the value is 0 because nothing in it can differ (default: nowhere).

    Returns
    -------
    polars.DataFrame or polars.LazyFrame
        ``by``, ``item_id``, ``numerator``, ``denominator``, ``pairs`` (rows that meet the condition), ``is_share``, ``by_construction`` (of all
        rows of the item).
    """
    within = pl.lit(True) if within is None else within
    is_share = frame.lazy().select(_value=value).collect_schema()["_value"] == pl.Boolean
    return (
        frame.with_columns(
            _value=pl.when(within).then(value.cast(pl.Float64)).otherwise(0.0),
            _within=within.cast(pl.Float64),
            by_construction=pl.lit(False) if by_construction is None else by_construction,
        )
        .group_by(*by, "item_id", maintain_order=True)
        .agg(
            numerator=pl.col("_value").mean(),
            denominator=pl.col("_within").mean(),
            pairs=pl.col("_within").sum(),
            is_share=pl.lit(is_share),
            by_construction=pl.col("by_construction").all(),
        )
    )


def estimate(terms: Frame, by: Sequence[str]) -> Frame:
    """Point estimates of :func:`item_terms`: ``by`` and ``estimate`` (null where no row meets the condition)."""
    total = pl.col("denominator").sum()
    return terms.group_by(by, maintain_order=True).agg(estimate=pl.when(total > 0).then(pl.col("numerator").sum() / total))


def named(
    frame: pl.DataFrame,
    estimand: str,
    by: Sequence[str],
    value: pl.Expr,
    within: pl.Expr | None = None,
    *,
    by_construction: pl.Expr | None = None,
) -> pl.DataFrame:
    """Terms of one estimand, with its name in ``estimand`` before the keys ``by``."""
    return item_terms(frame.with_columns(estimand=pl.lit(estimand)), ["estimand", *by], value, within, by_construction=by_construction)


def item_means(frame: pl.DataFrame, by: Sequence[str], values: Mapping[str, pl.Expr]) -> pl.DataFrame:
    """Item means of several quantities of pairs, for estimands that are functions of more than two of them.

    Parameters
    ----------
    frame
        One row per pair, with ``item_id`` and the ``by`` columns.
    by
        Keys of the estimand.
    values
        Name -> what is averaged over the pairs of an item.

    Returns
    -------
    polars.DataFrame
        ``by``, ``item_id``, the names of ``values`` (Float64), ``pairs`` (rows of the item).
    """
    averaged = [value.cast(pl.Float64).mean().alias(name) for name, value in values.items()]
    return frame.group_by(*by, "item_id", maintain_order=True).agg(*averaged, pairs=pl.len())
