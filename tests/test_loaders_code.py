"""LiveCodeBench and the code updates: programs with tests, encoded as the releases have them, and what hides in such an encoding."""

import base64
import contextlib
import json
import os
import pickle
import pickletools
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from helpers.builders import ROOT, benchmark_entry, item_files
from hypothesis import given
from hypothesis import strategies as st

from midtrace import items, tables
from midtrace.errors import InputError
from midtrace.loaders import live_code_bench
from midtrace.loaders.live_code_bench import string_in_pickle
from midtrace.loaders.loader import UnusableError

Row = dict[str, Any]


def encoded(content: Any, packed: Any = None) -> str:
    """Private tests as the releases have them: base64 of zlib of a pickle of JSON."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(content) if packed is None else packed))).decode()


def case(kind: str, given: str, expected: str) -> Row:
    return {"input": given, "output": expected, "testtype": kind}


def problem(number: int, functional: bool = False, **values: Any) -> Row:
    kind = "functional" if functional else "stdin"
    row = {
        "question_title": f"Title {number}",
        "question_content": f"Add {number}.",
        "platform": "leetcode" if functional else "atcoder",
        "question_id": f"p{number}",
        "contest_id": f"c{number}",
        "contest_date": f"2024-1{number % 3}-0{1 + number % 9}T00:00:00",
        "starter_code": "class Solution:\n    def add(self, x: int) -> int:\n        " if functional else "",
        "difficulty": ["easy", "hard"][number % 2],
        "public_test_cases": json.dumps([case(kind, "1", f"{1 + number}")]),
        "private_test_cases": encoded([case(kind, "2", f"{2 + number}"), case(kind, "3", f"{3 + number}")]),
        "metadata": json.dumps({"func_name": "add"} if functional else {}),
    }
    return {**row, **values}


def save(rows: list[Row], path: Path) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def entry(path: Path, **values: Any) -> dict[str, Any]:
    return benchmark_entry("livecodebench", path, "code", **values)


def run(benchmark: dict[str, Any], folder: Path, **view: Any) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Items, excluded rows and tests, as the stage writes them."""
    files = item_files(folder / "toy.parquet")
    settings = {"seed": 1, "benchmark": benchmark, **view}
    items.run(*files, "unit", settings)
    schemas = (tables.Items, tables.Excluded, tables.ItemTests)
    return tuple(tables.read(path, schema, settings) for path, schema in zip(files, schemas, strict=True))


def test_problems_and_their_tests(tmp_path):
    path = save([problem(0), problem(1, functional=True)], tmp_path / "test6.jsonl")
    found, excluded, tests = run(entry(path), tmp_path)
    assert excluded.is_empty()
    by_id = {row["item_id"]: row for row in found.iter_rows(named=True)}
    assert by_id["toy/p0"]["question"] == "Add 0.\n\nThe program reads from standard input and prints to standard output."
    assert by_id["toy/p1"]["question"].endswith("Complete this code:\n```python\nclass Solution:\n    def add(self, x: int) -> int:\n```")
    assert {row["answer"] for row in by_id.values()} == {None} and {row["answer_kind"] for row in by_id.values()} == {"code"}
    assert [by_id[f"toy/p{k}"]["stratum"] for k in (0, 1)] == ["easy", "hard"]
    assert tests.sort("item_id", "test_id").rows() == [
        *(("toy/p0", k, "stdin", None, f"{1 + k}", f"{1 + k}") for k in range(3)),
        *(("toy/p1", k, "call", "add", f"{1 + k}", f"{2 + k}") for k in range(3)),
    ]


def test_the_window(tmp_path):
    dates = ["2024-09-30T23:59:59", "2024-10-01T00:00:00", "2025-05-01T00:00:00", "2025-05-02T00:00:00"]
    path = save([problem(k, contest_date=date) for k, date in enumerate(dates)], tmp_path / "test6.jsonl")

    def drawn(**window: str) -> set[str]:
        return set(items.load(entry(path, **window), 0)["item_id"])

    assert drawn() == {"toy/p1", "toy/p2", "toy/p3"}  # the window of the study
    assert drawn(until="2025-05-01") == {"toy/p1", "toy/p2"}
    assert drawn(since="2023-01-01", until="2024-10-01") == {"toy/p0", "toy/p1"}
    with pytest.raises(InputError, match="items: none"):
        drawn(since="2026-01-01")


