"""Interruptions with the embedded model: each script's main, the probe and the forced answer at equal cuts, and what reruns."""

import os
import re
import subprocess
import sys
from pathlib import Path

import estimate_interruptions
import generate_traces
import grade_interruptions
import grade_traces
import interrupt_traces
import polars as pl
import pytest
import sample_items
import yaml
from helpers.builders import item_files

from midtrace import config as study_config
from midtrace import prompts, store, tables
from midtrace.config import interruptions as interruption_config
from midtrace.engines import GREEDY, GenerateRequest
from midtrace.errors import InputError
from midtrace.figures import interruptions as interruption_figures
from midtrace.interruptions import interrupt

ROOT = Path(__file__).parents[1]
SILENT = {"silent": {"place": "close", "text": None}, "silent_forced": {"place": "close", "text": None, "stems": {}}}
NAMES = ["hard", "soft_user", "update", "silent"]


def small(run, **interruptions) -> dict:
    """The demo's config with few items."""
    raw = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    raw["benchmarks"]["chains_update"]["n"] = 4
    raw["interruptions"] |= {"run": {"chains_update": run}, "fractions": [0.0, 0.5, 1.0], "interventions": SILENT, **interruptions}
    raw |= {"replicates": 1, "planted": None, "inference": {"resamples": 200}}
    return raw


@pytest.fixture(scope="module")
def study(tmp_path_factory, engine):
    """A finished small study, every file made by the main of its script: (folder, config)."""
    folder = tmp_path_factory.mktemp("study")
    before, here = os.getcwd(), str(ROOT)
    os.chdir(here)
    patch = pytest.MonkeyPatch()
    patch.setattr("midtrace.engines.load", lambda *_: engine)  # one engine for all jobs
    try:
        config = study_config.validate(small(NAMES), "small")
        make(folder, config)
        yield folder, config
    finally:
        patch.undo()
        os.chdir(before)


def make(folder: Path, config: dict) -> None:
    where = ("embedded", "chains_update", "baseline", 0)
    for benchmark in interruption_config.bases(config):
        sample_items.main(*item_files(folder / f"items/{benchmark}.parquet"), "small", study_config.items_settings(config, benchmark))
        settings = study_config.traces_settings(config, "embedded", benchmark, "baseline", 0)
        raw, item_table = (str(folder / name) for name in (f"raw/traces/embedded/{benchmark}/baseline/r0.parquet", f"items/{benchmark}.parquet"))
        generate_traces.main(item_table, raw, "small", settings, 8, store.engine_of(raw, settings["model"], 2, {}))
    item_table, fresh = str(folder / "items/chains_update.parquet"), str(folder / "traces.parquet")
    grade_traces.main(raw_traces(folder, "chains_update"), item_table, fresh, "small", study_config.traces_settings(config, *where))
    for name in interruption_config.interventions(config):
        base = raw_traces(folder, interruption_config.base(config, "chains_update", name))
        raw = str(folder / f"raw/{name}.parquet")
        interrupting = interruption_config.interruption_settings(config, *where, name)
        engine = store.engine_of(raw, interrupting["traces"]["model"], 2, {})
        interrupt_traces.main(item_table, base, raw, "small", interrupting, 3, engine)
        settings = interruption_config.interruption_grading_settings(config, *where, name)
        grade_interruptions.main(item_table, fresh, base, raw, shard(folder, name), "small", settings)
    shards = [shard(folder, name) for name in interruption_config.interventions(config)]
    outputs = {name: str(folder / f"{name}.parquet") for name in tables.INTERRUPTIONS}
    bases = [raw_traces(folder, benchmark) for benchmark in interruption_config.bases(config)]
    estimate_interruptions.main(shards, bases, [item_table], outputs, "small", interruption_config.interruption_analysis_settings(config))


def raw_traces(folder: Path, benchmark: str) -> str:
    return str(folder / f"raw/traces/embedded/{benchmark}/baseline/r0.parquet")


def shard(folder: Path, name: str) -> str:
    return str(folder / f"embedded/chains_update/baseline/r0/{name}.parquet")


@pytest.mark.parametrize("name", NAMES)
def test_rows_hold_what_was_inserted_and_where(study, name):
    folder, config = study
    rows = pl.read_parquet(shard(folder, name))
    benchmark = interruption_config.base(config, "chains_update", name)
    traces = {row["trace_id"]: row for row in pl.read_parquet(raw_traces(folder, benchmark)).iter_rows(named=True)}
    finished = [trace for trace in traces.values() if trace["status"] == "terminated"]
    assert len(rows) == 3 * len(finished) and rows["trace_id"].n_unique() == len(finished)
    assert rows.select("trace_id", "cut_id").is_duplicated().sum() == 0
    assert set(rows["item_id"].str.split("/").list.first()) == {"chains_update"}
    for row in rows.iter_rows(named=True):
        assert row["inserted_ids"] and row["inserted_at"] == traces[row["trace_id"]]["reasoning_start"] + row["n_tokens"]
        assert row["n_answer"] > 0 or row["status"] != "terminated"
        assert (row["probe_choice"] is not None) == (name in ("hard", "silent"))
    assert len(rows) == len(set(zip(rows["seed"], rows["cut_id"], strict=True)))


def test_tables_have_the_columns_of_the_contract(study):
    folder, _ = study
    for name, extra in tables.INTERRUPTIONS.items():
        frame = pl.read_parquet(folder / f"{name}.parquet")
        assert dict(frame.schema) == {**tables.ESTIMATE_COLUMNS, **extra}
        limited = frame.drop_nulls(["estimate", "ci_low", "ci_high"])
        assert (limited["ci_low"] <= limited["estimate"] + 1e-9).all() and (limited["estimate"] <= limited["ci_high"] + 1e-9).all()
    curves = pl.read_parquet(folder / "interruptions.parquet").filter(pl.col("cut") == "fraction", pl.col("estimand") == "accuracy")
    assert set(curves["intervention"]) == set(NAMES) and set(curves["fraction"]) == {None, 0.0, 0.5, 1.0}


