"""Item shards: several jobs share the rows of one table, or one job with one engine works for all tables of a model.

A shard writes no table. It has the engine do its part, and what the engine computes is kept by request beside the table
(:mod:`midtrace.store`). The job that writes the table then finds everything there and needs no engine: a table is the same whatever the shards
were, and another number of them repeats nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from midtrace import continuation, generation, probe
from midtrace.engines import Engine
from midtrace.interruptions import interrupt
from midtrace.shard import Shard
from midtrace.store import StoredEngine, load
from midtrace.tables import write_json


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
    "interruptions": Stage(interrupt.Inputs.read, interrupt.rows, lambda settings: settings["traces"]),
}


def work(
    stage: str,
    jobs: Sequence[tuple[Mapping[str, str], str, Mapping[str, Any]]],
    identities: Mapping[str, str],
    receipt: str | Path,
    shard: Shard,
    batch: int,
    threads: int,
    machine: Mapping[str, Any],
    service: Mapping[str, Any] | None = None,
) -> None:
    """Have one engine do a shard of some tables of one model, and leave a receipt.

    Parameters
    ----------
    stage
        A key of ``STAGES``.
    jobs
        (inputs, output, settings) of each table: the files that the stage reads by name, the table, which is not written, and the stage's
        settings.
    identities, receipt
        JSON file that is written when all is done: ``tables`` are ``identities``, what each table was when its shard was done.
    shard, batch
        Which rows, and how many of them go to the engine at once.
    threads, machine, service
        See :func:`midtrace.store.load`.
    """
    tools = STAGES[stage]

    @cache
    def engine() -> Engine:
        return load(tools.origin(jobs[0][2])["model"], threads, machine, service)

    for inputs, output, settings in jobs:
        stored = StoredEngine(output, tools.origin(settings)["model"], lambda folder, missing: engine())
        for _ in tools.rows(tools.read(**inputs, settings=settings), settings, batch, stored, shard):
            pass  # the engine's part is done and kept; the rows are made by the job that writes them
    write_json({"stage": stage, "shard": shard.index, "shards": shard.count, "tables": dict(identities)}, receipt)
