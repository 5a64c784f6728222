"""The server engine: a running vLLM server, or one that speaks its dialect of ``/v1/completions``.

Prompts go out as token ids, and token ids and the log-probabilities of named candidates come back. What the server cannot do is an error, never a
guess: ids are not made from text, and candidates that are missing are not taken for improbable.
"""

import ipaddress
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import requests as http
from requests.adapters import HTTPAdapter

from midtrace import logs
from midtrace.engines import GREEDY, GenerateRequest, Generation, Sampling, ScoreRequest, neutral
from midtrace.errors import InputError

PROMPTS = 64  # prefixes of one trace in one HTTP request
RETRIES = 6  # after a connection that could not be made or broke off
BACKOFF = 0.5  # seconds before the first retry; doubled each time
FLOOR = -9999.0  # what vLLM writes for minus infinity, which JSON lacks
# Every parameter that shapes a result, so that the server's defaults do not. The stop ids are the dialect's alone.
NEUTRAL = {
    **neutral.NEUTRAL,
    "stream": False,
    "echo": False,
    "add_special_tokens": False,
    "return_token_ids": True,
    "return_tokens_as_token_ids": True,
}


def session_for(url: str) -> http.Session:
    """An HTTP session; one to this machine goes to it directly, whatever the proxies of the user's session are."""
    session = http.Session()
    try:
        host = urlsplit(url).hostname or ""
        session.trust_env = not (host == "localhost" or ipaddress.ip_address(host).is_loopback)
    except ValueError:  # a name, or no address at all: said when it is asked
        pass
    return session


