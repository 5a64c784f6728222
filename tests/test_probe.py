"""The forced-answer probe: spellings, readouts by hand, ties, and the stage on a fake engine."""

import math
from collections import Counter

import numpy as np
import polars as pl
import pytest
from helpers.builders import MODEL, Study, walker
from hypothesis import given
from hypothesis import strategies as st

from midtrace import probe, tables, vocabulary
from midtrace.engines import ScoreRequest
from midtrace.errors import InputError
from midtrace.probe import read, spellings

ONE_EACH = {label: [at] for at, label in enumerate("ABCDEFGHIJ")}


def logs(*probabilities: float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.array(probabilities))


def test_read_by_hand():
    found = read(logs(0.4, 0.1, 0.2, 0.1), ONE_EACH, list("ABC"), "C")
    assert found.option_logprob == pytest.approx([math.log(0.4), math.log(0.1), math.log(0.2)])
    assert found.candidate_mass == pytest.approx(0.7)
    assert found.q == pytest.approx([4 / 7, 1 / 7, 2 / 7])
    assert (found.choice, found.correct, found.tie, found.low_mass) == ("A", False, False, False)
    assert found.q_gold == pytest.approx(2 / 7)
    assert found.brier == pytest.approx((16 + 1 + 25) / 49)
    assert found.log_loss == pytest.approx(-math.log(2 / 7))
    assert found.gold_log_odds == pytest.approx(math.log(2 / 5))


def test_several_spellings_are_summed():
    found = read(logs(0.3, 0.2, 0.2, 0.05), {"A": [0], "B": [1, 2, 3]}, ["A", "B"], "B")
    assert found.option_logprob == pytest.approx([math.log(0.3), math.log(0.45)])
    assert (found.choice, found.correct) == ("B", True)
    assert found.q_gold == pytest.approx(0.6)


def test_options_that_the_item_lacks_are_never_chosen():
    found = read(logs(0.01, 0.02, 0.9, 0.07), ONE_EACH, ["A", "B"], "A")
    assert found.choice == "B"
    assert found.candidate_mass == pytest.approx(0.03)
    assert len(found.q) == 2


def test_low_mass():
    assert read(logs(0.1, 0.2), ONE_EACH, ["A", "B"], "A", low_mass=0.31).low_mass
    assert not read(logs(0.1, 0.2), ONE_EACH, ["A", "B"], "A", low_mass=0.29).low_mass


def test_infinite_scores_are_kept():
    none = read(logs(0.0, 0.5), ONE_EACH, ["A", "B"], "A")
    assert (none.q_gold, none.log_loss, none.gold_log_odds, none.brier, none.option_logprob[0]) == (0.0, math.inf, -math.inf, 2.0, -math.inf)
    every = read(logs(0.5, 0.0), ONE_EACH, ["A", "B"], "A")
    assert (every.q_gold, every.log_loss, every.gold_log_odds, every.brier) == (1.0, 0.0, math.inf, 0.0)


def test_log_odds_are_exact_where_q_rounds_to_one():
    found = read(np.array([-1e-30, -80.0]), ONE_EACH, ["A", "B"], "A")
    assert found.q_gold == 1.0
    assert found.gold_log_odds == pytest.approx(80.0)


def test_the_last_bits_of_a_batch_do_not_show():
    """Two runs of a float64 model, with other company in the batch."""
    logprobs = logs(0.2, 0.35, 0.15, 0.1)
    nudged = [np.nextafter(value, side) for value, side in zip(logprobs, (0, -9, 0, -9), strict=True)]
    found = read(np.array(nudged), ONE_EACH, list("ABCD"), "C")
    assert found == read(np.array(logprobs), ONE_EACH, list("ABCD"), "C")
    assert found.option_logprob == np.float32(found.option_logprob).tolist(), "what the table keeps says all"


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_what_cannot_be_read_is_an_error():
    with pytest.raises(ValueError, match=r"gold 'C' is none of the labels \['A', 'B'\]"):
        read(logs(0.5, 0.5, 0.1), ONE_EACH, ["A", "B"], "C")
    with pytest.raises(ValueError, match="no option has a finite log-probability"):
        read(logs(0.0, 0.0), ONE_EACH, ["A", "B"], "A")
    with pytest.raises(ValueError, match="no option has a finite log-probability"):
        read(np.array([math.nan, -1.0]), ONE_EACH, ["A", "B"], "A")


