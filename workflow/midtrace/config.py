"""Config: validated, defaults filled, cut into the settings of each stage.

The settings of a stage hold all that determines its output and nothing else. They are the ``params`` of its rule (so that Snakemake reruns
what a change concerns) and the identity in the metadata of its files (so that a stage refuses a file of another config).
"""

import copy
import hashlib
import math
from collections.abc import Mapping
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from midtrace import planted
from midtrace.dialects import DIALECTS
from midtrace.engines import ENGINES
from midtrace.errors import InputError

SCHEMA = Path(__file__).parents[1] / "schemas" / "config.schema.yaml"
SMALL_FILE = 64 * 2**20  # local weights up to this size are hashed whole
TYPES = {"object": "a mapping", "array": "a list", "string": "text", "integer": "a whole number", "number": "a number", "null": "null"}
NAME = "letters, digits, '.', '_' and '-', beginning with a letter or digit"
LOADERS = ("chains", "chains_update", "file")
REVISED = "+revised"  # benchmark name + this: the same items asked with their revised question; "+" occurs in no name of a config


@lru_cache(maxsize=1)
def schema() -> dict[str, Any]:
    """The JSON schema of a config."""
    return yaml.safe_load(SCHEMA.read_text())


def load(path: str | Path) -> dict[str, Any]:
    """Read and validate a config file."""
    try:
        config = read_yaml(path)
    except OSError as error:
        raise InputError(path, "file", error.strerror or str(error), "a readable YAML file") from None
    except yaml.YAMLError as error:
        raise InputError(path, "file", f"is not YAML ({' '.join(str(error).split())})", "valid YAML") from None
    return validate(config, path)


def read_yaml(path: str | Path) -> Any:
    """The content of a YAML file; a key that is given twice is an error, not a silent choice of the last one."""

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in node.value:
                if key.value in seen:
                    raise InputError(path, key.value, f"is given twice (again in line {key.start_mark.line + 1})", "each key once")
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    return yaml.load(Path(path).read_text(), Loader)


def validate(config: Any, where: object) -> dict[str, Any]:
    """Check a config against its schema and its own cross-references; return a copy with defaults filled.

    Parameters
    ----------
    config
        As read from YAML.
    where
        File name for messages.

    Raises
    ------
    InputError
        At the first mistake.
    """
    config = copy.deepcopy(config)
    errors = sorted(_filling_validator()(schema()).iter_errors(config), key=lambda e: (len(e.absolute_path), str(e.absolute_path)))
    if errors:
        raise _schema_error(errors[0], where)
    _check_selections(config, where)
    _check_comparisons(config, where)
    for field in ("horizons", "fractions"):
        _check_increasing(config[field], where, field)
    _check_increasing(config["controls"]["horizons"], where, "controls.horizons")
    _check_increasing(config["availability"]["horizons"], where, "availability.horizons")
    _check_increasing(config["validity"]["bins"], where, "validity.bins")
    if config["validity"]["bins"][-1] != 1:
        raise InputError(where, "validity.bins", f"end at {config['validity']['bins'][-1]:g}", "upper edges of prefix fractions, the last one 1")
    for name, model in config["models"].items():
        _check_model(name, model, where)
    for name, benchmark in config["benchmarks"].items():
        _check_benchmark(name, benchmark, where)
    for model in selected(config, "models"):
        dialect = DIALECTS[config["models"][model]["dialect"]]
        for arm in all_arms(config):
            effort = config["arms"][arm]["effort"]
            if (effort or dialect.needs_effort) and effort not in dialect.efforts:
                problem = f"{effort!r} is unknown to dialect {dialect.name!r}" if effort else f"missing, and dialect {dialect.name!r} needs one"
                raise InputError(where, f"arms.{arm}.effort", problem, dialect.efforts)
    if config["planted"] and not Path(config["planted"]).is_file():
        raise InputError(where, "planted", f"{config['planted']!r} does not exist", "an existing YAML file, or null")
    if config["planted"]:
        planted.read(config["planted"])
    for field in ("fractions", "sentences", "tokens", "leakage"):
        _check_increasing(config["interruptions"][field], where, f"interruptions.{field}")
    from midtrace import interruption_config  # it builds on this module

    interruption_config.check(config, where)
    return config