def test_another_batch_gives_the_same_rows(study, engine, tmp_path):
    folder, config = study
    settings = interruption_config.interruption_settings(config, "embedded", "chains_update", "baseline", 0, "hard")
    item_table = folder / "items/chains_update.parquet"
    interrupt.run(item_table, raw_traces(folder, "chains_update"), tmp_path / "again.parquet", "small", settings, 1, engine)
    assert pl.read_parquet(tmp_path / "again.parquet").equals(pl.read_parquet(folder / "raw/hard.parquet"))


def test_a_file_of_another_config_is_refused(study, tmp_path):
    folder, config = study
    settings = interruption_config.interruption_grading_settings(config, "embedded", "chains_update", "baseline", 0, "soft_user")
    base = raw_traces(folder, "chains_update")
    with pytest.raises(InputError, match=r"intervention\.name"):
        arguments = (str(folder / "items/chains_update.parquet"), str(folder / "traces.parquet"), base, str(folder / "raw/hard.parquet"))
        grade_interruptions.main(*arguments, str(tmp_path / "x.parquet"), "small", settings)


def test_greedy_hard_answers_as_the_continuation_of_the_same_cut(study, engine):
    """Without a notice, the forced answer is the request of continuation mode ``answer``, and the hard answer agrees with it."""
    folder, config = study
    agree = []
    settings = {name: interruption_config.interruption_settings(config, "embedded", "chains_update", "baseline", 0, name) for name in SILENT}
    hard, forced = (
        interrupt.Inputs.read(folder / "items/chains_update.parquet", raw_traces(folder, "chains_update"), settings[name]) for name in SILENT
    )
    for name in hard.traces:
        trace = hard.traces[name]
        for one, other in zip(hard.jobs(name), forced.jobs(name), strict=True):
            if one.cut["complete"]:
                continue
            kept = [*trace["prompt_ids"], *trace["output_ids"][: trace["reasoning_start"] + one.cut["n_tokens"]]]
            assert list(other.request.prompt_ids) == [*kept, *prompts.closing_ids(hard.dialect, "Answer:", hard.tokenizer)]
            requests = [GenerateRequest(job.request.prompt_ids, 16) for job in (one, other)]
            texts = [hard.tokenizer.decode(found.ids) for found in engine.generate(requests, GREEDY, hard.stops)]
            agree.append(texts[0] == "Answer:" + texts[1])
    assert len(agree) >= 4 and all(agree)


def test_figures(study, tmp_path):
    folder, _ = study
    files = interruption_figures.draw({name: pl.read_parquet(folder / f"{name}.parquet") for name in tables.INTERRUPTIONS}, tmp_path)
    names = {f"{kind}_embedded_chains_update_baseline" for kind in ("interruptions", "interruptions_leakage", "interruptions_errors")}
    assert {path.stem for path in files} == names and {path.suffix for path in files} == {".svg", ".pdf", ".png"}
    assert all(path.stat().st_size > 2000 for path in files)


# --- what reruns ---------------------------------------------------------------------------------------------------------------------


def snakemake(folder: Path, config: dict, *arguments: str) -> str:
    (folder / "study.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    command = [sys.executable, "-m", "snakemake", "-s", str(ROOT / "Snakefile"), "--directory", str(folder), "--configfile", "study.yaml"]
    command += ["--profile", str(ROOT / "profiles/default"), "--cores", "2", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def planned(output: str) -> dict[str, int]:
    """Jobs of a dry run by rule."""
    return {rule: int(n) for rule, n in re.findall(r"^(\w+) +(\d+)$", output, flags=re.MULTILINE) if rule != "total"}


@pytest.mark.slow
def test_an_added_intervention_computes_only_itself(tmp_path):
    (tmp_path / "resources").symlink_to(ROOT / "resources")
    config = {**small(["hard"]), "interruptions": {**small(["hard"])["interruptions"], "fractions": [0.5]}}
    assert planned(snakemake(tmp_path, config, "interruptions", "--dry-run")) == {
        "interruptions": 1,
        "sample_items": 1,
        "generate_traces": 1,
        "grade_traces": 1,
        "interrupt_traces": 1,
        "grade_interruptions": 1,
    }
    snakemake(tmp_path, config, "interruptions")
    assert not planned(snakemake(tmp_path, config, "interruptions", "--dry-run"))

    def with_(**changes) -> dict[str, int]:
        return planned(snakemake(tmp_path, {**config, "interruptions": {**config["interruptions"], **changes}}, "interruptions", "--dry-run"))

    added = {"draft": {"place": "inside", "text": "Draft: be quick."}}
    more = with_(run={"chains_update": ["hard", "draft"]}, interventions=added)
    assert more == {"interruptions": 1, "interrupt_traces": 1, "grade_interruptions": 1}
    assert with_(panic=0.05) == {"interruptions": 1, "grade_interruptions": 1}, "a threshold grades again, without the engine"
    said = with_(interventions={"hard": {"place": "close", "text": "\n\nStop."}})
    assert said == {"interruptions": 1, "interrupt_traces": 1, "grade_interruptions": 1}, "another text: this intervention again, no traces"
    update = with_(run={"chains_update": ["hard", "update"]})
    assert update == {"interruptions": 1, "interrupt_traces": 1, "grade_interruptions": 1, "sample_items": 1, "generate_traces": 1}
