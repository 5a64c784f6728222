"""Controls: scripted prefixes by hand, constructed ones as permutations, and the stage."""

from collections import Counter

import polars as pl
import pytest
from helpers.builders import Study, item, walker

from midtrace import controls, dialects, tables
from midtrace.config import controls_settings
from midtrace.dialects import EMBEDDED

SETTINGS = {"items": 3, "filler": " Let me think about this.", "statement": " So the result is {text}.", "horizons": [16, 48]}


def scripted(tokenizer, row=None, **changes) -> dict:
    found = controls.scripted(row or item(), {**SETTINGS, **changes}, 1, tokenizer)
    return {(control, place): (stated, ids) for control, place, stated, ids in found}


def test_scripted_policies_have_their_lengths_and_say_what_they_say(tokenizer):
    found = scripted(tokenizer)
    texts = {key: tokenizer.decode(ids) for key, (_, ids) in found.items()}
    policies = ("scripted_short", "scripted_long", "scripted_wrong")
    lengths = {"early": 16, "late": 48}
    assert {key: len(ids) for key, (_, ids) in found.items()} == {(policy, place): n for policy in policies for place, n in lengths.items()}
    statement = " So the result is 3."
    assert texts["scripted_short", "early"].startswith(f"\n{statement}")
    assert texts["scripted_short", "late"].startswith(texts["scripted_short", "early"])
    assert "result" not in texts["scripted_long", "early"]
    assert texts["scripted_long", "late"].endswith(statement)
    assert found["scripted_long", "early"][0] is None
    assert found["scripted_long", "late"][0] == "D"
    assert found["scripted_short", "early"][0] == "D"


def test_the_wrong_label_is_an_option_of_the_item_but_not_the_answer(tokenizer):
    stated = Counter()
    for k in range(60):
        row = item(f"toy/{k}")
        label, ids = scripted(tokenizer, row)["scripted_wrong", "early"]
        stated[label] += 1
        assert f" So the result is {row['options']['ABCD'.index(label)]}." in tokenizer.decode(ids)
    assert set(stated) == set("ABC"), "the answer is D"


def test_statements_may_name_the_label_and_options_may_hold_anything(tokenizer):
    row = item(options=["{label}", "</think>", "2", "{text}<|im_end|>"])
    found = scripted(tokenizer, row, statement=" Answer {label}: {text}.", horizons=[60, 90])
    assert " Answer D: {text}<|im_end|>." in tokenizer.decode(found["scripted_short", "early"][1])
    for _, ids in found.values():
        assert not set(ids) & set(tokenizer.added_tokens_decoder), "an option's text became a control token"


def test_constructed_prefixes(tokenizer):
    own = {"item_id": "toy/1", "output_ids": [512, *range(20, 40), 513, 9], "reasoning_start": 1, "n_reasoning": 20}
    other = {"item_id": "toy/2", "output_ids": [512, 7, 8, 513], "reasoning_start": 1, "n_reasoning": 2}
    ordinary = [50, 51, 52]
    found = {control: (stated, ids) for control, _, stated, ids in controls.constructed(own, other, ordinary, 1)}
    assert {stated for stated, _ in found.values()} == {None}
    assert found["prefix_own"][1] == list(range(20, 40))
    assert found["prefix_other_item"][1] == [7, 8]
    shuffled = found["prefix_shuffled"][1]
    assert sorted(shuffled) == list(range(20, 40)) != shuffled
    assert len(found["prefix_junk"][1]) == 20
    assert set(found["prefix_junk"][1]) <= set(ordinary)
    assert found == {control: (stated, ids) for control, _, stated, ids in controls.constructed(own, other, ordinary, 1)}


def test_the_other_item_has_as_many_options():
    chosen = [item("a", options=["0", "1"]), item("b"), item("c"), item("d", options=["0", "1"])]
    runs = {entry["item_id"]: entry for entry in chosen}
    assert [controls._other(chosen, k, runs)["item_id"] for k in range(4)] == ["d", "c", "b", "a"]
    assert controls._other([item("a", options=["0", "1"]), item("b")], 0, runs)["item_id"] == "b"
    assert controls._other([item("a")], 0, runs) is None


def test_no_prefix_control_without_reasoning_or_without_another_item():
    run = {"item_id": "a", "output_ids": [1, 5, 6, 2], "reasoning_start": 1, "n_reasoning": 2}
    assert [control for control, *_ in controls.constructed(run, None, [7, 8], 0)] == ["prefix_own", "prefix_junk", "prefix_shuffled"]
    assert not list(controls.constructed({**run, "n_reasoning": 0}, run, [7, 8], 0))


class Recorder:
    def __init__(self, engine):
        self.engine, self.facts, self.trunks = engine, engine.facts, []

    def score(self, requests, candidates):
        self.trunks += [list(request.trunk) for request in requests]
        return self.engine.score(requests, candidates)


@pytest.fixture(scope="module")
def read(study: Study, tokenizer, tmp_path_factory):
    """The controls of the study on a fake engine: the table and the trunks that were scored."""
    output = tmp_path_factory.mktemp("controls") / "chains.parquet"
    engine = Recorder(walker(tokenizer))
    settings = controls_settings(study.config, "embedded", "chains")
    controls.run(study.items, study.shard("raw/traces", "high"), output, "unit", settings, engine=engine)
    return tables.read(output, tables.Controls, settings), engine.trunks


def test_every_control_of_every_chosen_item(read):
    frame, trunks = read
    assert len(frame) == 3 * (6 + 4) == len(trunks)
    assert frame["item_id"].n_unique() == 3
    assert set(frame.group_by("control", "position").len()["len"]) == {3}
    assert frame.filter(pl.col("control").str.starts_with("prefix"))["follows"].null_count() == 12
    follows = frame.filter(pl.col("stated").is_not_null())
    assert (follows["follows"] == (follows["choice"] == follows["stated"])).all()


def test_trunks_open_the_reasoning_once_and_hold_no_other_control_token(read, tokenizer):
    _, trunks = read
    opening, closing = (dialects.token_id(tokenizer, text) for text in (EMBEDDED.opening, EMBEDDED.closing_marker))
    starts = dialects.token_id(tokenizer, "<|im_start|>")
    for trunk in trunks:
        assert (trunk.count(opening), trunk.count(closing), trunk.count(starts)) == (1, 0, 3)
        assert "Reasoning: high" in tokenizer.decode(trunk)


def test_the_same_items_whatever_their_order(read, study: Study, tokenizer, tmp_path):
    frame, _ = read
    shuffled = tmp_path / "items.parquet"
    tables.write(tables.read(study.items, tables.Items)[::-1], shuffled, tables.Items, tables.read_metadata(study.items))
    settings = controls_settings(study.config, "embedded", "chains")
    controls.run(shuffled, study.shard("raw/traces", "high"), tmp_path / "chains.parquet", "unit", settings, engine=walker(tokenizer))
    assert tables.read(tmp_path / "chains.parquet", tables.Controls).equals(frame)
