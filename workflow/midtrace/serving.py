"""One server per model for the time of a run (``jobs.engines: service``).

Snakemake's own services run at once with all jobs that use them, which must fit on the machine together and may not depend on each other; a
study's jobs do neither. So the job of the rule ``serve_model`` starts a keeper (this module as a program) and ends when the model answers. The
keeper holds the server until the run is over: it looks after the process of Snakemake that owns it, and stops when that is gone, however it went.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import requests as http

from midtrace import engines
from midtrace.engines import Engine
from midtrace.errors import InputError

START_SECONDS = 3600.0  # until the model answers: large ones are read for minutes
LOOK_SECONDS = 1.0
END_SECONDS = 30.0  # between asking the server to stop and killing it


def start(model: Mapping[str, Any], address: str | Path, log: str | Path, threads: int, machine: Mapping[str, Any], owner: Mapping[str, Any]) -> None:
    """Start a keeper and its server, and wait until the model answers.

    Parameters
    ----------
    model
        Settings of a model of engine ``vllm``.
    address
        JSON file that is written when the model answers, and removed when the server ends: ``url``, ``keeper`` and ``owner``, each process by
        ``pid`` and ``created``.
    log
        What the server says.
    threads, machine
        As for the engine in process; see :func:`midtrace.engines.load`.
    owner
        The process whose end ends the server; see :func:`process`.

    Raises
    ------
    InputError
        If the server ends, or does not answer in an hour.
    """
    address, log = Path(address).absolute(), Path(log).absolute()
    for path in (address, log):
        path.parent.mkdir(parents=True, exist_ok=True)
    address.unlink(missing_ok=True)
    asked = {"model": dict(model), "address": str(address), "threads": threads, "machine": dict(machine), "owner": dict(owner)}
    with log.open("w") as output:
        command = [sys.executable, "-m", "midtrace.serving"]
        keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, text=True)
    assert keeper.stdin is not None
    with keeper.stdin as pipe:
        json.dump(asked, pipe)
    while not address.exists():
        if keeper.poll() is not None:
            problem = f"the server ended before it answered; its last words are in {log}"
            raise InputError(model["source"], "engine vllm", problem, "a dtype, context and machine settings with which it runs here")
        time.sleep(LOOK_SECONDS / 4)


def process(pid: int) -> dict[str, Any]:
    """What identifies a process: numbers are used again, numbers with the time of the start are not."""
    return {"pid": pid, "created": psutil.Process(pid).create_time()}


def is_alive(known: Mapping[str, Any]) -> bool:
    """Whether a process of :func:`process` still runs."""
    try:
        found = psutil.Process(known["pid"])
        return found.create_time() == known["created"] and found.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def forget_dead(folder: str | Path) -> None:
    """Remove the addresses of servers that are gone: a keeper that was killed leaves its own."""
    for path in Path(folder).glob("*.json"):
        try:
            known = json.loads(path.read_text())
            dead = not (is_alive(known["keeper"]) and is_alive(known["owner"]))
        except (OSError, ValueError, KeyError, TypeError):
            dead = True
        if dead:
            path.unlink(missing_ok=True)


def load(model: Mapping[str, Any], address: str | Path) -> Engine:
    """The engine behind an address.

    Raises
    ------
    InputError
        If the address is gone: so is the server.
    """
    try:
        url = json.loads(Path(address).read_text())["url"]
    except (OSError, ValueError, KeyError):
        raise InputError(address, "url", "the server of this model is gone", "run again: it is started anew") from None
    return engines.load({**model, "engine": "server"}, machine={"url": url})


def keep(model: Mapping[str, Any], address: str, threads: int, machine: Mapping[str, Any], owner: Mapping[str, Any]) -> None:
    """Hold a server until its owner is gone; the body of the keeper."""
    with _server(model, threads, machine) as (url, server):
        end = time.monotonic() + START_SECONDS
        while not _answers(url):
            if server.poll() is not None or not is_alive(owner) or time.monotonic() > end:
                sys.exit(1)
            time.sleep(LOOK_SECONDS)
        path = Path(address)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        temporary.write_text(json.dumps({"url": url, "keeper": process(os.getpid()), "owner": dict(owner)}) + "\n")
        os.replace(temporary, path)
        try:
            while is_alive(owner) and server.poll() is None:
                time.sleep(LOOK_SECONDS)
        finally:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _server(model: Mapping[str, Any], threads: int, machine: Mapping[str, Any]) -> Iterator[tuple[str, subprocess.Popen]]:
    """A vLLM server on a free port of this machine; it ends with the block, or with this process."""
    from midtrace.engines import vllm

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", model["source"]]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *options, *vllm.server_arguments(model, **machine)]
    environment = os.environ | vllm.environment(threads)
    server = subprocess.Popen(command, env=environment, start_new_session=True, preexec_fn=_die_with_parent)
    try:
        yield f"http://127.0.0.1:{port}", server
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _answers(url: str) -> bool:
    try:
        return http.get(f"{url}/health", timeout=5).status_code == 200
    except http.RequestException:
        return False


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    keep(**json.load(sys.stdin))
