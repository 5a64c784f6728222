"""Commands: ``python -m midtrace prompt ...``; without one, or with ``--help``, all are listed."""

import sys
from importlib import import_module

# Name: module with a function ``main(arguments) -> exit status``, and what it does. A command imports its own module only.
COMMANDS = {
    "prompt": ("show_prompt", "print the exact prompt of an item under an arm, as text and ids"),
    "import": ("external.importing", "bring items or finished runs of other tools into a study"),
}


def usage() -> str:
    """What ``--help`` prints."""
    lines = [f"  {name:<8} {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(["usage: python -m midtrace COMMAND ...; each command has its own --help", "", *lines])


def main(arguments: list[str]) -> int | str | None:
    """Run a command; an exit status, or a message for standard error."""
    if arguments in (["--help"], ["-h"]):
        print(usage())
        return None
    if not arguments or arguments[0] not in COMMANDS:
        return usage()
    status: int = import_module(f"midtrace.{COMMANDS[arguments[0]][0]}").main(arguments[1:])
    return status


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # texts of items, whatever the locale
    sys.exit(main(sys.argv[1:]))
