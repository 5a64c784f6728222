"""Raw continuations: what is continued, from which ids, and within which budget."""

import polars as pl
import pytest
from helpers.builders import Study, walker

from midtrace import continuation, probe, tables
from midtrace.engines import GREEDY, Generation
from midtrace.seeds import continuation_seed
from midtrace.store import StoredEngine


def jobs(cut, complete=False, partner=None, modes=("answer", "resume", "natural"), contexts=("policy", "common"), probed=True):
    row = {"cut": cut, "horizon": 8, "complete": complete, "partner_arm": partner}
    read = probe.contexts_of(row, "low", {"high": "medium"})
    return continuation.jobs_of(row, read, {"modes": modes, "contexts": contexts}, probed)


OWN, COMMON = ("answer", "policy", "low"), ("answer", "common", "medium")


def test_horizons_are_continued_in_both_contexts_whole_blocks_included():
    assert jobs("horizon") == jobs("horizon", complete=True) == [OWN, COMMON]
    assert jobs("horizon", contexts=["policy"]) == [OWN]
    assert jobs("horizon", contexts=["common"]) == [COMMON]


def test_other_cuts_are_continued_where_a_table_needs_it():
    assert jobs("matched", complete=True, partner="high") == jobs("matched", partner="high", contexts=["policy"]) == [COMMON]
    assert jobs("fraction") == [("resume", "policy", "low")]
    assert jobs("fraction", complete=True) == []
    assert jobs("fraction", modes=["answer"]) == jobs("horizon", modes=["resume", "natural"]) == []


def test_where_nothing_is_probed_the_continuation_stands_in_for_the_probe():
    assert jobs("matched", partner="high", probed=False) == jobs("matched", complete=True, partner="high", probed=False) == [OWN, COMMON]
    assert jobs("fraction", modes=["answer"], probed=False) == [OWN]
    assert jobs("fraction", complete=True, probed=False) == [OWN, COMMON]


class Recorder:
    """Answers every request with its number and keeps what was asked."""

    def __init__(self):
        self.facts, self.asked = {"engine": "recorder"}, []

    def generate(self, requests, sampling, stop_ids):
        self.asked += [(request, sampling) for request in requests]
        return [Generation([20 + at], "stop") for at in range(len(requests))]


def run(study: Study, output, engine, batch=3, **continuations):
    settings = study.settings("continuation", "high")
    settings["continuations"] = {**settings["continuations"], **continuations}
    shards = study.shard("raw/traces", "high"), study.shard("cuts", "high")
    stored = StoredEngine(output, settings["replay"]["traces"]["model"], lambda *_: engine)
    continuation.run(study.items, *shards, output, "unit", settings, batch, stored)
    return tables.read(output, tables.RawContinuations, settings)


def test_requests_are_stored_ids_within_the_budget_of_the_run(study: Study, tokenizer, tmp_path):
    engine = Recorder()
    frame = run(study, tmp_path / "a.parquet", engine)
    suffix = tables.read_metadata(tmp_path / "a.parquet")["suffix_ids"]
    traces = tables.read(study.shard("raw/traces", "high"), tables.RawTraces)
    rows = {row["trace_id"]: row for row in traces.iter_rows(named=True)}
    asked = {tuple(request.prompt_ids): (request, sampling) for request, sampling in engine.asked}
    assert len(asked) == len(engine.asked), "the same request was sent twice"
    assert set(frame["mode"]) == {"answer", "resume"}
    for row in frame.filter(pl.col("context") == "policy").iter_rows(named=True):
        trace = rows[row["trace_id"]]
        kept = [*trace["prompt_ids"], *trace["output_ids"][: trace["reasoning_start"] + row["n_tokens"]]]
        if row["mode"] == "answer":
            request, sampling = asked[(*kept, *suffix)]
            assert (request.max_tokens, sampling) == (8, GREEDY)
            assert row["text"] == "Answer:" + tokenizer.decode(row["output_ids"], skip_special_tokens=True)
        elif trace["reasoning_start"] + row["n_tokens"] == 64:
            assert tuple(kept) not in asked, "nothing was left to say"
        else:
            request, sampling = asked[tuple(kept)]
            assert sampling.temperature == 1.0
            assert request.max_tokens == 64 - trace["reasoning_start"] - row["n_tokens"] > 0
            assert request.seed == continuation_seed(5, trace["item_id"], 0, ("resume", row["cut_id"]))
            assert row["text"] == "", "one token cannot close the reasoning and answer"
    common = frame.filter(pl.col("context") == "common")
    assert set(common["context_arm"]) == {"medium"}
    assert set(common["cut"]) == {"matched", "horizon"}
    for row in common.filter(pl.col("cut") == "horizon").iter_rows(named=True):
        reasoning = rows[row["trace_id"]]["output_ids"][: rows[row["trace_id"]]["reasoning_start"] + row["n_tokens"]]
        assert sum(list(ids[-len(reasoning) - len(suffix) :]) == [*reasoning, *suffix] for ids in asked) >= 2, "the same prefix behind two prompts"


def test_a_truncated_run_resumed_at_its_end_has_nothing_left_to_say(study: Study):
    traces = tables.read(study.shard("raw/traces", "high"), tables.RawTraces)
    continued = tables.read(study.shard("raw/continuations", "high"), tables.RawContinuations)
    joined = continued.filter(pl.col("mode") == "resume", pl.col("fraction") == 1).join(traces.filter(pl.col("status") == "truncated"), on="trace_id")
    assert len(joined), "no truncated run: the test tests nothing"
    assert joined["output_ids"].list.len().to_list() == [0] * len(joined)


def test_the_stage_does_not_depend_on_batches(study: Study, tokenizer, tmp_path):
    whole = run(study, tmp_path / "a.parquet", walker(tokenizer), batch=100)
    assert run(study, tmp_path / "b.parquet", walker(tokenizer), batch=1).equals(whole)


@pytest.mark.parametrize("modes", [["natural"], ["resume"], []])
def test_batches_without_anything_to_continue_are_no_error(study: Study, tmp_path, modes):
    engine = Recorder()
    frame = run(study, tmp_path / "a.parquet", engine, modes=modes)
    assert set(frame["mode"]) == set(modes) - {"natural"}
    assert bool(engine.asked) == ("resume" in modes)


def test_no_model_is_loaded_for_nothing(study: Study, tmp_path):
    assert run(study, tmp_path / "a.parquet", None, modes=["natural"]).is_empty()


def test_a_resumed_run_is_read_after_its_own_closing_marker(study: Study, tokenizer, tmp_path):
    frame = run(study, tmp_path / "a.parquet", walker(tokenizer), modes=["resume"])
    finished = frame.filter(pl.col("text") != "")
    assert len(finished), "no resumed run finished: the test tests nothing"
    for row in finished.iter_rows(named=True):
        assert row["text"] == tokenizer.decode(row["output_ids"]).split("</think>")[1].removesuffix("<|im_end|>")
