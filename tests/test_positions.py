"""Rotations that depend on the length of a forward: exact prefixes and independence of the batch, for every rope type of Transformers."""

import copy

import numpy as np
import pytest

from midtrace.engines import GenerateRequest, Sampling, ScoreRequest

pytestmark = pytest.mark.filterwarnings("ignore:.*past_key_values.*:FutureWarning")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: E402

from midtrace.engines import positions, scoring  # noqa: E402
from midtrace.engines.transformers import TransformersEngine  # noqa: E402

LIMIT = 48
SIZE = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "initializer_range": 0.5,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LONG = {"short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [3.0, 5.0, 8.0, 12.0], "original_max_position_embeddings": LIMIT}
PARAMETERS = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": LIMIT},
    "longrope": LONG,
    "llama3": {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": LIMIT},
    "proportional": {"partial_rotary_factor": 0.5},
}


def rope(kind: str) -> dict:
    return {"rope_type": kind, "rope_theta": 100.0, **PARAMETERS[kind]}


def config_of(name: str):
    # Dynamic scaling takes the model's own limit for the length that it was trained for; the others go far beyond theirs.
    size = SIZE | {"max_position_embeddings": LIMIT if "dynamic" in name else 4 * LIMIT}
    if name == "phi3 longrope":
        return transformers.Phi3Config(**size, rope_parameters=rope("longrope"), original_max_position_embeddings=LIMIT, sliding_window=None)
    if name == "phimoe longrope":
        own = rope("longrope") | {"short_mscale": 1.1, "long_mscale": 1.4}
        return transformers.PhimoeConfig(**size, rope_parameters=own, num_local_experts=2, num_experts_per_tok=1, sliding_window=None)
    if name.startswith("layers "):  # Gemma 3: parameters by the type of the layer
        layers = {"full_attention": rope(name.removeprefix("layers ")), "sliding_attention": rope("default")}
        kinds = ["sliding_attention", "full_attention"]
        return transformers.Gemma3TextConfig(**size, rope_parameters=layers, layer_types=kinds, sliding_window=16, query_pre_attn_scalar=8)
    return transformers.LlamaConfig(**size, rope_parameters=rope(name))


NAMES = [*PARAMETERS, "phi3 longrope", "phimoe longrope", "layers linear", "layers dynamic", "layers longrope"]
DEPENDENT = [name for name in NAMES if "dynamic" in name or "longrope" in name]


@pytest.fixture(scope="module", params=NAMES)
def named(request, tmp_path_factory):
    """(name, engine, the same model as it was before any forward), float64."""
    torch.manual_seed(5)
    folder = tmp_path_factory.mktemp("rope")
    transformers.AutoModelForCausalLM.from_config(config_of(request.param)).save_pretrained(folder)
    engine = TransformersEngine(str(folder), "float64", threads=1)
    if "phimoe" in request.param:
        engine.model.set_experts_implementation("eager")  # the default one knows no float64
    return request.param, engine, copy.deepcopy(engine.model)


def ids(n: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(3, 97, n).tolist()


def fresh(model, prefix: list[int]) -> torch.Tensor:
    """Log-probabilities after one forward of a model that has made no other."""
    with torch.inference_mode():
        return copy.deepcopy(model)(input_ids=torch.tensor([prefix]), use_cache=False).logits[0, -1].log_softmax(-1)


def test_every_rope_type_of_transformers_is_tested():
    assert set(PARAMETERS) - {"default"} == set(ROPE_INIT_FUNCTIONS)


def test_dependent_types_are_known(named):
    name, engine, _ = named
    assert [(scheme.name, scheme.limit) for scheme in engine.schemes] == ([(name.split()[-1], LIMIT)] if name in DEPENDENT else [])


def test_an_unknown_type_is_taken_for_one_that_changes_at_every_length():
    config = transformers.LlamaConfig(**SIZE)
    config.rope_parameters = {"rope_type": "new", "rope_theta": 1.0}
    (scheme,) = positions.schemes(config)
    assert [scheme.stage(n) for n in (1, 2, 3)] == [1, 2, 3]


def test_text_model_of_a_multimodal_one_is_looked_at():
    text = transformers.Gemma3TextConfig(**SIZE, rope_parameters={"full_attention": rope("longrope"), "sliding_attention": rope("default")})
    assert positions.schemes(transformers.Gemma3Config(text_config=text)) == [positions.Scheme("longrope", LIMIT)]


def test_prefixes_are_exact_on_both_sides_of_the_limit(named):
    name, engine, model = named
    trace = ids(100, 0)
    requests = [
        ScoreRequest(trace, [8, 40, LIMIT - 3, LIMIT - 2, 60, 100], ids(3, 1)),  # LIMIT - 3 closes at the limit, the next beyond
        ScoreRequest(ids(30, 2), [30, 9], ids(3, 3)),
        ScoreRequest(ids(LIMIT, 4), [LIMIT], []),
    ]
    for _ in range(2):  # what long forwards leave behind must not reach the next score
        for request, found in zip(requests, engine.score(requests, range(97)), strict=True):
            expected = np.stack([fresh(model, prefix).numpy() for prefix in request.prefixes()])
            np.testing.assert_allclose(found, expected, atol=1e-9, rtol=0)
    if name in DEPENDENT:  # the case shows the difference that it is about
        (spread,) = scoring.score(engine.model, requests[:1], range(97), engine.way)
        expected = np.stack([fresh(model, prefix).numpy() for prefix in requests[0].prefixes()])
        assert np.abs(np.exp(spread) - np.exp(expected)).sum(-1).max() / 2 > 1e-3


def test_short_prefixes_are_still_read_in_one_pass(named, monkeypatch):
    name, engine, _ = named
    assert engine.way.__name__ == ("walked" if name.startswith("layers") else "branched")
    calls = []
    monkeypatch.setattr(scoring, "separate", lambda *arguments: calls.append(1) or [])
    engine.score([ScoreRequest(ids(40, 0), [10, 20, 40], ids(2, 1))], range(97))
    assert not calls


def test_tokens_do_not_change_beside_a_longer_prompt(named):
    """Sampled tokens: those of a plain loop of whole forwards, alone and in any company, across the limit."""
    _, engine, model = named
    sampling = Sampling(temperature=1.0)
    requests = [GenerateRequest(tuple(ids(n, n)), limit, seed=n) for n, limit in ((40, 16), (45, 3), (12, 5), (47, 2), (48, 6), (70, 7))]
    together = engine.generate(requests, sampling, [])
    alone = [engine.generate([request], sampling, [])[0] for request in reversed(requests)][::-1]
    assert [one.ids for one in together] == [one.ids for one in alone]
    assert [one.finish_reason for one in together] == ["length"] * len(requests)
    from midtrace.engines.sampling import pick, uniforms

    for request, one in zip(requests, together, strict=True):
        sequence = list(request.prompt_ids)
        for uniform in torch.tensor(uniforms(request.seed, request.max_tokens)):
            sequence += pick(fresh(model, sequence)[None], uniform[None], sampling).tolist()
        assert one.ids == sequence[len(request.prompt_ids) :]


def test_a_stop_ends_a_run_on_either_side_of_the_limit(named):
    _, engine, _ = named
    request = GenerateRequest(tuple(ids(44, 1)), 12, seed=3)
    (whole,) = engine.generate([request], Sampling(temperature=1.0), [])
    for at in (2, 9):
        stop = whole.ids[at]
        (found,) = engine.generate([request], Sampling(temperature=1.0), [stop])
        assert (found.ids, found.finish_reason) == (whole.ids[: whole.ids.index(stop) + 1], "stop")