@given(st.lists(st.floats(-40, 0), min_size=2, max_size=10), st.data())
def test_read_is_coherent(values, data):
    labels = list("ABCDEFGHIJ")[: len(values)]
    total = np.logaddexp.reduce(values)
    scores = np.array(values) - max(total, 0)
    gold = data.draw(st.sampled_from(labels))
    found = read(scores, ONE_EACH, labels, gold)
    assert sum(found.q) == pytest.approx(1)
    assert found.q[labels.index(found.choice)] == max(found.q)
    assert 0 <= found.brier <= 2
    assert found.log_loss == pytest.approx(-math.log(found.q_gold))
    assert found.correct == (found.choice == gold)
    order = data.draw(st.permutations(range(len(labels))))
    moved = read(scores[order], ONE_EACH, labels, labels[order.index(labels.index(gold))])
    for name in ("candidate_mass", "q_gold", "brier", "log_loss", "gold_log_odds"):
        assert getattr(moved, name) == pytest.approx(getattr(found, name)), f"{name} depends on the order of the options"
    as_mapping = read(dict(enumerate(scores.tolist())), ONE_EACH, labels, gold)
    assert as_mapping == found


def test_ties_favour_no_letter_and_are_stable():
    from scipy.stats import chisquare

    chosen = [read(logs(0.2, 0.2, 0.2, 0.1), ONE_EACH, list("ABCD"), "A", key=f"cut {k}") for k in range(1500)]
    assert all(found.tie for found in chosen)
    counts = Counter(found.choice for found in chosen)
    assert set(counts) == set("ABC")
    assert chisquare(list(counts.values())).pvalue > 1e-3
    assert [read(logs(0.2, 0.2, 0.2, 0.1), ONE_EACH, list("ABCD"), "A", key=f"cut {k}").choice for k in range(50)] == [f.choice for f in chosen[:50]]


def test_spellings_of_the_embedded_vocabulary(tokenizer):
    found = spellings(tokenizer, list("ABCDEFGHIJ"))
    for label, ids in found.items():
        texts = [tokenizer.decode([i]) for i in ids]
        assert {text.strip() for text in texts} == {label}
        assert {label, f" {label}"} <= set(texts)
    assert len({i for ids in found.values() for i in ids}) == sum(map(len, found.values()))


def test_spellings_of_real_vocabularies(real_tokenizer):
    labels = list("ABCDEFGHIJ")
    plain, extended = spellings(real_tokenizer, labels), spellings(real_tokenizer, labels, extended=True)
    for label in labels:
        for text in (label, f" {label}"):
            (token,) = real_tokenizer.encode(text, add_special_tokens=False)
            assert token in plain[label]
        assert {real_tokenizer.decode([i]).strip() for i in plain[label]} == {label}
        assert set(plain[label]) < set(extended[label])
        assert {real_tokenizer.decode([i]).strip().strip(probe.QUOTING) for i in extended[label]} == {label}
    for found in (plain, extended):
        assert len({i for ids in found.values() for i in ids}) == sum(map(len, found.values())), "an id serves two labels"
    (quoted,) = real_tokenizer.encode("(A", add_special_tokens=False)
    assert quoted in extended["A"]
    assert quoted not in plain["A"]


def test_a_label_without_a_token_is_an_error(tokenizer):
    with pytest.raises(InputError, match="label 'ZZZ': has no one-token spelling"):
        spellings(tokenizer, ["A", "ZZZ"])


def test_contexts():
    commons = {"high": "medium", "early": "low"}
    at = {"cut": "horizon", "horizon": 8}
    assert probe.contexts_of(at, "low", commons) == [("policy", "low"), ("common", "low"), ("common", "medium")]
    assert probe.contexts_of(at, "low", commons, own_only={8}) == [("policy", "low")], "a later look at a run is under its own prompt"
    assert probe.contexts_of({"cut": "matched", "partner_arm": "high"}, "low", commons) == [("policy", "low"), ("common", "medium")]
    everywhere = [("policy", "low"), ("common", "low"), ("common", "medium")]
    assert probe.contexts_of({"cut": "fraction", "complete": False}, "low", commons) == [("policy", "low")]
    assert probe.contexts_of({"cut": "fraction", "complete": True}, "low", commons) == everywhere, "a whole block, whichever rule reaches it"


