"""What reruns after which change: exactly the jobs that need it, and never a request that is already paid for.

The small study runs once. Each row of the tables edits a copy of it; what would rerun is asked of a dry run, what the engine is asked for of a run.
"""

import os
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers.checkout import ANALYSIS, COPIED, ROOT, SMALL, Checkout, Run

from midtrace import config as study_config
from midtrace import plan

PROGRAMS = "tests/configs/programs.yaml"  # a study of programs, with interruptions
pytestmark = pytest.mark.slow

Edit = Callable[[Checkout], object]
Jobs = set[tuple[str, str]]

# Edits


def _touch(*patterns: str) -> Edit:
    def edit(checkout: Checkout) -> None:
        later = time.time() + 5
        paths = [path for pattern in patterns for path in checkout.folder.glob(pattern)]
        assert paths
        for path in paths:
            os.utime(path, (later, later))

    return edit


def _append(path: str, text: str = "\n\nEDITED = True\n") -> Edit:
    return lambda checkout: checkout.append(path, text)


def _replace(path: str, old: str, new: str) -> Edit:
    def edit(checkout: Checkout) -> None:
        file = checkout.folder / path
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))

    return edit


def _comment(path: str) -> Edit:
    def edit(checkout: Checkout) -> None:
        file = checkout.folder / path
        text, n = re.subn(r'^( *""")(?=\w)', r"\1Edited. ", file.read_text(), flags=re.MULTILINE)
        assert n > 2
        file.write_text(text + "\n# A comment.\n")

    return edit


def _config(edit: Callable[[dict], object]) -> Edit:
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


def _delete(*paths: str) -> Edit:
    return lambda checkout: [(checkout.folder / "results/small" / path).unlink() for path in paths]


