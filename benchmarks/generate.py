"""What does the traces stage add to vLLM? The stage and a bare ``LLM.generate`` on the same prompts and seeds, in turn, in one run, as JSON lines.

``engine_over_bare`` is the engine's part of the stage over the bare call, each at its quickest (other work on the machine only ever slows), by wall
time and by CPU time (of this process; on a GPU that says nothing). Then the median seconds of every other part of the stage. One line per batch size:
a batch is what a killed job keeps, and the end of each is a barrier. The bare call gets the same parameters, so neither side makes text in vLLM.
Needs the environment of ``make setup-vllm`` (or a GPU and the extra ``vllm``).
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from midtrace import config as study_config
from midtrace import dialects, engines, generation, items, store, tables

STUDY = "config/studies/demo_vllm.yaml"
SHARD = ("embedded", "chains", "baseline", 0)
PARTS = {
    "read_items": (tables, "read"),
    "render_prompts": (generation, "build_requests"),
    "split_outputs": (generation, "trace_row"),
    "keep_results": (store._Kept, "add"),
}


class Clock:
    """Wall and CPU seconds by part. A part that is called within another counts for the outer one only."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self.running = False

    def wrap(self, name: str, work: Callable) -> Callable:
        """``work``, on the clock."""

        @wraps(work)
        def clocked(*arguments: Any, **options: Any) -> Any:
            if self.running:
                return work(*arguments, **options)
            self.running, start, cpu = True, time.perf_counter(), time.process_time()
            try:
                return work(*arguments, **options)
            finally:
                self.running = False
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
                self.cpu[name] = self.cpu.get(name, 0.0) + time.process_time() - cpu

        return clocked

    @contextmanager
    def on_parts(self) -> Iterator[None]:
        """All parts of the stage, on the clock."""
        originals = {name: getattr(*where) for name, where in PARTS.items()}
        try:
            for name, (owner, attribute) in PARTS.items():
                setattr(owner, attribute, self.wrap(name, originals[name]))
            yield
        finally:
            for name, (owner, attribute) in PARTS.items():
                setattr(owner, attribute, originals[name])


class OnTheClock:
    """An engine whose calls are timed."""

    def __init__(self, engine: engines.Engine, clock: Clock):
        self.facts = engine.facts
        self.generate = clock.wrap("engine", engine.generate)
        self.score = engine.score


def bare(engine: Any, requests: dict[str, engines.GenerateRequest], sampling: engines.Sampling, stops: list[int]) -> tuple[float, float]:
    """Wall and CPU seconds of ``LLM.generate`` alone; what it is given is made before."""
    from vllm import SamplingParams

    prompts = [{"prompt_token_ids": list(request.prompt_ids)} for request in requests.values()]
    shared = {**vars(sampling), "stop_token_ids": stops, "ignore_eos": True, "detokenize": False}
    params = [SamplingParams(seed=request.seed, max_tokens=request.max_tokens, **shared) for request in requests.values()]
    start, cpu = time.perf_counter(), time.process_time()
    engine.llm.generate(prompts, params, use_tqdm=False)
    return time.perf_counter() - start, time.process_time() - cpu


def measure(engine: Any, config: dict, folder: Path, batch: int, repeats: int) -> dict[str, Any]:
    """The stage's parts and the bare call, one after the other ``repeats`` times."""
    settings = study_config.traces_settings(config, *SHARD)
    table, model = folder / "items.parquet", settings["model"]
    items.run(table, "bench", settings["items"])
    tokenizer, dialect = generation.load_tokenizer(model), dialects.get(model["dialect"])
    requests = generation.build_requests(tables.read(table, tables.Items), settings, dialect, tokenizer, None)
    stops, sampling = dialects.stop_ids(tokenizer, dialect), engines.Sampling(**model["sampling"])
    bare(engine, requests, sampling, stops)  # prompts in the prefix cache, for both
    alone, alone_cpu, whole, parts, cpu = [], [], [], [], []
    for repeat in range(repeats):
        for times, seconds in zip((alone, alone_cpu), bare(engine, requests, sampling, stops), strict=True):
            times.append(seconds)
        clock, start = Clock(), time.perf_counter()
        with clock.on_parts():
            output = folder / f"{batch}-{repeat}" / "traces.parquet"  # beside each, an empty store
            stored = store.StoredEngine(output, model, lambda *_, clock=clock: OnTheClock(engine, clock))
            generation.run(table, output, "bench", settings, batch, stored)
        whole.append(time.perf_counter() - start)
        cpu.append(clock.cpu["engine"])
        parts.append({**clock.seconds, "rest": whole[-1] - sum(clock.seconds.values())})
    tokens = tables.read(output, tables.RawTraces)["output_ids"].list.len().sum()
    medians = {name: statistics.median(part[name] for part in parts) for name in parts[0]}
    return {
        "engine": engine.facts["engine_version"],
        "device": engine.facts["device"],
        "traces": len(requests),
        "output_tokens": tokens,
        "batch": batch,
        "bare_s": round(min(alone), 3),
        "bare_tokens_per_s": round(tokens / min(alone)),
        "engine_over_bare": round(min(part["engine"] for part in parts) / min(alone), 3),
        "engine_over_bare_cpu": round(min(cpu) / min(alone_cpu), 3),
        "engine_over_bare_by_repeat": [round(part["engine"] / one, 3) for part, one in zip(parts, alone, strict=True)],
        "stage_over_bare": round(min(whole) / min(alone), 3),
        **{f"{name}_s": round(value, 3) for name, value in medians.items()},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=512)
    parser.add_argument("--batches", type=int, nargs="+", default=[512, 128])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    study = study_config.load(STUDY)
    study["benchmarks"]["chains"]["n"] = arguments.items
    entry = study["models"]["embedded"]
    started = time.perf_counter()
    loaded = engines.load(entry, arguments.threads, entry["machine"])
    print(json.dumps({"start_s": round(time.perf_counter() - started, 1)}), flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for size in arguments.batches:
            print(json.dumps(measure(loaded, study, Path(scratch), size, arguments.repeats)), flush=True)
