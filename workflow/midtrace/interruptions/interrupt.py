"""Interruptions: cut a finished trace, insert something, let the model go on. Answers are read in :mod:`midtrace.interruptions.grade`.

The context of a continuation is the stored prompt ids, the stored output ids up to the cut, and the ids of the insertion, which are tokenised
on their own. What is said is always ordinary text; only the dialect's own strings hold markers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from midtrace import dialects, probe, prompts, tables
from midtrace.dialects import Dialect
from midtrace.engines import Engine, GenerateRequest, Sampling, ScoreRequest
from midtrace.errors import InputError
from midtrace.logs import batches
from midtrace.replay import cuts_of, positions, prefix_end, prefix_of, reasoning_ids, sentence_ends
from midtrace.seeds import interruption_seed
from midtrace.shard import WHOLE, Shard
from midtrace.vocabulary import context_length, load_tokenizer, tokenizer_hash


def insertion_ids(intervention: Mapping[str, Any], update: str | None, dialect: Dialect, tokenizer: Any, at_end: bool = False) -> list[int]:
    """Ids that an intervention inserts.

    Parameters
    ----------
    intervention
        ``place`` (``inside``, ``close``, ``turn``), ``text`` (None: nothing is said), ``stem`` (None: none).
    update
        The update of the item, where it has one.
    dialect, tokenizer
        How the model is spoken to, and its vocabulary.
    at_end
        Whether the whole reasoning of a run that closed it itself is kept. If nothing is said there, the close is the run's own: the forced
        one without the line break that a finished reasoning already ends with.

    Returns
    -------
    list of int
        ``inside``: the text. ``close``: the text and the forced close, then the stem. ``turn``: the end of the assistant's turn, a user turn
        with the text, and the opening of the next assistant turn. Never empty.

    Raises
    ------
    InputError
        If nothing would be inserted, or an update that the item does not have.
    """
    text = intervention["text"] or ""
    if "{update}" in text:
        if not (update or "").strip():
            raise InputError("items", "update", f"missing, but {intervention['name']!r} tells it", "items with an update")
        text = text.replace("{update}", update or "")
    text = text.replace("{early_stop}", dialect.early_stop)
    if not text.strip() and (intervention["text"] is not None or intervention["place"] != "close"):
        raise InputError("config", f"interruptions.interventions.{intervention['name']}.text", "inserts nothing", "some text")
    if intervention["place"] == "close":
        closed = replace(dialect, closing=dialect.closing.lstrip("\n")) if at_end and not text else dialect
        return prompts.closing_ids(closed, intervention["stem"] or "", tokenizer, text)
    if intervention["place"] == "turn":
        end, next_turn = (tokenizer.encode(part, add_special_tokens=False) for part in (dialect.turn_end, dialect.assistant))
        return [*end, *prompts.turn_ids(dialect.user, text, tokenizer), *next_turn]
    return prompts.plain_ids(text, tokenizer)


def cuts_for(trace: Mapping[str, Any], cuts: Mapping[str, Sequence[float]], tokenizer: Any) -> Iterator[dict[str, Any]]:
    """Where a trace is interrupted: at fractions of its reasoning, at the nearest ends of sentences, and after numbers of tokens.

    Only a terminated trace has a length to take fractions of, so only such a trace is interrupted; the others are counted in the tables. A
    number of tokens that the trace does not reach gives no cut.
    """
    if trace["status"] != "terminated":
        return
    length = trace["n_reasoning"]
    sentences = {}
    if cuts["sentences"] and length:
        ends = sentence_ends(reasoning_ids(trace), tokenizer)
        sentences = {fraction: min(ends, key=lambda end: abs(end - fraction * length)) for fraction in cuts["sentences"]}
    reached = [int(n) for n in cuts["tokens"] if n <= length]
    yield from cuts_of(trace, reached, cuts["fractions"], {}, sentences)


@dataclass(frozen=True)
class Continued:
    """What follows an interruption: reasoning that was added, and the answer, split by ids."""

    added: list[int]
    answer: list[int]
    status: str
    problem: str | None


def split_continuation(
    place: str, kept: Sequence[int], inserted: Sequence[int], output_ids: Sequence[int], tokenizer: Any, dialect: Dialect
) -> Continued:
    """Split what the model wrote after an interruption.

    Parameters
    ----------
    place
        Of the intervention.
    kept
        Output ids of the trace up to the cut.
    inserted, output_ids
        Ids of the insertion, and what the model wrote after them.
    tokenizer, dialect
        As in :func:`midtrace.dialects.split`.

    Returns
    -------
    Continued
        After a new turn the output stands for itself; else the whole, from the first output token on, is split, and what was kept and
        inserted is taken off the reasoning. A stem belongs to the answer.
    """
    whole = list(output_ids) if place == "turn" else [*kept, *inserted, *output_ids]
    found = dialects.split(whole, tokenizer, dialect)
    begin = found.start if place == "turn" else len(kept) + len(inserted)
    added = [whole[at] for at in positions(found.start, found.n_reasoning, found.format_after) if at >= begin]
    return Continued(added, found.answer_ids, found.status, found.problem)


def content(ids: Sequence[int], tokenizer: Any) -> list[int]:
    """Ids without tokens of white space at either end: those belong to the format, and a forced close holds them already."""
    kept = [bool(piece.strip()) for piece in tokenizer.batch_decode([[i] for i in ids])]
    return list(ids[kept.index(True) : len(kept) - kept[::-1].index(True)]) if any(kept) else []


def run(
    items: str | Path,
    traces: str | Path,
    output: str | Path,
    study: str,
    settings: Mapping[str, Any],
    batch: int,
    engine: Engine,
) -> None:
    """Interrupt the traces of an arm and replicate with one intervention and write the raw interruptions.

    Parameters
    ----------
    items
        Items of the benchmark (with the updates), whichever question the traces answer.
    traces
        Raw traces to interrupt.
    output
        The raw interruptions to write.
    study, settings
        Name of the study; see :func:`midtrace.config.interruptions.interruption_settings`.
    batch
        Traces per batch.
    engine
        Where tokens and log-probabilities come from.

    Raises
    ------
    InputError
        If no trace can be interrupted, or the intervention would insert nothing.
    """
    inputs = Inputs.read(items, traces, settings)
    meta = tables.metadata("interruptions", study, settings, tokenizer=tokenizer_hash(inputs.tokenizer), suffix_ids=inputs.suffix)
    tables.write_rows(rows(inputs, settings, batch, engine), output, tables.RawInterruptions, lambda: {**meta, **engine.facts})


def rows(inputs: "Inputs", settings: Mapping[str, Any], batch: int, engine: Engine, shard: Shard = WHOLE) -> Iterator[Iterator[dict[str, Any]]]:
    """The raw interruptions of a shard of the traces, batch by batch: when one is given, the engine has done its part of it."""
    model, origin = settings["traces"]["model"], settings["traces"]
    name = f"{model['name']}/{settings['items']['benchmark']['name']}/{origin['arm']['name']}/r{origin['replicate']}"
    interrupted = [trace for trace in shard.of(list(inputs.traces)) if inputs.cuts[trace]]
    for names in batches(interrupted, batch, f"{settings['intervention']['name']} {name}{shard}", "trace"):
        jobs = [job for name in names for job in inputs.jobs(name)]
        generations = engine.generate([job.request for job in jobs], Sampling(**model["sampling"]), inputs.stops)
        choices = inputs.probe(names, engine)
        yield (inputs.row(job, generation, choices) for job, generation in zip(jobs, generations, strict=True))


@dataclass(frozen=True)
class Job:
    """One interruption of one trace."""

    trace_id: str
    cut: dict[str, Any]
    inserted: list[int]
    request: GenerateRequest


@dataclass(frozen=True)
class Inputs:
    """The traces to interrupt and all that it takes: items and traces by id, cuts by trace, the probe's spellings and forced close."""

    settings: Mapping[str, Any]
    items: dict[str, dict[str, Any]]
    traces: dict[str, dict[str, Any]]
    cuts: dict[str, list[dict[str, Any]]]
    tokenizer: Any
    dialect: Dialect
    stops: list[int]
    context: int | None
    spellings: dict[str, list[int]]
    suffix: list[int]

    @classmethod
    def read(cls, items: str | Path, traces: str | Path, settings: Mapping[str, Any]) -> "Inputs":
        """Read the tables and refuse foreign ones, before a model is loaded."""
        model = settings["traces"]["model"]
        dialect, tokenizer = dialects.get(model["dialect"]), load_tokenizer(model)
        meta = tables.check_identity(traces, settings["traces"])
        if meta["tokenizer"] != tokenizer_hash(tokenizer):
            raise InputError(traces, "tokenizer", f"the traces were made with vocabulary {meta['tokenizer']}", tokenizer_hash(tokenizer))
        # An item and its revised view share the part of their ids that follows the name of the benchmark.
        by_item = {row["item_id"].split("/", 1)[1]: row for row in tables.read(items, tables.Items, settings["items"]).iter_rows(named=True)}
        by_trace = {row["trace_id"]: row for row in tables.read(traces, tables.RawTraces).iter_rows(named=True)}
        cuts = {name: list(cuts_for(trace, settings["cuts"], tokenizer)) for name, trace in by_trace.items()}
        if not any(cuts.values()):
            raise InputError(traces, "status", "no trace has finished, so none can be interrupted", "at least 1 terminated trace")
        spelled, suffix, read = {}, [], settings["probe"]
        if read:
            labels = prompts.labels(max(len(item["options"]) for item in by_item.values()))
            spelled = probe.spellings(tokenizer, labels, read["spellings"] == "extended")
            suffix = prompts.closing_ids(dialect, read["stem"], tokenizer)
        stops = dialects.stop_ids(tokenizer, dialect)
        return cls(settings, by_item, by_trace, cuts, tokenizer, dialect, stops, context_length(model), spelled, suffix)

    def item_of(self, trace_id: str) -> dict[str, Any]:
        """The item behind a trace."""
        return self.items[self.traces[trace_id]["item_id"].split("/", 1)[1]]

    def jobs(self, trace_id: str) -> Iterator[Job]:
        """The interruptions of a trace, one per cut."""
        trace, item, intervention = self.traces[trace_id], self.item_of(trace_id), self.settings["intervention"]
        for cut in self.cuts[trace_id]:
            at_end = cut["n_tokens"] == trace["n_reasoning"]
            inserted = insertion_ids(intervention, item["update"], self.dialect, self.tokenizer, at_end)
            if not inserted:
                raise InputError(trace_id, intervention["name"], "inserts no token in this vocabulary", "a text that does")
            ids = [*prefix_of(trace, cut["n_tokens"], trace["prompt_ids"]), *inserted]
            limit = self.settings["max_tokens"] if self.context is None else min(self.settings["max_tokens"], self.context - len(ids))
            if limit < 1:
                raise InputError(trace_id, "context", f"{len(ids)} tokens leave no room for an answer", f"less than {self.context}")
            seed = interruption_seed(self.settings["traces"]["seed"], trace["item_id"], trace["replicate"], intervention["name"], cut["cut_id"])
            yield Job(trace_id, cut, inserted, GenerateRequest(ids, limit, seed))

    def probe(self, names: Sequence[str], engine: Engine) -> dict[tuple[str, int], str]:
        """What the forced-answer probe chooses at the same cuts, with nothing said: (trace, tokens kept) -> label. Empty without a probe."""
        if not self.settings["probe"]:
            return {}
        candidates = sorted({i for ids in self.spellings.values() for i in ids})
        kept = {name: sorted({cut["n_tokens"] for cut in self.cuts[name]}) for name in names}
        requests = []
        for name, lengths in kept.items():
            trace = self.traces[name]
            cuts = [len(trace["prompt_ids"]) + prefix_end(trace, n) for n in lengths]
            requests.append(ScoreRequest(prefix_of(trace, lengths[-1], trace["prompt_ids"]), cuts, self.suffix))
        found = {}
        for name, array in zip(names, engine.score(requests, candidates), strict=True):
            item = self.item_of(name)
            for n, row in zip(kept[name], array, strict=True):
                logprobs = dict(zip(candidates, row.tolist(), strict=True))
                labels = prompts.labels(len(item["options"]))
                found[name, n] = probe.read(logprobs, self.spellings, labels, item["answer"], key=f"{name} {n}").choice
        return found

    def row(self, job: Job, generation: Any, choices: Mapping[tuple[str, int], str]) -> dict[str, Any]:
        """A row of the raw interruptions."""
        trace, tokenizer = self.traces[job.trace_id], self.tokenizer
        at = prefix_end(trace, job.cut["n_tokens"])
        found = split_continuation(
            self.settings["intervention"]["place"], trace["output_ids"][:at], job.inserted, generation.ids, tokenizer, self.dialect
        )
        base = dialects.split(trace["output_ids"], tokenizer, self.dialect)
        return {
            **{key: job.cut[key] for key in tables.CUT_KEYS},
            "intervention": self.settings["intervention"]["name"],
            "seed": job.request.seed,
            "inserted_ids": job.inserted,
            "inserted_at": at,
            "output_ids": generation.ids,
            "finish_reason": generation.finish_reason,
            "status": found.status,
            "problem": found.problem,
            "n_reasoning": trace["n_reasoning"],
            "n_added_reasoning": len(found.added),
            "n_added_content": len(content(found.added, tokenizer)),
            "n_answer": len(content(found.answer, tokenizer)),
            "n_base_answer": len(content(base.answer_ids, tokenizer)),
            "added_text": tokenizer.decode(found.added, skip_special_tokens=True),
            "answer_text": tokenizer.decode(found.answer, skip_special_tokens=True),
            "probe_choice": choices.get((job.trace_id, job.cut["n_tokens"])),
        }
