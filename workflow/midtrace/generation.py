"""Stage 2: raw traces of an arm and replicate: token ids as sampled, split by ids. Answers are read in :mod:`midtrace.answers`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from midtrace import codedigest, dialects, prompts, tables
from midtrace.engines import Engine, GenerateRequest, Sampling, load
from midtrace.errors import InputError
from midtrace.partial import Parts
from midtrace.seeds import trace_seed
from midtrace.vocabulary import context_length, load_tokenizer, tokenizer_hash

ROOM = 64  # tokens of the context that a trace leaves for a forced close and a short answer


def generate(
    items: str | Path,
    output: str | Path,
    study: str,
    settings: Mapping[str, Any],
    batch: int,
    threads: int = 1,
    engine: Engine | None = None,
    machine: Mapping[str, Any] | None = None,
) -> None:
    """Sample one trace per item and write the raw traces.

    Parameters
    ----------
    items, output
        ``items/{benchmark}.parquet`` and the raw traces to write.
    study, settings
        Name of the study; see :func:`midtrace.config.traces_settings`.
    batch
        Sequences per batch: a batch is the unit that a killed job keeps.
    threads
        CPU threads of the engine.
    engine
        For tests; by default the engine that the model names.
    machine
        Where and how the engine runs; see :func:`midtrace.engines.load`.
    """
    frame = tables.read(items, tables.Items, settings["items"])
    model = settings["model"]
    dialect, tokenizer = dialects.get(model["dialect"]), load_tokenizer(model)
    stops = dialects.stop_ids(tokenizer, dialect)
    requests = build_requests(frame, settings, dialect, tokenizer, context_length(model))
    meta = tables.metadata("traces", study, settings, tokenizer=tokenizer_hash(tokenizer), stop_ids=stops)
    parts = Parts(output, tables.RawTraces, meta, codedigest.digest(__file__, model["engine"]))
    loaded = [engine] if engine else []

    def sample(names: Sequence[str]) -> pl.DataFrame:
        if not loaded:
            loaded.append(load(model, threads, machine))
        generations = loaded[0].generate([requests[name] for name in names], Sampling(**model["sampling"]), stops)
        rows = [
            trace_row(name, requests[name], generation, settings, dialect, tokenizer) for name, generation in zip(names, generations, strict=True)
        ]
        return tables.frame_of(rows, tables.RawTraces)

    label = f"traces {model['name']}/{settings['items']['benchmark']['name']}/{settings['arm']['name']}/r{settings['replicate']}"
    whole = parts.complete(frame["item_id"].to_list(), "item_id", batch, sample, label, "trace")
    facts = loaded[0].facts if loaded else {"engine": model["engine"]}
    tables.write(whole, output, tables.RawTraces, {**meta, **facts})
    parts.clear()


def build_requests(
    frame: pl.DataFrame, settings: Mapping[str, Any], dialect: dialects.Dialect, tokenizer: Any, context: int | None
) -> dict[str, GenerateRequest]:
    """One request per item; every prompt is checked against the context before a model is loaded."""
    requests = {}
    model = settings["model"]
    for item in frame.iter_rows(named=True):
        ids = prompts.render(item, settings["arm"], settings["prompt"], dialect, tokenizer)
        if context is not None and len(ids) + model["max_tokens"] + ROOM > context:
            raise InputError(
                f"item {item['item_id']}",
                f"models.{model['name']}.max_tokens",
                f"prompt of {len(ids)} tokens and max_tokens {model['max_tokens']} exceed the context",
                f"together at most {context - ROOM} tokens, so that {ROOM} are left for a forced answer",
            )
        seed = trace_seed(settings["seed"], item["item_id"], settings["replicate"])
        requests[item["item_id"]] = GenerateRequest(ids, model["max_tokens"], seed)
    return requests


def trace_row(
    item_id: str, request: GenerateRequest, generation: Any, settings: Mapping[str, Any], dialect: dialects.Dialect, tokenizer: Any
) -> dict[str, Any]:
    """A raw trace: ids as sampled, split by ids, with the text of its answer."""
    ids = generation.ids
    reasoning = dialects.split(ids, tokenizer, dialect)
    return {
        "trace_id": f"{settings['model']['name']}/{item_id}/{settings['arm']['name']}/r{settings['replicate']}",
        "model": settings["model"]["name"],
        "item_id": item_id,
        "arm": settings["arm"]["name"],
        "replicate": settings["replicate"],
        "seed": request.seed,
        "prompt_ids": list(request.prompt_ids),
        "output_ids": ids,
        "reasoning_start": reasoning.start,
        "n_reasoning": reasoning.n_reasoning,
        "status": reasoning.status,
        "problem": reasoning.problem,
        "finish_reason": generation.finish_reason,
        "answer_text": tokenizer.decode(reasoning.answer_ids, skip_special_tokens=True),
        "drift_at": first_drift(ids, tokenizer),
        "token_exact": True,
    }


def first_drift(ids: list[int], tokenizer: Any) -> int | None:
    """Index of the first id that a decode-encode round trip changes; None if none does."""
    again = tokenizer.encode(tokenizer.decode(ids, skip_special_tokens=False), add_special_tokens=False)
    if again == ids:
        return None
    return next((at for at, (old, new) in enumerate(zip(ids, again, strict=False)) if old != new), min(len(ids), len(again)))
