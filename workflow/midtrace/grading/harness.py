"""What runs a model's program inside the sandbox: a script of its own that imports nothing of midtrace.

``harness.py PROGRAM`` runs a program as a script. ``harness.py PROGRAM FUNCTION`` calls a function with the JSON arguments on standard input,
one a line, and prints its value as JSON; what the program itself prints is dropped. Programs find what judges usually have imported already.
"""

import builtins
import json
import os
import select
import sys
from typing import Any

PRELUDE = """
import bisect, collections, copy, functools, heapq, itertools, json, math, operator, os, random, re, string, sys
from bisect import *
from collections import *
from copy import *
from functools import *
from heapq import *
from itertools import *
from math import *
from operator import *
from typing import *
from builtins import *
"""
RECURSION = 50_000
GRADER = "MIDTRACE_GRADER"  # environment variable with a descriptor: a pipe of which the grader holds the other end


def leave_with_the_grader() -> None:
    """End at once if the grader is dead: it died before bubblewrap could ask to die with it."""
    descriptor = os.environ.pop(GRADER, None)
    if descriptor is None:
        return
    waiting = select.poll()
    waiting.register(int(descriptor), select.POLLIN)
    if waiting.poll(0):
        os._exit(1)
    os.close(int(descriptor))


def main(path: str, function: str | None = None) -> None:
    """Run the program at ``path``, or call one of its functions."""
    leave_with_the_grader()
    with open(path, encoding="utf-8", errors="surrogatepass") as handle:
        source = handle.read()
    # Without the module site these two are missing.
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]
    sys.setrecursionlimit(RECURSION)
    sys.argv = [path]
    answer = None
    if function:
        answer = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    names: dict[str, Any] = {"__name__": "__main__" if function is None else "program", "__builtins__": builtins}
    exec(PRELUDE, names)
    exec(compile(source, "program.py", "exec"), names)
    if function and answer is not None:
        arguments = [json.loads(line) for line in sys.stdin.read().splitlines() if line.strip()]
        owner = names["Solution"]() if "Solution" in names else None
        call = getattr(owner, function) if owner is not None else names[function]
        with open(answer, "w", encoding="utf-8") as handle:
            handle.write(json.dumps(call(*arguments)))


if __name__ == "__main__":
    main(*sys.argv[1:])
