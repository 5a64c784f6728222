"""Engines: token ids in, token ids and log-probabilities out. Nothing here knows text, arms or benchmarks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from midtrace import devices, memory
from midtrace.errors import InputError


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters, all explicit. ``temperature`` 0 is greedy; ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 switch a filter off."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0


GREEDY = Sampling()


@dataclass(frozen=True)
class GenerateRequest:
    """Continue ``prompt_ids`` by at most ``max_tokens``; ``seed`` alone decides the random numbers of this request."""

    prompt_ids: Sequence[int]
    max_tokens: int
    seed: int = 0


@dataclass(frozen=True)
class Generation:
    """What was sampled, the stop token included; ``finish_reason`` is ``stop`` or ``length``."""

    ids: list[int]
    finish_reason: str


@dataclass(frozen=True)
class ScoreRequest:
    """Score at the end of ``trunk[:n] + suffix`` for each ``n`` of ``cuts``: nested prefixes of one trace, closed in one way."""

    trunk: Sequence[int]
    cuts: Sequence[int]
    suffix: Sequence[int]

    def prefixes(self) -> list[list[int]]:
        """The token ids of every prefix to be scored."""
        return [[*self.trunk[:n], *self.suffix] for n in self.cuts]


class Engine(Protocol):
    """What a stage needs of a model."""

    @property
    def facts(self) -> dict[str, Any]:
        """Engine name and version, dtype, device: written into every file's metadata."""

    def generate(self, requests: Sequence[GenerateRequest], sampling: Sampling, stop_ids: Sequence[int]) -> list[Generation]:
        """Continue every request; the result of one depends on its own ids and seed only."""

    def score(self, requests: Sequence[ScoreRequest], candidates: Sequence[int]) -> list[np.ndarray]:
        """Full-vocabulary log-probabilities (natural log) of ``candidates``: per request an array of shape (cuts, candidates)."""


ENGINES = ("transformers", "vllm", "server")
VLLM_BY = "an environment with it (docs/engines.md, Install)"
# Where and how an engine runs (models.*.machine): changes no result.
MACHINE: dict[str, tuple[str, ...]] = {
    "transformers": memory.KEYS,
    "vllm": ("tensor_parallel_size", "memory_fraction", "enforce_eager", *memory.KEYS),
    "server": ("url", "api_key_variable", "served_model_name", "concurrency", "timeout"),
}


def load(model: Mapping[str, Any], threads: int = 1, machine: Mapping[str, Any] | None = None) -> Engine:
    """Load the engine that a model entry of the config names, on GPUs of its own where the machine has any (:func:`midtrace.devices.claim`).

    Parameters
    ----------
    model
        Model settings: ``source``, ``engine``, ``dtype``, ``revision``, ``context``.
    threads
        CPU threads.
    machine
        Where and how the engine runs; changes no result (``models.*.machine``).

    Raises
    ------
    InputError
        If the engine is unknown or not installed, or cannot run the model as asked.
    """
    name, machine = model["engine"], {key: value for key, value in (machine or {}).items() if key not in memory.KEYS}
    if name in ("transformers", "vllm"):  # a server's GPUs are its own
        devices.claim(machine.get("tensor_parallel_size", 1))
    if name == "transformers":
        from midtrace.engines.transformers import TransformersEngine

        return TransformersEngine(model["source"], model["dtype"], model.get("revision"), threads)
    if name == "vllm":
        from midtrace.engines.vllm import VllmEngine

        return VllmEngine(model["source"], model["dtype"], model.get("revision"), model.get("context"), threads, **machine)
    if name == "server":
        from midtrace.engines.server import ServerEngine

        return ServerEngine(model["source"], model["dtype"], **machine)
    raise InputError("config", "models.*.engine", f"{name!r} is unknown", ENGINES)
