"""Commands: ``python -m midtrace prompt ...``."""

import sys

from midtrace import show_prompt

COMMANDS = {"prompt": show_prompt.main}

if __name__ == "__main__":
    usage = f"usage: python -m midtrace {{{','.join(COMMANDS)}}} ...; each has its own --help"
    if sys.argv[1:] in (["--help"], ["-h"]):
        print(usage)
    elif len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(usage)
    else:
        sys.exit(COMMANDS[sys.argv[1]](sys.argv[2:]))
