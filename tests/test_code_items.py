"""Items whose answers are programs, from the source to grades: loaded, graded with reasons, interrupted, and what the files say of it."""

import base64
import json
import pickle
import zlib
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from helpers.builders import small_config
from test_sandbox import needs_bubblewrap

from midtrace import config as study_config
from midtrace import grading, items, tables
from midtrace.errors import InputError
from midtrace.grading import answers

DOUBLE = "print(2 * int(input()))"
ANSWERS = {
    "right": f"Doubling:\n```python\n{DOUBLE}\n```",
    "wrong": "```python\nprint(4)\n```",
    "network": "```python\nimport socket\nsocket.create_connection(('127.0.0.1', 9))\n```",
    "prose": "It is twice the number.",
}
NOTES = {
    "right": None,
    "wrong": "test 2 of 3: wrong output",
    "network": "test 1 of 3: crashed: ConnectionRefusedError",
    "prose": "no code block",
}


STARTER = "class Solution:\n    def double(self, x: int) -> int:\n"


def problem(number: int, call: bool = False) -> dict:
    """A row of LiveCodeBench, with the private tests packed as they are there."""
    tests = [(2, 4), (5, 10), (-1, -2)]
    rows = [{"input": f"{a}\n", "output": f"{b}\n", "testtype": "functional" if call else "stdin"} for a, b in tests]
    packed = base64.b64encode(zlib.compress(pickle.dumps(json.dumps(rows[1:])))).decode()
    return {
        "question_title": f"Double {number}", "question_content": "Double the number.", "platform": "atcoder", "question_id": f"q{number}",
        "contest_id": "c", "contest_date": "2025-01-01T00:00:00", "starter_code": STARTER if call else "",
        "difficulty": "easy", "public_test_cases": json.dumps(rows[:1]), "private_test_cases": packed,
        "metadata": json.dumps({"func_name": "double"} if call else {}),
    }  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> SimpleNamespace:
    """Items and tests of a file as LiveCodeBench has them, and raw traces with the answers above."""
    folder = tmp_path_factory.mktemp("code")
    (folder / "test.jsonl").write_text("".join(json.dumps(problem(k)) + "\n" for k in range(len(ANSWERS))))
    config = small_config()
    config["benchmarks"] = {"code": {"loader": "livecodebench", "path": str(folder / "test.jsonl"), "answer_kind": "code"}}
    config["code"] = {"seconds": 2, "memory_mb": 512}
    config = study_config.validate(config, "test")
    settings = study_config.traces_settings(config, "embedded", "code", "low", 0)
    paths = SimpleNamespace(items=folder / "items.parquet", tests=folder / "tests.parquet", raw=folder / "raw.parquet", folder=folder)
    items.run(paths.items, folder / "excluded.parquet", paths.tests, "unit", settings["items"])
    rows = [
        {
            "trace_id": f"embedded/{item}/low/r0", "model": "embedded", "item_id": item, "arm": "low", "replicate": 0, "seed": 1, "prompt_ids": [1],
            "output_ids": [2], "reasoning_start": 0, "n_reasoning": 0, "format_after": [], "status": "terminated", "problem": None,
            "finish_reason": "stop",
            "answer_text": text, "drift_at": None, "token_exact": True,
        }
        for item, text in zip(sorted(tables.read(paths.items, tables.Items)["item_id"]), ANSWERS.values(), strict=True)
    ]  # fmt: skip
    tables.write(tables.frame_of(rows, tables.RawTraces), paths.raw, tables.RawTraces, tables.metadata("traces", "unit", settings))
    return SimpleNamespace(config=config, settings=settings, **vars(paths))


def programs(made: SimpleNamespace, **changes) -> grading.Programs:
    found = grading.Programs.read(made.tests, made.settings["items"], {**study_config.code_settings(made.config), **changes}, 2)
    assert found is not None
    return found


def grade(made: SimpleNamespace, output: Path, **changes) -> pl.DataFrame:
    answers.grade_traces(made.raw, made.items, output, "unit", made.settings, programs(made, **changes))
    return tables.read(output, tables.Traces).sort("item_id")


@needs_bubblewrap
def test_traces_are_graded_by_their_tests_with_reasons(made, tmp_path):
    found = grade(made, tmp_path / "traces.parquet")
    assert found["grade_note"].to_list() == list(NOTES.values())
    assert found["correct"].to_list() == [True, False, False, False]
    assert found["answer"].to_list() == [f"{DOUBLE}\n", "print(4)\n", found["answer"][2], None]
    said = tables.read_metadata(tmp_path / "traces.parquet")["programs"]
    assert (said["sandbox"], said["seconds"], said["memory_mb"]) == ("bubblewrap", 2, 512)


def test_without_a_sandbox_it_is_said_in_the_log_and_in_the_file(made, tmp_path, capsys):
    found = grade(made, tmp_path / "traces.parquet", sandbox="none")
    assert found["correct"].to_list() == [True, False, False, False]
    assert "not isolated" in capsys.readouterr().err
    assert tables.read_metadata(tmp_path / "traces.parquet")["programs"]["sandbox"] == "none"


def test_code_is_never_graded_as_text(made, tmp_path):
    with pytest.raises(InputError, match=r"answer_kind: is code, which its tests decide"):
        answers.grade_traces(made.raw, made.items, tmp_path / "traces.parquet", "unit", made.settings)
    assert grading.Programs.read([], made.settings["items"], None) is None


def test_tests_of_another_draw_are_refused(made):
    other = study_config.validate({**small_config(), "benchmarks": {"code": {**made.config["benchmarks"]["code"], "n": 1}}}, "test")
    with pytest.raises(InputError, match=r"benchmark\.n"):
        grading.Programs.read(made.tests, study_config.items_settings(other, "code"), study_config.code_settings(made.config))


def test_a_change_of_limits_changes_nothing_that_was_paid_for(made):
    changed = {**made.config, "code": {**made.config["code"], "seconds": 9}}
    assert study_config.traces_settings(changed, "embedded", "code", "low", 0) == made.settings
    assert study_config.code_settings(study_config.validate(small_config(), "test")) is None
