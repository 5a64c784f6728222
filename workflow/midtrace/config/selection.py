"""Which models, benchmarks and arms a study runs, and which arms go together."""

from collections.abc import Mapping
from typing import Any


def selected(config: Mapping[str, Any], kind: str) -> list[str]:
    """Names of the models or benchmarks that the study runs."""
    return list(config["run"].get(kind) or config[kind])


def replicates(config: Mapping[str, Any], benchmark: str) -> int:
    """Runs per item and arm of a benchmark (or of its revised view)."""
    return config["benchmarks"][benchmark.partition("+")[0]]["replicates"] or config["replicates"]


def arms(config: Mapping[str, Any]) -> list[str]:
    """Arms to generate: those of a comparison, in the order of the registry."""
    used = {comparison[role] for comparison in config["comparisons"] for role in ("treatment", "reference")}
    return [arm for arm in config["arms"] if arm in used]


def all_arms(config: Mapping[str, Any]) -> list[str]:
    """Arms to generate and arms that only lend their prompt as a common context."""
    used = {comparison[role] for comparison in config["comparisons"] for role in ("treatment", "reference", "common")}
    return [arm for arm in config["arms"] if arm in used]


def partners(config: Mapping[str, Any], arm: str) -> list[str]:
    """Arms that ``arm`` is compared with, in the order of the registry."""
    found = set()
    for comparison in config["comparisons"]:
        pair = (comparison["treatment"], comparison["reference"])
        if arm in pair:
            found.add(pair[1 - pair.index(arm)])
    return [other for other in config["arms"] if other in found]


def context_arms(config: Mapping[str, Any], arm: str) -> dict[str, str]:
    """Partner arm -> the arm whose prompt is the common context of that comparison."""
    found: dict[str, str] = {}
    for comparison in config["comparisons"]:
        pair = (comparison["treatment"], comparison["reference"])
        if arm in pair:
            found[pair[1 - pair.index(arm)]] = comparison["common"]
    return {partner: found[partner] for partner in sorted(found)}


def choice_benchmarks(config: Mapping[str, Any]) -> list[str]:
    """Selected benchmarks that the forced-answer probe can read."""
    return [name for name in selected(config, "benchmarks") if config["benchmarks"][name]["answer_kind"] == "choice"]


def read_contexts(config: Mapping[str, Any], benchmark: str) -> dict[str, list[str]]:
    """Reading -> contexts in which horizons of a benchmark are read: ``probe`` in both where there are options, ``continuation`` as configured."""
    continuations, choice = config["continuations"], config["benchmarks"][benchmark]["answer_kind"] == "choice"
    return {
        "probe": ["policy", "common"] if choice else [],
        "continuation": list(continuations["contexts"]) if "answer" in continuations["modes"] else [],
    }
