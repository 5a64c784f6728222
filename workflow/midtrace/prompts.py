"""Prompts: an item under an arm, as token ids. Pure: the same item, arm and vocabulary give the same ids."""

import re
import string
from collections.abc import Mapping
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


def system_text(arm: Mapping[str, Any], dialect: Dialect, benchmark: Mapping[str, Any] | None = None) -> str:
    """The instructions of an arm: the benchmark's ``system``, its own, and, where the dialect sets an effort there, the line that sets it.

    Raises
    ------
    InputError
        For an effort that the dialect does not know, or none where it needs one.
    """
    parts = [text for text in ((benchmark or {}).get("system"), arm.get("system")) if text]
    effort = arm.get("effort")
    if (effort or dialect.needs_effort) and effort not in dialect.efforts:
        raise InputError("config", "arms.*.effort", f"{effort!r} is not an effort of dialect {dialect.name!r}", dialect.efforts)
    if effort and dialect.effort_system:
        parts.append(dialect.effort_system.format(effort=effort))
    return "\n".join(parts)


def render(item: Mapping[str, Any], arm: Mapping[str, Any], benchmark: Mapping[str, Any], dialect: Dialect, tokenizer: Any) -> list[int]:
    """Prompt token ids up to where the model's output starts.

    Text of the item and the arm is encoded apart from the turn markers, as ordinary text, so that a question that spells a control token
    cannot break out of its turn.

    Parameters
    ----------
    item, arm, benchmark
        See :func:`user_text`; ``system`` and ``effort`` of the arm and ``system`` and ``date`` of the benchmark settings are used too.
    dialect, tokenizer
        How the model is spoken to, and its vocabulary.
    """
    return [
        *head_ids(arm, benchmark, dialect, tokenizer),
        *turn_ids(dialect.user, user_text(item, arm, benchmark), tokenizer),
        *tokenizer.encode(dialect.assistant, add_special_tokens=False),
    ]


def head_ids(arm: Mapping[str, Any], benchmark: Mapping[str, Any], dialect: Dialect, tokenizer: Any) -> list[int]:
    """Ids of a prompt up to its user turn: preamble and system message; see :func:`render`."""
    system = system_text(arm, dialect, benchmark)
    date = f"\nCurrent date: {benchmark['date']}" if benchmark.get("date") else ""
    preamble = dialect.preamble.replace("{date}", date).replace("{effort}", arm.get("effort") or "")
    ids: list[int] = tokenizer.encode(preamble, add_special_tokens=False)
    if system or dialect.standing:
        own = dialect.standing + "\n\n" if dialect.standing and system else dialect.standing
        ids += turn_ids(dialect.system.replace("{text}", own + "{text}"), system, tokenizer)
    return ids


def turn_ids(template: str, text: str, tokenizer: Any) -> list[int]:
    """Ids of a turn: its template's markers, around ordinary text."""
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


def closing_ids(dialect: Dialect, stem: str, tokenizer: Any, notice: str = "") -> list[int]:
    """Ids of the forced close, with what is said before it, and of the answer stem: each tokenised on its own and pinned.

    Parameters
    ----------
    dialect, tokenizer
        How the model closes its reasoning, and its vocabulary.
    stem
        What the answer starts with; empty for none.
    notice
        What is said before the close: ordinary text, whatever it spells.
    """
    before, marker, after = dialect.closing.partition(dialect.closing_marker)
    return [
        *plain_ids(notice + before, tokenizer),
        *tokenizer.encode(marker + after, add_special_tokens=False),
        *tokenizer.encode(stem, add_special_tokens=False),
    ]
