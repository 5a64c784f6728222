"""What the weights of a model take, what a job asks for to hold them, and whether what it was given does.

Bytes are of ten: 1 GB is 10**9, 1 MB 10**6.
"""

import json
import math
import struct
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from midtrace.errors import InputError

BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
FLOATS = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2}  # of a safetensors file: loaded in the model's dtype; other kinds stay as they are
KEYS = ("parameters", "weights_gb", "gpu_memory_gb")  # of models.*.machine: for this module alone, no engine sees them
ROOM = 8_000  # MB beside the weights: Python, torch, CUDA, a batch; once more with every attempt
UNKNOWN = 32_000  # MB where nobody says how large the weights are; as often as attempts
CLIENT = 4_000  # MB of a job that asks a server
FRACTION = 0.9  # of a GPU, that vLLM takes where models.*.machine.memory_fraction says nothing


def weights(model: Mapping[str, Any]) -> int | None:
    """Bytes of a model's weights as they are loaded; None if nobody says.

    Parameters
    ----------
    model
        An entry of the config. ``machine.weights_gb`` comes first, then ``machine.parameters`` in the model's dtype, then the files of a folder.
    """
    machine, size = model["machine"], BYTES[model["dtype"]]
    if "weights_gb" in machine:
        return round(machine["weights_gb"] * 1e9)
    if "parameters" in machine:
        return round(machine["parameters"] * size)
    return _of_folder(model["source"], size)


@cache
def _of_folder(folder: str, size: int) -> int | None:
    """Bytes of the weight files of a folder, floating numbers of a safetensors file counted ``size`` bytes each; None where there are none.

    Where an index lists the files, those: some folders hold the same weights once more, in another form.
    """
    index = Path(folder, "model.safetensors.index.json")
    if index.is_file():
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            return sum(_of_file(Path(folder, name), size) for name in set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    files = [path for pattern in ("*.safetensors", "*.bin", "*.gguf") if (path := sorted(Path(folder).glob(pattern)))]
    return sum(_of_file(path, size) for path in files[0]) if files else None


def _of_file(path: Path, size: int) -> int:
    try:
        whole = path.stat().st_size
        if path.suffix != ".safetensors":
            return whole
        with path.open("rb") as handle:
            (length,) = struct.unpack("<Q", handle.read(8))
            tensors: dict[str, Any] = json.loads(handle.read(min(length, whole)))
        return sum(
            math.prod(tensor["shape"]) * size if tensor["dtype"] in FLOATS else tensor["data_offsets"][1] - tensor["data_offsets"][0]
            for name, tensor in tensors.items()
            if name != "__metadata__"
        )
    except (OSError, struct.error, ValueError, KeyError, TypeError, AttributeError):
        problem = "is no safetensors file, or not whole" if path.exists() else "is a link to nothing"
        raise InputError(path, "weights", problem, "the whole file (not a Git LFS pointer, not half a download)") from None


def request_mb(model: Mapping[str, Any], attempt: int = 1) -> int:
    """MB of the machine's memory that a job of a model asks for: the weights pass through it on their way to a GPU."""
    if model["engine"] == "server":
        return CLIENT * attempt
    known = weights(model)
    return UNKNOWN * attempt if known is None else round(1.1 * known / 1e6) + ROOM * attempt


def check_gpu(field: str, model: Mapping[str, Any], where: object) -> None:
    """Refuse a model whose weights its GPUs do not hold.

    Raises
    ------
    InputError
        Naming ``{field}.machine.gpu_memory_gb``, if the share of the weights on one GPU is more than the engine may take of it.
    """
    machine, known = model["machine"], weights(model) if "gpu_memory_gb" in model["machine"] else None
    if known is None:
        return
    shared = machine.get("tensor_parallel_size", 1)
    fraction = machine.get("memory_fraction", FRACTION) if model["engine"] == "vllm" else 1.0
    room = machine["gpu_memory_gb"] * fraction
    if known / 1e9 / shared > room:
        each = f"{known / 1e9 / shared:.1f} GB of weights on each of {shared} GPU(s)"
        share = f", of which the engine takes {fraction:.0%}" if fraction < 1 else ""
        needed = f"at least {math.ceil(known / 1e9 / shared / fraction * 10) / 10:g}"
        other = ", or a larger tensor_parallel_size" if model["engine"] == "vllm" else ""
        raise InputError(where, f"{field}.machine.gpu_memory_gb", f"is {machine['gpu_memory_gb']:g}{share}, for {each}", needed + other)


def check_job(rule: str, entry: str, model: Mapping[str, Any], resources: Mapping[str, Any], threads: int) -> None:
    """Refuse what the jobs of a rule ask for where it does not hold the model.

    Parameters
    ----------
    rule
        Name of the rule.
    entry, model
        Where the model stands in the config, and what stands there.
    resources
        What a first attempt asks for, after the profile and the command line: ``mem_mb``, ``mem_mb_per_cpu``, ``gpu``. What is missing or no number
        is not judged.
    threads
        Cores of the job.

    Raises
    ------
    InputError
        Naming the key of a profile, what it says, and what is needed.
    """
    if model["engine"] == "server":
        return
    known, shared = weights(model), model["machine"].get("tensor_parallel_size", 1)
    field = "mem_mb_per_cpu" if isinstance(resources.get("mem_mb_per_cpu"), int) else "mem_mb"  # schedulers, too, let the former count
    asked, cores = resources.get(field), threads if field == "mem_mb_per_cpu" else 1
    if known is not None and isinstance(asked, int) and asked * cores < known / 1e6:
        times = f" for each of {cores} core(s)" if field == "mem_mb_per_cpu" else ""
        problem = f"is {asked}{times}, and the weights of {entry} take {math.ceil(known / 1e6)} MB"
        raise InputError("resources", f"{rule}.{field}", problem, f"at least {math.ceil(known / 1e6 / cores)}, in set-resources or --resources")
    gpu = resources.get("gpu")
    if isinstance(gpu, int) and 0 < gpu < shared:
        problem = f"is {gpu}, and {entry}.machine.tensor_parallel_size {shared}"
        raise InputError("resources", f"{rule}.gpu", problem, f"at least {shared}, in set-resources or --resources, or fewer GPUs for the model")
