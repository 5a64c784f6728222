"""Raw traces: seeds, rows, resuming, on an engine that follows the format and one that breaks it."""

import polars as pl
import pytest
from helpers.builders import PROMPT, Study, item, walker
from hypothesis import given
from hypothesis import strategies as st

from midtrace import dialects, generation, tables
from midtrace.dialects import EMBEDDED
from midtrace.errors import InputError
from midtrace.prompts import render
from midtrace.seeds import trace_seed
from midtrace.store import StoredEngine

pytestmark = pytest.mark.filterwarnings("ignore:.*past_key_values.*:FutureWarning")


def run(study: Study, output, engine, arm="low", batch=3) -> pl.DataFrame:
    settings = study.settings("traces", arm)
    generation.run(study.items, output, "unit", settings, batch, StoredEngine(output, settings["model"], lambda *_: engine))
    return tables.read(output, tables.RawTraces, settings)


@pytest.mark.parametrize("broken", [0.0, 0.5])
def test_rows_keep_the_ids_as_sampled(study: Study, tokenizer, tmp_path, broken):
    engine = walker(tokenizer, broken)
    frame = run(study, tmp_path / "a.parquet", engine)
    settings = study.settings("traces", "low")
    stops = dialects.stop_ids(tokenizer, EMBEDDED)
    items = {row["item_id"]: row for row in tables.read(study.items, tables.Items).iter_rows(named=True)}
    assert frame["item_id"].to_list() == list(items)
    for row in frame.iter_rows(named=True):
        prompt = render(items[row["item_id"]], {"effort": "low"}, PROMPT, EMBEDDED, tokenizer)
        assert row["prompt_ids"] == prompt
        assert row["seed"] == trace_seed(5, row["item_id"], 0)
        request = generation.GenerateRequest(prompt, 64, row["seed"])
        (alone,) = engine.generate([request], generation.Sampling(**settings["model"]["sampling"]), stops)
        assert (row["output_ids"], row["finish_reason"]) == (alone.ids, alone.finish_reason)
        split = dialects.split(row["output_ids"], tokenizer, EMBEDDED)
        found = (row["reasoning_start"], row["n_reasoning"], row["status"], row["problem"])
        assert found == (split.start, split.n_reasoning, split.status, split.problem)
        assert row["trace_id"] == f"embedded/{row['item_id']}/low/r0"
        if row["status"] == "terminated" and not broken:
            assert row["answer_text"].startswith("\n\nAnswer: ")
    assert broken == 0 or "malformed" in frame["status"].to_list()


def test_seeds_are_shared_by_arms_and_traces_do_not_depend_on_batches(study: Study, tokenizer, tmp_path):
    low = run(study, tmp_path / "low.parquet", walker(tokenizer))
    high = run(study, tmp_path / "high.parquet", walker(tokenizer), "high")
    assert low["seed"].to_list() == high["seed"].to_list()
    assert low["seed"].n_unique() == len(low)
    for batch in (1, 100):
        assert run(study, tmp_path / f"{batch}.parquet", walker(tokenizer), batch=batch).equals(low)


def test_resampling_a_trace_gives_the_same_ids(study: Study, engine, tokenizer):
    frame = tables.read(study.shard("raw/traces", "low"), tables.RawTraces)
    settings = study.settings("traces", "low")
    chosen = frame.sample(3, seed=1)
    requests = [generation.GenerateRequest(row["prompt_ids"], 64, row["seed"]) for row in chosen.iter_rows(named=True)]
    again = engine.generate(requests, generation.Sampling(**settings["model"]["sampling"]), dialects.stop_ids(tokenizer, EMBEDDED))
    assert [generation.ids for generation in again] == chosen["output_ids"].to_list()


def test_a_killed_job_computes_only_the_rest(study: Study, tokenizer, tmp_path):
    class Dying:
        """Dies in its second batch."""

        def __init__(self):
            self.engine, self.calls = walker(tokenizer), 0
            self.facts = self.engine.facts

        def generate(self, requests, *rest):
            self.calls += 1
            if self.calls == 2:
                raise KeyboardInterrupt
            return self.engine.generate(requests, *rest)

    undisturbed = run(study, tmp_path / "whole.parquet", walker(tokenizer))
    dying = Dying()
    with pytest.raises(KeyboardInterrupt):
        run(study, tmp_path / "a.parquet", dying)
    assert not (tmp_path / "a.parquet").exists()
    resumed = run(study, tmp_path / "a.parquet", dying)
    assert dying.calls == 2 + 2, "8 traces in batches of 3: one was finished"
    assert resumed.equals(undisturbed)


def test_a_prompt_too_long_for_the_context_is_refused_before_any_model_is_loaded(tokenizer):
    settings = {"model": {"name": "m", "max_tokens": 50}, "arm": {}, "prompt": PROMPT, "seed": 1, "replicate": 0}
    frame = tables.frame_of([item()], tables.Items)
    n = len(render(item(), {}, PROMPT, EMBEDDED, tokenizer))
    assert generation.build_requests(frame, settings, EMBEDDED, tokenizer, n + 50 + generation.ROOM)
    assert generation.build_requests(frame, settings, EMBEDDED, tokenizer, None)
    message = (
        rf"item toy/1: models\.m\.max_tokens: prompt of {n} tokens and max_tokens 50 exceed the context; allowed: together at most {n + 49} tokens"
    )
    with pytest.raises(InputError, match=message):
        generation.build_requests(frame, settings, EMBEDDED, tokenizer, n + 49 + generation.ROOM)


def test_drift_by_hand(tokenizer):
    whole = tokenizer.encode(" Now 3 plus 5", add_special_tokens=False)
    assert generation.first_drift(whole, tokenizer) is None
    pieces = [i for part in (" Now", " 3 p", "lus 5") for i in tokenizer.encode(part, add_special_tokens=False)]
    assert tokenizer.decode(pieces) == " Now 3 plus 5"
    assert generation.first_drift(pieces, tokenizer) == 2
    assert generation.first_drift([], tokenizer) is None


@given(st.lists(st.integers(0, 513), max_size=12))
def test_drift_is_the_length_of_what_a_round_trip_keeps(tokenizer, ids):
    again = tokenizer.encode(tokenizer.decode(ids, skip_special_tokens=False), add_special_tokens=False)
    at = generation.first_drift(ids, tokenizer)
    if at is None:
        assert again == ids
    else:
        assert again != ids
        assert again[:at] == ids[:at]
        assert again[at : at + 1] != ids[at : at + 1]
