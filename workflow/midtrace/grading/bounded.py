"""Answers of models that repeat themselves: bounded before they are searched."""

import re

LONGEST = 20_000  # characters of an answer segment that are searched for its last statement


def bounded(text: str) -> str:
    """The end of a text, at most 20,000 characters, with runs of one sign cut to 40: searching the whole of a loop would take minutes.

    Braces stay: what they hold is found by counting them.
    """
    return re.sub(r"([^\w{}])\1{40,}", lambda run: 40 * run[1], text[-LONGEST:])