def _filling_validator() -> type:
    base = jsonschema.Draft202012Validator
    # As people mean it: 2.0 is no whole number, true is no number, and neither is .nan, which passes every bound.
    types = base.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    types = types.redefine("number", lambda _, value: type(value) is int or (type(value) is float and math.isfinite(value)))

    def properties(validator, values, instance, subschema):
        if isinstance(instance, dict):
            for key, sub in values.items():
                if "default" in sub:
                    instance.setdefault(key, copy.deepcopy(sub["default"]))
                if sub.get("type") == "number" and type(instance.get(key)) is int:
                    instance[key] = float(instance[key])  # 1 instead of 1.0 must not look like another config
        yield from base.VALIDATORS["properties"](validator, values, instance, subschema)

    def additional(validator, value, instance, subschema):
        if isinstance(instance, dict) and isinstance(value, dict):
            for key in list(instance):
                if instance[key] is None and "default" in value and key not in subschema.get("properties", {}):
                    instance[key] = copy.deepcopy(value["default"])  # "baseline:" with nothing after it
        yield from base.VALIDATORS["additionalProperties"](validator, value, instance, subschema)

    return jsonschema.validators.extend(base, {"properties": properties, "additionalProperties": additional}, type_checker=types)


def _schema_error(error: jsonschema.ValidationError, where: object) -> InputError:
    path = ".".join(str(part) for part in error.absolute_path)
    rule, value = error.validator, error.validator_value
    if "propertyNames" in error.absolute_schema_path:
        return InputError(where, f"{path}.{error.instance}", "is no name", NAME)
    if rule == "additionalProperties":
        known = error.schema.get("properties", {})
        unknown = [key for key in error.instance if key not in known]
        return InputError(where, f"{path}.{unknown[0]}".lstrip("."), "unknown key", known)
    if rule == "required":
        absent = [key for key in value if key not in error.instance]
        return InputError(where, f"{path}.{absent[0]}".lstrip("."), "missing", "a value is required")
    wanted = {
        "enum": lambda: ", ".join(map(str, value)),
        "type": lambda: " or ".join(TYPES[kind] for kind in ([value] if isinstance(value, str) else value)),
        "minimum": lambda: f"at least {value}",
        "maximum": lambda: f"at most {value}",
        "exclusiveMinimum": lambda: f"more than {value}",
        "exclusiveMaximum": lambda: f"less than {value}",
        "minItems": lambda: f"at least {value} entries",
        "maxItems": lambda: f"at most {value} entries",
        "minProperties": lambda: f"at least {value} entry",
        "minLength": lambda: "some text",
        "uniqueItems": lambda: "entries that differ",
        "pattern": lambda: NAME if value == schema()["$defs"]["name"]["pattern"] else f"text that matches {value}",
    }.get(rule, lambda: f"{rule} {value}")()
    return InputError(where, path or "config", f"is {_brief(error.instance)}", wanted)


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:97] + "..."


def _check_increasing(values: list[float], where: object, field: str) -> None:
    for before, after in pairwise(values):
        if after == before:
            raise InputError(where, field, f"{after} is repeated", "each value once, increasing")
        if after < before:
            raise InputError(where, field, f"{after} comes after {before}", "increasing order")


def _check_selections(config: Mapping[str, Any], where: object) -> None:
    for kind in ("models", "benchmarks"):
        for name in config["run"].get(kind, []):
            if name not in config[kind]:
                raise InputError(where, f"run.{kind}", f"{name!r} is not defined", config[kind])