class ServerEngine:
    """A served model.

    Parameters
    ----------
    source, dtype
        What the server is said to serve. It tells its name and, where it was started with the same path or id, the model; never its precision.
    url
        Of the server, without ``/v1``.
    api_key_variable
        Name of the environment variable that holds the key; None = no key.
    served_model_name
        Name under which the server offers the model; None = ``source``.
    concurrency
        HTTP requests in flight.
    timeout
        Seconds to wait for an answer.

    Raises
    ------
    InputError
        If the server cannot be reached, serves another model, or answers without ids or log-probabilities.
    """

    def __init__(
        self,
        source: str,
        dtype: str,
        url: str = "",
        api_key_variable: str | None = None,
        served_model_name: str | None = None,
        concurrency: int = 64,
        timeout: float = 600.0,
    ):
        self.url, self.name, self.concurrency, self.timeout = url.rstrip("/"), served_model_name or source, concurrency, timeout
        self.session = session_for(self.url)
        for scheme in ("http://", "https://"):
            self.session.mount(scheme, HTTPAdapter(pool_maxsize=concurrency))
        if api_key_variable:
            if not os.environ.get(api_key_variable):
                raise InputError("config", "models.*.machine.api_key_variable", f"{api_key_variable!r} is not set", "a variable of the environment")
            self.session.headers["Authorization"] = f"Bearer {os.environ[api_key_variable]}"
        card = self._served(source)
        self.context = card["max_model_len"] if isinstance(card.get("max_model_len"), int) else None
        version = self._ask("GET", "/version", missing={}).get("version", "unknown")
        self.facts: dict[str, Any] = {
            "engine": "server",
            "engine_version": f"{card.get('owned_by', 'unknown')} {version}",
            "dtype": dtype,
            "device": "server",
        }

    def _served(self, source: str) -> dict[str, Any]:
        """What the server says of the model; as far as it says, it must be the one that the config names."""
        try:
            cards = {str(card["id"]): card for card in self._ask("GET", "/v1/models").get("data", [])}
        except (KeyError, TypeError):
            raise InputError(self.url, "/v1/models", "answers in another form", "a server that lists its models as OpenAI's does") from None
        if self.name not in cards:
            raise InputError(self.url, "model", f"{self.name!r} is not served", cards)
        root = str(cards[self.name].get("root") or source)
        # A hub id says nothing about a folder, nor a folder on the server's machine about one on this.
        folders = Path(root).is_dir(), Path(source).is_dir()
        differ = Path(root).resolve() != Path(source).resolve() if all(folders) else root != source and not any(folders) and not root.startswith("/")
        if differ:
            raise InputError(self.url, "model", f"{self.name!r} is {root}", f"{source}, the source of the model")
        return cards[self.name]

    def generate(self, requests: Sequence[GenerateRequest], sampling: Sampling, stop_ids: Sequence[int]) -> list[Generation]:
        """Continue all requests, several at a time; the server batches them."""
        asked = [request for request in requests if request.max_tokens]

        def complete(request: GenerateRequest) -> Generation:
            stops = list(stop_ids)
            (choice,) = self._complete([request.prompt_ids], request.max_tokens, sampling, seed=request.seed, stop_token_ids=stops)
            ids, reason = choice["token_ids"], choice.get("finish_reason")
            if reason == "stop" and ids[-1] not in stops:
                problem = f"the server stopped at token {ids[-1]}, which the dialect does not"
                raise InputError(self.url, "generation_config", problem, "a server that was started with --generation-config vllm")
            if reason not in ("stop", "length"):
                raise InputError(self.url, "finish_reason", f"is {reason!r}", ("stop", "length"))
            if len(ids) > request.max_tokens or (reason == "length" and len(ids) < request.max_tokens) or set(ids[:-1]) & set(stops):
                problem = f"{len(ids)} ids that end by {reason!r} are no answer to a request of {request.max_tokens}"
                raise InputError(self.url, "token_ids", problem, "a server that stops at the ids it was given, and after max_tokens")
            return Generation(ids, reason)

        found = iter(self._map(complete, asked))
        return [next(found) if request.max_tokens else Generation([], "length") for request in requests]

    def score(self, requests: Sequence[ScoreRequest], candidates: Sequence[int]) -> list[np.ndarray]:
        """Log-probabilities of ``candidates`` after each closed prefix, as the server computes them."""
        scores = [np.empty((len(request.cuts), len(candidates))) for request in requests]
        jobs = [
            (number, rows, columns)
            for number, request in enumerate(requests)
            for rows in _slices(len(request.cuts), PROMPTS)
            for columns in _slices(len(candidates), neutral.MAX_CANDIDATES)
        ]

        def read(job: tuple[int, slice, slice]) -> None:
            number, rows, columns = job
            wanted, request = list(candidates[columns]), requests[number]
            prefixes = [[*request.trunk[:n], *request.suffix] for n in request.cuts[rows]]
            choices = self._complete(prefixes, 1, GREEDY, logprobs=1, logprob_token_ids=wanted)
            scores[number][rows, columns] = [self._logprobs(choice, wanted) for choice in choices]

        self._map(read, jobs)
        return scores

    def _logprobs(self, choice: dict[str, Any], wanted: list[int]) -> list[float]:
        try:
            told = choice["logprobs"]["top_logprobs"][0]
            values = [float(told[f"token_id:{token}"]) for token in wanted]
            if any(map(math.isnan, values)):
                raise ValueError
        except (KeyError, IndexError, TypeError, ValueError):
            problem = "the server does not return the log-probabilities of the candidates"
            raise InputError(self.url, "logprob_token_ids", problem, "vLLM 0.32 or newer, or a server that knows this parameter") from None
        if max(values) > 1e-6:
            raise InputError(
                self.url, "logprobs_mode", f"a log-probability is {max(values):g}", "a server that was started with --logprobs-mode raw_logprobs"
            )
        return [value if value > FLOOR else -np.inf for value in values]

    def _complete(self, prompts: Sequence[Sequence[int]], max_tokens: int, sampling: Sampling, **given: Any) -> list[dict[str, Any]]:
        """The choice for each prompt, with the ids that were sampled."""
        longest = max(map(len, prompts))
        if self.context and longest + max_tokens > self.context:
            problem = f"{longest} tokens and {max_tokens} more exceed what the server takes"
            raise InputError(self.url, "max_model_len", problem, f"together at most {self.context} tokens")
        body = {"model": self.name, "prompt": [list(prompt) for prompt in prompts], "max_tokens": max_tokens, **vars(sampling), **NEUTRAL, **given}
        try:
            choices = sorted(self._ask("POST", "/v1/completions", body)["choices"], key=lambda choice: choice["index"])
            whole = [choice["index"] for choice in choices] == list(range(len(prompts))) and all(_are_ids(choice["token_ids"]) for choice in choices)
        except (KeyError, TypeError):
            whole = False
        if not whole:
            raise InputError(
                self.url, "return_token_ids", "the server returns no token ids", "vLLM 0.32 or newer, or a server that knows this parameter"
            )
        return choices

    def _ask(self, method: str, path: str, body: Any = None, missing: Any = None) -> Any:
        """The JSON that the server answers; ``missing`` where it does not know the path. Only a connection that fails is tried again."""
        for attempt in range(RETRIES + 1):
            try:
                reply = self.session.request(method, self.url + path, json=body, timeout=self.timeout, allow_redirects=False)
                break
            except http.Timeout:
                raise InputError(self.url, "timeout", f"no answer within {self.timeout:g} s", "a longer models.*.machine.timeout") from None
            except (http.ConnectionError, http.exceptions.ChunkedEncodingError, http.exceptions.ContentDecodingError) as error:
                if attempt == RETRIES:
                    problem = f"cannot be reached after {RETRIES + 1} tries ({type(error).__name__})"
                    raise InputError(self.url, "connection", problem, "the url of a running server") from None
                time.sleep(BACKOFF * 2**attempt)
            except (ValueError, UnicodeError) as error:  # an address or a key that no request can carry; never shown
                problem = f"is no address, or the key is none ({type(error).__name__})"
                raise InputError("config", "models.*.machine", problem, "url: http://host:port, and a key of plain letters") from None
        if reply.status_code == 404 and missing is not None:
            return missing
        try:
            answer = reply.json()
        except http.JSONDecodeError:
            answer = None
        if reply.status_code != 200 or not isinstance(answer, dict):
            raise InputError(
                self.url, path, f"HTTP {reply.status_code}{_reason(answer)}", "a server that offers this path, and a request that it accepts"
            )
        return answer

    def _map(self, work: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
        """``work`` on all jobs, ``concurrency`` at a time, in order; the first failure ends it."""
        pool = ThreadPoolExecutor(self.concurrency)
        with logs.bar(total=len(jobs), desc="requests", unit="request") as bar:
            try:
                results = []
                for result in pool.map(work, jobs):
                    results.append(result)
                    bar.update()
                return results
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(type(token) is int and 0 <= token < 2**31 for token in value)


def _slices(length: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def _reason(answer: Any) -> str:
    """The server's own message, shortened: it may repeat what it was sent."""
    error = answer.get("error", answer) if isinstance(answer, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return f" ({' '.join(message.split())[:200]})" if isinstance(message, str) else ""