def _new_clone(checkout: Checkout) -> None:
    """Sources younger than all results, and no record of how those were made."""
    _touch(*(f"{name}/**/*" if (ROOT / name).is_dir() else name for name in COPIED))(checkout)
    for path in sorted((checkout.folder / ".snakemake").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def _add_arm(config: dict) -> None:
    config["arms"]["added"] = {"suffix": "Think."}
    config["comparisons"].append({"treatment": "added", "reference": "high", "common": "high"})


# Jobs

ARMS = ("low", "high", "numeric_concise")
BENCHMARKS = ("chains", "free")
CUTS = ("cut_traces", "probe_cuts", "continue_cuts", "grade_continuations")
READ = CUTS[1:]
SHARDS = ("generate_traces", "grade_traces", *CUTS)


def _shards(
    rules: Sequence[str], benchmarks: Sequence[str] = BENCHMARKS, arms: Sequence[str] = ARMS, model: str = "embedded", replicate: int = 0
) -> Jobs:
    """Jobs of these rules; the probe reads benchmarks with options only."""
    return {(rule, f"{model}/{b}/{arm}/r{replicate}") for rule in rules for b in benchmarks for arm in arms if (rule, b) != ("probe_cuts", "free")}


ANALYSED: Jobs = {(rule, "") for rule in ANALYSIS}
DECOMPOSED = ANALYSED - {("tabulate_outcomes", "")}
DRAWN: Jobs = {("draw_figures", ""), ("write_report", "")}
CONTROLS: Jobs = {("read_controls", "embedded/chains")}

# Edit, and the jobs that it makes necessary.
EDITS: dict[str, tuple[Edit, Jobs]] = {
    # Files and code
    "touched sources": (_touch("Snakefile", "rules/*", "scripts/*", "workflow/midtrace/*.py", "config/*", SMALL), set()),
    "a touched file of traces": (_touch("results/small/raw/traces/embedded/chains/low/r0.parquet"), set()),
    "touched results, all at once": (_touch("results/small/**/*.*"), set()),
    "a new clone with copied results": (_new_clone, set()),
    "a comment in generation code": (_comment("workflow/midtrace/generation.py"), set()),
    "how tables are stored": (_append("workflow/midtrace/tables/files.py"), set()),
    "an engine that is not used": (_append("workflow/midtrace/engines/fake.py"), set()),
    "a script": (_append("scripts/cut_traces.py"), _shards(CUTS) | ANALYSED),
    "grading": (_append("workflow/midtrace/grading/choice.py"), _shards(["grade_traces", "grade_continuations"]) | ANALYSED),
    "an estimand": (_append("workflow/midtrace/estimands/contrasts.py"), DECOMPOSED),
    "a figure's colour": (_replace("workflow/midtrace/figures/style.py", '"#BBBBBB"', '"#AAAAAA"'), DRAWN),
    "the look of the report": (_append("workflow/midtrace/report/style.css", "\np { color: black; }\n"), {("write_report", "")}),
    # Settings that ask for other numbers
    "a horizon": (_config(lambda config: config["horizons"].insert(2, 32)), _shards(CUTS) | ANALYSED),
    "a readout context": (
        _config(lambda config: config["comparisons"][0].update(common="unused")),
        _shards(READ, arms=["low", "high"]) | ANALYSED,
    ),
    "the text of a common context": (
        _config(lambda config: config["arms"]["medium"].update(suffix="Be brief.")),
        _shards(READ, arms=["low", "high"]) | ANALYSED,
    ),
    "a comparison of arms that ran": (
        _config(lambda config: config["comparisons"].append({"treatment": "low", "reference": "numeric_concise", "common": "high"})),
        _shards(CUTS, arms=["low", "numeric_concise"]) | ANALYSED,
    ),
    "threshold of a flag": (
        _config(lambda config: config["readouts"].update(low_mass=0.4)),
        _shards(["probe_cuts", "grade_continuations"], ["chains"]) | CONTROLS | ANALYSED,
    ),
    "resamples": (_config(lambda config: config["inference"].update(resamples=300)), DECOMPOSED),
    # Settings that ask for no other number
    "the order of keys": (_config(_reorder), set()),
    "what the plan assumes": (_config(lambda config: config.update(plan={"decode": 77})), set()),
    "limits of programs, in a study without any": (_config(lambda config: config.update(code={"seconds": 9})), set()),
    "the order of arms": (_config(lambda config: config.update(arms={arm: config["arms"][arm] for arm in reversed(config["arms"])})), DRAWN),
    # Growth
    "an arm": (_config(_add_arm), _shards(SHARDS, arms=["added"]) | _shards(CUTS, arms=["high"]) | ANALYSED),
    "the text of an arm": (
        _config(lambda config: config["arms"]["numeric_concise"].update(suffix="Be brief.")),
        _shards(SHARDS, arms=["numeric_concise"]) | _shards(CUTS, arms=["high"]) | ANALYSED,
    ),
    "a model": (
        _config(lambda config: config["models"].update(other={**config["models"]["embedded"], "max_tokens": 96})),
        _shards(SHARDS, model="other") | {("read_controls", "other/chains")} | ANALYSED,
    ),
    "another revision of a model": (
        _config(lambda config: config["models"]["embedded"].update(revision="0" * 40)),
        _shards(SHARDS) | CONTROLS | ANALYSED,
    ),
    "a benchmark": (
        _config(lambda config: config["benchmarks"].update(more={**config["benchmarks"]["chains"], "n": 4})),
        {("sample_items", "more"), ("read_controls", "embedded/more")} | _shards(SHARDS, ["more"]) | ANALYSED,
    ),
    "more items": (
        _config(lambda config: config["benchmarks"]["chains"].update(n=13)),
        {("sample_items", "chains")} | _shards(SHARDS, ["chains"]) | CONTROLS | ANALYSED,
    ),
    "more replicates": (_config(lambda config: config.update(replicates=2)), _shards(SHARDS, replicate=1) | ANALYSED),
    # Deleted shards
    "readouts of a shard deleted": (
        _delete("readouts/embedded/chains/low/r0.parquet"),
        _shards(["probe_cuts", "grade_continuations"], ["chains"], ["low"]) | ANALYSED,
    ),
    "traces of a shard deleted": (
        _delete("raw/traces/embedded/free/low/r0.parquet"),
        _shards(SHARDS, ["free"], ["low"]) | _shards(CUTS, ["free"], ["high"]) | ANALYSED,
    ),
    "graded traces of a shard deleted": (
        _delete("traces/embedded/free/low/r0.parquet"),
        _shards(["grade_traces", "grade_continuations"], ["free"], ["low"]) | ANALYSED,
    ),
    "a table of estimates deleted": (_delete("decomposition/policy.parquet"), DECOMPOSED),
}
CONFIG_EDITS = ("a horizon", "a readout context", "threshold of a flag", "an arm", "the text of an arm", "a model", "more items", "more replicates")


@pytest.fixture(scope="session")
def edited(finished: Checkout, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Checkout, Run]]:
    """By the name of the edit: a copy of the finished study that was edited so, and what would rerun in it."""

    def rerun(edit: Edit) -> tuple[Checkout, Run]:
        copy = finished.clone(tmp_path_factory.mktemp("edited") / "checkout")
        edit(copy)
        return copy, copy.dry_run()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(EDITS, pool.map(rerun, (edit for edit, _ in EDITS.values())), strict=True))


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_reruns_exactly_what_it_concerns(edited: dict[str, tuple[Checkout, Run]], name: str) -> None:
    assert edited[name][1].jobs == EDITS[name][1]


