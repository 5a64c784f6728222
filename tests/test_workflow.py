"""The workflow as users run it: what is built, what reruns after which edit, what a killed job leaves, whether runs repeat to the byte.

One small study runs once; most tests ask a copy of it, by dry run, what an edit would repeat.
"""

import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import psutil
import pyarrow.parquet as pq
import pytest
import yaml
from checkout import COPIED, ENGINE_RULES, ROOT, SMALL, Checkout, Run

from midtrace import config as study_config
from midtrace import interruption_config, tables

pytestmark = pytest.mark.slow

ANALYSIS = {"tabulate_outcomes", "decompose", "write_claims", "draw_figures", "write_report"}
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


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout in which the small study has run to its end."""
    checkout = Checkout.copied_to(tmp_path_factory.mktemp("finished") / "checkout")
    checkout.snakemake()
    return checkout


@pytest.fixture
def copy(finished: Checkout, tmp_path: Path) -> Checkout:
    """A copy of the finished checkout that a test may spoil."""
    return finished.clone(tmp_path / "checkout")


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout without results, for dry runs."""
    return Checkout.copied_to(tmp_path_factory.mktemp("fresh") / "checkout")


@pytest.fixture(scope="session")
def reruns(finished: Checkout, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """What each edit of a copy of the finished checkout would rerun, by the name of the edit."""
    edits = {name: edit for name, (edit, _, _) in EDITS.items()} | {name: _config(edit) for name, (edit, _) in GROWTH.items()}

    def rerun(edit: Callable[[Checkout], object]) -> Run:
        copy = finished.clone(tmp_path_factory.mktemp("edited") / "checkout")
        edit(copy)
        return copy.dry_run()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(edits, pool.map(rerun, edits.values()), strict=True))


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
    (checkout.folder / "pins.yaml").write_text("models: {qwen3_14b: {source: resources/embedded, revision: null}}\n")
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


def test_the_slurm_profile_asks_for_gpus_in_engine_jobs_and_builds(fresh: Checkout) -> None:
    profile = yaml.safe_load((ROOT / "profiles/slurm/profile.v9+.yaml").read_text())
    default = yaml.safe_load((ROOT / "profiles/default/profile.v9+.yaml").read_text())
    assert profile["executor"] == "slurm"
    assert profile["rerun-triggers"] == default["rerun-triggers"]
    assert {rule for rule, resources in profile["set-resources"].items() if resources.get("gpu") == 1} == ENGINE_RULES
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


# Reruns


def _touch(*patterns: str) -> Callable[[Checkout], None]:
    def edit(checkout: Checkout) -> None:
        later = time.time() + 5
        paths = [path for pattern in patterns for path in checkout.folder.glob(pattern)]
        assert paths
        for path in paths:
            os.utime(path, (later, later))

    return edit


def _append(path: str, text: str = "\n\nEDITED = True\n") -> Callable[[Checkout], None]:
    return lambda checkout: checkout.append(path, text)


def _comment(path: str) -> Callable[[Checkout], None]:
    def edit(checkout: Checkout) -> None:
        file = checkout.folder / path
        text, n = re.subn(r'^( *""")(?=\w)', r"\1Edited. ", file.read_text(), flags=re.MULTILINE)
        assert n > 2
        file.write_text(text + "\n# A comment.\n")

    return edit


def _config(edit: Callable[[dict], object]) -> Callable[[Checkout], None]:
    return lambda checkout: checkout.edit_config(edit)


def _reverse(value: object) -> object:
    if isinstance(value, dict):
        return {key: _reverse(value[key]) for key in reversed(value)}
    return value


def _reorder(config: dict) -> None:
    turned = _reverse(config)
    assert isinstance(turned, dict) and list(turned) != list(config)
    # The order of the registries is the order of rows and figures: it stays.
    for registry in ("arms", "models", "benchmarks"):
        turned[registry] = config[registry]
    config.clear()
    config.update(turned)


def _delete(path: str) -> Callable[[Checkout], None]:
    return lambda checkout: (checkout.folder / "results/small" / path).unlink()


