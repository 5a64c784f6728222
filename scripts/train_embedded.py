"""Train the embedded model, measure it on held-out chains, and write its model card (``make model``; not part of a study)."""

import argparse
import json
from pathlib import Path

from midtrace.embedded import card, evaluate, train


def main(folder: Path, steps: int, items: int) -> None:
    """Write weights, tokenizer, ``training.json``, ``measured.json`` and the model card to ``folder``.

    Parameters
    ----------
    folder
        Output folder.
    steps
        Optimiser steps; 0 measures the model that is there.
    items
        Held-out chains to measure on.
    """
    if steps:
        train.train(folder, steps)
    measured = evaluate.measure(str(folder), items)
    (folder / "measured.json").write_text(json.dumps({"items": items, **measured}, indent=1) + "\n")
    training = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    (folder / "README.md").write_text(card.render(training, measured, items))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("resources/embedded"))
    parser.add_argument("--steps", type=int, default=train.STEPS, help="optimiser steps; 0 = only measure (default: %(default)s)")
    parser.add_argument("--items", type=int, default=1200, help="held-out chains to measure on (default: %(default)s)")
    arguments = parser.parse_args()
    main(arguments.folder, arguments.steps, arguments.items)