# The second study, and programs

LOW, CODE = "embedded/chains_update/low/r0", [f"embedded/programs/{arm}/r0" for arm in ("low", "high")]
ESTIMATED: Jobs = {("estimate_interruptions", "")}
TARGETS = ("continuations", "interruptions", "results/programs/decomposition/interruptions.parquet")


def _graded(*interventions: str) -> Jobs:
    return {("grade_interruptions", f"{LOW}/{name}") for name in interventions}


PROGRAM_EDITS: dict[str, tuple[Edit, Jobs]] = {
    "the order of keys": (lambda checkout: checkout.edit_config(_reorder, PROGRAMS), set()),
    "a marker": (
        lambda checkout: checkout.edit_config(lambda config: config["interruptions"].update(doubt_markers=["hmm"]), PROGRAMS),
        _graded("hard", "update") | ESTIMATED,
    ),
    "limits of programs": (
        lambda checkout: checkout.edit_config(lambda config: config["code"].update(seconds=3), PROGRAMS),
        {(rule, about) for rule in ("grade_traces", "grade_continuations") for about in CODE} | ESTIMATED,
    ),
    "another intervention": (
        lambda checkout: checkout.edit_config(lambda config: config["interruptions"]["run"]["chains_update"].append("soft"), PROGRAMS),
        {("interrupt_traces", f"{LOW}/soft")} | _graded("soft") | ESTIMATED,
    ),
    "how intervals are made": (
        lambda checkout: checkout.edit_config(lambda config: config["inference"].update(level=0.9), PROGRAMS),
        ESTIMATED,
    ),
}


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout in which the study of programs has run, and its interruptions up to their estimates."""
    checkout = Checkout.copied_to(tmp_path_factory.mktemp("programs") / "checkout")
    checkout.snakemake(*TARGETS, config=PROGRAMS)
    return checkout


@pytest.mark.parametrize("name", PROGRAM_EDITS)
def test_an_edit_of_a_study_of_programs_and_interruptions_reruns_exactly_what_it_concerns(programs: Checkout, tmp_path: Path, name: str) -> None:
    edit, jobs = PROGRAM_EDITS[name]
    copy = programs.clone(tmp_path / "copy")
    edit(copy)
    assert copy.dry_run(*TARGETS, config=PROGRAMS).jobs == jobs


def test_another_batch_size_reruns_nothing(finished: Checkout) -> None:
    assert not finished.dry_run("--set-resources", "generate_traces:batch=3", "probe_cuts:batch=5", "continue_cuts:batch=2").jobs


def test_forcing_a_stage_reruns_it_and_what_follows(finished: Checkout) -> None:
    assert finished.dry_run("--forcerun", "decompose").jobs == DECOMPOSED
    assert finished.dry_run("--forcerun", "probe_cuts").jobs == _shards(["probe_cuts", "grade_continuations"], ["chains"]) | ANALYSED


# The plan

FOLDERS = {
    "generate_traces": "raw/traces",
    "cut_traces": "cuts",
    "probe_cuts": "readouts",
    "continue_cuts": "raw/continuations",
    "read_controls": "controls",
}


@pytest.mark.parametrize("name", CONFIG_EDITS)
def test_a_plan_announces_the_files_that_a_run_would_make(
    edited: dict[str, tuple[Checkout, Run]], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, run = edited[name]
    monkeypatch.chdir(checkout.folder)
    planned = plan.table(study_config.load(SMALL), "results/small")
    coming = {f"{FOLDERS[rule]}/{about}.parquet" for rule, about in run.jobs if rule in FOLDERS}
    assert set(planned.filter(~planned["done"])["path"]) == coming and coming


def _announced(checkout: Checkout) -> dict[str, int]:
    """Rows still to do by stage, as ``snakemake plan`` prints them."""
    text = checkout.snakemake("plan").text
    rows = re.findall(r"^  (\w+) +[\d,]+ +[\d,]+ +([\d,]+) ", text, re.MULTILINE)
    return {stage: int(number.replace(",", "")) for stage, number in rows}


# What the engine is asked for


def _paid_new(checkout: Checkout, before: set[str]) -> set[str]:
    """Requests that were paid for since; none was paid for twice and none was lost."""
    paid = checkout.paid()
    assert len(paid) == len(set(paid)) and before <= set(paid)
    return set(paid) - before


def test_a_horizon_is_announced_and_scores_only_what_is_new(finished: Checkout, tmp_path: Path) -> None:
    shard = "embedded/chains/low/r0.parquet"
    checkout = finished.clone(tmp_path / "copy")
    assert set(_announced(checkout).values()) == {0}
    before, read = set(checkout.paid()), set(checkout.stored(f"results/small/readouts/{shard}"))
    checkout.edit_config(lambda config: config["horizons"].insert(2, 32))
    announced = _announced(checkout)
    assert announced["traces"] == announced["controls"] == 0 < announced["probes"]
    checkout.snakemake(*(f"results/small/{stage}/{shard}" for stage in ("readouts", "raw/continuations")))
    new = _paid_new(checkout, before)
    assert new and not [request for request in new if "raw/traces" in request], "a valid trace was sampled again"
    # Ten runs, read at the new horizon in their own context and the common one; runs that end together or before share a prefix.
    assert 0 < len(set(checkout.stored(f"results/small/readouts/{shard}")) - read) <= 20
    left = _announced(checkout)
    assert 0 < left["probes"] < announced["probes"] and 0 < left["continuations"] < announced["continuations"]


def test_the_text_of_an_arm_costs_its_own_traces_and_what_is_cut_to_their_length(finished: Checkout, tmp_path: Path) -> None:
    checkout = finished.clone(tmp_path / "copy")
    before = set(checkout.paid())
    EDITS["the text of an arm"][0](checkout)
    announced = _announced(checkout)
    run = checkout.snakemake(
        "results/small/readouts/embedded/chains/numeric_concise/r0.parquet", "results/small/traces/embedded/chains/high/r0.parquet"
    )
    assert run.jobs == _shards(["generate_traces", "cut_traces", "probe_cuts"], ["chains"], ["numeric_concise"])
    new = _paid_new(checkout, before)
    sampled = [request for request in new if "raw/traces" in request]
    assert all("/numeric_concise/" in request for request in new) and len(sampled) == 10
    assert announced["traces"] == 10 + 6, "the other benchmark's are still to come"


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
