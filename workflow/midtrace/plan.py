"""What a study will take, before anything runs: rows of each stage, tokens, disk and hours.

Counts follow from the config; tokens rest on how long runs are assumed to be (``plan.mean_tokens``, else ``max_tokens``), and every run is taken
to end its reasoning. So rows of traces are exact. Of a run without an end there are fewer cuts, probes and interruptions.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from midtrace import config as study_config
from midtrace import tables
from midtrace.config import REVISED
from midtrace.config import interruptions as interruption_config
from midtrace.continuation import jobs_of, unread_horizons
from midtrace.errors import InputError
from midtrace.probe import contexts_of, own_only
from midtrace.tables import TableKey

STAGES = ("traces", "cuts", "probes", "continuations", "interruptions", "controls", "verdicts")
JUDGE = "the judge"  # where its verdicts stand among the models, none of which has a name with a space
# Bytes a token and a row, generously: ids of Qwen3's vocabulary take 1.1 bytes a token in Parquet (2.3M tokens of benchmark texts), rows of the
# demo 3 (cuts), 41 (readouts), 15 (continuations, raw and graded) and 6 (controls); what is kept by request takes 84 bytes a trace besides its ids,
# 152 a readout with 28 candidates, 28 a continuation.
TOKEN_BYTES = 2
ROW_BYTES = {"traces": 600, "cuts": 10, "probes": 300, "continuations": 100, "interruptions": 600, "controls": 200, "verdicts": 200}
TEMPLATE_CHARACTERS = 3  # of a judge's template in a token, at least
CLOSE_TOKENS = 32  # the forced close and the stem
SCRIPTED, PREFIXES = 6, 4  # controls of an item, see midtrace.controls


@dataclass(frozen=True)
class Shard:
    """A file that the engine (for cuts: no engine) will make.

    Attributes
    ----------
    stage, model, benchmark, arm
        What it is part of.
    path
        Where it will be, below ``results/{study}/``.
    settings
        What its metadata must say for it to be done: a file of another config is made again.
    rows
        Rows that it will have, if all runs end and are as long as assumed.
    decoded, prefilled
        Tokens that are sampled, and tokens that are read: prompts and prefixes, each once per trace and context, as engines with a prefix cache do.
    stored
        Tokens whose ids are stored.
    """

    stage: str
    model: str
    benchmark: str
    arm: str
    path: str
    settings: Mapping[str, Any]
    rows: int
    decoded: float = 0
    prefilled: float = 0
    stored: float = 0


def is_made(path: Path, settings: Mapping[str, Any]) -> bool:
    """Whether a file is there and of this config."""
    try:
        tables.check_identity(path, settings)
    except InputError:
        return False
    return True


def items_of(config: Mapping[str, Any], benchmark: str, results: Path) -> int:
    """Items of a benchmark (or of its revised view): as drawn if they are there, else as the config draws or assumes.

    Raises
    ------
    InputError
        If the config takes a whole source and does not say how large it is assumed to be.
    """
    source = benchmark.removesuffix(REVISED)
    for name in (benchmark, source):
        path = results / "items" / f"{name}.parquet"
        if is_made(path, study_config.items_settings(config, name)):
            return pq.read_metadata(path).num_rows
    n = config["benchmarks"][source]["n"] or config["plan"]["items"].get(source)
    if n is None:
        problem = "is null, so the plan does not know its size"
        raise InputError("config", f"benchmarks.{source}.n", problem, f"a number under plan.items.{source}, or `snakemake items` before the plan")
    return n


def shards(config: Mapping[str, Any], results: Path) -> Iterator[Shard]:
    """All files of a study that hold rows of traces, and what each takes.

    Parameters
    ----------
    config
        A validated config.
    results
        ``results/{study}``: items that are there count as they are.
    """
    judged = study_config.judged(config)
    for shard in _made_by_models(config, results):
        yield shard
        if shard.benchmark in judged and shard.stage in ("traces", "continuations", "interruptions"):
            yield _verdicts(config, shard)


def _made_by_models(config: Mapping[str, Any], results: Path) -> Iterator[Shard]:
    horizon_study = study_config.selected(config, "benchmarks")
    for model in study_config.selected(config, "models"):
        for benchmark in horizon_study:
            n = items_of(config, benchmark, results)
            for arm in study_config.arms(config):
                for replicate in range(study_config.replicates(config, benchmark)):
                    yield from _arm(config, TableKey(model, benchmark, arm, replicate), n)
            if config["controls"]["items"] and benchmark in study_config.choice_benchmarks(config):
                yield _controls(config, model, benchmark, n)
        for benchmark in interruption_config.bases(config):
            n = items_of(config, benchmark, results)
            for arm in interruption_config.arms(config):
                for replicate in interruption_config.replicates(config, benchmark):
                    if benchmark not in horizon_study or arm not in study_config.arms(config):
                        yield _traces(config, TableKey(model, benchmark, arm, replicate), n)
                    for intervention in interruption_config.interventions(config, benchmark) if benchmark in config["interruptions"]["run"] else ():
                        yield _interruption(config, TableKey(model, benchmark, arm, replicate, intervention), n)


def length(config: Mapping[str, Any], model: str, arm: str) -> float:
    """Tokens of a run, as assumed: ``plan.mean_tokens`` of its arm, at most the model's ``max_tokens``, which it is otherwise."""
    cap = config["models"][model]["max_tokens"]
    return min(cap, config["plan"]["mean_tokens"].get(arm, cap))


