"""Commands: ``python -m midtrace prompt ...``."""

import sys

from midtrace import show_prompt

COMMANDS = {"prompt": show_prompt.main}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"usage: python -m midtrace {{{','.join(COMMANDS)}}} ...")
    sys.exit(COMMANDS[sys.argv[1]](sys.argv[2:]))
