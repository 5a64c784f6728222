"""The plan of a study: its counts against files that a study really made, its arithmetic by hand, and the studies that come with midtrace."""

import copy
import math

import polars as pl
import pyarrow.parquet as pq
import pytest
from helpers.builders import Study, small_config

from midtrace import config as study_config
from midtrace import plan, tables
from midtrace.errors import InputError

TEMPLATE = "Is {answer} the same as {gold}, asked {question}"
FOLDERS = {"traces": "raw/traces", "cuts": "cuts", "probes": "readouts", "continuations": "raw/continuations", "controls": "controls"}


@pytest.fixture(scope="module")
def planned(study: Study) -> pl.DataFrame:
    return plan.table(study.config, study.folder)


def made(study: Study, path: str) -> int:
    return pq.read_metadata(study.folder / path).num_rows


@pytest.mark.parametrize("stage", FOLDERS)
def test_files_and_rows_are_those_that_the_study_made(study: Study, planned: pl.DataFrame, stage: str):
    """Exact where the config determines them; otherwise runs without an end, or shorter than assumed, leave some out."""
    own = planned.filter(pl.col("stage") == stage)
    files = (study.folder / FOLDERS[stage]).rglob("[!0-9]*.parquet")  # those of a store are numbered
    there = {str(path.relative_to(study.folder)) for path in files}
    assert set(own["path"]) == there and there
    assert own["done"].all()
    traces = [pl.read_parquet(path) for path in (study.folder / "raw/traces").rglob("r?.parquet")]
    all_end = all((frame["status"] == "terminated").all() and (frame["n_reasoning"] > 0).all() for frame in traces)
    for path, rows in own.select("path", "rows").iter_rows():
        if stage == "traces" or (all_end and stage in ("cuts", "probes")):
            assert made(study, path) == rows
        elif stage == "continuations":  # a run without an end is resumed at its end too
            config = study.config
            assert made(study, path) <= rows + config["benchmarks"]["chains"]["n"]
        else:
            assert made(study, path) <= rows


def test_horizon_cuts_are_exact_whatever_the_runs_did(study: Study, planned: pl.DataFrame):
    horizons = len({*study.config["horizons"], *study.config["availability"]["horizons"]})
    for stage, folder in (("cuts", "cuts"), ("probes", "readouts")):
        for path, rows in planned.filter(pl.col("stage") == stage).select("path", "rows").iter_rows():
            frame = pl.read_parquet(study.folder / path)
            n = frame["trace_id"].n_unique()
            contexts = 1 if folder == "cuts" else frame.select("context", "context_arm").unique().height
            wholes = contexts - 1  # a whole block by fraction is read in common contexts too; not in a run without an end
            found = frame.filter(pl.col("cut") == "horizon").height
            others = rows - found
            assert found == n * horizons * contexts
            assert others >= frame.filter(pl.col("cut") != "horizon").height >= others - n * (wholes + 4), "of a run without an end there are fewer"


def test_what_is_there_is_not_still_to_do(study: Study):
    whole = plan.describe(study.config, study.folder)
    assert "still to do" in whole
    assert [line.split()[3] for line in whole.splitlines() if line.startswith("  traces")] == ["0"]


def test_a_file_of_another_config_is_still_to_do(study: Study):
    config = copy.deepcopy(study.config)
    config["benchmarks"]["chains"]["n"] += 2
    grown = plan.table(config, study.folder)
    assert not grown["done"].any()
    rows = dict(grown.group_by("stage").agg(pl.col("rows").sum()).iter_rows())
    assert rows["traces"] == 2 * config["benchmarks"]["chains"]["n"], "items of the old draw were counted"
    config = copy.deepcopy(study.config)
    config["horizons"].append(max(config["horizons"]) + 1)
    done = plan.table(config, study.folder)
    assert set(done.filter("done")["stage"]) == {"traces", "controls"}


