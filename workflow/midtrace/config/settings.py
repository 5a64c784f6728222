"""The settings of each stage: all that determines its output and nothing else.

They are the ``params`` of its rule (so that Snakemake reruns what a change concerns) and the identity in the metadata of its files (so that a
stage refuses a file of another config).
"""

import hashlib
from collections.abc import Callable, Mapping
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from midtrace import wording
from midtrace.config.plausibility import warnings
from midtrace.config.selection import all_arms, arms, choice_benchmarks, context_arms, partners, replicates, selected
from midtrace.errors import InputError
from midtrace.loaders import sources

SMALL_FILE = 64 * 2**20  # files up to this size are hashed whole, larger ones at places all over them
PLACES, PLACE = 512, 64 * 2**10
P = ParamSpec("P")
T = TypeVar("T")
REVISED = "+revised"  # benchmark name + this: the same items asked with their revised question; "+" occurs in no name of a config


def canonical(make: Callable[P, T]) -> Callable[P, T]:
    """Settings with all mappings in key order: another order of keys in the config must not look like another config to Snakemake."""

    @wraps(make)
    def settings(*args: P.args, **kwargs: P.kwargs) -> T:
        return _in_key_order(make(*args, **kwargs))

    return settings


def _in_key_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _in_key_order(value[key]) for key in sorted(value)}
    return [_in_key_order(item) for item in value] if isinstance(value, list) else value


@cache
def folder_hash(folder: str) -> str:
    """Hash of a model folder: its files by name and content (:func:`file_hash`)."""
    digest = hashlib.sha256()
    for path in sorted(p for p in Path(folder).iterdir() if p.suffix in {".json", ".safetensors", ".jinja", ".bin", ".gguf", ".model", ".txt"}):
        if path.name not in ("training.json", "measured.json"):
            digest.update(f"{path.name}:{file_hash(str(path))}:".encode())
    return digest.hexdigest()[:16]


@cache
def file_hash(path: str) -> str:
    """SHA-256 of a file, shortened; of a large one, of its size, its ends and 512 places all over it: weights that were trained on differ there.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    try:
        size = Path(path).stat().st_size
        with open(path, "rb") as handle:
            if size <= SMALL_FILE:
                return hashlib.file_digest(handle, "sha256").hexdigest()[:16]
            digest = hashlib.sha256(f"{size}:".encode())
            for place in range(PLACES):
                handle.seek((size - PLACE) * place // (PLACES - 1))
                digest.update(handle.read(PLACE))
            return digest.hexdigest()[:16]
    except OSError as error:
        raise InputError(path, "file", f"cannot be read ({error.strerror})", "a file that is whole, not a link to nothing") from None


def source_hash(path: str | None, revision: str | None) -> str | None:
    """What identifies the content of a benchmark's source: the revision on the hub, or the hashes of the files here."""
    if path is None or sources.is_remote(path):
        return revision
    return ",".join(file_hash(str(file)) for file in sources.files(path))


@canonical
def items_settings(config: Mapping[str, Any], benchmark: str) -> dict[str, Any]:
    """What determines ``items/{benchmark}.parquet``."""
    source = benchmark.removesuffix(REVISED)
    entry = config["benchmarks"][source]
    settings = {key: value for key, value in entry.items() if key not in (*wording.PROMPT, "dialects", "replicates", "grader")}
    settings["content"] = source_hash(entry["path"], entry["revision"])
    settings["tests"] = entry["tests"] | {"content": source_hash(entry["tests"]["path"], entry["tests"]["revision"])}
    view = {"view": "revised"} if benchmark != source else {}
    return {"seed": config["seed"], "benchmark": {"name": source, **settings}, **view}


def prompt_of(config: Mapping[str, Any], model: str, benchmark: str) -> dict[str, Any]:
    """How a model is asked the items of a benchmark: ``system``, ``template``, ``option``, ``stem``."""
    return wording.prompt(config["benchmarks"][benchmark.removesuffix(REVISED)], config["models"][model]["dialect"])


def _without_machine(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "machine"}


