"""Reading the files that benchmarks come in: from here, or from the Hugging Face Hub at a pinned revision."""

import glob
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import polars.selectors as cs

from midtrace.errors import FILL_IN, InputError

T = TypeVar("T")
REMOTE = "hf://datasets/"
LINES = ".jsonl"
# Types are not guessed from the first rows: in CSV, "007" and "true" stay the texts that they are. JSON Lines are read by :func:`decode`.
READERS: dict[str, Callable[[Any], pl.DataFrame]] = {".parquet": pl.read_parquet, ".csv": partial(pl.read_csv, infer_schema=False)}
SUFFIXES = (".parquet", LINES, ".csv")
ROWS = 1000  # of a JSON Lines file are looked at for its columns before anything runs
TABLE = "a Parquet, JSON Lines or CSV file"
REMEDY = "a source that can be reached: for a gated one accept its terms and set HF_TOKEN; without a connection give the path of a downloaded file"


def is_remote(path: str) -> bool:
    """Whether a path lies on the hub."""
    return path.startswith("hf://")


def check(path: str | None, revision: str | None, where: object, field: str, suffixes: tuple[str, ...] = SUFFIXES, hint: str = "") -> None:
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


def lacks(path: str, columns: Iterable[str]) -> tuple[str, list[str]] | None:
    """The first of these columns that files here do not have, and those that they have; None if they have all, or too much would have to be read.

    Of Parquet and CSV the names are read, of JSON Lines rows until all columns were seen, at most :data:`ROWS`. Files that cannot be read are left to
    :func:`rows`.
    """
    wanted = list(columns)
    for file in files(path):
        try:
            names = _names(file, wanted)
        except Exception:  # each reader has its own kinds
            names = None
        absent = [column for column in wanted if names is not None and column not in names]
        if names is not None and absent:
            return absent[0], names
    return None


def _names(file: Path, wanted: Iterable[str]) -> list[str] | None:
    if file.suffix == ".parquet":
        return list(_open(pl.read_parquet_schema, file).keys())
    if file.suffix == ".csv":
        return _open(partial(pl.read_csv, n_rows=0, infer_schema=False), file).columns
    names: dict[str, None] = {}
    for number, (_, row) in enumerate(_objects(file)):
        if number == ROWS or row is None:
            return None
        names |= dict.fromkeys(row)
        if all(column in names for column in wanted):
            break
    return list(names) or None


class Written(str):
    """A number of a JSON file that Python would write in another way ("1.10", "3e2"), as it was written."""