def hand_config(**changes) -> dict:
    """Two arms, one model, one benchmark of 10 items in options and one of math; every count is done in the tests by hand."""
    config = small_config()
    config["models"]["embedded"]["max_tokens"] = 400
    config |= {
        "replicates": 2,
        "benchmarks": {
            "chains": {"loader": "chains", "answer_kind": "choice", "n": 10, "replicates": 3},
            "free": {"loader": "chains", "answer_kind": "math", "n": 7},
            "chains_update": {"loader": "chains_update", "answer_kind": "choice", "n": 5, "replicates": 4},
        },
        "run": {"benchmarks": ["chains", "free"]},
        "arms": {"low": {"effort": "low"}, "high": {"effort": "high"}, "medium": {"effort": "medium"}},
        "comparisons": [{"treatment": "low", "reference": "high", "common": "medium"}],
        "horizons": [0, 100, 200],
        "fractions": [0.5, 1.0],
        "availability": {"horizons": [0, 50, 100]},
        "continuations": {"modes": ["answer", "natural", "resume"], "max_tokens": 16},
        "controls": {"items": 4, "horizons": [10, 20]},
        "interruptions": {
            "run": {"chains_update": ["hard", "update"]},
            "arms": ["low"],
            "replicates": 2,
            "fractions": [0.0, 0.5],
            "tokens": [50, 500],
        },
        "plan": {"mean_tokens": {"low": 150}, "prompt_tokens": 20, "answer_tokens": 10, "decode": 100, "prefill": 1000},
    }
    return study_config.validate(config | changes, "test")


def cell(frame: pl.DataFrame, column: str, **where) -> float:
    found = frame.filter(*(pl.col(key) == value for key, value in where.items()))
    assert len(found) == 1, found
    return found[column].item()


def test_counts_and_tokens_by_hand(tmp_path):
    config = hand_config()
    cap = 400
    frame = plan.table(config, tmp_path)
    sizes = frame.group_by("stage").agg(pl.len(), pl.col("rows").sum()).sort("stage")
    # Traces: 2 arms x (3 replicates x 10 + 2 x 7), and of the interrupted benchmark 2 replicates of low, of the question and the revised one.
    assert dict(zip(sizes["stage"], sizes["rows"], strict=True))["traces"] == 2 * (3 * 10 + 2 * 7) + 2 * 2 * 5
    assert dict(zip(sizes["stage"], sizes["len"], strict=True))["traces"] == 2 * (3 + 2) + 4
    shard = {"benchmark": "chains", "arm": "low", "path": "raw/traces/embedded/chains/low/r0.parquet"}
    assert (cell(frame, "decoded", **shard), cell(frame, "prefilled", **shard)) == (10 * 150, 10 * 20)
    assert cell(frame, "hours", **shard) == pytest.approx((1500 / 100 + 200 / 1000) / 3600)
    assert cell(frame, "decoded", path="raw/traces/embedded/chains/high/r0.parquet") == 10 * cap, "an arm of unknown length counts the cap"
    # Cuts: horizons 0, 50, 100, 200 (choice; 0, 100, 200 for math), 2 fractions, 1 matched.
    assert cell(frame, "rows", path="cuts/embedded/chains/low/r2.parquet") == 10 * (4 + 2 + 1)
    assert cell(frame, "rows", path="cuts/embedded/free/low/r1.parquet") == 7 * (3 + 2 + 1)
    # Probes: horizons in two contexts, half of the reasoning in one, all of it and the matched cut in two. Two prompts are read once with the run.
    probes = {"path": "readouts/embedded/chains/low/r0.parquet"}
    assert cell(frame, "rows", **probes) == 10 * (4 * 2 + 1 + 2 + 2)
    assert cell(frame, "prefilled", **probes) == 10 * (2 * (20 + 150) + 13 * plan.CLOSE_TOKENS)
    assert not len(frame.filter(pl.col("stage") == "probes", pl.col("benchmark") == "free"))
    # Continuations of choices: answers in two contexts at horizons 0, 100 and 200, in the common one at the matched cut, which is the whole block of
    # 150 tokens like horizon 200; so three prefixes each. Resumed at 0.5, under the own prompt.
    continued = {"path": "raw/continuations/embedded/chains/low/r0.parquet"}
    assert cell(frame, "rows", **continued) == 10 * (3 * 2 + 1 + 1)
    assert cell(frame, "decoded", **continued) == 10 * (2 * 3 * 16 + 75)
    assert cell(frame, "prefilled", **continued) == 10 * (2 * (20 + 150) + 2 * 3 * plan.CLOSE_TOKENS)
    # The reference is cut at the treatment's 150 of 400 tokens; horizons 0, 100, 200 leave it unfinished.
    assert cell(frame, "decoded", path="raw/continuations/embedded/chains/high/r0.parquet") == 10 * ((3 + 4) * 16 + 200)
    # Free-form answers have no probe: half and all of the reasoning, and the matched cut under the own prompt, are continued too.
    continued = {"path": "raw/continuations/embedded/free/low/r0.parquet"}
    assert cell(frame, "rows", **continued) == 7 * (3 * 2 + 2 + 1 + 2 + 1)
    assert cell(frame, "decoded", **continued) == 7 * ((3 + 1 + 3) * 16 + 75)
    # What contexts cost is in the plan: under the own prompt alone, horizons give three prefixes, and the matched cut one in the common context.
    own = plan.table(hand_config(continuations={"modes": ["answer"], "contexts": ["policy"], "max_tokens": 16}), tmp_path)
    assert cell(own, "decoded", path="raw/continuations/embedded/chains/low/r0.parquet") == 10 * (3 + 1) * 16
    # Interruptions at 0, 75 and 50 tokens; the cut at 500 lies beyond the run.
    hard = {"path": "raw/interruptions/embedded/chains_update/low/r0/hard.parquet"}
    update = {"path": "raw/interruptions/embedded/chains_update/low/r1/update.parquet"}
    assert cell(frame, "rows", **hard) == cell(frame, "rows", **update) == 5 * 3
    assert cell(frame, "decoded", **hard) == 5 * 3 * 10
    assert cell(frame, "decoded", **update) == 5 * (3 * 10 + 150 + 75 + 100)
    assert cell(frame, "rows", stage="controls") == 4 * 10
    assert cell(frame, "prefilled", stage="controls") == 4 * (3 * (10 + 20) + 4 * cap + 10 * 20)


