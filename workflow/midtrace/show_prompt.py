"""The exact prompt of an item under an arm of a study, as the model gets it.

Usage
-----
::

    python -m midtrace prompt --config config/studies/mine.yaml [pins.yaml] --model M --benchmark B --arm A [--item ID]

It prints the text, with every marker, and the token ids. It needs the model's tokenizer and no weights. Items of gated benchmarks are shown too:
do not let the output end up in a log.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from midtrace import config as study_config
from midtrace import dialects, items, prompts, tables
from midtrace.config import REVISED
from midtrace.errors import InputError
from midtrace.vocabulary import load_tokenizer

LISTED = 5  # item ids in a message


def find_item(config: Mapping[str, Any], benchmark: str, item: str | None, where: object) -> dict[str, Any]:
    """An item that the study draws.

    Parameters
    ----------
    config
        A valid config.
    benchmark
        Its name, or that with ``+revised``: the questions before their update.
    item
        Its id, with or without the name of the benchmark; None for the first one.
    where
        File for messages.

    Returns
    -------
    dict
        A row of the items table, from the study's own if it is there and belongs to this config, else drawn anew.

    Raises
    ------
    InputError
        If the study draws no such item.
    """
    settings = study_config.items_settings(config, benchmark)
    path = Path("results") / config["study"] / "items" / f"{benchmark}.parquet"
    frame = None
    if path.is_file():
        try:
            frame = tables.read(path, tables.Items, settings)
        except InputError:
            frame = None  # of another config, or an unfinished edit of this one
    if frame is None:
        frame = items.load(settings["benchmark"], settings["seed"])
        frame = items.revised(frame, where) if benchmark.endswith(REVISED) else frame
    if item is None:
        return frame.row(0, named=True)
    found = frame.filter(pl.col("item_id").is_in([item, f"{benchmark}/{item}"]))
    if found.is_empty():
        some = [*frame["item_id"].head(LISTED), "..."] if len(frame) > LISTED else frame["item_id"].to_list()
        raise InputError(where, "--item", f"{item!r} is none of the {len(frame)} items that the study draws of {benchmark}", some)
    return found.row(0, named=True)


def render(config: Mapping[str, Any], model: str, benchmark: str, arm: str, item: Mapping[str, Any]) -> tuple[str, list[int]]:
    """Text and ids of the prompt of an item."""
    settings = study_config.traces_settings(config, model, benchmark, arm, 0)
    tokenizer = load_tokenizer(settings["model"])
    ids = prompts.render(item, settings["arm"], settings["prompt"], dialects.get(settings["model"]["dialect"]), tokenizer)
    return tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False), ids


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; see the module."""
    parser = argparse.ArgumentParser(prog="python -m midtrace prompt", description="Print the exact prompt of an item under an arm.")
    config_help = "config of the study (default: the demo); keys of further files are laid over it"
    parser.add_argument("--config", nargs="+", default=["config/config.yaml"], help=config_help)
    for name in ("model", "benchmark", "arm"):
        parser.add_argument(f"--{name}", required=True, help=f"name of the {name} in the config")
    parser.add_argument("--item", help="id of the item, with or without the name of the benchmark (default: the first one drawn)")
    chosen = parser.parse_args(arguments)
    try:
        config = study_config.load(*chosen.config)
        for name, registry in (("model", "models"), ("benchmark", "benchmarks"), ("arm", "arms")):
            value = getattr(chosen, name)
            if value.removesuffix(REVISED if name == "benchmark" else "") not in config[registry]:
                raise InputError(" + ".join(chosen.config), f"--{name}", f"{value!r} is not defined", config[registry])
        item = find_item(config, chosen.benchmark, chosen.item, " + ".join(chosen.config))
        text, ids = render(config, chosen.model, chosen.benchmark, chosen.arm, item)
    except InputError as error:
        print(f"midtrace: error: {error}", file=sys.stderr)
        return 1
    print(f"--- {item['item_id']}, arm {chosen.arm}, model {chosen.model}: text\n{text}\n--- {len(ids)} token ids\n{' '.join(map(str, ids))}")
    return 0