class Recorder:
    """Keeps what an engine was asked to score."""

    def __init__(self, engine):
        self.engine, self.facts, self.requests = engine, engine.facts, []

    def score(self, requests, candidates):
        self.requests += requests
        return self.engine.score(requests, candidates)


def run(study: Study, output, engine, batch=3, **changes):
    arm = "low"
    settings = {**study.settings("probe", arm), **changes}
    probe.run(study.items, study.shard("raw/traces", arm), study.shard("cuts", arm), output, "unit", settings, batch, engine)
    return tables.read(output, tables.Readouts, settings)


def test_the_stage_reads_stored_ids_under_the_right_prompt(study: Study, tokenizer, tmp_path):
    engine = Recorder(walker(tokenizer))
    run(study, tmp_path / "a.parquet", engine)
    low = {tuple(row["prompt_ids"]): row for row in tables.read(study.shard("raw/traces", "low"), tables.RawTraces).iter_rows(named=True)}
    suffix = tokenizer.encode("\n</think>\n\n", add_special_tokens=False) + tokenizer.encode("Answer:", add_special_tokens=False)
    own = common = 0
    for request in engine.requests:
        assert list(request.suffix) == suffix
        text = tokenizer.decode(request.trunk)
        effort = "low" if "Reasoning: low" in text else "medium"
        assert f"Reasoning: {effort}" in text
        output = request.trunk[text_end(request, tokenizer) :]
        (trace,) = [row for prompt, row in low.items() if question(text) == question(tokenizer.decode(prompt))]
        assert trace["output_ids"][: len(output)] == output
        own, common = own + (effort == "low"), common + (effort == "medium")
        # Cuts count reasoning tokens after the opening marker, which the output holds.
        base = text_end(request, tokenizer) + 1
        assert [n - base for n in request.cuts] == sorted({n - base for n in request.cuts})
        assert 0 <= min(request.cuts) - base <= max(request.cuts) - base <= trace["n_reasoning"]
    assert (own, common) == (8, 8)


def text_end(request: ScoreRequest, tokenizer) -> int:
    """Where the prompt ends in a trunk."""
    turn = tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)
    return next(at + len(turn) for at in range(len(request.trunk)) if list(request.trunk[at : at + len(turn)]) == turn)


def question(text: str) -> str:
    return text.split("user\n")[1].split("<|im_end|>")[0]


def test_prefixes_that_exceed_the_context_are_refused_before_a_model_is_loaded(study: Study, tokenizer, tmp_path, monkeypatch):
    settings = study.settings("probe", "low")
    inputs = probe.Inputs.read(study.items, study.shard("raw/traces", "low"), study.shard("cuts", "low"), settings)
    longest = max(len(inputs.trunk(name, arm, lengths[-1])[1]) for name in inputs.cuts for arm, lengths in inputs.lengths(name).items())
    needed = longest + len(inputs.suffix) + 1  # the token that is read
    monkeypatch.setattr(vocabulary, "context_length", lambda model: needed)
    assert len(run(study, tmp_path / "fits.parquet", walker(tokenizer)))
    monkeypatch.setattr(vocabulary, "context_length", lambda model: needed - 1)
    with pytest.raises(InputError, match=rf"models\.embedded\.context: {needed} tokens exceed the context; allowed: at most {needed - 1} tokens"):
        run(study, tmp_path / "not.parquet", None)


def test_a_context_beyond_the_models_own_is_refused():
    model = {"name": "m", "source": str(MODEL)}
    assert [vocabulary.context_length({**model, "context": n}) for n in (None, 2048, 300)] == [2048, 2048, 300]
    with pytest.raises(InputError, match=r"models\.m\.context: is 2049; allowed: at most 2048, the model's own"):
        vocabulary.context_length({**model, "context": 2049})


def test_the_stage_does_not_depend_on_batches(study: Study, tokenizer, tmp_path):
    frames = [run(study, tmp_path / f"{batch}.parquet", walker(tokenizer), batch) for batch in (1, 3, 100)]
    assert frames[0].equals(frames[1])
    assert frames[0].equals(frames[2])


