"""Free-form mathematical answers: what a text states, and whether it equals the gold one."""

import re
import threading

COMPARISON_SECONDS = 5
_EMPTY = re.compile(r"\W*(?:(?:final\s+)?answer)?\W*", re.IGNORECASE)


def boxed(text: str) -> list[str]:
    """The contents of all ``\\boxed{}`` of a text, with braces up to two deep inside."""
    return re.findall(r"\\boxed\s*\{((?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+)\}", text)


def parse_math(text: str) -> str | None:
    """The free-form answer that a text states.

    It is the last ``\\boxed{}``, else what follows the last ``answer is`` or ``Answer:``, else the last line.
    """
    stated = re.findall(r"\banswer\b[\s*_`]*+(?:is\b|[:=])[\s*_`:=]*+(.+)", text, flags=re.IGNORECASE)
    lines = [line for line in text.splitlines() if not _EMPTY.fullmatch(line)]
    for candidates in (boxed(text), stated, lines):
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
