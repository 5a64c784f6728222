"""Stage 4: the forced-answer probe. Close the reasoning at a cut, start the answer, read each option's probability at its first token."""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from midtrace import dialects, prompts, tables
from midtrace.engines import Engine, ScoreRequest
from midtrace.errors import InputError
from midtrace.logs import batches
from midtrace.replay import prefix_end, prefix_of
from midtrace.seeds import stable_hash
from midtrace.shard import WHOLE, Shard
from midtrace.vocabulary import load_tokenizer, require_context, tokenizer_hash

QUOTING = "()[]{}<>*_`\"'$.:,"
LETTERS = re.compile("[A-Za-z0-9]")


@dataclass(frozen=True)
class Readout:
    """What the probe reads at one cut; see :func:`read`."""

    option_logprob: list[float]
    candidate_mass: float
    q: list[float]
    choice: str
    tie: bool
    low_mass: bool
    q_gold: float
    correct: bool
    brier: float
    log_loss: float
    gold_log_odds: float


def spellings(tokenizer: Any, labels: Sequence[str], extended: bool = False) -> dict[str, list[int]]:
    """All one-token spellings of each label.

    Parameters
    ----------
    tokenizer
        A Transformers tokenizer.
    labels
        Option letters.
    extended
        Also admit quoting punctuation around the label (``(A``, ``**A``).

    Returns
    -------
    dict
        Label -> sorted ids of every token whose decoded text, stripped of white space, is exactly the label. No id serves two labels.

    Raises
    ------
    InputError
        If a label has no such token.
    """
    found: dict[str, list[int]] = {label: [] for label in labels}
    special = set(tokenizer.all_special_ids)
    # Decoding a whole vocabulary takes seconds, so only what can spell a label: its letters and no others (or a byte, known when decoded).
    likely = (i for token, i in tokenizer.get_vocab().items() if "".join(LETTERS.findall(token)) in found or token.startswith("<0x"))
    ids = sorted(i for i in likely if i not in special)
    for token, text in zip(ids, tokenizer.batch_decode([[i] for i in ids]), strict=True):
        stripped = text.strip()
        if extended:
            stripped = stripped.strip(QUOTING)
        if stripped in found:
            found[stripped].append(token)
    for label, tokens in found.items():
        if not tokens:
            raise InputError("tokenizer", f"label {label!r}", "has no one-token spelling in this vocabulary", "labels that are one token")
    return found


def read(
    logprobs: Mapping[int, float] | np.ndarray,
    spellings: Mapping[str, Sequence[int]],
    labels: Sequence[str],
    gold: str,
    low_mass: float = 0.5,
    key: str = "",
) -> Readout:
    """Turn next-token log-probabilities into a readout.

    Parameters
    ----------
    logprobs
        Full-vocabulary natural log-probabilities: an array indexed by token id, or a mapping that holds at least the spellings' ids.
    spellings
        Label -> ids; labels that the item does not have are ignored.
    labels
        The item's labels.
    gold
        The right one of them.
    low_mass
        Threshold of the low-mass flag.
    key
        Identifies the cut in the tie-break.

    Returns
    -------
    Readout
        Per option ``log p = log sum of p over its spellings``, rounded to float32, and all else from that: mass = sum of p; ``q`` = p / mass;
        choice = argmax. Exact ties are broken by a hash of ``key`` and the tied labels, which favours no letter. Brier = sum over options of
        (q - 1[gold])^2; log loss = -ln q_gold; gold log-odds = ln(q_gold / (1 - q_gold)); both are infinite where they are (method, section 3).

    Raises
    ------
    ValueError
        If ``gold`` is not a label, or no option has any probability.
    """
    if gold not in labels:
        raise ValueError(f"gold {gold!r} is none of the labels {list(labels)}")
    option = np.array([np.logaddexp.reduce([float(logprobs[i]) for i in spellings[label]]) for label in labels])
    option = option.astype(np.float32).astype(np.float64)  # as the table keeps it: the last bits of float64 depend on what else was in the batch
    total = float(np.logaddexp.reduce(option))
    if not math.isfinite(total):
        raise ValueError(f"no option has a finite log-probability: {option.tolist()}")
    log_q = option - total
    best = [label for label, value in zip(labels, option, strict=True) if value == option.max()]
    choice = best[stable_hash("tie", key, *best) % len(best)]
    at = list(labels).index(gold)
    q = np.exp(log_q)
    others = np.delete(option, at)
    return Readout(
        option_logprob=option.tolist(),
        candidate_mass=min(1.0, math.exp(total)),
        q=q.tolist(),
        choice=choice,
        tie=len(best) > 1,
        low_mass=math.exp(total) < low_mass,
        q_gold=float(q[at]),
        correct=choice == gold,
        brier=float(np.square(q - (np.arange(len(q)) == at)).sum()),
        log_loss=float(-log_q[at]),
        gold_log_odds=float(option[at] - np.logaddexp.reduce(others)),
    )


