"""Parquet tables: declared schemas, metadata that says where a file comes from, writing that is whole or not at all."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dataframely as dy
import polars as pl
import pyarrow.parquet as pq

from midtrace import __version__
from midtrace.errors import InputError

SCHEMA_VERSION = 1
METADATA_KEY = "midtrace"


def one_of(*values: str) -> str:
    """A regular expression that admits these values only."""
    return "^(" + "|".join(values) + ")$"


def _text(nullable: bool = False, **kwargs) -> dy.String:
    return dy.String(nullable=nullable, **kwargs)


def _ids() -> dy.List:
    return dy.List(dy.Int32(nullable=False), nullable=False)


class Items(dy.Schema):
    """One row is an item."""

    item_id = dy.String(primary_key=True)
    benchmark = _text()
    stratum = _text()
    question = _text()
    options = dy.List(dy.String(nullable=False), nullable=False)
    answer = _text()
    answer_kind = _text(regex=one_of("choice", "math", "code"))
    revised_question = _text(nullable=True)
    update = _text(nullable=True)
    stale_answer = _text(nullable=True)


class RawTraces(dy.Schema):
    """One row is a trace as sampled. ``reasoning_start`` indexes ``output_ids``; ``n_reasoning`` counts tokens.

    ``drift_at`` is the first index that a decode-encode round trip changes (null: none); ``problem`` says what of the format broke.
    """

    trace_id = dy.String(primary_key=True)
    model = _text()
    item_id = _text()
    arm = _text()
    replicate = dy.Int32(nullable=False)
    seed = dy.Int64(nullable=False)
    prompt_ids = _ids()
    output_ids = _ids()
    reasoning_start = dy.Int32(nullable=False)
    n_reasoning = dy.Int32(nullable=False)
    status = _text(regex=one_of("terminated", "truncated", "malformed"))
    problem = _text(nullable=True)
    finish_reason = _text(regex=one_of("stop", "length"))
    answer_text = _text()
    drift_at = dy.Int32(nullable=True)
    token_exact = dy.Bool(nullable=False)


class Traces(RawTraces):
    """One row is a trace with its natural answer (null: unparsed, which counts as wrong)."""

    answer = _text(nullable=True)
    correct = dy.Bool(nullable=False)


class _CutKeys(dy.Schema):
    """Keys of a cut: ``cut_id`` is ``horizon:B``, ``matched:PARTNER`` or ``fraction:X``; ``horizon`` is B in tokens."""

    trace_id = dy.String(primary_key=True)
    cut_id = dy.String(primary_key=True)
    cut = _text(regex=one_of("horizon", "matched", "fraction", "sentence"))
    horizon = dy.Int32(nullable=True)
    fraction = dy.Float64(nullable=True)
    partner_arm = _text(nullable=True)
    n_tokens = dy.Int32(nullable=False)
    complete = dy.Bool(nullable=False)


CUT_KEYS = tuple(_CutKeys.column_names())


class Cuts(_CutKeys):
    """One row is a trace at a cut. ``drift``: the decoded and re-encoded output differs within the prefix."""

    drift = dy.Bool(nullable=False)


class Readouts(_CutKeys):
    """One row is a cut read by the forced-answer probe in a context."""

    context = dy.String(primary_key=True, regex=one_of("policy", "common"))
    context_arm = dy.String(primary_key=True)
    option_logprob = dy.List(dy.Float32(nullable=False, allow_inf=True), nullable=False)
    candidate_mass = dy.Float64(nullable=False)
    choice = _text()
    tie = dy.Bool(nullable=False)
    low_mass = dy.Bool(nullable=False)
    q_gold = dy.Float64(nullable=False)
    correct = dy.Bool(nullable=False)
    brier = dy.Float64(nullable=False)
    log_loss = dy.Float64(nullable=False, allow_inf=True)
    gold_log_odds = dy.Float64(nullable=False, allow_inf=True)


class _Continued(_CutKeys):
    context = dy.String(primary_key=True, regex=one_of("policy", "common"))
    context_arm = dy.String(primary_key=True)
    mode = dy.String(primary_key=True, regex=one_of("answer", "resume", "natural"))
    text = _text()


class RawContinuations(_Continued):
    """One row is a cut continued by the engine. ``text`` is the answer, the stem included."""

    output_ids = _ids()


class Continuations(_Continued):
    """One row is a cut continued and graded. ``agrees_with_probe`` is null where the benchmark has no options to probe."""

    answer = _text(nullable=True)
    correct = dy.Bool(nullable=False)
    agrees_with_probe = dy.Bool(nullable=True)


class RawInterruptions(_CutKeys):
    """One row is a trace interrupted at a cut and continued; ``n_tokens`` of its ``n_reasoning`` reasoning tokens were kept.

    ``inserted_ids`` stand at index ``inserted_at`` of the output; ``output_ids`` is what the model wrote after them. ``status`` and ``problem``
    are those of the whole; ``n_answer``, ``n_added_content`` and ``n_base_answer`` count tokens without white space at either end;
    ``probe_choice`` is what the forced-answer probe reads at the same cut (null: not read).
    """

    intervention = dy.String(primary_key=True)
    seed = dy.Int64(nullable=False)
    inserted_ids = _ids()
    inserted_at = dy.Int32(nullable=False)
    output_ids = _ids()
    finish_reason = _text(regex=one_of("stop", "length"))
    status = _text(regex=one_of("terminated", "truncated", "malformed"))
    problem = _text(nullable=True)
    n_reasoning = dy.Int32(nullable=False)
    n_added_reasoning = dy.Int32(nullable=False)
    n_added_content = dy.Int32(nullable=False)
    n_answer = dy.Int32(nullable=False)
    n_base_answer = dy.Int32(nullable=False)
    added_text = _text()
    answer_text = _text()
    probe_choice = _text(nullable=True)


class Interruptions(RawInterruptions):
    """One row is an interrupted trace with its answer, held against the fresh run on the whole question (``fresh_...``; null: it is missing).

    Failure modes (docs/interruptions.md) are null where they cannot occur: ``panic`` after an update or a close, ``self_doubt`` without an
    update, ``leakage_ratio`` where the uninterrupted answer is empty.
    """

    item_id = _text()
    replicate = dy.Int32(nullable=False)
    answer = _text(nullable=True)
    correct = dy.Bool(nullable=False)
    fresh_correct = dy.Bool(nullable=True)
    fresh_tokens = dy.Int32(nullable=True)
    leakage_ratio = dy.Float64(nullable=True)
    reasoning_markers = dy.Int32(nullable=False)
    comment_lines = dy.Int32(nullable=True)
    doubts = dy.Int32(nullable=True)
    stale = dy.Bool(nullable=True)
    panic = dy.Bool(nullable=True)
    self_doubt = dy.Bool(nullable=True)
    mode = _text(nullable=True, regex=one_of("panic", "self_doubt", "leakage", "unfinished", "unparsed", "other"))


class Outcomes(dy.Schema):
    """One row is a trace at a horizon under a readout. ``token_exact`` is the trace's: rows without it enter sensitivity tables only."""

    model = dy.String(primary_key=True)
    benchmark = dy.String(primary_key=True)
    item_id = dy.String(primary_key=True)
    stratum = _text()
    arm = dy.String(primary_key=True)
    replicate = dy.Int32(primary_key=True)
    horizon = dy.Int32(primary_key=True)
    complete = dy.Bool(nullable=False)
    readout = dy.String(primary_key=True, regex=one_of("terminal", "terminal_continuation", "symmetric"))
    context_arm = dy.String(primary_key=True)
    token_exact = dy.Bool(nullable=False)
    correct = dy.Bool(nullable=False)
    q_gold = dy.Float64(nullable=True)
    brier = dy.Float64(nullable=True)
    log_loss = dy.Float64(nullable=True, allow_inf=True)
    gold_log_odds = dy.Float64(nullable=True, allow_inf=True)