def test_the_stage_equals_separate_reads(study: Study, tokenizer, tmp_path):
    engine = walker(tokenizer)
    frame = run(study, tmp_path / "a.parquet", engine).filter(pl.col("context") == "policy")
    traces = tables.read(study.shard("raw/traces", "low"), tables.RawTraces)
    answers = dict(tables.read(study.items, tables.Items).select("item_id", "answer").iter_rows())
    spelled = spellings(tokenizer, list("ABCDEFGHIJ"))
    suffix = tables.read_metadata(tmp_path / "a.parquet")["suffix_ids"]
    for row in frame.join(traces.select("trace_id", "item_id", "prompt_ids", "output_ids", "reasoning_start"), on="trace_id").iter_rows(named=True):
        ids = [*row["prompt_ids"], *row["output_ids"][: row["reasoning_start"] + row["n_tokens"]], *suffix]
        (scores,) = engine.score([ScoreRequest(ids, [len(ids)], [])], range(len(tokenizer)))
        labels = list("ABCDEFGHIJ")[: len(row["option_logprob"])]
        alone = read(scores[0], spelled, labels, answers[row["item_id"]], key=f"{row['trace_id']} {row['cut_id']}")
        assert row["option_logprob"] == pytest.approx(alone.option_logprob, abs=1e-5)
        assert (row["choice"], row["correct"]) == (alone.choice, alone.correct)


def test_extended_spellings_hold_at_least_the_mass(study: Study, tokenizer, tmp_path, monkeypatch):
    asked: list[bool] = []
    monkeypatch.setattr(probe, "spellings", lambda *given: asked.append(given[2]) or spellings(*given))
    plain = run(study, tmp_path / "a.parquet", walker(tokenizer, broken=1))
    extended = run(study, tmp_path / "b.parquet", walker(tokenizer, broken=1), readouts={"spellings": "extended", "low_mass": 0.5})
    assert (extended["candidate_mass"] >= plain["candidate_mass"]).all()
    assert asked == sorted(asked) and set(asked) == {False, True}, "this small vocabulary has no quoted labels, so the mass alone would not show it"


def test_another_vocabulary_is_refused(study: Study, tokenizer, tmp_path):
    path = tmp_path / "traces.parquet"
    meta = {**tables.read_metadata(study.shard("raw/traces", "low")), "tokenizer": "0000"}
    tables.write(tables.read(study.shard("raw/traces", "low"), tables.RawTraces), path, tables.RawTraces, meta)
    with pytest.raises(InputError, match="tokenizer: the traces were made with vocabulary 0000"):
        probe.Inputs.read(study.items, path, study.shard("cuts", "low"), study.settings("probe", "low"))


def test_a_stored_prompt_that_the_config_does_not_render_is_refused(study: Study, tmp_path):
    path = tmp_path / "traces.parquet"
    frame = tables.read(study.shard("raw/traces", "low"), tables.RawTraces)
    frame = frame.with_columns(pl.col("prompt_ids").list.head(5))
    tables.write(frame, path, tables.RawTraces, tables.read_metadata(study.shard("raw/traces", "low")))
    with pytest.raises(InputError, match="prompt_ids: differ from the prompt that the config renders"):
        probe.Inputs.read(study.items, path, study.shard("cuts", "low"), study.settings("probe", "low"))


class _Pieces:
    """A vocabulary of given texts."""

    all_special_ids = (7,)
    texts = ("A", " A", "(A", "**A", "AB", "B", "B)", "B.")

    def get_vocab(self):
        return {text: i for i, text in enumerate(self.texts)}

    def batch_decode(self, ids):
        return [self.texts[i] for (i,) in ids]


def test_spellings_of_a_small_vocabulary():
    assert probe.spellings(_Pieces(), ["A", "B"]) == {"A": [0, 1], "B": [5]}
    assert probe.spellings(_Pieces(), ["A", "B"], extended=True) == {"A": [0, 1, 2, 3], "B": [5, 6]}, "a special token spells no label"


def test_a_mass_at_the_threshold_is_not_low():
    certain = {0: 0.0, 1: -math.inf}  # the mass is exactly 1
    flags = [read(certain, {"A": [0], "B": [1]}, ["A", "B"], "A", low_mass=limit).low_mass for limit in (1.0, 1.5)]
    assert flags == [False, True]
