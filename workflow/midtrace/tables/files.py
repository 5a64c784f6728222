"""Parquet files: metadata that says where a file comes from, writing that is whole or not at all."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import dataframely as dy
import polars as pl
import pyarrow.parquet as pq

from midtrace import __version__
from midtrace.errors import InputError

SCHEMA_VERSION = 1
METADATA_KEY = "midtrace"
GROUP_ROWS = 1024  # rows of a table that are in memory at once, and of a row group on disk


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
    """A lazy table over files that need not fit in memory together.

    Parameters
    ----------
    paths
        (file, expected identity) pairs; no file gives no rows.
    schema
        The declared schema. Rows were checked when they were written; here identity, column names and types are.

    Raises
    ------
    InputError
        For a foreign file, a missing column or another type.
    """
    wanted = schema.create_empty().schema
    for path, expected in paths:
        if expected is None:
            read_metadata(path)
        else:
            check_identity(path, expected)
        found = pl.read_parquet_schema(path)
        for name, dtype in wanted.items():
            if found.get(name) != dtype:
                raise InputError(path, f"column {name}", "missing" if name not in found else f"is {found[name]}", str(dtype))
    if not paths:
        return schema.create_empty().lazy()
    return pl.scan_parquet([Path(path) for path, _ in paths]).select(list(wanted))


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
    """
    path = Path(path)
    if expect_rows and frame.is_empty():
        raise InputError(path, "rows", "0 rows would be written: the stage before produced nothing", "at least 1")
    if schema is not None:
        frame = conform(frame, schema, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        frame.write_parquet(temporary, compression="zstd", metadata={METADATA_KEY: json.dumps(meta, sort_keys=True)})
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


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
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    writer = None
    try:
        for part in parts:
            table = conform(part, schema, path).to_arrow()
            writer = writer or pq.ParquetWriter(temporary, table.schema, compression="zstd")
            writer.write_table(table)
        if writer is None and expect_rows:
            raise InputError(path, "rows", "0 rows would be written: the stage before produced nothing", "at least 1")
        writer = writer or pq.ParquetWriter(temporary, schema.create_empty().to_arrow().schema, compression="zstd")
        writer.add_key_value_metadata({METADATA_KEY: json.dumps(meta(), sort_keys=True)})
        writer.close()
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(value: Any, path: str | Path) -> None:
    """Write a small file of JSON; it appears only when whole."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(value, indent=1) + "\n")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


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
    try:
        found = pq.read_metadata(path).metadata or {}
    except Exception as error:  # pyarrow raises several kinds for a corrupt file
        raise InputError(path, "file", f"cannot be read as Parquet ({str(error).splitlines()[0]})", "a Parquet file written by midtrace") from None
    if METADATA_KEY.encode() not in found:
        raise InputError(path, "metadata", "has no 'midtrace' entry: the file was not written by midtrace", "a file of this study")
    return json.loads(found[METADATA_KEY.encode()])


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
    found, wanted = dict(flatten(meta["identity"])), dict(flatten(json.loads(json.dumps(expected))))
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


def read(path: str | Path, schema: type[dy.Schema], expected: Mapping[str, Any] | None = None) -> pl.DataFrame:
    """Read a table, refuse a foreign one, and check its schema."""
    if expected is not None:
        check_identity(path, expected)
    else:
        read_metadata(path)
    try:
        frame = pl.read_parquet(path)
    except Exception as error:
        raise InputError(path, "file", f"cannot be read as Parquet ({str(error).splitlines()[0]})", "a Parquet file written by midtrace") from None
    return conform(frame, schema, path)
