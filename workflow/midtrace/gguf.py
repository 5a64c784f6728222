"""GGUF weights as an ordinary model folder, so that no job of a study has to unpack them again."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from midtrace.errors import InputError


def unpack(file: str | Path, folder: str | Path) -> None:
    """Write the dequantised weights (float32) and the tokenizer of a GGUF file to a new folder.

    Parameters
    ----------
    file
        A ``.gguf`` file of an architecture that Transformers reads.
    folder
        The model folder; it appears only when whole.

    Raises
    ------
    InputError
        If the file is no GGUF file that can be read, its header contradicts its tensors, or what reads it is not installed.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file, folder = Path(file), Path(folder)
    try:
        architecture, fields, shapes = header(file)
        if wrong := contradiction(architecture, fields, shapes):
            raise InputError(file, *wrong)
        options: dict[str, Any] = {"gguf_file": file.name, "dtype": torch.float32, "output_loading_info": True}
        read: Any = AutoModelForCausalLM.from_pretrained(file.parent, **options)
        packed, loaded = read
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        config = packed.config
        del config.quantization_config  # the weights are dense by now, but a model that says otherwise is not saved
        model = type(packed)(config)
        model.load_state_dict(packed.state_dict())
    except InputError:
        raise
    except Exception as error:  # on a damaged header the readers raise whatever the numbers in it lead to
        said = (str(error).strip().splitlines() or [""])[0][:200]
        raise InputError(file, "file", f"cannot be read ({type(error).__name__}: {said})", "GGUF weights, and midtrace[smollm2]") from None
    # Transformers would begin these at random.
    absent = sorted({str(name) for kind in ("missing_keys", "mismatched_keys") for name in loaded[kind]})
    if absent:
        raise InputError(
            file, "tensors", f"{len(absent)} of the model's weights are missing or have another shape, {absent[0]} first", "a whole GGUF file"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.")
    try:
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        os.chmod(partial, 0o755)
        os.replace(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def header(file: Path) -> tuple[str, dict[str, Any], dict[str, list[int]]]:
    """What a GGUF file says of its model.

    Returns
    -------
    tuple
        The architecture; all fields (a number, a text or a list of them) by name; the shapes of the tensors by name, the dimension that lies
        together in memory first (of a layer: its inputs, then its outputs).

    Raises
    ------
    Exception
        Of many kinds, if the file cannot be read.
    """
    from gguf import GGUFReader

    class WholeReader(GGUFReader):
        """Without this, a list whose length is damaged is read on behind the end of the file, for ever."""

        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            if int(offset) + np.dtype(dtype).itemsize * int(count) > len(self.data):
                raise ValueError("the file ends within a value")
            return super()._get(offset, dtype, count, override_order)

    read = WholeReader(file)
    at, alignment = int(read.data_offset), int(read.alignment)
    for tensor in read.tensors:  # as llama.cpp wants it: a damaged place would give another tensor's numbers
        if tensor.data_offset != at:
            raise ValueError(f"{tensor.name[:60]} does not begin where the tensor before it ends")
        at += -(-int(tensor.n_bytes) // alignment) * alignment
    fields = {name: field.contents() for name, field in read.fields.items()}
    return str(fields["general.architecture"]), fields, {tensor.name: [int(n) for n in tensor.shape] for tensor in read.tensors}


def contradiction(architecture: str, fields: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> tuple[str, str, str] | None:
    """The first size in a header that does not fit the tensors, or that is missing.

    Transformers would make a model of any size that a header gives, fill it at random or lose layers; for a size that is missing it takes that
    of another model.

    Parameters
    ----------
    architecture, fields, shapes
        See :func:`header`.

    Returns
    -------
    tuple or None
        Field, problem and what is allowed, as :class:`InputError` takes them.
    """
    sizes = ((name, fits, f"{allowed}, as the tensors have it") for name, fits, allowed in _sizes(architecture, fields, shapes))
    for name, fits, allowed in chain(_needed(architecture, fields), sizes):
        if not fits:
            value = fields.get(name, shapes.get(name, "missing"))
            said = f"{len(value)} values" if isinstance(value, list) and len(value) > 4 else str(value)[:60]
            return name, said, allowed
    return None


def _needed(architecture: str, fields: Mapping[str, Any]) -> Iterator[tuple[str, bool, str]]:
    """As :func:`_sizes`, of what no tensor tells."""
    context, epsilon = f"{architecture}.context_length", f"{architecture}.attention.layer_norm_rms_epsilon"
    yield context, type(fields.get(context)) is int and fields[context] > 0, "a number of tokens"
    if f"{architecture}.attention.layer_norm_epsilon" not in fields:
        yield epsilon, isinstance(fields.get(epsilon), float) and 0 < fields[epsilon] < 1, "a number between 0 and 1"


def _sizes(architecture: str, fields: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, bool, str]]:
    """Name of each size that must fit the tensors, whether it does, and what would. A later one may rest on those before it."""

    def of(name: str) -> list[int]:  # some architectures have a size for each layer
        value = fields.get(f"{architecture}.{name}")
        values: list[Any] = value if isinstance(value, list) else [value]
        return values if all(type(size) is int and size >= 0 for size in values) else []

    def dimension(part: str, place: int) -> set[int]:
        return {shape[place] for name, shape in shapes.items() if name.endswith(f".{part}.weight")}

    embedding = shapes.get("token_embd.weight", [])
    yield "token_embd.weight", len(embedding) == 2, "a matrix"
    width, words = embedding
    yield f"{architecture}.embedding_length", of("embedding_length") == [width], str(width)
    n_blocks = 1 + max((int(number[1]) for name in shapes if (number := re.search(r"(?:^|\.)blk\.(\d+)\.", name))), default=-1)
    yield f"{architecture}.block_count", of("block_count") == [n_blocks], str(n_blocks)
    n_tokens = len(fields.get("tokenizer.ggml.tokens") or [])
    if f"{architecture}.vocab_size" in fields:  # the embedding may have room for more than the vocabulary
        yield f"{architecture}.vocab_size", of("vocab_size") == [words], str(words)
        yield "tokenizer.ggml.tokens", 0 < n_tokens <= words, f"at most {words}"
    else:
        yield "tokenizer.ggml.tokens", n_tokens == words, str(words)
    if inner := dimension("ffn_down", 0):
        fits = bool(of("feed_forward_length")) and set(of("feed_forward_length")) <= inner
        yield f"{architecture}.feed_forward_length", fits, " or ".join(map(str, sorted(inner)))
    for part, name in (("attn_q", "head_count"), ("attn_k", "head_count_kv")):
        rows, heads = min(dimension(part, -1), default=0), of(f"attention.{name}")
        without = part == "attn_k" and f"{architecture}.attention.{name}" not in fields  # as many as of queries
        if rows and len(heads) < 2 and not without:
            yield f"{architecture}.attention.{name}", heads != [] and heads[0] > 0 and rows % heads[0] == 0, f"a divisor of {rows}"
            for size in ("rope.dimension_count", "attention.key_length"):
                if f"{architecture}.{size}" in fields:
                    yield f"{architecture}.{size}", of(size) != [] and 0 < max(of(size)) <= rows // heads[0], f"at most {rows // heads[0]}"
