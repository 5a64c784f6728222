"""Items: loaders, refusals, draws, generated chains."""

import json
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from helpers.builders import benchmark_entry, item_files

from midtrace import items, tables
from midtrace.chains import Chain, is_held_out
from midtrace.errors import InputError

GOOD = [
    {"id": "1", "question": "Q1?", "options": ["w", "x", "y"], "answer": "B"},
    {"id": "2", "question": "Q2?", "options": ["u", "v"], "answer": "A"},
]


def benchmark(path: Path | None = None, **values) -> dict:
    return {**benchmark_entry("file", path), **values}


def save(rows: list[dict], path: Path) -> Path:
    if path.suffix == ".parquet":
        pl.DataFrame(rows).write_parquet(path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        joined = [{**row, "options": " | ".join(row["options"])} if isinstance(row.get("options"), list) else row for row in rows]
        pl.DataFrame(joined).write_csv(path)
    return path


@pytest.fixture(params=["parquet", "jsonl", "csv"])
def suffix(request) -> str:
    return request.param


def refused(path: Path, match: str, **values) -> None:
    with pytest.raises(InputError, match=match) as caught:
        items.load(benchmark(path, **values), 0)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_three_formats_give_the_same_items(tmp_path, suffix):
    frame = items.load(benchmark(save(GOOD, tmp_path / f"a.{suffix}")), 0).sort("item_id")
    assert tables.conform(frame, tables.Items, "items").columns == tables.Items.column_names()
    assert frame["item_id"].to_list() == ["toy/1", "toy/2"]
    assert frame["options"].to_list() == [["w", "x", "y"], ["u", "v"]]
    assert frame["answer"].to_list() == ["B", "A"]
    assert frame["stratum"].to_list() == ["all", "all"]
    assert frame["stale_answer"].to_list() == [None, None]


def test_columns_of_other_names(tmp_path, suffix):
    rows = [{"qid": 7, "text": " Q? ", "choices": ["x", "y"], "gold": "y", "kind": "easy"}]
    path = save(rows, tmp_path / f"a.{suffix}") if suffix != "csv" else save([{**rows[0], "choices": "P(x|y) | y"}], tmp_path / "a.csv")
    columns = {"id": "qid", "question": "text", "options": "choices", "answer": "gold", "stratum": "kind"}
    row = items.load(benchmark(path, columns=columns), 0).row(0, named=True)
    assert (row["item_id"], row["question"], row["answer"], row["stratum"]) == ("toy/7", "Q?", "B", "easy")


def test_texts_stay_as_they_are(tmp_path):
    rows = [{"id": "007", "question": "2+2=5", "answer": "true"}, {"id": "07", "question": "1", "answer": "1.50"}]
    frame = items.load(benchmark(save(rows, tmp_path / "a.csv"), answer_kind="math"), 0).sort("item_id")
    assert frame.select("item_id", "question", "answer").rows() == [("toy/007", "2+2=5", "true"), ("toy/07", "1", "1.50")]


def test_types_that_change_late_in_a_file(tmp_path):
    rows = [{"id": k, "question": "Q?", "answer": k} for k in range(300)] + [{"id": "last", "question": "Q?", "answer": "x"}]
    frame = items.load(benchmark(save(rows, tmp_path / "a.jsonl"), answer_kind="math"), 0)
    assert {"toy/299", "toy/last"} <= set(frame["item_id"])


def test_answers_as_texts(tmp_path, suffix):
    rows = [{**GOOD[0], "answer": "x"}, {**GOOD[1], "answer": "v"}]
    frame = items.load(benchmark(save(rows, tmp_path / f"a.{suffix}")), 0).sort("item_id")
    assert frame["answer"].to_list() == ["B", "B"]


def test_labels_and_texts_are_told_apart_by_the_whole_column(tmp_path):
    # The options are chemical elements: "B" is the second text of the first item.
    rows = [{**GOOD[0], "options": ["C", "B", "N"], "answer": "B"}, {**GOOD[1], "options": ["He", "C"], "answer": "A"}]
    assert items.load(benchmark(save(rows, tmp_path / "labels.jsonl")), 0).sort("item_id")["answer"].to_list() == ["B", "A"]
    rows = [{**rows[0], "answer": "C"}, {**rows[1], "answer": "He"}]
    assert items.load(benchmark(save(rows, tmp_path / "texts.jsonl")), 0).sort("item_id")["answer"].to_list() == ["A", "A"]


def excluded(path: Path, **values) -> list[tuple[int, str, str]]:
    """Row, id and reason of what is left out, where one row at least is usable."""
    found = items.gather(benchmark(path, **values), 0)
    assert found.facts["rows"] == found.facts["usable"] + len(found.excluded)
    return found.excluded.select("row", "item_id", "reason").rows()


UNUSABLE = [
    ({"answer": "D"}, "its answer is none of its options"),
    ({"answer": "nothing"}, "its answer is none of its options"),
    ({"answer": "b"}, "its answer is none of its options"),
    ({"options": ["x", "x", "y"]}, "two options with the same text"),
    ({"options": ["x"], "answer": "A"}, "1 option, where 2 to 10 are allowed"),
    ({"options": [f"o{k}" for k in range(11)]}, "11 options, where 2 to 10 are allowed"),
    ({"options": ["x", " ", "y"]}, "an empty option"),
    ({"question": "  "}, "no question"),
    ({"answer": None}, "no answer"),
]


@pytest.mark.parametrize(("change", "reason"), UNUSABLE)
def test_unusable_rows_are_left_out_with_a_reason(tmp_path, suffix, change, reason):
    path = save([{**GOOD[0], **change}, GOOD[1]], tmp_path / f"a.{suffix}")
    assert excluded(path) == [(1, "toy/1", reason)]
    assert items.load(benchmark(path), 0)["item_id"].to_list() == ["toy/2"]


@pytest.mark.parametrize(("change", "reason"), UNUSABLE)
def test_a_source_without_usable_rows_is_refused(tmp_path, change, reason):
    rows = [{**GOOD[0], **change, "id": k} for k in range(3)]
    refused(
        save(rows, tmp_path / "a.jsonl"), f"items: no usable row among 3, most often because: {reason} \\(3 excluded: row 1 .+; allowed: at least 1"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "2"}, r"id: 'toy/2' stands in rows 1 and 2; allowed: each id once"),
        ({"id": None}, r"row 1, id: is empty; allowed: some text"),
    ],
)
def test_bad_ids_are_refused(tmp_path, suffix, change, message):
    refused(save([{**GOOD[0], **change}, GOOD[1]], tmp_path / f"a.{suffix}"), message)


