"""Planted against measured: the embedded model's effects are known, so the instrument can be checked against them."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
import yaml

from midtrace.errors import InputError

KEYS = (
    *("estimand", "benchmark", "treatment", "reference", "readout", "horizon", "control", "position", "fraction", "context", "reading", "approach"),
    *("intervention", "against", "cut", "mode", "ratio"),
)
FIELDS = {"effect", "table", "planted", "low", "high", *KEYS}


def read(path: str | Path) -> list[dict]:
    """The planted effects of a file: a list of mappings, see ``resources/embedded/expected.yaml``."""
    effects = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    if not isinstance(effects, list):
        raise InputError(path, "file", "is not a list of effects", "entries with effect, table, estimand, low, high")
    for index, effect in enumerate(effects):
        absent = [key for key in ("effect", "table") if not isinstance(effect, dict) or key not in effect]
        if absent:
            raise InputError(path, f"{index}.{absent[0]}", "missing", "an entry with effect and table")
        unknown = sorted(set(effect) - FIELDS)
        if unknown:
            raise InputError(path, f"{index}.{unknown[0]}", "unknown key", sorted(FIELDS))
    return effects


def compare(found: Mapping[str, pl.DataFrame], path: str | Path | None) -> pl.DataFrame:
    """Hold measured estimates against the planted ones.

    Parameters
    ----------
    found
        Decomposition tables by name.
    path
        Planted effects; None gives an empty table.

    Returns
    -------
    polars.DataFrame
        The measured row, plus ``planted`` (the value built in) and ``covered`` (it lies in the interval of the measurement), both null
        where nothing but a bound was planted; ``low`` and ``high`` (what was promised) and ``holds`` (the estimate keeps it).

    Raises
    ------
    InputError
        If an entry matches no estimate, or several: a comparison that compares nothing.
    """
    if path is None:
        return pl.DataFrame()
    rows = []
    for effect in read(path):
        if effect["table"] not in found:
            raise InputError(path, effect["effect"], f"table {effect['table']!r} is unknown", found)
        frame = found[effect["table"]]
        for key in KEYS:
            if key in effect:
                matches = pl.col(key).eq_missing(pl.lit(effect[key])) if key in frame.columns else pl.lit(effect[key] is None)
                frame = frame.filter(matches)
        if len(frame) != 1:
            raise InputError(path, effect["effect"], f"matches {len(frame)} estimates", "exactly 1 (all models and benchmarks of the study)")
        low, high = effect.get("low"), effect.get("high")
        value = effect.get("planted")
        rows.append(
            frame.with_columns(
                estimand=pl.lit(effect["effect"]),
                planted=pl.lit(value, pl.Float64),
                low=pl.lit(low, pl.Float64),
                high=pl.lit(high, pl.Float64),
                covered=pl.lit(value, pl.Float64).is_between(pl.col("ci_low"), pl.col("ci_high")),
                holds=pl.col("estimate").is_between(low if low is not None else -np.inf, high if high is not None else np.inf),
            )
        )
    return pl.concat(rows, how="diagonal_relaxed")
