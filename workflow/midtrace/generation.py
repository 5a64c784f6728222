"""Stage 2: raw traces of an arm and replicate: token ids as sampled, split by ids. Answers are read in :mod:`midtrace.grading.answers`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from midtrace import dialects, prompts, tables
from midtrace.engines import Engine, GenerateRequest, Sampling
from midtrace.errors import InputError
from midtrace.logs import batches
from midtrace.seeds import trace_seed
from midtrace.shard import WHOLE, Shard
from midtrace.vocabulary import context_length, load_tokenizer, tokenizer_hash

ROOM = 64  # tokens of the context that a trace leaves for a forced close and a short answer


def run(items: str | Path, output: str | Path, study: str, settings: Mapping[str, Any], batch: int, engine: Engine) -> None:
    """Sample one trace per item and write the raw traces.

    Parameters
    ----------
    items, output
        ``items/{benchmark}.parquet`` and the raw traces to write.
    study, settings
        Name of the study; see :func:`midtrace.config.traces_settings`.
    batch
        Sequences per batch: what a killed job loses at most.
    engine
        Where the tokens come from.
    """
    inputs = Inputs.read(items, settings)
    meta = tables.metadata("traces", study, settings, tokenizer=tokenizer_hash(inputs.tokenizer), stop_ids=inputs.stops)
    tables.write_rows(rows(inputs, settings, batch, engine), output, tables.RawTraces, lambda: {**meta, **engine.facts})


@dataclass(frozen=True)
class Inputs:
    """What the engine is asked: a request per item, in the order of the items."""

    requests: dict[str, GenerateRequest]
    tokenizer: Any
    dialect: dialects.Dialect
    stops: list[int]

    @classmethod
    def read(cls, items: str | Path, settings: Mapping[str, Any]) -> "Inputs":
        """Read the items and render their prompts."""
        frame, model = tables.read(items, tables.Items, settings["items"]), settings["model"]
        dialect, tokenizer = dialects.get(model["dialect"]), load_tokenizer(model)
        requests = build_requests(frame, settings, dialect, tokenizer, context_length(model))
        return cls(requests, tokenizer, dialect, dialects.stop_ids(tokenizer, dialect))


def rows(inputs: Inputs, settings: Mapping[str, Any], batch: int, engine: Engine, shard: Shard = WHOLE) -> Iterator[Iterator[dict[str, Any]]]:
    """The raw traces of a shard of the items, batch by batch: when one is given, the engine has done its part of it."""
    model = settings["model"]
    label = f"traces {model['name']}/{settings['items']['benchmark']['name']}/{settings['arm']['name']}/r{settings['replicate']}{shard}"
    for names in batches(shard.of(list(inputs.requests)), batch, label, "trace"):
        requests = [inputs.requests[name] for name in names]
        generations = engine.generate(requests, Sampling(**model["sampling"]), inputs.stops)
        answered = zip(names, requests, generations, strict=True)
        yield (trace_row(name, request, one, settings, inputs.dialect, inputs.tokenizer) for name, request, one in answered)


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
        "format_after": reasoning.format_after,
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
