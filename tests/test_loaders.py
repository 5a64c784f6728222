"""Loaders: made-up files in the format of each source; what is read, what is left out and why, what is refused."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from helpers.builders import benchmark_entry

from midtrace import items, tables
from midtrace.config.settings import file_hash, source_hash
from midtrace.errors import InputError
from midtrace.loaders import LOADERS, sources
from midtrace.prompts import labels

Row = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """Rows of a made-up source, the items that they are (question -> gold text), and rows that are none with the reasons."""

    loader: str
    suffix: str
    rows: list[Row]
    golds: dict[str, str]
    unusable: dict[str, Row]
    kind: str = "choice"
    strata: set[str] = field(default_factory=lambda: {"all"})


def _mmlu(number: int, **values: Any) -> Row:
    row = {"question_id": number, "question": f"q{number}", "options": ["w", "x", "y"], "answer": "B", "answer_index": 1}
    return {**row, "cot_content": "", "category": ["law", "math"][number % 2], "src": "made up", **values}


def _gpqa(number: int, **values: Any) -> Row:
    wrong = {f"Incorrect Answer {k}": f"wrong {k}" for k in (1, 2, 3)}
    row = {"Record ID": f"rec{number}", "Question": f"q{number}", "Correct Answer": f"right {number}", **wrong}
    return {**row, "High-level domain": "Physics", "Subdomain": "made up", **values}


def _aqua(number: int, **values: Any) -> Row:
    return {"question": f"q{number}", "options": ["A)1", "B)2", "C )3", "D)4", "E) 5 "], "rationale": "", "correct": "C", **values}


def _math(number: int, **values: Any) -> Row:
    row = {"problem": f"q{number}", "solution": "", "answer": r"\frac{1}{2}", "subject": "Algebra", "level": 2}
    return {**row, "unique_id": f"test/algebra/{number}.json", **values}


def _omni(number: int, **values: Any) -> Row:
    domain = ["Mathematics -> Algebra -> Equations", "Mathematics -> Number Theory"]
    return {"domain": domain, "difficulty": 4.5, "problem": f"q{number}", "solution": "", "answer": "7", "source": "made up", **values}


SOURCES = [
    Source(
        "mmlu_pro",
        ".parquet",
        [_mmlu(k) for k in range(4)],
        {f"q{k}": "x" for k in range(4)},
        {
            "1 option, where 2 to 10 are allowed": _mmlu(9, options=["w"], answer="A", answer_index=0),
            "answer and answer_index disagree": _mmlu(9, answer_index=2),
            "no question": _mmlu(9, question=" "),
            "two options with the same text": _mmlu(9, options=["w", "x", "w"]),
            "its answer is none of its options": _mmlu(9, answer="D", answer_index=3),
        },
        strata={"law", "math"},
    ),
    Source(
        "gpqa",
        ".csv",
        [_gpqa(k) for k in range(6)],
        {f"q{k}": f"right {k}" for k in range(6)},
        {
            "no Incorrect Answer 2": _gpqa(9, **{"Incorrect Answer 2": ""}),
            "two options with the same text": _gpqa(9, **{"Incorrect Answer 2": "right 9"}),
        },
        strata={"Physics"},
    ),
    Source(
        "aqua_rat",
        ".jsonl",
        [_aqua(0), _aqua(1, options=["A)7", "B)7", "C)8", "D)9", "E)9"], correct="E")],
        {"q0": "3", "q1": "9"},
        {
            "options are not lettered in order": _aqua(9, options=["A)1", "C)2", "B)3", "D)4", "E)5"]),
            "an empty option": _aqua(9, options=["A)1", "B)", "C)3", "D)4", "E)5"]),
            "its answer is none of its options": _aqua(9, correct="F"),
        },
    ),
    Source(
        "gsm8k",
        ".jsonl",
        [{"question": "q0", "answer": "2 + 2 = <<2+2=4>>4\n#### 4"}, {"question": "q1", "answer": "many\n#### $1,234"}],
        {"q0": "4", "q1": "1234"},
        {
            "no gold answer after ####": {"question": "q9", "answer": "4"},
            "the gold answer is no number": {"question": "q9", "answer": "#### four"},
            "no question": {"question": "", "answer": "#### 4"},
        },
        kind="math",
    ),
    Source(
        "math_500",
        ".jsonl",
        [_math(0), _math(1, answer="7", subject="Geometry")],
        {"q0": r"\frac{1}{2}", "q1": "7"},
        {"no answer": _math(9, answer="")},
        kind="math",
        strata={"Algebra", "Geometry"},
    ),
    Source(
        "aime_2024",
        ".parquet",
        [{"id": k, "problem": f"q{k}", "solution": rf"so $\boxed{{0{k}3}}$", "url": ""} for k in range(3)],
        {"q0": "3", "q1": "13", "q2": "23"},
        {
            r"no gold answer in \boxed{}": {"id": 9, "problem": "q9", "solution": "073", "url": ""},
            "the gold answer is no whole number from 0 to 999": {"id": 9, "problem": "q9", "solution": r"\boxed{1000}", "url": ""},
        },
        kind="math",
    ),
    Source(
        "aime_2025",
        ".jsonl",
        [{"problem": f"q{k}", "answer": f"0{k}", "id": str(k)} for k in range(3)],
        {"q0": "0", "q1": "1", "q2": "2"},
        {"the gold answer is no whole number from 0 to 999": {"problem": "q9", "answer": "-1", "id": "9"}},
        kind="math",
    ),
    Source(
        "omni_math",
        ".jsonl",
        [_omni(0), _omni(1, domain=["Geometry"])],
        {"q0": "7", "q1": "7"},
        {"no answer": _omni(9, answer=""), "no problem": _omni(9, problem="")},
        kind="math",
        strata={"Algebra", "Geometry"},
    ),
    Source(
        "omni_math_2",
        ".jsonl",
        [_omni(0, tags=[]), _omni(1, tags=[])],
        {"q0": "7", "q1": "7"},
        {"tagged image, proof": _omni(9, tags=["proof", "image"]), "no answer": _omni(9, answer="", tags=[])},
        kind="math",
        strata={"Algebra"},
    ),
    Source(
        "interrupt_updates",
        ".parquet",
        [
            {"id": k, "source": source, "original_problem": f"q{k}", "original_answer": answer, "revised_problem": "r", "update": "u"}
            for k, (source, answer) in enumerate([("gsm8k", "so\n#### 1,018"), ("math500", r"\frac{1}{2}"), ("aime2024", r"\boxed{042}")])
        ],
        {"q0": "1018", "q1": r"\frac{1}{2}", "q2": "042"},
        {
            "no update": {"id": 9, "source": "gsm8k", "original_problem": "q9", "original_answer": "1", "revised_problem": "r", "update": ""},
            "no original_answer": {
                "id": 9,
                "source": "gsm8k",
                "original_problem": "q9",
                "original_answer": None,
                "revised_problem": "r",
                "update": "u",
            },
        },
        kind="math",
        strata={"gsm8k", "math500", "aime2024"},
    ),
]
EACH = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.loader)


def save(rows: list[Row], path: Path) -> Path:
    frame = pl.DataFrame(rows, infer_schema_length=None)
    {".parquet": frame.write_parquet, ".csv": frame.write_csv, ".jsonl": frame.write_ndjson}[path.suffix](path)
    return path


def gather(source: Source, rows: list[Row], folder: Path, **values: Any) -> items.Benchmark:
    path = save(rows, folder / f"a{source.suffix}")
    return items.gather(benchmark_entry(source.loader, path, source.kind, **values), 0)


def gold_texts(frame: pl.DataFrame) -> dict[str, str]:
    return {
        row["question"]: row["options"][labels(26).index(row["answer"])] if row["options"] else row["answer"] for row in frame.iter_rows(named=True)
    }


@EACH
def test_all_rows_of_a_source_are_items(tmp_path, source):
    found = gather(source, source.rows, tmp_path)
    assert gold_texts(found.items) == source.golds
    assert set(found.items["stratum"]) == source.strata
    assert set(found.items["answer_kind"]) == {source.kind}
    assert found.excluded.is_empty()
    assert found.facts == {"rows": len(source.rows), "usable": len(source.rows), "drawn": len(source.rows), "excluded": {}}
    assert tables.conform(found.items, tables.Items, "items").equals(found.items)


@EACH
def test_what_is_no_item_is_left_out_with_its_reason(tmp_path, source):
    for reason, row in source.unusable.items():
        found = gather(source, [source.rows[0], row, *source.rows[1:]], tmp_path)
        assert found.excluded.select("row", "reason").rows() == [(2, reason)]
        assert found.facts["excluded"] == {reason: 1}
        assert gold_texts(found.items) == source.golds


@EACH
def test_ids_and_orders_of_options_belong_to_the_item(tmp_path, source):
    whole = gather(source, source.rows, tmp_path).items
    part = gather(source, source.rows[::-2], tmp_path).items
    by_id = {row["item_id"]: row for row in whole.iter_rows(named=True)}
    assert len(part) == len(source.rows[::-2])
    assert [by_id[row["item_id"]] for row in part.iter_rows(named=True)] == part.to_dicts()
    order = [name for name in whole["item_id"] if name in set(part["item_id"])]
    assert part["item_id"].to_list() == order


@EACH
def test_a_missing_column_is_named(tmp_path, source):
    entry = benchmark_entry(source.loader, "a", source.kind)
    needed = LOADERS[source.loader].columns(entry)
    assert set(needed) <= set(source.rows[0])
    for column in needed:
        rows = [{key: value for key, value in row.items() if key != column} for row in source.rows]
        with pytest.raises(InputError, match=rf"a\{source.suffix}: column {column!r}: missing; allowed: .+") as caught:
            gather(source, rows, tmp_path)
        assert "q0" not in str(caught.value)


@EACH
def test_a_column_of_another_type_is_named(tmp_path, source):
    if source.suffix == ".csv":
        return  # all of its columns are texts
    entry = benchmark_entry(source.loader, "a", source.kind)
    for column, types in LOADERS[source.loader].columns(entry).items():
        if types:
            rows = [{**row, column: 1.5} for row in source.rows]
            with pytest.raises(InputError, match=rf"column {column!r}: is (Float64|a number in row 1); allowed: (String|Int8|List\(String\)).*"):
                gather(source, rows, tmp_path)


@EACH
def test_an_empty_source_is_refused(tmp_path, source):
    path = tmp_path / f"a{source.suffix}"
    path.write_text("")
    with pytest.raises(InputError, match=r"a\.\w+: file: cannot be read \(.+\); allowed: a Parquet, JSON Lines or CSV file"):
        items.gather(benchmark_entry(source.loader, path, source.kind), 0)
    if source.suffix == ".parquet":
        pl.DataFrame(source.rows).clear().write_parquet(path)
        with pytest.raises(InputError, match="items: none; allowed: at least 1"):
            items.gather(benchmark_entry(source.loader, path, source.kind), 0)


@EACH
def test_a_repeated_row(tmp_path, source):
    rows = [*source.rows, source.rows[0]]
    if source.loader in ("aqua_rat", "gsm8k", "omni_math", "omni_math_2"):  # they have no ids: the question is one
        found = gather(source, rows, tmp_path)
        assert found.excluded.select("row", "reason").rows() == [(len(rows), "its question stands in a row before")]
        assert gold_texts(found.items) == source.golds
    else:
        with pytest.raises(InputError, match=rf"id: 'toy/.+' stands in rows 1 and {len(rows)}; allowed: each id once"):
            gather(source, rows, tmp_path)


def test_a_question_with_two_golds_is_none(tmp_path):
    source = next(source for source in SOURCES if source.loader == "gsm8k")
    other = {"question": "q0", "answer": "#### 5"}
    for rows in ([*source.rows, other], [other, *source.rows]):
        found = gather(source, rows, tmp_path)
        assert set(found.excluded["reason"]) == {"its question stands in other rows with another answer"}
        assert len(found.excluded) == 2 and gold_texts(found.items) == {"q1": "1234"}


def test_several_files_are_one_source(tmp_path):
    for k in range(3):
        save([_mmlu(k)], tmp_path / f"test-{k}.parquet")
    found = items.gather(benchmark_entry("mmlu_pro", tmp_path / "test-*.parquet"), 0)
    assert sorted(found.items["item_id"]) == ["toy/0", "toy/1", "toy/2"]


@pytest.mark.parametrize("ext", ["parquet", "jsonl"])
def test_a_name_that_looks_like_a_pattern(tmp_path, ext):
    save([_mmlu(0)], tmp_path / f"test[1].{ext}")
    save([_mmlu(1)], tmp_path / f"test1.{ext}")
    assert items.load(benchmark_entry("mmlu_pro", tmp_path / f"test[1].{ext}"), 0)["item_id"].to_list() == ["toy/0"]


def test_strata_to_keep(tmp_path):
    source = SOURCES[0]
    found = gather(source, source.rows, tmp_path, keep=["law"])
    assert sorted(found.items["question"]) == ["q0", "q2"] and found.facts["rows"] == 4
    with pytest.raises(InputError, match=r"benchmarks.toy.keep: 'art' is no stratum of .*a.parquet; allowed: law, math"):
        gather(source, source.rows, tmp_path, keep=["law", "art"])


# Option order.


def test_gpqa_does_not_always_have_the_right_option_first(tmp_path):
    source = SOURCES[1]
    frame = gather(source, [_gpqa(k) for k in range(400)], tmp_path).items
    counts = dict(frame["answer"].value_counts().iter_rows())
    assert set(counts) == set("ABCD") and min(counts.values()) > 60
    for row in frame.iter_rows(named=True):
        assert row["options"][labels(4).index(row["answer"])] == row["question"].replace("q", "right ")


@pytest.mark.parametrize("shuffle", [None, False, True])
def test_options_stay_as_they_are_unless_told(tmp_path, shuffle):
    source = SOURCES[0]
    rows = [_mmlu(k, options=list("abcdefghij"), answer="J", answer_index=9) for k in range(20)]
    frame = gather(source, rows, tmp_path, shuffle=shuffle).items
    assert set(gold_texts(frame).values()) == {"j"}
    assert (set(frame["answer"]) == {"J"}) is (shuffle is not True)
    assert all(sorted(options) == list("abcdefghij") for options in frame["options"])


def test_an_order_hangs_on_nothing_but_the_item(tmp_path):
    rows = [_mmlu(k, options=list("abcdefghij"), answer="J", answer_index=9) for k in range(20)]
    other = [{**row, "options": row["options"][::-1], "answer": "A", "answer_index": 0} for row in rows]
    path = save(rows, tmp_path / "a.parquet")
    first = items.gather(benchmark_entry("mmlu_pro", path, shuffle=True), 0).items
    again = items.gather({**benchmark_entry("mmlu_pro", save(other, tmp_path / "b.parquet"), shuffle=True), "name": "other"}, 5).items
    assert dict(first.select("question", "options").iter_rows()) == dict(again.select("question", "options").iter_rows())


# Sources on the hub.


@pytest.mark.parametrize("loader", ["mmlu_pro", "gpqa"])
def test_a_source_that_cannot_be_reached_says_what_to_do(monkeypatch, loader):
    asked = []

    def fail(name: str) -> pl.DataFrame:
        asked.append(name)
        raise OSError("error sending request\nwith a second line")

    path = {"mmlu_pro": "hf://datasets/TIGER-Lab/MMLU-Pro/data/test.parquet", "gpqa": "hf://datasets/Idavidrein/gpqa/gpqa_diamond.csv"}[loader]
    monkeypatch.setitem(sources.READERS, Path(path).suffix, fail)
    entry = benchmark_entry(loader, path, revision="0123456789" * 4)
    with pytest.raises(InputError) as caught:
        items.gather(entry, 0)
    message = str(caught.value)
    assert asked == [path.replace("/MMLU-Pro/", "/MMLU-Pro@" + "0123456789" * 4 + "/").replace("/gpqa/", "/gpqa@" + "0123456789" * 4 + "/")]
    assert message.startswith(f"{path}: source: cannot be read (error sending request); allowed: ")
    assert "HF_TOKEN" in message and "path of a downloaded file" in message and "\n" not in message


def test_a_source_on_the_hub_is_read_at_its_revision(tmp_path, monkeypatch):
    local = save([_mmlu(k) for k in range(3)], tmp_path / "a.parquet")
    monkeypatch.setitem(sources.READERS, ".parquet", lambda name: pl.read_parquet(local))
    entry = benchmark_entry("mmlu_pro", "hf://datasets/a/b/test.parquet", revision="f" * 40)
    assert len(items.gather(entry, 0).items) == 3
    assert source_hash(entry["path"], entry["revision"]) == "f" * 40


def test_a_change_of_a_local_source_is_seen(tmp_path):
    path = save([_mmlu(0)], tmp_path / "a.parquet")
    before = source_hash(str(path), None)
    save([_mmlu(1)], path)
    file_hash.cache_clear()
    assert source_hash(str(path), None) != before