def _traces(config: Mapping[str, Any], key: TableKey, n: int) -> Shard:
    tokens, prompt = length(config, key.model, key.arm), config["plan"]["prompt_tokens"]
    stored = n * (3 * tokens + 2 * prompt)  # kept by request, raw, graded
    return Shard("traces", *_place("raw/traces", key), study_config.traces_settings(config, *key), n, n * tokens, n * prompt, stored)


def _place(folder: str, key: TableKey) -> tuple[str, str, str, str]:
    """The fields of a file that say what it is part of, and where it will be."""
    return key.model, key.benchmark, key.arm, key.path(folder)


def _arm(config: Mapping[str, Any], key: TableKey, n: int) -> Iterator[Shard]:
    """The shards of an arm and replicate in the study of horizons."""
    yield _traces(config, key, n)
    choice = key.benchmark in study_config.choice_benchmarks(config)
    tokens, prompt = length(config, key.model, key.arm), config["plan"]["prompt_tokens"]
    commons = study_config.context_arms(config, key.arm)
    replay = study_config.replay_settings(config, *key)
    cuts = list(_cuts(config, key, replay))
    contexts = [contexts_of(cut, key.arm, commons, own_only(replay)) for cut in cuts]
    yield Shard("cuts", *_place("cuts", key), replay, n * len(cuts))
    if choice:
        read = sum(map(len, contexts))
        prefixes = len({key.arm, *commons.values()}) * (prompt + tokens) + read * CLOSE_TOKENS
        yield Shard("probes", *_place("readouts", key), study_config.probe_settings(config, *key), n * read, 0, n * prefixes)
    section = config["continuations"]
    unread = unread_horizons(replay, choice)
    asked = [(cut, read_in) for cut, read_in in zip(cuts, contexts, strict=True) if cut["horizon"] not in unread]
    jobs = [(cut, *job) for cut, read_in in asked for job in jobs_of(cut, read_in, section, choice)]
    # What keeps the same tokens behind the same prompt is one request: whole blocks are continued once in a context.
    answered = {(context_arm, cut["n_tokens"]) for cut, mode, _, context_arm in jobs if mode == "answer"}
    resumed = [cut["n_tokens"] for cut, mode, *_ in jobs if mode == "resume"]
    decoded = len(answered) * section["max_tokens"] + sum(tokens - kept for kept in resumed)
    prompts = {context_arm for *_, context_arm in jobs}
    prefilled = len(prompts) * (prompt + tokens) + len(answered) * CLOSE_TOKENS
    settings = study_config.continuation_settings(config, *key)
    yield Shard("continuations", *_place("raw/continuations", key), settings, n * len(jobs), n * decoded, n * prefilled, 2 * n * decoded)


