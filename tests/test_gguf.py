"""GGUF files that are no whole model: refused in one line, and no folder is left."""

import struct

import pytest
from helpers.builders import gguf_file as written

from midtrace import gguf as reader
from midtrace.errors import InputError

pytest.importorskip("gguf")


@pytest.mark.long
def test_a_whole_file_is_unpacked(tmp_path):
    from transformers import AutoModelForCausalLM

    reader.unpack(written(tmp_path / "a.gguf"), tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert all((weight == 0.5).all() for weight in model.parameters())


def test_a_file_without_an_output_layer_shares_its_embedding(tmp_path):
    reader.unpack(written(tmp_path / "a.gguf", without="output"), tmp_path / "model")
    assert (tmp_path / "model/config.json").is_file()


@pytest.mark.parametrize("without", ["blk.0.attn_q", "output_norm", "token_embd"])
def test_a_file_without_one_of_its_weights_is_refused(without, tmp_path):
    with pytest.raises(InputError, match=r"a\.gguf: (tensors: 1 of the model's weights are missing|token_embd\.weight: missing)"):
        reader.unpack(written(tmp_path / "a.gguf", without=without), tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["a.gguf"]


@pytest.mark.parametrize("cut", [0, 3, 10, 100, 700, 2000])
def test_a_file_that_is_cut_off_is_refused(cut, tmp_path):
    with pytest.raises(InputError, match=r"a\.gguf: file: cannot be read"):
        reader.unpack(written(tmp_path / "a.gguf", cut=cut), tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["a.gguf"]


def spoil(path, field, value, format="<I", skip=4):
    """Another value for a field of a file: behind its name stands its type (of 4 bytes; of a list, that of its values too), then the value."""
    data = bytearray(path.read_bytes())
    struct.pack_into(format, data, data.index(field.encode()) + len(field) + skip, value)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("llama.block_count", 2**31 - 1, "1"),  # layers without end
        ("llama.block_count", 0, "1"),  # a model without its layers
        ("llama.embedding_length", 2**30, "16"),
        ("llama.feed_forward_length", 2**30, "32"),
        ("llama.attention.head_count", 3, "a divisor of 16"),
        ("llama.attention.head_count", 0, "a divisor of 16"),
        ("llama.attention.head_count_kv", 2**31, "a divisor of 16"),
        ("llama.vocab_size", 2**30, "16"),
    ],
)
def test_a_size_that_does_not_fit_the_tensors_is_refused(field, value, allowed, tmp_path):
    with pytest.raises(InputError) as refused:
        reader.unpack(spoil(written(tmp_path / "a.gguf"), field, value), tmp_path / "model")
    assert str(refused.value) == f"{tmp_path}/a.gguf: {field}: {value}; allowed: {allowed}, as the tensors have it"
    assert [path.name for path in tmp_path.iterdir()] == ["a.gguf"]


@pytest.mark.parametrize(
    ("field", "allowed"),
    [
        ("llama.block_count", "1, as the tensors have it"),
        ("llama.context_length", "a number of tokens"),
        ("llama.attention.layer_norm_rms_epsilon", "a number between 0 and 1"),
    ],
)
def test_a_size_that_is_missing_is_not_that_of_another_model(field, allowed, tmp_path):
    path = written(tmp_path / "a.gguf")
    path.write_bytes(path.read_bytes().replace(field.encode(), field.upper().encode()))
    with pytest.raises(InputError, match=rf"{field}: missing; allowed: {allowed}$"):
        reader.unpack(path, tmp_path / "model")


def test_a_tensor_is_not_read_from_the_place_of_another(tmp_path):
    # Behind the name of a tensor: the number of its dimensions, one dimension, its type and its place.
    path = spoil(written(tmp_path / "a.gguf"), "blk.0.attn_norm.weight", 0, "<Q", skip=4 + 8 + 4)
    with pytest.raises(InputError, match=r"cannot be read \(ValueError: blk\.0\.attn_norm\.weight does not begin where"):
        reader.unpack(path, tmp_path / "model")


def test_a_list_that_goes_on_behind_the_end_of_the_file_is_refused(tmp_path):
    path = spoil(written(tmp_path / "a.gguf"), "tokenizer.ggml.scores", 2**60, "<Q", skip=8)
    with pytest.raises(InputError, match=r"a\.gguf: file: cannot be read \(ValueError: the file ends within a value\)"):
        reader.unpack(path, tmp_path / "model")


def test_sizes_by_layer_and_room_in_the_embedding_are_no_contradiction():
    shapes = {"token_embd.weight": [8, 40], "blk.0.ffn_down.weight": [16, 8], "blk.1.ffn_down.weight": [24, 8], "blk.1.attn_q.weight": [8, 8]}
    sizes = {"embedding_length": 8, "block_count": 2, "feed_forward_length": [16, 24], "attention.head_count": [0, 2], "vocab_size": 40}
    sizes |= {"context_length": 64, "attention.layer_norm_rms_epsilon": 1e-5}
    fields = {**{f"lfm2.{name}": size for name, size in sizes.items()}, "tokenizer.ggml.tokens": ["a"] * 39}
    assert reader.contradiction("lfm2", fields, shapes) is None
    del fields["lfm2.vocab_size"]
    assert reader.contradiction("lfm2", fields, shapes) == ("tokenizer.ggml.tokens", "39 values", "40, as the tensors have it")
    assert reader.contradiction("lfm2", {**fields, "lfm2.block_count": True}, shapes) == ("lfm2.block_count", "True", "2, as the tensors have it")
