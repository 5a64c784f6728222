"""The settings of each stage: all that determines its output and nothing else.

They are the ``params`` of its rule (so that Snakemake reruns what a change concerns) and the identity in the metadata of its files (so that a
stage refuses a file of another config).
"""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from midtrace.config.selection import all_arms, arms, choice_benchmarks, context_arms, partners, selected

SMALL_FILE = 64 * 2**20  # local weights up to this size are hashed whole
REVISED = "+revised"  # benchmark name + this: the same items asked with their revised question; "+" occurs in no name of a config


def _sorted(value: Any) -> Any:
    """Mappings in key order: another order in the config must not look like another config."""
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


@cache
def folder_hash(folder: str) -> str:
    """Hash of a model folder: whole small files, and size and first megabyte of large ones."""
    digest = hashlib.sha256()
    for path in sorted(p for p in Path(folder).iterdir() if p.suffix in {".json", ".safetensors", ".jinja", ".bin", ".gguf", ".model", ".txt"}):
        if path.name in ("training.json", "measured.json"):
            continue
        size = path.stat().st_size
        with path.open("rb") as handle:
            digest.update(f"{path.name}:{size}:".encode() + handle.read(-1 if size <= SMALL_FILE else 2**20))
    return digest.hexdigest()[:16]


@cache
def file_hash(path: str) -> str:
    """SHA-256 of a file, shortened."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()[:16]


def items_settings(config: Mapping[str, Any], benchmark: str) -> dict[str, Any]:
    """What determines ``items/{benchmark}.parquet``."""
    source = benchmark.removesuffix(REVISED)
    entry = config["benchmarks"][source]
    settings = {key: entry[key] for key in ("loader", "answer_kind", "n", "path", "columns")}
    settings["content"] = file_hash(entry["path"]) if entry["loader"] == "file" else None
    view = {"view": "revised"} if benchmark != source else {}
    return _sorted({"seed": config["seed"], "benchmark": {"name": source, **settings}, **view})


def traces_settings(config: Mapping[str, Any], model: str, benchmark: str, arm: str, replicate: int | str) -> dict[str, Any]:
    """What determines the traces of an arm and replicate."""
    entry = config["models"][model]
    weights = folder_hash(entry["source"]) if Path(entry["source"]).is_dir() else entry["revision"]
    return _sorted(
        {
            "items": items_settings(config, benchmark),
            "model": {"name": model, **entry, "weights": weights},
            "prompt": {**{key: config["benchmarks"][benchmark.removesuffix(REVISED)][key] for key in ("template", "option")}, "date": entry["date"]},
            "arm": {"name": arm, **config["arms"][arm]},
            "replicate": int(replicate),
            "seed": config["seed"],
        }
    )


def replay_settings(config: Mapping[str, Any], model: str, benchmark: str, arm: str, replicate: int | str) -> dict[str, Any]:
    """What determines the cuts: the traces of the arm and, for matched horizons, of the arms that it is compared with."""
    roles = {
        (c["treatment"] if c["reference"] == arm else c["reference"]): ("reference" if c["reference"] == arm else "treatment")
        for c in config["comparisons"]
        if arm in (c["treatment"], c["reference"])
    }
    return _sorted(
        {
            "traces": traces_settings(config, model, benchmark, arm, replicate),
            "partners": {
                other: {"role": roles[other], "traces": traces_settings(config, model, benchmark, other, replicate)}
                for other in partners(config, arm)
            },
            "horizons": config["horizons"],
            # Only the probe reads this grid: a benchmark without options is not cut for it.
            "availability": config["availability"]["horizons"] if benchmark in choice_benchmarks(config) else [],
            "fractions": config["fractions"],
        }
    )


def probe_settings(config: Mapping[str, Any], model: str, benchmark: str, arm: str, replicate: int | str) -> dict[str, Any]:
    """What determines the readouts of an arm and replicate."""
    contexts = context_arms(config, arm)
    return _sorted(
        {
            "replay": replay_settings(config, model, benchmark, arm, replicate),
            "contexts": {partner: {"name": common, **config["arms"][common]} for partner, common in contexts.items()},
            "stem": config["benchmarks"][benchmark]["stem"],
            "readouts": config["readouts"],
        }
    )


def continuation_settings(config: Mapping[str, Any], model: str, benchmark: str, arm: str, replicate: int | str) -> dict[str, Any]:
    """What determines the continuations of an arm and replicate."""
    settings = probe_settings(config, model, benchmark, arm, replicate)
    del settings["readouts"]
    return _sorted({**settings, "continuations": config["continuations"]})


def controls_settings(config: Mapping[str, Any], model: str, benchmark: str) -> dict[str, Any]:
    """What determines the controls of a model: items, the reference arm of the first comparison, and the probe."""
    reference = config["comparisons"][0]["reference"]
    return _sorted(
        {
            "traces": traces_settings(config, model, benchmark, reference, 0),
            "stem": config["benchmarks"][benchmark]["stem"],
            "readouts": config["readouts"],
            "controls": config["controls"],
        }
    )


def outcomes_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What determines the outcomes: the config without what is only done with them."""
    later = ("study", "inference", "validity", "planted", "interruptions")
    return _sorted({key: value for key, value in config.items() if key not in later})


def analysis_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What determines decomposition, figures and report."""
    return _sorted(
        {
            "outcomes": outcomes_settings(config),
            "models": selected(config, "models"),
            "benchmarks": selected(config, "benchmarks"),
            "comparisons": config["comparisons"],
            "horizons": config["horizons"],
            "fractions": config["fractions"],
            "availability": config["availability"],
            "validity": config["validity"],
            "inference": config["inference"],
            "seed": config["seed"],
            "planted": file_hash(config["planted"]) if config["planted"] else None,
        }
    )


def figures_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What figures and tables for readers are drawn from, and which of them there are."""
    return _sorted(
        {
            "analysis": analysis_settings(config),
            "answer_kinds": {name: config["benchmarks"][name]["answer_kind"] for name in selected(config, "benchmarks")},
            "arms": arms(config),
            "asked": {"controls": bool(config["controls"]["items"]), "methods": config["inference"]["sensitivity_resamples"] > 0},
        }
    )


def report_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What the report says besides: how the arms prompt, and which thresholds flag a readout."""
    return _sorted(
        {
            "figures": figures_settings(config),
            "arms": {name: config["arms"][name] for name in all_arms(config)},
            "replicates": config["replicates"],
            "readouts": config["readouts"],
            "continuations": config["continuations"],
        }
    )
