"""Sampling by inverse CDF from a stream of uniform numbers that belongs to the request."""

import numpy as np
import torch

from midtrace.engines import Sampling


def uniforms(seed: int, n: int) -> np.ndarray:
    """The first ``n`` uniform numbers of a request's stream; number ``t`` decides its token ``t``."""
    return np.random.Generator(np.random.Philox(key=seed)).random(n)


def pick(logits: torch.Tensor, uniform: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """One token per row.

    Parameters
    ----------
    logits
        Shape (rows, vocabulary).
    uniform
        Shape (rows,), each in [0, 1); float64.
    sampling
        Filters are applied in the order temperature, min-p, top-k, top-p, as vLLM does.

    Returns
    -------
    torch.Tensor
        Token ids, shape (rows,): the argmax at temperature 0, else the smallest id whose cumulative probability exceeds ``uniform``.
    """
    if sampling.temperature == 0:
        return logits.argmax(-1)
    probabilities = filtered(logits.double() / sampling.temperature, sampling)
    cumulative = probabilities.cumsum(-1)
    target = uniform[:, None] * cumulative[:, -1:]
    return (cumulative > target).int().argmax(-1)


def filtered(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Probabilities after min-p, top-k and top-p, each on what the one before left; those of the tokens that are left may sum to less than 1."""
    if sampling.min_p > 0:
        probabilities = logits.softmax(-1)
        logits = logits.masked_fill(probabilities < sampling.min_p * probabilities.amax(-1, keepdim=True), -torch.inf)
    if 0 < sampling.top_k < logits.shape[-1]:
        smallest = logits.topk(sampling.top_k).values[:, -1:]
        logits = logits.masked_fill(logits < smallest, -torch.inf)
    probabilities = logits.softmax(-1)
    if sampling.top_p < 1:
        ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
        before = ordered.cumsum(-1) - ordered
        probabilities = probabilities.masked_fill(torch.zeros_like(order, dtype=torch.bool).scatter(-1, order, before >= sampling.top_p), 0.0)
    return probabilities
