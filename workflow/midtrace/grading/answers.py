"""Reading and grading answers: of raw traces and of raw continuations. A better parser never repeats paid work."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from midtrace import grading, tables
from midtrace.grading import Grade, Judge, Programs


def grade_traces(
    raw: str | Path,
    items: str | Path,
    output: str | Path,
    study: str,
    settings: Mapping[str, Any],
    programs: Programs | None = None,
    judge: Judge | None = None,
) -> None:
    """Read the natural answers of raw traces and write ``traces/...``.

    Parameters
    ----------
    raw, items
        Raw traces and the items table.
    output
        The traces table to write.
    study, settings
        Name of the study; see :func:`midtrace.config.graded_traces_settings`.
    programs
        For a benchmark of code.
    judge
        For a benchmark that a judge grades.

    Notes
    -----
    A trace without an answer is wrong, never dropped; one that the rules cannot read is unparsed (``answer`` null) and wrong, unless a judge
    says otherwise.
    """
    meta = tables.check_identity(raw, grading.settings_before(settings))
    by_item = _by(tables.read(items, tables.Items, settings["items"]), "item_id")
    frame = tables.read(raw, tables.RawTraces)
    texts = [(row["answer_text"] if row["status"] == "terminated" else None, by_item[row["item_id"]]) for row in frame.iter_rows(named=True)]
    frame = grading.graded(frame, grading.grade_all(texts, programs, judge))
    tables.write(frame, output, tables.Traces, {**meta, "identity": settings, **grading.facts(programs, judge)})


def grade_continuations(
    items: str | Path,
    traces: str | Path,
    cuts: str | Path,
    raw: str | Path,
    readouts: str | Path | None,
    output: str | Path,
    study: str,
    settings: Mapping[str, Any],
    programs: Programs | None = None,
    judge: Judge | None = None,
) -> None:
    """Read the answers of continuations, add mode ``natural``, compare with the probe, and write ``continuations/...``.

    Parameters
    ----------
    items, traces, cuts, raw
        The items table, graded traces, cuts and raw continuations.
    readouts
        Readouts of the same cuts; None for a benchmark without options.
    output
        The continuations table to write.
    study, settings
        Name of the study; see :func:`midtrace.config.graded_continuation_settings`.
    programs
        For a benchmark of code.
    judge
        For a benchmark that a judge grades.

    Notes
    -----
    ``natural`` holds the run's own final answer against the probe at every cut under the own prompt. An unparsed answer agrees with nothing.
    """
    continued, origin = grading.settings_before(settings), settings["replay"]["traces"]
    by_item = _by(tables.read(items, tables.Items, origin["items"]), "item_id")
    by_trace = _by(tables.read(traces, tables.Traces, grading.settings_after(settings, origin)), "trace_id")
    probed: dict[tuple, str] = {}
    if readouts:
        # The two stages share all settings but their own.
        shared = {key: value for key, value in continued.items() if key != "continuations"}
        own = tables.read_metadata(readouts)["identity"].get("readouts")
        frame = tables.read(readouts, tables.Readouts, {**shared, "readouts": own})
        keys = ("trace_id", "cut_id", "context", "context_arm", "choice")
        probed = {row[:4]: row[4] for row in frame.select(keys).iter_rows()}
    raws = tables.read(raw, tables.RawContinuations, continued).to_dicts()
    grades = grading.grade_all([(row["text"], by_item[by_trace[row["trace_id"]]["item_id"]]) for row in raws], programs, judge)
    found = list(zip(raws, grades, strict=True))
    if "natural" in settings["continuations"]["modes"]:
        for cut in tables.read(cuts, tables.Cuts, settings["replay"]).iter_rows(named=True):
            trace = by_trace[cut["trace_id"]]
            row = {**cut, "context": "policy", "context_arm": trace["arm"], "mode": "natural", "text": trace["answer_text"]}
            found.append((row, Grade(*(trace[name] for name in Grade._fields))))
    rows = []
    for row, grade in found:
        choice = probed.get((row["trace_id"], row["cut_id"], row["context"], row["context_arm"]))
        agrees = None if choice is None else grade.answer == choice
        graded = {**row, **grade._asdict(), "agrees_with_probe": agrees}
        rows.append({name: graded[name] for name in tables.Continuations.column_names()})
    frame = tables.frame_of(rows, tables.Continuations)
    meta = tables.metadata("continuations", study, settings, **grading.facts(programs, judge))
    # Without mode "natural", an arm that has finished at every cut has nothing to continue.
    tables.write(frame, output, tables.Continuations, meta, expect_rows="natural" in settings["continuations"]["modes"])


def _by(frame: pl.DataFrame, key: str) -> dict[str, dict[str, Any]]:
    return {row[key]: row for row in frame.iter_rows(named=True)}
