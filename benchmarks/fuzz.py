"""Mutated inputs: every one is read right or refused in one line. One line per kind of input, as JSON; a traceback ends with exit status 1.

``python benchmarks/fuzz.py [--n 2000] [--seed 0] [NAME ...]``. A new kind of input is a record in :data:`INPUTS`: whole files to start from, and
a function that reads a file as a user's command would. It returns what it likes, raises :class:`midtrace.errors.InputError`, or raises
AssertionError where something was lost. What failed is written beside the message, so that it can be tried again.
"""

import argparse
import importlib.util
import io
import json
import random
import shutil
import sys
import tempfile
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dataframely as dy
import polars as pl
import yaml

from midtrace import config as study_config
from midtrace import gguf as gguf_reader
from midtrace import items, tables
from midtrace.errors import InputError
from midtrace.external import formats

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "tests"), str(ROOT / "scripts")]  # where small inputs are built, and what builds them

from helpers.builders import Study, benchmark_entry, gguf_file, small_config  # noqa: E402

# What breaks readers: other types, numbers at the edges, separators, half characters.
VALUES = ["null", "true", "1.5", "-1", "1e400", "9" * 400, '""', '"\\ud800"', "[]", "{}", "[[]]", '{"a": 1}', "NaN", '"\\u0000"', '"</think>"']
PIECES = [b"\xff", b"\x00", b"\xef\xbb\xbf", b"\r", b"\n", b"\n\n", b'"', b"\\", b",", b"[", b"}", b": ", b"\xe2\x80\xa8", b"\xf0\x9f\x98\x80", b"'"]


