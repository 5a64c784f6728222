"""Engines: the fake one, sampling against an oracle, and the Transformers engine on the embedded model."""

import os
import sys

import numpy as np
import pytest
from helpers.builders import MODEL, PROMPT
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from midtrace import engines, prompts
from midtrace.dialects import EMBEDDED, stop_ids
from midtrace.engines import GREEDY, GenerateRequest, Sampling, ScoreRequest
from midtrace.engines.fake import FakeEngine
from midtrace.errors import InputError
from midtrace.loaders.generated import chain_items

# Transformers 5 renames an argument that the older releases of our range need.
pytestmark = pytest.mark.filterwarnings("ignore:.*past_key_values.*:FutureWarning")
torch = pytest.importorskip("torch")
FREE = Sampling(temperature=1.0)


def pick(logits, uniform, sampling):
    """Tokens picked for one row of logits and many uniform numbers."""
    from midtrace.engines import sampling as module

    rows = torch.tensor(np.repeat(np.asarray(logits, float)[None], len(uniform), 0))
    return module.pick(rows, torch.tensor(np.asarray(uniform, float)), sampling).tolist()


def oracle(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    """Probabilities after temperature, min-p, top-k, top-p, renormalised; written as slowly as it can be."""
    probabilities = np.exp(logits / sampling.temperature - np.max(logits / sampling.temperature))
    probabilities /= probabilities.sum()
    probabilities[probabilities < sampling.min_p * probabilities.max()] = 0
    if 0 < sampling.top_k < len(logits):
        probabilities[probabilities < np.sort(probabilities)[-sampling.top_k]] = 0
    probabilities /= probabilities.sum()
    kept, total = np.zeros(len(logits), bool), 0.0
    for token in np.argsort(-probabilities, kind="stable"):
        if total < sampling.top_p:
            kept[token] = True
        total += probabilities[token]
    probabilities[~kept] = 0
    return probabilities / probabilities.sum()


# Values on a grid: differences are far from rounding, and ties occur.
LOGITS = arrays(float, st.integers(2, 9), elements=st.integers(-8, 8).map(lambda k: k / 2))


@given(LOGITS, st.floats(0.3, 2), st.sampled_from([1.0, 0.9, 0.7, 0.31]), st.integers(0, 10), st.sampled_from([0.0, 0.1, 0.4, 1.0]))
def test_filters_are_those_of_the_oracle(logits, temperature, top_p, top_k, min_p):
    from midtrace.engines.sampling import filtered

    sampling = Sampling(temperature, top_p, top_k, min_p)
    found = filtered(torch.tensor(logits)[None] / temperature, sampling)[0].numpy()
    np.testing.assert_allclose(found / found.sum(), oracle(logits, sampling), atol=1e-12)


@given(LOGITS, st.floats(0, 1, exclude_max=True))
def test_inverse_cdf_picks_the_smallest_id_beyond_the_number(logits, uniform):
    probabilities = oracle(logits, FREE)
    token = pick(logits, [uniform], FREE)[0]
    assert probabilities[:token].sum() <= uniform + 1e-12
    assert probabilities[: token + 1].sum() >= uniform - 1e-12


def test_the_ends_of_the_unit_interval_pick_tokens_that_are_left():
    sampling = Sampling(temperature=1.0, top_k=2)
    logits = [-3.0, 2.0, 0.0, 1.0, -5.0]
    assert pick(logits, [0.0, np.nextafter(1.0, 0.0)], sampling) == [1, 3]


def test_inverse_cdf_follows_the_distribution():
    from scipy.stats import chisquare

    logits = np.array([0.3, -1.0, 2.0, 0.0, 1.0])
    sampling = Sampling(temperature=0.8, top_k=4)
    uniform = np.random.default_rng(1).random(20_000)
    counts = np.bincount(pick(logits, uniform, sampling), minlength=5)
    expected = oracle(logits, sampling) * len(uniform)
    assert counts[1] == expected[1] == 0
    assert chisquare(np.delete(counts, 1), np.delete(expected, 1)).pvalue > 1e-3


def test_temperature_zero_is_greedy():
    assert pick([0.0, 3.0, 1.0], [0.999, 0.0], GREEDY) == [1, 1]


def test_a_longer_stream_begins_with_the_shorter_one():
    from midtrace.engines.sampling import uniforms

    assert (uniforms(2**63 - 1, 50)[:7] == uniforms(2**63 - 1, 7)).all()
    assert (uniforms(4, 7) != uniforms(5, 7)).all()


# The fake engine


def test_fake_engine_is_a_distribution_and_repeats_itself():
    fake = FakeEngine(vocabulary=16)
    (scores,) = fake.score([ScoreRequest([1, 2, 3], [0, 2, 3], [9])], range(16))
    assert scores.shape == (3, 16)
    np.testing.assert_allclose(np.exp(scores).sum(-1), 1)
    request = GenerateRequest([1, 2], 12, seed=8)
    assert fake.generate([request], FREE, [0]) == FakeEngine(16).generate([GenerateRequest([5], 3), request], FREE, [0])[1:]


def test_unknown_engine():
    with pytest.raises(InputError, match=r"models\.\*\.engine: 'llama' is unknown; allowed: transformers"):
        engines.load({"engine": "llama"})


def test_vllm_that_is_not_there_is_one_clear_error(monkeypatch):
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(
        InputError, match=r"models\.\*\.engine: 'vllm' cannot be imported .*; allowed: an environment with it \(docs/engines.md, Install\)"
    ):
        engines.load({"engine": "vllm", "source": str(MODEL), "dtype": "float32"})


# The Transformers engine


@pytest.fixture(scope="module")
def stops(tokenizer):
    return stop_ids(tokenizer, EMBEDDED)


@pytest.fixture(scope="module")
def requests(tokenizer):
    """Six prompts of different lengths, with limits that end some rows long before others."""
    items = chain_items({"name": "c", "loader": "chains", "answer_kind": "choice", "n": 6}, 11)
    limits = (24, 40, 7, 40, 1, 33)
    return [
        GenerateRequest(prompts.render(row, {"effort": effort}, PROMPT, EMBEDDED, tokenizer), limit, seed=row_index * 977)
        for row_index, (row, effort, limit) in enumerate(zip(items, ["low", "high"] * 3, limits, strict=True))
    ]


# Hot, because the model is nearly sure of most tokens: at 1, wrong random numbers would seldom show.
@pytest.mark.parametrize("sampling", [Sampling(4.0), GREEDY, Sampling(2.5, 0.98, 60, 0.001)], ids=["free", "greedy", "filtered"])
def test_a_request_gives_the_same_tokens_in_any_batch(engine, requests, stops, sampling):
    alone = [engine.generate([request], sampling, stops)[0] for request in requests]
    assert len({tuple(generation.ids) for generation in alone}) == 6
    assert engine.generate(requests, sampling, stops) == alone
    assert engine.generate(requests[::-1], sampling, stops) == alone[::-1]
    order = [3, 0, 5]
    assert engine.generate([requests[k] for k in order], sampling, stops) == [alone[k] for k in order]


def test_sampling_depends_on_the_seed_and_greedy_does_not(engine, requests, stops):
    def with_seed(seed, sampling):
        return engine.generate([GenerateRequest(requests[1].prompt_ids, 30, seed)], sampling, stops)[0].ids

    hot = Sampling(temperature=3.0)
    assert with_seed(1, hot) == with_seed(1, hot) != with_seed(2, hot)
    assert with_seed(1, GREEDY) == with_seed(2, GREEDY)


def test_generation_is_what_a_plain_loop_gives(engine, requests, stops):
    from midtrace.engines.sampling import uniforms

    request = requests[0]
    ids, stream = list(request.prompt_ids), uniforms(request.seed, request.max_tokens)
    with torch.inference_mode():
        for uniform in stream:
            probabilities = engine.model(torch.tensor([ids])).logits[0, -1].softmax(-1)
            ids.append(int((probabilities.cumsum(-1) > uniform).int().argmax()))
            if ids[-1] in stops:
                break
    assert engine.generate([request], FREE, stops)[0].ids == ids[len(request.prompt_ids) :]


def test_stop_and_length(engine, requests, stops):
    free = engine.generate([requests[1]], FREE, [])[0]
    assert (len(free.ids), free.finish_reason) == (40, "length")
    # Whatever token comes sixth: if it stops, the output ends with its first occurrence, and holds it.
    stopping = free.ids[5]
    stopped = engine.generate([requests[1]], FREE, [stopping])[0]
    assert stopped.ids == free.ids[: free.ids.index(stopping) + 1]
    assert stopped.finish_reason == "stop"
    at_the_cap = engine.generate([GenerateRequest(requests[1].prompt_ids, 1, requests[1].seed)], FREE, [free.ids[0]])[0]
    assert (at_the_cap.ids, at_the_cap.finish_reason) == (free.ids[:1], "stop")


def test_no_request_and_no_token_to_spend(engine, requests, stops):
    assert engine.generate([], FREE, stops) == []
    nothing, silence = GenerateRequest(requests[0].prompt_ids, 0), engines.Generation([], "length")
    assert engine.generate([nothing], FREE, stops) == [silence]
    alone = engine.generate([requests[1]], FREE, stops)
    assert engine.generate([nothing, requests[1], nothing], FREE, stops) == [silence, *alone, silence]
    assert FakeEngine().generate([nothing], FREE, []) == [silence]


def separate(engine, request: ScoreRequest) -> np.ndarray:
    """Log-probabilities of the whole vocabulary, every prefix in a forward of its own."""
    rows = []
    with torch.inference_mode():
        for prefix in request.prefixes():
            logits = engine.model(torch.tensor([prefix])).logits[0, -1]
            rows.append((logits if logits.dtype == torch.float64 else logits.float()).log_softmax(-1).numpy())
    return np.stack(rows)


@pytest.fixture(scope="module")
def scored(requests, tokenizer):
    """A trunk of a prompt and 40 more ids, cut before any reasoning, twice at one place, out of order, and at its end."""
    trunk = [*requests[0].prompt_ids, *np.random.default_rng(0).integers(3, 500, 40).tolist()]
    base = len(requests[0].prompt_ids)
    cuts = [base, base + 7, base + 7, base + 1, base + 33, base + 20, len(trunk)]
    return ScoreRequest(trunk, cuts, prompts.closing_ids(EMBEDDED, "Answer:", tokenizer))


@pytest.mark.parametrize(("tokens", "pairs"), [(4096, 2**24), (5, 2**24), (1, 1), (17, 400)])
def test_branched_scores_equal_separate_forwards(engine, scored, monkeypatch, tokens, pairs):
    from midtrace.engines import scoring

    monkeypatch.setattr(scoring, "TOKENS", tokens)
    monkeypatch.setattr(scoring, "PAIRS", pairs)
    (found,) = engine.score([scored], range(engine.model.config.vocab_size))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, separate(engine, scored), atol=1e-10, rtol=0)
    np.testing.assert_allclose(np.exp(found).sum(-1), 1, atol=1e-12)


