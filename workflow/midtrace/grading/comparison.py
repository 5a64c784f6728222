"""Comparing mathematical answers, by math-verify in a process of its own: only there does a time limit hold in every thread, and for every answer.

math-verify's own time-outs are signals, which only the main thread of a process can have.
"""

import atexit
import contextlib
import json
import os
import resource
import select
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

SECONDS = 5.0  # a comparison that takes longer, such as one of towers of powers, is not equal
STARTING_SECONDS = 120.0
MEMORY = 4 * 2**30  # bytes of address space
READY = "ready"


class Comparer:
    """A process that compares answers, one at a time; started when first used, killed when it takes too long, and started again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0
        atexit.register(self.close)

    def equal(self, gold: str, answer: str) -> bool:
        """Whether an answer equals the gold one. False if the comparison fails or is not done in time."""
        with self._lock:
            if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
                self._start()
            process = self._process
            assert process and process.stdin
            try:
                process.stdin.write(json.dumps([gold, answer]) + "\n")
                process.stdin.flush()
                reply = self._reply(SECONDS)
            except BrokenPipeError:  # it died: of memory, most likely
                reply = None
            if reply is None:
                self.close()
            return reply == "true"

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    assert pipe
                    pipe.close()

    def _start(self) -> None:
        root = str(Path(__file__).parents[2])
        paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"PYTHONPATH": paths},
        )
        self._owner = os.getpid()
        if self._reply(STARTING_SECONDS) != READY:
            self.close()
            raise RuntimeError("the process that compares answers does not start")

    def _reply(self, seconds: float) -> str | None:
        """The next line that the process says; None if it says none in time."""
        assert self._process and self._process.stdout
        readable, _, _ = select.select([self._process.stdout], [], [], seconds)
        return (self._process.stdout.readline().strip() or None) if readable else None


_comparer = Comparer()


def same(gold: str, answer: str) -> bool:
    """Whether math-verify finds an expression equal to the gold one. False if it fails, or is not done in time."""
    return _comparer.equal(gold, answer)


def serve(requests: IO[str], replies: IO[str]) -> None:
    """Compare pairs, one JSON list a line, until there are no more. The gold one comes first: math-verify is not symmetric."""
    from math_verify import parse, verify

    with contextlib.suppress(ValueError, OSError):  # not every system has this limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    print(READY, file=replies, flush=True)
    for line in requests:
        try:
            gold, answer = (parse(f"${side}$", parsing_timeout=None) for side in json.loads(line))
            equal = bool(verify(gold, answer, timeout_seconds=None))
        except Exception:  # sympy raises whatever it likes on what is no mathematics
            equal = False
        print(json.dumps(equal), file=replies, flush=True)


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