def test_only_the_tests_of_drawn_items_are_written(tmp_path):
    for k in range(3):
        save([problem(3 * k + j) for j in range(3)], tmp_path / f"test{k}.jsonl")
    found, _, tests = run(entry(tmp_path / "test*.jsonl", n=4, strata="equal"), tmp_path)
    assert len(found) == 4 and set(tests["item_id"]) == set(found["item_id"])
    assert found["stratum"].value_counts()["count"].to_list() == [2, 2]


class Evil:
    """What a pickle of an attacker does when it is loaded."""

    def __reduce__(self):
        return os.system, ("touch evil",)


UNUSABLE: list[tuple[Row, str]] = [
    ({"private_test_cases": encoded(None, Evil())}, "its private tests cannot be decoded"),
    ({"private_test_cases": encoded(None, [case("stdin", "1", "1")])}, "its private tests cannot be decoded"),
    ({"private_test_cases": encoded(None, ("[]", "[]"))}, "its private tests cannot be decoded"),
    ({"private_test_cases": encoded(None, b"[]")}, "its private tests cannot be decoded"),
    ({"private_test_cases": encoded(None, "no JSON")}, "its private tests cannot be decoded"),
    ({"private_test_cases": encoded([])[:-8]}, "its private tests cannot be decoded"),
    ({"private_test_cases": "!"}, "its private tests cannot be decoded"),
    ({"private_test_cases": "7"}, "its private tests cannot be decoded"),
    ({"private_test_cases": "[" * 100_000}, "its private tests cannot be decoded"),
    ({"public_test_cases": "7"}, "its public tests or metadata are no JSON"),
    ({"public_test_cases": "["}, "its public tests or metadata are no JSON"),
    ({"metadata": "["}, "its public tests or metadata are no JSON"),
    ({"public_test_cases": json.dumps([case("interactive", "1", "1")])}, "a test of another form"),
    ({"public_test_cases": json.dumps([{"input": "1"}])}, "a test of another form"),
    ({"public_test_cases": json.dumps([{**case("stdin", "1", "1"), "input": 1}])}, "a test of another form"),
    ({"public_test_cases": json.dumps([case("functional", "1", "1")])}, "a test calls a function that has no name"),
    ({"public_test_cases": "[]", "private_test_cases": "[]"}, "no tests"),
    ({"question_content": " "}, "no question_content"),
]


@pytest.mark.parametrize(("change", "reason"), UNUSABLE)
def test_problems_that_cannot_be_used(tmp_path, monkeypatch, change, reason):
    monkeypatch.chdir(tmp_path)
    path = save([problem(0), problem(1, **change)], tmp_path / "test6.jsonl")
    _, excluded, tests = run(entry(path), tmp_path)
    assert excluded.rows() == [(2, "toy/p1", reason)]
    assert set(tests["item_id"]) == {"toy/p0"}
    assert not Path("evil").exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("text", ["", "plain", "é\u2028\ud800", "x" * 70_000, "a\nb\\u0041"])
def test_a_string_of_any_protocol_is_read(protocol, text):
    assert string_in_pickle(pickle.dumps(text, protocol)) == text


@pytest.mark.parametrize("content", [Evil(), ["x"], ("x", "y"), {"x": 1}, b"x", 1, None, os.system])
def test_anything_else_is_refused(content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(ValueError):
            string_in_pickle(pickle.dumps(content, protocol))
    assert not Path("evil").exists()


@given(st.binary(max_size=60) | st.lists(st.sampled_from([op.code.encode("latin-1") for op in pickletools.opcodes])).map(b"".join))
def test_whatever_is_no_pickle_of_a_string_is_refused_in_one_way(data):
    with contextlib.suppress(ValueError):
        assert isinstance(string_in_pickle(data), str)


def test_a_bomb_of_zeros_is_not_unpacked(monkeypatch):
    monkeypatch.setattr(live_code_bench, "LARGEST", 10_000)
    with pytest.raises(UnusableError, match="cannot be decoded"):
        live_code_bench.private_tests(encoded(["0" * 20_000]))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not JSON", "line 2: is no JSON object"),
        ("[1]", "line 2: is no JSON object"),
        ("\udcff", "line 2: is no JSON object"),
        (json.dumps({key: value for key, value in problem(1).items() if key != "metadata"}), "line 2, metadata: missing"),
        (json.dumps(problem(1, contest_date=20241001)), "line 2, contest_date: is int; allowed: str"),
    ],
)
def test_lines_that_are_no_problems_are_refused(tmp_path, line, message):
    path = tmp_path / "test6.jsonl"
    path.write_bytes(f"{json.dumps(problem(0))}\n{line}\n".encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=f"test6.jsonl: {message}"):
        items.gather(entry(path), 0)


