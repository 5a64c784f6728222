"""Grading interruptions: the answer, and which failure modes it shows. Thresholds and markers are settings of this stage.

The rules are stated in ``docs/interruptions.md``; each is one function here.
"""

import io
import re
import tokenize
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from midtrace import grading, tables
from midtrace.grading import Grade, Judge, Programs
from midtrace.grading.code import PYTHON, blocks

COMMENT = re.compile(r"^\s*#", re.MULTILINE)


def count_markers(text: str, markers: Sequence[str]) -> int:
    """How often the markers occur in a text, as whole words and in any case."""
    pattern = "|".join(rf"(?<!\w){re.escape(marker)}(?!\w)" for marker in markers)
    return len(re.findall(pattern, text, flags=re.IGNORECASE)) if markers else 0


def comment_lines(text: str) -> int:
    """Lines of the Python blocks of an answer that hold a comment or belong to a string that is a statement of its own.

    That is where reasoning goes when it may stand nowhere else. Of a block that is no Python, lines that begin with ``#`` are counted.
    """
    return sum(_comment_lines(content) for language, content in blocks(text) if language in PYTHON or not language)


def _comment_lines(program: str) -> int:
    found: set[int] = set()
    statement: list[tokenize.TokenInfo] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(program).readline):
            if token.type == tokenize.COMMENT:
                found.add(token.start[0])
            elif token.type == tokenize.NEWLINE:
                if statement and all(part.type == tokenize.STRING for part in statement):
                    found.update(range(statement[0].start[0], statement[-1].end[0] + 1))
                statement = []
            elif token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
                statement.append(token)
    except (tokenize.TokenError, SyntaxError):
        return len(COMMENT.findall(program))
    return len(found)


def is_panic(row: Mapping[str, Any], correct: bool, fresh_correct: bool | None, share: float) -> bool:
    """Panic: told to hurry, the run closes its reasoning at once and loses an answer that it would have had.

    Parameters
    ----------
    row
        ``status``, ``n_added_content``, ``n_reasoning`` (L) and ``n_tokens`` (the cut).
    correct, fresh_correct
        Whether the interrupted and the uninterrupted run are right.
    share
        Threshold: added reasoning < share x (L - cut), in tokens, white space at the ends of it left out.

    Returns
    -------
    bool
        Never at the end of the reasoning, where nothing remains, and never for a broken or unfinished output.
    """
    remaining = row["n_reasoning"] - row["n_tokens"]
    return row["status"] == "terminated" and not correct and bool(fresh_correct) and row["n_added_content"] < share * remaining


def mode_of(row: Mapping[str, Any], leakage: float) -> str | None:
    """Which mode explains an error that the interruption added; None for a run that is no such error.

    Parameters
    ----------
    row
        ``correct``, ``fresh_correct``, ``panic``, ``self_doubt``, ``leakage_ratio``, ``status``, ``finish_reason``, ``answer``.
    leakage
        Ratio from which an answer segment leaks.

    Returns
    -------
    str or None
        The first that applies: ``panic``, ``self_doubt``, ``leakage``, ``unfinished`` (the cap came first), ``unparsed`` (a broken format, or
        no readable answer), ``other``. So the modes of all new errors sum to one.
    """
    if row["correct"] or not row["fresh_correct"]:
        return None
    applies = {
        "panic": row["panic"],
        "self_doubt": row["self_doubt"],
        "leakage": row["leakage_ratio"] is not None and row["leakage_ratio"] >= leakage,
        "unfinished": row["status"] == "truncated" or row["finish_reason"] == "length",
        "unparsed": row["answer"] is None,
    }
    return next((mode for mode, holds in applies.items() if holds), "other")


class Stale(NamedTuple):
    """The item with the answer before its update as the right one, and whose answer that is: the ``item``'s, or that of the interrupted ``run``."""

    item: dict[str, Any]
    source: str


def stale_item(item: Mapping[str, Any], before: Grade) -> Stale | None:
    """What an answer is compared with to see whether it ignores the update.

    Parameters
    ----------
    item
        Of the benchmark.
    before
        The answer that the interrupted run gave to the revised question, read by the rules and graded against the answer after the update.

    Returns
    -------
    Stale or None
        The source's ``stale_answer`` where it states one, else the run's own answer. None where neither is known: the answer is a program, the
        run gave none that could be read, or gave the answer that is right after the update, which then tells nothing.
    """
    if item["answer_kind"] == "code":
        return None
    if item["stale_answer"] is not None:
        return Stale({**item, "answer": item["stale_answer"]}, "item")
    return Stale({**item, "answer": before.answer}, "run") if before.answer is not None and not before.correct else None


def answer_of(row: Mapping[str, Any]) -> str | None:
    """The answer segment of a run, None where it did not end."""
    return row["answer_text"] if row["status"] == "terminated" else None


def stale_items(item_of: Mapping[str, Mapping[str, Any]], traces: Mapping[str, Mapping[str, Any]]) -> dict[str, Stale]:
    """By trace on a revised question, where it is known: the item with the answer before its update; see :func:`stale_item`."""
    texts = {trace: item for trace, item in item_of.items() if item["answer_kind"] != "code"}
    read = grading.grade_all([(answer_of(traces[trace]), item) for trace, item in texts.items()])
    found = {trace: stale_item(item, grade) for (trace, item), grade in zip(texts.items(), read, strict=True)}
    return {trace: stale for trace, stale in found.items() if stale is not None}


