"""Grading: from the text of an answer to right or wrong. Never a guess: what cannot be read is None."""

import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

COMPARISON_SECONDS = 5

# Quoting that may stand before a label, and LaTeX commands around it: "(C", "**C", "\boxed{\text{(C".
# Quantifiers are possessive: an answer of a thousand spaces must not take a minute.
_MARKS = r"(?:[(\[{*_`\"'$\s]|\\(?![a-z]))*+"
_LABEL = rf"{_MARKS}(?:\\[a-z]++\s*+\{{{_MARKS})*+(?:(?:option|choice|letter)\b{_MARKS})?(?P<label>[A-Za-z])(?![A-Za-z0-9]|'[a-z])"
_STATEMENTS = (
    re.compile(rf"\\boxed\s*\{{{_LABEL}", re.IGNORECASE),
    re.compile(rf"[\"'](?:final[_ ])?(?:answer|choice|option)[\"']\s*:{_LABEL}", re.IGNORECASE),
    re.compile(rf"\b(?:answer|choice|option)\b[\s*_`]*+(?:is\b|[:=])[\s*_`:=]*+{_LABEL}", re.IGNORECASE),
)
_MENTION = re.compile(rf"\b(?:option|choice)\b{_LABEL}", re.IGNORECASE)
_ALONE = re.compile(rf"^{_LABEL}[)\]}}*_`\"'$\s\\]*+[.:,]?[*_`\s]*+$", re.IGNORECASE)
_DENIED = re.compile(r"\b(?:not|cannot|no|neither|nor|wrong|incorrect|false|unlike)\b|n't", re.IGNORECASE)
_OTHER = re.compile(r"[^\w\n]*(?:\bor\b|\band\b|/)\s*[(*]*[A-J](?![A-Za-z0-9']|[^\S\n]+[a-z])")
_EMPTY = re.compile(r"\W*(?:(?:final\s+)?answer)?\W*", re.IGNORECASE)
# What may follow a label on its line, where another word makes it the article "a" or the pronoun "I".
_CONNECTIVES = {"and", "as", "because", "but", "due", "for", "since", "which", "with"}


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
        The label of the last explicit statement (``Answer: C``, ``the correct option is C``, ``\\boxed{C}``, a JSON ``answer``); without
        one, the option that is mentioned (``I choose option C``), if it is one only and none is ruled out; without one, the label that
        stands alone on the last line. None if there is none, if two are offered (``B or C``), or if it is not one of ``labels``.
    """
    stated = [match for pattern in _STATEMENTS for match in pattern.finditer(text) if _is_label(text, match)]
    if stated:
        last = max(stated, key=lambda match: match.start("label"))
        label = None if _OTHER.match(text, last.end()) else last["label"].upper()
        return label if label in labels else None
    mentioned = [match for match in _MENTION.finditer(text) if match["label"].isupper()]
    if mentioned:
        denied = any(_DENIED.search(_sentence(text, match)) or _OTHER.match(text, match.end()) for match in mentioned)
        found = {match["label"] for match in mentioned}
        label = found.pop() if len(found) == 1 and not denied else None
        return label if label in labels else None
    lines = [line for line in text.splitlines() if line.strip()]
    alone = _ALONE.match(lines[-1]) if lines else None
    label = alone["label"].upper() if alone else None
    return label if label in labels else None


def _is_label(text: str, match: re.Match[str]) -> bool:
    """Whether the letter is a label and not a word ("a", "I") or a variable."""
    after = text[match.end() :]
    if re.match(r"[^\S\n]*[+=^<>]", after):
        return False
    word = re.match(r"[^\S\n]+([A-Za-z]+)", after)
    if not word or word[1].lower() in _CONNECTIVES or match["label"] in "BCDEFGHJKLMNOPQRSTUVWXYZ":
        return True
    # "The answer is A trivial consequence" is no English, "Answer: A train" is.
    return match["label"] == "A" and re.search(r"\bis\W*$", text[match.start() : match.start("label")]) is not None


def _sentence(text: str, match: re.Match[str]) -> str:
    """The sentence that holds a match (of a very long one, the part around it)."""
    before = re.split(r"[.!?\n]", text[max(0, match.start() - 300) : match.start()])[-1]
    return before + re.split(r"[.!?\n]", text[match.start() : match.start() + 300])[0]


def parse_math(text: str) -> str | None:
    """The free-form answer that a text states.

    It is the last ``\\boxed{}``, else what follows the last ``answer is`` or ``Answer:``, else the last line.
    """
    boxed = re.findall(r"\\boxed\s*\{((?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+)\}", text)
    stated = re.findall(r"\banswer\b[\s*_`]*+(?:is\b|[:=])[\s*_`:=]*+(.+)", text, flags=re.IGNORECASE)
    lines = [line for line in text.splitlines() if not _EMPTY.fullmatch(line)]
    for candidates in (boxed, stated, lines):
        if candidates:
            return candidates[-1].strip().lstrip("*_`").rstrip("*_`.").strip() or None
    return None


def grade_math(text: str, gold: str) -> bool:
    """Whether a free-form answer equals the gold one, by math-verify (gold first: its comparison is not symmetric).

    A comparison that takes longer than a few seconds (``9^{9^{9^9}}``) is not equal. The time-outs of math-verify are signals, which only the
    main thread of a process can have: elsewhere there is none.
    """
    from math_verify import parse, verify

    seconds = COMPARISON_SECONDS if threading.current_thread() is threading.main_thread() else None
    wanted, found = (parse(f"${side}$", parsing_timeout=seconds) for side in (gold, text))
    return bool(verify(wanted, found, timeout_seconds=seconds))


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
