"""What the tables share: intervals with the settings of the study, and labels."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from midtrace.inference import bootstrap_function, bounded, intervals, linear_scores, mean_p


def bootstrap_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the item bootstrap: the same for all tables, so that all draw the same items.

    ``settings["strata"]`` (item -> stratum) keeps strata, where it is set.
    """
    inference = settings["inference"]
    return {
        "resamples": inference["resamples"],
        "level": inference["level"],
        "seed": settings["seed"],
        "method": inference.get("method", "percentile"),
        "strata": settings.get("strata"),
    }


def strata_of(items: Iterable[str], settings: Mapping[str, Any]) -> list[str] | None:
    """Stratum of each item; None where strata are not kept."""
    strata = settings.get("strata")
    return None if strata is None else [strata[item] for item in items]


def with_intervals(terms: pl.DataFrame, by: Sequence[str], settings: Mapping[str, Any], **changed: Any) -> pl.DataFrame:
    """Estimates and limits of item terms, as the config asks for (:func:`bootstrap_settings`)."""
    return intervals(terms, by, **{**bootstrap_settings(settings), **changed})


def with_tests(table: pl.DataFrame, terms: pl.DataFrame, by: Sequence[str], settings: Mapping[str, Any]) -> pl.DataFrame:
    """Add ``p``, the t test that an estimate is 0 (of linearised item scores), to the rows of a table whose terms are given; others have none."""
    tests = [
        {**dict(zip(by, key, strict=True)), "p": mean_p(scores, strata_of(items, settings))}
        for key, part in terms.filter(pl.col("denominator") > 0).partition_by(by, as_dict=True, maintain_order=True).items()
        for items, scores in [(part["item_id"], linear_scores(part["numerator"].to_numpy(), part["denominator"].to_numpy()))]
    ]
    if not tests:
        return table.with_columns(p=pl.lit(None, pl.Float64))
    found = pl.DataFrame(tests, schema={**{key: terms.schema[key] for key in by}, "p": pl.Float64}).with_columns(pl.col("p").fill_nan(None))
    return table.join(found, on=by, how="left", nulls_equal=True, maintain_order="left")


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

    drawn_within = {**bootstrap_settings(settings), "strata": strata_of(items, settings)}
    result = bootstrap_function(sums.reshape(len(items), -1), of_drawn, **drawn_within)
    counts = placed.group_by("_group").agg(pl.len().alias("n_items"), n_pairs=pl.col("pairs").sum()).sort("_group")
    rows = groups.join(counts, on="_group").with_columns(estimand=pl.lit(list(names))).explode("estimand")
    # What is the same in every resample does not spread.
    still, no_share = result.low == result.high, np.zeros(len(rows), bool)
    limits = bounded(result, still, settings["inference"]["level"], rows["n_items"].to_numpy(), no_share)
    table = pl.concat([rows, limits], how="horizontal").with_columns(pl.col("n_items", "n_pairs").cast(pl.Int64))
    return table.select("estimand", *by, "estimate", "ci_low", "ci_high", "n_items", "n_pairs", "method")


def label(frame: pl.DataFrame, values: Mapping[str, str]) -> pl.DataFrame:
    """Add constant columns; an empty frame stays as it is."""
    return frame.with_columns(pl.lit(value).alias(name) for name, value in values.items()) if len(frame) else frame


def one_row(estimand: str, estimate: float | None, n_items: int, n_pairs: int, method: str, **more: Any) -> pl.DataFrame:
    """A frame of one estimate."""
    return pl.DataFrame({"estimand": [estimand], "estimate": [estimate], "n_items": [n_items], "n_pairs": [n_pairs], "method": [method], **more})