class Controls(dy.Schema):
    """One row is an item read behind a constructed prefix. ``follows``: the probe chose the ``stated`` label (null: none was stated)."""

    model = dy.String(primary_key=True)
    item_id = dy.String(primary_key=True)
    control = dy.String(primary_key=True)
    position = dy.String(primary_key=True, regex=one_of("early", "late", "whole"))
    n_tokens = dy.Int32(nullable=False)
    n_options = dy.Int32(nullable=False)
    stated = _text(nullable=True)
    choice = _text()
    follows = dy.Bool(nullable=True)
    correct = dy.Bool(nullable=False)


# Columns of every decomposition table, and what each table has besides.
ESTIMATE_COLUMNS = {
    "model": pl.String,
    "benchmark": pl.String,
    "treatment": pl.String,
    "reference": pl.String,
    "estimand": pl.String,
    "horizon": pl.Int32,
    "readout": pl.String,
    "estimate": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "n_items": pl.Int64,
    "n_pairs": pl.Int64,
    "method": pl.String,
}
DECOMPOSITION: dict[str, dict[str, Any]] = {
    "policy": {},
    "strata": {"termination": pl.String, "share": pl.Float64, "difference": pl.Float64, "contribution": pl.Float64},
    "matched": {},
    "lengths": {},
    "scores": {},
    "availability": {},
    "validity": {"fraction": pl.Float64},
    "agreement": {"reading": pl.String, "fraction": pl.Float64, "k": pl.Int32},
    "falsifier": {"context": pl.String, "fraction": pl.Float64},
    "retokenisation": {},
    "replicates": {"replicate": pl.Int32},
    "inference": {
        "approach": pl.String,
        "replicate": pl.Int32,
        "band_low": pl.Float64,
        "band_high": pl.Float64,
        "p": pl.Float64,
        "p_holm": pl.Float64,
        "status": pl.String,
        "variance_item": pl.Float64,
        "variance_replicate": pl.Float64,
        "variance_residual": pl.Float64,
    },
    "sensitivity": {"cohort": pl.String},
    "controls": {"control": pl.String, "position": pl.String},
    "planted": {"control": pl.String, "planted": pl.Float64, "low": pl.Float64, "high": pl.Float64, "covered": pl.Boolean, "holds": pl.Boolean},
}

