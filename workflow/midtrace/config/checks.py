"""What a schema cannot say: names that must exist, orders, and values that do not go together."""

import re
from collections.abc import Iterable, Mapping
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from midtrace import memory, planted, wording
from midtrace.config.selection import all_arms, selected
from midtrace.dialects import DIALECTS
from midtrace.engines import ENGINES, MACHINE
from midtrace.errors import InputError
from midtrace.loaders import LOADERS, Loader, sources

SIDECARS = (".excluded", ".tests")  # items/{benchmark}.excluded.parquet and so on
LINES = (sources.LINES,)
# Keys of a benchmark that only some loaders read.
USED_BY = {
    "tests": ("interrupt_updates",),
    "since": ("livecodebench",),
    "until": ("livecodebench",),
}


def check(config: Mapping[str, Any], where: object) -> None:
    """Refuse a config whose parts contradict each other; ``where`` is the file for messages."""
    _check_selections(config, where)
    for name in dict.fromkeys([*selected(config, "benchmarks"), *config["interruptions"]["run"]]):
        n, shards = config["benchmarks"].get(name, {}).get("n"), config["jobs"]["shards"]
        if n is not None and n < shards:
            raise InputError(where, "jobs.shards", f"is {shards}, but benchmark {name!r} has {n} items to share", f"at most {n}")
    _check_comparisons(config, where)
    for field in ("horizons", "fractions"):
        _check_increasing(config[field], where, field)
    _check_dominance(config, where)
    _check_increasing(config["controls"]["horizons"], where, "controls.horizons")
    _check_increasing(config["availability"]["horizons"], where, "availability.horizons")
    _check_increasing(config["validity"]["bins"], where, "validity.bins")
    _check_increasing(config["validity"]["later"], where, "validity.later")
    _check_continuations(config, where)
    if config["validity"]["bins"][-1] != 1:
        raise InputError(where, "validity.bins", f"end at {config['validity']['bins'][-1]:g}", "upper edges of prefix fractions, the last one 1")
    for name, model in config["models"].items():
        _check_model(f"models.{name}", model, where)
    for name, benchmark in config["benchmarks"].items():
        _check_benchmark(name, benchmark, where)
    _check_judge(config, where)
    for model in selected(config, "models"):
        for name, benchmark in config["benchmarks"].items():
            _check_prompt(name, benchmark, config["models"][model]["dialect"], where)
        check_efforts(config, model, all_arms(config), where)
    if config["planted"] and not Path(config["planted"]).is_file():
        raise InputError(where, "planted", f"{config['planted']!r} does not exist", "an existing YAML file, or null")
    if config["planted"]:
        planted.read(config["planted"])
    for key, registry in (("mean_tokens", "arms"), ("items", "benchmarks"), ("throughput", "models")):
        for name in config["plan"][key]:
            if name not in config[registry]:
                raise InputError(where, f"plan.{key}.{name}", "is not defined", config[registry])
    for field in ("fractions", "sentences", "tokens", "leakage"):
        _check_increasing(config["interruptions"][field], where, f"interruptions.{field}")


def _check_continuations(config: Mapping[str, Any], where: object) -> None:
    """Refuse modes that would leave a benchmark without any reading, or be asked for nothing."""
    modes = config["continuations"]["modes"]
    unread = [name for name in selected(config, "benchmarks") if config["benchmarks"][name]["answer_kind"] != "choice"]
    if unread and "answer" not in modes:
        problem = f"lack 'answer', and benchmark {unread[0]!r} has no options to probe"
        raise InputError(where, "continuations.modes", problem, "modes with answer: free-form answers are read by continuation only")
    if "resume" in modes and not any(fraction < 1 for fraction in config["fractions"]):
        problem = "have 'resume', which reasons on from fractions below 1, and there are none"
        raise InputError(where, "continuations.modes", problem, "modes without resume, or a fraction below 1 under fractions")


def check_efforts(config: Mapping[str, Any], model: str, arms: Iterable[str], where: object) -> None:
    """Refuse an effort that the model's dialect does not know, and none where it needs one."""
    entry = config["models"][model]
    dialect = DIALECTS[entry["dialect"]]
    for arm in arms:
        own = config["arms"][arm]["effort"]
        effort = own or entry["effort"]
        if (effort or dialect.needs_effort) and effort not in dialect.efforts:
            field = f"models.{model}.effort" if effort and not own else f"arms.{arm}.effort"
            problem = f"{effort!r} is unknown to dialect {dialect.name!r}" if effort else f"missing, and dialect {dialect.name!r} needs one"
            raise InputError(where, field, problem, dialect.efforts)


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


