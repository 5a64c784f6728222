"""Grading: from the text of an answer to right or wrong. Never a guess: what cannot be read is None."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_LABEL = r"[\(\[\{\*_`\"'$\s]*(?:\\(?:text|mathrm|mathbf|textbf)\{)?[\(\[\{\*_`\"'$\s]*([A-Za-z])(?![A-Za-z0-9'])"
_STATEMENTS = (
    re.compile(r"\\boxed\s*\{" + _LABEL),
    re.compile(r"\"answer\"\s*:\s*\"?" + _LABEL, re.IGNORECASE),
    re.compile(r"(?:final\s+)?\b(?:answer|choice)\b[\s\*_`]*(?:is|:|=)+[\s\*_`:]*(?:option|choice|letter)?" + _LABEL, re.IGNORECASE),
    re.compile(r"\b(?:option|choice)\b" + _LABEL + r"(?=[\s\)\]\}\*_`\"'.,;:]|$)", re.IGNORECASE),
)
_ALONE = re.compile(r"^[\(\[\*_`\"'$\s]*(?:\\boxed\{)?([A-Za-z])[\)\]\}\*_`\"'$\s]*[.:,]?[\*_`\s]*$")


def parse_choice(text: str, labels: Sequence[str]) -> str | None:
    """The option that an answer states.

    Parameters
    ----------
    text
        Text of the answer segment (never of the reasoning).
    labels
        Labels that the item has.

    Returns
    -------
    str or None
        The label of the last explicit statement (``Answer: C``, ``\\boxed{C}``, ``option C``, a JSON ``answer``), or the label that
        stands alone on the last line; None if there is none or it is not one of ``labels``.
    """
    labels = list(labels)
    found = [(match.start(1), match.group(1)) for pattern in _STATEMENTS for match in pattern.finditer(text)]
    # The article "a" and the pronoun "I" are not answers: lower case counts only where nothing else follows it.
    found = [(at, label) for at, label in found if label.isupper() or not re.match(r"\s+[A-Za-z]", text[at + 1 :])]
    found = [(at, label) for at, label in found if label not in "AI" or not re.match(r"\s+[a-z]", text[at + 1 :])]
    if found:
        label = max(found)[1].upper()
        return label if label in labels else None
    lines = [line for line in text.strip().splitlines() if line.strip()]
    alone = _ALONE.match(lines[-1]) if lines else None
    label = alone.group(1).upper() if alone else None
    return label if label in labels else None


def parse_math(text: str) -> str | None:
    """The free-form answer that a text states: what follows the last ``Answer:``, the last ``\\boxed{}``, or the last line."""
    boxed = re.findall(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}", text)
    stated = re.findall(r"answer(?:\s+is)?\s*[:=]?\s*(.+)", text, flags=re.IGNORECASE)
    lines = [line for line in text.strip().splitlines() if line.strip()]
    for candidates in (boxed, stated, lines):
        if candidates:
            return candidates[-1].strip().rstrip(".").strip() or None
    return None


def grade_math(text: str, gold: str) -> bool:
    """Whether a free-form answer equals the gold one, by math-verify (gold first: its comparison is not symmetric)."""
    from math_verify import parse, verify

    # The time-outs of math-verify use signals, which break outside the main thread; answers here are short.
    return bool(verify(parse(f"${gold}$", parsing_timeout=None), parse(f"${text}$", parsing_timeout=None), timeout_seconds=None))


def grade(text: str, item: Mapping[str, Any], labels: Sequence[str]) -> tuple[str | None, bool]:
    """Parse and grade the answer text of an item.

    Returns
    -------
    tuple
        The parsed answer (None: unparsed) and whether it is right (unparsed is wrong).
    """
    if item["answer_kind"] == "choice":
        answer = parse_choice(text, labels)
        return answer, answer == item["answer"]
    answer = parse_math(text)
    return answer, answer is not None and grade_math(answer, item["answer"])
