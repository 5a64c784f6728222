"""How fast are many cuts of a trace read? Ratios measured side by side in one run, as JSON lines.

For each number of cuts: every prefix in a forward of its own, all cuts branched from one prefill (what the Transformers engine does), and a
bare prefill of the same trace. The model is the embedded architecture with random weights and longer traces than it was trained for: speed
does not depend on what it knows.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from midtrace.embedded.train import ARCHITECTURE
from midtrace.engines import ScoreRequest
from midtrace.engines.transformers import TransformersEngine


def clock(work: Callable[[], object], repeats: int) -> float:
    """Median seconds of ``work`` after one warm-up."""
    work()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def measure(engine: TransformersEngine, length: int, n_cuts: int, width: int, repeats: int) -> dict[str, float | int]:
    """Seconds of the three ways and their ratios, for one trace of ``length`` tokens with ``n_cuts`` cuts and a suffix of ``width`` tokens."""
    generator = torch.Generator().manual_seed(length)
    trunk = torch.randint(10, 500, (length,), generator=generator).tolist()
    suffix = torch.randint(10, 500, (width,), generator=generator).tolist()
    cuts = [round((k + 1) * length / n_cuts) for k in range(n_cuts)]
    branched = ScoreRequest(trunk, cuts, suffix)
    candidates = list(range(20))

    def per_prefix() -> None:
        with torch.inference_mode():
            for prefix in branched.prefixes():
                engine.model(input_ids=torch.tensor([prefix]), logits_to_keep=1)

    def prefill() -> None:
        with torch.inference_mode():
            engine.model(input_ids=torch.tensor([trunk]), logits_to_keep=1)

    separate, one_pass, bare = clock(per_prefix, repeats), clock(lambda: engine.score([branched], candidates), repeats), clock(prefill, repeats)
    return {
        "tokens": length,
        "cuts": n_cuts,
        "suffix": width,
        "per_prefix_s": round(separate, 4),
        "one_pass_s": round(one_pass, 4),
        "prefill_s": round(bare, 4),
        "per_prefix_over_one_pass": round(separate / one_pass, 2),
        "one_pass_over_prefill": round(one_pass / bare, 2),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        Qwen3ForCausalLM(Qwen3Config(**ARCHITECTURE)).save_pretrained(folder)
        loaded = TransformersEngine(folder, "float32", threads=arguments.threads)
    for n_cuts in (8, 32, 128):
        print(json.dumps(measure(loaded, 1024, n_cuts, 8, arguments.repeats)), flush=True)
    for length in (256, 512):
        print(json.dumps(measure(loaded, length, 32, 8, arguments.repeats)), flush=True)
