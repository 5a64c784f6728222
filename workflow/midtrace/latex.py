"""What is read of LaTeX, in gold answers as in those of models."""

import re


def boxed(text: str) -> list[str]:
    """The contents of all ``\\boxed{}`` of a text, with braces up to two deep inside."""
    return re.findall(r"\\boxed\s*\{((?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+)\}", text)
