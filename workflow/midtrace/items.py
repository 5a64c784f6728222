"""Stage 1: items of a benchmark, loaded or generated, checked, drawn."""

import random
import re
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from midtrace import tables
from midtrace.chains import LENGTHS, Chain, draw_held_out, is_held_out
from midtrace.config import REVISED
from midtrace.errors import InputError
from midtrace.prompts import labels
from midtrace.seeds import stable_hash

MAX_OPTIONS = 10
COLUMNS = ("id", "question", "options", "answer", "stratum", "revised_question", "update", "stale_answer")
OPTIONAL = ("options", "stratum", "revised_question", "update", "stale_answer")


def run(output: str | Path, study: str, settings: Mapping[str, Any]) -> None:
    """Write ``items/{benchmark}.parquet``.

    Parameters
    ----------
    output
        The file to write.
    study
        Name of the study, for the metadata.
    settings
        See :func:`midtrace.config.items_settings`.
    """
    frame = load(settings["benchmark"], settings["seed"])
    if settings.get("view") == "revised":
        frame = revised(frame, output)
    tables.write(frame, output, tables.Items, tables.metadata("items", study, settings))


def load(benchmark: Mapping[str, Any], seed: int) -> pl.DataFrame:
    """The items of a benchmark entry, valid and drawn.

    Raises
    ------
    InputError
        If the source cannot be read or an item is unusable.
    """
    if benchmark["loader"] == "file":
        frame = read_file(benchmark)
        where: object = benchmark["path"]
    else:
        frame = generate_chains(benchmark, seed)
        where = f"benchmark {benchmark['name']}"
    check(frame, where)
    return draw(frame, benchmark["n"], seed) if benchmark["loader"] == "file" else frame


def revised(frame: pl.DataFrame, where: object) -> pl.DataFrame:
    """The items of an update benchmark as they are asked before the update arrives: a benchmark of its own, named ``{benchmark}+revised``.

    Parameters
    ----------
    frame
        Items with an update.
    where
        For messages.

    Returns
    -------
    polars.DataFrame
        The same items with ``revised_question`` as their question and ``stale_answer`` as its right answer; ids start with the new name.

    Raises
    ------
    InputError
        If an item has no update.
    """
    without = frame.filter(pl.col("update").is_null())
    if len(without):
        raise InputError(where, f"item {without['item_id'][0]}, update", "missing", "items that all have revised_question, update and stale_answer")
    nothing = pl.lit(None, pl.String)
    return frame.with_columns(
        item_id=pl.col("benchmark") + REVISED + pl.col("item_id").str.slice(pl.col("benchmark").str.len_chars()),
        benchmark=pl.col("benchmark") + REVISED,
        question="revised_question",
        answer="stale_answer",
        revised_question=nothing,
        update=nothing,
        stale_answer=nothing,
    )


def generate_chains(benchmark: Mapping[str, Any], seed: int) -> pl.DataFrame:
    """Held-out chains of the embedded model; item ``k`` depends on (seed, k) only, and lengths take turns.

    ``chains_update`` items carry the chain without its last step as ``revised_question``, the step as ``update`` and the answer without
    it as ``stale_answer``.
    """
    rows = []
    with_update = benchmark["loader"] == "chains_update"
    for index in range(benchmark["n"]):
        rng = random.Random(stable_hash("chains", seed, benchmark["loader"], index))
        chain = draw_held_out(rng, LENGTHS[index % len(LENGTHS)])
        while with_update and (not is_held_out(chain.revised) or chain.revised.answer == chain.answer):
            chain = draw_held_out(rng, LENGTHS[index % len(LENGTHS)])
        rows.append(_chain_row(benchmark, index, chain, with_update))
    return tables.frame_of(rows, tables.Items)


def _chain_row(benchmark: Mapping[str, Any], index: int, chain: Chain, with_update: bool) -> dict[str, Any]:
    choice = benchmark["answer_kind"] == "choice"

    def text(value: int) -> str:
        return chain.labels[value] if choice else str(value)

    return {
        "item_id": f"{benchmark['name']}/{index:05d}",
        "benchmark": benchmark["name"],
        "stratum": f"{len(chain.steps)} steps",
        "question": chain.question,
        "options": [str(value) for value in range(chain.modulus)] if choice else [],
        "answer": text(chain.answer),
        "answer_kind": benchmark["answer_kind"],
        "revised_question": chain.revised.question if with_update else None,
        "update": chain.update if with_update else None,
        "stale_answer": text(chain.revised.answer) if with_update else None,
    }


