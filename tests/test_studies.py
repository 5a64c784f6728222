"""The studies that come with midtrace: their numbers, what they leave to be filled in, and that a run refuses until it is."""

from pathlib import Path

import polars as pl
import pytest
import yaml
from helpers.builders import ROOT

from midtrace import config as study_config
from midtrace import continuation, items, plan, probe, tables, vocabulary
from midtrace.config import interruptions as interruption_config
from midtrace.errors import FILL_IN, InputError

FOLDER = ROOT / "config" / "studies"
PAPERS = {
    "matched_horizon_qwen3": {"items": 698, "arms": 5, "replicates": 3, "models": ["Qwen/Qwen3-14B"], "traces": 10_470},
    "matched_horizon_gpt_oss": {"items": 698, "arms": 3, "replicates": 3, "models": ["openai/gpt-oss-20b", "openai/gpt-oss-120b"], "traces": 12_564},
    "nine_arms_qwen3": {"items": 500, "arms": 9, "replicates": 8, "models": ["Qwen/Qwen3-14B"], "traces": 36_000},
    "calibration_qwen3_small": {"items": 698, "arms": 3, "replicates": 1, "models": ["Qwen/Qwen3-4B", "Qwen/Qwen3-8B"], "traces": 4_188},
    "omni_math": {"items": 500, "arms": 3, "replicates": 3, "models": ["Qwen/Qwen3-14B"], "traces": 4_500},
}


@pytest.fixture
def load(monkeypatch):
    monkeypatch.chdir(ROOT)
    return lambda name: study_config.load(FOLDER / f"{name}.yaml")


@pytest.mark.parametrize("name", PAPERS)
def test_a_study_has_the_numbers_of_its_paper(load, tmp_path, name):
    config, wanted = load(name), PAPERS[name]
    assert config["study"] == name
    drawn = study_config.selected(config, "benchmarks")
    assert sum(plan.items_of(config, benchmark, tmp_path) for benchmark in drawn) == wanted["items"]
    assert {study_config.replicates(config, benchmark) for benchmark in drawn} == {wanted["replicates"]}
    assert len(study_config.arms(config)) == wanted["arms"]
    assert [config["models"][model]["source"] for model in study_config.selected(config, "models")] == wanted["models"]
    assert plan.table(config, tmp_path).filter(stage="traces")["rows"].sum() == wanted["traces"]


def test_the_two_matched_horizon_studies_make_the_generations_of_the_paper_on_the_same_items(load, tmp_path):
    qwen3, gpt_oss = load("matched_horizon_qwen3"), load("matched_horizon_gpt_oss")
    assert sum(plan.table(config, tmp_path).filter(stage="traces")["rows"].sum() for config in (qwen3, gpt_oss)) == 23_034
    for benchmark in ("gpqa_diamond", "mmlu_pro"):
        assert study_config.items_settings(qwen3, benchmark) == study_config.items_settings(gpt_oss, benchmark)


def test_the_nine_arms_are_replayed_at_two_horizons(load, tmp_path):
    config = load("nine_arms_qwen3")
    assert 36_000 * len({*config["horizons"], *config["availability"]["horizons"]}) == 72_000
    assert len({tuple(arm.values()) for arm in config["arms"].values()}) == 9, "nine different prompts"
    assert {comparison["reference"] for comparison in config["comparisons"]} == {"hidden"}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_study_plans_what_the_tables_of_its_design_rest_on(load, path: Path):
    """Of runs as long as its plan assumes, read in both contexts: horizons, whole blocks of every arm, and unfinished reference prefixes."""
    raw = yaml.safe_load(path.read_text())
    for model in raw["models"].values():
        if not Path(ROOT, model["source"]).is_dir():  # weights that are fetched
            model |= {"source": "owner/name", "revision": "0" * 40}
    for benchmark in raw["benchmarks"].values():
        if benchmark.get("path", "").startswith("data/"):  # and files of the user's
            benchmark |= {"path": "hf://datasets/owner/name/file.parquet", "revision": "0" * 40}
    config, both = study_config.validate(raw, path), {"policy", "common"}
    for model in study_config.selected(config, "models"):
        for benchmark in study_config.selected(config, "benchmarks"):
            probed = benchmark in study_config.choice_benchmarks(config)
            for arm in study_config.arms(config):
                replay = study_config.replay_settings(config, model, benchmark, arm, 0)
                read: dict[str, set[str]] = {}
                for cut in plan._cuts(config, tables.TableKey(model, benchmark, arm, 0), replay):
                    contexts = probe.contexts_of(cut, arm, study_config.context_arms(config, arm), probe.own_only(replay))
                    jobs = continuation.jobs_of(cut, contexts, config["continuations"], probed)
                    answered = {context for mode, context, _ in jobs if mode == "answer"}
                    forced = {context for context, _ in contexts} if probed else answered
                    if cut["cut"] == "horizon" and cut["horizon"] in config["horizons"]:
                        assert forced == answered == both, f"{arm}: policy, strata and gaps by both readings at {cut['horizon']}"
                    read[cut["cut"]] = read.get(cut["cut"], set()) | forced
                    if cut["complete"]:
                        read["whole"] = read.get("whole", set()) | forced
                    if any(mode == "resume" for mode, *_ in jobs):
                        read["resume"] = {"policy"}
                assert read["whole"] == both, f"{arm}: own answers beside whole blocks, behind both prompts"
                assert read["matched"] == both, f"{arm}: equal length and falsifier"
                assert ("resume" in read) == ("resume" in config["continuations"]["modes"])


