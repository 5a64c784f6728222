"""Grading programs: the last fenced block of an answer, run on every test of its item in the sandbox (docs/code.md)."""

import json
import math
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import lru_cache
from typing import Any

from midtrace.errors import InputError
from midtrace.grading import sandbox
from midtrace.grading.sandbox import Limits
from midtrace.logs import Progress

TOLERANCE = 1e-6  # relative or absolute, where a fraction is expected
UNPARSED = "no code block"
_FENCE = re.compile(r"(?P<indent>[ \t]*+)(?P<fence>`{3,}+|~{3,}+)(?P<gap>[ \t]*+)(?P<language>[^\s`]*+)(?P<words>[^`]*+)$")
PYTHON = {"python", "py", "python3", "py3"}
_NUMBER = re.compile(r"[+-]?(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d++", re.ASCII)
_SPACE = re.compile(r"[ \t\r\f\v]+")  # between words; a space of Unicode is a character like any other
_LONGEST = 4_000  # digits of a whole number that Python reads without being asked twice


def blocks(text: str) -> list[tuple[str, str]]:
    """Fenced blocks of a Markdown text, in order: the language in lower case (empty: none is named) and the content, less the fence's indent.

    A fence that is never closed ends with the text. One that names Python inside an open block starts it anew, as does any other while the block is
    empty: a model that was made to start with a fence may write another, or none at the end. Words after a fence do not keep it from closing.
    """
    found: list[tuple[str, str]] = []
    lines: list[str] = []
    fence, language, indent = "", "", 0
    for line in text.split("\n"):
        match = _FENCE.match(line)
        named = _language(match["language"]) if match else ""
        if match and (not fence or named in PYTHON or (named and not "".join(lines).strip())):
            fence, language, indent, lines = match["fence"], named, len(match["indent"]), []
        elif match and match["fence"].startswith(fence) and (not named or match["gap"] or match["words"]):
            found.append((language, "\n".join(lines) + "\n"))
            fence = ""
        elif fence:
            lines.append(line[min(indent, len(line) - len(line.lstrip(" \t"))) :])
    if fence:
        found.append((language, "\n".join(lines) + "\n"))
    return found


def _language(named: str) -> str:
    """The language that a fence names: ``python`` of ``Python``, ``python3.11``, ``{.python}`` or ``python:main.py``."""
    return re.match(r"[{.]*([a-z]*[0-9]?)", named.lower())[1]  # type: ignore[index]


def extract_program(text: str) -> str | None:
    """The Python program of an answer segment: its last fenced block that says it is Python, else the last one that says nothing.

    None without such a block, or with an empty one. Text without a fence is never taken for a program.
    """
    found = blocks(text)
    for languages in (PYTHON, {""}):
        programs = [content for language, content in found if language in languages and content.strip()]
        if programs:
            return programs[-1]
    return None


def same_output(found: str, expected: str) -> bool:
    """Whether a printed output is the expected one.

    Lines end at line feeds only, whatever else Unicode calls the end of a line. They are compared without white space at either end, and blank
    lines at either end of the output do not count. Words of a line must be equal, or equal as numbers: exactly where a whole number is expected,
    within 1e-6 (relative or absolute) where a fraction is.
    """
    lines, wanted = ([line.strip() for line in text.strip().split("\n")] for text in (found, expected))
    return len(lines) == len(wanted) and all(a == b or _same_words(_SPACE.split(a), _SPACE.split(b)) for a, b in zip(lines, wanted, strict=True))


def _same_words(found: list[str], expected: list[str]) -> bool:
    return len(found) == len(expected) and all(a == b or _same_number(a, b) for a, b in zip(found, expected, strict=True))