def test_more_items_than_there_are_is_refused(tmp_path):
    path = save([*GOOD, {**GOOD[0], "id": "3", "answer": "Z"}], tmp_path / "a.jsonl")
    assert len(items.load(benchmark(path, n=2), 0)) == 2
    left_out = r"1 excluded: row 3 \(its answer is none of its options\)"
    message = rf"benchmarks.toy.n: is 3, but the usable items of .*a.jsonl are 2 \({left_out}\); allowed: at most 2, or null for all"
    with pytest.raises(InputError, match=message):
        items.load(benchmark(path, n=3), 0)


def test_labels_in_some_rows_and_texts_in_others_are_refused(tmp_path):
    rows = [{**GOOD[0], "answer": "B"}, {**GOOD[1], "answer": "v"}]
    refused(save(rows, tmp_path / "a.jsonl"), "answer: is a label for toy/1 and the text of an option for toy/2; allowed: one of the two in all rows")


@pytest.mark.parametrize("ext", ["parquet", "jsonl"])
@pytest.mark.parametrize("options", [[], None])
def test_no_options(tmp_path, ext, options):
    path = save([{**GOOD[0], "options": options}, GOOD[1]], tmp_path / f"a.{ext}")
    assert excluded(path) == [(1, "toy/1", "0 options, where 2 to 10 are allowed")]


def test_a_null_among_the_options(tmp_path):
    path = save([{**GOOD[0], "options": ["x", None, "z"]}, GOOD[1]], tmp_path / "a.jsonl")
    assert excluded(path) == [(1, "toy/1", "an empty option")]


def test_options_that_are_no_list(tmp_path):
    refused(save([{**GOOD[0], "options": 3}], tmp_path / "a.jsonl"), r"column 'options': is int; allowed: lists of texts")


@pytest.mark.parametrize("column", ["id", "question", "options", "answer"])
def test_a_missing_column(tmp_path, suffix, column):
    rows = [{key: value for key, value in row.items() if key != column} for row in GOOD]
    others = ", ".join(key for key in GOOD[0] if key != column)
    refused(save(rows, tmp_path / f"a.{suffix}"), rf"column '{column}': missing; allowed: {others}")