def grade_row(
    row: Mapping[str, Any],
    item: Mapping[str, Any],
    fresh: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    grade: Grade,
    stale: bool | None = None,
    stale_source: str | None = None,
) -> dict[str, Any]:
    """A raw interruption with its answer and failure modes.

    Parameters
    ----------
    row
        Of the raw interruptions.
    item
        Of the benchmark: its answer is the one after the update, where there is one.
    fresh
        The trace on the whole question with the same item, arm and replicate; None if it is missing.
    settings
        See :func:`midtrace.config.interruptions.interruption_grading_settings`.
    grade
        Of the answer.
    stale
        Whether the answer is the one before the update; None where that is unknown.
    stale_source
        Whose answer before the update that is; see :class:`Stale`.
    """
    intervention, thresholds = settings["interruption"]["intervention"], settings["thresholds"]
    update, code = "{update}" in (intervention["text"] or ""), item["answer_kind"] == "code"
    correct = grade.correct
    fresh_correct = fresh["correct"] if fresh else None
    found = {
        **row,
        "item_id": item["item_id"],
        "replicate": settings["fresh"]["replicate"],
        **grade._asdict(),
        "fresh_correct": fresh_correct,
        "fresh_tokens": len(fresh["output_ids"]) if fresh else None,
        "leakage_ratio": row["n_answer"] / row["n_base_answer"] if row["n_base_answer"] else None,
        "reasoning_markers": count_markers(row["answer_text"], thresholds["reasoning_markers"]),
        "comment_lines": comment_lines(row["answer_text"]) if code else None,
        "fresh_comment_lines": comment_lines(fresh["answer_text"]) if code and fresh else None,
        "doubts": None,
        "stale": None,
        "stale_source": None,
        "panic": None,
        "self_doubt": None,
    }
    if update:
        doubts = count_markers(f"{row['added_text']}\n{row['answer_text']}", thresholds["doubt_markers"])
        found |= {"stale": stale, "stale_source": stale_source, "doubts": doubts, "self_doubt": not correct and (bool(stale) or doubts > 0)}
    elif intervention["place"] != "close":
        found["panic"] = is_panic(row, correct, fresh_correct, thresholds["panic"])
    return {**found, "mode": mode_of(found, thresholds["leakage"][0])}


def run(
    items: str | Path,
    fresh: str | Path,
    traces: str | Path,
    raw: str | Path,
    output: str | Path,
    study: str,
    settings: Mapping[str, Any],
    programs: Programs | None = None,
    judge: Judge | None = None,
) -> None:
    """Grade raw interruptions and write ``interruptions/...``.

    Parameters
    ----------
    items
        Items of the benchmark.
    fresh
        Graded traces on the whole question: those that were interrupted, except by an update.
    traces
        The raw traces that were interrupted.
    raw
        Raw interruptions.
    output
        The interruptions table to write.
    study, settings
        Name of the study; see :func:`midtrace.config.interruptions.interruption_grading_settings`.
    programs
        For a benchmark of code.
    judge
        For a benchmark that a judge grades.
    """

    def own(item_id: str) -> str:
        return item_id.split("/", 1)[1]

    by_item = {own(row["item_id"]): row for row in tables.read(items, tables.Items, settings["fresh"]["items"]).iter_rows(named=True)}
    uninterrupted = tables.read(fresh, tables.Traces, grading.settings_after(settings, settings["fresh"]))
    by_fresh = {own(row["item_id"]): row for row in uninterrupted.iter_rows(named=True)}
    origin = {row["trace_id"]: row for row in tables.read(traces, tables.RawTraces, settings["interruption"]["traces"]).iter_rows(named=True)}
    raws = tables.read(raw, tables.RawInterruptions, settings["interruption"]).to_dicts()
    item_of = {trace: by_item[own(row["item_id"])] for trace, row in origin.items()}
    finished = [(answer_of(row), item_of[row["trace_id"]]) for row in raws]
    stale = stale_items(item_of, origin) if "{update}" in (settings["interruption"]["intervention"]["text"] or "") else {}
    doubted = [at for at, row in enumerate(raws) if row["trace_id"] in stale]
    # At once, for a judge is asked in batches.
    grades = grading.grade_all([*finished, *((finished[at][0], stale[raws[at]["trace_id"]].item) for at in doubted)], programs, judge)
    is_stale = {at: (grade.correct, stale[raws[at]["trace_id"]].source) for at, grade in zip(doubted, grades[len(raws) :], strict=True)}
    rows = [
        grade_row(row, item, by_fresh.get(own(item["item_id"])), settings, grades[at], *is_stale.get(at, ()))
        for at, (row, (_, item)) in enumerate(zip(raws, finished, strict=True))
    ]
    frame = tables.frame_of([{name: row[name] for name in tables.Interruptions.column_names()} for row in rows], tables.Interruptions)
    meta = tables.metadata("interruptions", study, settings, **grading.facts(programs, judge))
    tables.write(frame, output, tables.Interruptions, meta)
