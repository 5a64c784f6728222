"""What the log of another tool holds: runs, items, and samples that are neither, each with a reason."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from midtrace.loaders.sources import decode

Record = Mapping[str, Any]
SHOWN = 5  # samples named where some are left out


class UnusableError(Exception):
    """A sample that holds no run, or no item, with the reason. It never quotes the sample."""


@dataclass(frozen=True)
class Run:
    """A finished run of another tool.

    Attributes
    ----------
    item
        The item's id in its task, or in the study's benchmark, with or without the benchmark's name before it.
    replicate
        0, 1, ...
    finish_reason
        ``stop`` or ``length`` (the token cap).
    text
        The output as text; None if only ids are known. Without ``reasoning`` it holds the reasoning too, between its markers.
    reasoning
        The reasoning as text, where the tool keeps it apart from ``text``.
    output_ids, prompt_ids
        Token ids, where the tool keeps them.
    seed
        The run's own seed, if recorded.
    task
        The task that the item belongs to, where the tool has tasks: ids are unique within one only. Else empty.
    """

    item: str
    replicate: int
    finish_reason: str
    text: str | None = None
    reasoning: str | None = None
    output_ids: tuple[int, ...] | None = None
    prompt_ids: tuple[int, ...] | None = None
    seed: int | None = None
    task: str = ""


@dataclass(frozen=True)
class LeftOut:
    """A sample that was not taken: its name in the log, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Contents:
    """What was read from logs: runs, or records of items, and the samples that are none."""

    taken: list[Any] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)


def qualified(task: str, name: str) -> str:
    """The id of an item across tasks."""
    return f"{task}/{name}" if task else name


def text_of(value: Any, what: str) -> str:
    """A text, or a ValueError that says what is none."""
    if not isinstance(value, str):
        raise ValueError(f"{what} is {type(value).__name__}, not text")
    value.encode()  # half a surrogate pair is no text: UnicodeEncodeError is a ValueError
    return value


def whole(value: Any, what: str) -> int:
    """A whole number, or a ValueError that says what is none."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{what} is {type(value).__name__}, not a whole number")
    return value


def name_of(value: Any, what: str) -> str:
    """An id: a text or a whole number."""
    return text_of(value, what) if isinstance(value, str) else str(whole(value, what))


def summary(left_out: Sequence[LeftOut]) -> str:
    """How many samples were left out, why, and the first of each reason: one line."""
    reasons = Counter(sample.reason for sample in left_out)
    first = {reason: [sample.name for sample in left_out if sample.reason == reason][:SHOWN] for reason in reasons}
    said = [f"{count} {reason} ({', '.join(first[reason])}{', ...' if count > SHOWN else ''})" for reason, count in reasons.most_common()]
    return f"{len(left_out)} samples left out: " + "; ".join(said)


def lines(path: Path) -> Iterator[tuple[int, Record]]:
    """The objects of a JSON Lines file with their numbers, from 1.

    Raises
    ------
    ValueError
        If a line is no JSON object.
    """
    with path.open("rb") as handle:
        for number, line in enumerate((line for line in handle if line.strip()), 1):
            try:
                record = decode(line)
            except (ValueError, RecursionError):
                record = None
            if not isinstance(record, dict):
                raise ValueError(f"record {number} is no JSON object")
            yield number, record
