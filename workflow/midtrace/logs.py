"""One log set-up for all scripts: everything a job prints goes to its log, progress also to the terminal, a user's mistake is one line."""

import contextlib
import errno
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar

from tqdm import tqdm

from midtrace.errors import WRITABLE, InputError

T = TypeVar("T")
_terminal: TextIO = sys.stderr
PROGRESS_SECONDS = 5.0
# What disks and users' rights do to any open file: no error of ours.
DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO, errno.ESTALE}


@contextlib.contextmanager
def to_log(path: str | Path) -> Iterator[None]:
    """Send file descriptors 1 and 2 to ``path`` (children included); errors are written there and shown on the terminal."""
    global _terminal
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    _terminal = os.fdopen(os.dup(2), "w", buffering=1)
    with open(path, "w", encoding="utf-8", buffering=1) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            yield
        except InputError as error:
            _end(f"midtrace: error: {error}")
        except KeyboardInterrupt:
            _end("midtrace: interrupted")
        except OSError as error:
            if error.errno not in DISK:
                _internal(error, path)
            _end(f"midtrace: error: {InputError(error.filename or 'a file', 'file', os.strerror(error.errno), WRITABLE)}")
        except Exception as error:
            _internal(error, path)


def _end(message: str) -> NoReturn:
    """The last words of a job. The log may lie on the disk that is full."""
    print(message, file=_terminal)
    with contextlib.suppress(OSError):
        print(message, file=sys.stderr)
    sys.exit(1)


def _internal(error: Exception, path: str | Path) -> NoReturn:
    with contextlib.suppress(OSError):
        traceback.print_exc()
    print(f"midtrace: internal error: {type(error).__name__}: {error} (traceback in {path})", file=_terminal)
    sys.exit(1)


class _Lines:
    """Turns tqdm's redrawn line into lines of their own, for logs and for several jobs on one terminal."""

    last = ""

    def write(self, text: str) -> None:
        line = text.strip("\r\n \x1b[A")
        if line and line != self.last:  # closing a bar draws it once more
            self.last = line
            print(line, file=_terminal, flush=True)
            if _terminal is not sys.stderr:
                print(line, file=sys.stderr, flush=True)

    def flush(self) -> None:
        _terminal.flush()


class _Steady(tqdm):
    """Goes by a clock that nobody sets."""

    @property
    def _time(self) -> Callable[[], float]:
        return time.monotonic

    @_time.setter
    def _time(self, _: object) -> None:
        """Tqdm would put the clock on the wall there."""


class Progress:
    """Says what is done, how far, how fast and how long still, at most every few seconds."""

    def __init__(self, what: str, total: int, unit: str, done: int = 0):
        self._bar = _Steady(total=total, initial=done, desc=what, unit=unit, file=_Lines(), mininterval=PROGRESS_SECONDS, ncols=100, ascii=True)

    def add(self, n: int) -> None:
        """Count ``n`` more as done."""
        self._bar.update(n)

    def close(self) -> None:
        """Print the last line."""
        self._bar.close()


def batches(work: Sequence[T], size: int, what: str, unit: str) -> Iterator[Sequence[T]]:
    """``work`` in portions of ``size``, with their progress."""
    bar = Progress(what, len(work), unit)
    for start in range(0, len(work), size):
        chosen = work[start : start + size]
        yield chosen
        bar.add(len(chosen))
    bar.close()


class _Slow(_Steady):
    """Says nothing in its first seconds, whoever asks."""

    def refresh(self, *arguments: Any, **options: Any) -> Any:
        return super().refresh(*arguments, **options) if self.format_dict["elapsed"] >= PROGRESS_SECONDS else None


def bar(*work: Any, **options: Any) -> tqdm:
    """A tqdm bar in lines of its own, for work inside a batch; silent where that takes a few seconds only."""
    shown = {"file": _Lines(), "mininterval": PROGRESS_SECONDS, "ncols": 100, "dynamic_ncols": False, "ascii": True, "leave": False}
    return _Slow(*work, **{**options, **shown})