def test_free_form_items_need_no_options(tmp_path, suffix):
    rows = [{"id": "1", "question": "6 x 7?", "answer": "42"}]
    row = items.load(benchmark(save(rows, tmp_path / f"a.{suffix}"), answer_kind="math"), 0).row(0, named=True)
    assert (row["options"], row["answer"]) == ([], "42")


def test_files_that_cannot_be_read(tmp_path):
    for ext in ("parquet", "jsonl", "csv"):
        path = tmp_path / f"empty.{ext}"
        path.write_text("")
        refused(path, r"file: cannot be read \(.+\); allowed: a Parquet, JSON Lines or CSV file")
    corrupt = tmp_path / "a.parquet"
    corrupt.write_bytes(b"PAR1 no")
    refused(corrupt, "cannot be read")
    broken = tmp_path / "a.jsonl"
    broken.write_text('{"id": 1,\n')
    refused(broken, "cannot be read")
    other = tmp_path / "a.xlsx"
    other.write_text("x")
    refused(other, r"file: ends in '\.xlsx'; allowed: \.parquet, \.jsonl, \.csv")


def test_a_file_without_rows(tmp_path):
    pl.DataFrame(GOOD).clear().write_parquet(tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", "items: none; allowed: at least 1")


UPDATE = {"revised_question": "R?", "update": "U.", "stale_answer": "A"}


def test_update_items(tmp_path, suffix):
    rows = [{**GOOD[0], **UPDATE}, {**GOOD[1], **dict.fromkeys(UPDATE)}]
    frame = items.load(benchmark(save(rows, tmp_path / f"a.{suffix}")), 0).sort("item_id")
    assert frame["stale_answer"].to_list() == ["A", None]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"stale_answer": "B"}, "its stale_answer equals its answer: the update changes nothing"),
        ({"stale_answer": " B "}, "its stale_answer equals its answer: the update changes nothing"),
        ({"stale_answer": "x"}, "its stale_answer equals its answer: the update changes nothing"),
        ({"stale_answer": "E"}, "its stale_answer is none of its options"),
        ({"update": None}, "revised_question and update are not both there"),
        ({"revised_question": None}, "revised_question and update are not both there"),
    ],
)
def test_unusable_update_items(tmp_path, change, reason):
    assert excluded(save([{**GOOD[0], **UPDATE, **change}, GOOD[1]], tmp_path / "a.jsonl")) == [(1, "toy/1", reason)]


def test_an_update_needs_no_stale_answer(tmp_path):
    path = save([{**GOOD[0], **UPDATE, "stale_answer": None}, GOOD[1]], tmp_path / "a.jsonl")
    frame = items.load(benchmark(path), 0).filter(pl.col("item_id") == "toy/1")
    view = items.revised(frame, "toy")
    assert view.select("question", "answer").rows() == [("R?", None)]
    tables.conform(view, tables.Items, "view")


def test_messages_never_quote_a_question(tmp_path):
    # Items may be gated.
    rows = [{**GOOD[0], "question": "SECRET?", "options": ["SECRET", "SECRET"]}]
    path = save(rows, tmp_path / "a.jsonl")
    with pytest.raises(InputError) as caught:
        items.load(benchmark(path), 0)
    assert "SECRET" not in str(caught.value)
    found = items.gather(benchmark(save([*rows, GOOD[1]], path)), 0)
    assert "SECRET" not in f"{found.excluded.rows()}{found.facts}"


def test_the_draw_is_seeded_and_prefix_stable(tmp_path):
    rows = [{**GOOD[0], "id": str(k)} for k in range(40)]
    path = save(rows, tmp_path / "a.jsonl")

    def drawn(n, seed=0):
        return items.load(benchmark(path, n=n), seed)["item_id"].to_list()

    assert drawn(5) == drawn(20)[:5] == drawn(None)[:5]
    assert len(drawn(20)) == 20
    assert drawn(20, 1) != drawn(20)
    assert set(drawn(None)) == {f"toy/{k}" for k in range(40)}
    # What the file holds besides does not matter, and neither does its order.
    fewer = save(rows[::-2], tmp_path / "b.jsonl")
    kept = set(items.load(benchmark(fewer), 0)["item_id"])
    assert items.load(benchmark(fewer), 0)["item_id"].to_list() == [name for name in drawn(None) if name in kept]


