"""The part of the report about interruptions."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from midtrace import tables, verdicts
from midtrace.figures import interruptions as interruption_figures
from midtrace.report import captions
from midtrace.report.checks import judge_rows

QUESTIONS = {
    "interruptions": "What does an interruption cost?",
    "interruptions_errors": "Which failures explain the new errors?",
    "interruptions_leakage": "Does reasoning leak into the answer?",
}
MEASURES = ("accuracy", "accuracy_change", "leakage_2x", "panic", "self_doubt", "added_reasoning")


def figures(uris: Mapping[str, str]) -> list[dict[str, Any]]:
    """The figures of interruptions, with headings and captions, in the order of their names."""
    found = []
    for stem, uri in uris.items():
        if stem.startswith("interruptions"):
            kind = interruption_figures.kind_of(stem)
            heading = f"{QUESTIONS[kind]} ({stem.removeprefix(f'{kind}_').replace('_', ' ')})"
            found.append({"name": f"figure-{stem}", "heading": heading, "uri": uri, "alt": heading, "caption": captions.INTERRUPTIONS[kind]})
    return found


def judging(paths: Sequence[str | Path], settings: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Per model and benchmark whose interruptions a judge graded: ``model``, ``benchmark``, ``rows`` (:func:`midtrace.report.checks.judge_rows`)."""
    found = []
    for path in paths:
        frame = tables.read(path, expected=settings).filter(pl.col("estimand").str.starts_with("judge_"))
        frame = frame.with_columns(pl.col("estimand").str.strip_prefix("judge_"))
        for model, benchmark in frame.select("model", "benchmark").unique(maintain_order=True).iter_rows():
            own = frame.filter(pl.col("model") == model, pl.col("benchmark") == benchmark)
            found.append({"model": model, "benchmark": benchmark, "rows": judge_rows(own, "intervention")})
    return found


def rows(paths: Sequence[str | Path], settings: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Per model, benchmark, arm (together: ``place``) and intervention: the measures over all cuts by fraction.

    Parameters
    ----------
    paths
        ``decomposition/interruptions.parquet``, or nothing.
    settings
        See :func:`midtrace.config.interruptions.interruption_analysis_settings`; a table of another config is refused.
    """
    found = []
    for path in paths:
        frame = tables.read(path, expected=settings).filter(pl.col("cut") == "fraction", pl.col("fraction").is_null())
        keys = ["model", "benchmark", "treatment", "intervention"]
        for key in frame.select(keys).unique(maintain_order=True).iter_rows():
            own = frame.filter(*(pl.col(name) == value for name, value in zip(keys, key, strict=True)))
            measures = {name: verdicts.one(own, estimand=name) for name in MEASURES}
            found.append({**dict(zip(keys, key, strict=True)), "place": ", ".join(key[:3]), **measures})
    return found
