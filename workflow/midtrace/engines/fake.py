"""A tiny engine for tests: a random but fixed next-token distribution of the last ids, no model, no import of torch."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from midtrace.engines import GenerateRequest, Generation, Sampling, ScoreRequest
from midtrace.seeds import stable_hash


class FakeEngine:
    """Log-probabilities are a hash of the whole prefix, or what ``logits`` says.

    Parameters
    ----------
    vocabulary
        Number of token ids.
    logits
        Optional function from a prefix (list of ids) to logits, shape (vocabulary,).
    """

    def __init__(self, vocabulary: int = 64, logits: Callable[[list[int]], np.ndarray] | None = None):
        self.vocabulary = vocabulary
        self.logits = logits or self._hashed
        self.facts: dict[str, Any] = {"engine": "fake", "engine_version": "1", "dtype": "float64", "device": "cpu"}

    def _hashed(self, prefix: list[int]) -> np.ndarray:
        return np.random.default_rng(stable_hash(*prefix)).normal(size=self.vocabulary) * 2

    def _logprobs(self, prefix: list[int]) -> np.ndarray:
        logits = np.asarray(self.logits(prefix), dtype=float)
        return logits - np.logaddexp.reduce(logits)

    def generate(self, requests: Sequence[GenerateRequest], sampling: Sampling, stop_ids: Sequence[int]) -> list[Generation]:
        """Greedy at temperature 0, else inverse CDF (filters are not applied)."""
        generations = []
        for request in requests:
            stream = np.random.Generator(np.random.Philox(key=request.seed)).random(request.max_tokens)
            ids: list[int] = []
            reason = "length"
            for uniform in stream:
                logprobs = self._logprobs([*request.prompt_ids, *ids])
                if sampling.temperature == 0:
                    token = int(logprobs.argmax())
                else:
                    cumulative = np.exp(logprobs / sampling.temperature).cumsum()
                    token = int((cumulative > uniform * cumulative[-1]).argmax())
                ids.append(token)
                if token in stop_ids:
                    reason = "stop"
                    break
            generations.append(Generation(ids, reason))
        return generations

    def score(self, requests: Sequence[ScoreRequest], candidates: Sequence[int]) -> list[np.ndarray]:
        """One prefix at a time."""
        return [np.stack([self._logprobs(prefix)[list(candidates)] for prefix in request.prefixes()]) for request in requests]