@dataclass(frozen=True)
class Input:
    """A kind of input.

    Attributes
    ----------
    name
        As chosen on the command line.
    suffix
        Of its files.
    examples
        Makes whole files, in a folder of their own that stays as long as the run.
    read
        Reads a file.
    mutate
        Spoils a file.
    """

    name: str
    suffix: str
    examples: Callable[[Path], list[bytes]]
    read: Callable[[Path], object]
    mutate: Callable[[bytes, random.Random], bytes] = lambda data, rng: rng.choice((mutate, mutate_lines))(data, rng)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """One to four changes: bytes lost, doubled, swapped or replaced; JSON values of another type; a file cut off."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 2, 8, 64)))
        change = rng.randrange(7)
        if change == 0:
            data = data[:at] + data[end:]
        elif change == 1:
            data = data[:end] + data[at:end] + data[end:]
        elif change == 2:
            data = data[:at] + rng.choice(PIECES) + data[at:]
        elif change == 3:
            data = data[:at] + rng.randbytes(end - at) + data[end:]
        elif change == 4 and rng.random() < 0.3:
            data = data[:at]
        else:
            data = _other_value(data, rng)
    return data


def _other_value(data: bytes, rng: random.Random) -> bytes:
    """A JSON value (or what stands after a colon) replaced by one of another type."""
    starts = [k for k in range(len(data) - 1) if data[k : k + 1] in b":,[" and data[k + 1 : k + 2] not in b"\n"]
    if not starts:
        return data
    start = rng.choice(starts) + 1
    rest = data[start:].lstrip(b" ")
    start = len(data) - len(rest)
    end = next((k for k in range(start, len(data)) if data[k : k + 1] in b",]}\n"), len(data))
    return data[:start] + rng.choice(VALUES).encode() + data[end:]


def mutate_lines(data: bytes, rng: random.Random) -> bytes:
    """JSON, or JSON Lines, with values lost, doubled, moved or of another type: what a reader meets behind its parser. Else as :func:`mutate`."""
    try:
        whole = [json.loads(line) for line in data.splitlines()]
    except ValueError:
        return mutate(data, rng)
    for _ in range(rng.randint(1, 3)):
        places = [place for value in whole for place in _places(value)]
        holder, key = rng.choice(places)
        change = rng.randrange(4)
        if change == 0:
            del holder[key]
        elif change == 1:
            holder[key] = rng.choice([json.loads(value) for value in VALUES if value not in ("NaN", "1e400")])
        elif change == 2:
            other, place = rng.choice(places)
            holder[key] = json.loads(json.dumps(other[place])) if place in other or isinstance(other, list) else None
        elif isinstance(holder, list):
            holder.append(holder[key])
        else:
            holder[f"{key}s"] = holder.pop(key)
    return "".join(json.dumps(value) + "\n" for value in whole).encode()


def _places(value: object) -> list[tuple[Any, Any]]:
    """Where values stand in a JSON value: (list or object, index or key)."""
    inner = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    return [(value, key) for key, _ in inner] + [place for _, child in inner for place in _places(child)]


def run(kind: Input, n: int, seed: int, folder: Path) -> dict[str, object]:
    """Read ``n`` mutated files.

    Returns
    -------
    dict
        ``input``, ``tried``, ``read``, ``refused``, ``tracebacks`` (by exception), and the files of the first ten.
    """
    examples = kind.examples(folder)
    counts: Counter[str] = Counter()
    tracebacks: Counter[str] = Counter()
    kept: list[str] = []
    for number in range(n):
        rng = random.Random(f"{seed}/{kind.name}/{number}")
        path = folder / f"{kind.name}-{number}{kind.suffix}"
        path.write_bytes(kind.mutate(rng.choice(examples), rng))
        try:
            kind.read(path)
            counts["read"] += 1
        except InputError as error:
            if len(str(error).splitlines()) == 1:
                counts["refused"] += 1
            else:
                tracebacks["InputError of several lines"] += 1
                kept.append(str(path))
                continue
        except Exception as error:  # what this program is for
            place = traceback.extract_tb(error.__traceback__)[-1]
            tracebacks[f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}: {str(error)[:100]}"] += 1
            kept.append(str(path))
            continue
        path.unlink()
    return {"input": kind.name, "tried": n, **counts, "tracebacks": dict(tracebacks), "files": kept[:10]}


def _item_lines(folder: Path) -> list[bytes]:
    rows = [{"id": k, "question": f"What is {k} plus 1?", "options": [str(k), str(k + 1), "0.5"], "answer": "B", "topic": "sums"} for k in range(4)]
    texts = [{"id": f"0{k}", "question": f"q{k}", "options": "x | y | z", "answer": ["x", "y"][k % 2]} for k in range(4)]
    return ["".join(json.dumps(row) + "\n" for row in table).encode() for table in (rows, texts)]


def _item_table(folder: Path) -> list[bytes]:
    lines = ["id,question,options,answer,stratum", *(f'00{k},"How many, {k}?",1 | {k + 2} | 1.50,B,s{k % 2}' for k in range(4))]
    return ["\n".join(lines).encode(), "\r\n".join(lines).encode()]


def _read_items(path: Path) -> None:
    found = items.gather(benchmark_entry("file", path), 0)
    assert found.facts["rows"] == len(found.items) + len(found.excluded), "a row is neither an item nor excluded"


def _configs(folder: Path) -> list[bytes]:
    whole = json.dumps(study_config.load(ROOT / "config" / "config.yaml")).encode()  # JSON is YAML too
    return [yaml.safe_dump(small_config()).encode(), whole, json.dumps(small_config()).encode(), (ROOT / "config" / "config.yaml").read_bytes()]


def _lm_eval(folder: Path) -> list[bytes]:
    def record(number: int, **values: Any) -> dict[str, Any]:
        doc = {"question": f"q{number}", "choices": ["x", "y"], "answer": "B"}
        arguments = {f"gen_args_{k}": {"arg_0": "q", "arg_1": text} for k, text in enumerate((" x", " y"))}
        texts = [[f"<think>a{number}</think>b", "c"]]
        common = {"doc_id": number, "doc": doc, "target": "B", "resps": texts, "arguments": arguments, "filter": "none", "doc_hash": "0"}
        return {**common, **values}

    likely = [record(k, resps=[[["-1.5", "False"]], [["-0.5", "True"]]], target="1") for k in range(3)]
    filtered = [record(k, filter=name) for name in ("strict", "flexible") for k in range(3)]
    return ["".join(json.dumps(entry) + "\n" for entry in log).encode() for log in (likely, filtered)]


def _inspect(folder: Path) -> list[bytes]:
    def sample(number: int, epoch: int, **values: Any) -> dict[str, Any]:
        parts = [{"type": "reasoning", "reasoning": "a"}, {"type": "text", "text": f"b{number}"}]
        output = {"choices": [{"message": {"role": "assistant", "content": parts}, "stop_reason": "stop"}]}
        asked = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": f"q{number}"}]}]
        return {"id": number, "epoch": epoch, "input": asked, "choices": ["x", "y"], "target": ["B"], "output": output, **values}

    samples = [sample(k, epoch) for k in range(3) for epoch in (1, 2)] + [sample(3, 1, output={"choices": []}, target=[])]
    header = {"version": 2, "eval": {"task": "law"}}
    archives = []
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", method) as archive:
            archive.writestr("header.json", json.dumps(header))
            for entry in samples:
                archive.writestr(f"samples/{entry['id']}_epoch_{entry['epoch']}.json", json.dumps(entry))
        archives.append(content.getvalue())
    return [json.dumps({**header, "samples": samples}).encode(), *archives]


def _read_log(kind: str, path: Path) -> None:
    """Both readings of a log; each sample is taken or left out with a reason. Without its items a log may still have runs."""
    refused = 0
    for read in (formats.read_runs, formats.read_items):
        try:
            contents = read([path], kind)
        except InputError as error:
            refused += 1
            problem = error
            continue
        assert all(sample.name and sample.reason for sample in contents.left_out), "a sample is left out without a reason"
        for taken in contents.taken:
            json.dumps(taken if isinstance(taken, dict) else asdict(taken), ensure_ascii=False).encode()
    if refused == 2:
        raise problem


def flip(data: bytes, rng: random.Random, first: int, last: int) -> bytes:
    """One to four changes between two places of a binary file: bits and bytes replaced, lost or doubled; now and then it is cut off."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(first, max(first + 1, min(last, len(data))))
        end = min(len(data), at + rng.choice((1, 1, 4, 8)))
        change = rng.randrange(5)
        if change == 0:
            data = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :] if at < len(data) else data
        elif change == 1:
            data = data[:at] + rng.choice((b"\xff", b"\x00", b"\x7f")) * (end - at) + data[end:]
        elif change == 2:
            data = data[:at] + rng.randbytes(end - at) + data[end:]
        elif change == 3:
            data = data[:at] + data[end:] if rng.random() < 0.5 else data[:end] + data[at:end] + data[end:]
        elif rng.random() < 0.2:
            data = data[:at]
    return data


