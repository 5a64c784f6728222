"""The section ``interruptions`` of a config: what it selects, its cross-references, and the settings of its stages.

An intervention is an *update intervention* if its text holds ``{update}``. It interrupts runs on the revised question (the benchmark
``{benchmark}+revised``, see :func:`midtrace.items.revised`); all others interrupt the runs on the question itself.
"""

import re
from collections.abc import Mapping
from itertools import product
from typing import Any

from midtrace.config import selection, settings
from midtrace.config.checks import check_efforts
from midtrace.config.settings import REVISED
from midtrace.dialects import DIALECTS
from midtrace.errors import InputError
from midtrace.loaders import LOADERS

PLACEHOLDERS = ("{early_stop}", "{update}")
THRESHOLDS = ("panic", "leakage", "reasoning_markers", "doubt_markers")


def benchmarks(config: Mapping[str, Any]) -> list[str]:
    """Benchmarks whose runs are interrupted."""
    return list(config["interruptions"]["run"])


def interventions(config: Mapping[str, Any], benchmark: str | None = None) -> list[str]:
    """Interventions tried on a benchmark, or on any, in the order of the config."""
    run = config["interruptions"]["run"]
    return list(dict.fromkeys(name for key, names in run.items() if benchmark in (None, key) for name in names))


def arms(config: Mapping[str, Any]) -> list[str]:
    """Arms whose runs are interrupted, in the order of the registry."""
    chosen = config["interruptions"]["arms"] or selection.arms(config)
    return [arm for arm in config["arms"] if arm in chosen]


def replicates(config: Mapping[str, Any], benchmark: str) -> list[int]:
    """Replicates of a benchmark (or of its revised view) that are interrupted."""
    return list(range(selection.replicates(config, benchmark)))[: config["interruptions"]["replicates"]]


def carries_update(record: Mapping[str, Any]) -> bool:
    """Whether an intervention tells the update of the item."""
    return "{update}" in (record["text"] or "")


def base(config: Mapping[str, Any], benchmark: str, intervention: str) -> str:
    """The benchmark whose runs an intervention interrupts: the benchmark itself, or its revised view."""
    return benchmark + REVISED * carries_update(config["interruptions"]["interventions"][intervention])


def bases(config: Mapping[str, Any]) -> list[str]:
    """All benchmarks, views included, that runs are needed of: an update is held against a fresh run on the whole question."""
    found = [name for key, names in config["interruptions"]["run"].items() for name in (key, *(base(config, key, one) for one in names))]
    return list(dict.fromkeys(found))


def with_wordings(config: Mapping[str, Any], where: object) -> dict[str, Any]:
    """A config in which every wording of an intervention is an intervention of its own, ``{intervention}.{label}``.

    It is tried wherever the intervention is, takes part in the contrasts of the intervention, and is contrasted with it. A config that has been
    through here is left as it is.

    Raises
    ------
    InputError
        If an intervention of that name is defined besides.
    """
    section = config["interruptions"]
    registry: dict[str, Any] = {}
    worded: dict[str, list[str]] = {}
    for name, record in section["interventions"].items():
        registry[name] = {**record, "wordings": {}}
        worded[name] = [name]
        for label, wording in record["wordings"].items():
            new = f"{name}.{label}"
            if new in section["interventions"]:
                problem = f"would be named {new!r}, which is another intervention"
                raise InputError(where, f"interruptions.interventions.{name}.wordings.{label}", problem, "another label")
            if carries_update(wording) != carries_update(record):
                field = f"interruptions.interventions.{name}.wordings.{label}.text"
                problem = "holds {update} where the text of the intervention does not, or the other way round"
                raise InputError(where, field, problem, "{update} in both or in none")
            registry[new] = {**registry[name], "place": wording["place"] or record["place"], "text": wording["text"], "dialects": wording["dialects"]}
            worded[name].append(new)
    run = {benchmark: list(dict.fromkeys(new for name in names for new in worded.get(name, [name]))) for benchmark, names in section["run"].items()}
    contrasts = [[a, b] for pair in section["contrasts"] for a, b in product(*(worded.get(name, [name]) for name in pair))]
    contrasts += [[new, name] for name, names in worded.items() for new in names[1:]]
    return {**config, "interruptions": {**section, "interventions": registry, "run": run, "contrasts": contrasts}}


