"""One real example for the report: the two runs of a pair, cut at the headline horizon, and what the probe reads there.

Only of generated benchmarks. Items of a file may be gated, so their text never leaves the items table.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from midtrace import tables
from midtrace.errors import InputError
from midtrace.prompts import labels
from midtrace.replay import reasoning_ids

GENERATED = ("chains", "chains_update")
BEFORE, AFTER = 1_500, 600  # characters shown on each side of the cut


@dataclass(frozen=True)
class Side:
    """A run cut at the horizon. ``options`` holds (label, text, probability, is right, is chosen); empty where there was no readout."""

    arm: str
    n_reasoning: int
    n_kept: int
    complete: bool
    before: str
    after: str
    answer: str | None
    correct: bool
    options: list[tuple[str, str, float, bool, bool]]
    candidate_mass: float | None


@dataclass(frozen=True)
class Example:
    """A pair of runs on one item."""

    model: str
    benchmark: str
    question: str
    gold: str
    horizon: int
    common: str
    sides: list[Side]


def may_show(item_table: str | Path) -> bool:
    """Whether the items of a file were generated here, by its own metadata: only then may their text be shown."""
    return tables.read_metadata(item_table)["identity"]["benchmark"]["loader"] in GENERATED


def printable(text: str) -> str:
    """Model output made visible: control and formatting characters (also those that reverse the direction of text) as U+FFFD."""
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in ("Cc", "Cf") and c not in "\n\t" else c for c in text)


def choose_pair(runs: pl.DataFrame, treatment: str, reference: str, horizon: int) -> tuple[str, int] | None:
    """The first pair, in order of items and replicates, in which only the treatment has finished by the horizon; else the first pair.

    Parameters
    ----------
    runs
        ``item_id``, ``replicate``, ``arm``, ``status``, ``n_reasoning`` of one model and benchmark.
    treatment, reference, horizon
        Arms and B.
    """
    done = (pl.col("status") == "terminated") & (pl.col("n_reasoning") <= horizon)
    t, r = (runs.filter(pl.col("arm") == arm).select("item_id", "replicate", done=done) for arm in (treatment, reference))
    both = t.join(r, on=["item_id", "replicate"], suffix="_r").sort("item_id", "replicate")
    if both.is_empty():
        return None
    telling = both.filter(pl.col("done") & ~pl.col("done_r"))
    row = (telling if len(telling) else both).row(0, named=True)
    return row["item_id"], row["replicate"]


def local_tokenizer(model: Mapping[str, Any]) -> Any:
    """The tokenizer of a model entry, from a folder or the local cache: a report is written without a network."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model["source"], revision=model["revision"], local_files_only=True)


def find(
    item_table: str | Path,
    traces: Sequence[str | Path],
    readouts: Sequence[str | Path],
    runs: pl.DataFrame,
    comparison: Mapping[str, str],
    horizon: int,
) -> Example | None:
    """The example of a comparison, or None if its items may not be shown or the vocabulary cannot be read.

    Parameters
    ----------
    item_table
        Items of the benchmark.
    traces, readouts
        Shards that hold the two runs (and others).
    runs
        See :func:`choose_pair`.
    comparison
        ``treatment``, ``reference``, ``common``.
    horizon
        B.
    """
    if not may_show(item_table):
        return None
    pair = choose_pair(runs, comparison["treatment"], comparison["reference"], horizon)
    if pair is None:
        return None
    item = tables.read(item_table, tables.Items).filter(pl.col("item_id") == pair[0]).row(0, named=True)
    model = runs["model"][0]
    try:
        tokenizer = local_tokenizer(_model_entry(traces, model))
    except (ImportError, OSError, ValueError):
        return None
    sides = []
    for role in ("treatment", "reference"):
        trace_id = runs.filter(pl.col("item_id") == pair[0], pl.col("replicate") == pair[1], pl.col("arm") == comparison[role])["trace_id"][0]
        trace = _scan(traces).filter(pl.col("trace_id") == trace_id).collect().row(0, named=True)
        read = _scan(readouts).filter(
            pl.col("trace_id") == trace_id,
            pl.col("cut") == "horizon",
            pl.col("horizon") == horizon,
            pl.col("context") == "common",
            pl.col("context_arm") == comparison["common"],
        )
        rows = read.collect().rows(named=True) if readouts else []
        sides.append(_side(trace, rows[0] if rows else None, item, horizon, tokenizer))
    options = "\n".join(f"{label}. {text}" for label, text in zip(labels(len(item["options"])), item["options"], strict=True))
    question = printable(f"{item['question']}\n{options}".strip())
    return Example(model, item["benchmark"], question, item["answer"], horizon, comparison["common"], sides)


def _scan(paths: Sequence[str | Path]) -> pl.LazyFrame:
    return pl.scan_parquet([Path(path) for path in paths], glob=False)


def _model_entry(traces: Sequence[str | Path], model: str) -> dict[str, Any]:
    """The config entry of a model as its traces carry it."""
    for path in traces:
        entry = tables.read_metadata(path)["identity"]["model"]
        if entry["name"] == model:
            return entry
    raise InputError("traces", "model", f"no shard of {model!r}", "the traces of the study")


def _side(trace: Mapping[str, Any], read: Mapping[str, Any] | None, item: Mapping[str, Any], horizon: int, tokenizer: Any) -> Side:
    reasoning, length = reasoning_ids(trace), trace["n_reasoning"]
    kept = min(horizon, length)
    before = printable(tokenizer.decode(reasoning[:kept]))
    after = printable(tokenizer.decode(reasoning[kept:]))
    shown = []
    if read is not None:
        logprob = np.array(read["option_logprob"], dtype=float)
        q = np.exp(logprob - np.logaddexp.reduce(logprob))
        names = labels(len(item["options"]))
        shown = [
            (label, printable(text), float(p), label == item["answer"], label == read["choice"])
            for label, text, p in zip(names, item["options"], q, strict=True)
        ]
    return Side(
        arm=trace["arm"],
        n_reasoning=length,
        n_kept=kept,
        complete=trace["status"] == "terminated" and length <= horizon,
        before=before if len(before) <= BEFORE else "\N{HORIZONTAL ELLIPSIS}" + before[-BEFORE:],
        after=after if len(after) <= AFTER else after[:AFTER] + "\N{HORIZONTAL ELLIPSIS}",
        answer=None if trace["answer"] is None else printable(trace["answer"]),
        correct=trace["correct"],
        options=shown,
        candidate_mass=None if read is None else read["candidate_mass"],
    )