def _same_number(found: str, expected: str) -> bool:
    if not (_NUMBER.fullmatch(found) and _NUMBER.fullmatch(expected)):
        return False
    if _WHOLE.fullmatch(expected):
        return Decimal(found) == Decimal(expected)
    return math.isclose(float(found), float(expected), rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def same_value(found: Any, expected: Any) -> bool:
    """Whether a JSON value is the expected one: equal, and within 1e-6 (relative or absolute) where a fraction is expected."""
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(same_value, found, expected))
    if isinstance(expected, dict):
        return isinstance(found, dict) and found.keys() == expected.keys() and all(same_value(found[key], expected[key]) for key in expected)
    if isinstance(expected, float) and isinstance(found, int | float):
        return math.isclose(found, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(found == expected)


def _passes(test: Mapping[str, Any], output: str) -> bool:
    if test["kind"] == "stdin":
        return same_output(output, test["expected"])
    try:
        return same_value(json.loads(output, parse_int=_whole), json.loads(test["expected"], parse_int=_whole))
    except (ValueError, RecursionError, OverflowError):  # OverflowError: a whole number beyond any fraction
        return False


def _whole(digits: str) -> int | Decimal:
    """A whole number of JSON. Python would refuse one of 5,000 digits, and take minutes for millions, which a program may print."""
    return int(digits) if len(digits) <= _LONGEST else Decimal(digits)


def fault_of(program: str, tests: Sequence[Mapping[str, Any]], limits: Limits | None = None, kind: str = "bubblewrap") -> str | None:
    """Why a program fails its tests: the first one that it fails, and how. None if it passes all.

    Parameters
    ----------
    program
        Python source.
    tests
        Rows of the tests table (:class:`midtrace.tables.ItemTests`) of one item, at least one.
    limits, kind
        See :func:`midtrace.grading.sandbox.run`.

    Raises
    ------
    InputError
        Without tests, which any program would pass.
    """
    if not tests:
        raise InputError("tests", "rows", "none for this item: every program would be right", "at least 1 test per item")
    limits = limits or Limits()
    deadline = time.monotonic() + limits.total_seconds
    for number, test in enumerate(tests, 1):
        done = sandbox.run(program, test["input"], limits, kind, test["function"] if test["kind"] == "call" else None)
        if done.problem:
            return f"test {number} of {len(tests)}: {done.problem}"
        if not _passes(test, done.stdout):
            return f"test {number} of {len(tests)}: wrong {'output' if test['kind'] == 'stdin' else 'value'}"
        if time.monotonic() > deadline and number < len(tests):
            return f"total time limit of {limits.total_seconds} s after test {number} of {len(tests)}"
    return None


def grade_code(text: str, tests: Sequence[Mapping[str, Any]], limits: Limits | None = None, kind: str = "bubblewrap") -> bool:
    """Whether an answer segment holds a program that passes all tests; see :func:`extract_program` and :func:`fault_of`."""
    program = extract_program(text)
    return program is not None and fault_of(program, tests, limits, kind) is None


def grade_programs(
    answers: Sequence[tuple[str, str]], tests_of: Callable[[str], Sequence[Mapping[str, Any]]], limits: Limits, kind: str, workers: int
) -> list[tuple[str | None, bool, str | None]]:
    """Grade many answers, several at a time.

    Parameters
    ----------
    answers
        Pairs of an answer segment and the id of its item; those of one item should stand together.
    tests_of
        From an item to its tests. It is asked again for an item that comes back later: at most ``workers`` items' tests are held.
    limits, kind
        See :func:`midtrace.grading.sandbox.run`.
    workers
        Programs at a time. A machine resource: it decides no grade.

    Returns
    -------
    list
        For each answer: the program (None: unparsed), whether it is right, and why not (None: it is right).

    Raises
    ------
    InputError
        If this machine cannot isolate programs, see :func:`midtrace.grading.sandbox.check`; or for an item without tests.
    """
    sandbox.check(kind)
    if kind == "none":
        print("code.sandbox is none: these programs are not isolated, they reach the network and your files", file=sys.stderr)
    workers = max(1, workers)
    held = lru_cache(maxsize=workers)(tests_of)
    bar = Progress("programs", len(answers), "program")

    def grade(answer: tuple[str, str]) -> tuple[str | None, bool, str | None]:
        program = extract_program(answer[0])
        fault = UNPARSED if program is None else fault_of(program, held(answer[1]), limits, kind)
        return program, fault is None, fault

    found = []
    with ThreadPoolExecutor(workers) as pool:
        for one in pool.map(grade, answers):
            found.append(one)
            bar.add(1)
    bar.close()
    return found