TABLES: dict[bytes, tuple[type[dy.Schema] | None, pl.DataFrame]] = {}  # of the metadata's stage and columns: what whole files hold
STAGES = {
    **{"items": tables.Items, "raw/traces": tables.RawTraces, "traces": tables.Traces, "cuts": tables.Cuts, "readouts": tables.Readouts},
    **{"raw/continuations": tables.RawContinuations, "continuations": tables.Continuations, "controls": tables.Controls},
    **{"decomposition": None},
}


def _tables(folder: Path) -> list[bytes]:
    """The tables of all stages of a small study, and one of estimates."""
    (folder / "small.yaml").write_text(yaml.safe_dump(small_config()), encoding="utf-8")
    study = Study(folder, study_config.load(folder / "small.yaml"))
    study.run()
    found = []
    for stage in STAGES:
        path = min(path for path in (folder / stage).rglob("*.parquet") if "/." not in str(path) and path.suffixes == [".parquet"])
        found.append(path.read_bytes())
        TABLES[stage.encode()] = STAGES[stage], tables.read(path, STAGES[stage])
    return [stage.encode() + b"\n" + data for stage, data in zip(STAGES, found, strict=True)]


def _spoil_table(data: bytes, rng: random.Random) -> bytes:
    """Half of the changes in the footer, which carries no checksum; the first line says which table it was."""
    stage, _, data = data.partition(b"\n")
    footer = int.from_bytes(data[-8:-4], "little") + 8
    first = len(data) - footer if rng.random() < 0.5 else 0
    return stage + b"\n" + flip(data, rng, first, len(data))


def _read_table(path: Path) -> None:
    """Read a table as stages do: whole and lazily. What is read is what was written."""
    stage, _, data = path.read_bytes().partition(b"\n")
    schema, whole = TABLES[stage]
    table = path.with_suffix(".table.parquet")
    table.write_bytes(data)
    try:
        assert tables.read(table, schema).equals(whole), f"{stage.decode()}: other rows are read than were written"
        if schema is not None:
            assert tables.scan([(table, None)], schema).collect().equals(whole), f"{stage.decode()}: other rows are scanned than were written"
    finally:
        table.unlink()


def _gguf(folder: Path) -> list[bytes]:
    return [gguf_file(folder / "whole.gguf").read_bytes()]


def _read_gguf(path: Path) -> None:
    """Unpack a file; a folder is there whole, or not at all. The header is spoiled, so the weights must be those of :func:`builders.gguf_file`."""
    from safetensors.numpy import load_file

    folder = path.with_suffix(".model")
    try:
        gguf_reader.unpack(path, folder)
        assert (folder / "config.json").is_file(), "no model in the folder"
        weights = [weight for part in folder.glob("*.safetensors") for weight in load_file(part).values()]
        assert weights and all((weight == 0.5).all() for weight in weights), "other weights than were written"
    except InputError:
        assert not folder.exists() and not list(path.parent.glob(f".{folder.name}.*")), "half a folder is left"
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


INPUTS: dict[str, Input] = {
    kind.name: kind
    for kind in (
        Input("items_jsonl", ".jsonl", _item_lines, _read_items),
        Input("items_csv", ".csv", _item_table, _read_items),
        Input("lm_eval", ".jsonl", _lm_eval, partial(_read_log, "lm-eval")),
        Input("inspect", ".eval", _inspect, partial(_read_log, "inspect")),
        Input("config", ".yaml", _configs, study_config.load),
        Input("tables", ".bin", _tables, _read_table, _spoil_table),
        *([Input("gguf", ".gguf", _gguf, _read_gguf, lambda data, rng: flip(data, rng, 0, 1600))] if importlib.util.find_spec("gguf") else []),
    )
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(INPUTS)}; all where left out")
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    failed = False
    for name in chosen.names or INPUTS:
        result = run(INPUTS[name], chosen.n, chosen.seed, Path(tempfile.mkdtemp(prefix="fuzz-")))
        print(json.dumps(result), flush=True)
        failed |= bool(result["tracebacks"])
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
