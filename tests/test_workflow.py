"""The workflow as users run it: what is built, what a killed job leaves, whether runs repeat to the byte."""

import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import psutil
import pyarrow.parquet as pq
import pytest
import yaml
from helpers.checkout import ANALYSIS, ENGINE_RULES, ROOT, SMALL, Checkout

from midtrace import config as study_config
from midtrace import tables
from midtrace.config import interruptions as interruption_config

pytestmark = pytest.mark.slow

STUDIES = ["config/config.yaml", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "config/studies").glob("*.yaml"))]
# Columns that the contract names; tables may have more.
CONTRACT = {
    "items": "item_id benchmark stratum question options answer answer_kind revised_question update stale_answer",
    ".excluded.parquet": "row item_id reason",
    ".tests.parquet": "item_id test_id kind function input expected",
    "traces": "trace_id model item_id arm replicate seed prompt_ids output_ids reasoning_start n_reasoning status finish_reason answer_text answer "
    "correct token_exact",
    "cuts": "trace_id cut horizon fraction partner_arm n_tokens complete",
    "readouts": "trace_id cut context option_logprob candidate_mass choice tie low_mass q_gold correct brier log_loss gold_log_odds",
    "continuations": "trace_id cut mode text answer correct agrees_with_probe",
    "outcomes.parquet": "model benchmark item_id stratum arm replicate horizon complete readout correct q_gold brier log_loss gold_log_odds",
    "decomposition": "model benchmark treatment reference estimand horizon readout estimate ci_low ci_high n_items n_pairs method",
}


# What is built


def _with_stand_ins(fresh: Checkout, folder: Path) -> Checkout:
    """A checkout with files where a study wants a model folder and data of the user's: a DAG does not open them."""
    checkout = fresh.clone(folder / "checkout")
    for name in ("models/smollm2/config.json", "data/mmlu_pro_test.parquet"):
        (checkout.folder / name).parent.mkdir(parents=True)
        (checkout.folder / name).write_text("{}")
    return checkout


