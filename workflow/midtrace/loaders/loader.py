"""What a loader is: how the rows of a source become items, and which of them cannot."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from midtrace.loaders import sources

Settings = Mapping[str, Any]
Row = Mapping[str, Any]

TEXT = (pl.String,)
TEXTS = (pl.List(pl.String),)
NUMBER = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
ID = (*TEXT, *NUMBER)


class UnusableError(Exception):
    """A row that is no item, with the reason. It never quotes the row."""


@dataclass(frozen=True)
class Loader:
    """A source of items.

    Attributes
    ----------
    name
        What a config calls it.
    answer_kinds
        Answer kinds that its items may have.
    item
        Makes an item of a row and the benchmark's settings: ``question``, ``answer`` and, where it has them, ``options``,
        ``revised_question``, ``update``, ``stale_answer``. Raises :class:`UnusableError`. A choice's answer is a label of its options as they stand.
    columns
        Columns that the source must have, with the types allowed (of polars; of Python where it is streamed; none: any type).
    id_column
        The column of the source's own id; None where it has none: the id is then a hash of the question, so it does not hang on the place
        of a row.
    question_column
        The column that such a hash is taken of.
    stratum
        The stratum of a row.
    address
        Where the source is published, for messages; empty where there is none.
    streamed
        Whether the source is too large for memory: JSON Lines, one line at a time.
    selects
        Whether a row is in the part of the source that the settings ask for.
    finish
        Changes the items of all rows, where that needs all of them.
    tests
        The tests of these items, by id of the source, as frames of :class:`midtrace.tables.ItemTests` without ``item_id``.
    shuffled
        Whether options must be put in another order: the source lists the right one first.
    repeats
        Whether options may repeat a text.
    updates
        Whether its items may have updates.
    generate
        For a loader without source: all its items, as rows of the items table.
    """

    name: str
    answer_kinds: tuple[str, ...]
    item: Callable[[Row, Settings], dict[str, Any]] | None = None
    columns: Callable[[Settings], Mapping[str, tuple]] = lambda settings: {}
    id_column: Callable[[Settings], str | None] = lambda settings: None
    question_column: str = "question"
    stratum: Callable[[Row, Settings], str] = lambda row, settings: "all"
    address: str = ""
    streamed: bool = False
    selects: Callable[[Row, Settings], bool] = lambda row, settings: True
    finish: Callable[[list[dict[str, Any]], Settings], None] = lambda items, settings: None
    tests: Callable[[Settings, Iterable[str]], Iterator[tuple[str, list[dict[str, Any]]]]] | None = None
    shuffled: bool = False
    repeats: bool = False
    updates: bool = False
    generate: Callable[[Settings, int], list[dict[str, Any]]] | None = None

    def rows(self, settings: Settings) -> Iterator[tuple[int, Row]]:
        """The rows of the source that the settings ask for, each with its number, from 1."""
        read = sources.json_lines if self.streamed else sources.rows
        for number, row in read(settings["path"], settings["revision"], self.columns(settings)):
            if self.selects(row, settings):
                yield number, row

    def source_id(self, row: Row, settings: Settings) -> str:
        """The id of a row within its source; empty where it should have one and has none."""
        column = self.id_column(settings)
        if column is not None:
            return written(row[column])
        return hashlib.sha256((row[self.question_column] or "").strip().encode()).hexdigest()[:12]


def written(value: Any) -> str:
    """A value of a source as it was written there; empty for null."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value).strip()


def text(row: Row, column: str) -> str:
    """The text in a column.

    Raises
    ------
    UnusableError
        If there is none.
    """
    found = (row[column] or "").strip()
    if not found:
        raise UnusableError(f"no {column}")
    return found