def check(config: Mapping[str, Any], where: object) -> None:
    """Refuse what would interrupt nothing, or not what it says.

    Raises
    ------
    InputError
        For an unknown name, an empty text, an unknown placeholder, an update that is not told in every dialect, or one for items without.
    """
    section = config["interruptions"]
    registry = section["interventions"]
    for benchmark, names in section["run"].items():
        if benchmark not in config["benchmarks"]:
            raise InputError(where, f"interruptions.run.{benchmark}", "is not defined", config["benchmarks"])
        for name in names:
            if name not in registry:
                raise InputError(where, f"interruptions.run.{benchmark}", f"{name!r} is not defined", registry)
            if carries_update(registry[name]) and not LOADERS[config["benchmarks"][benchmark]["loader"]].updates:
                able = ", ".join(loader.name for loader in LOADERS.values() if loader.updates)
                raise InputError(where, f"interruptions.run.{benchmark}", f"{name!r} tells an update, but its items have none", f"loader {able}")
    for arm in section["arms"]:
        if arm not in config["arms"]:
            raise InputError(where, "interruptions.arms", f"{arm!r} is not defined", config["arms"])
    for pair in section["contrasts"]:
        for name in pair:
            if name not in registry:
                raise InputError(where, "interruptions.contrasts", f"{name!r} is not defined", registry)
    for name, record in registry.items():
        _check_record(name, record, where)
    for model in selection.selected(config, "models") if section["run"] else ():
        check_efforts(config, model, arms(config), where)


def _check_record(name: str, record: Mapping[str, Any], where: object) -> None:
    field = f"interruptions.interventions.{name}"
    if record["stems"] is not None and record["place"] != "close":
        raise InputError(where, f"{field}.stems", f"place is {record['place']}: the answer does not follow at once", "null, or place close")
    for dialect in record["dialects"]:
        if dialect not in DIALECTS:
            raise InputError(where, f"{field}.dialects", f"{dialect!r} is unknown", DIALECTS)
    for key, text in {"text": record["text"], **{f"dialects.{key}": text for key, text in record["dialects"].items()}}.items():
        if text is None and record["place"] != "close":
            raise InputError(where, f"{field}.{key}", f"is null, so nothing is inserted at place {record['place']}", "some text")
        if text is not None and not text.strip():
            raise InputError(where, f"{field}.{key}", "says nothing", "some text")
        for placeholder in re.findall(r"\{\w*\}", text or ""):
            if placeholder not in PLACEHOLDERS:
                raise InputError(where, f"{field}.{key}", f"{placeholder} is unknown", PLACEHOLDERS)
        if ("{update}" in (text or "")) != carries_update(record):
            raise InputError(where, f"{field}.{key}", "tells the update in one dialect and not in another", "{update} in all texts or in none")


@settings.canonical
def interruption_settings(config: Mapping[str, Any], model: str, benchmark: str, arm: str, replicate: int | str, intervention: str) -> dict[str, Any]:
    """What determines the raw interruptions of an arm, replicate and intervention; of the registry, this record only."""
    section, entry = config["interruptions"], config["benchmarks"][benchmark]
    record = section["interventions"][intervention]
    stem = settings.prompt_of(config, model, benchmark)["stem"]
    dialect = config["models"][model]["dialect"]
    forced = record["stems"] is not None
    closes = record["place"] == "close"
    return {
        "cuts": {key: section[key] for key in ("fractions", "sentences", "tokens")},
        "intervention": {
            "name": intervention,
            "place": record["place"],
            "stem": record["stems"].get(entry["answer_kind"], stem) if forced else None,
            "text": record["dialects"].get(dialect, record["text"]),
        },
        "items": settings.items_settings(config, benchmark),
        "max_tokens": section["max_tokens"] or config["models"][model]["max_tokens"],
        "probe": {**config["readouts"], "stem": stem} if closes and entry["answer_kind"] == "choice" else None,
        "traces": settings.traces_settings(config, model, base(config, benchmark, intervention), arm, replicate),
    }


@settings.canonical
def interruption_grading_settings(
    config: Mapping[str, Any], model: str, benchmark: str, arm: str, replicate: int | str, intervention: str
) -> dict[str, Any]:
    """What determines the graded interruptions: the raw ones, the fresh runs that they are held against, thresholds and markers, and the judge."""
    before = {
        "fresh": settings.traces_settings(config, model, benchmark, arm, replicate),
        "interruption": interruption_settings(config, model, benchmark, arm, replicate, intervention),
        "thresholds": {key: config["interruptions"][key] for key in THRESHOLDS},
    }
    return settings.graded(config, benchmark, before)


@settings.canonical
def interruption_analysis_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What determines the tables of interruptions: all that decides the shards, and how intervals are made."""
    return {**{key: config[key] for key in ("interruptions", "inference")}, "study": settings.outcomes_settings(config)}
