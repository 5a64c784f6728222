"""The server engine against a stub that answers as told: what is sent, what is read, and every way in which a server can fail."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from helpers.served import free_port

from midtrace.engines import GenerateRequest, Generation, Sampling, ScoreRequest, load, neutral, server
from midtrace.engines.server import ServerEngine
from midtrace.errors import InputError

SAMPLING = Sampling(temperature=0.7, top_p=0.9, top_k=5, min_p=0.01)
CARD = {"id": "owner/name", "root": "owner/name", "owned_by": "vllm", "max_model_len": 100}
Answer = Callable[[dict[str, Any]], Any]


def logprob(prompt: list[int], token: int) -> float:
    """What the stub takes for the log-probability of a token: any function of prompt and token."""
    return -float(sum(prompt) + token) / 10


def complete(body: dict[str, Any]) -> dict[str, Any]:
    """As vLLM answers; what is sampled is the last id of the prompt, increasing, up to the number of tokens or a stop id."""
    choices = []
    for index, prompt in enumerate(body["prompt"]):
        ids = [prompt[-1] + 1 + step for step in range(body["max_tokens"])]
        stop = next((at for at, token in enumerate(ids) if token in body.get("stop_token_ids", [])), None)
        ids = ids if stop is None else ids[: stop + 1]
        choice = {"index": index, "token_ids": ids, "finish_reason": "length" if stop is None else "stop"}
        if wanted := body.get("logprob_token_ids"):
            choice["logprobs"] = {"top_logprobs": [{f"token_id:{token}": logprob(prompt, token) for token in wanted}]}
        choices.append(choice)
    return {"choices": choices[::-1]}  # their order is told by index


class Stub:
    """A server on this machine; ``answer`` makes the body of a completion, or raises what happens instead."""

    def __init__(self) -> None:
        self.answer: Answer = complete
        self.cards: Any = [CARD]
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def reply(self, status: int, content: Any) -> None:
                raw = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def do_GET(self) -> None:
                stub.keys.add(self.headers["Authorization"])
                self.reply(200, {"data": stub.cards}) if self.path == "/v1/models" else self.reply(404, {"detail": "Not Found"})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                stub.bodies.append(body)
                try:
                    self.reply(200, stub.answer(body))
                except FaultError as fault:
                    if fault.status is None:
                        self.close_connection = True
                        self.connection.close()
                    else:
                        self.reply(fault.status, fault.content)

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def engine(self, **machine: Any) -> ServerEngine:
        """The engine, asking this stub."""
        return ServerEngine("owner/name", "bfloat16", **{"url": self.url, **machine})


class FaultError(Exception):
    """An HTTP status with a body; without a status, the connection breaks off."""

    def __init__(self, status: int | None = None, content: Any = b""):
        self.status, self.content = status, content


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    """A stub, and hardly any time between tries."""
    monkeypatch.setattr(server, "BACKOFF", 0.001)
    found = Stub()
    yield found
    found.http.shutdown()
    found.http.server_close()


# What goes out and what comes back


def test_a_request_states_ids_seed_and_every_sampling_parameter(stub: Stub) -> None:
    engine = load({"engine": "server", "source": "owner/name", "dtype": "bfloat16"}, machine={"url": stub.url})
    assert engine.generate([GenerateRequest([7, 8], 3, seed=2**63 - 1)], SAMPLING, [10, 4]) == [Generation([9, 10], "stop")]
    (body,) = stub.bodies
    assert (body["prompt"], body["max_tokens"], body["seed"], body["stop_token_ids"]) == ([[7, 8]], 3, 2**63 - 1, [10, 4])
    assert {name: body[name] for name in ("temperature", "top_p", "top_k", "min_p")} == vars(SAMPLING)
    assert (body["repetition_penalty"], body["presence_penalty"], body["frequency_penalty"], body["min_tokens"]) == (1.0, 0.0, 0.0, 0)
    assert body["ignore_eos"] and body["return_token_ids"] and not body["add_special_tokens"]
    assert engine.facts == {"engine": "server", "engine_version": "vllm unknown", "dtype": "bfloat16", "device": "server"}


def test_results_come_in_the_order_of_the_requests_whatever_ends_first(stub: Stub) -> None:
    def answer(body: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.2 if body["prompt"][0] == [1] else 0)
        return complete(body)

    stub.answer = answer
    found = stub.engine(concurrency=4).generate([GenerateRequest([n], 2) for n in (1, 2, 3)], SAMPLING, [])
    assert [generation.ids for generation in found] == [[2, 3], [3, 4], [4, 5]]


def test_nothing_to_write_is_not_asked_for(stub: Stub) -> None:
    assert stub.engine().generate([GenerateRequest([1], 0), GenerateRequest([1], 1)], SAMPLING, []) == [
        Generation([], "length"),
        Generation([2], "length"),
    ]
    assert stub.engine().generate([], SAMPLING, []) == []
    assert len(stub.bodies) == 1


def test_scores_of_many_cuts_and_candidates_are_put_together(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PROMPTS", 2)
    requests = [ScoreRequest([1, 2, 3], [3, 0, 1], [9]), ScoreRequest([4], [1], [9])]
    candidates = list(range(300, 0, -2))
    first, second = stub.engine().score(requests, candidates)
    expected = [[logprob(prefix, token) for token in candidates] for prefix in ([1, 2, 3, 9], [9], [1, 9])]
    np.testing.assert_array_equal(first, expected)
    np.testing.assert_array_equal(second, [[logprob([4, 9], token) for token in candidates]])
    assert max(len(body["logprob_token_ids"]) for body in stub.bodies) == neutral.MAX_CANDIDATES
    assert max(len(body["prompt"]) for body in stub.bodies) == 2
    assert {(body["max_tokens"], body["temperature"]) for body in stub.bodies} == {(1, 0.0)}


def test_the_floor_is_minus_infinity(stub: Stub) -> None:
    stub.answer = lambda body: {
        "choices": [{"index": 0, "token_ids": [1], "logprobs": {"top_logprobs": [{"token_id:3": -9999.0, "token_id:4": -0.5}]}}]
    }
    (found,) = stub.engine().score([ScoreRequest([1], [1], [2])], [3, 4])
    assert found.tolist() == [[-np.inf, -0.5]]


def test_the_key_comes_from_the_environment(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "secret")
    stub.engine(api_key_variable="A_KEY")
    assert stub.keys == {"Bearer secret"}
    monkeypatch.delenv("A_KEY")
    with pytest.raises(InputError, match=r"api_key_variable: 'A_KEY' is not set"):
        stub.engine(api_key_variable="A_KEY")


# Another model


@pytest.mark.parametrize(
    ("cards", "said"),
    [
        ([{**CARD, "id": "other"}], r"model: 'owner/name' is not served; allowed: other"),
        ([], r"model: 'owner/name' is not served; allowed: none"),
        (None, r"/v1/models: answers in another form; allowed: .*OpenAI"),
        (["m"], r"/v1/models: answers in another form"),
        ([{"x": 1}], r"/v1/models: answers in another form"),
        ([{**CARD, "root": "owner/other"}], r"model: 'owner/name' is owner/other; allowed: owner/name, the source of the model"),
    ],
)
def test_another_model_is_refused(stub: Stub, cards: Any, said: str) -> None:
    stub.cards = cards
    with pytest.raises(InputError, match=said):
        stub.engine()


def test_a_folder_of_the_server_says_nothing_about_a_hub_id(stub: Stub) -> None:
    stub.cards = [{**CARD, "id": "mine", "root": "/models/name"}]
    assert stub.engine(served_model_name="mine").facts["engine"] == "server"


# Faults


def ask(engine: ServerEngine) -> list[Generation]:
    return engine.generate([GenerateRequest([1], 2, seed=5)], SAMPLING, [])


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "BACKOFF", 0.001)
    with pytest.raises(InputError, match=r"connection: cannot be reached after 7 tries \(ConnectionError\); allowed: the url of a running server"):
        ServerEngine("owner/name", "float32", url=f"http://127.0.0.1:{free_port()}")


def test_a_connection_that_breaks_off_is_tried_again(stub: Stub) -> None:
    def answer(body: dict[str, Any]) -> dict[str, Any]:
        if len(stub.bodies) < 3:
            raise FaultError
        return complete(body)

    stub.answer = answer
    assert ask(stub.engine()) == [Generation([2, 3], "length")]
    assert len(stub.bodies) == 3 and stub.bodies[0] == stub.bodies[2]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (FaultError(400, {"error": {"message": "top_k is  wrong"}}), r"/v1/completions: HTTP 400 \(top_k is wrong\); allowed: "),
        (FaultError(401, {"error": "no"}), r"HTTP 401; allowed"),
        (FaultError(404, {"detail": "Not Found"}), r"HTTP 404; allowed"),
        (FaultError(500, {"error": {"message": "x" * 999}}), r"HTTP 500 \(x{200}\); allowed"),
        (FaultError(503, b"<html>"), r"HTTP 503; allowed"),
        (FaultError(200, b"<html>"), r"HTTP 200; allowed"),
        (FaultError(200, {"choices": []}), r"return_token_ids: the server returns no token ids"),
        (
            FaultError(200, {"choices": [{"index": 0, "text": "B", "finish_reason": "stop"}]}),
            r"return_token_ids: the server returns no token ids; allowed: vLLM",
        ),
        (
            FaultError(200, {"choices": [{"index": 0, "token_ids": [4, 2], "finish_reason": "stop"}]}),
            r"generation_config: the server stopped at token 2",
        ),
        (
            FaultError(200, {"choices": [{"index": 0, "token_ids": [4], "finish_reason": "abort"}]}),
            r"finish_reason: is 'abort'; allowed: stop, length",
        ),
        *(
            (FaultError(200, {"choices": choices}), r"return_token_ids: the server returns no token ids")
            for choices in (
                None,
                ["x"],
                *([{"index": 0, "token_ids": ids, "finish_reason": "stop"}] for ids in ("abc", ["a"], [1.5], [-5], [2**40], 5)),
            )
        ),
        (
            FaultError(200, {"choices": [{"index": 0, "token_ids": [4] * 100, "finish_reason": "length"}]}),
            r"token_ids: 100 ids that end by 'length' are no answer to a request of",
        ),
    ],
    ids=str,
)
def test_an_answer_that_cannot_be_used_is_one_clear_error_and_is_not_asked_for_again(stub: Stub, fault: FaultError, said: str) -> None:
    engine = stub.engine()

    def answer(_: Any) -> None:
        raise fault

    stub.answer = answer
    with pytest.raises(InputError, match=said):
        ask(engine)
    assert len(stub.bodies) == 1


def test_a_time_out_is_not_tried_again(stub: Stub) -> None:
    engine = stub.engine(timeout=0.3)

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        time.sleep(1)
        return complete(body)

    stub.answer = answer
    with pytest.raises(InputError, match=r"timeout: no answer within 0.3 s; allowed: a longer models.\*.machine.timeout"):
        ask(engine)
    assert len(stub.bodies) == 1


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (None, r"logprob_token_ids: the server does not return the log-probabilities of the candidates"),
        ({"top_logprobs": []}, r"logprob_token_ids: the server does not return"),
        ({"top_logprobs": [{"token_id:3": -1.0}]}, r"logprob_token_ids: the server does not return"),
        ({"top_logprobs": [{"A": -1.0, "B": -2.0}]}, r"logprob_token_ids: the server does not return"),
        ({"top_logprobs": [{"token_id:3": -1.0, "token_id:4": float("nan")}]}, r"logprob_token_ids: the server does not return"),
        ({"top_logprobs": [{"token_id:3": -1.0, "token_id:4": None}]}, r"logprob_token_ids: the server does not return"),
        ({"top_logprobs": [{"token_id:3": -1.0, "token_id:4": 7.5}]}, r"logprobs_mode: a log-probability is 7.5; allowed: .*raw_logprobs"),
    ],
)
def test_candidates_that_are_not_told_are_never_taken_for_improbable(stub: Stub, told: Any, said: str) -> None:
    stub.answer = lambda body: {"choices": [{"index": 0, "token_ids": [1], "logprobs": told}]}
    with pytest.raises(InputError, match=said):
        stub.engine().score([ScoreRequest([1], [1], [2])], [3, 4])


def test_what_the_server_cannot_take_is_not_sent(stub: Stub) -> None:
    with pytest.raises(InputError, match=r"max_model_len: 99 tokens and 2 more exceed what the server takes; allowed: together at most 100 tokens"):
        stub.engine().generate([GenerateRequest([1] * 99, 2)], SAMPLING, [])
    assert not stub.bodies


def test_the_first_failure_ends_the_batch(stub: Stub) -> None:
    def answer(body: dict[str, Any]) -> None:
        raise FaultError(500)

    stub.answer = answer
    with pytest.raises(InputError, match="HTTP 500"):
        stub.engine(concurrency=2).generate([GenerateRequest([n], 1) for n in range(100)], SAMPLING, [])
    assert len(stub.bodies) < 50
