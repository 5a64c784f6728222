"""Do the engines say the same? One line per engine, as JSON: the same prefixes scored and the same prompts continued, against Transformers.

The reference runs every prefix in a forward of its own. Scores are compared over the whole vocabulary; greedy continuations token by token; sampled
ones with themselves in another order of the requests. All in float32, on the embedded model, with prefixes of its own traces. A vLLM server is
started for it and stopped again. Needs the environment of ``make setup-vllm``.
"""

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from midtrace import dialects, engines, prompts
from midtrace.dialects import EMBEDDED
from midtrace.engines import GREEDY, GenerateRequest, Sampling, ScoreRequest
from midtrace.loaders.generated import chain_items
from midtrace.vocabulary import load_tokenizer

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "resources" / "embedded"
ENTRY = {"source": str(MODEL), "dtype": "float32"}
MACHINE = {"memory_fraction": 0.1, "enforce_eager": True}
PROMPT = {"template": "{question}\n{options}", "option": "{label}. {text}"}
SAMPLED = Sampling(temperature=1.0)
sys.path.append(str(ROOT / "tests"))  # where starting a server is at home


def separate(engine: Any, request: ScoreRequest) -> np.ndarray:
    """Log-probabilities of the whole vocabulary, every prefix in a forward of its own."""
    with torch.inference_mode():
        return np.stack([engine.model(torch.tensor([prefix])).logits[0, -1].log_softmax(-1).numpy() for prefix in request.prefixes()])


def compare(engine: engines.Engine, name: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """One engine against the reference."""
    expected = inputs["scores"]
    found = np.concatenate(engine.score(inputs["prefixes"], range(expected.shape[1])))
    difference = np.abs(found - expected)
    greedy = engine.generate(inputs["prompts"], GREEDY, inputs["stops"])
    together = engine.generate(inputs["prompts"], SAMPLED, inputs["stops"])
    order = random.Random(0).sample(range(len(together)), len(together))
    shuffled = engine.generate([inputs["prompts"][k] for k in order], SAMPLED, inputs["stops"])
    return {
        "way": name,
        "engine": engine.facts["engine_version"],
        "prefixes": len(expected),
        "largest_difference": float(f"{difference.max():.2g}"),
        "largest_difference_p_above_1e-6": float(f"{difference[expected > np.log(1e-6)].max():.2g}"),
        "same_argmax": int((found.argmax(-1) == expected.argmax(-1)).sum()),
        "prompts": len(greedy),
        "greedy_tokens": sum(len(generation.ids) for generation in greedy),
        "same_greedy": sum(a.ids == b.ids for a, b in zip(greedy, inputs["greedy"], strict=True)),
        "same_sampled_in_another_order": sum(generation == together[k] for generation, k in zip(shuffled, order, strict=True)),
        "same_sampled_as_transformers": sum(a.ids == b.ids for a, b in zip(together, inputs["sampled"], strict=True)),
    }


def prepare(engine: Any, n: int) -> dict[str, Any]:
    """Prompts, the reference's continuations of them, and nested prefixes of these with their reference scores."""
    tokenizer = load_tokenizer({"name": "embedded", **ENTRY})
    stops = dialects.stop_ids(tokenizer, EMBEDDED)
    items = chain_items({"name": "chains", "loader": "chains", "answer_kind": "choice", "n": n}, 77)
    rendered = [
        GenerateRequest(prompts.render(row, {"effort": effort}, PROMPT, EMBEDDED, tokenizer), 192, seed=1000 * number + len(effort))
        for number, row in enumerate(items)
        for effort in ("low", "medium", "high")
    ]
    sampled = engine.generate(rendered, SAMPLED, stops)
    suffix = prompts.closing_ids(EMBEDDED, "Answer:", tokenizer)
    prefixes = []
    for request, generation in zip(rendered, sampled, strict=True):
        base, length = len(request.prompt_ids), len(generation.ids)
        trunk = [*request.prompt_ids, *generation.ids]
        prefixes.append(ScoreRequest(trunk, [base + round(length * tenth / 10) for tenth in range(11)], suffix))
    return {
        "prompts": rendered,
        "stops": stops,
        "greedy": engine.generate(rendered, GREEDY, stops),
        "sampled": sampled,
        "prefixes": prefixes,
        "scores": np.concatenate([separate(engine, request) for request in prefixes]),
    }


def measure(n: int) -> Iterator[dict[str, Any]]:
    """One line per engine."""
    from helpers.served import vllm_server

    torch.set_num_threads(1)
    reference = engines.load({"engine": "transformers", **ENTRY})
    inputs = prepare(reference, n)
    yield compare(reference, "Transformers, one pass", inputs)
    yield compare(engines.load({"engine": "vllm", **ENTRY}, machine=MACHINE), "vLLM", inputs)
    with tempfile.TemporaryDirectory() as folder, vllm_server(MODEL, Path(folder) / "server.log") as url:
        machine = {"url": url, "served_model_name": MODEL.name}
        yield compare(engines.load({"engine": "server", **ENTRY}, machine=machine), "server", inputs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=40)
    for line in measure(parser.parse_args().items):
        print(json.dumps(line), flush=True)
