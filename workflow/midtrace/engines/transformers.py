"""The Transformers engine: exact, simple, runs anywhere.

Generation is batched with left padding. Batch composition moves float32 logits by about 1e-6, which now and then flips a sampled token; in
float64, which small models can afford, a request gives the same tokens in any batch. Scoring reads all cuts and closings of a trace from one
prefill where the model allows that exactly: see :mod:`midtrace.engines.scoring`.
"""

import inspect
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, DynamicCache

from midtrace.engines import GenerateRequest, Generation, Sampling, ScoreRequest, positions, scoring
from midtrace.engines.sampling import pick, uniforms
from midtrace.errors import InputError

# The new name of this argument is unknown to the older releases in our range.
warnings.filterwarnings("ignore", message=".*past_key_values.*deprecated", category=FutureWarning)

PADDING = 1.25  # prompts of one batch differ in length by at most this factor: what is padded is computed for nothing


class TransformersEngine:
    """Causal language model, from a folder or a hub id."""

    def __init__(self, source: str, dtype: str, revision: str | None = None, threads: int = 1):
        torch.set_num_threads(threads)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            model: Any = AutoModelForCausalLM.from_pretrained(source, revision=revision, dtype=getattr(torch, dtype))
        except OSError as error:  # no weights, no such repository, gated, offline
            raise InputError(source, "model", f"cannot be loaded ({str(error).split(chr(10))[0]})", "a folder or hub id with weights") from None
        except (ValueError, ImportError) as error:  # no causal model, unknown to this release, or in need of what is not installed
            problem = f"cannot be loaded ({' '.join(str(error).split())[:200]})"
            raise InputError(source, "architectures", problem, "a causal language model that this Transformers knows") from None
        if "position_ids" not in inspect.signature(model.forward).parameters:
            kind = type(model).__name__
            raise InputError(source, "architectures", f"{kind} takes no positions, so rows cannot be padded", "a causal model with attention")
        self.model = model.to(self.device).eval()
        self.schemes = positions.schemes(self.model.config)
        self.facts: dict[str, Any] = {"engine": "transformers", "engine_version": transformers.__version__, "dtype": dtype, "device": self.device}

    @torch.inference_mode()
    def generate(self, requests: Sequence[GenerateRequest], sampling: Sampling, stop_ids: Sequence[int]) -> list[Generation]:
        """Continue all requests, those of about the same length together.

        Where rotations depend on the length of a forward, together only as far as they do not; beyond, each request by itself.
        """
        if self.schemes:
            return self._generate_by_stages(requests, sampling, stop_ids)
        return self._generate_together(requests, sampling, stop_ids)

    def _generate_together(self, requests: Sequence[GenerateRequest], sampling: Sampling, stop_ids: Sequence[int]) -> list[Generation]:
        found: dict[int, Generation] = {}
        waiting = sorted(range(len(requests)), key=lambda k: len(requests[k].prompt_ids))
        while waiting:
            longest = len(requests[waiting[0]].prompt_ids) * PADDING
            together = [k for k in waiting if len(requests[k].prompt_ids) <= longest]
            found |= zip(together, self._generate([requests[k] for k in together], sampling, stop_ids), strict=True)
            waiting = waiting[len(together) :]
        return [found[k] for k in range(len(requests))]

    def _generate_by_stages(self, requests: Sequence[GenerateRequest], sampling: Sampling, stop_ids: Sequence[int]) -> list[Generation]:
        limit = min(scheme.limit for scheme in self.schemes)
        # The last of these tokens follows a forward of ``limit`` tokens.
        short = [replace(r, max_tokens=max(0, min(r.max_tokens, limit - len(r.prompt_ids) + 1))) for r in requests]
        positions.forget(self.model)
        begun = self._generate_together(short, sampling, stop_ids)
        return [
            one if one.finish_reason == "stop" or len(one.ids) == request.max_tokens else self._go_on(request, one.ids, sampling, stop_ids)
            for request, one in zip(requests, begun, strict=True)
        ]

    def _go_on(self, request: GenerateRequest, begun: Sequence[int], sampling: Sampling, stop_ids: Sequence[int]) -> Generation:
        """Continue one request after the tokens that it has, each as after a forward of all before it.

        What the cache holds is of use as long as the rotations stay what they were; when they change, everything is computed again.
        """
        ids, stream = [*request.prompt_ids, *begun], torch.tensor(uniforms(request.seed, request.max_tokens)).to(self.device)
        cache, seen, stages = None, 0, None
        positions.forget(self.model)
        for step in range(len(begun), request.max_tokens):
            now = [scheme.stage(len(ids)) for scheme in self.schemes]
            if cache is None or now != stages:
                cache, seen, stages = DynamicCache(config=self.model.config), 0, now
            new = torch.tensor([ids[seen:]], dtype=torch.long, device=self.device)
            at = torch.arange(seen, len(ids), device=self.device)[None]
            logits = self.model(input_ids=new, position_ids=at, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1]
            seen = len(ids)
            ids += pick(logits, stream[step : step + 1], sampling).tolist()
            if ids[-1] in stop_ids:
                return Generation(ids[len(request.prompt_ids) :], "stop")
        return Generation(ids[len(request.prompt_ids) :], "length")

    def _generate(self, requests: Sequence[GenerateRequest], sampling: Sampling, stop_ids: Sequence[int]) -> list[Generation]:
        """Continue the requests as one batch; finished rows leave it."""
        width = max(len(r.prompt_ids) for r in requests)
        ids = torch.zeros((len(requests), width), dtype=torch.long)
        mask = torch.zeros((len(requests), width), dtype=torch.long)
        for row, request in enumerate(requests):
            ids[row, width - len(request.prompt_ids) :] = torch.tensor(request.prompt_ids)
            mask[row, width - len(request.prompt_ids) :] = 1
        streams = torch.tensor(np.stack([uniforms(r.seed, max(r.max_tokens for r in requests)) for r in requests]))
        limits = torch.tensor([r.max_tokens for r in requests])
        stops = torch.tensor(list(stop_ids), dtype=torch.long)
        ids, mask, streams, limits, stops = (t.to(self.device) for t in (ids, mask, streams, limits, stops))
        rows = torch.arange(len(requests), device=self.device)  # which request each batch row is
        outputs: list[list[int]] = [[] for _ in requests]
        reasons = ["length"] * len(requests)
        cache = DynamicCache(config=self.model.config)
        positions = mask.cumsum(-1).sub(1).clamp(min=0)
        step, going = 0, limits > 0
        while True:
            if not going.all():
                kept = going.nonzero()[:, 0]
                rows, ids, positions, mask = rows[kept], ids[kept], positions[kept], mask[kept]
                if not len(rows):
                    break
                if step:
                    cache.reorder_cache(kept)  # type: ignore[arg-type]  # keeps these rows; every kind of layer knows how
            logits = self.model(
                input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=1
            ).logits[:, -1]
            tokens = pick(logits, streams[rows, step], sampling)
            stopped = torch.isin(tokens, stops)
            for row, token, stop in zip(rows.tolist(), tokens.tolist(), stopped.tolist(), strict=True):
                outputs[row].append(token)
                if stop:
                    reasons[row] = "stop"
            step += 1
            going = ~stopped & (limits[rows] > step)
            ids, positions = tokens[:, None], positions[:, -1:] + 1
            mask = torch.cat([mask, mask.new_ones((len(mask), 1))], -1)
        return [Generation(output, reason) for output, reason in zip(outputs, reasons, strict=True)]

    @cached_property
    def way(self) -> scoring.Way:
        """How this model's prefixes are read; found at the first score."""
        return scoring.way_of(self.model, self.schemes)

    def score(self, requests: Sequence[ScoreRequest], candidates: Sequence[int]) -> list[np.ndarray]:
        """Log-probabilities of ``candidates`` after each closed prefix; float32 log-softmax (float64 for a float64 model)."""
        return scoring.score(self.model, requests, candidates, self.way, self.schemes)
