"""A study with a judge, as users run it. The judge is the embedded model, whose verdicts are nonsense: recorded, kept, rerun and resumed they are."""

import os
import signal
import subprocess
import time
from pathlib import Path

import polars as pl
import psutil
import pytest
from helpers.checkout import Checkout

from midtrace import tables

pytestmark = pytest.mark.slow

GRADED = {"grade_traces", "grade_continuations", "grade_interruptions"}
SHARD = "embedded/free/high/r0.parquet"
TRACES = f"results/small/traces/{SHARD}"
TEMPLATE = "Question: {question} Gold: {gold} Given: {answer}"


def with_a_judge(config: dict) -> None:
    """Few free-form items."""
    entry = {key: value for key, value in config["models"]["embedded"].items() if key not in ("max_tokens", "sampling")}
    config["judge"] = {"model": entry, "max_tokens": 24, "answer_tokens": 64, "template": TEMPLATE}
    config["benchmarks"] = {"free": {**config["benchmarks"]["free"], "grader": "judge"}}
    config["comparisons"] = [{"treatment": "low", "reference": "high", "common": "medium"}]
    config["horizons"] = config["availability"]["horizons"] = [0, 16]
    config["interruptions"] = {"run": {"free": ["hard"]}, "arms": ["low"], "fractions": [0.5]}
    config["controls"] = {"items": 0}
    config["inference"] |= {"resamples": 100, "sensitivity_resamples": 0}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    checkout = Checkout.copied_to(tmp_path_factory.mktemp("judged") / "checkout")
    checkout.edit_config(with_a_judge)
    checkout.snakemake()
    return checkout


def test_graded_tables_claims_and_report_say_who_graded(finished: Checkout) -> None:
    found = {name.split("/", 1)[1]: path for name, path in finished.tables().items()}
    graded = {name: path for name, path in found.items() if name.startswith(("traces/", "continuations/", "interruptions/"))}
    assert len(graded) == 2 + 2 + 1
    for name, path in graded.items():
        frame, meta = pl.read_parquet(path), tables.read_metadata(path)
        assert set(frame["grader"]) == {"judge"} and frame["rules_correct"].null_count() == 0, name
        assert (frame["correct"] == (frame["judge_verdict"] == "same")).all()
        assert meta["identity"]["judge"]["model"]["weights"] and "machine" not in meta["identity"]["judge"]["model"]
        assert meta["judge"]["engine"] == "transformers" and meta["judge"]["asked"] == len(finished.stored(f"results/small/{name}")) > 0
    assert not any("judge" in tables.read_metadata(path)["identity"] for name, path in found.items() if name.startswith(("raw/", "items/", "cuts/")))
    natural = pl.read_parquet(found["decomposition/judging.parquet"]).filter(pl.col("reading") == "natural", pl.col("method") == "count")
    assert natural["estimate"].sum() == 2 * 6 and set(natural["benchmark"]) == {"free"}
    claims = (finished.folder / "results/small/claims.json").read_text()
    assert "whose verdict of the judge could not be read" in claims and '"template": "Question: {question}' in claims
    report = (finished.folder / "results/small/report.html").read_text()
    assert report.count("The judge beside the rules") == 2, "of runs and continuations, and of interruptions"


def test_a_second_run_has_nothing_to_do(finished: Checkout) -> None:
    assert "Nothing to be done" in finished.snakemake().text


@pytest.mark.parametrize(
    ("key", "value", "reruns"),
    [("max_tokens", 25, True), ("template", TEMPLATE + "!", True), ("model.machine", {}, False)],
)
def test_another_judge_regrades_what_it_grades_and_nothing_else(finished: Checkout, tmp_path: Path, key: str, value: object, reruns: bool) -> None:
    copy = finished.clone(tmp_path / "checkout")
    copy.edit_config(lambda config: (config["judge"]["model"] if "." in key else config["judge"]).update({key.rpartition(".")[2]: value}))
    run = copy.dry_run()
    paid_or_free = {(rule, about) for rule, about in run.jobs if rule.startswith(("generate", "continue", "interrupt", "probe", "cut", "sample"))}
    assert not paid_or_free
    assert (run.rules >= GRADED) == reruns and bool(run.jobs) == reruns


def test_a_judge_whose_commit_is_open_stops_a_run_before_its_first_job(tmp_path: Path) -> None:
    checkout = Checkout.copied_to(tmp_path / "checkout")
    checkout.edit_config(with_a_judge)
    checkout.edit_config(lambda config: config["judge"]["model"].update(source="owner/judge", revision="FILL_IN"))
    run = checkout.snakemake(check=False)
    (line,) = run.errors
    assert run.code and line.startswith("midtrace: error: config: judge.model.revision: is still FILL_IN; allowed: the commit of owner/judge to run")
    assert not (checkout.folder / "results").exists()
    assert checkout.snakemake("items").rules == {"sample_items"}, "which comes to no judge"
    assert "judge" in checkout.snakemake("plan").text


def test_graded_again_nothing_is_asked_again(finished: Checkout, tmp_path: Path) -> None:
    copy = finished.clone(tmp_path / "checkout")
    before, rows = sorted(copy.stored(TRACES)), pl.read_parquet(copy.folder / TRACES)
    copy.append("workflow/midtrace/grading/choice.py", "\n\nEDITED = True\n")
    assert copy.snakemake(TRACES).rules == {"grade_traces"}
    assert sorted(copy.stored(TRACES)) == before and pl.read_parquet(copy.folder / TRACES).equals(rows)
    assert "Loading weights" not in (copy.folder / f"logs/small/grade_traces/{SHARD}").with_suffix(".log").read_text()


def test_a_killed_judge_goes_on_where_it_was(finished: Checkout, tmp_path: Path) -> None:
    checkout = finished.clone(tmp_path / "checkout")
    (checkout.folder / TRACES).unlink()
    # Another cap: none of what the judge has said counts, and the reply is long enough to be caught.
    checkout.edit_config(lambda config: config["judge"].update(max_tokens=400))
    said = set(checkout.stored(TRACES))
    process = subprocess.Popen(
        checkout.command(TRACES, "--set-resources", "grade_traces:batch=1"),
        cwd=checkout.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.time() + 300
        while len(set(checkout.stored(TRACES)) - said) < 2:
            assert time.time() < deadline and process.poll() is None and not (checkout.folder / TRACES).exists(), "nothing was kept in time"
            time.sleep(0.02)
        jobs = [child for child in psutil.Process(process.pid).children(recursive=True) if "grade_traces.py" in " ".join(child.cmdline())]
        assert jobs
        for job in jobs:
            job.kill()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not (checkout.folder / TRACES).exists()
    kept = set(checkout.stored(TRACES)) - said
    checkout.snakemake("--unlock")
    checkout.snakemake(TRACES)
    paid = [request for request in checkout.stored(TRACES) if request not in said]
    asked = tables.read_metadata(checkout.folder / TRACES)["judge"]["asked"]
    assert kept < set(paid) and len(paid) == len(set(paid)) == asked, "the judge was asked again"
