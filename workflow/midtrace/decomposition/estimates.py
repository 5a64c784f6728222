"""What the tables share: intervals with the settings of the study, and labels."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from midtrace.inference import intervals


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


def label(frame: pl.DataFrame, values: Mapping[str, str]) -> pl.DataFrame:
    """Add constant columns; an empty frame stays as it is."""
    return frame.with_columns(pl.lit(value).alias(name) for name, value in values.items()) if len(frame) else frame


def one_row(estimand: str, estimate: float | None, n_items: int, n_pairs: int, method: str, **more: Any) -> pl.DataFrame:
    """A frame of one estimate."""
    return pl.DataFrame({"estimand": [estimand], "estimate": [estimate], "n_items": [n_items], "n_pairs": [n_pairs], "method": [method], **more})
