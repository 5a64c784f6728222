"""Controls: constructed prefixes whose answer is known, read by the same probe (method, 4.8)."""

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from midtrace import dialects, prompts, tables
from midtrace.engines import Engine, ScoreRequest
from midtrace.logs import batches
from midtrace.probe import read, spellings
from midtrace.replay import reasoning_ids
from midtrace.seeds import stable_hash
from midtrace.vocabulary import load_tokenizer, tokenizer_hash

ITEMS = 32  # read together


def run(
    items: str | Path,
    traces: str | Path,
    output: str | Path,
    study: str,
    settings: Mapping[str, Any],
    engine: Engine,
) -> None:
    """Write ``controls/{model}/{benchmark}.parquet``.

    Parameters
    ----------
    items, traces
        The items table; raw traces of the reference arm of the first comparison, replicate 0.
    output
        The controls table to write.
    study, settings
        Name of the study; see :func:`midtrace.config.controls_settings`.
    engine
        Where the log-probabilities come from.
    """
    origin = settings["traces"]
    model, arm = origin["model"], origin["arm"]
    own = {row["item_id"]: row for row in tables.read(traces, tables.RawTraces, origin).iter_rows(named=True)}
    frame = tables.read(items, tables.Items, origin["items"])
    frame = frame.filter(pl.col("item_id").is_in(list(own)))  # imported traces need not cover all items
    dialect, tokenizer = dialects.get(model["dialect"]), load_tokenizer(model)
    n = min(settings["controls"]["items"], len(frame))
    chosen = sorted(frame.iter_rows(named=True), key=lambda item: stable_hash("controls", origin["seed"], item["item_id"]))[:n]
    spelled = spellings(tokenizer, prompts.labels(max(len(item["options"]) for item in chosen)), settings["readouts"]["spellings"] == "extended")
    candidates = sorted({i for ids in spelled.values() for i in ids})
    suffix = prompts.closing_ids(dialect, settings["stem"], tokenizer)
    opening = dialects.opening_ids(tokenizer, dialect)
    reserved = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    ordinary = [i for i in sorted(tokenizer.get_vocab().values()) if i not in reserved]
    rows = []
    for portion in batches(list(enumerate(chosen)), ITEMS, f"controls {model['name']}/{origin['items']['benchmark']['name']}", "item"):
        built, requests = [], []
        for position, item in portion:
            prompt = prompts.render(item, arm, origin["prompt"], dialect, tokenizer)
            for entry in (
                *scripted(item, settings["controls"], origin["seed"], tokenizer),
                *constructed(own[item["item_id"]], _other(chosen, position, own), ordinary, origin["seed"]),
            ):
                trunk = [*prompt, *opening, *entry[-1]]
                built.append((item, *entry))
                requests.append(ScoreRequest(trunk, [len(trunk)], suffix))
        for (item, control, place, stated, reasoning), scores in zip(built, engine.score(requests, candidates), strict=True):
            labels = prompts.labels(len(item["options"]))
            logprobs = dict(zip(candidates, scores[0].tolist(), strict=True))
            readout = read(logprobs, spelled, labels, item["answer"], settings["readouts"]["low_mass"], f"{item['item_id']} {control} {place}")
            rows.append(
                {
                    "model": model["name"],
                    "item_id": item["item_id"],
                    "control": control,
                    "position": place,
                    "n_tokens": len(reasoning),
                    "n_options": len(labels),
                    "stated": stated,
                    "choice": readout.choice,
                    "follows": None if stated is None else readout.choice == stated,
                    "correct": readout.correct,
                }
            )
    meta = tables.metadata("controls", study, settings, tokenizer=tokenizer_hash(tokenizer), **engine.facts)
    tables.write(tables.frame_of(rows, tables.Controls), output, tables.Controls, meta)


def scripted(item: Mapping[str, Any], controls: Mapping[str, Any], seed: int, tokenizer: Any) -> Iterator[tuple[str, str, str | None, list[int]]]:
    """Scripted policies as (control, position, stated label by then, reasoning ids).

    ``scripted_short`` states the right option first and then fills; ``scripted_long`` fills and states it at the end of the late horizon, so
    that nothing is known at the early one; ``scripted_wrong`` is the short policy with a wrong option: the probe must follow it.
    """
    early, late = controls["horizons"]
    labels = prompts.labels(len(item["options"]))
    wrong = [label for label in labels if label != item["answer"]]
    false = wrong[stable_hash("wrong", seed, item["item_id"]) % len(wrong)]
    lead = tokenizer.encode("\n", add_special_tokens=False)

    def statement(label: str) -> list[int]:
        text = controls["statement"].replace("{label}", label).replace("{text}", item["options"][labels.index(label)])
        return prompts.plain_ids(text, tokenizer)

    def filler(length: int) -> list[int]:
        unit = tokenizer.encode(controls["filler"], add_special_tokens=False)
        return (unit * (length // len(unit) + 1))[:length]

    for control, label in (("scripted_short", item["answer"]), ("scripted_wrong", false)):
        said = [*lead, *statement(label)]
        for place, horizon in (("early", early), ("late", late)):
            yield control, place, label, [*said, *filler(max(0, horizon - len(said)))]
    said = statement(item["answer"])
    yield "scripted_long", "early", None, [*lead, *filler(early - len(lead))]
    yield "scripted_long", "late", item["answer"], [*lead, *filler(late - len(lead) - len(said)), *said]


def constructed(
    own: Mapping[str, Any], other: Mapping[str, Any] | None, ordinary: Sequence[int], seed: int
) -> Iterator[tuple[str, str, str | None, list[int]]]:
    """Prefix controls on the whole block of a run: its own tokens, junk of equal length, another item's block, its own tokens shuffled.

    A run without reasoning has none of them: they would all be the empty prefix.
    """
    reasoning = reasoning_ids(own)
    if not reasoning:
        return
    rng = random.Random(stable_hash("prefix controls", seed, own["item_id"]))
    shuffled = list(reasoning)
    rng.shuffle(shuffled)
    yield "prefix_own", "whole", None, list(reasoning)
    yield "prefix_junk", "whole", None, [rng.choice(ordinary) for _ in reasoning]
    if other and other["n_reasoning"]:
        yield "prefix_other_item", "whole", None, reasoning_ids(other)
    yield "prefix_shuffled", "whole", None, shuffled


def _other(chosen: Sequence[Mapping[str, Any]], position: int, runs: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The run of the next item with as many options, so that its answer is right by chance only; of the next item if there is none."""
    following = [*chosen[position + 1 :], *chosen[:position]]
    alike = [item for item in following if len(item["options"]) == len(chosen[position]["options"])]
    return runs[(alike or following)[0]["item_id"]] if following else None
