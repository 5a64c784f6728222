"""One server per model for the time of a run (``jobs.engines: service``).

The first job that needs the model starts a keeper (this module as a program), and later ones find it by its address. The keeper holds the server
until the run is over: it looks after the process of Snakemake that owns it, and stops when that is gone, however it went.

Snakemake's own services are started together with all jobs that use them, which must fit on the machine at once and may not depend on each
other. The jobs of a study do neither.
"""

import contextlib
import ctypes
import fcntl
import importlib.util
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

from midtrace import devices, engines, memory
from midtrace.engines import VLLM_BY, Engine
from midtrace.engines.server import session_for
from midtrace.errors import InputError
from midtrace.tables import write_json

START_SECONDS = 3600.0  # until the model answers: large ones are read for minutes
LOOK_SECONDS = 1.0
END_SECONDS = 30.0  # between asking the server to stop and killing it


def reach(
    model: Mapping[str, Any], threads: int, machine: Mapping[str, Any], address: str | Path, log: str | Path, owner: Mapping[str, Any]
) -> Engine:
    """The engine of a model that is served, started now if it is not.

    Parameters
    ----------
    model
        Settings of a model of engine ``vllm``.
    threads, machine
        As for the engine in process; see :func:`midtrace.engines.load`.
    address
        JSON file that is there as long as the model answers: ``url``, ``keeper`` and ``owner``, each process as by :func:`process`.
    log
        What the server says.
    owner
        The process whose end ends the server.

    Raises
    ------
    InputError
        If the server ends before it answers, or does not in an hour.
    """
    address, log = Path(address).absolute(), Path(log).absolute()
    for path in (address, log):
        path.parent.mkdir(parents=True, exist_ok=True)
    with address.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several jobs that need the model, one starts it and the others wait
        url = _found(address, owner) or _start(model, threads, machine, address, log, owner)
    return engines.load({**model, "engine": "server"}, machine={"url": url})


def _found(address: Path, owner: Mapping[str, Any]) -> str | None:
    """The url of a server that is kept for this owner."""
    try:
        known = json.loads(address.read_text(encoding="utf-8"))
        return known["url"] if known["owner"] == dict(owner) and is_alive(known["keeper"]) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _start(model: Mapping[str, Any], threads: int, machine: Mapping[str, Any], address: Path, log: Path, owner: Mapping[str, Any]) -> str:
    if importlib.util.find_spec("vllm") is None:
        raise InputError("config", "models.*.engine", "'vllm' cannot be imported (no such package)", VLLM_BY)
    address.unlink(missing_ok=True)
    print(f"starting a server of {model['source']} for this run; it says in {log} what it does, or which GPUs it waits for", flush=True)
    asked = {"model": dict(model), "address": str(address), "threads": threads, "machine": dict(machine), "owner": dict(owner)}
    with log.open("w", encoding="utf-8") as output:
        command = [sys.executable, "-m", "midtrace.serving"]
        keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, text=True)
    assert keeper.stdin is not None
    with keeper.stdin as pipe:
        json.dump(asked, pipe)
    while (url := _found(address, owner)) is None:
        if keeper.poll() is not None:
            problem = f"the server ended before it answered; its last words are in {log}"
            raise InputError(model["source"], "engine vllm", problem, "a dtype, context and machine settings with which it runs here")
        time.sleep(LOOK_SECONDS / 4)
    return url


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


def keep(model: Mapping[str, Any], address: str, threads: int, machine: Mapping[str, Any], owner: Mapping[str, Any]) -> None:
    """Hold a server until its owner is gone; the body of the keeper."""
    with _server(model, threads, machine, owner) as (url, server):
        end = time.monotonic() + START_SECONDS
        while not _answers(url):
            if server.poll() is not None or not is_alive(owner) or time.monotonic() > end:
                sys.exit(1)
            time.sleep(LOOK_SECONDS)
        write_json({"url": url, "keeper": process(os.getpid()), "owner": dict(owner)}, address)
        try:
            while is_alive(owner) and server.poll() is None:
                time.sleep(LOOK_SECONDS)
        finally:
            Path(address).unlink(missing_ok=True)


@contextlib.contextmanager
def _server(model: Mapping[str, Any], threads: int, machine: Mapping[str, Any], owner: Mapping[str, Any]) -> Iterator[tuple[str, subprocess.Popen]]:
    """A vLLM server on a free port of this machine; it ends with the block, or with this process."""
    from midtrace.engines import vllm

    machine = {key: value for key, value in machine.items() if key not in memory.KEYS}
    devices.claim(machine.get("tensor_parallel_size", 1), wanted=lambda: is_alive(owner))
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
        return session_for(url).get(f"{url}/health", timeout=5).status_code == 200
    except http.RequestException:
        return False


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    keep(**json.load(sys.stdin))
