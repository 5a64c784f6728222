"""GGUF weights as an ordinary model folder, so that no job of a study has to unpack them again."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

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
        If the file is no GGUF file that can be read, or what reads it is not installed.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file, folder = Path(file), Path(folder)
    try:
        options: dict[str, Any] = {"gguf_file": file.name, "dtype": torch.float32, "output_loading_info": True}
        read: Any = AutoModelForCausalLM.from_pretrained(file.parent, **options)
        packed, loaded = read
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        config = packed.config
        del config.quantization_config  # the weights are dense by now, but a model that says otherwise is not saved
        model = type(packed)(config)
        model.load_state_dict(packed.state_dict())
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
