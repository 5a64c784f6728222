"""Config: one clear line per mistake, defaults, settings of stages, and the environments that go with the project."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.checkout import ROOT, SMALL

from midtrace import config as study_config
from midtrace.errors import InputError

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture(autouse=True)
def _in_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def small() -> dict[str, Any]:
    """The small study, as read from its file."""
    return yaml.safe_load((ROOT / SMALL).read_text())


def put(path: str, value: Any) -> Edit:
    """An edit that sets the entry at a dotted path."""

    def edit(config: dict[str, Any]) -> None:
        at: Any = config
        *parents, last = path.split(".")
        for key in parents:
            at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
        at[int(last) if isinstance(at, list) else last] = value

    return edit


def drop(path: str) -> Edit:
    """An edit that removes the entry at a dotted path."""

    def edit(config: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        at: Any = config
        for key in parents:
            at = at[key]
        del at[last]

    return edit


def compare(*comparisons: tuple[str, str, str]) -> Edit:
    """An edit that sets the comparisons (treatment, reference, common)."""
    return put("comparisons", [dict(zip(("treatment", "reference", "common"), names, strict=True)) for names in comparisons])


MODEL = "models.embedded"
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}
ARMS = "low, medium, high, unused, numeric_concise"
LOW_HIGH = {"treatment": "low", "reference": "high"}
REMOTE = {"path": "hf://datasets/a/b/c.parquet", "revision": "0" * 40}
CODE = {"loader": "livecodebench", "answer_kind": "code", **REMOTE, "path": "hf://datasets/a/b/test6.jsonl"}
NAME = "letters, digits, '.', '_' and '-', beginning with a letter or digit"


def engine(name: str, **entry: Any) -> Edit:
    """Another engine, with other keys of its model."""
    return lambda config: config["models"]["embedded"].update(engine=name, **entry)


# Edit; what the line says after the file: field: problem; allowed.
MISTAKES: list[tuple[Edit, str]] = [
    # A key that nothing reads.
    *[
        (put(f"{level}.typo".lstrip("."), 1), f"{f'{level}.typo'.lstrip('.')}: unknown key; allowed: .*{known}.*")
        for level, known in {
            "": "study",
            "run": "benchmarks",
            MODEL: "revision",
            f"{MODEL}.sampling": "top_p",
            "benchmarks.chains": "loader",
            "benchmarks.chains.columns": "question",
            "arms.low": "suffix",
            "comparisons.1": "common",
            "readouts": "low_mass",
            "continuations": "modes",
            "controls": "filler",
            "inference": "margin",
        }.items()
    ],
    (put("arms.unused", {"effrot": "low"}), "arms.unused.effrot: unknown key; allowed: system, suffix, effort, use, horizon"),
    # A key that is missing.
    (drop("horizons"), "horizons: missing; allowed: a value is required"),
    (drop(f"{MODEL}.sampling.min_p"), f"{MODEL}.sampling.min_p: missing; allowed: a value is required"),
    (drop("benchmarks.chains.loader"), "benchmarks.chains.loader: missing; allowed: a value is required"),
    # A name that is defined nowhere.
    (compare(("hihg", "low", "low")), f"comparisons.0.treatment: 'hihg' is not defined; allowed: {ARMS}"),
    (compare(("high", "lwo", "low")), f"comparisons.0.reference: 'lwo' is not defined; allowed: {ARMS}"),
    (compare(("high", "low", "none")), f"comparisons.0.common: 'none' is not defined; allowed: {ARMS}"),
    (put("run.models", ["qwen"]), "run.models: 'qwen' is not defined; allowed: embedded"),
    (put("run.benchmarks", ["chains", "gpqa"]), "run.benchmarks: 'gpqa' is not defined; allowed: chains, free"),
    (put(f"{MODEL}.dialect", "qwen4"), f"{MODEL}.dialect: 'qwen4' is unknown; allowed: qwen3, .*embedded.*"),
    (put(f"{MODEL}.engine", "vlm"), f"{MODEL}.engine: 'vlm' is unknown; allowed: transformers, vllm, server"),
    (put("benchmarks.chains.loader", "gpqq"), "benchmarks.chains.loader: 'gpqq' is unknown; allowed: .*chains.*file.*"),
    (put("benchmarks.chains.answer_kind", "essay"), "benchmarks.chains.answer_kind: is 'essay'; allowed: choice, math.*"),
    (put("arms.low.effort", "tiny"), "arms.low.effort: 'tiny' is unknown to dialect 'embedded'; allowed: low, medium, high"),
    (put("arms.medium.effort", "tiny"), "arms.medium.effort: 'tiny' is unknown to dialect 'embedded'; allowed: low, medium, high"),
    # Horizons and other lists.
    (put("horizons", [-1, 4]), "horizons.0: is -1; allowed: at least 0"),
    (put("horizons", [0, 4, 4]), "horizons: 4 is repeated; allowed: each value once, increasing"),
    (put("horizons", [0, 8, 4]), "horizons: 4 comes after 8; allowed: increasing order"),
    (put("horizons", []), r"horizons: is \[\]; allowed: at least 1 entries"),
    (put("horizons", [0, 2.5]), "horizons.1: is 2.5; allowed: a whole number"),
    (put("horizons", [0, 16.0]), "horizons.1: is 16.0; allowed: a whole number"),
    (put("horizons", [0, True]), "horizons.1: is True; allowed: a whole number"),
    (put("horizons", 16), "horizons: is 16; allowed: a list"),
    (put("fractions", [0.5, 0.5]), "fractions: 0.5 is repeated; allowed: each value once, increasing"),
    (put("fractions", [0, 0.5]), "fractions.0: is 0; allowed: more than 0"),
    (put("fractions", [0.5, 1.5]), "fractions.1: is 1.5; allowed: at most 1"),
    (put("controls.horizons", [64, 16]), "controls.horizons: 16 comes after 64; allowed: increasing order"),
    (put("controls.horizons", [16]), r"controls.horizons: is \[16\]; allowed: at least 2 entries"),
    (put("continuations.modes", ["answer", "answer"]), "continuations.modes: is .*; allowed: entries that differ"),
    (put("continuations.modes", ["answers"]), "continuations.modes.0: is 'answers'; allowed: answer, natural, resume"),
    (put("run.models", []), r"run.models: is \[\]; allowed: at least 1 entries"),
    # Engines and their machines.
    (engine("vllm"), f"{MODEL}.dtype: 'float64' is unknown to engine 'vllm'; allowed: float32, bfloat16, float16"),
    (
        engine("vllm", dtype="float32", sampling={**SAMPLING, "temperature": 2.5}),
        f"{MODEL}.sampling.temperature: is 2.5 with engine 'vllm'; allowed: 0.01 to 2",
    ),
    (engine("server", sampling={**SAMPLING, "temperature": 1e-3}), f"{MODEL}.machine.url: missing, .*; allowed: the url of a running server"),
    (engine("vllm", machine={"url": "http://a"}), f"{MODEL}.machine.url: means nothing to engine 'vllm'; allowed: tensor_parallel_size, .*"),
    (engine("transformers", machine={"enforce_eager": True}), f"{MODEL}.machine.enforce_eager: means nothing to .*; allowed: parameters, .*"),
    (engine("server", machine={"url": "a:80"}), f"{MODEL}.machine.url: is 'a:80'; allowed: text that matches .*"),
    (engine("vllm", machine={"memory_fraction": 90}), f"{MODEL}.machine.memory_fraction: is 90.*; allowed: at most 1"),
    (engine("vllm", machine={"gpu": 1}), f"{MODEL}.machine.gpu: unknown key; allowed: tensor_parallel_size, .*"),
    (engine("server", machine={"url": "http://a", "parameters": 1e9}), f"{MODEL}.machine.parameters: means nothing to engine 'server'; allowed: .*"),
    (engine("transformers", machine={"parameters": "8.2e9"}), f"{MODEL}.machine.parameters: is '8.2e9'; allowed: a number"),
    (engine("transformers", machine={"weights_gb": 0}), f"{MODEL}.machine.weights_gb: is 0.0; allowed: more than 0"),
    (
        engine("vllm", dtype="bfloat16", machine={"parameters": 14.8e9, "gpu_memory_gb": 24}),
        f"{MODEL}.machine.gpu_memory_gb: is 24, of which the engine takes 90%, for 29.6 GB of weights on each of 1 GPU.*; "
        "allowed: at least 32.9, or a larger tensor_parallel_size",
    ),
    (engine("transformers", machine={"gpu_memory_gb": 0.005}), f"{MODEL}.machine.gpu_memory_gb: is 0.005, for 0.0 GB of weights .*"),
    (put(f"{MODEL}.context", 1), f"{MODEL}.context: is 1; allowed: at least 2"),
    # Comparisons.
    (compare(), r"comparisons: is \[\]; allowed: at least 1 entries"),
    (compare(("low", "low", "low")), "comparisons.0: 'low' is compared with itself; allowed: two different arms"),
    (compare(("low", "high", "low"), ("low", "high", "high")), "comparisons.1: high and low are compared twice; allowed: each pair of arms once"),
    (compare(("low", "high", "low"), ("high", "low", "low")), "comparisons.1: high and low are compared twice; allowed: each pair of arms once"),
    # Values out of range, and of the wrong type.
    (put("replicates", 0), "replicates: is 0; allowed: at least 1"),
    (put("replicates", 1.0), "replicates: is 1.0; allowed: a whole number"),
    (put("replicates", "two"), "replicates: is 'two'; allowed: a whole number"),
    (put("seed", -1), "seed: is -1; allowed: at least 0"),
    (put("benchmarks.chains.n", 0), "benchmarks.chains.n: is 0; allowed: at least 1"),
    (put("benchmarks.chains.n", "ten"), "benchmarks.chains.n: is 'ten'; allowed: a whole number or null"),
    (put("benchmarks.chains.n", None), "benchmarks.chains.n: is null, but generated items have no end; allowed: a number of items"),
    (put("benchmarks.chains.template", "Q: {qestion}"), "benchmarks.chains.template: is 'Q: {qestion}'; allowed: text that matches .*question.*"),
    (put("controls.statement", "It is so."), "controls.statement: is 'It is so.'; allowed: text that matches .*label.*"),
    (put(f"{MODEL}.max_tokens", 0), f"{MODEL}.max_tokens: is 0; allowed: at least 1"),
    (put(f"{MODEL}.dtype", "int8"), f"{MODEL}.dtype: is 'int8'; allowed: float64, float32, bfloat16, float16"),
    (put(f"{MODEL}.sampling.temperature", 0), f"{MODEL}.sampling.temperature: is 0.0; allowed: more than 0"),
    (put(f"{MODEL}.sampling.temperature", float("nan")), f"{MODEL}.sampling.temperature: is nan; allowed: a number"),
    (put(f"{MODEL}.sampling.temperature", float("inf")), f"{MODEL}.sampling.temperature: is inf; allowed: a number"),
    (put(f"{MODEL}.sampling.top_p", 1.5), f"{MODEL}.sampling.top_p: is 1.5; allowed: at most 1"),
    (put(f"{MODEL}.sampling.top_p", 0.0), f"{MODEL}.sampling.top_p: is 0.0; allowed: more than 0"),
    (put(f"{MODEL}.sampling.top_k", -1), f"{MODEL}.sampling.top_k: is -1; allowed: at least 0"),
    (put(f"{MODEL}.sampling", "greedy"), f"{MODEL}.sampling: is 'greedy'; allowed: a mapping"),
    (put("inference.level", 1), "inference.level: is 1.0; allowed: less than 1"),
    (put("inference.margin", 0), "inference.margin: is 0.0; allowed: more than 0"),
    (put("inference.resamples", 10), "inference.resamples: is 10; allowed: at least 100"),
    (put("arms", ["low", "high"]), r"arms: is \['low', 'high'\]; allowed: a mapping"),
    (put("arms.low", "low"), "arms.low: is 'low'; allowed: a mapping"),
    (put("arms", {}), "arms: is {}; allowed: at least 1 entry"),
    (put("comparisons", {"treatment": "low"}), "comparisons: is .*; allowed: a list"),
    # Names that cannot be part of a path.
    (put("study", "my study"), f"study: is 'my study'; allowed: {NAME}"),
    (put("study", "../elsewhere"), f"study: is '../elsewhere'; allowed: {NAME}"),
    (put("study", 2026), "study: is 2026; allowed: text"),
    (put("arms", {"low/high": {}}), f"arms.low/high: is no name; allowed: {NAME}"),
    (put("arms", {"": {}}), f"arms.: is no name; allowed: {NAME}"),
    (put("arms", {8: {}}), f"arms.8: is no name; allowed: {NAME}"),
    (lambda config: config["models"].update({"a b": config["models"]["embedded"]}), f"models.a b: is no name; allowed: {NAME}"),
    (lambda config: config["benchmarks"].update({"../x": config["benchmarks"]["free"]}), f"benchmarks.../x: is no name; allowed: {NAME}"),
    # Files that are not there.
    (put(f"{MODEL}.source", "./resources/nothing"), f"{MODEL}.source: './resources/nothing' is no folder here and no hub id; allowed: .*"),
    (
        put(f"{MODEL}.source", "resources/nothing"),
        f"{MODEL}.source: 'resources/nothing' is no folder here, and as a hub id it lacks a revision; allowed: .*",
    ),
    (put("benchmarks.chains.loader", "file"), r"benchmarks.chains.path: missing; allowed: a file \(.parquet, .jsonl, .csv\)"),
    (
        put("benchmarks.more", {"loader": "file", "answer_kind": "choice", "path": "nothing.csv"}),
        "benchmarks.more.path: 'nothing.csv' does not exist; allowed: .*",
    ),
    # Benchmarks of a named source.
    *[
        (put("benchmarks.more", {"answer_kind": "choice", "loader": "mmlu_pro", **entry}), message)
        for entry, message in [
            ({}, r"benchmarks.more.path: missing; allowed: a file \(.*\), for example one of hf://datasets/TIGER-Lab/MMLU-Pro/.*"),
            ({"path": "a.xlsx"}, "benchmarks.more.path: 'a.xlsx' ends in '.xlsx'; allowed: .parquet, .jsonl, .csv"),
            (
                {"path": "hf://datasets/a/b/c.parquet"},
                "benchmarks.more.revision: missing, and 'hf://.*' is on the hub; allowed: the commit to read, .*",
            ),
            (
                {"path": "hf://datasets/a/b.parquet", "revision": "0" * 40},
                "benchmarks.more.path: is 'hf://.*'; allowed: hf://datasets/OWNER/NAME/FILE, .*",
            ),
            ({"path": "hf://datasets/a/b/c.csv", "revision": "main"}, r"benchmarks.more.revision: is 'main'; allowed: text that matches .*40.*"),
            ({"path": "config/config.yaml"}, "benchmarks.more.path: .* ends in '.yaml'; allowed: .*"),
            ({"answer_kind": "math"}, "benchmarks.more.answer_kind: is 'math', which loader 'mmlu_pro' has no items of; allowed: choice"),
            ({"strata": "even"}, "benchmarks.more.strata: is 'even'; allowed: proportional, equal, null"),
            ({"since": "2024-10-01", **REMOTE}, "benchmarks.more.since: is given, but loader 'mmlu_pro' does not use it; .*: livecodebench"),
            ({"tests": {"path": "a.jsonl"}, **REMOTE}, "benchmarks.more.tests: is given, but loader 'mmlu_pro' does not use it; .*"),
            ({"loader": "gpqa", "shuffle": False, **REMOTE}, "benchmarks.more.shuffle: is false, but .*; allowed: true or null"),
            ({"loader": "livecodebench", "answer_kind": "code", **REMOTE}, "benchmarks.more.path: .* ends in '.parquet'; allowed: .jsonl"),
            ({**CODE, "since": "2024-13-01"}, "benchmarks.more.since: '2024-13-01' is no day; allowed: a day such as 2024-10-01"),
            (
                {**CODE, "since": "2025-02-01", "until": "2025-01-31"},
                "benchmarks.more.until: 2025-01-31 is before since .2025-02-01.; allowed: a later day",
            ),
            (
                {"loader": "interrupt_updates", "answer_kind": "code", **REMOTE},
                r"benchmarks.more.tests.path: missing; allowed: a file \(.jsonl\), .*",
            ),
            ({"dialects": {"qwen4": {}}, **REMOTE}, "benchmarks.more.dialects: 'qwen4' is unknown; allowed: .*"),
            (
                {"dialects": {"embedded": {"template": "{question}"}}, **REMOTE},
                "benchmarks.more.template: lacks {options}, so a choice would be asked without them; allowed: .*",
            ),
        ]
    ],
    (put("benchmarks", {"a.tests": {"loader": "chains", "answer_kind": "choice", "n": 1}}), r"benchmarks.a.tests: ends in '.tests', .*"),
    # Arms that come with midtrace.
    (put("arms.low", {"use": "brief"}), "arms.low.use: 'brief' is unknown; allowed: baseline, .*chain_of_draft.*"),
    (put("arms.low", {"use": "numeric_concise"}), "arms.low.horizon: missing, and the text of the arm names it; allowed: a number of tokens"),
    (put("arms.low", {"use": "early_answer", "horizon": 64}), "arms.low.horizon: is 64, but no text of the arm holds {horizon}; .*"),
    (put("arms.low", {"use": "early_answer", "suffix": "Now."}), "arms.low.suffix: is set here and by 'early_answer'; allowed: one of the two"),
    # The claim "mostly by finishing earlier" is about what the study measures.
    (put("inference.dominance", {"horizon": 7, "comparisons": [LOW_HIGH]}), "inference.dominance.horizon: 7 is no horizon of the study; allowed: .*"),
    (
        put("inference.dominance", {"horizon": 16, "comparisons": [{"treatment": "high", "reference": "low"}]}),
        "inference.dominance.comparisons.0: 'high' against 'low' is no comparison of the study; allowed: .*low against high.*",
    ),
    (put("inference.dominance", {"horizon": 16, "comparisons": [LOW_HIGH] * 2}), "inference.dominance.comparisons.1: .* is named twice; allowed: .*"),
    (put("inference.dominance", {"horizon": 16, "comparisons": []}), "inference.dominance.comparisons: .*"),
    (put("inference.dominance", {"horizon": 16}), "inference.dominance.comparisons: .*missing.*"),
    (put("planted", "nothing.yaml"), "planted: 'nothing.yaml' does not exist; allowed: an existing YAML file, or null"),
]


@pytest.mark.parametrize(("edit", "said"), MISTAKES, ids=[re.sub(r"[;:].*", "", said) for _, said in MISTAKES])
def test_a_mistake_is_one_line_that_says_where_what_and_what_is_allowed(edit: Edit, said: str) -> None:
    config = small()
    edit(config)
    with pytest.raises(InputError) as caught:
        study_config.validate(config, "study.yaml")
    assert "\n" not in str(caught.value)
    assert re.fullmatch(f"study.yaml: {said}", str(caught.value)), str(caught.value)


@pytest.mark.parametrize("config", [None, [], "text", 3])
def test_a_config_that_is_no_mapping_is_refused(config: object) -> None:
    with pytest.raises(InputError, match=r"^study.yaml: config: is .*; allowed: a mapping$"):
        study_config.validate(config, "study.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [("study: [", "file: is not YAML .*; allowed: valid YAML"), ("study: a: b", "file: is not YAML .*"), ("", "config: is None; allowed: a mapping")],
)
def test_a_file_that_is_no_config_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        study_config.load(path)
    assert re.fullmatch(f"{re.escape(str(path))}: {said}", str(caught.value)), str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"No such file or directory; allowed: a readable YAML file$"):
        study_config.load(tmp_path / "nothing.yaml")


def test_zero_is_a_horizon() -> None:
    config = small()
    config["horizons"] = [0]
    assert study_config.validate(config, "study.yaml")["horizons"] == [0]


def test_defaults_are_filled_and_the_input_is_left_alone() -> None:
    given = small()
    for key in ("seed", "replicates", "fractions", "readouts", "continuations", "controls", "inference"):
        del given[key]
    before = yaml.safe_dump(given)
    config = study_config.validate(given, "study.yaml")
    assert yaml.safe_dump(given) == before
    assert (config["seed"], config["replicates"], config["controls"]["items"]) == (0, 3, 0)
    assert config["arms"]["unused"] == {"system": None, "suffix": None, "effort": None}
    assert study_config.validate(config, "study.yaml") == config


def test_arms_that_no_comparison_names_are_not_generated() -> None:
    config = study_config.validate(small(), "study.yaml")
    assert study_config.arms(config) == ["low", "high", "numeric_concise"]
    assert study_config.all_arms(config) == ["low", "medium", "high", "numeric_concise"]
    assert study_config.partners(config, "high") == ["low", "numeric_concise"]
    assert study_config.context_arms(config, "high") == {"low": "medium", "numeric_concise": "high"}


def test_how_a_config_is_written_does_not_change_the_settings_of_a_stage() -> None:
    given = small()
    turned = {key: given[key] for key in reversed(given)}
    turned["models"] = {"embedded": {key: given["models"]["embedded"][key] for key in reversed(given["models"]["embedded"])}}
    turned["models"]["embedded"]["sampling"] = {"min_p": 0, "top_k": 0, "top_p": 1, "temperature": 1}
    first, second = (study_config.validate(config, "study.yaml") for config in (given, turned))
    shard = ("embedded", "chains", "low", 0)
    for stage in ("traces", "replay", "probe", "continuation"):
        make = getattr(study_config, f"{stage}_settings")
        assert repr(make(first, *shard)) == repr(make(second, *shard)), stage
    assert repr(study_config.analysis_settings(first)) == repr(study_config.analysis_settings(second))


def test_where_an_engine_runs_does_not_change_the_settings_of_a_stage() -> None:
    configs = []
    for machine in ({}, {"memory_fraction": 0.5, "enforce_eager": True, "parameters": 1e6, "gpu_memory_gb": 8}):
        given = small()
        engine("vllm", dtype="float32", machine=machine)(given)
        configs.append(study_config.validate(given, "study.yaml"))
    here, there = configs
    shard = ("embedded", "chains", "low", 0)
    for stage in ("traces", "replay", "probe", "continuation"):
        make = getattr(study_config, f"{stage}_settings")
        assert make(here, *shard) == make(there, *shard), stage
    assert study_config.report_settings(here) == study_config.report_settings(there)
    engine("vllm", context=1024)(there)
    assert study_config.traces_settings(here, *shard) != study_config.traces_settings(there, *shard)


def test_every_key_of_the_schema_is_documented_and_no_level_takes_unknown_keys() -> None:
    def walk(node: Any, path: str) -> None:
        if not isinstance(node, dict):
            return
        if "properties" in node:
            assert "additionalProperties" in node, path
            for key, sub in node["properties"].items():
                self_evident = path.endswith(("sampling", "columns")) or sub.get("type") in ("object", "array") or "$ref" in sub
                assert self_evident or "description" in sub or path.startswith(("comparisons", "run")), f"{path}.{key}"
                walk(sub, f"{path}.{key}".lstrip("."))
        for key in ("items", "additionalProperties"):
            walk(node.get(key), path)

    walk(study_config.schema(), "")


@pytest.mark.parametrize("url", ["http://h:99999", "http://h:port", "http://[::1", "http://a b", "http://h/v1", "http://u:secret@h", "http://h?x=1"])
def test_an_address_that_is_none_is_refused_and_never_quoted(url: str) -> None:
    machine = {"dtype": "float32", "engine": "server", "machine": {"url": url}}
    config = study_config.read_yaml(ROOT / "config/config.yaml")
    config["models"]["embedded"].update(machine)
    with pytest.raises(InputError, match=r"models\.embedded\.machine\.url: is no address of a server") as refused:
        study_config.validate(config, "c.yaml")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("content", [b"study: caf\xe9", b"study: 2024-13-45", b"? [a, b]\n: 1", b"[" * 5000])
def test_a_file_that_is_no_yaml_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c.yaml").write_bytes(content)
    with pytest.raises(InputError, match=r"c\.yaml: file: is not YAML"):
        study_config.load(tmp_path / "c.yaml")


def test_keys_of_a_second_file_are_laid_over_the_first(tmp_path: Path) -> None:
    (tmp_path / "over.yaml").write_text("models: {embedded: {max_tokens: 170}}\nreplicates: 1\n")
    config = study_config.load(ROOT / "config/config.yaml", tmp_path / "over.yaml")
    assert (config["models"]["embedded"]["max_tokens"], config["models"]["embedded"]["dialect"], config["replicates"]) == (170, "embedded", 1)