def read_file(benchmark: Mapping[str, Any]) -> pl.DataFrame:
    """Items from a user's Parquet, JSON Lines or CSV file.

    In CSV, options are one cell with `` | `` between them. The ``answer`` column holds the labels of the right options, or their texts.
    """
    path = Path(benchmark["path"])
    # Types are not guessed from the first rows: in CSV, "007" and "true" stay the texts that they are.
    readers: dict[str, Any] = {
        ".parquet": pl.read_parquet,
        ".jsonl": partial(pl.read_ndjson, infer_schema_length=None),
        ".csv": partial(pl.read_csv, infer_schema=False),
    }
    if path.suffix not in readers:
        raise InputError(path, "file", f"ends in {path.suffix!r}", readers)
    try:
        raw = readers[path.suffix](path)
    except Exception as error:  # each polars reader has its own kinds
        raise InputError(path, "file", f"cannot be read ({str(error).splitlines()[0]})", "a Parquet, JSON Lines or CSV file") from None
    source = {key: benchmark["columns"].get(key, key) for key in COLUMNS}
    for key, column in source.items():
        if column not in raw.columns and (key not in OPTIONAL or (key == "options" and benchmark["answer_kind"] == "choice")):
            raise InputError(path, f"column {column!r} ({key})", "missing", raw.columns)
    rows = []
    for line, record in enumerate(raw.iter_rows(named=True), 1):
        value = {key: record.get(column) for key, column in source.items()}
        options = value["options"]
        if isinstance(options, str):
            options = re.split(r"\s+\|\s+", options.strip())
        if not (options is None or isinstance(options, list)):
            raise InputError(path, f"row {line}, options", f"is {type(options).__name__}", "a list of texts")
        nested = [key for key in COLUMNS if key != "options" and isinstance(value[key], list | dict)]
        if nested or any(isinstance(option, list | dict) for option in options or []):
            raise InputError(path, f"row {line}, {source[nested[0]] if nested else source['options']}", "is nested", "plain texts")
        options = ["" if option is None else str(option).strip() for option in options or []]
        for key in ("id", "question", "answer"):
            if value[key] is None or not str(value[key]).strip():
                raise InputError(path, f"row {line}, {source[key]}", "is empty", "some text")
        rows.append(
            {
                "item_id": f"{benchmark['name']}/{str(value['id']).strip()}",
                "benchmark": benchmark["name"],
                "stratum": str(value["stratum"]) if value["stratum"] is not None else "all",
                "question": str(value["question"]).strip(),
                "options": options,
                "answer": _text(value["answer"]),
                "answer_kind": benchmark["answer_kind"],
                "revised_question": _text(value["revised_question"]),
                "update": _text(value["update"]),
                "stale_answer": _text(value["stale_answer"]),
            }
        )
    for key in ("answer", "stale_answer"):
        _texts_to_labels(rows, key)
    return tables.frame_of(rows, tables.Items)


def _text(value: Any) -> str | None:
    return None if value is None else str(value).strip() or None


def _texts_to_labels(rows: list[dict[str, Any]], key: str) -> None:
    # Whether answers are labels or texts is seen on the whole column: the text of an option may itself be a letter ("B", the element).
    if all(row[key] is None or row[key] in labels(len(row["options"])) for row in rows):
        return
    for row in rows:
        if row["options"].count(row[key]) == 1:
            row[key] = labels(len(row["options"]))[row["options"].index(row[key])]


def check(frame: pl.DataFrame, where: object) -> None:
    """Refuse items that no study can use. Items are named by id only: their text may be gated.

    Raises
    ------
    InputError
        For no rows, duplicate ids, bad options, an answer that is no option, an update that changes nothing.
    """
    if frame.is_empty():
        raise InputError(where, "items", "none", "at least 1")
    repeated = [item for item, count in Counter(frame["item_id"]).items() if count > 1]
    if repeated:
        raise InputError(where, "id", f"{repeated[0]!r} occurs {frame['item_id'].to_list().count(repeated[0])} times", "each id once")
    for item in frame.iter_rows(named=True):
        name, options = f"item {item['item_id']}", item["options"]
        if item["answer_kind"] == "choice":
            if not 2 <= len(options) <= MAX_OPTIONS:
                raise InputError(where, f"{name}, options", f"has {len(options)}", f"2 to {MAX_OPTIONS}")
            if len(set(options)) < len(options):
                raise InputError(where, f"{name}, options", "repeat a text", "options that differ")
            if not all(options):
                raise InputError(where, f"{name}, options", "hold an empty one", "options with a text")
            for key in ("answer", "stale_answer"):
                label = item[key]
                if label is not None and label not in labels(len(options)):
                    raise InputError(where, f"{name}, {key}", f"{label[:20]!r} is none of its options", labels(len(options)))
        given = [item[key] is not None for key in ("revised_question", "update", "stale_answer")]
        if any(given) and not all(given):
            raise InputError(where, f"{name}, update", "is incomplete", "revised_question, update and stale_answer, or none of them")
        if all(given) and item["stale_answer"] == item["answer"]:
            raise InputError(where, f"{name}, stale_answer", "equals the answer: the update changes nothing", "another answer")


def draw(frame: pl.DataFrame, n: int | None, seed: int) -> pl.DataFrame:
    """A seeded draw of ``n`` items in which the draw for a smaller ``n`` is contained."""
    order = sorted(range(len(frame)), key=lambda row: stable_hash("draw", seed, frame["item_id"][row]))
    return frame[order] if n is None else frame[order[:n]]
