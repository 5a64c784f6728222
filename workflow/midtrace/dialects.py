"""Dialects: how a model family marks its reasoning, closes it, and starts its answer. One record each.

Outputs are split by token ids. The words of a marker spelled with ordinary tokens are not a marker.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from midtrace.errors import InputError


@dataclass(frozen=True)
class Dialect:
    """The strings of a dialect; each is tokenised once, on its own.

    Attributes
    ----------
    opening, closing_marker
        Markers of the reasoning block, one token each.
    opening_in_prompt
        Whether the prompt already ends with the opening marker (then ``reasoning_start`` is 0).
    closing
        What closes the reasoning at a cut, from inside of it, up to where the answer starts.
    stop
        Tokens that end the output.
    system, user, assistant
        Turn templates with ``{text}``; ``assistant`` opens the turn that the model fills.
    efforts, effort_system
        Trained effort levels and the system line that sets one (empty: the dialect has none).
    """

    name: str
    opening: str
    closing_marker: str
    closing: str
    stop: tuple[str, ...]
    system: str
    user: str
    assistant: str
    opening_in_prompt: bool = False
    efforts: tuple[str, ...] = ()
    effort_system: str = ""


QWEN3 = Dialect(
    name="qwen3",
    opening="<think>",
    closing_marker="</think>",
    closing="\n</think>\n\n",
    stop=("<|im_end|>",),
    system="<|im_start|>system\n{text}<|im_end|>\n",
    user="<|im_start|>user\n{text}<|im_end|>\n",
    assistant="<|im_start|>assistant\n",
)
EMBEDDED = replace(QWEN3, name="embedded", efforts=("low", "medium", "high"), effort_system="Reasoning: {effort}")

DIALECTS = {dialect.name: dialect for dialect in (QWEN3, EMBEDDED)}


def get(name: str) -> Dialect:
    """The record of a dialect.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    if name not in DIALECTS:
        raise InputError("config", "dialect", f"{name!r} is unknown", DIALECTS)
    return DIALECTS[name]


@dataclass(frozen=True)
class Reasoning:
    """An output split by ids: ``output_ids[start : start + n_reasoning]`` is the reasoning."""

    start: int
    n_reasoning: int
    status: str
    answer_ids: list[int] = field(default_factory=list)
    problem: str | None = None


def token_id(tokenizer: Any, text: str) -> int:
    """The id of a marker that must be one token."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    if len(ids) != 1:
        raise InputError(
            "tokenizer", f"marker {text!r}", f"is {len(ids)} tokens in this vocabulary", "exactly 1 token: choose the model's own dialect"
        )
    return ids[0]


def stop_ids(tokenizer: Any, dialect: Dialect) -> list[int]:
    """Ids that end the output."""
    return [token_id(tokenizer, text) for text in dialect.stop]


def split(output_ids: Sequence[int], tokenizer: Any, dialect: Dialect | str) -> Reasoning:
    """Split output ids into reasoning and answer.

    Parameters
    ----------
    output_ids
        Ids as sampled.
    tokenizer
        A Transformers tokenizer.
    dialect
        A record or its name.

    Returns
    -------
    Reasoning
        ``terminated`` if the closing marker was emitted, ``truncated`` if the output ended inside the reasoning, ``malformed`` (with the
        problem named) if the markers are not opening, closing, each once. The answer ids exclude the closing marker and the stop token.
    """
    dialect = get(dialect) if isinstance(dialect, str) else dialect
    opening, closing = token_id(tokenizer, dialect.opening), token_id(tokenizer, dialect.closing_marker)
    stops = set(stop_ids(tokenizer, dialect))
    ids = list(output_ids)
    start, problem = 0, None
    if not dialect.opening_in_prompt:
        if ids and ids[0] == opening:
            start = 1
        else:
            problem = "the output does not begin with the opening marker"
    elif ids and ids[0] == opening:
        start, problem = 1, "the opening marker stands in the prompt and again in the output"
    body = ids[start:]
    closed = closing in body
    n_reasoning = body.index(closing) if closed else len(body)
    answer = body[n_reasoning + 1 :] if closed else []
    if not closed and body and body[-1] in stops:
        n_reasoning -= 1
        problem = problem or "the output stopped inside the reasoning"
    if answer and answer[-1] in stops:
        answer = answer[:-1]
    if problem is None and opening in body:
        problem = "a second opening marker"
    if problem is None and closing in answer:
        problem = "a second closing marker"
    status = "malformed" if problem else "terminated" if closed else "truncated"
    return Reasoning(start, n_reasoning, status, answer, problem)