def contexts_of(cut: Mapping[str, Any], arm: str, commons: Mapping[str, str], own_only: Collection[int] = ()) -> list[tuple[str, str]]:
    """(context, context arm) pairs in which a cut is read.

    Every cut is read under its own prompt. Horizons, and whole blocks whatever rule reaches them, are read in the common context of each
    comparison of the arm too, matched cuts in that of their comparison. ``own_only`` are horizons that no contrast needs (:func:`own_only`).
    """
    pairs = [("policy", arm)]
    if (cut["cut"] == "horizon" and cut["horizon"] not in own_only) or (cut["cut"] == "fraction" and cut["complete"]):
        pairs += [("common", common) for common in sorted(set(commons.values()))]
    elif cut["cut"] == "matched":
        pairs.append(("common", commons[cut["partner_arm"]]))
    return pairs


def own_only(replay: Mapping[str, Any]) -> frozenset[int]:
    """Horizons, of the settings of replay, that are there for the later look at a run alone: it is read under its own prompt."""
    return frozenset({*replay["later"]} - {*replay["horizons"], *replay["availability"]})


def context_prompts(
    items: Mapping[str, Mapping[str, Any]],
    traces: Mapping[str, Mapping[str, Any]],
    settings: Mapping[str, Any],
    dialect: dialects.Dialect,
    tokenizer: Any,
    imported: bool = False,
) -> dict[tuple[str, str], list[int]]:
    """Prompt ids by (item, context arm); the arm's own prompt is the stored one.

    It must be what the config renders, unless the traces were ``imported``: another tool asked in its own words.
    """
    origin = settings["replay"]["traces"]
    own = origin["arm"]["name"]
    arms = {entry["name"]: entry for entry in settings["contexts"].values()} | {own: origin["arm"]}
    found = {}
    for trace in traces.values():
        item = items[trace["item_id"]]
        for name, arm in arms.items():
            found[trace["item_id"], name] = prompts.render(item, arm, origin["prompt"], dialect, tokenizer)
        if imported:
            found[trace["item_id"], own] = list(trace["prompt_ids"])
        elif found[trace["item_id"], own] != trace["prompt_ids"]:
            problem = "differ from the prompt that the config renders"
            raise InputError(trace["trace_id"], "prompt_ids", problem, "traces of this config and vocabulary")
    return found


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
    """Write ``readouts/...``: every cut of an arm and replicate in every context.

    Parameters
    ----------
    items, traces, cuts
        The items table, raw traces and cuts.
    output
        The readouts table to write.
    study, settings
        Name of the study; see :func:`midtrace.config.probe_settings`.
    batch
        Traces per batch.
    engine
        Where the log-probabilities come from.
    """
    inputs = Inputs.read(items, traces, cuts, settings)
    facts = {"tokenizer": tokenizer_hash(inputs.tokenizer), "suffix_ids": inputs.suffix, "spellings": spellings_of(inputs, settings)}
    meta = tables.metadata("probe", study, settings, **facts)
    tables.write_rows(rows(inputs, settings, batch, engine), output, tables.Readouts, lambda: {**meta, **engine.facts})


def spellings_of(inputs: "Inputs", settings: Mapping[str, Any]) -> dict[str, list[int]]:
    """The spellings of every label that some item has."""
    labels = prompts.labels(max(len(item["options"]) for item in inputs.items.values()))
    return spellings(inputs.tokenizer, labels, settings["readouts"]["spellings"] == "extended")


def rows(inputs: "Inputs", settings: Mapping[str, Any], batch: int, engine: Engine, shard: Shard = WHOLE) -> Iterator[Iterator[dict[str, Any]]]:
    """The readouts of a shard of the traces, batch by batch: when one is given, the engine has done its part of it."""
    require_context(inputs.model, inputs.source, inputs.longest() + 1)
    spelled = spellings_of(inputs, settings)
    candidates = sorted({i for ids in spelled.values() for i in ids})
    label = f"probe {inputs.model['name']}/{inputs.arm}/r{settings['replay']['traces']['replicate']}{shard}"
    for names in batches(shard.of(list(inputs.cuts)), batch, label, "trace"):
        jobs, requests = [], []
        for name in names:
            for context_arm, lengths in inputs.lengths(name).items():
                prompt, trunk = inputs.trunk(name, context_arm, max(lengths))
                jobs.append((name, context_arm, lengths))
                cuts = [len(prompt) + prefix_end(inputs.traces[name], n) for n in lengths]
                requests.append(ScoreRequest(trunk, cuts, inputs.suffix))
        found = {
            (name, arm, n): row
            for (name, arm, lengths), array in zip(jobs, engine.score(requests, candidates), strict=True)
            for n, row in zip(lengths, array, strict=True)
        }
        yield _readouts(inputs, names, found, candidates, spelled, settings["readouts"]["low_mass"])