def _check_comparisons(config: Mapping[str, Any], where: object) -> None:
    seen: set[frozenset[str]] = set()
    for index, comparison in enumerate(config["comparisons"]):
        for role in ("treatment", "reference", "common"):
            if comparison[role] not in config["arms"]:
                raise InputError(where, f"comparisons.{index}.{role}", f"{comparison[role]!r} is not defined", config["arms"])
        pair = frozenset([comparison["treatment"], comparison["reference"]])
        if len(pair) == 1:
            raise InputError(where, f"comparisons.{index}", f"{comparison['treatment']!r} is compared with itself", "two different arms")
        if pair in seen:
            raise InputError(where, f"comparisons.{index}", f"{' and '.join(sorted(pair))} are compared twice", "each pair of arms once")
        seen.add(pair)


def _check_model(name: str, model: Mapping[str, Any], where: object) -> None:
    if model["dialect"] not in DIALECTS:
        raise InputError(where, f"models.{name}.dialect", f"{model['dialect']!r} is unknown", DIALECTS)
    if model["engine"] not in ENGINES:
        raise InputError(where, f"models.{name}.engine", f"{model['engine']!r} is unknown", ENGINES)
    if model["date"] and not DIALECTS[model["dialect"]].takes_date:
        takers = [dialect.name for dialect in DIALECTS.values() if dialect.takes_date]
        raise InputError(
            where, f"models.{name}.date", f"dialect {model['dialect']!r} states no date", f"null, or a dialect that does: {', '.join(takers)}"
        )
    source = model["source"]
    if Path(source).is_dir() and not (Path(source) / "config.json").is_file():
        raise InputError(where, f"models.{name}.source", f"{source!r} holds no config.json", "a folder with a model, or owner/name")
    if not Path(source).is_dir() and (source.count("/") != 1 or source.startswith((".", "/"))):
        raise InputError(where, f"models.{name}.source", f"{source!r} is no folder here and no hub id", "an existing folder, or owner/name")
    if not Path(source).is_dir() and not model["revision"]:
        raise InputError(
            where,
            f"models.{name}.revision",
            f"is null, but {source!r} is no folder here, so a hub id",
            "an existing folder as source, or a pinned commit as revision",
        )


def _check_benchmark(name: str, benchmark: Mapping[str, Any], where: object) -> None:
    if benchmark["loader"] not in LOADERS:
        raise InputError(where, f"benchmarks.{name}.loader", f"{benchmark['loader']!r} is unknown", LOADERS)
    if benchmark["loader"] == "file":
        if not benchmark["path"]:
            raise InputError(where, f"benchmarks.{name}.path", "missing", "a .parquet, .jsonl or .csv file")
        if not Path(benchmark["path"]).is_file():
            raise InputError(where, f"benchmarks.{name}.path", f"{benchmark['path']!r} does not exist", "an existing .parquet, .jsonl or .csv file")
    elif benchmark["n"] is None:
        raise InputError(where, f"benchmarks.{name}.n", "is null, but generated items have no end", "a number of items")
    if benchmark["answer_kind"] == "choice" and "{options}" not in benchmark["template"]:
        raise InputError(where, f"benchmarks.{name}.template", "lacks {options}, so a choice would be asked without them", "a text with {options}")


def selected(config: Mapping[str, Any], kind: str) -> list[str]:
    """Names of the models or benchmarks that the study runs."""
    return list(config["run"].get(kind) or config[kind])


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


def choice_benchmarks(config: Mapping[str, Any]) -> list[str]:
    """Selected benchmarks that the forced-answer probe can read."""
    return [name for name in selected(config, "benchmarks") if config["benchmarks"][name]["answer_kind"] == "choice"]


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


def context_arms(config: Mapping[str, Any], arm: str) -> dict[str, list[str]]:
    """Partner arm -> the arm whose prompt is the common context of that comparison."""
    found: dict[str, list[str]] = {}
    for comparison in config["comparisons"]:
        pair = (comparison["treatment"], comparison["reference"])
        if arm in pair:
            found[pair[1 - pair.index(arm)]] = comparison["common"]
    return _sorted(found)


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
            "controls": bool(config["controls"]["items"]),
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
