"""What does isolation cost? A small program by itself, with limits only, and in the sandbox, measured side by side in one run, as JSON lines.

Then the same program on one test, many times, by one worker and by several.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from midtrace.grading import code, sandbox

PROGRAM = "print(2 * int(input()))"
ANSWER = f"```python\n{PROGRAM}\n```"
TEST = {"kind": "stdin", "function": None, "input": "21\n", "expected": "42\n"}


def clock(works: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each, taken in turns so that a busy moment hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def main() -> None:
    """Print one line for a run and one for grading in parallel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--programs", type=int, default=200)
    chosen = parser.parse_args()
    sandbox.check("bubblewrap")
    limits = sandbox.Limits()
    median = clock(
        {
            "python": lambda: subprocess.run([sys.executable, "-S", "-c", PROGRAM], input="21\n", text=True, capture_output=True, check=True),
            "limits": lambda: sandbox.run(PROGRAM, "21\n", limits, "none"),
            "sandbox": lambda: sandbox.run(PROGRAM, "21\n", limits),
        },
        chosen.repeats,
    )
    print(
        json.dumps(
            {
                **{f"{name}_s": round(value, 4) for name, value in median.items()},
                "sandbox_over_python": round(median["sandbox"] / median["python"], 2),
                "sandbox_over_limits": round(median["sandbox"] / median["limits"], 2),
            }
        )
    )
    answers = [(ANSWER, "item")] * chosen.programs
    workers = os.cpu_count() or 1
    seconds = {}
    for n in (1, workers):
        start = time.perf_counter()
        graded = code.grade_programs(answers, lambda item: [TEST], limits, "bubblewrap", n)
        seconds[n] = time.perf_counter() - start
        assert all(correct for _, correct, _ in graded)
    print(
        json.dumps(
            {
                "programs": chosen.programs,
                "workers": workers,
                "one_worker_s": round(seconds[1], 2),
                "workers_s": round(seconds[workers], 2),
                "one_over_workers": round(seconds[1] / seconds[workers], 2),
            }
        )
    )


if __name__ == "__main__":
    main()