def test_calibration_switches_on_all_that_judges_the_readout(load):
    config = load("calibration_qwen3_small")
    assert config["validity"]["later"] and config["controls"]["items"] and "resume" in config["continuations"]["modes"]
    assert config["readouts"]["spellings"] == "extended"


def test_interruptibility_repeats_aime_and_interrupts_at_the_papers_cuts(load):
    config = load("interruptibility")
    repeated = {name: study_config.replicates(config, name) for name in config["benchmarks"]}
    assert {name for name, n in repeated.items() if n == 16} == {"aime_2024", "aime_2025"} and set(repeated.values()) == {1, 16}
    assert {0.1, 0.3, 0.5, 0.7, 0.9} < {*config["interruptions"]["fractions"]}
    tried = {kind: interruption_config.interventions(config, kind) for kind in config["interruptions"]["run"]}
    assert tried["gsm8k"] == tried["livecodebench"] == ["hard", "force_answer", "soft", "soft_user"]
    assert tried["updates_code"] == ["update", "update_guided", "update_user"]
    arm = study_config.arm_settings(config, "gpt_oss_20b", "baseline"), study_config.arm_settings(config, "qwen3_8b", "baseline")
    assert [entry["effort"] for entry in arm] == ["high", None]
    assert study_config.code_settings(config)["sandbox"] == "bubblewrap"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_no_study_invents_a_commit(path: Path):
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    for registry in ("models", "benchmarks"):
        for name, entry in config[registry].items():
            assert entry.get("revision") in (None, FILL_IN), f"{registry}.{name}"
            if "path" in entry and not entry["path"].startswith("data/"):  # a file of the user's
                assert entry["path"].startswith("hf://datasets/") and entry["revision"] == FILL_IN


def test_a_job_refuses_what_is_not_filled_in(load):
    config = load("matched_horizon_qwen3")
    settings = study_config.traces_settings(config, "qwen3_14b", "mmlu_pro", "baseline", 0)
    with pytest.raises(InputError, match=r"models\.qwen3_14b\.revision: is still FILL_IN; allowed: the commit of Qwen/Qwen3-14B.*second file"):
        vocabulary.load_tokenizer(settings["model"])
    with pytest.raises(InputError, match=r"benchmarks\.mmlu_pro\.revision: is still FILL_IN; allowed: the commit of hf://datasets/TIGER-Lab"):
        items.load(settings["items"]["benchmark"], 0)


def test_the_tests_of_updates_are_pinned_too(load):
    config = load("interruptibility")
    config["benchmarks"]["updates_code"]["revision"] = "0" * 40
    entry = study_config.items_settings(config, "updates_code")["benchmark"]
    with pytest.raises(InputError, match=r"benchmarks\.updates_code\.tests\.revision: is still FILL_IN"):
        items.load(entry, 0)


def test_a_file_here_needs_nothing_filled_in(load, tmp_path):
    rows = {"problem": ["What is 1 + 1?"], "answer": ["2"], "domain": [["Mathematics -> Algebra"]], "tags": [[]]}
    pl.DataFrame(rows).write_ndjson(tmp_path / "omni.jsonl")
    config = yaml.safe_load((FOLDER / "omni_math.yaml").read_text())
    config["benchmarks"]["omni_math_2"] |= {"path": str(tmp_path / "omni.jsonl"), "n": None}
    config = study_config.validate(config, "test")
    assert items.load(study_config.items_settings(config, "omni_math_2")["benchmark"], 0)["answer"].to_list() == ["2"]
