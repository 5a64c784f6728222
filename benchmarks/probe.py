"""How fast are many cuts of one trace read? Ways measured side by side in one run, alternating, as JSON lines with medians and their ratios.

``per_prefix``: every closed prefix in a forward of its own. ``one_pass``: all of them branched from one prefill, which is how the Transformers
engine reads. ``prefill``: the bare trace, nothing read. Where vLLM can be imported: ``vllm_cold`` and ``vllm_warm``, our engine on it with an
empty and with a filled prefix cache, and ``published``: text in, one request for each cut, the 1,000 likeliest tokens back, cache empty at the
start. The text is this repository's own; the model is SmolLM2-135M (``make smollm2``), or random weights of the same shape.
"""

import argparse
import importlib.util
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from midtrace.engines import ScoreRequest
from midtrace.engines.transformers import TransformersEngine

ROOT = Path(__file__).parents[1]
SMOLLM2 = ROOT / "models/smollm2"
SHAPE = {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9}
SHAPE |= {"num_key_value_heads": 3, "head_dim": 64, "max_position_embeddings": 8192, "tie_word_embeddings": True}
CLOSING = "\n</think>\n\nThe answer is option"
SPELLINGS = 20  # candidates read: two spellings of ten labels
GRID = ((1024, 8), (1024, 32), (1024, 128), (256, 32), (4096, 32))  # tokens, cuts
Ways = dict[str, Callable[[ScoreRequest], object]]


def random_model(folder: Path) -> None:
    """Write random weights of SmolLM2's shape, with the embedded model's tokenizer: speed does not depend on what a model knows."""
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**SHAPE)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(ROOT / "resources/embedded").save_pretrained(folder)


def transformers_ways(source: Path, threads: int) -> Ways:
    """The three ways that need no vLLM."""
    engine = TransformersEngine(str(source), "float32", threads=threads)

    @torch.inference_mode()
    def per_prefix(request: ScoreRequest) -> None:
        for prefix in request.prefixes():
            engine.model(input_ids=torch.tensor([prefix]), logits_to_keep=1)

    @torch.inference_mode()
    def prefill(request: ScoreRequest) -> None:
        engine.model(input_ids=torch.tensor([list(request.trunk)]), logits_to_keep=1)

    return {"per_prefix": per_prefix, "one_pass": lambda request: engine.score([request], range(SPELLINGS)), "prefill": prefill}


def vllm_ways(source: Path, threads: int) -> Ways:
    """The three ways on vLLM; each is timed from the state of the cache that its name says."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GB for each of the two engines; by default each would take what the other needs
    from vllm import LLM, SamplingParams

    from midtrace.engines.vllm import VllmEngine

    engine = VllmEngine(str(source), "float32", threads=threads, enforce_eager=True)
    plain = LLM(str(source), dtype="float32", enforce_eager=True, max_logprobs=1000, seed=0)
    tokenizer = AutoTokenizer.from_pretrained(source)

    def cold(request: ScoreRequest) -> None:
        engine.llm.reset_prefix_cache()
        engine.score([request], range(SPELLINGS))

    def published(request: ScoreRequest) -> None:
        plain.reset_prefix_cache()
        params = SamplingParams(max_tokens=1, temperature=0.0, logprobs=1000)
        for prefix in request.prefixes():
            plain.generate([tokenizer.decode(prefix)], params, use_tqdm=False)

    return {"vllm_cold": cold, "vllm_warm": lambda request: engine.score([request], range(SPELLINGS)), "published": published}


def requests(source: Path) -> Iterator[ScoreRequest]:
    """A trace of each length and number of cuts."""
    tokenizer = AutoTokenizer.from_pretrained(source)
    text = "\n".join(path.read_text(encoding="utf-8") for path in [ROOT / "LICENSE", ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))])
    ids = tokenizer.encode(text, add_special_tokens=False)
    suffix = tokenizer.encode(CLOSING, add_special_tokens=False)
    for length, n_cuts in GRID:
        yield ScoreRequest(ids[:length], [round((k + 1) * length / n_cuts) for k in range(n_cuts)], suffix)


def measure(ways: Ways, request: ScoreRequest, repeats: int) -> dict[str, float | int]:
    """Median seconds of each way, and of a bare prefill how many times that is; the ways take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, read in ways.items():
            start = time.perf_counter()
            read(request)
            seconds[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    shape = {"tokens": len(request.trunk), "cuts": len(request.cuts), "suffix": len(request.suffix)}
    over_prefill = {f"{name}_over_prefill": round(value / medians["prefill"], 2) for name, value in medians.items() if name != "prefill"}
    speedup = round(medians["per_prefix"] / medians["one_pass"], 2)
    return {**shape, **{f"{name}_s": round(value, 4) for name, value in medians.items()}, **over_prefill, "per_prefix_over_one_pass": speedup}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = SMOLLM2 if SMOLLM2.is_dir() else Path(folder)
        if source != SMOLLM2:
            random_model(source)
        ways = transformers_ways(source, arguments.threads)
        vllm = importlib.util.find_spec("vllm") is not None
        if vllm:
            ways |= vllm_ways(source, arguments.threads)
        about = {"model": "SmolLM2-135M" if source == SMOLLM2 else "random weights of its shape", "threads": arguments.threads}
        print(json.dumps({**about, "repeats": arguments.repeats, "vllm": "measured" if vllm else "not importable here: left out"}), flush=True)
        for read in ways.values():
            read(ScoreRequest(range(100, 164), [32, 64], range(100, 108)))  # what only the first call pays is not measured
        for request in requests(source):
            print(json.dumps(measure(ways, request, arguments.repeats)), flush=True)