def _check_dominance(config: Mapping[str, Any], where: object) -> None:
    """The claim must be about what the study measures."""
    declared, field = config["inference"]["dominance"], "inference.dominance"
    if declared is None:
        return
    if declared["horizon"] not in config["horizons"]:
        raise InputError(where, f"{field}.horizon", f"{declared['horizon']} is no horizon of the study", config["horizons"])
    known = [(comparison["treatment"], comparison["reference"]) for comparison in config["comparisons"]]
    seen = set()
    for index, comparison in enumerate(declared["comparisons"]):
        pair = comparison["treatment"], comparison["reference"]
        if pair not in known:
            allowed = [f"{t} against {r}" for t, r in known]
            raise InputError(where, f"{field}.comparisons.{index}", f"{pair[0]!r} against {pair[1]!r} is no comparison of the study", allowed)
        if pair in seen:
            raise InputError(where, f"{field}.comparisons.{index}", f"{pair[0]!r} against {pair[1]!r} is named twice", "each comparison once")
        seen.add(pair)


def _check_model(field: str, model: Mapping[str, Any], where: object) -> None:
    if model["dialect"] not in DIALECTS:
        raise InputError(where, f"{field}.dialect", f"{model['dialect']!r} is unknown", DIALECTS)
    if model["engine"] not in ENGINES:
        raise InputError(where, f"{field}.engine", f"{model['engine']!r} is unknown", ENGINES)
    _check_engine(field, model, where)
    if model["date"] and not DIALECTS[model["dialect"]].takes_date:
        takers = [dialect.name for dialect in DIALECTS.values() if dialect.takes_date]
        raise InputError(where, f"{field}.date", f"dialect {model['dialect']!r} states no date", f"null, or a dialect that does: {', '.join(takers)}")
    source = model["source"]
    if Path(source).is_dir() and not (Path(source) / "config.json").is_file():
        raise InputError(where, f"{field}.source", f"{source!r} holds no config.json", "a folder with a model, or owner/name")
    if not Path(source).is_dir() and (source.count("/") != 1 or source.startswith((".", "/"))):
        raise InputError(where, f"{field}.source", f"{source!r} is no folder here and no hub id", "an existing folder, or owner/name")
    if not Path(source).is_dir() and not model["revision"]:
        raise InputError(
            where,
            f"{field}.source",
            f"{source!r} is no folder here, and as a hub id it lacks a revision",
            "an existing folder (make smollm2 makes models/smollm2), or owner/name with a pinned commit as revision",
        )


def _check_engine(field: str, model: Mapping[str, Any], where: object) -> None:
    engine = model["engine"]
    for key in model["machine"]:
        if key not in MACHINE[engine]:
            raise InputError(where, f"{field}.machine.{key}", f"means nothing to engine {engine!r}", MACHINE[engine])
    if engine == "server" and "url" not in model["machine"]:
        raise InputError(where, f"{field}.machine.url", "missing, and engine 'server' needs one", "the url of a running server")
    if engine == "server":
        _check_url(f"{field}.machine.url", model["machine"]["url"], where)
    memory.check_gpu(field, model, where)
    if engine == "transformers":
        return
    if model["dtype"] == "float64":
        raise InputError(where, f"{field}.dtype", f"'float64' is unknown to engine {engine!r}", ("float32", "bfloat16", "float16"))
    temperature = model["sampling"]["temperature"] if "sampling" in model else 1.0  # a judge has none
    if not 0.01 <= temperature <= 2:  # below, vLLM takes 0.01 without a word; above, it refuses
        raise InputError(where, f"{field}.sampling.temperature", f"is {temperature:g} with engine {engine!r}", "0.01 to 2")


def _check_url(field: str, url: str, where: object) -> None:
    try:
        parts = urlsplit(url)
        plain = bool(parts.hostname) and not (parts.username or parts.query or parts.fragment) and not re.search(r"\s", url)
        port = parts.port  # ValueError where it is none
    except ValueError:
        plain, port = False, None
    if not plain or parts.path.rstrip("/").endswith("/v1") or port == 0:
        # Not quoted: it may hold a password.
        raise InputError(
            where, field, "is no address of a server", "http://host:port, without /v1, user, password or query; a key by api_key_variable"
        )


