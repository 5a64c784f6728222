"""Parquet files: metadata that says where a file comes from, writing that is whole or not at all, reading that notices damage.

Pages carry checksums, which pyarrow compares (Polars writes and compares none): a bit that flipped on a disk is an error, not another number.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import dataframely as dy
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from midtrace import __version__
from midtrace.errors import WRITABLE, InputError
from midtrace.tables.schemas import estimate_columns

SCHEMA_VERSION = 1
METADATA_KEY = "midtrace"
GROUP_ROWS = 1024  # rows of a table that are in memory at once, and of a row group on disk
CHECKED = {"page_checksum_verification": True}
T = TypeVar("T")


def metadata(stage: str, study: str, identity: Mapping[str, Any], **facts: Any) -> dict[str, Any]:
    """The metadata of a file: what made it. ``identity`` holds all settings that determine its rows; ``facts`` what was found at run time."""
    return {
        "schema_version": SCHEMA_VERSION,
        "version": __version__,
        "study": study,
        "stage": stage,
        "identity": dict(identity),
        **facts,
    }


def frame_of(rows: Sequence[Mapping[str, Any]], schema: type[dy.Schema]) -> pl.DataFrame:
    """A frame of row mappings with the column types of a schema, also when there are no rows."""
    return pl.DataFrame(list(rows), schema=schema.create_empty().schema, orient="row")


def scan(paths: Sequence[tuple[str | Path, Mapping[str, Any] | None]], schema: type[dy.Schema]) -> pl.LazyFrame:
    """A lazy table over files that need not fit in memory together. Each is read once here, for its checksums.

    Parameters
    ----------
    paths
        (file, expected identity) pairs; no file gives no rows.
    schema
        The declared schema. Rows were checked when they were written; here identity, column names and types are.

    Raises
    ------
    InputError
        For a foreign or damaged file, a missing column or another type.
    """
    wanted = schema.create_empty().schema
    for path, expected in paths:
        if expected is None:
            read_metadata(path)
        else:
            check_identity(path, expected)
        _undamaged(path, _verify)
        found = _undamaged(path, pl.read_parquet_schema)
        for name, dtype in wanted.items():
            if found.get(name) != dtype:
                raise InputError(path, f"column {name}", "missing" if name not in found else f"is {found[name]}", str(dtype))
    if not paths:
        return schema.create_empty().lazy()
    return pl.scan_parquet([Path(path) for path, _ in paths], glob=False).select(list(wanted))


def conform(frame: pl.DataFrame, schema: type[dy.Schema], where: object) -> pl.DataFrame:
    """Order and cast the columns as declared and check every rule of the schema.

    Raises
    ------
    InputError
        If a column is missing, a value does not fit, or keys repeat.
    """
    missing = [name for name in schema.column_names() if name not in frame.columns]
    if missing:
        raise InputError(where, f"column {missing[0]}", "missing", schema.column_names())
    keys = schema.primary_key()
    repeated = frame.filter(frame.select(keys).is_duplicated()).select(keys) if keys else frame.clear()
    if len(repeated):
        raise InputError(where, f"columns {', '.join(keys)}", f"{repeated.row(0)} occurs more than once", "each key once")
    try:
        return schema.validate(frame.select(schema.column_names()), cast=True)
    except (dy.exc.ValidationError, dy.exc.SchemaError, pl.exceptions.PolarsError) as error:
        raise InputError(where, schema.__name__.lower(), " ".join(str(error).split())[:500]) from None


def write(frame: pl.DataFrame, path: str | Path, schema: type[dy.Schema] | None, meta: Mapping[str, Any], expect_rows: bool = True) -> None:
    """Check a frame and write it; the file appears only when whole.

    Parameters
    ----------
    frame, path
        The rows and where they go.
    schema
        The declared schema; None for decomposition tables, which are checked by :mod:`midtrace.decomposition`.
    meta
        See :func:`metadata`.
    expect_rows
        Whether a frame without rows is an error (a silent no-op upstream).

    Raises
    ------
    InputError
        If the rows do not fit the schema, or the file cannot be written (see :func:`whole`).
    """
    if expect_rows and frame.is_empty():
        raise InputError(path, "rows", "0 rows would be written: the stage before produced nothing", "at least 1")
    if schema is not None:
        frame = conform(frame, schema, path)
    _write([frame.to_arrow()], path, lambda: meta)


def write_rows(
    portions: Iterable[Iterable[Mapping[str, Any]]],
    path: str | Path,
    schema: type[dy.Schema],
    meta: Callable[[], Mapping[str, Any]],
    expect_rows: bool = True,
) -> None:
    """Write a table as its rows come; memory holds ``GROUP_ROWS`` of them, and the file appears only when whole.

    Parameters
    ----------
    portions
        Row mappings, in portions of any size: the same rows give the same bytes. Keys that the schema does not name are left out.
    path, schema
        Where they go, and their declared schema.
    meta
        Gives the metadata (:func:`metadata`) when all rows are there.
    expect_rows
        Whether a table without rows is an error (a silent no-op upstream).
    """
    names, keys = schema.column_names(), schema.primary_key()
    seen: set[tuple] = set()

    def groups() -> Iterator[pl.DataFrame]:
        rows = chain.from_iterable(portions)
        while group := list(islice(rows, GROUP_ROWS)):
            frame = frame_of([{name: row[name] for name in names} for row in group], schema)
            for key in frame.select(keys).iter_rows():
                if key in seen:
                    raise InputError(path, f"columns {', '.join(keys)}", f"{key} occurs more than once", "each key once")
                seen.add(key)
            yield frame

    write_parts(groups(), path, schema, meta, expect_rows)


def write_parts(
    parts: Iterable[pl.DataFrame],
    path: str | Path,
    schema: type[dy.Schema],
    meta: Callable[[], Mapping[str, Any]],
    expect_rows: bool = True,
) -> None:
    """Write a table piece by piece, each checked; the file appears only when whole. As :func:`write`, for what does not fit in memory.

    Keys are unique within each piece; the pieces must not share any. ``meta`` is asked when all pieces are there.
    """
    empty = None if expect_rows else schema.create_empty().to_arrow().schema
    _write((conform(part, schema, path).to_arrow() for part in parts), path, meta, empty)


def _write(parts: Iterable[pa.Table], path: str | Path, meta: Callable[[], Mapping[str, Any]], empty: pa.Schema | None = None) -> None:
    with whole(path) as temporary:
        writer = None
        try:
            for table in parts:
                writer = writer or _writer(temporary, table.schema)
                writer.write_table(table.cast(writer.schema))
            if writer is None:
                if empty is None:
                    raise InputError(path, "rows", "0 rows would be written: the stage before produced nothing", "at least 1")
                writer = _writer(temporary, empty)
            writer.add_key_value_metadata({METADATA_KEY: json.dumps(meta(), sort_keys=True)})
        finally:
            if writer is not None:
                writer.close()


def _writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True)


@contextmanager
def whole(path: str | Path) -> Iterator[Path]:
    """A temporary file beside ``path`` that takes its name when the block has ended well: whoever reads finds a whole file or none.

    Raises
    ------
    InputError
        If the file cannot be written: the disk is full, read-only, or not the user's.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{_place()}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent)
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        if error.filename not in (None, str(temporary), str(path), str(path.parent)):
            raise  # of another file: rows are made in this block
        said = os.strerror(error.errno) if error.errno else str(error)
        raise InputError(path, "file", f"cannot be written ({said})", WRITABLE) from None
    finally:
        with suppress(OSError):
            temporary.unlink()