def test_a_later_look_at_a_run_is_under_its_own_prompt(tmp_path):
    config = hand_config(validity={"later": [20, 100]})
    assert study_config.replay_settings(config, "embedded", "chains", "low", 0)["later"] == [20, 120, 220, 300]
    added = {}
    for stage, folder in (("cuts", "cuts"), ("probes", "readouts"), ("continuations", "raw/continuations")):
        for benchmark in ("chains", "free"):
            path = f"{folder}/embedded/{benchmark}/low/r0.parquet"
            if stage != "probes" or benchmark == "chains":
                added[stage, benchmark] = cell(plan.table(config, tmp_path), "rows", path=path) - cell(
                    plan.table(hand_config(), tmp_path), "rows", path=path
                )
    # Four horizons more: 10 choices are probed there, 7 free-form items continued.
    assert added == {
        ("cuts", "chains"): 40,
        ("cuts", "free"): 28,
        ("probes", "chains"): 40,
        ("continuations", "chains"): 0,
        ("continuations", "free"): 28,
    }


def test_a_model_may_be_faster(tmp_path):
    slow, fast = (
        plan.table(hand_config(plan=entry), tmp_path) for entry in ({"decode": 10}, {"throughput": {"embedded": {"decode": 100}}, "decode": 10})
    )
    ratio = slow.filter(stage="traces")["decoded"].sum() / 10 / 3600
    assert fast["hours"].sum() == pytest.approx(slow["hours"].sum() - 0.9 * slow["decoded"].sum() / 10 / 3600)
    assert ratio < slow["hours"].sum()
    text = plan.describe(hand_config(plan={"throughput": {"embedded": {"decode": 12345}}}), tmp_path)
    assert "embedded: 12,345 tokens a second decoded and 20,000 read" in text