def decode(text: str | bytes) -> Any:
    """JSON whose values come out as they were written: whole numbers exactly, others as :class:`Written`.

    Raises
    ------
    ValueError
        If it is no JSON, gives a key twice, or holds half a character.
    """
    value = json.loads(text, parse_float=Written, parse_constant=Written, parse_int=_whole, object_pairs_hook=_object)
    if (b"\\ud" if isinstance(text, bytes) else "\\ud") in text.lower():  # type: ignore[operator]
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _whole(text: str) -> int | Written:
    if len(text) > 4000:  # Python converts no more than 4,300 digits
        return Written(text)
    value = int(text)
    return value if str(value) == text else Written(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key is given twice")
    return value


def rows(path: str, revision: str | None, columns: Mapping[str, tuple]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a source with their numbers, from 1: of one file, or of several of the same columns, in the order of their names.

    Each file is read on its own: the types of one change no value of another.

    Raises
    ------
    InputError
        If it cannot be reached or read, lacks a column, or has one of another type.
    """
    suffix = Path(path).suffix
    if suffix not in SUFFIXES:
        raise InputError(path, "file", f"ends in {suffix!r}", SUFFIXES)
    if not is_remote(path) and not files(path):
        raise InputError(path, "file", "does not exist", "an existing file")
    yield from enumerate(_rows_of_lines(path, revision, columns) if suffix == LINES else _rows_of_tables(path, revision, columns), 1)


def _rows_of_tables(path: str, revision: str | None, columns: Mapping[str, tuple]) -> Iterator[dict[str, Any]]:
    read, names = READERS[Path(path).suffix], None
    for file in [pinned(path, revision)] if is_remote(path) else files(path):
        try:
            frame = read(file) if isinstance(file, str) else _open(read, file)
        except Exception as error:  # each reader has its own kinds; their messages do not quote rows
            problem = f"cannot be read ({(str(error).splitlines() or [type(error).__name__])[0]})"
            raise InputError(path, "source" if is_remote(path) else "file", problem, REMEDY if is_remote(path) else TABLE) from None
        if names is not None and set(frame.columns) != names:
            raise InputError(file, "columns", f"are {', '.join(frame.columns)}", f"those of the other files: {', '.join(sorted(names))}")
        names = set(frame.columns)
        for column, types in columns.items():
            if column not in frame.columns:
                raise InputError(path, f"column {column!r}", "missing", frame.columns)
            if f"{column}_duplicated_0" in frame.columns:
                raise InputError(path, f"column {column!r}", "is there twice", "each column once")
            if types and frame[column].dtype not in (*types, pl.Null):
                raise InputError(path, f"column {column!r}", f"is {frame[column].dtype}", " or ".join(map(str, types)))
        # In double precision 0.1 of single precision would read 0.10000000149011612.
        yield from frame.with_columns(cs.by_dtype(pl.Float32).cast(pl.String)).iter_rows(named=True)


def _open(read: Callable[[Any], T], file: Path) -> T:
    """A file here, by its handle: a reader takes some names for patterns."""
    with file.open("rb") as handle:
        return read(handle)


def _rows_of_lines(path: str, revision: str | None, columns: Mapping[str, tuple]) -> Iterator[dict[str, Any]]:
    """Rows of JSON Lines; a key that is not in every row is null in the others."""
    found = []
    for file in _downloaded(path, revision) if is_remote(path) else files(path):
        for line, row in _objects(file):
            if row is None:
                raise InputError(file, "file", f"cannot be read (line {line} is no JSON object)", TABLE)
            found.append(row)
    if not found:
        raise InputError(path, "file", "cannot be read (it is empty)", TABLE)
    names = dict.fromkeys(name for row in found for name in row)
    for column, types in columns.items():
        if column not in names:
            raise InputError(path, f"column {column!r}", "missing", names)
        for number, row in enumerate(found if types else (), 1):
            if not _fits(row.get(column), types):
                raise InputError(path, f"column {column!r}", f"is {_type(row[column])} in row {number}", " or ".join(map(str, types)))
    for row in found:
        yield {**dict.fromkeys(columns), **row}


def _fits(value: Any, types: tuple) -> bool:
    """Whether a value of a JSON file is of one of these types of polars."""
    if isinstance(value, list):
        return pl.List(pl.String) in types and all(text is None or (isinstance(text, str) and not isinstance(text, Written)) for text in value)
    if isinstance(value, str):
        return pl.String in types and not isinstance(value, Written)
    return value is None or (type(value) is int and pl.Int64 in types)


def _type(value: Any) -> str:
    return "a number" if isinstance(value, Written) else type(value).__name__


def _objects(file: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """The objects of a JSON Lines file with the numbers of their lines, from 1; None for a line that is none. Empty lines are left out."""
    with file.open("rb") as handle:
        for line, content in enumerate(handle, 1):
            if content.strip():
                try:
                    row = decode(content)
                except (ValueError, RecursionError):
                    row = None
                yield line, row if isinstance(row, dict) else None


def json_lines(path: str, revision: str | None, columns: Mapping[str, tuple]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of JSON Lines files, read one line at a time, with their numbers, from 1.

    Raises
    ------
    InputError
        If a file cannot be reached, a line is no JSON object, or lacks a column or has one of another type.
    """
    number = 0
    for file in _downloaded(path, revision) if is_remote(path) else files(path):
        for line, row in _objects(file):
            number += 1
            if row is None:
                raise InputError(file, f"line {line}", "is no JSON object", "one object a line")
            for column, types in columns.items():
                if column not in row:
                    raise InputError(file, f"line {line}, {column}", "missing", row)
                if types and (not isinstance(row[column], types) or isinstance(row[column], Written)):
                    raise InputError(file, f"line {line}, {column}", f"is {_type(row[column])}", " or ".join(t.__name__ for t in types))
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
