"""Stage 1: items of a benchmark: loaded or generated, unusable ones left out with a reason, options ordered, drawn."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from midtrace import tables
from midtrace.config import REVISED
from midtrace.errors import InputError, require_filled
from midtrace.loaders import LOADERS, Loader, UnusableError, sources
from midtrace.loaders.draw import draw
from midtrace.prompts import labels
from midtrace.seeds import stable_hash

MAX_OPTIONS = 10


NAMED = 5  # excluded rows that a message names


class TooFewItemsError(InputError):
    """A source without the items that are asked for. ``excluded`` are its rows that are none (:class:`midtrace.tables.Excluded`)."""

    def __init__(self, where: object, field: str, problem: str, allowed: str, excluded: list[dict[str, Any]]):
        named = ", ".join(f"row {row['row']} ({row['reason']})" for row in excluded[:NAMED])
        more = ", ..." if len(excluded) > NAMED else ""
        super().__init__(where, field, f"{problem} ({len(excluded)} excluded: {named}{more})" if excluded else problem, allowed)
        self.excluded, self.allowed = tables.frame_of(excluded, tables.Excluded), allowed


@dataclass(frozen=True)
class Benchmark:
    """The items that a study draws, and what became of the rest of the source.

    Attributes
    ----------
    items
        The items drawn, in the order of the draw (:class:`midtrace.tables.Items`).
    excluded
        Rows that are no items, with reasons (:class:`midtrace.tables.Excluded`).
    facts
        For the metadata: ``rows`` read, ``usable`` and ``drawn`` items, ``excluded`` rows by reason.
    """

    items: pl.DataFrame
    excluded: pl.DataFrame
    facts: dict[str, Any]


def run(items: str | Path, excluded: str | Path, tests: str | Path, study: str, settings: Mapping[str, Any]) -> None:
    """Write the items of a benchmark, what is none, and the tests of code items.

    Parameters
    ----------
    items, excluded, tests
        The files to write: ``items/{benchmark}.parquet``, ``.excluded.parquet`` and ``.tests.parquet`` (without rows, except for code).
    study
        Name of the study, for the metadata.
    settings
        See :func:`midtrace.config.items_settings`.
    """
    entry = settings["benchmark"]
    # What was left out can be read even if nothing comes of it: Snakemake removes the outputs of a job that fails, and this is none.
    left_out = Path(excluded).with_suffix(".csv")
    try:
        found = gather(entry, settings["seed"])
    except TooFewItemsError as error:
        if error.excluded.is_empty():
            raise
        with tables.whole(left_out) as temporary:
            error.excluded.write_csv(temporary)
        raise InputError(error.where, error.field, f"{error.problem}; all of them: {left_out}", error.allowed) from None
    left_out.unlink(missing_ok=True)
    meta = tables.metadata("items", study, settings, source=found.facts)
    drawn = revised(found.items, items) if settings.get("view") == "revised" else found.items
    tables.write(found.excluded, excluded, tables.Excluded, meta, expect_rows=False)
    _write_tests(drawn, tests, entry, meta)
    tables.write(drawn, items, tables.Items, meta)


def load(benchmark: Mapping[str, Any], seed: int) -> pl.DataFrame:
    """The items that a benchmark entry draws; see :func:`gather`."""
    return gather(benchmark, seed).items


def gather(benchmark: Mapping[str, Any], seed: int) -> Benchmark:
    """Read a benchmark, leave out what cannot be used, order the options, draw.

    Parameters
    ----------
    benchmark
        Its entry in the config, with its ``name``.
    seed
        Base seed of the study.

    Raises
    ------
    InputError
        If the source cannot be read, has no usable item, repeats an id, or has fewer usable items than the draw asks for.
    """
    loader = LOADERS[benchmark["loader"]]
    if loader.generate:
        made = tables.frame_of(loader.generate(benchmark, seed), tables.Items)
        return Benchmark(made, tables.frame_of([], tables.Excluded), _facts(len(made), made, made, []))
    for field, source in (("", benchmark), (".tests", benchmark["tests"])):
        if source["path"] and sources.is_remote(source["path"]):
            require_filled(source["revision"], "config", f"benchmarks.{benchmark['name']}{field}.revision", f"the commit of {source['path']} to read")
    items, excluded, n_rows = _read(loader, benchmark)
    if not items:
        most = Counter(row["reason"] for row in excluded).most_common(1)
        why = f"no usable row among {len(excluded)}, most often because: {most[0][0]}" if most else "none"
        raise TooFewItemsError(benchmark["path"], "items", why, "at least 1", excluded)
    if loader.shuffled if benchmark["shuffle"] is None else benchmark["shuffle"]:
        for item in items:
            shuffle(item)
    usable = tables.frame_of(items, tables.Items)
    if benchmark["n"] is not None and benchmark["n"] > len(usable):
        problem = f"is {benchmark['n']}, but the usable items of {benchmark['path']} are {len(usable)}"
        allowed = f"at most {len(usable)}, or null for all"
        raise TooFewItemsError("config", f"benchmarks.{benchmark['name']}.n", problem, allowed, excluded)
    drawn = draw(usable, benchmark["n"], seed, benchmark["strata"])
    return Benchmark(drawn, tables.frame_of(excluded, tables.Excluded), _facts(n_rows, usable, drawn, excluded))


def _facts(n_rows: int, usable: pl.DataFrame, drawn: pl.DataFrame, excluded: list[dict[str, Any]]) -> dict[str, Any]:
    reasons = Counter(row["reason"] for row in excluded)
    return {"rows": n_rows, "usable": len(usable), "drawn": len(drawn), "excluded": dict(sorted(reasons.items()))}


def _read(loader: Loader, benchmark: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
    """Usable items, excluded rows and the number of rows of a source."""
    name, keep = benchmark["name"], benchmark["keep"]
    items: list[dict[str, Any]] = []
    excluded: list[dict[str, Any]] = []
    places: dict[str, int] = {}  # item id -> its row
    strata: set[str] = set()
    n_rows = 0
    assert loader.item is not None
    for number, row in loader.rows(benchmark):
        n_rows += 1
        stratum = loader.stratum(row, benchmark)
        strata.add(stratum)
        if keep and stratum not in keep:
            continue
        source_id = loader.source_id(row, benchmark)
        if not source_id:
            raise InputError(benchmark["path"], f"row {number}, {loader.id_column(benchmark)}", "is empty", "some text")
        item_id = f"{name}/{source_id}"
        own = {"item_id": item_id, "benchmark": name, "stratum": stratum, "answer_kind": benchmark["answer_kind"]}
        try:
            item = {"options": [], "revised_question": None, "update": None, "stale_answer": None, **own, **loader.item(row, benchmark)}
        except UnusableError as reason:
            excluded.append({"row": number, "item_id": item_id, "reason": str(reason)})
            continue
        except (AttributeError, TypeError):  # a list where text should be, and the like
            excluded.append({"row": number, "item_id": item_id, "reason": "a value of another type than the source has"})
            continue
        item["options"] = ["" if option is None else option.strip() for option in item["options"] or []]
        items.append(item)
        if item_id in places and loader.id_column(benchmark) is not None:
            raise InputError(benchmark["path"], "id", f"{item_id!r} stands in rows {places[item_id]} and {number}", "each id once")
        places.setdefault(item_id, number)
        item["row"] = number
    unknown = [stratum for stratum in keep if stratum not in strata]
    if unknown:
        raise InputError("config", f"benchmarks.{name}.keep", f"{unknown[0]!r} is no stratum of {benchmark['path']}", sorted(strata))
    loader.finish(items, benchmark)
    reasons = {item["row"]: problem(item, loader.repeats) for item in items} | _repetitions(items)
    excluded += [{"row": item["row"], "item_id": item["item_id"], "reason": reasons[item["row"]]} for item in items if reasons[item["row"]]]
    usable = [{key: value for key, value in item.items() if key != "row"} for item in items if not reasons[item["row"]]]
    return usable, sorted(excluded, key=lambda row: row["row"]), n_rows


def _repetitions(items: list[dict[str, Any]]) -> dict[int, str]:
    """Rows of a source without ids that ask a question again. If their answers differ none is used: a place in the file is no reason."""
    by_id = defaultdict(list)
    for item in items:
        by_id[item["item_id"]].append(item)
    found: dict[int, str] = {}
    for first, *others in by_id.values():
        if any((other["answer"], other["options"]) != (first["answer"], first["options"]) for other in others):
            found |= {item["row"]: "its question stands in other rows with another answer" for item in (first, *others)}
        else:
            found |= {item["row"]: "its question stands in a row before" for item in others}
    return found


def problem(item: Mapping[str, Any], repeats: bool = False) -> str | None:
    """Why no study can use an item; None if it can. It never quotes the item, whose text may be gated.

    Parameters
    ----------
    item
        As a row of the items table.
    repeats
        Whether options may repeat a text.
    """
    options = item["options"]
    if item["answer_kind"] == "choice":
        if not 2 <= len(options) <= MAX_OPTIONS:
            return f"{len(options)} option{'' if len(options) == 1 else 's'}, where 2 to {MAX_OPTIONS} are allowed"
        if not all(options):
            return "an empty option"
        if len(set(options)) < len(options) and not repeats:
            return "two options with the same text"
        for key in ("answer", "stale_answer"):
            if item[key] is not None and item[key] not in labels(len(options)):
                return f"its {key} is none of its options"
    if (item["revised_question"] is None) != (item["update"] is None) or (item["stale_answer"] is not None and item["update"] is None):
        return "revised_question and update are not both there"
    if item["stale_answer"] is not None and item["stale_answer"] == item["answer"]:
        return "its stale_answer equals its answer: the update changes nothing"
    return None


def shuffle(item: dict[str, Any]) -> None:
    """Put the options of an item in an order of its own, and move its answers along.

    The order is one of hashes of (id within the source, text of the option): the same in every study, whatever else the source holds and in
    whatever order the source has items and options.
    """
    own = item["item_id"].split("/", 1)[1]
    options = item["options"]
    order = sorted(range(len(options)), key=lambda k: (stable_hash("options", own, options[k]), k))
    item["options"] = [options[k] for k in order]
    names = labels(len(options))
    for key in ("answer", "stale_answer"):
        if item[key] is not None:
            item[key] = names[order.index(names.index(item[key]))]


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
        The same items with ``revised_question`` as their question and ``stale_answer`` as its right answer (null where the source does not
        say); ids start with the new name.

    Raises
    ------
    InputError
        If an item has no update.
    """
    without = frame.filter(pl.col("update").is_null())
    if len(without):
        raise InputError(where, f"item {without['item_id'][0]}, update", "missing", "items that all have revised_question and update")
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


def _write_tests(drawn: pl.DataFrame, path: str | Path, benchmark: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
    """The tests of the items drawn, a problem at a time: they may have gigabytes."""
    tests_of = LOADERS[benchmark["loader"]].tests
    if benchmark["answer_kind"] != "code" or tests_of is None:
        tables.write(tables.frame_of([], tables.ItemTests), path, tables.ItemTests, meta, expect_rows=False)
        return
    missing = {item_id.split("/", 1)[1]: item_id for item_id in drawn["item_id"]}

    def parts() -> Iterator[pl.DataFrame]:
        for name, tests in tests_of(benchmark, list(missing)):
            item_id = missing.pop(name)
            yield tables.frame_of([{"item_id": item_id, **test} for test in tests], tables.ItemTests)
        if missing:
            raise InputError(
                benchmark["path"], f"item {next(iter(missing.values()))}", "has lost its tests", "a source that does not change as it is read"
            )

    tables.write_parts(parts(), path, tables.ItemTests, lambda: meta)