INTERRUPTION_KEYS = {"intervention": pl.String, "cut": pl.String, "fraction": pl.Float64}
INTERRUPTIONS: dict[str, dict[str, Any]] = {
    "interruptions": INTERRUPTION_KEYS,
    "interruptions_leakage": {**INTERRUPTION_KEYS, "ratio": pl.Float64},
    "interruptions_errors": {**INTERRUPTION_KEYS, "mode": pl.String},
    "interruptions_contrasts": {**INTERRUPTION_KEYS, "against": pl.String},
}


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


def write_parts(parts: Iterable[pl.DataFrame], path: str | Path, schema: type[dy.Schema], meta: Mapping[str, Any]) -> None:
    """Write a table piece by piece, each checked; the file appears only when whole. As :func:`write`, for what does not fit in memory.

    Keys are unique within each piece; the pieces must not share any.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    writer = None
    try:
        for part in parts:
            table = conform(part, schema, path).to_arrow()
            if writer is None:
                stamped = table.schema.with_metadata({METADATA_KEY: json.dumps(meta, sort_keys=True)})
                writer = pq.ParquetWriter(temporary, stamped, compression="zstd")
            writer.write_table(table.cast(writer.schema))
        if writer is None:
            raise InputError(path, "rows", "0 rows would be written: the stage before produced nothing", "at least 1")
        writer.close()
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
