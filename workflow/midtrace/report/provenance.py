"""Where the items of a study come from and how its traces were made, from the metadata of its files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from midtrace import tables


def item_sources(paths: Sequence[str | Path]) -> list[dict[str, Any]]:
    """Where the items of each benchmark come from, and what became of the rows of its source.

    Returns
    -------
    list
        Per benchmark ``benchmark``, ``source``, ``revision`` (None: a file or generated), ``strata`` (None: not shared among strata), ``rows``,
        ``usable``, ``drawn`` and ``excluded``, a list of (reason, rows).
    """
    found = []
    for path in paths:
        meta = tables.read_metadata(path)
        entry, facts = meta["identity"]["benchmark"], meta["source"]
        place = entry["path"]
        source = f"loader {entry['loader']}" + (f", {Path(place).name if Path(place).is_absolute() else place}" if place else "")
        found.append(
            {
                "benchmark": entry["name"],
                "source": source,
                "revision": entry["revision"],
                "strata": entry["strata"],
                **{key: facts[key] for key in ("rows", "usable", "drawn")},
                "excluded": sorted(facts["excluded"].items(), key=lambda pair: (-pair[1], pair[0])),
            }
        )
    return found


def shown(source: str) -> str:
    """A model's source for readers: of a folder of one's own machine, which is nobody's business, its name."""
    return Path(source).name if Path(source).is_absolute() else source


def judge_facts(judge: Mapping[str, Any] | None, inputs: Mapping[str, Sequence[str | Path]]) -> dict[str, Any] | None:
    """The judge of a study: ``name``, ``benchmarks``, ``template``, and ``facts``, (what, value) pairs; None where rules grade everything.

    Parameters
    ----------
    judge
        See :func:`midtrace.config.analysis_settings`.
    inputs
        Shards by stage: ``traces``, whose metadata say what ran it.
    """
    if judge is None:
        return None
    model = judge["model"]
    ran = [meta["judge"] for path in inputs["traces"] if "judge" in (meta := tables.read_metadata(path))]
    engine, device = (list(dict.fromkeys(str(one[key]) for one in ran if key in one)) for key in ("engine_version", "device"))
    facts = {
        "revision": model["revision"],
        "weights (hash or revision)": model["weights"],
        "dialect": model["dialect"],
        "effort": model["effort"],
        "engine": " ".join([model["engine"], "; ".join(engine)]).strip(),
        "device": "; ".join(device) or None,
        "precision": model["dtype"],
        "sampling": "greedy",
        "token cap": judge["max_tokens"],
        "tokens of an answer that it is shown": judge["answer_tokens"],
    }
    told = [(what, value) for what, value in facts.items() if value is not None]
    return {"name": shown(model["source"]), "benchmarks": judge["benchmarks"], "template": judge["template"], "facts": told}


def making(inputs: Mapping[str, Sequence[str | Path]]) -> list[dict[str, Any]]:
    """How the traces of each model were made, from the metadata of their files: one entry per model with (what, values) pairs."""
    found: dict[str, dict[str, dict[str, None]]] = {}

    def add(model: str, what: str, value: object) -> None:
        if value is not None:
            found.setdefault(model, {}).setdefault(what, {})[str(value)] = None

    for path in inputs["traces"]:
        meta = tables.read_metadata(path)
        entry = meta["identity"]["model"]
        name = entry["name"]
        add(name, "model", shown(entry["source"]))
        add(name, "revision", entry["revision"])
        add(name, "weights (hash or revision)", entry["weights"])
        add(name, "vocabulary (hash)", meta.get("tokenizer"))
        add(name, "dialect", entry["dialect"])
        add(name, "effort of arms that name none", entry["effort"])
        add(name, "engine", " ".join(filter(None, [entry["engine"], meta.get("engine_version")])))
        add(name, "device", meta.get("device"))
        add(name, "precision", entry["dtype"])
        add(name, "sampling", ", ".join(f"{key} {value:g}" for key, value in entry["sampling"].items()))
        add(name, "token cap", entry["max_tokens"])
        add(name, "base seed", meta["identity"]["seed"])
        add(name, "midtrace", meta["version"])
        add(name, "schema of tables", meta["schema_version"])
    for path in inputs.get("readouts", ()):
        meta = tables.read_metadata(path)
        name = meta["identity"]["replay"]["traces"]["model"]["name"]
        add(name, "forced close and stem (token ids)", " ".join(map(str, meta["suffix_ids"])) if "suffix_ids" in meta else None)
    return [{"model": model, "facts": [(what, "; ".join(values)) for what, values in facts.items()]} for model, facts in found.items()]
