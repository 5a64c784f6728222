"""Grading: from the text of an answer to right or wrong. Never a guess: what cannot be read is None."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from midtrace import prompts, tables
from midtrace.errors import InputError
from midtrace.grading import choice, free_form
from midtrace.grading.choice import parse_choice
from midtrace.grading.code import extract_program, grade_code, grade_programs
from midtrace.grading.free_form import grade_math, parse_math
from midtrace.grading.judge import SAME, Judge, Verdict
from midtrace.grading.sandbox import Limits

__all__ = [
    "Grade",
    "Judge",
    "Programs",
    "extract_program",
    "facts",
    "grade",
    "grade_all",
    "grade_code",
    "grade_math",
    "graded",
    "parse_choice",
    "parse_math",
    "settings_after",
    "settings_before",
]


class Grade(NamedTuple):
    """What an answer is worth; the fields are columns of every graded table (:class:`midtrace.tables.Traces`).

    The answer as the rules read it (None: unparsed), whether it is right, and a note on what was wrong with it (of an answer that no statement makes:
    ``tables.UNSTATED``); then who says so, and if a judge does: what the rules say (an unparsed answer is wrong for them), what became of the judge's
    verdict, and what it wrote.
    """

    answer: str | None
    correct: bool
    grade_note: str | None = None
    grader: str = "rules"
    rules_correct: bool | None = None
    judge_verdict: str | None = None
    judge_text: str | None = None


@dataclass(frozen=True)
class Programs:
    """How the programs of a benchmark are graded: the tests of all items, what a run may use, and how many run at a time."""

    tests: pl.LazyFrame
    limits: Limits
    sandbox: str
    workers: int = 1

    @classmethod
    def read(cls, tests: str | Path | None, items: Mapping[str, Any], settings: Mapping[str, Any] | None, workers: int = 1) -> "Programs | None":
        """From ``items/{benchmark}.tests.parquet`` and the section ``code`` of the config; None without them: the benchmark is of another kind.

        ``items`` are the settings of the items that the tests belong to.
        """
        if not tests or settings is None:
            return None
        limits = Limits(**{key: value for key, value in settings.items() if key != "sandbox"})
        return cls(tables.scan([(tests, items)], tables.ItemTests), limits, settings["sandbox"], workers)

    def tests_of(self, item_id: str) -> list[dict[str, Any]]:
        """The tests of one item, in order. Read when asked for: those of all items may have gigabytes."""
        return self.tests.filter(pl.col("item_id") == item_id).sort("test_id").collect().to_dicts()


def grade(text: str, item: Mapping[str, Any], labels: Sequence[str]) -> tuple[str | None, bool]:
    """Parse and grade the answer text of an item with options or a free-form answer.

    Returns
    -------
    tuple
        The parsed answer (None: unparsed) and whether it is right (unparsed is wrong).
    """
    read = _by_rules(text, item, labels)
    return read.answer, read.correct


def _by_rules(text: str, item: Mapping[str, Any], labels: Sequence[str]) -> Grade:
    if item["answer_kind"] == "code":
        raise InputError(f"item {item['item_id']}", "answer_kind", "is code, which its tests decide", "the tests table of its benchmark")
    if item["answer"] is None:
        raise InputError(f"item {item['item_id']}", "answer", "is unknown, so nothing can be graded against it", "an item with an answer")
    if item["answer_kind"] == "choice":
        reading = choice.read(text, labels)
        correct = reading.answer == item["answer"]
    else:
        reading = free_form.read(text)
        correct = reading.answer is not None and free_form.equal(reading.answer, item["answer"])
    return Grade(reading.answer, correct, tables.UNSTATED if reading.answer is not None and not reading.stated else None)


def grade_all(answers: Sequence[tuple[str | None, Mapping[str, Any]]], programs: Programs | None = None, judge: Judge | None = None) -> list[Grade]:
    """Grade answers of one benchmark.

    Parameters
    ----------
    answers
        Pairs of an answer text (None: the run gave none, which is wrong) and its item.
    programs
        For a benchmark of code.
    judge
        Who decides instead of the rules, whose grade is kept beside.
    """
    if programs is None:
        found = [Grade(None, False) if text is None else _by_rules(text, item, prompts.labels(len(item["options"]))) for text, item in answers]
        return found if judge is None else list(map(_judged, found, judge.verdicts(answers)))
    given = {at: (text, item["item_id"]) for at, (text, item) in enumerate(answers) if text is not None}
    tested = grade_programs(list(given.values()), programs.tests_of, programs.limits, programs.sandbox, programs.workers)
    by_place = dict(zip(given, tested, strict=True))
    return [Grade(*by_place[at]) if at in by_place else Grade(None, False) for at in range(len(answers))]


def _judged(rules: Grade, verdict: Verdict) -> Grade:
    return Grade(rules.answer, verdict.outcome == SAME, rules.grade_note, "judge", rules.correct, verdict.outcome, verdict.text)


def graded(frame: pl.DataFrame, grades: Sequence[Grade]) -> pl.DataFrame:
    """A frame with the columns of the grades of its rows."""
    types = {name: tables.Traces.create_empty().schema[name] for name in Grade._fields}
    return frame.with_columns(pl.DataFrame(list(grades), schema=types, orient="row").get_columns())


def settings_before(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of what a stage grades: its own, without the judge."""
    return {key: value for key, value in settings.items() if key != "judge"}


def settings_after(settings: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of another graded file of the same benchmark: those of what it grades, with the judge of this stage."""
    return {**before, **{key: value for key, value in settings.items() if key == "judge"}}


def facts(programs: Programs | None, judge: Judge | None = None) -> dict[str, Any]:
    """What the metadata of a graded table says of how its programs were run, or its judge."""
    found: dict[str, Any] = {} if judge is None else {"judge": judge.facts}
    if programs is not None:
        found["programs"] = {"sandbox": programs.sandbox, "python": platform.python_version(), **asdict(programs.limits)}
    return found
