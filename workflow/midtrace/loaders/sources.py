"""Reading the files that benchmarks come in: from here, or from the Hugging Face Hub at a pinned revision."""

import glob
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from midtrace.errors import FILL_IN, InputError

REMOTE = "hf://datasets/"
# Types are not guessed from the first rows: in CSV, "007" and "true" stay the texts that they are.
READERS: dict[str, Callable[[Any], pl.DataFrame]] = {
    ".parquet": pl.read_parquet,
    ".jsonl": partial(pl.read_ndjson, infer_schema_length=None),
    ".csv": partial(pl.read_csv, infer_schema=False),
}
REMEDY = "a source that can be reached: for a gated one accept its terms and set HF_TOKEN; without a connection give the path of a downloaded file"


def is_remote(path: str) -> bool:
    """Whether a path lies on the hub."""
    return path.startswith("hf://")


def check(path: str | None, revision: str | None, where: object, field: str, suffixes: tuple[str, ...] = tuple(READERS), hint: str = "") -> None:
    """Refuse a path that no source can have, before anything is read.

    Raises
    ------
    InputError
        For no path, a file that is not there or of another kind, an hf:// path that is incomplete or without a pinned revision.
    """
    kinds = ", ".join(suffixes)
    if not path:
        raise InputError(where, f"{field}.path", "missing", f"a file ({kinds})" + (f", for example one of {hint}" if hint else ""))
    if Path(path).suffix not in suffixes:
        raise InputError(where, f"{field}.path", f"{path!r} ends in {Path(path).suffix!r}", kinds)
    if is_remote(path):
        if not path.startswith(REMOTE) or len(path.removeprefix(REMOTE).split("/")) < 3 or "@" in path:
            raise InputError(where, f"{field}.path", f"is {path!r}", f"{REMOTE}OWNER/NAME/FILE, with the commit under revision")
        if not revision:
            raise InputError(
                where,
                f"{field}.revision",
                f"missing, and {path!r} is on the hub",
                f"the commit to read, 40 hexadecimal digits, or {FILL_IN} until you know it",
            )
    elif revision and revision != FILL_IN:
        raise InputError(where, f"{field}.revision", f"is given, but {path!r} is a file here", "null, or an hf:// path")
    elif not files(path):
        raise InputError(where, f"{field}.path", f"{path!r} does not exist", f"an existing file ({kinds})")


def files(path: str) -> list[Path]:
    """The files here that a path means, in the order of their names; none if there are none."""
    if Path(path).is_file():
        return [Path(path)]
    return sorted(found for name in glob.glob(path) if (found := Path(name)).is_file())


def pinned(path: str, revision: str | None) -> str:
    """An hf:// path at a revision."""
    owner, name, file = path.removeprefix(REMOTE).split("/", 2)
    return f"{REMOTE}{owner}/{name}@{revision}/{file}"


def table(path: str, revision: str | None) -> pl.DataFrame:
    """The table of a source: one file, or several of the same columns.

    Raises
    ------
    InputError
        If it cannot be reached or read.
    """
    suffix = Path(path).suffix
    if suffix not in READERS:
        raise InputError(path, "file", f"ends in {suffix!r}", READERS)
    read, remote, local = READERS[suffix], is_remote(path), files(path)
    if not (remote or local):
        raise InputError(path, "file", "does not exist", "an existing file")
    try:
        if remote:
            return read(pinned(path, revision))
        # Of several kinds of number in one column the wider is taken; other types must agree.
        return pl.concat([_open(read, file) for file in local], how="vertical_relaxed")
    except Exception as error:  # each reader has its own kinds; their messages do not quote rows
        problem = f"cannot be read ({(str(error).splitlines() or [type(error).__name__])[0]})"
        raise InputError(path, "source" if remote else "file", problem, REMEDY if remote else "a Parquet, JSON Lines or CSV file") from None


def _open(read: Callable[[Any], pl.DataFrame], file: Path) -> pl.DataFrame:
    """A file here, by its handle: a reader takes some names for patterns."""
    with file.open("rb") as handle:
        return read(handle)


def rows(path: str, revision: str | None, columns: Mapping[str, tuple]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a table with their numbers, from 1.

    Raises
    ------
    InputError
        If it cannot be read, lacks a column, or has one of another type.
    """
    frame = table(path, revision)
    for column, types in columns.items():
        if column not in frame.columns:
            raise InputError(path, f"column {column!r}", "missing", frame.columns)
        if types and frame[column].dtype not in (*types, pl.Null):
            raise InputError(path, f"column {column!r}", f"is {frame[column].dtype}", " or ".join(map(str, types)))
    yield from enumerate(frame.iter_rows(named=True), 1)


def json_lines(path: str, revision: str | None, columns: Mapping[str, tuple]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of JSON Lines files, read one line at a time, with their numbers, from 1.

    Raises
    ------
    InputError
        If a file cannot be reached, a line is no JSON object, or lacks a column or has one of another type.
    """
    number = 0
    for file in _downloaded(path, revision) if is_remote(path) else files(path):
        with file.open("rb") as handle:
            for line, content in enumerate(handle, 1):
                if not content.strip():
                    continue
                number += 1
                try:
                    row = json.loads(content)
                except (ValueError, RecursionError):
                    row = None
                if not isinstance(row, dict):
                    raise InputError(file, f"line {line}", "is no JSON object", "one object a line")
                for column, types in columns.items():
                    if column not in row:
                        raise InputError(file, f"line {line}, {column}", "missing", row)
                    if types and not isinstance(row[column], types):
                        raise InputError(file, f"line {line}, {column}", f"is {type(row[column]).__name__}", " or ".join(t.__name__ for t in types))
                yield number, row


def _downloaded(path: str, revision: str | None) -> list[Path]:
    """The files of an hf:// path, in the hub's cache: lines cannot be streamed from afar in bounded memory."""
    from huggingface_hub import snapshot_download

    owner, name, file = path.removeprefix(REMOTE).split("/", 2)
    try:
        folder = snapshot_download(f"{owner}/{name}", repo_type="dataset", revision=revision, allow_patterns=file)
    except Exception as error:  # it has many kinds, most of them with several lines
        raise InputError(path, "source", f"cannot be read ({(str(error).splitlines() or [type(error).__name__])[0]})", REMEDY) from None
    found = files(f"{glob.escape(folder)}/{file}")
    if not found:
        raise InputError(path, "source", f"has no such file at revision {revision}", "a file of the data set")
    return found