def chains(n: int, seed: int = 3, **values) -> pl.DataFrame:
    values = {"loader": "chains", **values}
    return items.load(benchmark(name="chains", n=n, **values), seed)


def parse(question: str) -> Chain:
    start, steps, modulus = question.removeprefix("Start at ").removesuffix(".").replace(" Then ", "").replace(" Work modulo ", "").split(".")
    return Chain(int(modulus), int(start), tuple((word, int(operand)) for word, operand in (step.split() for step in steps.split(", "))))


def test_chains_are_held_out_right_and_prefix_stable():
    frame = chains(60)
    assert chains(20).equals(frame[:20])
    assert not chains(20, seed=4).equals(frame[:20])
    for row in frame.iter_rows(named=True):
        chain = parse(row["question"])
        assert chain.question == row["question"]
        assert is_held_out(chain)
        value = chain.start
        for word, operand in chain.steps:
            value = {"plus": value + operand, "minus": value - operand, "times": value * operand}[word] % chain.modulus
        assert row["options"] == [str(residue) for residue in range(chain.modulus)]
        assert row["options"]["ABCDEFGHIJ".index(row["answer"])] == str(value)
        assert row["stratum"] == f"{len(chain.steps)} steps"
    assert set(Counter(frame["stratum"]).values()) == {10}


def test_answers_of_chains_are_uniform_over_the_options():
    from scipy.stats import chisquare

    frame = chains(700)
    rank = [("ABCDEFGHIJ".index(row["answer"]) + 0.5) / len(row["options"]) for row in frame.iter_rows(named=True)]
    early, late = sum(value < 0.5 for value in rank), sum(value > 0.5 for value in rank)
    assert chisquare([early, late]).pvalue > 1e-3
    assert chisquare(list(Counter(len(options) for options in frame["options"]).values())).pvalue > 1e-3


@pytest.mark.parametrize("answer_kind", ["choice", "math"])
def test_update_chains_change_the_answer(answer_kind):
    frame = chains(30, answer_kind=answer_kind, loader="chains_update")
    for row in frame.iter_rows(named=True):
        whole, revised = parse(row["question"]), parse(row["revised_question"])
        assert revised == whole.revised
        assert is_held_out(revised)
        assert row["update"] == whole.update
        assert row["stale_answer"] != row["answer"]
        right = [chain.labels[chain.answer] if answer_kind == "choice" else str(chain.answer) for chain in (whole, revised)]
        assert [row["answer"], row["stale_answer"]] == right


def test_run_writes_items_with_their_identity(tmp_path):
    settings = {"seed": 3, "benchmark": benchmark(name="chains", loader="chains", n=4)}
    items.run(*item_files(tmp_path / "chains.parquet"), "toy", settings)
    assert len(tables.read(tmp_path / "chains.parquet", tables.Items, settings)) == 4
    meta = tables.read_metadata(tmp_path / "chains.parquet")
    assert meta["stage"] == "items" and meta["source"] == {"rows": 4, "usable": 4, "drawn": 4, "excluded": {}}
    for path, schema in zip(item_files(tmp_path / "chains.parquet")[1:], (tables.Excluded, tables.ItemTests), strict=True):
        assert tables.read(path, schema, settings).is_empty()


WRITTEN = ["1", "1.0", "1.10", "3e2", "-0", "123456789012345678901234567890", "true", "false", '"007"', '"2024-01-02"', '"1e5"', "0.1", '"NaN"']


def test_values_of_json_lines_come_out_as_they_were_written(tmp_path):
    path, expected = tmp_path / "a.jsonl", [text.strip('"') for text in WRITTEN]
    others = [f'"other {k}"' for k in range(2)]
    lines = [f'{{"id": {k}, "question": "q{k}", "options": [{text}, {", ".join(others)}], "answer": {text}}}' for k, text in enumerate(WRITTEN)]
    path.write_text("\n".join(lines))
    frame = items.load(benchmark(path), 0).sort(pl.col("item_id").str.slice(4).cast(pl.Int64))
    assert frame["options"].list.first().to_list() == expected
    assert frame["answer"].to_list() == ["A"] * len(WRITTEN)
    free = items.load(benchmark(path, answer_kind="math"), 0).sort(pl.col("item_id").str.slice(4).cast(pl.Int64))
    assert free["answer"].to_list() == expected
    path.write_text("\n".join(f'{{"id": {text}, "question": "q", "answer": "1"}}' for text in WRITTEN))
    assert {item.removeprefix("toy/") for item in items.load(benchmark(path, answer_kind="math"), 0)["item_id"]} == set(expected)


