"""Checkpoints whose limits and architecture stand in ``text_config``, and such as cannot be loaded."""

import json

import numpy as np
import pytest

from midtrace import memory, vocabulary
from midtrace.engines import ScoreRequest
from midtrace.errors import InputError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from midtrace.engines.transformers import TransformersEngine  # noqa: E402

TEXT = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 640,
    "sliding_window": 16,
    "query_pre_attn_scalar": 8,
    "pad_token_id": None,
}
VISION = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}


@pytest.fixture(scope="module")
def gemma3(tmp_path_factory):
    """A folder with a tiny random Gemma 3 that sees."""
    folder = tmp_path_factory.mktemp("gemma3")
    torch.manual_seed(1)
    config = transformers.Gemma3Config(text_config=TEXT, vision_config=VISION, mm_tokens_per_image=4)
    transformers.AutoModelForImageTextToText.from_config(config).save_pretrained(folder)
    assert "max_position_embeddings" not in json.loads((folder / "config.json").read_text())
    return str(folder)


def test_context_and_memory_of_a_multimodal_checkpoint(gemma3):
    model = {"name": "m", "source": gemma3, "dtype": "float32", "machine": {}, "engine": "transformers"}
    assert vocabulary.context_length(model) == 640
    with pytest.raises(InputError, match=r"models\.m\.context: is 641; allowed: at most 640"):
        vocabulary.context_length({**model, "context": 641})
    with pytest.raises(InputError, match="641 tokens exceed the context"):
        vocabulary.require_context(model, "traces", 641)
    whole = transformers.AutoModelForImageTextToText.from_pretrained(gemma3)
    assert memory.weights(model) == 4 * sum(p.numel() for p in whole.parameters())


def test_prefixes_of_a_multimodal_checkpoint_are_exact(gemma3):
    engine = TransformersEngine(gemma3, "float32")
    request = ScoreRequest(list(range(3, 63)), [5, 30, 60], [7, 9])
    (found,) = engine.score([request], range(97))
    with torch.inference_mode():
        expected = [engine.model(torch.tensor([prefix]), use_cache=False).logits[0, -1].log_softmax(-1).numpy() for prefix in request.prefixes()]
    np.testing.assert_allclose(found, np.stack(expected), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("config", "known"),
    [
        ({"model_type": "from_next_year", "architectures": ["Novel"]}, False),
        (transformers.SiglipVisionConfig(**VISION).to_dict(), True),  # known, but no language model
    ],
)
def test_what_cannot_be_loaded_is_one_line(tmp_path, config, known):
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="architectures: cannot be loaded") as refused:
        TransformersEngine(str(tmp_path), "float32")
    assert "\n" not in str(refused.value) and str(tmp_path) in str(refused.value)
    if not known:
        with pytest.raises(InputError, match=r"models\.m\.source: no configuration in") as refused:
            vocabulary.context_length({"name": "m", "source": str(tmp_path)})
        assert "\n" not in str(refused.value)
