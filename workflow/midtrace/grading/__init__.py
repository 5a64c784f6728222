"""Grading: from the text of an answer to right or wrong. Never a guess: what cannot be read is None."""

from collections.abc import Mapping, Sequence
from typing import Any

from midtrace.errors import InputError
from midtrace.grading.choice import parse_choice
from midtrace.grading.free_form import grade_math, parse_math

__all__ = ["grade", "grade_math", "parse_choice", "parse_math"]


def grade(text: str, item: Mapping[str, Any], labels: Sequence[str]) -> tuple[str | None, bool]:
    """Parse and grade the answer text of an item.

    Returns
    -------
    tuple
        The parsed answer (None: unparsed) and whether it is right (unparsed is wrong).
    """
    if item["answer"] is None and item["answer_kind"] != "code":
        raise InputError(f"item {item['item_id']}", "answer", "is unknown, so nothing can be graded against it", "an item with an answer")
    if item["answer_kind"] == "choice":
        answer = parse_choice(text, labels)
        return answer, answer == item["answer"]
    answer = parse_math(text)
    return answer, answer is not None and grade_math(answer, item["answer"])
