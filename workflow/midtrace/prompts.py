"""Prompts: an item under an arm, as token ids. Pure: the same item, arm and vocabulary give the same ids."""

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

from midtrace.dialects import Dialect
from midtrace.errors import InputError


def labels(n: int) -> list[str]:
    """The first ``n`` option letters."""
    return list(string.ascii_uppercase[:n])


def user_text(item: Mapping[str, Any], arm: Mapping[str, Any], benchmark: Mapping[str, Any]) -> str:
    """The user message: the benchmark's template filled, then the arm's suffix on a line of its own.

    Parameters
    ----------
    item
        A row of the items table.
    arm
        Arm settings; ``suffix`` is used.
    benchmark
        Benchmark settings; ``template`` (with ``{question}`` and ``{options}``) and ``option`` (``{label}``, ``{text}``) are used.
    """
    options = "\n".join(
        benchmark["option"].replace("{label}", label).replace("{text}", text)
        for label, text in zip(labels(len(item["options"])), item["options"], strict=True)
    )
    parts = benchmark["template"].split("{question}")
    text = item["question"].join(part.replace("{options}", options) for part in parts).strip()
    return f"{text}\n{arm['suffix']}" if arm.get("suffix") else text


def system_text(arm: Mapping[str, Any], dialect: Dialect) -> str:
    """The system message: the arm's own text and the line that sets its effort."""
    parts = [arm["system"]] if arm.get("system") else []
    effort = arm.get("effort")
    if effort:
        if effort not in dialect.efforts:
            raise InputError("config", "arms.*.effort", f"{effort!r} is not an effort of dialect {dialect.name!r}", dialect.efforts)
        parts.append(dialect.effort_system.format(effort=effort))
    return "\n".join(parts)


def render(item: Mapping[str, Any], arm: Mapping[str, Any], benchmark: Mapping[str, Any], dialect: Dialect, tokenizer: Any) -> list[int]:
    """Prompt token ids up to where the model's output starts.

    Text of the item and the arm is encoded apart from the turn markers, as ordinary text, so that a question that spells a control token
    cannot break out of its turn.
    """
    ids: list[int] = []
    system = system_text(arm, dialect)
    if system:
        ids += _turn(dialect.system, system, tokenizer)
    ids += _turn(dialect.user, user_text(item, arm, benchmark), tokenizer)
    ids += tokenizer.encode(dialect.assistant + (dialect.opening if dialect.opening_in_prompt else ""), add_special_tokens=False)
    return ids


def _turn(template: str, text: str, tokenizer: Any) -> list[int]:
    before, after = template.split("{text}")
    return [
        *tokenizer.encode(before, add_special_tokens=False),
        *plain_ids(text, tokenizer),
        *tokenizer.encode(after, add_special_tokens=False),
    ]


def plain_ids(text: str, tokenizer: Any) -> list[int]:
    """Ids of ordinary text: no part of it becomes a control token, whatever it spells.

    Tokenizers can switch off only what they flag as special, and some leave ``<think>`` unflagged: such a token is encoded in two halves.
    """
    added = [str(token) for token in tokenizer.added_tokens_decoder.values() if len(str(token)) > 1 and str(token) in text]
    if not added:
        return tokenizer.encode(text, add_special_tokens=False)
    halves = re.split("|".join(f"(?<={re.escape(token[0])})(?={re.escape(token[1:])})" for token in added), text)
    return [i for half in halves for i in tokenizer.encode(half, add_special_tokens=False)]


def closing_ids(dialect: Dialect, stem: str, tokenizer: Any) -> list[int]:
    """Ids of the forced close and of the answer stem, each tokenised on its own and pinned."""
    closing: Sequence[int] = tokenizer.encode(dialect.closing, add_special_tokens=False)
    return [*closing, *tokenizer.encode(stem, add_special_tokens=False)]
