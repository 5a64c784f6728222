"""The rows of the report that say whether the readings can be trusted."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from midtrace import verdicts
from midtrace.figures.checks import CONTROLS
from midtrace.verdicts import Estimate


def readout_counts(paths: Sequence[str | Path], runs: pl.DataFrame) -> pl.DataFrame:
    """Readouts, and among them flagged ones, by ``model``, ``benchmark`` and ``arm``: ``readouts``, ``low_mass``, ``ties``, ``infinite``."""
    keys = ["model", "benchmark", "arm"]
    if not paths:
        return pl.DataFrame(schema={**dict.fromkeys(keys, pl.String), **dict.fromkeys(("readouts", "low_mass", "ties", "infinite"), pl.Int64)})
    return (
        pl.scan_parquet([Path(path) for path in paths], glob=False)
        .select("trace_id", "low_mass", "tie", infinite=pl.col("gold_log_odds").is_infinite())
        .join(runs.lazy().select("trace_id", *keys), on="trace_id")
        .group_by(keys)
        .agg(readouts=pl.len(), low_mass=pl.col("low_mass").sum(), ties=pl.col("tie").sum(), infinite=pl.col("infinite").sum())
        .sort(keys)
        .collect()
    )


def estimate_of(row: Mapping[str, Any] | None) -> Estimate | None:
    """A row of a decomposition table as an estimate."""
    if row is None or row["estimate"] is None:
        return None
    return Estimate(row["estimate"], row["ci_low"], row["ci_high"], row["n_items"], row["n_pairs"])


def control_rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Controls in words: accuracy, share that follows the stated option, chance."""
    found = []
    present = list(dict.fromkeys(frame.select("control", "position").iter_rows()))
    for key in [*(key for key in CONTROLS if key in present), *(key for key in present if key not in CONTROLS)]:
        rows = {row["estimand"]: row for row in frame.filter(pl.col("control") == key[0], pl.col("position") == key[1]).iter_rows(named=True)}
        found.append(
            {
                "name": CONTROLS.get(key, " ".join(key)),
                "accuracy": estimate_of(rows.get("accuracy")),
                "follows": estimate_of(rows.get("follows_stated")),
                "chance": estimate_of(rows.get("chance")),
            }
        )
    return found


def drift_rows(frame: pl.DataFrame, arms: Sequence[str]) -> dict[str, Any]:
    """Share of traces that a decode-encode round trip changes, by arm: anywhere, and within the first B tokens at up to four horizons."""
    horizons = sorted(set(frame.filter(pl.col("horizon") > 0)["horizon"]))
    shown = sorted({horizons[round(step * (len(horizons) - 1) / 3)] for step in range(4)}) if horizons else []
    found = []
    for arm in arms:
        own = frame.filter(pl.col("treatment") == arm)
        whole = verdicts.one(own, estimand="trace_drift")
        if whole is not None:
            found.append({"arm": arm, "whole": whole, "prefixes": [verdicts.one(own, estimand="prefix_drift", horizon=h) for h in shown]})
    return {"horizons": shown, "rows": found}


def agreement_rows(frame: pl.DataFrame, arms: Sequence[str]) -> list[dict[str, Any]]:
    """Per arm: agreement of the probe with the natural answer on whole blocks, and the lowest agreement with the continuation."""
    found = []
    for arm in arms:
        own = frame.filter(pl.col("treatment") == arm, pl.col("estimate").is_not_null())
        continued = own.filter(pl.col("estimand") == "probe_continuation").sort("estimate", "horizon")
        lowest = continued.row(0, named=True) if len(continued) else None
        whole = verdicts.one(own, estimand="probe_natural_complete")
        if whole is not None or lowest is not None:
            found.append({"arm": arm, "whole": whole, "lowest": estimate_of(lowest), "horizon": lowest and lowest["horizon"]})
    return found


def planted_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A planted effect, what was promised of it, what was measured, and the verdict."""
    bounds = {(False, False): "", (True, False): f"at least {row['low']:g}" if row["low"] is not None else ""}
    low, high = row["low"], row["high"]
    bound = bounds.get((low is not None, high is not None))
    if bound is None:
        bound = f"{low:g} to {high:g}" if low is not None else f"at most {high:g}"
    return {
        "effect": row["estimand"],
        "planted": row["planted"],
        "promised": bound.replace("-", verdicts.MINUS),
        "measured": estimate_of(row),
        "covered": {None: "", True: "covered", False: "not covered"}[row["covered"]],
        "holds": {None: "", True: "kept", False: "broken"}[row["holds"] if bound else None],
    }
