"""Logs that the real lm-evaluation-harness and the real Inspect made come in whole: make test-importing."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from helpers.builders import ROOT, item_files, small_config
from helpers.foreign_logs import MAX_TOKENS, TASKS, N, documents

from midtrace import config as study_config
from midtrace import items, tables
from midtrace.external import importing
from midtrace.external.formats import read_items, read_runs
from midtrace.external.runs import LeftOut

pytestmark = pytest.mark.importing


def make(kind, folder):
    """The logs of a tool, made in a process of its own: both change what Python does."""
    paths = [str(ROOT / "workflow"), str(ROOT / "tests")]
    done = subprocess.run(
        [sys.executable, "-m", "helpers.foreign_logs", kind, str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder / "logs"


@pytest.fixture(scope="module")
def harness(tmp_path_factory):
    logs = make("lm-eval", tmp_path_factory.mktemp("lm-eval"))
    return {task: next(logs.rglob(f"samples_{task}_*.jsonl")) for task in TASKS}


@pytest.fixture(scope="module")
def inspect(tmp_path_factory):
    logs = make("inspect", tmp_path_factory.mktemp("inspect"))
    return {task: next(logs.glob(f"*_{task}_*.eval")) for task in TASKS} | {"sums.json": next(logs.glob("*_sums_*.json"))}


def expected(task):
    """The items of a task, by id."""
    return {f"{task}/{number}": document for number, document in enumerate(documents(task))}


def told(item):
    return {key: item[key] for key in ("question", "options", "answer")}


@pytest.mark.parametrize("task", TASKS)
def test_items_of_the_harness(harness, task):
    found = read_items([harness[task]], "lm-eval")
    assert not found.left_out
    assert {item["id"]: told(item) for item in found.taken} == expected(task)


def test_a_group_of_the_harness_is_its_subtasks(harness):
    found = read_items([harness["law"], harness["arts"]], "lm-eval")
    assert {item["id"]: told(item) for item in found.taken} == expected("law") | expected("arts")


def test_runs_of_the_harness_are_one_per_repeat_whatever_the_filters(harness):
    lines = [json.loads(line) for line in harness["sums"].read_text().splitlines()]
    assert [line["filter"] for line in lines] == ["strict-match"] * N + ["flexible-extract"] * N
    found = read_runs([harness["sums"]], "lm-eval")
    assert [(run.task, run.item, run.replicate, run.text) for run in found.taken] == [
        ("sums", str(line["doc_id"]), number, text) for line in lines[:N] for number, text in enumerate(line["resps"][0])
    ]
    assert read_runs([harness["sums"]], "lm-eval", chosen="flexible-extract") == found
    likely = read_runs([harness["likely"]], "lm-eval")
    assert likely.left_out == [LeftOut(f"likely/{n}", "whose log holds likelihoods, no generated text") for n in range(N)]


@pytest.mark.parametrize("task", [*TASKS, "sums.json"])
def test_items_of_inspect(inspect, task):
    found = read_items([inspect[task]], "inspect")
    name = task.removesuffix(".json")
    failed = {"law/bad": {"question": "This one fails.", "options": ["x", "y"], "answer": "A"}} if task == "law" else {}
    assert {item["id"]: told(item) for item in found.taken} == expected(name) | failed
    assert found.left_out == ([LeftOut(f"sums/{N}", "without a target")] if name == "sums" else [])


def test_archives_of_inspect_are_compressed_by_zstd(inspect):
    with zipfile.ZipFile(inspect["law"]) as archive:
        assert {entry.compress_type for entry in archive.filelist} == {93}


def test_runs_of_inspect_are_one_per_epoch_and_failed_samples_are_counted(inspect):
    law = read_runs([inspect["law"]], "inspect")
    assert sorted(run.item for run in law.taken) == [str(n) for n in range(N)]
    assert law.left_out == [LeftOut("law/bad", "that failed")]
    archived = read_runs([inspect["sums"]], "inspect").taken
    assert sorted((run.item, run.replicate) for run in archived) == [(str(n), epoch) for n in range(N + 1) for epoch in (0, 1)]
    assert all("<think>" in run.text for run in archived)
    log = json.loads(inspect["sums.json"].read_text())
    said = {(str(s["id"]), s["epoch"] - 1): s["output"]["choices"][0]["message"]["content"] for s in log["samples"]}
    assert {(run.item, run.replicate): run.text for run in read_runs([inspect["sums.json"]], "inspect").taken} == said


@pytest.mark.parametrize(
    ("kind", "tasks"), [("lm-eval", ["law", "arts"]), ("lm-eval", ["sums"]), ("inspect", ["law", "arts"]), ("inspect", ["sums"])]
)
def test_logs_become_a_study(request, tmp_path, monkeypatch, capsys, tokenizer, kind, tasks):
    logs = request.getfixturevalue("harness" if kind == "lm-eval" else "inspect")
    sources = [str(logs[task]) for task in tasks]
    monkeypatch.chdir(tmp_path)
    assert importing.main(["items", *sources, "--format", kind, "--output", "items.jsonl"]) == 0
    replicates = 2 if tasks == ["sums"] else 1
    entry = {"loader": "file", "path": "items.jsonl", "answer_kind": TASKS[tasks[0]], "columns": {"stratum": "task"}}
    config = small_config(replicates=replicates, benchmarks={"exam": entry})
    config["models"]["embedded"]["max_tokens"] = MAX_TOKENS
    Path("study.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    settings = study_config.items_settings(study_config.load("study.yaml"), "exam")
    items.run(*item_files("results/unit/items/exam.parquet"), "unit", settings)
    table = tables.read("results/unit/items/exam.parquet", tables.Items)
    failed = 1 if (kind, tasks) == ("inspect", ["law", "arts"]) else 0
    assert len(table) == N * len(tasks) + failed
    assert set(table["stratum"]) == set(tasks)
    options = ["--config", "study.yaml", "--model", "embedded", "--benchmark", "exam", "--arm", "low"]
    assert importing.main(["traces", *sources, "--format", kind, *options]) == 0
    said = capsys.readouterr().out
    texts = {(run.task + "/" + run.item, run.replicate): run.text for run in read_runs(sources, kind).taken}
    for replicate in range(replicates):
        traces = tables.read(f"results/unit/raw/traces/embedded/exam/low/r{replicate}.parquet", tables.RawTraces)
        assert len(traces) == N * len(tasks)
        assert f"replicate {replicate}: taken {len(traces)}, token_exact 0, " in said
        for trace in traces.iter_rows(named=True):
            text = texts[trace["item_id"].removeprefix("exam/"), replicate]
            decoded = tokenizer.decode(trace["output_ids"], skip_special_tokens=True)
            assert decoded.strip() == text.strip().removesuffix("<|im_end|>").strip()
        assert (traces["status"] == "terminated").sum() >= len(traces) / 2
