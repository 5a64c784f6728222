"""What runs a model's program inside the sandbox: a script of its own that imports nothing of midtrace.

``harness.py PROGRAM`` runs a program as a script. ``harness.py PROGRAM FUNCTION`` calls a function with the JSON arguments on standard input,
one a line, and prints its value as JSON; what the program itself prints is dropped. Programs find what judges usually have imported already.
"""

import builtins
import json
import os
import select
import sys
from decimal import Decimal
from fractions import Fraction
from types import ModuleType
from typing import Any

# What the judge of LiveCodeBench imports for every program, in its order: the names of these modules, then the modules themselves, which would
# else be hidden by names (datetime.datetime, copy.copy, bisect.bisect).
MODULES = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json"),
)
PRELUDE = "\n".join([*(f"from {name} import *" for name in (*MODULES, "builtins", "typing")), f"import {', '.join(MODULES)}"])
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
    sys.set_int_max_str_digits(0)  # the time limit bounds how large a number may be printed
    sys.argv = [path]
    answer = None
    if function:
        answer = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    # An entry among the modules, where dataclasses and pickle look for the names of a class's module.
    module = ModuleType("__main__" if function is None else "program")
    sys.modules[module.__name__] = module
    names: dict[str, Any] = module.__dict__
    names["__builtins__"] = builtins
    exec(PRELUDE, names)
    exec(compile(source, "program.py", "exec", dont_inherit=True), names)
    if function and answer is not None:
        arguments = [json.loads(line) for line in sys.stdin.read().split("\n") if line.strip()]
        owner = names["Solution"]() if "Solution" in names else None
        call = getattr(owner, function) if owner is not None else names[function]
        with open(answer, "w", encoding="utf-8") as handle:
            handle.write(json.dumps(call(*arguments), default=plain))


def plain(value: object) -> int | float:
    """A fraction or a decimal as the number that it equals."""
    if not isinstance(value, Fraction | Decimal):
        raise TypeError(f"{type(value).__name__} is no JSON value")
    return int(value) if value == int(value) else float(value)


if __name__ == "__main__":
    main(*sys.argv[1:])