def _check_benchmark(name: str, benchmark: Mapping[str, Any], where: object) -> None:
    field = f"benchmarks.{name}"
    for ending in SIDECARS:
        if name.endswith(ending):
            raise InputError(where, field, f"ends in {ending!r}, as a file beside the items does", "another name")
    if benchmark["loader"] not in LOADERS:
        raise InputError(where, f"{field}.loader", f"{benchmark['loader']!r} is unknown", LOADERS)
    loader, kind = LOADERS[benchmark["loader"]], benchmark["answer_kind"]
    if kind not in loader.answer_kinds:
        raise InputError(where, f"{field}.answer_kind", f"is {kind!r}, which loader {loader.name!r} has no items of", loader.answer_kinds)
    for dialect in benchmark["dialects"]:
        if dialect not in DIALECTS:
            raise InputError(where, f"{field}.dialects", f"{dialect!r} is unknown", DIALECTS)
    if loader.generate:
        if benchmark["n"] is None:
            raise InputError(where, f"{field}.n", "is null, but generated items have no end", "a number of items")
        return
    sources.check(benchmark["path"], benchmark["revision"], where, field, LINES if loader.streamed else sources.SUFFIXES, loader.address)
    if loader.name == "interrupt_updates" and kind == "code":
        sources.check(benchmark["tests"]["path"], benchmark["tests"]["revision"], where, f"{field}.tests", LINES, LOADERS["livecodebench"].address)
    _check_columns(loader, benchmark, where, field)
    if loader.shuffled and benchmark["shuffle"] is False:
        raise InputError(where, f"{field}.shuffle", f"is false, but loader {loader.name!r} reads the right option first", "true or null")
    _check_window(benchmark, where, field)
    for key, used in USED_BY.items():
        given = benchmark[key] if key != "tests" else benchmark[key]["path"]
        if given and loader.name not in used:
            raise InputError(
                where, f"{field}.{key}", f"is given, but loader {loader.name!r} does not use it", f"a loader that does: {', '.join(used)}"
            )


def _check_columns(loader: Loader, benchmark: Mapping[str, Any], where: object, field: str) -> None:
    """Refuse a file here that lacks a column that is read from it, or that ``columns`` names."""
    if sources.is_remote(benchmark["path"]):
        return
    named = {name: key for key, name in benchmark["columns"].items() if name != key} if loader.name == "file" else {}
    missing = sources.lacks(benchmark["path"], [*loader.columns(benchmark), *named])
    if missing:
        column, names = missing
        if loader.name == "file":
            key = next((key for key, name in benchmark["columns"].items() if name == column), column)
            raise InputError(where, f"{field}.columns.{key}", f"{column!r} is no column of {benchmark['path']}", names)
        raise InputError(where, f"{field}.path", f"{benchmark['path']} has no column {column!r}", names)


def _check_judge(config: Mapping[str, Any], where: object) -> None:
    """A judge and the benchmarks that it grades: neither without the other."""
    judge, judged = config["judge"], [name for name, entry in config["benchmarks"].items() if entry["grader"] == "judge"]
    for name in judged:
        kind = config["benchmarks"][name]["answer_kind"]
        if kind != "math":
            raise InputError(where, f"benchmarks.{name}.grader", f"is 'judge', but answer_kind is {kind!r}", "rules, or answer_kind math")
        if judge is None:
            raise InputError(where, "judge", f"missing, and benchmarks.{name}.grader is 'judge'", "a section with the judge's model")
    if judge is None:
        return
    if not judged:
        raise InputError(where, "judge", "is given, but grades nothing", "a benchmark with grader: judge, or no section judge")
    _check_model("judge.model", judge["model"], where)
    dialect, effort = DIALECTS[judge["model"]["dialect"]], judge["model"]["effort"]
    if (effort or dialect.needs_effort) and effort not in dialect.efforts:
        problem = f"{effort!r} is unknown to dialect {dialect.name!r}" if effort else f"missing, and dialect {dialect.name!r} needs one"
        raise InputError(where, "judge.model.effort", problem, dialect.efforts or "null")
    for placeholder in ("{question}", "{gold}", "{answer}") if judge["template"] is not None else ():
        if judge["template"].count(placeholder) != 1:
            raise InputError(where, "judge.template", f"holds {placeholder} {judge['template'].count(placeholder)} times", "each placeholder once")


def _check_window(benchmark: Mapping[str, Any], where: object, field: str) -> None:
    for key in ("since", "until"):
        if benchmark[key] is not None:
            try:
                date.fromisoformat(benchmark[key])
            except ValueError:
                raise InputError(where, f"{field}.{key}", f"{benchmark[key]!r} is no day", "a day such as 2024-10-01") from None
    if benchmark["since"] and benchmark["until"] and benchmark["until"] < benchmark["since"]:
        raise InputError(where, f"{field}.until", f"{benchmark['until']} is before since ({benchmark['since']})", "a later day")


def _check_prompt(name: str, benchmark: Mapping[str, Any], dialect: str, where: object) -> None:
    if benchmark["answer_kind"] == "choice" and "{options}" not in wording.prompt(benchmark, dialect)["template"]:
        field = f"benchmarks.{name}.template"
        raise InputError(where, field, "lacks {options}, so a choice would be asked without them", "a text with {options}")