def _cuts(config: Mapping[str, Any], key: TableKey, replay: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The cuts of a run that ends and is as long as assumed."""
    tokens = length(config, key.model, key.arm)

    def cut(rule: str, kept: float, partner: str | None = None, horizon: int | None = None) -> dict[str, Any]:
        return {"cut": rule, "horizon": horizon, "n_tokens": min(kept, tokens), "complete": kept >= tokens, "partner_arm": partner}

    for horizon in sorted({*replay["horizons"], *replay["availability"], *replay["later"]}):
        yield cut("horizon", horizon, horizon=horizon)
    for fraction in replay["fractions"]:
        yield cut("fraction", fraction * tokens)
    for partner, entry in replay["partners"].items():
        treatment = key.arm if entry["role"] == "reference" else partner
        yield cut("matched", length(config, key.model, treatment), partner)


def _interruption(config: Mapping[str, Any], key: TableKey, n: int) -> Shard:
    section = config["interruptions"]
    tokens, prompt, answer = length(config, key.model, key.arm), config["plan"]["prompt_tokens"], config["plan"]["answer_tokens"]
    kept = [*(share * tokens for share in [*section["fractions"], *section["sentences"]]), *(cut for cut in section["tokens"] if cut <= tokens)]
    closes = section["interventions"][key.intervention]["place"] == "close"
    # Where it may reason on it is taken to finish what it had begun.
    decoded = sum(answer + (0 if closes else tokens - cut) for cut in kept)
    prefilled = prompt + tokens + len(kept) * CLOSE_TOKENS
    settings = interruption_config.interruption_settings(config, *key)
    return Shard("interruptions", *_place("raw/interruptions", key), settings, n * len(kept), n * decoded, n * prefilled, 3 * n * decoded)


def _verdicts(config: Mapping[str, Any], raw: Shard) -> Shard:
    """What the judge is asked of the answers of a raw file, at most: all differ, and answers and verdicts are as long as they may be."""
    judge = study_config.judge_settings(config)
    assert judge is not None
    path, settings, rows = raw.path.removeprefix("raw/"), study_config.graded(config, raw.benchmark, raw.settings), raw.rows
    if raw.stage == "interruptions":
        key = TableKey.parse(path, interrupted=True)
        settings = interruption_config.interruption_grading_settings(config, *key)
        # Is it the right answer, and is it the one before the update?
        rows *= 1 + interruption_config.carries_update(config["interruptions"]["interventions"][key.intervention])
    asked = len(judge["template"]) / TEMPLATE_CHARACTERS + config["plan"]["prompt_tokens"] + judge["answer_tokens"]
    decoded = rows * judge["max_tokens"]
    return Shard("verdicts", JUDGE, raw.benchmark, raw.arm, path, settings, rows, decoded, rows * asked, decoded)


def _controls(config: Mapping[str, Any], model: str, benchmark: str, n: int) -> Shard:
    arm, chosen = config["comparisons"][0]["reference"], min(n, config["controls"]["items"])
    early, late = config["controls"]["horizons"]
    per_item = SCRIPTED // 2 * (early + late) + PREFIXES * length(config, model, arm) + (SCRIPTED + PREFIXES) * config["plan"]["prompt_tokens"]
    path, settings = f"controls/{model}/{benchmark}.parquet", study_config.controls_settings(config, model, benchmark)
    return Shard("controls", model, benchmark, arm, path, settings, chosen * (SCRIPTED + PREFIXES), 0, chosen * per_item)


def table(config: Mapping[str, Any], results: str | Path) -> pl.DataFrame:
    """The plan by file.

    Parameters
    ----------
    config
        A validated config.
    results
        ``results/{study}``.

    Returns
    -------
    polars.DataFrame
        One row per file: the fields of :class:`Shard` but ``settings``, ``done`` (it is there and of this config), ``bytes`` and
        ``hours`` (at ``plan.throughput``).
    """
    results = Path(results)
    found = list(shards(config, results))
    fields = [field.name for field in dataclasses.fields(Shard) if field.name != "settings"]
    frame = pl.DataFrame([{name: getattr(shard, name) for name in fields} for shard in found])
    speed = {name: config["plan"]["throughput"].get(name, {}) for name in (*study_config.selected(config, "models"), JUDGE)}
    rates = {kind: {name: own.get(kind, config["plan"][kind]) for name, own in speed.items()} for kind in ("decode", "prefill")}
    rate = {kind: pl.col("model").replace_strict(by_model, return_dtype=pl.Float64) for kind, by_model in rates.items()}
    return frame.with_columns(
        pl.col("decoded", "prefilled", "stored").cast(pl.Float64),
        done=pl.Series([is_made(results / shard.path, shard.settings) for shard in found], dtype=pl.Boolean),
        bytes=pl.col("stored") * TOKEN_BYTES + pl.col("rows") * pl.col("stage").replace_strict(ROW_BYTES, return_dtype=pl.Int64),
        hours=(pl.col("decoded") / rate["decode"] + pl.col("prefilled") / rate["prefill"]) / 3600,
    )


def starts(config: Mapping[str, Any], left: pl.DataFrame) -> int:
    """Jobs that load a model for the files that are left, at most: where all is kept from before, none is loaded."""
    jobs, models = config["jobs"], dict(config["models"])
    if config["judge"]:
        models[JUDGE] = config["judge"]["model"]
    engine = pl.col("model").replace_strict({name: model["engine"] for name, model in models.items()})
    paid = left.filter(pl.col("stage") != "cuts", engine != "server")
    served = paid.filter((engine == "vllm") & (jobs["engines"] == "service"))
    own = paid.join(served.select("model").unique(), on="model", how="anti")
    shared = own.filter(~pl.col("stage").is_in(["controls", "verdicts"]))  # these are not cut into shards
    units = shared.select("model", "stage").n_unique() if jobs["engines"] == "per_model" else len(shared)
    return served["model"].n_unique() + len(own) - len(shared) + units * jobs["shards"]


def describe(config: Mapping[str, Any], results: str | Path) -> str:
    """The plan as text for a terminal."""
    frame = table(config, results)
    lines = [f"Plan of study {config['study']}. Nothing is run.", ""]
    header = ("", "files", "rows", "still to do", "tokens decoded", "tokens read", "hours")
    lines.append(_row(header))
    for model in frame["model"].unique(maintain_order=True):
        own = frame.filter(pl.col("model") == model)
        lines.append(model)
        lines += [_line(f"  {stage}", part) for stage in STAGES if len(part := own.filter(pl.col("stage") == stage))]
        lines.append(_line("  together", own))
    left = frame.filter(~pl.col("done"))
    whole, coming = (_size(float(part["bytes"].sum())) for part in (frame, left))
    jobs = config["jobs"]
    lines += ["", f"Engines: {starts(config, left):,} starts of a model at most (jobs: shards {jobs['shards']}, engines {jobs['engines']})."]
    lines += ["", f"Disk: about {whole}, of which {coming} are still to come."]
    lines += ["", "Assumed (section plan of the config):", *(f"  {line}" for line in _assumptions(config))]
    return "\n".join(lines) + "\n"


def _line(name: str, part: pl.DataFrame) -> str:
    left = part.filter(~pl.col("done"))
    rows = "" if name.strip() == "together" else f"{part['rows'].sum():,}"
    to_do = "" if name.strip() == "together" else f"{left['rows'].sum():,}"
    tokens = (_count(float(left[kind].sum())) for kind in ("decoded", "prefilled"))
    return _row((name, f"{len(part):,}", rows, to_do, *tokens, f"{left['hours'].sum():,.1f}"))


def _row(cells: tuple[str, ...]) -> str:
    return f"{cells[0]:<18}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells[1:], (8, 12, 13, 16, 13, 10), strict=True))


def _count(value: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:.0f}"


def _size(value: float) -> str:
    return f"{value / 1e9:,.1f} GB" if value >= 1e8 else f"{value / 1e6:,.1f} MB"


def _assumptions(config: Mapping[str, Any]) -> Iterator[str]:
    plan = config["plan"]
    arms = dict.fromkeys([*study_config.arms(config), *(interruption_config.arms(config) if config["interruptions"]["run"] else ())])
    told = [f"{arm} {plan['mean_tokens'][arm]:,.0f}" for arm in arms if arm in plan["mean_tokens"]]
    silent = [arm for arm in arms if arm not in plan["mean_tokens"]]
    if told:
        yield "tokens of a run on average (mean_tokens): " + ", ".join(told)
    if silent:
        yield "runs as long as max_tokens, the most that is possible: " + ", ".join(silent)
    prompt, answer = plan["prompt_tokens"], plan["answer_tokens"]
    yield f"{prompt:,.0f} tokens of a prompt (prompt_tokens), {answer:,.0f} of an answer after an interruption (answer_tokens)"
    for model in study_config.selected(config, "models"):
        decode, prefill = (plan["throughput"].get(model, {}).get(kind, plan[kind]) for kind in ("decode", "prefill"))
        speed = f"{decode:,.0f} tokens a second decoded and {prefill:,.0f} read by one engine"
        yield f"{model}: {speed} (throughput, or decode and prefill); hours are those of one at a time"
    if study_config.judged(config):
        written, shown = config["judge"]["max_tokens"], config["judge"]["answer_tokens"]
        yield f"{JUDGE}: asked of every answer, {shown:,} tokens of it shown and {written:,} written, the most that is possible"
        yield f"{JUDGE}: {plan['decode']:,.0f} tokens a second decoded and {plan['prefill']:,.0f} read (decode, prefill)"
    if plan["items"]:
        yield "items of sources that are taken whole (items): " + ", ".join(f"{name} {n:,}" for name, n in plan["items"].items())
    yield "a file of another config is made again as a whole: what the engine has kept of it, which costs nothing, is not taken off here"
    yield "every run ends its reasoning; prefixes are read once per trace and context (a prefix cache); rules, cuts and analysis take no engine"
