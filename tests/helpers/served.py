"""A real vLLM server of the embedded model on this machine's CPU, for as long as a test session needs it."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START = 300.0  # seconds


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def vllm_server(model: Path, log: Path, *arguments: str) -> Iterator[str]:
    """Serve ``model`` under its folder's name; the url, once it answers. The server and its children end with the block."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    options = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", model.name, "--dtype", "float32", "--generation-config", "vllm"]
    environment = os.environ | {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "VLLM_NO_USAGE_STATS": "1"}
    # What `vllm serve` runs; the command itself of vllm-cpu 0.32.0 dies looking for the metadata of a package named vllm.
    server = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command = [*server, *options, "--enforce-eager", "--gpu-memory-utilization", "0.1", "--no-enable-chunked-prefill", *arguments]
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
    try:
        _wait(url, process, log)
        yield url
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(url: str, process: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5)
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise RuntimeError(f"vllm serve did not answer:\n{log.read_text(encoding='utf-8')[-4000:]}")
