"""Stage 5: raw continuations: what the model writes after a cut. Answers are read in :mod:`midtrace.grading.answers`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from midtrace import dialects, tables
from midtrace.engines import GREEDY, Engine, GenerateRequest, Sampling
from midtrace.logs import batches
from midtrace.probe import Inputs
from midtrace.replay import prefix_end
from midtrace.seeds import continuation_seed
from midtrace.shard import WHOLE, Shard
from midtrace.vocabulary import require_context


def jobs_of(
    cut: Mapping[str, Any], contexts: Sequence[tuple[str, str]], continuations: Mapping[str, Any], probed: bool
) -> list[tuple[str, str, str]]:
    """(mode, context, context arm) in which a cut is continued by the engine.

    Parameters
    ----------
    cut
        A row of the cuts table.
    contexts
        Where a probe reads it (:func:`midtrace.probe.contexts_of`).
    continuations
        Section of the config: ``modes`` and ``contexts``.
    probed
        Whether the probe reads the cut too. If it does, ``answer`` continues horizons in ``contexts`` and matched cuts in their common context.
        If not (free-form answers), it stands in for the probe: every cut is continued wherever a probe would read it, horizons in
        ``contexts`` of the config. Whole blocks are continued too.

    Notes
    -----
    ``resume`` reasons on from unfinished fraction cuts under the own prompt. ``natural`` needs no engine.
    """
    jobs = []
    if "answer" in continuations["modes"]:
        for context, context_arm in contexts:
            if cut["cut"] == "horizon":
                wanted = context in continuations["contexts"]
            else:
                wanted = not probed or (cut["cut"] == "matched" and context == "common")
            if wanted:
                jobs.append(("answer", context, context_arm))
    if "resume" in continuations["modes"] and cut["cut"] == "fraction" and not cut["complete"]:
        jobs += [("resume", context, context_arm) for context, context_arm in contexts if context == "policy"]
    return jobs


def unread_horizons(replay: Mapping[str, Any], probed: bool) -> set[int]:
    """Horizons, of the settings of replay, that are not continued: the availability grid, and the later look at a run where there is a probe."""
    return {*replay["availability"], *(replay["later"] if probed else ())} - {*replay["horizons"]}


def run(
    items: str | Path,
    traces: str | Path,
    cuts: str | Path,
    output: str | Path,
    study: str,
    settings: Mapping[str, Any],
    batch: int,
    engine: Engine,
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
    engine
        Where the tokens come from.
    """
    inputs = Inputs.read(items, traces, cuts, settings)
    meta = tables.metadata("continuations", study, settings, suffix_ids=inputs.suffix)
    found = rows(inputs, settings, batch, engine)
    tables.write_rows(found, output, tables.RawContinuations, lambda: {**meta, **engine.facts}, expect_rows=False)


def rows(inputs: Inputs, settings: Mapping[str, Any], batch: int, engine: Engine, shard: Shard = WHOLE) -> Iterator[Iterator[dict[str, Any]]]:
    """The raw continuations of a shard of the traces, batch by batch: when one is given, the engine has done its part of it."""
    origin = settings["replay"]["traces"]
    probed = origin["items"]["benchmark"]["answer_kind"] == "choice"
    require_context(inputs.model, inputs.source, inputs.longest() + settings["continuations"]["max_tokens"])
    unread = unread_horizons(settings["replay"], probed)
    stops = dialects.stop_ids(inputs.tokenizer, inputs.dialect)
    label = f"continuations {inputs.model['name']}/{inputs.arm}/r{origin['replicate']}{shard}"
    for names in batches(shard.of(list(inputs.cuts)), batch, label, "trace"):
        todo = [
            (name, cut, *job)
            for name in names
            for cut in inputs.cuts[name]
            if cut["horizon"] not in unread or cut["cut"] != "horizon"
            for job in jobs_of(cut, inputs.contexts(cut), settings["continuations"], probed)
        ]
        requests = {entry: _request(inputs, entry, settings) for entry in map(_hashable, todo)}
        done: dict[tuple, list[int]] = {}
        for mode, sampling in (("answer", GREEDY), ("resume", Sampling(**inputs.model["sampling"]))):
            own = {entry: request for entry, request in requests.items() if entry[3] == mode}
            # Cuts of one trace that keep the same tokens behind the same prompt are one request.
            distinct = list(dict.fromkeys(own.values()))
            generations = dict(zip(distinct, engine.generate(distinct, sampling, stops), strict=True))
            done |= {entry: generations[request].ids for entry, request in own.items()}
        yield _continuations(inputs, todo, done, settings["stem"])


def _continuations(inputs: Inputs, todo: Sequence[tuple], done: Mapping[tuple, list[int]], stem: str) -> Iterator[dict[str, Any]]:
    """Rows in the order of the traces, of each those of one mode after those of the other."""
    order = {name: place for place, name in enumerate(dict.fromkeys(entry[0] for entry in todo))}
    for entry in sorted(todo, key=lambda entry: (order[entry[0]], entry[2])):
        name, cut, mode, context, context_arm = entry
        ids = done[_hashable(entry)]
        text = _text(inputs, name, cut, mode, ids, stem)
        yield {**cut, "context": context, "context_arm": context_arm, "mode": mode, "output_ids": ids, "text": text}


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
    return GenerateRequest(tuple(trunk), inputs.model["max_tokens"] - prefix_end(trace, n_tokens), seed)


def _text(inputs: Inputs, name: str, cut: Mapping[str, Any], mode: str, ids: Sequence[int], stem: str) -> str:
    if mode == "answer":
        return stem + inputs.tokenizer.decode(dialects.answer_part(ids, inputs.tokenizer, inputs.dialect), skip_special_tokens=True)
    trace = inputs.traces[name]
    kept = trace["output_ids"][: prefix_end(trace, cut["n_tokens"])]
    answer = dialects.split([*kept, *ids], inputs.tokenizer, inputs.dialect).answer_ids
    return inputs.tokenizer.decode(answer, skip_special_tokens=True)
