"""Grading: from the text of an answer to right or wrong. Never a guess: what cannot be read is None."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from midtrace import prompts, tables
from midtrace.errors import InputError
from midtrace.grading.choice import parse_choice
from midtrace.grading.code import extract_program, grade_code, grade_programs
from midtrace.grading.free_form import grade_math, parse_math
from midtrace.sandbox import Limits

__all__ = ["Grade", "Programs", "extract_program", "facts", "grade", "grade_all", "grade_code", "grade_math", "parse_choice", "parse_math"]


class Grade(NamedTuple):
    """What an answer is worth: the parsed answer (None: unparsed, which is wrong), whether it is right, and a note on what was wrong with it."""

    answer: str | None
    correct: bool
    note: str | None = None


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
    if item["answer_kind"] == "code":
        raise InputError(f"item {item['item_id']}", "answer_kind", "is code, which its tests decide", "the tests table of its benchmark")
    if item["answer"] is None:
        raise InputError(f"item {item['item_id']}", "answer", "is unknown, so nothing can be graded against it", "an item with an answer")
    if item["answer_kind"] == "choice":
        answer = parse_choice(text, labels)
        return answer, answer == item["answer"]
    answer = parse_math(text)
    return answer, answer is not None and grade_math(answer, item["answer"])


def grade_all(answers: Sequence[tuple[str | None, Mapping[str, Any]]], programs: Programs | None = None) -> list[Grade]:
    """Grade answers of one benchmark.

    Parameters
    ----------
    answers
        Pairs of an answer text (None: the run gave none, which is wrong) and its item.
    programs
        For a benchmark of code.
    """
    if programs is None:
        return [Grade(None, False) if text is None else Grade(*grade(text, item, prompts.labels(len(item["options"])))) for text, item in answers]
    given = {at: (text, item["item_id"]) for at, (text, item) in enumerate(answers) if text is not None}
    found = grade_programs(list(given.values()), programs.tests_of, programs.limits, programs.sandbox, programs.workers)
    graded = dict(zip(given, found, strict=True))
    return [Grade(*graded[at]) if at in graded else Grade(None, False) for at in range(len(answers))]


def facts(programs: Programs | None) -> dict[str, Any]:
    """What the metadata of a graded table says of how its programs were run."""
    return {} if programs is None else {"programs": {"sandbox": programs.sandbox, "python": platform.python_version(), **asdict(programs.limits)}}