def test_values_of_csv_come_out_as_they_were_written(tmp_path):
    path, texts = tmp_path / "a.csv", [text.strip('"') for text in WRITTEN]
    path.write_text("id,question,options,answer\n" + "".join(f"{text},q,{text} | x | y,{text}\n" for text in texts))
    frame = items.load(benchmark(path), 0)
    assert {item.removeprefix("toy/"): options[0] for item, options in frame.select("item_id", "options").iter_rows()} == {t: t for t in texts}
    assert frame["answer"].to_list() == ["A"] * len(texts)


def test_values_of_parquet_read_as_people_write_them(tmp_path):
    path = tmp_path / "a.parquet"
    columns = {
        "id": pl.Series([1, 2]),
        "question": ["q1", "q2"],
        "options": pl.Series([[0.1, 2.5], [1e300, 0.5]], dtype=pl.List(pl.Float64)),
        "answer": pl.Series([0.1, 0.5], dtype=pl.Float32),
        "stratum": pl.Series([True, False]),
    }
    pl.DataFrame(columns).write_parquet(path)
    frame = items.load(benchmark(path), 0).sort("item_id")
    assert (frame["answer"].to_list(), frame["options"].to_list()) == (["A", "B"], [["0.1", "2.5"], ["1e+300", "0.5"]])
    assert frame["stratum"].to_list() == ["true", "false"]


def test_the_types_of_one_file_change_no_value_of_another(tmp_path):
    row = {"id": 1, "question": "q", "answer": 70}
    for name, change in (("1", {}), ("2", {"id": 2, "answer": 70.5})):
        pl.DataFrame([{**row, **change}]).write_parquet(tmp_path / f"p-{name}.parquet")
        save([{**row, **change}], tmp_path / f"p-{name}.jsonl")
    for ext in ("parquet", "jsonl"):
        frame = items.load(benchmark(tmp_path / f"p-*.{ext}", answer_kind="math"), 0).sort("item_id")
        assert frame["answer"].to_list() == ["70", "70.5"]
    pl.DataFrame([{"id": 3, "question": "q", "gold": 1}]).write_parquet(tmp_path / "p-3.parquet")
    with pytest.raises(InputError, match=r"p-3.parquet: columns: are id, question, gold; allowed: those of the other files: answer, id, question"):
        items.load(benchmark(tmp_path / "p-*.parquet", answer_kind="math"), 0)


@pytest.mark.parametrize("line", ['{"id": 1, "id": 2}', '{"id": "\\ud800"}', '{"id": "\udcff"}', "[1]", "{"])
def test_lines_that_are_no_object_are_refused(tmp_path, line):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id": 0, "question": "q", "answer": "1"}\n' + line.encode(errors="surrogateescape"))
    refused(path, r"file: cannot be read \(line 2 is no JSON object\)", answer_kind="math")


def test_a_column_that_is_there_twice_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,question,answer,answer\n1,q,2,3\n")
    refused(path, "column 'answer': is there twice", answer_kind="math")


def test_what_was_left_out_can_be_read_even_if_too_few_items_are_left(tmp_path):
    rows = [{**GOOD[0], "id": k, "answer": "A" if k < 2 else "Z"} for k in range(9)]
    settings = {"benchmark": benchmark(save(rows, tmp_path / "a.jsonl"), n=3), "seed": 0}
    files = [str(tmp_path / f"toy{ending}.parquet") for ending in ("", ".excluded", ".tests")]
    reason = "its answer is none of its options"
    with pytest.raises(InputError) as caught:
        items.run(*files, "unit", settings)
    named = ", ".join(f"row {number} ({reason})" for number in range(3, 8))
    assert f"the usable items of {tmp_path}/a.jsonl are 2 (7 excluded: {named}, ...); all of them: {tmp_path}/toy.excluded.csv;" in str(caught.value)
    assert pl.read_csv(tmp_path / "toy.excluded.csv").rows() == [(number, f"toy/{number - 1}", reason) for number in range(3, 10)]
    items.run(*files, "unit", {**settings, "benchmark": {**settings["benchmark"], "n": 2}})
    assert not (tmp_path / "toy.excluded.csv").exists()