def test_branched_scores_in_float32(scored):
    small = engines.load({"engine": "transformers", "source": str(MODEL), "dtype": "float32"}, threads=1)
    (found,) = small.score([scored], range(small.model.config.vocab_size))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, separate(small, scored), atol=1e-4, rtol=0)


def test_scores_come_in_the_order_of_candidates_and_requests(engine, scored, requests):
    other = ScoreRequest(requests[2].prompt_ids, [len(requests[2].prompt_ids)], scored.suffix)
    first, second = engine.score([scored, other], [9, 4, 300])
    np.testing.assert_allclose(first, separate(engine, scored)[:, [9, 4, 300]], atol=1e-10)
    np.testing.assert_allclose(second, separate(engine, other)[:, [9, 4, 300]], atol=1e-10)


def test_a_suffix_of_one_token_and_a_trunk_of_one(engine):
    request = ScoreRequest([5], [1, 0], [7])
    (found,) = engine.score([request], range(20))
    np.testing.assert_allclose(found, separate(engine, request)[:, :20], atol=1e-10)


def test_prefixes_of_a_score_request():
    assert ScoreRequest([1, 2, 3], [0, 2], [9, 8]).prefixes() == [[9, 8], [1, 2, 9, 8]]


def test_facts_say_what_ran(engine):
    assert engine.facts["engine"] == "transformers"
    assert engine.facts["dtype"] == "float64"
    assert set(engine.facts) == {"engine", "engine_version", "dtype", "device"}
