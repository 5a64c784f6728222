"""What makes a sentence an answer statement: it asserts an answer, rather than asks, supposes or denies one."""

import re
from typing import NamedTuple

BEFORE = 300  # characters before a match that are looked at
NOUN = r"(?:answer|ans|choice|option|letter)"
SURELY = r"(?:(?:therefore|thus|hence|then|clearly|indeed|actually|definitely|simply|most|likely|probably|still)\b[\s,]*+)*+"
IS = rf"(?:(?:is|(?:must|should|would|will)\s+be)\b[\s,]*+{SURELY}|[:=]|[-\u2013\u2014]\s)[\s*_`:=]*+"
# A heading "Final answer", alone on its line.
HEADING = r"^[^\w\n]*+(?:(?:final|correct|the)[^\S\n]+){0,4}+answer[^\w\n]*+\n"
# What makes a statement no assertion: before it in its clause, and right before its noun.
_UNASSERTED = re.compile(r"\b(?:if|whether|unless|suppose|assume|assuming|not|never|cannot)\b|n't", re.IGNORECASE)
_CLAUSE = re.compile(r"[.!?\n;:,]|\b(?:but|so|then)\b", re.IGNORECASE)
_DISOWNED = re.compile(r"\b(?:wrong|incorrect|false|bad|worst|initial|previous|earlier|first|tempting|other)[^\S\n]+[*_`\"']*$", re.IGNORECASE)
# "If the ball were heavier, the answer would be B": said of another case, however many commas stand between.
_SENTENCE = re.compile(r"[.!?](?=\s)|[\n;]")
_OTHER_CASE = re.compile(r"\b(?:if|unless|suppos(?:e|ing)|assum(?:e|ing)|were|had)\b", re.IGNORECASE)
_WOULD = re.compile(r"\b(?:would|could|might)\b", re.IGNORECASE)
ASKED = re.compile(r"[)\]}*_`\"'$\\]*+\?")


class Reading(NamedTuple):
    """The answer that a text states (None: none), and whether an answer statement says so; if not, a rule of last resort found it, or nothing did."""

    answer: str | None
    stated: bool


def is_asserted(text: str, start: int, end: int, boxed: bool = False) -> bool:
    """Whether a statement (or box) that begins at ``start`` and whose answer ends at ``end`` says that this is the answer."""
    before = text[max(0, start - BEFORE) : start]
    if is_of_another_case(text, start, start if boxed else end):
        return False
    return not (_UNASSERTED.search(_CLAUSE.split(before)[-1]) or _DISOWNED.search(before) or ASKED.match(text, end))


def is_of_another_case(text: str, start: int, end: int) -> bool:
    """Whether a statement says what the answer would be, in a sentence that supposes another case; of a box only what stands before it counts."""
    sentence = _SENTENCE.split(text[max(0, start - BEFORE) : start])[-1] + _SENTENCE.split(text[start:end])[0]
    return bool(_OTHER_CASE.search(sentence) and _WOULD.search(sentence))
