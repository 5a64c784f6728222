"""Comparing two expressions by math-verify, in a process with limits of time and memory.

math-verify's own limits are signals, which only the main thread of a process can have. So it runs in a worker of a pool that kills what takes
too long and starts another.
"""

import atexit
import contextlib
import logging
import os
import resource
import sys
from collections.abc import Iterator
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType

from pebble import ProcessExpired, ProcessPool

SECONDS = 5.0  # a comparison that takes longer, such as one of towers of powers, is not equal
MEMORY = 4 * 2**30  # bytes of address space


class _Worker(SpawnProcess):
    """A process that does not import the main module of this one: it has no need of it, and not every script can be imported again."""

    def start(self) -> None:
        with _without_main():
            super().start()


class _Context(SpawnContext):
    Process = _Worker  # type: ignore[assignment]


def same(gold: str, answer: str) -> bool:
    """Whether math-verify finds an expression equal to the gold one. False if it fails, or is not done in five seconds or 4 GiB.

    Raises
    ------
    RuntimeError
        If no worker can be started.
    """
    for _ in range(2):
        try:
            return _pool(os.getpid()).schedule(_verify, (gold, answer), timeout=SECONDS).result()
        except (TimeoutError, ProcessExpired):  # it was killed, or died: of memory, most likely
            return False
        except (BrokenProcessPool, CancelledError, RuntimeError):  # the pool gives up when a worker dies that does nothing
            _pool.cache_clear()
    raise RuntimeError("the process that compares answers does not start")


@lru_cache(maxsize=1)
def _pool(owner: int) -> ProcessPool:
    """The worker of the process ``owner``, which is this one: a fork has no use for that of its parent."""
    pool = ProcessPool(max_workers=1, initializer=_prepare, context=_Context())  # type: ignore[arg-type]
    atexit.register(_close, pool, owner)
    return pool


def _close(pool: ProcessPool, owner: int) -> None:
    if owner == os.getpid():
        pool.stop()
        pool.join()


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _prepare() -> None:
    """Imports in a worker before it is timed."""
    import math_verify  # noqa: F401

    logging.disable(logging.CRITICAL)  # it warns at every call that its own limits are off
    with contextlib.suppress(ValueError, OSError):  # not every system has this limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _verify(gold: str, answer: str) -> bool:
    """In the worker. The gold one comes first: math-verify is not symmetric."""
    from math_verify import parse, verify

    try:
        wanted, found = (parse(f"${side}$", parsing_timeout=None) for side in (gold, answer))
        return bool(verify(wanted, found, timeout_seconds=None))
    except Exception:  # sympy raises whatever it likes on what is no mathematics
        return False
