"""The interruption updates: problems that were revised, and the update that brings the original back. So the gold is the original's."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from midtrace.latex import boxes
from midtrace.loaders import sources
from midtrace.loaders.live_code_bench import COLUMNS, question, tests_of
from midtrace.loaders.loader import ID, TEXT, Loader, Row, Settings, UnusableError, text
from midtrace.loaders.mathematics import gold_after_hashes, gold_in_box

Key = tuple[str, str, str]
SHARED = {"id": ID, "original_problem": TEXT, "revised_problem": TEXT, "update": TEXT}
MATH = {**SHARED, "source": TEXT, "original_answer": TEXT}
CODE = {**SHARED, **dict.fromkeys(("platform", "contest_id", "difficulty", "question_title", "original_starter_code", "revised_starter_code"), TEXT)}


def gold(answer: str) -> str:
    """The gold in an answer as its source has it: after ``####`` (GSM8K), in ``\\boxed{}`` (AIME 2024), or as it stands."""
    if "####" in answer:
        return gold_after_hashes(answer)
    return gold_in_box(answer) if boxes(answer) else answer


def _item(row: Row, settings: Settings) -> dict[str, Any]:
    item = {"update": text(row, "update"), "stale_answer": None}  # the source does not say what is right without the update
    original, revised = text(row, "original_problem"), text(row, "revised_problem")
    if settings["answer_kind"] == "math":
        return {**item, "question": original, "revised_question": revised, "answer": gold(text(row, "original_answer"))}
    if _key(row) not in _tested(settings["tests"]["path"], settings["tests"]["revision"]):
        raise UnusableError("no tests in the LiveCodeBench files")
    return {
        **item,
        "question": question(original, row["original_starter_code"]),
        "revised_question": question(revised, row["revised_starter_code"]),
        "answer": None,
    }


def _key(row: Row) -> Key:
    """What a problem is called in both sources."""
    return (row["platform"] or "", str(row["contest_id"] or ""), (row["question_title"] or "").strip())


@lru_cache(maxsize=1)
def _tested(path: str, revision: str | None) -> frozenset[Key]:
    """Problems of the LiveCodeBench files that have usable tests."""
    found = set()
    for _, row in sources.json_lines(path, revision, COLUMNS):
        try:
            tests_of(row)
        except UnusableError:
            continue
        found.add(_key(row))
    return frozenset(found)


def _tests(settings: Settings, ids: Iterable[str]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    wanted = set(ids)
    names = {_key(row): INTERRUPT_UPDATES.source_id(row, settings) for _, row in INTERRUPT_UPDATES.rows(settings)}
    for _, row in sources.json_lines(settings["tests"]["path"], settings["tests"]["revision"], COLUMNS):
        if (name := names.get(_key(row))) in wanted:
            wanted.remove(name)
            yield name, tests_of(row)


INTERRUPT_UPDATES = Loader(
    name="interrupt_updates",
    answer_kinds=("math", "code"),
    item=_item,
    columns=lambda settings: MATH if settings["answer_kind"] == "math" else CODE,
    id_column=lambda settings: "id",
    question_column="original_problem",
    stratum=lambda row, settings: row["source" if settings["answer_kind"] == "math" else "difficulty"] or "none",
    address="hf://datasets/dynamic-lm/update-interrupt-benchmark/data_math.parquet (or data_code.parquet)",
    tests=_tests,
    updates=True,
)
