"""Benchmarks of free-form mathematical answers."""

import re
from typing import Any

from midtrace import expressions
from midtrace.latex import boxes
from midtrace.loaders.loader import ID, TEXT, Loader, Row, Settings, UnusableError, text, written

AIME_ANSWERS = range(1000)


def gold_after_hashes(solution: str) -> str:
    """The gold of a GSM8K solution: the number after ``####``; a plain one without separators, any other (``3/4``, ``50%``) as it is written."""
    _, found, gold = solution.rpartition("####")
    gold = gold.strip()
    if not found:
        raise UnusableError("no gold answer after ####")
    if expressions.number(gold) is None:
        raise UnusableError("the gold answer is no number")
    plain = gold.replace(",", "").removeprefix("$")
    return plain if re.fullmatch(r"-?\d+(\.\d+)?", plain) else gold


def gold_of_aime(answer: str) -> str:
    """The gold of an AIME problem: a whole number from 0 to 999, without leading zeros and unit (``336^\\circ`` is 336)."""
    number = expressions.number(answer)
    if number is None or number.percent or number.value.denominator != 1 or number.value not in AIME_ANSWERS:
        raise UnusableError("the gold answer is no whole number from 0 to 999")
    return str(number.value)


def gold_in_box(solution: str) -> str:
    """The content of the last ``\\boxed{}`` of a solution. One that is never closed is no gold, and neither is an intermediate one before it."""
    last = boxes(solution)[-1:]
    if not last or not last[0].content or not last[0].content.strip():
        raise UnusableError("no gold answer in \\boxed{}")
    return last[0].content.strip()


GSM8K = Loader(
    name="gsm8k",
    answer_kinds=("math",),
    item=lambda row, settings: {"question": text(row, "question"), "answer": gold_after_hashes(text(row, "answer"))},
    columns=lambda settings: {"question": TEXT, "answer": TEXT},
    address="hf://datasets/openai/gsm8k/main/test-00000-of-00001.parquet",
)

MATH_500 = Loader(
    name="math_500",
    answer_kinds=("math",),
    item=lambda row, settings: {"question": text(row, "problem"), "answer": text(row, "answer")},
    columns=lambda settings: {"unique_id": TEXT, "problem": TEXT, "answer": TEXT, "subject": TEXT},
    id_column=lambda settings: "unique_id",
    stratum=lambda row, settings: row["subject"] or "none",
    address="hf://datasets/HuggingFaceH4/MATH-500/test.jsonl",
)

AIME_2024 = Loader(
    name="aime_2024",
    answer_kinds=("math",),
    item=lambda row, settings: {"question": text(row, "problem"), "answer": gold_of_aime(gold_in_box(text(row, "solution")))},
    columns=lambda settings: {"id": ID, "problem": TEXT, "solution": TEXT},
    id_column=lambda settings: "id",
    address="hf://datasets/math-ai/aime24/test-00000-of-00001.parquet",
)


def _aime_2025(row: Row, settings: Settings) -> dict[str, Any]:
    if row["answer"] is None:
        raise UnusableError("no answer")
    return {"question": text(row, "problem"), "answer": gold_of_aime(written(row["answer"]))}


AIME_2025 = Loader(
    name="aime_2025",
    answer_kinds=("math",),
    item=_aime_2025,
    columns=lambda settings: {"id": ID, "problem": TEXT, "answer": ID},
    id_column=lambda settings: "id",
    address="hf://datasets/math-ai/aime25/test.jsonl",
)


def _omni_math(row: Row, settings: Settings) -> dict[str, Any]:
    return {"question": text(row, "problem"), "answer": text(row, "answer")}


def _omni_math_2(row: Row, settings: Settings) -> dict[str, Any]:
    tags = row["tags"] or []
    tags = [tags] if isinstance(tags, str) else [tag for tag in tags if tag]
    if any(tag.strip() for tag in tags):
        raise UnusableError(f"tagged {', '.join(sorted(tag.strip() for tag in tags))}")
    return _omni_math(row, settings)


def _field(row: Row, settings: Settings) -> str:
    """The field of mathematics: the first step below ``Mathematics`` of the first domain, such as ``Algebra``."""
    domain = row["domain"] or []
    first = domain if isinstance(domain, str) else next(iter(domain), None) or ""
    steps = [step.strip() for step in first.split("->")]
    return next((step for step in steps if step and step != "Mathematics"), "none")


OMNI_MATH = Loader(
    name="omni_math",
    answer_kinds=("math",),
    item=_omni_math,
    columns=lambda settings: {"problem": TEXT, "answer": TEXT, "domain": ()},
    question_column="problem",
    stratum=_field,
    address="hf://datasets/KbsdJames/Omni-MATH/test.jsonl",
)

OMNI_MATH_2 = Loader(
    name="omni_math_2",
    answer_kinds=("math",),
    item=_omni_math_2,
    columns=lambda settings: {"problem": TEXT, "answer": TEXT, "domain": (), "tags": ()},
    question_column="problem",
    stratum=_field,
    address="hf://datasets/martheballon/Omni-MATH-2/Omni-Math-2.jsonl",
)
