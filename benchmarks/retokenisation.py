"""What would be lost if traces were stored as text? How often decoding and encoding again changes token ids, as JSON lines.

For each vocabulary and text file, by where the ids come from:

``encoded``: the tokenizer's own ids of a text. ``cut``: the same up to a random token, as at a horizon. ``resplit_1`` and ``resplit_10``: ids that
a model may emit and the tokenizer would not: each token is, with a chance of 1% or 10%, written as two tokens that spell the same.
``resplit_1_cut``: those, cut. ``rare_cut``: ideographs and emoji drawn evenly, as many as the text has tokens, encoded and cut. ``junk``: ordinary
tokens drawn evenly.

``changed`` is the share of sequences whose ids differ, ``length`` of those whose number of tokens does, ``first_64`` of those whose first 64 ids
do (of sequences that long), ``mean_shift`` the mean absolute change of length in tokens, ``broken_end`` the share that end inside a character.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

ROOT = Path(__file__).parents[1]
HORIZON = 64
RARE = [chr(code) for code in (*range(0x4E00, 0xA000), *range(0x1F300, 0x1F650))]
Draw = Callable[[list[int], np.random.Generator], list[int]]


def again(ids: Sequence[int], tokenizer: Any) -> list[int]:
    """Ids after a round trip through text."""
    return tokenizer.encode(tokenizer.decode(ids, skip_special_tokens=False), add_special_tokens=False)


def splitter(tokenizer: Any) -> Callable[[int], list[tuple[int, int]]]:
    """A function from a token to the pairs of tokens that spell it together: none for a single byte, and none for an added token."""
    added = set(tokenizer.added_tokens_decoder)
    ids = {token: i for token, i in tokenizer.get_vocab().items() if i not in added}

    @cache
    def pairs(i: int) -> list[tuple[int, int]]:
        token = "" if i in added else tokenizer.convert_ids_to_tokens(i)
        return [(ids[token[:k]], ids[token[k:]]) for k in range(1, len(token)) if token[:k] in ids and token[k:] in ids]

    return pairs


def resplit(ids: Sequence[int], pairs: Callable[[int], list[tuple[int, int]]], share: float, rng: np.random.Generator) -> list[int]:
    """The same text in other tokens: each id is, with probability ``share``, replaced by a pair that spells it, where there is one."""
    found: list[int] = []
    for i, chance in zip(ids, rng.random(len(ids)), strict=True):
        spelled = pairs(i) if chance < share else []
        found += spelled[rng.integers(len(spelled))] if spelled else [i]
    return found


def cut(ids: Sequence[int], rng: np.random.Generator) -> list[int]:
    """The first n ids, n drawn evenly from 1 to all of them."""
    return list(ids[: rng.integers(1, len(ids) + 1)])


def summary(sequences: Sequence[Sequence[int]], tokenizer: Any) -> dict[str, float | int | None]:
    """What a round trip does to the sequences; the columns are those of the module's description."""
    pairs = [(list(ids), again(ids, tokenizer)) for ids in sequences]
    long = [(ids, found) for ids, found in pairs if len(ids) >= HORIZON]
    return {
        "sequences": len(pairs),
        "mean_tokens": round(float(np.mean([len(ids) for ids, _ in pairs])), 1),
        "changed": round(float(np.mean([ids != found for ids, found in pairs])), 4),
        "length": round(float(np.mean([len(ids) != len(found) for ids, found in pairs])), 4),
        f"first_{HORIZON}": round(float(np.mean([ids[:HORIZON] != found[:HORIZON] for ids, found in long])), 4) if long else None,
        "mean_shift": round(float(np.mean([abs(len(ids) - len(found)) for ids, found in pairs])), 3),
        "broken_end": round(float(np.mean([tokenizer.decode(ids).endswith("\N{REPLACEMENT CHARACTER}") for ids, _ in pairs])), 4),
    }


def report(texts: Sequence[str], tokenizer: Any, seed: int = 0) -> Iterator[dict[str, Any]]:
    """A row for each origin of the ids."""
    pairs = splitter(tokenizer)
    ordinary = np.array(sorted(set(tokenizer.get_vocab().values()) - set(tokenizer.added_tokens_decoder)))
    draws: dict[str, Draw] = {
        "encoded": lambda ids, rng: ids,
        "cut": cut,
        "resplit_1": lambda ids, rng: resplit(ids, pairs, 0.01, rng),
        "resplit_1_cut": lambda ids, rng: cut(resplit(ids, pairs, 0.01, rng), rng),
        "resplit_10": lambda ids, rng: resplit(ids, pairs, 0.1, rng),
        "rare_cut": lambda ids, rng: cut(tokenizer.encode("".join(rng.choice(RARE, len(ids))), add_special_tokens=False), rng),
        "junk": lambda ids, rng: rng.choice(ordinary, len(ids)).tolist(),
    }
    encoded = [ids for ids in tokenizer([text for text in texts if text], add_special_tokens=False)["input_ids"] if ids]
    for number, (name, draw) in enumerate(draws.items()):
        rng = np.random.default_rng([seed, number])
        yield {"ids": name, **summary([draw(ids, rng) for ids in encoded], tokenizer)}


def read(path: Path, column: str, n: int) -> list[str]:
    """The first ``n`` texts of a column of a .parquet or .jsonl file, or the paragraphs of a text file."""
    if path.suffix == ".parquet":
        return pl.read_parquet(path, columns=[column])[column].head(n).to_list()
    if path.suffix == ".jsonl":
        return pl.read_ndjson(path)[column].head(n).to_list()
    return path.read_text(encoding="utf-8").split("\n\n")[:n]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabularies", type=Path, nargs="+", default=[ROOT / "models/smollm2"], help="tokenizer folders")
    parser.add_argument("--texts", nargs="+", default=[f"{ROOT}/README.md"], help="FILE.parquet:COLUMN, FILE.jsonl:COLUMN, or a text file")
    parser.add_argument("-n", type=int, default=1000, help="texts of each file (default: %(default)s)")
    arguments = parser.parse_args()
    from transformers import AutoTokenizer

    for folder in arguments.vocabularies:
        if not folder.is_dir():
            print(json.dumps({"vocabulary": folder.name, "skipped": "not on this machine (make smollm2, or --vocabularies FOLDER)"}), flush=True)
            continue
        tokenizer = AutoTokenizer.from_pretrained(folder)
        for text in arguments.texts:
            path, _, column = text.partition(":")
            for row in report(read(Path(path), column, arguments.n), tokenizer):
                print(json.dumps({"vocabulary": folder.name, "texts": Path(path).name, **row}), flush=True)