def test_a_judge_is_asked_of_every_answer_at_most(tmp_path):
    model = {key: value for key, value in small_config()["models"]["embedded"].items() if key not in ("max_tokens", "sampling")}
    benchmarks = {
        "free": {"loader": "chains", "answer_kind": "math", "n": 7, "grader": "judge"},
        "plain": {"loader": "chains", "answer_kind": "math", "n": 3},
        "changed": {"loader": "chains_update", "answer_kind": "math", "n": 5, "grader": "judge"},
    }
    changes = {"run": {"benchmarks": ["free", "plain"]}, "judge": {"model": model, "max_tokens": 50, "answer_tokens": 30, "template": TEMPLATE}}
    section = {"run": {"changed": ["hard", "update"]}, "arms": ["low"], "replicates": 1, "fractions": [0.0, 0.5]}
    config = hand_config(benchmarks=benchmarks, interruptions=section, **changes)
    frame = plan.table(config, tmp_path)
    verdicts = frame.filter(pl.col("stage") == "verdicts")
    assert set(verdicts["model"]) == {"the judge"} and set(verdicts["benchmark"]) == {"free", "changed"}
    traces, continued = (f"{stage}/embedded/free/low/r0.parquet" for stage in ("traces", "continuations"))
    assert (cell(verdicts, "rows", path=traces), cell(verdicts, "decoded", path=traces)) == (7, 7 * 50)
    assert cell(verdicts, "prefilled", path=traces) == pytest.approx(7 * (len(TEMPLATE) / 3 + 20 + 30))
    assert cell(verdicts, "rows", path=continued) == cell(frame, "rows", path=f"raw/{continued}"), "natural rows repeat the runs"
    hard, update = (f"interruptions/embedded/changed/low/r0/{name}.parquet" for name in ("hard", "update"))
    assert (cell(verdicts, "rows", path=hard), cell(verdicts, "rows", path=update)) == (5 * 2, 2 * 5 * 2)
    assert len(verdicts.filter(pl.col("benchmark") == "changed")) == 3, "runs on revised questions are not graded"
    text = plan.describe(config, tmp_path)
    assert "the judge\n  verdicts " in text and "the judge: asked of every answer, 30 tokens of it shown and 50 written" in text
    assert "the judge" not in plan.describe(hand_config(), tmp_path)


def test_a_whole_source_needs_a_size_until_its_items_are_there(tmp_path):
    config = hand_config()
    config["benchmarks"]["free"]["n"] = None
    with pytest.raises(InputError, match=r"benchmarks\.free\.n.*plan\.items\.free.*snakemake items"):
        plan.table(config, tmp_path)
    config["plan"]["items"] = {"free": 11}
    assert plan.items_of(config, "free", tmp_path) == 11
    meta = tables.metadata("items", "unit", study_config.items_settings(config, "free"))
    tables.write(pl.DataFrame({"item_id": list(range(9))}), tmp_path / "items/free.parquet", None, meta)
    assert plan.items_of(config, "free", tmp_path) == 9
    assert plan.items_of(config, "free+revised", tmp_path) == 9


@pytest.mark.parametrize(("key", "value"), [("mean_tokens", {"nobody": 5}), ("items", {"nothing": 5}), ("throughput", {"nobody": {}})])
def test_names_in_the_plan_must_exist(key, value):
    with pytest.raises(InputError, match=rf"plan\.{key}\.(nobody|nothing): is not defined"):
        hand_config(plan={key: value})


def test_sizes_are_readable():
    assert [plan._count(value) for value in (0, 999, 1000, 2.5e6, 3.25e9)] == ["0", "999", "1.0 k", "2.5 M", "3.2 G"]
    assert [plan._size(value) for value in (2e6, 1.5e9)] == ["2.0 MB", "1.5 GB"]
    assert math.isclose(plan.TOKEN_BYTES, 2)


@pytest.mark.parametrize(
    ("jobs", "engine", "expected"),
    [
        ({}, "transformers", 2 + 2 + 2 + 1),  # two arms: traces, readouts, continuations; controls
        ({"shards": 3}, "transformers", 3 * 6 + 1),
        ({"shards": 3, "engines": "per_model"}, "transformers", 3 * 3 + 1),
        ({"shards": 3, "engines": "service"}, "transformers", 3 * 6 + 1),  # only vLLM is served
        ({"shards": 3, "engines": "service"}, "vllm", 1),
        ({"shards": 3, "engines": "per_model"}, "server", 0),
    ],
)
def test_the_plan_says_how_often_a_model_is_loaded(tmp_path, jobs: dict, engine: str, expected: int):
    config = small_config(jobs=jobs)
    machine = {"machine": {"url": "http://127.0.0.1:1"}} if engine == "server" else {}
    config["models"]["embedded"].update(engine=engine, **machine, **({} if engine == "transformers" else {"dtype": "float32"}))
    config = study_config.validate(config, "planned")
    assert f"Engines: {expected} starts of a model at most" in plan.describe(config, tmp_path)
