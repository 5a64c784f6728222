"""What the tables share: intervals with the settings of the study, and labels."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from midtrace.inference import bootstrap_function, intervals


def bootstrap_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the item bootstrap: the same for all tables, so that all draw the same items."""
    inference = settings["inference"]
    return {
        "resamples": inference["resamples"],
        "level": inference["level"],
        "seed": settings["seed"],
        "method": inference.get("method", "percentile"),
    }


def with_intervals(terms: pl.DataFrame, by: Sequence[str], settings: Mapping[str, Any], **changed: Any) -> pl.DataFrame:
    """Estimates and limits of item terms; ``settings["strata"]`` (item -> stratum) keeps strata, where it is set."""
    return intervals(terms, by, **{**bootstrap_settings(settings), "strata": settings.get("strata"), **changed})


def of_sums(
    means: pl.DataFrame,
    by: Sequence[str],
    columns: Sequence[str],
    statistic: Callable[[np.ndarray], np.ndarray],
    names: Sequence[str],
    settings: Mapping[str, Any],
) -> pl.DataFrame:
    """Estimates and limits of functions of several item means; all keys share the resamples of items.

    Parameters
    ----------
    means
        See :func:`midtrace.estimands.item_means`: ``by``, ``item_id``, ``columns``, ``pairs``.
    by
        Key columns.
    columns
        What is summed over items.
    statistic
        From sums, shape (..., len(columns) + 1), the last one the number of items, to estimands, shape (..., len(names)); NaN where undefined.
    names
        Names of the estimands.
    settings
        See :func:`midtrace.config.analysis_settings`.

    Returns
    -------
    polars.DataFrame
        ``estimand``, ``by``, ``estimate``, ``ci_low``, ``ci_high``, ``n_items``, ``n_pairs``, ``method``; null where undefined.
    """
    if means.is_empty():
        return pl.DataFrame()
    groups = means.select(by).unique().sort(by).with_row_index("_group")
    items = means["item_id"].unique().sort()
    placed = means.join(groups, on=by).join(pl.DataFrame({"item_id": items}).with_row_index("_row"), on="item_id")
    sums = np.zeros((len(items), len(groups), len(columns) + 1))
    sums[placed["_row"].to_numpy(), placed["_group"].to_numpy()] = placed.select(*columns, _item=pl.lit(1.0)).to_numpy()

    def of_drawn(drawn: np.ndarray) -> np.ndarray:
        return statistic(drawn.reshape(len(drawn), len(groups), -1)).reshape(len(drawn), -1)

    strata = settings.get("strata")
    drawn_within = [strata[item] for item in items] if strata else None
    result = bootstrap_function(sums.reshape(len(items), -1), of_drawn, **bootstrap_settings(settings), strata=drawn_within)
    counts = placed.group_by("_group").agg(n_items=pl.len(), n_pairs=pl.col("pairs").sum()).sort("_group")
    return (
        groups.join(counts, on="_group")
        .with_columns(estimand=pl.lit(list(names)))
        .explode("estimand")
        .with_columns(
            pl.col("n_items", "n_pairs").cast(pl.Int64),
            estimate=pl.Series(result.estimate).fill_nan(None),
            ci_low=pl.Series(result.low).fill_nan(None),
            ci_high=pl.Series(result.high).fill_nan(None),
            method=pl.lit(result.method),
        )
        # As in other tables: one item has no spread.
        .with_columns(pl.when(pl.col("n_items") > 1).then(pl.col("ci_low", "ci_high")))
        .select("estimand", *by, "estimate", "ci_low", "ci_high", "n_items", "n_pairs", "method")
    )


def label(frame: pl.DataFrame, values: Mapping[str, str]) -> pl.DataFrame:
    """Add constant columns; an empty frame stays as it is."""
    return frame.with_columns(pl.lit(value).alias(name) for name, value in values.items()) if len(frame) else frame


def one_row(estimand: str, estimate: float | None, n_items: int, n_pairs: int, method: str, **more: Any) -> pl.DataFrame:
    """A frame of one estimate."""
    return pl.DataFrame({"estimand": [estimand], "estimate": [estimate], "n_items": [n_items], "n_pairs": [n_pairs], "method": [method], **more})