@canonical
def model_settings(config: Mapping[str, Any], model: str) -> dict[str, Any]:
    """What determines what a model does: its entry without ``machine``, and its weights."""
    return {"name": model, **_with_weights(config["models"][model])}


def _with_weights(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A model entry without ``machine``, and with what identifies its weights."""
    weights = folder_hash(entry["source"]) if Path(entry["source"]).is_dir() else entry["revision"]
    return {**_without_machine(entry), "weights": weights}


@canonical
def judge_settings(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """What determines the verdicts of the judge: ``model``, ``max_tokens``, ``answer_tokens``, ``template``; None for a study without one."""
    judge = config["judge"]
    if judge is None:
        return None
    template = judge["template"] if judge["template"] is not None else wording.wordings()["judge"]
    return {**judge, "model": _with_weights(judge["model"]), "template": template}


def judged(config: Mapping[str, Any]) -> list[str]:
    """Benchmarks of the study whose answers a judge grades."""
    used = dict.fromkeys([*selected(config, "benchmarks"), *config["interruptions"]["run"]])
    return [name for name in used if config["benchmarks"][name]["grader"] == "judge"]


def graded(config: Mapping[str, Any], benchmark: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a stage before grading with what determines the grades: ``judge``, where the benchmark has one; else as they are."""
    if config["benchmarks"][benchmark.removesuffix(REVISED)]["grader"] == "rules":
        return dict(settings)
    return {**settings, "judge": judge_settings(config)}


@canonical
def arm_settings(config: Mapping[str, Any], model: str, arm: str) -> dict[str, Any]:
    """An arm as a model runs it: without an effort of its own it has the model's."""
    record = config["arms"][arm]
    return {"name": arm, **record, "effort": record["effort"] or config["models"][model]["effort"]}


@canonical
def traces_settings(config: Mapping[str, Any], model: str, benchmark: str, arm: str, replicate: int | str) -> dict[str, Any]:
    """What determines the traces of an arm and replicate."""
    return {
        "items": items_settings(config, benchmark),
        "model": model_settings(config, model),
        "prompt": {key: value for key, value in prompt_of(config, model, benchmark).items() if key != "stem"}
        | {"date": config["models"][model]["date"]},
        "arm": arm_settings(config, model, arm),
        "replicate": int(replicate),
        "seed": config["seed"],
    }


@canonical
def graded_traces_settings(config: Mapping[str, Any], model: str, benchmark: str, arm: str, replicate: int | str) -> dict[str, Any]:
    """What determines the graded traces of an arm and replicate."""
    return graded(config, benchmark, traces_settings(config, model, benchmark, arm, replicate))


@canonical
def replay_settings(config: Mapping[str, Any], model: str, benchmark: str, arm: str, replicate: int | str) -> dict[str, Any]:
    """What determines the cuts: the traces of the arm and, for matched horizons, of the arms that it is compared with."""
    roles = {
        (c["treatment"] if c["reference"] == arm else c["reference"]): ("reference" if c["reference"] == arm else "treatment")
        for c in config["comparisons"]
        if arm in (c["treatment"], c["reference"])
    }
    return {
        "traces": traces_settings(config, model, benchmark, arm, replicate),
        "partners": {
            other: {"role": roles[other], "traces": traces_settings(config, model, benchmark, other, replicate)} for other in partners(config, arm)
        },
        "horizons": config["horizons"],
        # Only the probe reads this grid: a benchmark without options is not cut for it.
        "availability": config["availability"]["horizons"] if benchmark in choice_benchmarks(config) else [],
        "later": later_horizons(config),
        "fractions": config["fractions"],
    }


def later_horizons(config: Mapping[str, Any]) -> list[int]:
    """Horizons at which runs are read only to see whether what was read before stays: k tokens past a horizon, k from ``validity.later``."""
    past = {horizon + k for horizon in config["horizons"] for k in config["validity"]["later"]}
    return sorted(past - {*config["horizons"]})


@canonical
def probe_settings(config: Mapping[str, Any], model: str, benchmark: str, arm: str, replicate: int | str) -> dict[str, Any]:
    """What determines the readouts of an arm and replicate."""
    contexts = context_arms(config, arm)
    return {
        "replay": replay_settings(config, model, benchmark, arm, replicate),
        "contexts": {partner: arm_settings(config, model, common) for partner, common in contexts.items()},
        "stem": prompt_of(config, model, benchmark)["stem"],
        "readouts": config["readouts"],
    }


@canonical
def continuation_settings(config: Mapping[str, Any], model: str, benchmark: str, arm: str, replicate: int | str) -> dict[str, Any]:
    """What determines the continuations of an arm and replicate."""
    settings = probe_settings(config, model, benchmark, arm, replicate)
    del settings["readouts"]
    return {**settings, "continuations": config["continuations"]}


@canonical
def graded_continuation_settings(config: Mapping[str, Any], model: str, benchmark: str, arm: str, replicate: int | str) -> dict[str, Any]:
    """What determines the graded continuations of an arm and replicate."""
    return graded(config, benchmark, continuation_settings(config, model, benchmark, arm, replicate))


@canonical
def controls_settings(config: Mapping[str, Any], model: str, benchmark: str) -> dict[str, Any]:
    """What determines the controls of a model: items, the reference arm of the first comparison, and the probe."""
    reference = config["comparisons"][0]["reference"]
    return {
        "traces": traces_settings(config, model, benchmark, reference, 0),
        "stem": prompt_of(config, model, benchmark)["stem"],
        "readouts": config["readouts"],
        "controls": config["controls"],
    }


@canonical
def outcomes_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What determines the outcomes: the config without what is only done with them."""
    later = ("study", "inference", "validity", "planted", "interruptions", "plan", "code", "jobs")
    models = {name: _without_machine(entry) for name, entry in config["models"].items()}
    judge = config["judge"] and {**config["judge"], "model": _without_machine(config["judge"]["model"])}
    kept = {key: value for key, value in config.items() if key not in later}
    kept["validity"] = {"later": config["validity"]["later"]}  # the rest of it is for the tables that follow
    return {**kept, "models": models, "judge": judge, "code": code_settings(config)}


@canonical
def analysis_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What determines decomposition, figures and report."""
    return {
        "outcomes": outcomes_settings(config),
        "models": selected(config, "models"),
        "benchmarks": selected(config, "benchmarks"),
        "comparisons": config["comparisons"],
        "horizons": config["horizons"],
        "fractions": config["fractions"],
        "availability": config["availability"],
        "validity": config["validity"],
        "probed": [name for name in selected(config, "benchmarks") if name in choice_benchmarks(config)],
        "inference": config["inference"],
        "seed": config["seed"],
        "planted": file_hash(config["planted"]) if config["planted"] else None,
        "judge": {"benchmarks": judged(config), **(judge_settings(config) or {})} if judged(config) else None,
    }


@canonical
def figures_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What figures and tables for readers are drawn from, and which of them there are."""
    return {
        "analysis": analysis_settings(config),
        "answer_kinds": {name: config["benchmarks"][name]["answer_kind"] for name in selected(config, "benchmarks")},
        "arms": arms(config),
        "asked": {"controls": bool(config["controls"]["items"]), "methods": config["inference"]["sensitivity_resamples"] > 0},
    }


@canonical
def report_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What the report says besides: how the arms prompt, and which thresholds flag a readout."""
    return {
        "figures": figures_settings(config),
        "arms": {name: config["arms"][name] for name in all_arms(config)},
        "replicates": sorted({replicates(config, name) for name in selected(config, "benchmarks")}),
        "readouts": config["readouts"],
        "warnings": warnings(config),
        "continuations": config["continuations"],
        "programs": code_settings(config),
    }


@canonical
def code_settings(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """How programs are run; None for a study without code."""
    used = [*selected(config, "benchmarks"), *config["interruptions"]["run"]]
    return config["code"] if any(config["benchmarks"][name]["answer_kind"] == "code" for name in used) else None