def _new_clone(checkout: Checkout) -> None:
    """Sources younger than all results, and no record of how those were made."""
    _touch(*(f"{name}/**/*" if (ROOT / name).is_dir() else name for name in COPIED))(checkout)
    for path in sorted((checkout.folder / ".snakemake").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


# Edit, rules that must rerun, rules that may. Nothing else may.
EDITS: dict[str, tuple[Callable[[Checkout], object], set[str], set[str]]] = {
    "touched sources": (_touch("Snakefile", "rules/*", "scripts/*", "workflow/midtrace/*.py", "config/*", SMALL), set(), set()),
    "a new clone with copied results": (_new_clone, set(), set()),
    "comments and docstrings": (_comment("workflow/midtrace/generation.py"), set(), set()),
    "an estimand": (_append("workflow/midtrace/estimands/contrasts.py"), {"decompose"}, ANALYSIS),
    "grading": (_append("workflow/midtrace/grading/choice.py"), {"grade_traces", "grade_continuations"}, ANALYSIS),
    "how tables are stored": (_append("workflow/midtrace/tables/files.py"), set(), set()),
    "a script": (_append("scripts/cut_traces.py"), {"cut_traces"}, {"probe_cuts", "continue_cuts", "grade_continuations", *ANALYSIS}),
    "an engine that is not used": (_append("workflow/midtrace/engines/fake.py"), set(), set()),
    "a horizon": (
        _config(lambda config: config["horizons"].insert(2, 32)),
        {"cut_traces", "probe_cuts", "continue_cuts", "grade_continuations", "tabulate_outcomes", "decompose"},
        ANALYSIS,
    ),
    "resamples": (_config(lambda config: config["inference"].update(resamples=300)), {"decompose"}, ANALYSIS),
    "the order of keys": (_config(_reorder), set(), set()),
    "what the plan assumes": (_config(lambda config: config.update(plan={"decode": 77})), set(), set()),
    "limits of programs, in a study without any": (_config(lambda config: config.update(code={"seconds": 9})), set(), set()),
    "the order of arms": (
        _config(lambda config: config.update(arms={arm: config["arms"][arm] for arm in reversed(config["arms"])})),
        set(),
        {"draw_figures", "write_report"},
    ),
    "threshold of a flag": (
        _config(lambda config: config["readouts"].update(low_mass=0.4)),
        {"probe_cuts", "read_controls"},
        {"grade_continuations", *ANALYSIS},
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_reruns_what_it_concerns_and_nothing_else(reruns: dict[str, Run], name: str) -> None:
    _, must, may = EDITS[name]
    assert must <= reruns[name].rules <= must | may


def test_another_batch_size_reruns_nothing(finished: Checkout) -> None:
    assert not finished.dry_run("--set-resources", "generate_traces:batch=3", "probe_cuts:batch=5", "continue_cuts:batch=2").jobs


def test_forcing_a_stage_reruns_it_and_what_follows(finished: Checkout) -> None:
    assert finished.dry_run("--forcerun", "decompose").rules <= ANALYSIS - {"tabulate_outcomes"}
    probed = finished.dry_run("--forcerun", "probe_cuts").rules
    assert {"probe_cuts", "decompose"} <= probed and not probed & {"generate_traces", "cut_traces", "continue_cuts", "read_controls"}


def _generated(jobs: set[tuple[str, str]]) -> set[str]:
    return {job for rule, job in jobs if rule == "generate_traces"}


def _add_arm(config: dict) -> None:
    config["arms"]["added"] = {"suffix": "Think."}
    config["comparisons"].append({"treatment": "added", "reference": "high", "common": "high"})


# Edit and the traces that it makes the engine sample.
GROWTH: dict[str, tuple[Callable[[dict], object], set[str]]] = {
    "an arm": (_add_arm, {"embedded/chains/added/r0", "embedded/free/added/r0"}),
    "the text of an arm": (
        lambda config: config["arms"]["numeric_concise"].update(suffix="Be brief."),
        {"embedded/chains/numeric_concise/r0", "embedded/free/numeric_concise/r0"},
    ),
    "a model": (
        lambda config: config["models"].update(other={**config["models"]["embedded"], "max_tokens": 96}),
        {f"other/{benchmark}/{arm}/r0" for benchmark in ("chains", "free") for arm in ("low", "high", "numeric_concise")},
    ),
    "a benchmark": (
        lambda config: config["benchmarks"].update(more={**config["benchmarks"]["chains"], "n": 4}),
        {f"embedded/more/{arm}/r0" for arm in ("low", "high", "numeric_concise")},
    ),
    "a replicate": (
        lambda config: config.update(replicates=2),
        {f"embedded/{benchmark}/{arm}/r1" for benchmark in ("chains", "free") for arm in ("low", "high", "numeric_concise")},
    ),
    "a comparison of arms that ran": (
        lambda config: config["comparisons"].append({"treatment": "low", "reference": "numeric_concise", "common": "high"}),
        set(),
    ),
    "the text of a common context": (lambda config: config["arms"]["medium"].update(suffix="Be brief."), set()),
}


@pytest.mark.parametrize("name", GROWTH)
def test_growth_samples_new_traces_only(reruns: dict[str, Run], name: str) -> None:
    _, sampled = GROWTH[name]
    jobs = reruns[name].jobs
    assert _generated(jobs) == sampled
    assert ("decompose", "") in jobs
    if name in ("a model", "a benchmark", "a replicate"):
        new = {"a model": "other/", "a benchmark": "more", "a replicate": "/r1"}[name]
        assert all(new in job for rule, job in jobs if rule not in ANALYSIS)


@pytest.mark.parametrize(
    ("path", "again"),
    [
        ("readouts/embedded/chains/low/r0.parquet", {("probe_cuts", "embedded/chains/low/r0"), ("grade_continuations", "embedded/chains/low/r0")}),
        ("traces/embedded/free/low/r0.parquet", {("grade_traces", "embedded/free/low/r0"), ("grade_continuations", "embedded/free/low/r0")}),
    ],
)
def test_a_deleted_shard_is_made_again_alone(copy: Checkout, path: str, again: set[tuple[str, str]]) -> None:
    _delete(path)(copy)
    assert {(rule, job) for rule, job in copy.dry_run().jobs if rule not in ANALYSIS} == again


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


def test_more_items_and_a_horizon_cost_what_is_new_of_them(finished: Checkout, tmp_path: Path) -> None:
    def grow(config: dict) -> None:
        config["benchmarks"]["chains"].update(n=13)
        config["horizons"].insert(2, 32)

    targets = [f"results/small/{name}/embedded/chains/low/r0.parquet" for name in ("readouts", "raw/continuations")]
    traces = "results/small/raw/traces/embedded/chains/low/r0.parquet"
    grown = finished.clone(tmp_path / "grown")
    before = {path: set(grown.stored(path)) for path in (traces, *targets)}
    grown.edit_config(grow)
    grown.snakemake(*targets)
    alone = Checkout.copied_to(tmp_path / "alone")
    alone.edit_config(grow)
    alone.snakemake(*targets)
    for path in (traces, *targets):
        paid = grown.stored(path)
        assert len(paid) == len(set(paid)), path
        needed = set(alone.stored(path))
        assert before[path] < set(paid) and set(paid) - before[path] == needed - before[path], path
        assert (grown.folder / path).read_bytes() == (alone.folder / path).read_bytes(), path
    assert len(set(grown.stored(traces)) - before[traces]) == 3


def test_edited_rows_of_a_stage_cost_no_engine(finished: Checkout, tmp_path: Path) -> None:
    copy = finished.clone(tmp_path / "copy")
    path = "results/small/readouts/embedded/chains/low/r0.parquet"
    before = sorted(copy.stored(path))
    copy.edit_config(lambda config: config["readouts"].update(low_mass=0.4))
    assert copy.snakemake(path).rules == {"probe_cuts"}
    assert sorted(copy.stored(path)) == before
    assert "Loading weights" not in (copy.folder / "logs/small/probe_cuts/embedded/chains/low/r0.log").read_text()


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