@pytest.mark.parametrize("path", [*STUDIES, SMALL])
def test_a_study_has_the_jobs_that_its_config_asks_for(fresh: Checkout, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    if path.endswith("smollm2_mmlu_pro.yaml"):
        fresh = _with_stand_ins(fresh, tmp_path)
        monkeypatch.chdir(fresh.folder)
    config = study_config.load(path)
    models, choice = len(study_config.selected(config, "models")), study_config.choice_benchmarks(config)
    benchmarks, section = study_config.selected(config, "benchmarks"), config["interruptions"]
    bases = interruption_config.bases(config)
    read = {(name, arm, r) for name in benchmarks for arm in study_config.arms(config) for r in range(study_config.replicates(config, name))}
    started = {(name, arm, r) for name in bases for arm in interruption_config.arms(config) for r in interruption_config.replicates(config, name)}
    fresh_runs = {run for run in started if run[0] in section["run"]}
    tried = models * sum(len(section["run"][name]) for name, _, _ in fresh_runs)
    expected: dict[str, int] = {
        "sample_items": len({*benchmarks, *bases}),
        "generate_traces": models * len(read | started),
        "grade_traces": models * len(read | fresh_runs),
        **dict.fromkeys(("cut_traces", "continue_cuts", "grade_continuations"), models * len(read)),
        "probe_cuts": models * sum(name in choice for name, _, _ in read),
        "read_controls": models * len(choice) if config["controls"]["items"] else 0,
        **dict.fromkeys(ANALYSIS, 1),
        "interrupt_traces": tried,
        "grade_interruptions": tried,
        "estimate_interruptions": 1 if tried else 0,
    }
    # The demo is what runs without --configfile.
    run = fresh.dry_run(config=None if path == STUDIES[0] else path)
    assert {rule: run.counts.get(rule, 0) for rule in expected} == expected


def test_a_plan_is_printed_and_nothing_else_runs(fresh: Checkout) -> None:
    run = fresh.snakemake("plan", config="config/studies/matched_horizon_gpt_oss.yaml")
    assert re.search(r"^  traces +18 +6,282 +6,282 ", run.text, re.MULTILINE)
    assert not (fresh.folder / "results").exists()


def test_a_study_that_is_not_filled_in_stops_with_one_line(fresh: Checkout, tmp_path: Path) -> None:
    run = fresh.clone(tmp_path / "checkout").snakemake("items", config="config/studies/omni_math.yaml", check=False)
    assert run.code and run.errors and all("benchmarks.omni_math_2.revision: is still FILL_IN" in line for line in run.errors)


def test_a_second_file_fills_a_study_in(fresh: Checkout, tmp_path: Path) -> None:
    checkout = fresh.clone(tmp_path / "checkout")
    model = "{source: resources/embedded, revision: null, max_tokens: 1024}"
    plan = "{mean_tokens: {baseline: 600, numeric_512: 400, early_answer: 400}}"
    changes = f"models: {{qwen3_14b: {model}}}\nhorizons: [0, 512, 1024]\nplan: {plan}\n"
    (checkout.folder / "pins.yaml").write_text(changes)
    command = [*checkout.command("plan", config="config/studies/omni_math.yaml"), "pins.yaml"]
    done = subprocess.run(command, cwd=checkout.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0 and "Plan of study omni_math" in done.stdout


@pytest.mark.parametrize(("path", "environment"), [(SMALL, "transformers"), ("config/studies/demo_vllm.yaml", "vllm")])
def test_a_job_that_runs_a_model_takes_the_environment_of_its_engine(
    fresh: Checkout, path: str, environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conda = tmp_path / "conda"  # Snakemake asks it for no more than this before it lists the environments
    answers = {
        "--version": "conda 25.1.0",
        "info": '{"conda_version": "25.1.0", "platform": "linux-64", "conda_prefix": "/"}',
        "config": '{"get": {"channel_priority": "strict"}}',
    }
    cases = "\n".join(f"{asked}) echo '{answer}';;" for asked, answer in answers.items())
    conda.write_text(f'#!/bin/sh\ncase "$1" in\n{cases}\nesac\n')
    conda.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    run = fresh.snakemake("--sdm", "conda", "--list-conda-envs", config=path)
    assert set(re.findall(r"^envs/(\w+)\.yaml", run.text, re.MULTILINE)) == {"analysis", environment}


def test_a_config_file_is_the_whole_config_and_config_arguments_extend_it(fresh: Checkout) -> None:
    assert not {job for _, job in fresh.dry_run().jobs if "early_answer" in job}, "arms of the demo leak into another study"
    one = fresh.dry_run("--config", "replicates=1", config=None)
    demo = fresh.dry_run(config=None)
    assert {job for job in demo.jobs if not job[1].endswith("/r1")} == one.jobs
    assert {rule for rule, _ in demo.jobs - one.jobs} >= {"generate_traces", "probe_cuts"}


def test_stage_targets_are_nested(fresh: Checkout) -> None:
    stages = ["items", "traces", "replay", "probe", "continuations", "decomposition", "figures", "report"]
    jobs = [fresh.dry_run(stage).jobs for stage in stages]
    for before, after, stage in zip(jobs, jobs[1:], stages[1:], strict=False):
        assert before < after, stage
    assert jobs[-1] == fresh.dry_run().jobs


def test_the_slurm_profile_leaves_gpus_to_the_models_entry_and_builds(fresh: Checkout) -> None:
    profile = yaml.safe_load((ROOT / "profiles/slurm/profile.v9+.yaml").read_text())
    default = yaml.safe_load((ROOT / "profiles/default/profile.v9+.yaml").read_text())
    assert profile["executor"] == "slurm"
    assert profile["rerun-triggers"] == default["rerun-triggers"]
    assert not [rule for rule, resources in profile["set-resources"].items() if "gpu" in resources]
    shards = {f"{stage}_shard" for stage in ("traces", "probe", "continuations", "interruptions")}
    assert set(profile["set-threads"]) == ENGINE_RULES | shards
    assert {"runtime", "mem_mb"} <= profile["default-resources"].keys()
    # The executor is a plugin that this environment may lack; all other options are Snakemake's.
    run = fresh.dry_run("--workflow-profile", "profiles/slurm", "--executor", "local")
    assert run.counts == fresh.dry_run().counts


# The small study


def test_every_declared_table_is_there_with_its_columns_and_where_it_comes_from(finished: Checkout) -> None:
    found = {name.split("/", 1)[1]: path for name, path in finished.tables().items()}
    stages = Counter(name.split("/")[0] for name in found)
    assert set(stages) >= {"items", "raw", "traces", "cuts", "readouts", "continuations", "controls", "outcomes.parquet", "decomposition"}
    assert {f"decomposition/{table}.parquet" for table in tables.DECOMPOSITION} <= found.keys()
    for name, path in found.items():
        metadata = json.loads(pq.read_metadata(path).metadata[b"midtrace"])
        assert {"schema_version", "study", "stage", "version", "identity"} <= metadata.keys(), name
        assert metadata["study"] == "small", name
        sidecar = "".join(path.suffixes) if name.startswith("items/") and len(path.suffixes) > 1 else None
        wanted = CONTRACT.get(sidecar or name.split("/")[0], "").split()
        assert set(wanted) <= set(pl.read_parquet_schema(path)), name
    traces = pl.read_parquet(found["traces/embedded/chains/low/r0.parquet"])
    assert len(traces) == 10
    strata = pl.read_parquet(found["decomposition/strata.parquet"])
    assert {"termination", "share", "difference", "contribution"} <= set(strata.columns)
    facts = tables.read_metadata(found["traces/embedded/chains/low/r0.parquet"])
    assert facts["engine"] == "transformers" and facts["engine_version"] and facts["tokenizer"]
    model = facts["identity"]["model"]
    assert model["weights"] and model["sampling"]["temperature"] == 1.0 and model["dtype"] == "float64"


def test_a_second_run_has_nothing_to_do_and_leaves_no_traces_of_work(finished: Checkout) -> None:
    run = finished.snakemake()
    assert "Nothing to be done" in run.text
    results = finished.folder / "results/small"
    assert not [path for path in results.rglob("*") if path.name.startswith(".") and path.suffix != ".store"], "temporary files are left"
    assert not [path for path in finished.folder.iterdir() if path.name not in {"results", "logs", ".snakemake", *os.listdir(ROOT)}]


def test_the_copy_runs_its_own_library(fresh: Checkout, tmp_path: Path) -> None:
    checkout = fresh.clone(tmp_path / "checkout")
    version = checkout.folder / "workflow/midtrace/__init__.py"
    version.write_text(re.sub(r'__version__ = ".*"', '__version__ = "0.0.0+copy"', version.read_text()))
    checkout.snakemake("results/small/items/chains.parquet")
    assert tables.read_metadata(checkout.tables()["small/items/chains.parquet"])["version"] == "0.0.0+copy"


def test_another_folder_and_other_batches_give_the_same_bytes(finished: Checkout, tmp_path: Path) -> None:
    again = Checkout.copied_to(tmp_path / "checkout")
    again.snakemake(
        "continuations", "results/small/controls/embedded/chains.parquet", "--config", "run={benchmarks: [chains]}",
        "--set-resources", "generate_traces:batch=3", "probe_cuts:batch=5", "continue_cuts:batch=4",
    )  # fmt: skip
    first, second = finished.tables(), again.tables()
    assert Counter(name.split("/")[1] for name in second) == {
        "items": 3, "raw": 6, "traces": 3, "cuts": 3, "readouts": 3, "continuations": 3, "controls": 1,
    }  # fmt: skip
    for name in second:
        assert first[name].read_bytes() == second[name].read_bytes(), name


def test_the_analysis_gives_the_same_bytes_again(finished: Checkout, copy: Checkout) -> None:
    rerun = copy.snakemake("decomposition", "--forcerun", "tabulate_outcomes", "decompose")
    assert rerun.rules == {"tabulate_outcomes", "decompose"}
    first = finished.tables()
    for name, path in copy.tables().items():
        assert first[name].read_bytes() == path.read_bytes(), name


# Accidents


@pytest.fixture
def started(fresh: Checkout, tmp_path: Path) -> Iterator[tuple[Checkout, subprocess.Popen]]:
    """A run that samples 24 traces in batches of two."""
    checkout = fresh.clone(tmp_path / "checkout")
    checkout.edit_config(lambda config: config["benchmarks"]["chains"].update(n=24))
    process = subprocess.Popen(
        checkout.command(KILLED, "--set-resources", "generate_traces:batch=2"),
        cwd=checkout.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    yield checkout, process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


KILLED = "results/small/raw/traces/embedded/chains/high/r0.parquet"


def test_a_killed_job_goes_on_where_it_was(started: tuple[Checkout, subprocess.Popen], tmp_path: Path) -> None:
    checkout, process = started
    output = checkout.folder / KILLED
    deadline = time.time() + 300
    while len(checkout.stored(KILLED)) < 4:
        assert time.time() < deadline and process.poll() is None and not output.exists(), "nothing was kept in time"
        time.sleep(0.02)
    jobs = [child for child in psutil.Process(process.pid).children(recursive=True) if "generate_traces.py" in " ".join(child.cmdline())]
    assert jobs
    for job in jobs:
        job.kill()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not output.exists()
    kept = checkout.stored(KILLED)
    assert 0 < len(kept) < 24

    checkout.snakemake("--unlock")
    checkout.snakemake(KILLED, "--set-resources", "generate_traces:batch=5")
    paid = checkout.stored(KILLED)
    assert len(paid) == len(set(paid)) == 24, "finished traces were sampled again"
    assert set(kept) <= set(paid)

    undisturbed = Checkout.copied_to(tmp_path / "undisturbed")
    undisturbed.edit_config(lambda config: config["benchmarks"]["chains"].update(n=24))
    undisturbed.snakemake(KILLED)
    assert output.read_bytes() == (undisturbed.folder / KILLED).read_bytes()


def test_a_file_of_another_config_is_refused_by_the_field_that_differs(copy: Checkout) -> None:
    path = copy.tables()["small/raw/traces/embedded/chains/low/r0.parquet"]
    metadata = tables.read_metadata(path)
    metadata["identity"]["model"]["sampling"]["temperature"] = 0.7
    tables.write(pl.read_parquet(path), path, tables.RawTraces, metadata)
    later = time.time() + 5
    os.utime(path, (later, later))
    run = copy.snakemake("results/small/readouts/embedded/chains/low/r0.parquet", "--rerun-triggers", "mtime", check=False)
    assert run.code != 0
    assert run.errors == [
        f"midtrace: error: {path.relative_to(copy.folder)}: model.sampling.temperature: the file was made with 0.7, the config says 1.0; "
        "allowed: a file of this config (delete it, or rerun its stage)"
    ]
    assert "Traceback" not in run.text
