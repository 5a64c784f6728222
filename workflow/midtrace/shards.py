"""Item shards: several jobs share the rows of one table, or one job with one engine works for all tables of a model.

A shard writes no table. It has the engine do its part, and what the engine computes is kept by request beside the table
(:mod:`midtrace.store`). The job that writes the table then finds everything there and needs no engine: a table is the same whatever the shards
were, and another number of them repeats nothing.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from midtrace import continuation, engines, generation, interruption, probe, serving
from midtrace.engines import Engine
from midtrace.shard import Shard
from midtrace.store import StoredEngine


@dataclass(frozen=True)
class Stage:
    """What a shard needs of a stage: how its inputs are read, its rows (made batch by batch), and where its settings hold the model."""

    read: Callable[..., Any]
    rows: Callable[..., Any]
    origin: Callable[[Mapping[str, Any]], Mapping[str, Any]]


STAGES = {
    "traces": Stage(generation.Inputs.read, generation.rows, lambda settings: settings),
    "probe": Stage(probe.Inputs.read, probe.rows, lambda settings: settings["replay"]["traces"]),
    "continuations": Stage(probe.Inputs.read, continuation.rows, lambda settings: settings["replay"]["traces"]),
    "interruptions": Stage(interruption.Inputs.read, interruption.rows, lambda settings: settings["traces"]),
}


def work(
    stage: str,
    jobs: Sequence[tuple[Mapping[str, str], str, Mapping[str, Any]]],
    receipt: str | Path,
    shard: Shard,
    batch: int,
    threads: int,
    machine: Mapping[str, Any],
    server: str | None = None,
) -> None:
    """Have one engine do a shard of some tables of one model, and leave a receipt.

    Parameters
    ----------
    stage
        A key of ``STAGES``.
    jobs
        (inputs, output, settings) of each table: the files that the stage reads by name, the table, which is not written, and the stage's
        settings.
    receipt
        Written when all is done: a JSON file that says what.
    shard, batch
        Which rows, and how many of them go to the engine at once.
    threads, machine, server
        See :func:`midtrace.store.engine_of`.
    """
    tools = STAGES[stage]

    @cache
    def engine() -> Engine:
        model = tools.origin(jobs[0][2])["model"]
        return serving.load(model, server) if server else engines.load(model, threads, machine)

    for inputs, output, settings in jobs:
        stored = StoredEngine(output, tools.origin(settings)["model"], lambda folder, missing: engine())
        for _ in tools.rows(tools.read(**inputs, settings=settings), settings, batch, stored, shard):
            pass  # the engine's part is done and kept; the rows are made by the job that writes them
    record = {"stage": stage, "shard": shard.index, "shards": shard.count, "tables": [output for _, output, _ in jobs]}
    path = Path(receipt)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(record, indent=1) + "\n")
    os.replace(temporary, path)