@cache
def _place() -> str:
    """Where process numbers mean the same: this machine since its start, and in it this container. Empty where that cannot be told."""
    try:
        boot, container = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8"), os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
    return hashlib.sha256(f"{boot} {container}".encode()).hexdigest()[:12]


@cache
def _sweep(folder: Path) -> None:
    """Delete what killed processes left half-written in a folder; only those of which this one can know that they are gone."""
    for temporary in folder.glob(".*.tmp") if _place() else ():
        with suppress(OSError, ValueError):
            _, place, pid, _ = temporary.name.rsplit(".", 3)
            if place == _place() and not _runs(int(pid)):
                temporary.unlink()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True


def write_json(value: Any, path: str | Path) -> None:
    """Write a small file of JSON; it appears only when whole."""
    with whole(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1) + "\n")


def read_metadata(path: str | Path) -> dict[str, Any]:
    """The ``midtrace`` metadata of a Parquet file.

    Raises
    ------
    InputError
        If the file is missing, not Parquet, or not written by midtrace.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(path, "file", "does not exist", "a Parquet file written by midtrace")
    found = _undamaged(path, _meta)
    if found is None:
        raise InputError(path, "metadata", "has no 'midtrace' entry: the file was not written by midtrace", "a file of this study")
    return found


def _meta(path: str | Path) -> dict[str, Any] | None:
    found = pq.read_metadata(path).metadata or {}
    return json.loads(found[METADATA_KEY.encode()]) if METADATA_KEY.encode() in found else None


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested mappings as (dotted path, value)."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield from flatten(value[key], f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value


def check_identity(path: str | Path, expected: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse a file whose identity is not the one that the config asks for.

    Raises
    ------
    InputError
        Naming the first differing field, the value in the file and the value in the config.
    """
    meta = read_metadata(path)
    if meta.get("schema_version") != SCHEMA_VERSION:
        raise InputError(path, "schema_version", f"is {meta.get('schema_version')!r}", str(SCHEMA_VERSION))
    found, wanted = dict(flatten(meta.get("identity", {}))), dict(flatten(json.loads(json.dumps(expected))))
    for field in sorted(found.keys() | wanted.keys()):
        if found.get(field) != wanted.get(field):
            raise InputError(
                path,
                field,
                f"the file was made with {_short(found.get(field))}, the config says {_short(wanted.get(field))}",
                "a file of this config (delete it, or rerun its stage)",
            )
    return meta


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def read(path: str | Path, schema: type[dy.Schema] | None = None, expected: Mapping[str, Any] | None = None) -> pl.DataFrame:
    """Read a table, refuse a foreign one or a damaged one, and check its schema.

    Parameters
    ----------
    path
        The file.
    schema
        The declared schema; None for tables of estimates.
    expected
        The identity that the file must have, if it is known here.

    Raises
    ------
    InputError
        If the file is missing, damaged, not midtrace's, or of another config, or if its rows do not fit.
    OSError
        If the system cannot read it now.
    """
    meta = check_identity(path, expected) if expected is not None else read_metadata(path)
    frame = _undamaged(path, _frame)
    if schema is not None:
        return conform(frame, schema, path)
    # The names of columns are in the footer, which carries no checksum.
    declared = estimate_columns(meta["table"]) if "table" in meta else None
    if declared is not None and dict(frame.schema) != declared:
        raise InputError(path, "columns", f"are {', '.join(frame.columns)}", list(declared))
    return frame


def _frame(path: str | Path) -> pl.DataFrame:
    with pq.ParquetFile(path, **CHECKED) as file:
        frame = pl.from_arrow(file.read())
    assert isinstance(frame, pl.DataFrame)
    return frame


def _verify(path: str | Path) -> None:
    with pq.ParquetFile(path, **CHECKED) as file:
        for _ in file.iter_batches():
            pass


def _undamaged(path: str | Path, work: Callable[[str | Path], T]) -> T:
    """What ``work`` makes of a file, or an error that says that it is damaged. What the system says (no memory, a lost mount) is passed on."""
    try:
        return work(path)
    except MemoryError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:  # pyarrow raises several kinds, OSError without a number among them
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from None
        said = str(error).splitlines()[0]
        allowed = "a Parquet file written by midtrace (delete a damaged one and run again: its stage makes it anew)"
        raise InputError(path, "file", f"cannot be read as Parquet ({said})", allowed) from None
