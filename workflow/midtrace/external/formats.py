"""Logs of other tools, read as runs or as items: lm-evaluation-harness samples, Inspect logs, vLLM request outputs, plain tables.

Nothing is interpreted here beyond where a tool writes what: ids as they stand, text as it stands, reasoning apart from the answer where the
tool keeps it apart. A sample that failed is left out and counted; a record that the tool cannot have written is refused.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from midtrace.errors import InputError
from midtrace.external import inspect_logs, lm_eval_logs
from midtrace.external.runs import Contents, LeftOut, Record, Run, UnusableError, lines, name_of, text_of, whole

FORMATS = ("inspect", "lm-eval", "plain", "vllm")
WITH_ITEMS = ("inspect", "lm-eval")
FAILED = ("abort", "error")  # as vLLM ends a request that it could not finish
MISTAKES = (KeyError, IndexError, TypeError, ValueError, AttributeError)


def read_runs(sources: Sequence[str | Path], kind: str, task: str | None = None, chosen: str | None = None) -> Contents:
    """Runs of log files.

    Parameters
    ----------
    sources
        Files.
    kind
        One of :data:`FORMATS`.
    task
        The task of all of them; None for the one that each log names. For ``inspect`` and ``lm-eval``.
    chosen
        The filter whose lines are read; None for the first one of a log. For ``lm-eval``.

    Returns
    -------
    Contents
        Runs (:class:`midtrace.external.runs.Run`), and the samples that hold none.

    Raises
    ------
    InputError
        If the format is unknown, a file cannot be read, or a record lacks what the format must have.
    """
    return _read(sources, kind, _runs_of(kind), task, chosen)


def read_items(sources: Sequence[str | Path], kind: str, task: str | None = None, chosen: str | None = None) -> Contents:
    """The items that logs are about, each once, as records for ``loader: file``.

    ``id`` is ``{task}/{id within the task}``. ``lm-eval``: the fields of ``doc``, with ``answer`` = ``target`` unless the doc has one (for a task
    of choices the right one's label); ``inspect``: ``question``, ``options``, ``answer``. Which column is what is said in the config
    (``benchmarks.*.columns``). Parameters as for :func:`read_runs`.

    Raises
    ------
    InputError
        As :func:`read_runs`; for formats whose logs do not hold the items; for two items of one id.
    """
    if kind not in WITH_ITEMS:
        raise InputError(", ".join(map(str, sources)), "format", f"{kind} logs do not hold the items", WITH_ITEMS)
    make = lm_eval_logs.item if kind == "lm-eval" else inspect_logs.item
    read = _read(sources, kind, lambda record: [make(record)], task, chosen)
    items: dict[str, dict[str, Any]] = {}
    for record in read.taken:
        if items.setdefault(record["id"], record) != record:
            raise InputError(", ".join(map(str, sources)), f"item {record['id']}", "is two different items", "logs of one version of each task")
    without = {sample.name: sample for sample in read.left_out if sample.name not in items}  # epochs are one item
    return Contents(list(items.values()), list(without.values()))


def _read(sources: Sequence[str | Path], kind: str, make: Callable[[Record], Sequence[Any]], task: str | None, chosen: str | None) -> Contents:
    if kind not in FORMATS:
        raise InputError("import", "format", f"{kind!r} is unknown", FORMATS)
    if chosen is not None and kind != "lm-eval":
        raise InputError("import", "filter", f"is given, but {kind} logs have none", "no --filter, or --format lm-eval")
    if task is not None and kind not in WITH_ITEMS:
        raise InputError("import", "task", f"is given, but {kind} logs have none", f"no --task, or --format {' or '.join(WITH_ITEMS)}")
    contents = Contents()
    for path in map(Path, sources):
        samples = _samples(path, kind, task, chosen)
        while (sample := _next(samples, path, kind)) is not None:
            name, record = sample
            if isinstance(record, LeftOut):
                contents.left_out.append(record)
                continue
            try:
                for made in make(record):
                    (contents.left_out if isinstance(made, LeftOut) else contents.taken).append(made)
            except UnusableError as reason:
                contents.left_out.append(LeftOut(name, str(reason)))
            except MISTAKES as error:
                problem = f"has no {error.args[0]!r}" if isinstance(error, KeyError) else str(error)
                raise InputError(path, name, problem, f"a sample as {kind} writes it") from None
    return contents


def _next(samples: Iterator[tuple[str, Any]], path: Path, kind: str) -> tuple[str, Any] | None:
    """The next sample of a log; None at its end."""
    try:
        return next(samples, None)
    except InputError:
        raise
    except Exception as error:  # JSON, zip, zlib, zstd and Parquet have exceptions of their own
        problem = f"cannot be read ({(str(error).splitlines() or [type(error).__name__])[0]})"
    raise InputError(path, "file", problem, f"a log as {kind} writes it") from None


def _samples(path: Path, kind: str, task: str | None, chosen: str | None) -> Iterator[tuple[str, Record | LeftOut]]:
    if kind == "lm-eval":
        yield from lm_eval_logs.samples(path, task, chosen)
    elif kind == "inspect":
        yield from inspect_logs.samples(path, task)
    else:
        records = enumerate(pl.read_parquet(path, glob=False).iter_rows(named=True), 1) if path.suffix == ".parquet" else lines(path)
        yield from ((f"record {number}", record) for number, record in records)


def _runs_of(kind: str) -> Callable[[Record], Sequence[Run | LeftOut]]:
    makers: dict[str, Callable[[Record], Any]] = {"lm-eval": lm_eval_logs.runs, "inspect": inspect_logs.runs, "vllm": _vllm}
    return makers.get(kind, _plain)


def _finish(reason: Any) -> str:
    return "length" if reason == "length" else "stop"


def _ids(values: Any, what: str) -> tuple[int, ...] | None:
    return None if values is None else tuple(whole(value, what) for value in values)


def _text(values: Record, key: str) -> str | None:
    return None if values.get(key) is None else text_of(values[key], key)


def _number(values: Record, key: str) -> int | None:
    return None if values.get(key) is None else whole(values[key], key)


def _vllm(record: Record) -> list[Run | LeftOut]:
    name = name_of(record["item_id" if "item_id" in record else "request_id"], "request_id")
    runs: list[Run | LeftOut] = []
    if not record["outputs"]:
        raise UnusableError("without an output")
    for position, output in enumerate(record["outputs"]):
        if output.get("finish_reason") in FAILED:
            runs.append(LeftOut(f"{name}, output {position}", "that failed"))
            continue
        index = _number(output, "index")
        replicate = _number(record, "replicate")
        runs.append(
            Run(
                name,
                replicate if replicate is not None else position if index is None else index,
                _finish(output.get("finish_reason")),
                _text(output, "text"),
                _text(output, "reasoning"),
                _ids(output.get("token_ids"), "token_ids"),
                _ids(record.get("prompt_token_ids"), "prompt_token_ids"),
                _number(record, "seed"),
            )
        )
    return runs


def _plain(record: Record) -> list[Run]:
    if record.get("output_ids") is None and record.get("text") is None:
        raise KeyError("output_ids or text")
    return [
        Run(
            name_of(record["item_id"], "item_id"),
            _number(record, "replicate") or 0,
            _finish(record.get("finish_reason")),
            _text(record, "text"),
            _text(record, "reasoning"),
            _ids(record.get("output_ids"), "output_ids"),
            _ids(record.get("prompt_ids"), "prompt_ids"),
            _number(record, "seed"),
        )
    ]
