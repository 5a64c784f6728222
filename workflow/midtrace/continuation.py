"""Stage 5: raw continuations: what the model writes after a cut. Answers are read in :mod:`midtrace.answers`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from midtrace import codedigest, dialects, tables
from midtrace.engines import GREEDY, Engine, GenerateRequest, Sampling, load
from midtrace.partial import Parts
from midtrace.probe import Inputs
from midtrace.seeds import continuation_seed
from midtrace.vocabulary import require_context


def jobs_of(cut: Mapping[str, Any], arm: str, commons: Mapping[str, str], modes: Sequence[str]) -> list[tuple[str, str, str]]:
    """(mode, context, context arm) in which a cut is continued by the engine.

    ``answer`` continues unfinished horizon cuts under the own prompt (they enter Y with C) and matched cuts in their common context (both
    sides). ``resume`` reasons on from unfinished fraction cuts under the own prompt. ``natural`` needs no engine.
    """
    jobs = []
    if "answer" in modes and cut["cut"] == "horizon" and not cut["complete"]:
        jobs.append(("answer", "policy", arm))
    if "answer" in modes and cut["cut"] == "matched":
        jobs.append(("answer", "common", commons[cut["partner_arm"]]))
    if "resume" in modes and cut["cut"] == "fraction" and not cut["complete"]:
        jobs.append(("resume", "policy", arm))
    return jobs


def run(
    items: str | Path,
    traces: str | Path,
    cuts: str | Path,
    output: str | Path,
    study: str,
    settings: Mapping[str, Any],
    batch: int,
    threads: int = 1,
    engine: Engine | None = None,
    machine: Mapping[str, Any] | None = None,
) -> None:
    """Continue the cuts of an arm and replicate and write the raw continuations.

    Parameters
    ----------
    items, traces, cuts
        The items table, raw traces and cuts.
    output
        The raw continuations to write.
    study, settings
        Name of the study; see :func:`midtrace.config.continuation_settings`.
    batch
        Traces per batch.
    threads
        CPU threads of the engine.
    engine
        For tests.
    machine
        Where and how the engine runs; see :func:`midtrace.engines.load`.
    """
    inputs = Inputs.read(items, traces, cuts, settings)
    modes, origin = settings["continuations"]["modes"], settings["replay"]["traces"]
    require_context(inputs.model, str(traces), inputs.longest() + settings["continuations"]["max_tokens"])
    # The availability grid is for the probe alone.
    unread = {*settings["replay"].get("availability", ())} - {*settings["replay"]["horizons"]}
    stops = dialects.stop_ids(inputs.tokenizer, inputs.dialect)
    meta = tables.metadata("continuations", study, settings, suffix_ids=inputs.suffix)
    parts = Parts(output, tables.RawContinuations, meta, codedigest.digest(__file__, inputs.model["engine"]))
    loaded = [engine] if engine else []

    def extend(names: Sequence[str]) -> pl.DataFrame:
        todo = [
            (name, cut, *job)
            for name in names
            for cut in inputs.cuts[name]
            if cut["horizon"] not in unread or cut["cut"] != "horizon"
            for job in jobs_of(cut, inputs.arm, inputs.commons, modes)
        ]
        if todo and not loaded:
            loaded.append(load(inputs.model, threads, machine))
        rows = []
        for mode in ("answer", "resume"):
            chosen = [entry for entry in todo if entry[2] == mode]
            if not chosen:
                continue
            requests = {entry: _request(inputs, entry, settings) for entry in map(_hashable, chosen)}
            # Cuts of one trace that keep the same tokens are one request.
            distinct = list(dict.fromkeys(requests.values()))
            sampling = GREEDY if mode == "answer" else Sampling(**inputs.model["sampling"])
            done = dict(zip(distinct, loaded[0].generate(distinct, sampling, stops), strict=True))
            for name, cut, _, context, context_arm in chosen:
                ids = done[requests[_hashable((name, cut, mode, context, context_arm))]].ids
                text = _text(inputs, name, cut, mode, ids, settings["stem"])
                rows.append({**cut, "context": context, "context_arm": context_arm, "mode": mode, "output_ids": ids, "text": text})
        return tables.frame_of([{key: row[key] for key in tables.RawContinuations.column_names()} for row in rows], tables.RawContinuations)

    label = f"continuations {inputs.model['name']}/{inputs.arm}/r{origin['replicate']}"
    whole = parts.complete(list(inputs.cuts), "trace_id", batch, extend, label, "trace")
    tables.write(whole, output, tables.RawContinuations, {**meta, **(loaded[0].facts if loaded else {})}, expect_rows=False)
    parts.clear()


def _hashable(entry: tuple) -> tuple:
    name, cut, mode, context, context_arm = entry
    return name, cut["cut_id"], cut["n_tokens"], mode, context, context_arm


def _request(inputs: Inputs, entry: tuple, settings: Mapping[str, Any]) -> GenerateRequest:
    name, cut_id, n_tokens, mode, _, context_arm = entry
    _, trunk = inputs.trunk(name, context_arm, n_tokens)
    if mode == "answer":
        return GenerateRequest(tuple([*trunk, *inputs.suffix]), settings["continuations"]["max_tokens"])
    origin, trace = settings["replay"]["traces"], inputs.traces[name]
    seed = continuation_seed(origin["seed"], trace["item_id"], trace["replicate"], (mode, cut_id))
    # What the run itself could still have said; nothing, at the end of a truncated one.
    return GenerateRequest(tuple(trunk), inputs.model["max_tokens"] - trace["reasoning_start"] - n_tokens, seed)


def _text(inputs: Inputs, name: str, cut: Mapping[str, Any], mode: str, ids: Sequence[int], stem: str) -> str:
    if mode == "answer":
        return stem + inputs.tokenizer.decode(list(ids), skip_special_tokens=True)
    trace = inputs.traces[name]
    kept = trace["output_ids"][: trace["reasoning_start"] + cut["n_tokens"]]
    answer = dialects.split([*kept, *ids], inputs.tokenizer, inputs.dialect).answer_ids
    return inputs.tokenizer.decode(answer, skip_special_tokens=True)
