"""``profiles/slurm`` on a real Slurm: a study to its end, and jobs that fail, are cancelled, or run out of time. Needs slurm-wlm and munge."""

import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers.checkout import Checkout, Run
from helpers.cluster import Cluster, slurm_cluster
from helpers.cluster import output as slurm_says

pytestmark = pytest.mark.slurm

# The status is asked by squeue, as there is no accounting, and soon: jobs of tests are short. The machine of the tests is small.
PROFILE = ["--workflow-profile", "profiles/slurm", "--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "5"]
THREADS = ["--set-threads", *(f"{rule}=1" for rule in ("generate_traces", "probe_cuts", "continue_cuts", "read_controls"))]
LIMIT = 400  # seconds of a run; the executor waits for ever where it cannot learn what became of its jobs
HIGH, LOW, BROKEN = (f"results/small/raw/traces/{shard}/r0.parquet" for shard in ("embedded/chains/high", "embedded/free/low", "broken/free/low"))
SIZES = {HIGH: 600, LOW: 200}  # more than a minute of sampling one by one, and enough to be seen at it


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster for the tests of this file."""
    with slurm_cluster() as running:
        yield running


def command(checkout: Checkout, *arguments: str) -> list[str]:
    """Snakemake through Slurm, in a time limit."""
    return ["timeout", "--foreground", "-k", "10", str(LIMIT), *checkout.command(*arguments, *PROFILE, *THREADS)]


def submit(checkout: Checkout, *arguments: str) -> Run:
    """Run Snakemake through Slurm to its end."""
    done = subprocess.run(
        command(checkout, *arguments), cwd=checkout.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return Run(done.returncode, done.stdout)


def submitted(run: Run) -> dict[str, str]:
    """Rule or group of every job that a run has submitted, by Slurm's id."""
    found = re.findall(r"has been submitted with SLURM jobid (\d+) \(log: \S*/slurm_logs/(?:rule|group)_(\w+)/", run.text)
    return {number: name for number, name in found}


def small(config: dict[str, Any]) -> None:
    """One benchmark, one comparison."""
    del config["benchmarks"]["free"], config["arms"]["numeric_concise"], config["comparisons"][1]
    config["benchmarks"]["chains"]["n"] = 6
    config["inference"]["sensitivity_resamples"] = 0


@dataclass(frozen=True)
class Study:
    """A study that ran through Slurm."""

    checkout: Checkout
    run: Run
    log: dict[str, dict[str, str]]  # Slurm's, by job id


@pytest.fixture(scope="module")
def started(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Future[tuple[Checkout, Run]]]:
    """The small study, every job through Slurm. It runs beside the test that comes first: both mostly wait for the executor's polling."""
    checkout = Checkout.copied_to(tmp_path_factory.mktemp("slurm") / "checkout")
    checkout.edit_config(small)
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(lambda: (checkout, submit(checkout)))


@pytest.fixture(scope="module")
def study(started: Future[tuple[Checkout, Run]], cluster: Cluster) -> Study:
    """The study, finished."""
    checkout, run = started.result()
    assert run.code == 0, run.text
    done = cluster.jobs()
    return Study(checkout, run, {number: done[number] for number in submitted(run)})


def test_jobs_that_fail_are_cancelled_or_run_out_of_time_lose_no_finished_trace(started: object, cluster: Cluster, tmp_path: Path) -> None:
    checkout = Checkout.copied_to(tmp_path / "checkout")

    def break_one(config: dict[str, Any]) -> None:
        config["benchmarks"]["chains"]["n"], config["benchmarks"]["free"]["n"] = SIZES[HIGH], SIZES[LOW]
        config["models"]["broken"] = {**config["models"]["embedded"], "max_tokens": 2040}

    checkout.edit_config(break_one)
    slow = ["--retries", "0", "--set-resources", "generate_traces:runtime=1", "generate_traces:batch=1"]
    output = tmp_path / "run.log"
    with output.open("w") as log:
        process = subprocess.Popen(
            command(checkout, HIGH, LOW, BROKEN, *slow), cwd=checkout.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        end = time.monotonic() + 120
        while len(checkout.stored(LOW)) < 4:
            assert time.monotonic() < end and process.poll() is None, output.read_text()
            time.sleep(1)
        by_shard = dict(re.findall(r"jobid (\d+) \(log: \S*/rule_generate_traces/(\w+)/", output.read_text()))
        ids = {shard: number for number, shard in by_shard.items()}
        subprocess.run(["scancel", ids["embedded_free_low_0"]], check=True)
        assert process.wait(LIMIT + 20) == 1
    finally:
        if process.poll() is None:
            process.terminate()  # timeout passes it on, and kills in the end
            process.wait()

    said = output.read_text()
    states = {shard: cluster.jobs()[number]["JobState"] for shard, number in ids.items()}
    assert states == {"embedded_free_low_0": "CANCELLED", "embedded_chains_high_0": "TIMEOUT", "broken_free_low_0": "FAILED"}, said
    for shard, state in states.items():
        assert f"SLURM-job '{ids[shard]}' failed, SLURM status is: '{state}'" in said
    assert "models.broken.max_tokens: prompt of" in said, "the log of the job that failed is shown"
    assert not any((checkout.folder / path).exists() for path in (HIGH, LOW, BROKEN))

    kept = {path: checkout.stored(path) for path in (HIGH, LOW)}
    assert all(4 <= len(requests) < SIZES[path] for path, requests in kept.items()), {path: len(requests) for path, requests in kept.items()}
    run = submit(checkout, HIGH, LOW)
    assert run.code == 0, run.text
    assert Counter(submitted(run).values()) == {"generate_traces": 2}
    for path, requests in kept.items():
        paid = checkout.stored(path)
        assert len(paid) == len(set(paid)) == SIZES[path], "finished traces were sampled again"
        assert set(requests) < set(paid)


def test_a_study_runs_to_its_end_in_jobs_of_slurm(study: Study) -> None:
    assert (study.checkout.folder / "results/small/report.html").is_file()
    jobs = submitted(study.run)
    assert {job["JobState"] for job in study.log.values()} == {"COMPLETED"}
    engine = {rule: n for rule, n in study.run.counts.items() if rule in ("generate_traces", "probe_cuts", "continue_cuts", "read_controls")}
    assert engine == {"generate_traces": 2, "probe_cuts": 2, "continue_cuts": 2, "read_controls": 1}
    grouped = {"traces_cut_traces_grade_traces": 1, "grades_grade_continuations": 1}
    analysis = {"analysis_decompose_draw_figures_tabulate_outcomes_write_claims_write_report": 1}
    assert Counter(jobs.values()) == engine | grouped | analysis
    assert study.run.counts["sample_items"] == 1, "items are drawn where Snakemake runs"


def test_jobs_ask_slurm_for_what_their_model_needs(study: Study) -> None:
    jobs = {name: study.log[number] for number, name in submitted(study.run).items()}
    asked = {name: (job["TimeLimit"], re.search("mem=([^,]+)", job["Tres"])[1], job["ProcCnt"]) for name, job in jobs.items()}
    assert asked["generate_traces"] == ("720", "8006M", "1"), "6 MB of weights and room for the rest"
    assert asked["read_controls"] == ("120", "8006M", "1")
    # Four light jobs at a time in one group, one after the other in the last.
    assert asked["traces_cut_traces_grade_traces"] == ("30", "16000M", "4")
    requested = slurm_says("squeue", "--states=all", "--noheader", "--Format=JobID:12,tres-per-job:20")
    gpus = {words[0]: words[1] for line in requested.splitlines() if (words := line.split())}
    assert {name: gpus[number] for number, name in submitted(study.run).items() if name == "probe_cuts"} == {"probe_cuts": "gres:gpu:1"}
    assert gpus[next(number for number, name in submitted(study.run).items() if name.startswith("analysis"))] == "N/A"


def test_a_second_run_submits_nothing(study: Study, cluster: Cluster) -> None:
    before = cluster.jobs()
    run = submit(study.checkout)
    assert run.code == 0 and "Nothing to be done" in run.text and not submitted(run)
    assert cluster.jobs() == before and not cluster.running()