def _readouts(
    inputs: "Inputs", names: Sequence[str], found: Mapping[tuple, Any], candidates: Sequence[int], spelled: Mapping[str, list[int]], low_mass: float
) -> Iterator[dict[str, Any]]:
    for name in names:
        item = inputs.items[inputs.traces[name]["item_id"]]
        labels = prompts.labels(len(item["options"]))
        for cut in inputs.cuts[name]:
            for context, arm in inputs.contexts(cut):
                logprobs = dict(zip(candidates, found[name, arm, cut["n_tokens"]].tolist(), strict=True))
                readout = read(logprobs, spelled, labels, item["answer"], low_mass, f"{name} {cut['cut_id']}")
                yield {**cut, "context": context, "context_arm": arm, **vars(readout)}


@dataclass(frozen=True)
class Inputs:
    """What probe and continuations read: items and traces by id, cuts by trace, prompts by (item, context arm), the forced close."""

    source: str
    items: dict[str, dict[str, Any]]
    traces: dict[str, dict[str, Any]]
    cuts: dict[str, list[dict[str, Any]]]
    prompts: dict[tuple[str, str], list[int]]
    suffix: list[int]
    model: dict[str, Any]
    arm: str
    commons: dict[str, str]
    own_only: frozenset[int]
    tokenizer: Any
    dialect: dialects.Dialect

    @classmethod
    def read(cls, items: str | Path, traces: str | Path, cuts: str | Path, settings: Mapping[str, Any]) -> "Inputs":
        """Read the tables, refuse foreign ones, and render the context prompts."""
        origin = settings["replay"]["traces"]
        dialect, tokenizer = dialects.get(origin["model"]["dialect"]), load_tokenizer(origin["model"])
        meta = tables.check_identity(traces, origin)
        if meta["tokenizer"] != tokenizer_hash(tokenizer):
            raise InputError(traces, "tokenizer", f"the traces were made with vocabulary {meta['tokenizer']}", tokenizer_hash(tokenizer))
        by_item = {row["item_id"]: row for row in tables.read(items, tables.Items, origin["items"]).iter_rows(named=True)}
        by_trace = {row["trace_id"]: row for row in tables.read(traces, tables.RawTraces).iter_rows(named=True)}
        grouped: dict[str, list[dict[str, Any]]] = {}
        for cut in tables.read(cuts, tables.Cuts, settings["replay"]).iter_rows(named=True):
            grouped.setdefault(cut["trace_id"], []).append(cut)
        commons = {partner: entry["name"] for partner, entry in settings["contexts"].items()}
        rendered = context_prompts(by_item, by_trace, settings, dialect, tokenizer, "imported" in meta)
        suffix = prompts.closing_ids(dialect, settings["stem"], tokenizer)
        names = origin["model"], origin["arm"]["name"], commons, own_only(settings["replay"])
        return cls(str(traces), by_item, by_trace, grouped, rendered, suffix, *names, tokenizer, dialect)

    def contexts(self, cut: Mapping[str, Any]) -> list[tuple[str, str]]:
        """See :func:`contexts_of`."""
        return contexts_of(cut, self.arm, self.commons, self.own_only)

    def lengths(self, trace_id: str) -> dict[str, list[int]]:
        """Context arm -> the distinct prefix lengths (reasoning tokens) to be read in it."""
        found: dict[str, set[int]] = {}
        for cut in self.cuts[trace_id]:
            for _, arm in self.contexts(cut):
                found.setdefault(arm, set()).add(cut["n_tokens"])
        return {arm: sorted(values) for arm, values in found.items()}

    def longest(self) -> int:
        """Tokens of the longest prefix, closed."""
        ends = (
            len(self.prompts[trace["item_id"], arm]) + prefix_end(trace, lengths[-1])
            for trace in map(self.traces.__getitem__, self.cuts)
            for arm, lengths in self.lengths(trace["trace_id"]).items()
        )
        return max(ends, default=0) + len(self.suffix)

    def trunk(self, trace_id: str, context_arm: str, n: int) -> tuple[list[int], list[int]]:
        """The context's prompt, and prompt plus the first ``n`` reasoning tokens, exactly as stored."""
        trace = self.traces[trace_id]
        prompt = self.prompts[trace["item_id"], context_arm]
        return prompt, prefix_of(trace, n, prompt)