def test_an_empty_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="items: none; allowed: at least 1"):
        items.gather(entry(save([], tmp_path / "test6.jsonl")), 0)


def test_a_source_on_the_hub_that_cannot_be_reached(monkeypatch):
    def fail(*arguments: Any, **values: Any) -> str:
        raise OSError("no connection\nat all")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    path = "hf://datasets/livecodebench/code_generation_lite/test6.jsonl"
    with pytest.raises(InputError, match=r"source: cannot be read \(no connection\); allowed: .*HF_TOKEN") as caught:
        items.gather(entry(path, revision="0" * 40), 0)
    assert str(caught.value).startswith(path)


MEASURE = """
import resource
from midtrace import items
items.run(*%r, "unit", {"seed": 1, "benchmark": %r})
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak(folder: Path, n: int) -> float:
    """Peak memory in bytes of loading ``n`` problems with 4 MB of tests each, in a process of its own."""
    folder.mkdir()
    path = folder / "test6.jsonl"
    big = json.dumps([case("stdin", "7" * 4_000_000, "1")])
    with path.open("w") as handle:
        for k in range(n):
            handle.write(json.dumps(problem(k, contest_date="2024-11-01", public_test_cases=big, private_test_cases="[]")) + "\n")
    code = MEASURE % (item_files(folder / "toy.parquet"), entry(path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT / "workflow")})
    assert done.returncode == 0, done.stderr
    assert pl.scan_parquet(folder / "toy.tests.parquet").select(pl.len()).collect().item() == n
    return int(done.stdout) * (1 if sys.platform == "darwin" else 1024)


def test_memory_hangs_on_the_largest_problem_not_on_the_file(tmp_path):
    assert peak(tmp_path / "large", 44) - peak(tmp_path / "small", 4) < 80e6  # 160 MB more to read


# Updates of programs.


def updates(folder: Path, changes: dict[int, Row] | None = None) -> dict[str, Any]:
    """Three updated problems in the format of the update benchmark, and their LiveCodeBench file."""
    problems = [problem(k, functional=k == 1) for k in range(3)]
    rows = [
        {
            "id": 10 + k,
            **{key: one[key] for key in ("platform", "contest_id", "difficulty", "question_title")},
            "original_starter_code": one["starter_code"],
            "original_problem": one["question_content"],
            "revised_starter_code": one["starter_code"].replace("add", "subtract"),
            "revised_problem": f"Subtract {k}.",
            "update": "Add instead.",
            **(changes or {}).get(k, {}),
        }
        for k, one in enumerate(problems)
    ]
    pl.DataFrame(rows).write_parquet(folder / "data_code.parquet")
    tests = {"path": str(save(problems, folder / "test6.jsonl"))}
    return benchmark_entry("interrupt_updates", folder / "data_code.parquet", "code", tests=tests)


def test_updates_take_their_tests_from_live_code_bench(tmp_path):
    found, excluded, tests = run(updates(tmp_path, {2: {"contest_id": "other"}}), tmp_path)
    assert excluded.rows() == [(3, "toy/12", "no tests in the LiveCodeBench files")]
    rows = {row["item_id"]: row for row in found.iter_rows(named=True)}
    assert set(rows) == {"toy/10", "toy/11"} and set(tests["item_id"]) == set(rows)
    assert rows["toy/10"]["question"].startswith("Add 0.\n\nThe program reads") and rows["toy/10"]["revised_question"].startswith(
        "Subtract 0.\n\nThe"
    )
    assert "def add" in rows["toy/11"]["question"] and "def subtract" in rows["toy/11"]["revised_question"]
    assert {row["update"] for row in rows.values()} == {"Add instead."} and {row["stale_answer"] for row in rows.values()} == {None}
    assert set(tests.filter(item_id="toy/11")["function"]) == {"add"}


def test_the_view_before_the_update_has_the_same_tests(tmp_path):
    found, _, tests = run(updates(tmp_path), tmp_path, view="revised")
    assert sorted(found["item_id"]) == [f"toy+revised/{k}" for k in (10, 11, 12)] and set(tests["item_id"]) == set(found["item_id"])
    assert all(question.startswith("Subtract") for question in found["question"])
