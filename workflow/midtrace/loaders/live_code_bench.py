"""LiveCodeBench (code_generation_lite): programs with tests. Its files have gigabytes, so they are read line by line, twice: items, then tests."""

import base64
import json
import pickletools
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from midtrace.loaders.loader import Loader, Row, Settings, UnusableError, text

SINCE = "2024-10-01"  # the window of the interruption study, releases up to v6
LARGEST = 2**30  # bytes of the tests of one problem, decompressed; the largest in v6 has a tenth of it
KINDS = {"stdin": "stdin", "functional": "call"}
# The opcodes of a pickle that is one string: they call nothing and build nothing else.
STRING = {"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
AROUND = {"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"}


def question(problem: str, starter: str | None) -> str:
    """A problem with what its program must look like: the starter code to complete, or reading and printing."""
    starter = (starter or "").strip()
    if starter:
        return f"{problem}\n\nComplete this code:\n```python\n{starter}\n```"
    return f"{problem}\n\nThe program reads from standard input and prints to standard output."


def string_in_pickle(data: bytes) -> str:
    """The string that a pickle consists of. The pickle is read, never executed: anything but one plain string is refused.

    Raises
    ------
    ValueError
        If the pickle holds anything else, or is none.
    """
    found = None
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in STRING and found is None:
            found = argument
        elif opcode.name not in AROUND:
            raise ValueError("more than a string")
    if found is None:
        raise ValueError("no string")
    return found


def private_tests(encoded: str) -> list[Any]:
    """The private tests of a problem: JSON, or base64 of zlib of a pickled string of JSON.

    Raises
    ------
    UnusableError
        If they are neither.
    """
    try:
        return _listed(json.loads(encoded))
    except (ValueError, RecursionError):
        pass
    try:
        unpacked = zlib.decompressobj()
        data = unpacked.decompress(base64.b64decode(encoded, validate=True), LARGEST)
        if unpacked.unconsumed_tail or not unpacked.eof:
            raise ValueError("too large or cut off")
        return _listed(json.loads(string_in_pickle(data)))
    except (ValueError, RecursionError, zlib.error):  # base64 raises a ValueError of its own
        raise UnusableError("its private tests cannot be decoded") from None


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("no list")
    return value


def tests_of(row: Row) -> list[dict[str, Any]]:
    """The tests of a problem, public ones first: ``test_id``, ``kind``, ``function``, ``input``, ``expected``.

    Raises
    ------
    UnusableError
        If there are none, or one cannot be used.
    """
    try:
        public, function = _listed(json.loads(row["public_test_cases"])), json.loads(row["metadata"] or "{}").get("func_name")
    except (ValueError, AttributeError, RecursionError):
        raise UnusableError("its public tests or metadata are no JSON") from None
    found = []
    for number, test in enumerate([*public, *private_tests(row["private_test_cases"])]):
        try:
            kind, given, expected = KINDS[test["testtype"]], test["input"], test["output"]
        except (KeyError, TypeError):
            raise UnusableError("a test of another form") from None
        if not (isinstance(given, str) and isinstance(expected, str)):
            raise UnusableError("a test of another form")
        if kind == "call" and not (isinstance(function, str) and function.isidentifier()):
            raise UnusableError("a test calls a function that has no name")
        found.append({"test_id": number, "kind": kind, "function": function if kind == "call" else None, "input": given, "expected": expected})
    if not found:
        raise UnusableError("no tests")
    return found


def _item(row: Row, settings: Settings) -> dict[str, Any]:
    tests_of(row)
    return {"question": question(text(row, "question_content"), row["starter_code"]), "answer": None}


def _selects(row: Row, settings: Settings) -> bool:
    day = row["contest_date"][:10]
    return (settings["since"] or SINCE) <= day and (settings["until"] is None or day <= settings["until"])


def _tests(settings: Settings, ids: Iterable[str]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    wanted = set(ids)
    for _, row in LIVE_CODE_BENCH.rows(settings):
        if (name := LIVE_CODE_BENCH.source_id(row, settings)) in wanted:
            yield name, tests_of(row)


COLUMNS: dict[str, tuple] = {
    "question_id": (str, int),
    "question_title": (str,),
    "question_content": (str,),
    "platform": (str,),
    "contest_id": (str, int),
    "contest_date": (str,),
    "starter_code": (str, type(None)),
    "difficulty": (str,),
    "public_test_cases": (str,),
    "private_test_cases": (str,),
    "metadata": (str, type(None)),
}

LIVE_CODE_BENCH = Loader(
    name="livecodebench",
    answer_kinds=("code",),
    item=_item,
    columns=lambda settings: COLUMNS,
    id_column=lambda settings: "question_id",
    question_column="question_content",
    stratum=lambda row, settings: row["difficulty"],
    address="hf://datasets/livecodebench/code_generation_lite/test*.jsonl",
    streamed=True,
    selects=_selects,
    tests=_tests,
)
