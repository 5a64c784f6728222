"""What a table is about, and where it is: the one place that knows how paths of the stages are made and read (contract)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from midtrace.errors import InputError

RUN = "{model}/{benchmark}/{arm}/r{replicate}"
REPLICATE = re.compile(r"r\d+")


@dataclass(frozen=True)
class TableKey:
    """The names of a table of runs, in the order in which its path has them and settings functions take them.

    Attributes
    ----------
    model, benchmark, arm, replicate
        Whose runs the table holds; ``benchmark`` may be a revised view.
    intervention
        For tables of the interruption study; else None.
    """

    model: str
    benchmark: str
    arm: str
    replicate: int
    intervention: str | None = None

    def __iter__(self) -> Iterator[str | int]:
        """The names in order, as ``settings(config, *key)`` takes them: five for a table of interruptions, else four."""
        yield from (self.model, self.benchmark, self.arm, self.replicate)
        if self.intervention is not None:
            yield self.intervention

    def path(self, folder: str) -> str:
        """The table's file in the folder of a stage, such as ``results/demo/raw/traces``."""
        names = RUN.format(**vars(self)) + (f"/{self.intervention}" if self.intervention is not None else "")
        return f"{folder}/{names}.parquet"

    @classmethod
    def parse(cls, path: str | Path, interrupted: bool = False) -> "TableKey":
        """The key of a file, from the end of its path; the inverse of :meth:`path`.

        Parameters
        ----------
        path
            ``.../{model}/{benchmark}/{arm}/r{replicate}.parquet``, of any stage and below any folder.
        interrupted
            Whether it is a table of the interruption study: ``.../r{replicate}/{intervention}.parquet``.

        Raises
        ------
        InputError
            If the path does not end like that.
        """
        names = str(path).removesuffix(".parquet").split("/")[-5 if interrupted else -4 :]
        if len(names) < (5 if interrupted else 4) or not REPLICATE.fullmatch(names[3]):
            pattern = f"{RUN}/{{intervention}}.parquet" if interrupted else f"{RUN}.parquet"
            raise InputError(path, "path", "does not end like that of a table of this stage", pattern)
        model, benchmark, arm, replicate, *intervention = names
        return cls(model, benchmark, arm, int(replicate[1:]), *intervention)
