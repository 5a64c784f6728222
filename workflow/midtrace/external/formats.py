"""Logs of other tools, read as runs: lm-evaluation-harness samples, Inspect logs, vLLM request outputs, plain tables.

Nothing is interpreted here beyond where a tool writes what: ids as they stand, text as it stands, reasoning apart from the answer where the
tool keeps it apart.
"""

import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from midtrace.errors import InputError


@dataclass(frozen=True)
class Run:
    """A finished run of another tool.

    Attributes
    ----------
    item
        The item's id in its benchmark, with or without the benchmark's name before it.
    replicate
        0, 1, ...
    finish_reason
        ``stop`` or ``length`` (the token cap).
    text
        The output as text; None if only ids are known. Without ``reasoning`` it holds the reasoning too, between its markers.
    reasoning
        The reasoning as text, where the tool keeps it apart from ``text``.
    output_ids, prompt_ids
        Token ids, where the tool keeps them.
    seed
        The run's own seed, if recorded.
    """

    item: str
    replicate: int
    finish_reason: str
    text: str | None = None
    reasoning: str | None = None
    output_ids: tuple[int, ...] | None = None
    prompt_ids: tuple[int, ...] | None = None
    seed: int | None = None


def read_runs(sources: Sequence[str | Path], kind: str) -> Iterator[Run]:
    """Runs of log files.

    Parameters
    ----------
    sources
        Files.
    kind
        A key of :data:`FORMATS`.

    Raises
    ------
    InputError
        If the format is unknown, a file cannot be read, or a record lacks what the format must have.
    """
    for path, number, record in _records(sources, kind):
        try:
            yield from FORMATS[kind][1](record)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            problem = f"has no {error.args[0]!r}" if isinstance(error, KeyError) else str(error)
            raise InputError(path, f"record {number}", problem, f"a record as {kind} writes it") from None


def read_items(sources: Sequence[str | Path], kind: str) -> list[dict[str, Any]]:
    """The items that logs are about, each once, as records for ``loader: file``.

    ``lm-eval``: the fields of ``doc``, with ``id`` = ``doc_id`` and ``answer`` = ``target`` unless the doc has these; ``inspect``: ``id``,
    ``question``, ``options``, ``answer``. Which column is what is said in the config (``benchmarks.*.columns``).

    Raises
    ------
    InputError
        For formats whose logs do not hold the items.
    """
    if kind not in ("lm-eval", "inspect"):
        raise InputError(", ".join(map(str, sources)), "format", f"{kind} logs do not hold the items", "lm-eval, inspect")
    found: dict[str, dict[str, Any]] = {}
    for path, number, record in _records(sources, kind):
        try:
            item = _lm_eval_item(record) if kind == "lm-eval" else _inspect_item(record)
        except (KeyError, TypeError) as error:
            raise InputError(path, f"record {number}", f"has no {error.args[0]!r}", f"a record as {kind} writes it") from None
        found.setdefault(item["id"], item)
    return list(found.values())


def _records(sources: Sequence[str | Path], kind: str) -> Iterator[tuple[Path, int, Mapping[str, Any]]]:
    if kind not in FORMATS:
        raise InputError("import", "format", f"{kind!r} is unknown", FORMATS)
    for path in map(Path, sources):
        try:
            yield from ((path, number, record) for number, record in enumerate(FORMATS[kind][0](path), 1))
        except InputError:
            raise
        except (OSError, ValueError, zipfile.BadZipFile, pl.exceptions.PolarsError) as error:
            raise InputError(path, "file", f"cannot be read ({str(error).splitlines()[0]})", f"a log as {kind} writes it") from None


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8") as handle:
        yield from (json.loads(line) for line in handle if line.strip())


def _table(path: Path) -> Iterator[Mapping[str, Any]]:
    return iter(pl.read_parquet(path).iter_rows(named=True)) if path.suffix == ".parquet" else _lines(path)


def _inspect_samples(path: Path) -> Iterator[Mapping[str, Any]]:
    if not zipfile.is_zipfile(path):
        yield from json.loads(path.read_text(encoding="utf-8"))["samples"] or []
        return
    with zipfile.ZipFile(path) as archive:
        for name in sorted(name for name in archive.namelist() if name.startswith("samples/") and name.endswith(".json")):
            yield json.loads(archive.read(name))


def _finish(reason: Any) -> str:
    return "length" if reason in ("length", "max_tokens", "model_length") else "stop"


def _ids(values: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(map(int, values))


def _lm_eval(record: Mapping[str, Any]) -> Iterator[Run]:
    # One list per request of the doc; repeats of a generation are entries of the first.
    for replicate, text in enumerate(record["resps"][0]):
        if not isinstance(text, str):
            raise ValueError("resps hold no generated text (a likelihood task?)")
        # The log does not say why a generation ended: a text without the closing marker will be split as truncated.
        yield Run(str(record["doc_id"]), replicate, "stop", text=text)


def _lm_eval_item(record: Mapping[str, Any]) -> dict[str, Any]:
    return {"answer": record["target"], **record["doc"], "id": str(record["doc_id"])}


def _inspect(record: Mapping[str, Any]) -> Iterator[Run]:
    choice = record["output"]["choices"][0]
    content = choice["message"]["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    thoughts = [part["reasoning"] for part in parts if part["type"] == "reasoning"]
    text = "".join(part["text"] for part in parts if part["type"] == "text")
    reasoning = "\n".join(thoughts) if thoughts else None
    yield Run(str(record["id"]), int(record.get("epoch", 1)) - 1, _finish(choice.get("stop_reason")), text, reasoning)


def _inspect_item(record: Mapping[str, Any]) -> dict[str, Any]:
    asked = record["input"]
    question = asked if isinstance(asked, str) else next(message["content"] for message in asked if message["role"] == "user")
    answer = record["target"] if isinstance(record["target"], str) else record["target"][0]
    return {"id": str(record["id"]), "question": question, "options": record.get("choices") or [], "answer": answer}


def _vllm(record: Mapping[str, Any]) -> Iterator[Run]:
    name = str(record["item_id"] if "item_id" in record else record["request_id"])
    for position, output in enumerate(record["outputs"]):
        replicate = int(record.get("replicate", output.get("index", position)))
        ids, prompt = _ids(output.get("token_ids")), _ids(record.get("prompt_token_ids"))
        seed = record.get("seed")
        yield Run(name, replicate, _finish(output.get("finish_reason")), output.get("text"), output.get("reasoning"), ids, prompt, seed)


def _plain(record: Mapping[str, Any]) -> Iterator[Run]:
    if record.get("output_ids") is None and record.get("text") is None:
        raise KeyError("output_ids or text")
    yield Run(
        str(record["item_id"]),
        int(record.get("replicate") or 0),
        _finish(record.get("finish_reason")),
        record.get("text"),
        record.get("reasoning"),
        _ids(record.get("output_ids")),
        _ids(record.get("prompt_ids")),
        record.get("seed"),
    )


FORMATS: dict[str, tuple[Callable[[Path], Iterator[Mapping[str, Any]]], Callable[[Mapping[str, Any]], Iterator[Run]]]] = {
    "lm-eval": (_lines, _lm_eval),
    "inspect": (_inspect_samples, _inspect),
    "vllm": (_lines, _vllm),
    "plain": (_table, _plain),
}
