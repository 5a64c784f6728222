"""One log set-up for all scripts: everything a job prints goes to its log, progress also to the terminal, a user's mistake is one line."""

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

from midtrace.errors import InputError

_terminal: TextIO = sys.stderr
PROGRESS_SECONDS = 5.0


@contextlib.contextmanager
def to_log(path: str | Path) -> Iterator[None]:
    """Send file descriptors 1 and 2 to ``path`` (children included); errors are written there and shown on the terminal."""
    global _terminal
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    _terminal = os.fdopen(os.dup(2), "w", buffering=1)
    with open(path, "w", buffering=1) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            yield
        except InputError as error:
            message = f"midtrace: error: {error}"
            print(message, file=sys.stderr)
            print(message, file=_terminal)
            sys.exit(1)
        except Exception as error:
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


class Progress:
    """Says what is done, how far, how fast and how long still, at most every few seconds."""

    def __init__(self, what: str, total: int, unit: str, done: int = 0):
        self._bar = tqdm(total=total, initial=done, desc=what, unit=unit, file=_Lines(), mininterval=PROGRESS_SECONDS, ncols=100, ascii=True)

    def add(self, n: int) -> None:
        """Count ``n`` more as done."""
        self._bar.update(n)

    def close(self) -> None:
        """Print the last line."""
        self._bar.close()


class _Slow(tqdm):
    """Says nothing in its first seconds, whoever asks."""

    def refresh(self, *arguments: Any, **options: Any) -> Any:
        return super().refresh(*arguments, **options) if self.format_dict["elapsed"] >= PROGRESS_SECONDS else None


def bar(*work: Any, **options: Any) -> tqdm:
    """A tqdm bar in lines of its own, for work inside a batch; silent where that takes a few seconds only."""
    shown = {"file": _Lines(), "mininterval": PROGRESS_SECONDS, "ncols": 100, "dynamic_ncols": False, "ascii": True, "leave": False}
    return _Slow(*work, **{**options, **shown})
