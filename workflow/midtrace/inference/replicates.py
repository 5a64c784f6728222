"""Replicates: each on its own, and whether they are replicates at all."""

from collections.abc import Sequence
from typing import Any, TypeVar

import polars as pl

from midtrace.inference.intervals import intervals

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)


def per_replicate(frame: pl.DataFrame, by: Sequence[str], value: str, within: str | None = None, **settings: Any) -> pl.DataFrame:
    """Estimates of every replicate alone.

    Parameters
    ----------
    frame
        One row per pair: ``item_id``, ``replicate``, ``by``, ``value``, and ``within`` (a condition).
    by, value, within
        Keys of the estimands, what is averaged, and which rows count (default: all).
    **settings
        ``resamples``, ``level``, ``seed``, ``method``, ``strata``: see :func:`midtrace.inference.intervals`.

    Returns
    -------
    polars.DataFrame
        As :func:`midtrace.inference.intervals`, with ``replicate``.
    """
    inside = pl.lit(1.0) if within is None else pl.col(within).cast(pl.Float64)
    terms = frame.select(
        *by, "replicate", "item_id", numerator=pl.col(value).cast(pl.Float64).fill_null(0.0) * inside, denominator=inside, pairs=inside
    )
    return intervals(terms, [*by, "replicate"], **settings)


def duplicate_replicates(traces: Frame) -> Frame:
    """How many traces repeat another replicate of the same item and arm to the token.

    Parameters
    ----------
    traces
        ``model``, ``item_id``, ``arm``, ``replicate``, ``output_ids``.

    Returns
    -------
    polars.DataFrame or polars.LazyFrame
        Per ``model``, ``item_id``, ``arm``: ``n_replicates``, ``n_duplicates`` = replicates whose output ids a lower replicate has too.

    Notes
    -----
    Replicates are independent by seed. One share of short outputs repeats by chance, but an item whose replicates are all identical was
    generated without one (some engines seed every request with 0).
    """
    own = ["model", "item_id", "arm"]
    # A digest of the ids, not the ids: a study's outputs need not fit in memory.
    digested = traces.select(*own, "replicate", pl.col("output_ids").hash(seed=0).alias("_digest"))
    counts = digested.group_by(own).agg(n_replicates=pl.len().cast(pl.Int64), _distinct=pl.col("_digest").n_unique().cast(pl.Int64))
    return counts.select(*own, "n_replicates", n_duplicates=pl.col("n_replicates") - pl.col("_distinct")).sort(own)
