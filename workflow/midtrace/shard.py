"""Which rows of a table a job works on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from midtrace.errors import InputError

T = TypeVar("T")


@dataclass(frozen=True)
class Shard:
    """Every ``count``-th row, from row ``index`` on: so that long and short ones spread over all shards."""

    index: int = 0
    count: int = 1

    def of(self, rows: Sequence[T]) -> list[T]:
        """The part of these rows that is this shard's.

        Raises
        ------
        InputError
            If there are fewer rows than shards: one would have nothing to do.
        """
        if self.count > max(1, len(rows)):
            raise InputError("config", "jobs.shards", f"is {self.count}, but there are only {len(rows)} items to share", f"at most {len(rows)}")
        return list(rows[self.index :: self.count])

    def __str__(self) -> str:
        return "" if self.count == 1 else f" (shard {self.index + 1} of {self.count})"


WHOLE = Shard()
