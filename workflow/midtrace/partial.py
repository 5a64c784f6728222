"""Finished batches of a running job, kept beside its output so that a killed job resumes."""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dataframely as dy
import polars as pl

from midtrace import tables
from midtrace.errors import InputError
from midtrace.logs import Progress


class Parts:
    """Batches of one output file. Another identity has another folder: its finished work is neither used nor lost.

    Parameters
    ----------
    output
        The file that the job will write.
    schema
        Schema of the batches.
    meta
        Metadata of the output; with the code it names the folder.
    code
        Digest of the code that computes the batches: edited code has another folder too.
    """

    def __init__(self, output: str | Path, schema: type[dy.Schema], meta: Mapping[str, Any], code: str):
        named = json.dumps([meta, code], sort_keys=True)
        digest = hashlib.sha256(named.encode()).hexdigest()[:12]
        output = Path(output)
        self.folder = output.parent / f".{output.name}.{digest}.parts"
        self.schema, self.meta = schema, meta

    def finished(self) -> pl.DataFrame:
        """Rows of all whole batches; a batch that cannot be read is dropped and will be computed again."""
        frames = []
        for path in sorted(self.folder.glob("*.parquet")):
            try:
                frames.append(tables.read(path, self.schema, self.meta["identity"]))
            except InputError:
                path.unlink()
        return pl.concat(frames) if frames else self.schema.create_empty()

    def add(self, frame: pl.DataFrame) -> None:
        """Store a finished batch; it appears only when whole. A batch may have no rows: not every trace has a cut to continue."""
        # Not the number of files: where a broken one was dropped, that number is the name of a good one.
        number = max((int(path.stem) for path in self.folder.glob("*.parquet")), default=-1) + 1
        tables.write(frame, self.folder / f"{number:06d}.parquet", self.schema, self.meta, expect_rows=False)

    def clear(self) -> None:
        """Remove the batches, once the output is written."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def complete(
        self, names: Sequence[str], key: str, batch: int, compute: Callable[[Sequence[str]], pl.DataFrame], what: str, unit: str
    ) -> pl.DataFrame:
        """Compute what is not finished yet, batch by batch, and return all rows.

        Parameters
        ----------
        names
            What has to be done, in the order of the output.
        key
            Column that holds the name.
        batch
            Names per batch.
        compute
            From names to rows.
        what, unit
            For the progress line.
        """
        done = set(self.finished()[key])
        left = [name for name in names if name not in done]
        bar = Progress(what, len(names), unit, len(names) - len(left))
        for start in range(0, len(left), batch):
            chosen = left[start : start + batch]
            self.add(compute(chosen))
            bar.add(len(chosen))
        bar.close()
        position = {name: row for row, name in enumerate(names)}
        return self.finished().sort(pl.col(key).replace_strict(position, return_dtype=pl.Int64), maintain_order=True)
