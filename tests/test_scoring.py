"""Reading many closed prefixes: each way against plain forwards, on tiny random models of every kind of attention."""

import logging

import numpy as np
import pytest

from midtrace.engines import GREEDY, GenerateRequest, ScoreRequest
from midtrace.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore:.*past_key_values.*:FutureWarning")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from midtrace.engines import scoring  # noqa: E402

SIZE = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "initializer_range": 0.5,  # far from uniform: what a branch must not see would show
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOW = 7
MODELS = {
    "llama": ("LlamaConfig", {}, "branched"),
    "qwen3": ("Qwen3Config", {"sliding_window": WINDOW}, "branched"),  # use_sliding_window is off
    "qwen3_windows": ("Qwen3Config", {"sliding_window": WINDOW, "use_sliding_window": True, "max_window_layers": 1}, "walked"),
    "mistral": ("MistralConfig", {"sliding_window": None}, "branched"),
    "mistral_windows": ("MistralConfig", {"sliding_window": WINDOW}, "walked"),
    "gpt_oss": ("GptOssConfig", {"sliding_window": WINDOW, "num_local_experts": 4, "num_experts_per_tok": 2}, "walked"),
    "gemma2": ("Gemma2Config", {"sliding_window": WINDOW, "query_pre_attn_scalar": 8}, "walked"),
    "llama4": (
        "Llama4TextConfig",
        {"attention_chunk_size": WINDOW, "intermediate_size_mlp": 48, "num_local_experts": 2, "no_rope_layers": [1, 0]},
        "walked",
    ),
    "qwen3_next": (
        "Qwen3NextConfig",
        {
            "layer_types": ["linear_attention", "full_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
        },
        "separate",
    ),
    "lfm2": ("Lfm2Config", {"layer_types": ["conv", "full_attention"]}, "separate"),
}


def build(folder, kind: str, **settings):
    """An engine on a random model, float32, loaded from a folder like any other."""
    from midtrace.engines.transformers import TransformersEngine

    torch.manual_seed(3)
    config = getattr(transformers, kind)(**{**SIZE, **settings})
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return TransformersEngine(str(folder), "float32", threads=1)


@pytest.fixture(scope="module", params=MODELS)
def random_engine(request, tmp_path_factory):
    """(name, engine) of a random model of each kind."""
    kind, settings, _ = MODELS[request.param]
    return request.param, build(tmp_path_factory.mktemp(request.param), kind, **settings)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return build(tmp_path_factory.mktemp("llama"), "LlamaConfig")


def ids(n: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(3, 97, n).tolist()


def plain(model, request: ScoreRequest) -> np.ndarray:
    """Every prefix in a forward of its own."""
    with torch.inference_mode():
        return np.stack([model(torch.tensor([prefix]), use_cache=False).logits[0, -1].log_softmax(-1).numpy() for prefix in request.prefixes()])


@pytest.fixture(scope="module")
def requests():
    """Two closings and two lengths of one trace, a trace that begins like it, and others of many lengths, one without reasoning."""
    trace = ids(60, 0)
    return [
        ScoreRequest(trace, [9, 31, 60, 31, 0, 1], ids(5, 1)),
        ScoreRequest(ids(23, 2), [23, 2], ids(3, 3)),
        ScoreRequest(trace[:40], [12, 40], ids(2, 4)),
        ScoreRequest(ids(58, 5), [8, 58], ids(5, 6)),
        ScoreRequest([*trace[:30], *ids(20, 7)], [50, 33], ids(1, 8)),
        ScoreRequest([5], [0, 1], ids(4, 9)),
        ScoreRequest(ids(55, 10), [17], []),
    ]


def test_the_way_follows_the_kind_of_attention(random_engine):
    name, engine = random_engine
    assert engine.way.__name__ == MODELS[name][2]


def test_scores_equal_plain_forwards(random_engine, requests):
    _, engine = random_engine
    for request, found in zip(requests, engine.score(requests, range(97)), strict=True):
        expected = plain(engine.model, request)
        assert found.dtype == np.float32
        assert expected.std() > 0.5
        np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0)


def test_generation_equals_a_plain_loop(random_engine):
    """Rows of different lengths that leave the batch at different steps, past the window."""
    _, engine = random_engine
    requests = [GenerateRequest(ids(n, n), limit) for n, limit in ((10, 14), (11, 3), (12, 9))]
    for request, found in zip(requests, engine.generate(requests, GREEDY, []), strict=True):
        sequence = list(request.prompt_ids)
        with torch.inference_mode():
            for _ in range(request.max_tokens):
                sequence.append(int(engine.model(torch.tensor([sequence]), use_cache=False).logits[0, -1].argmax()))
        assert found.ids == sequence[len(request.prompt_ids) :]


@pytest.mark.parametrize("tokens", [1, 13, 64, 4096])
@pytest.mark.parametrize("pairs", [200, 2**24])
def test_memory_limits_change_no_score(llama, requests, monkeypatch, tokens, pairs):
    monkeypatch.setattr(scoring, "TOKENS", tokens)
    monkeypatch.setattr(scoring, "PAIRS", pairs)
    sizes = []

    def watched(*arguments, **given):
        rows, columns = given["input_ids"].shape
        mask = given.get("attention_mask")
        sizes.append((rows * columns, rows * columns * columns if mask is None else mask.numel()))
        return llama.model.forward(*arguments, **given)

    watched.config, watched.device, watched.dtype = llama.model.config, llama.model.device, llama.model.dtype
    for request, found in zip(requests, scoring.score(watched, requests, range(97), scoring.branched), strict=True):
        np.testing.assert_allclose(found, plain(llama.model, request), atol=1e-4, rtol=0)
    # One row, or one branch of one row, is the least that a forward can take.
    longest = max(len(request.trunk) for request in requests) + max(len(request.suffix) for request in requests)
    least = max(len(request.suffix) for request in requests)
    assert max(tokens for tokens, _ in sizes) <= max(tokens, least)
    assert max(n for _, n in sizes) <= max(pairs, least * longest)


def test_requests_of_one_trunk_share_its_prefill(llama):
    trace, other = ids(40, 0), [*ids(40, 0)[:20], *ids(9, 1)]
    requests = [
        ScoreRequest(trace, [10, 30], ids(3, 2)),
        ScoreRequest(other, [29], ids(3, 3)),
        ScoreRequest(trace, [40], ids(4, 4)),
        ScoreRequest(other, [12], ids(2, 5)),
    ]
    grown = scoring.trees(requests)
    # Cut at 12, the last one begins like both; it goes with the one that is next in order.
    assert sorted(len(tree.trunk) for tree in grown) == [29, 40]
    assert sorted(branch.read for tree in grown for branch in tree.branches) == [(0, 0), (0, 1), (1, 0), (2, 0), (3, 0)]
    assert all(
        tree.trunk[: branch.cut] + branch.suffix == requests[branch.read[0]].prefixes()[branch.read[1]] for tree in grown for branch in tree.branches
    )


def test_an_attention_that_ignores_masks_is_found_out(llama, caplog):
    """Positions that a branch is given are lost on this one, as on models with biases of distance."""

    def deaf(*arguments, position_ids=None, **given):
        return llama.model.forward(*arguments, **given)

    for name in ("config", "device", "dtype", "_is_stateful"):
        setattr(deaf, name, getattr(llama.model, name))
    with caplog.at_level(logging.WARNING):
        assert scoring.way_of(deaf) is scoring.walked
    assert "branched reads of llama are off by" in caplog.text


def test_models_that_take_no_positions_are_refused(tmp_path):
    settings = {"num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 2, "chunk_size": 8}
    with pytest.raises(InputError, match="architectures: Mamba2ForCausalLM takes no positions"):
        build(tmp_path, "Mamba2Config", **settings)
