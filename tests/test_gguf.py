"""GGUF files that are no whole model: refused in one line, and no folder is left."""

import pytest
from builders import gguf_file as written

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
    with pytest.raises(InputError, match=r"a\.gguf: (tensors: 1 of the model's weights are missing|file: cannot be read)"):
        reader.unpack(written(tmp_path / "a.gguf", without=without), tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["a.gguf"]


@pytest.mark.parametrize("cut", [0, 3, 10, 100, 700, 2000])
def test_a_file_that_is_cut_off_is_refused(cut, tmp_path):
    with pytest.raises(InputError, match=r"a\.gguf: file: cannot be read"):
        reader.unpack(written(tmp_path / "a.gguf", cut=cut), tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["a.gguf"]
