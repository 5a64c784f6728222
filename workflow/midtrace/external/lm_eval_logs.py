"""Sample logs of lm-evaluation-harness (``--log_samples``): ``samples_{task}_{date}.jsonl``, a line per document and filter.

Filters change what is scored, never what was generated: ``resps`` are the same in all lines of a document. The lines of one filter are read, by
default of the first one in the file, and the others are held against them.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from midtrace.errors import InputError
from midtrace.external.runs import LeftOut, Record, Run, UnusableError, lines, name_of, qualified, text_of
from midtrace.prompts import labels

NAME = re.compile(r"samples_(.+)_\d{4}-\d{2}-\d{2}T[\d-]+(?:\.\d+)?")


def task_of(path: Path) -> str:
    """The task in the name of a log; of a log with another name, that name."""
    match = NAME.fullmatch(path.stem)
    return match[1] if match else path.stem


def samples(path: Path, task: str | None, chosen: str | None) -> Iterator[tuple[str, Record | LeftOut]]:
    """The samples of a log, each document once, with their names.

    Parameters
    ----------
    path
        A log.
    task
        Its task; None for the one in its name.
    chosen
        The filter whose lines are read; None for the first one of the log.

    Raises
    ------
    InputError
        If the log does not have the filter, or a document's outputs differ between filters and none is chosen.
    """
    task = task_of(path) if task is None else task
    filters: dict[str, None] = {}
    outputs: dict[str, tuple[str, bool]] = {}  # document -> its outputs, and whether the chosen filter has it
    for number, record in lines(path):
        name = _document(record, number)
        used = str(record.get("filter", "none"))
        filters.setdefault(used)
        read = chosen or next(iter(filters))
        said = json.dumps(record.get("resps"), sort_keys=True)
        before, seen = outputs.get(name, (said, False))
        if before != said and chosen is None and used != read:
            raise InputError(path, f"doc_id {name}", "has other outputs under another filter", f"--filter, one of {', '.join(filters)}")
        outputs[name] = (said if used == read else before, seen or used == read)
        if used == read:
            yield qualified(task, name), {**record, "doc_id": name, "task": task}
    if chosen is not None and outputs and chosen not in filters:
        raise InputError(path, "filter", f"{chosen!r} is not in the log", filters)
    for name, (_, seen) in outputs.items():
        if not seen:
            yield qualified(task, name), LeftOut(qualified(task, name), f"without a line of filter {chosen or next(iter(filters))}")


def _document(record: Record, number: int) -> str:
    try:
        return name_of(record["doc_id"], "doc_id")
    except KeyError:
        raise ValueError(f"record {number} has no 'doc_id'") from None


def runs(record: Record) -> list[Run | LeftOut]:
    """The runs of a document: its repeats. A server that failed has left null or nothing."""
    requests = record["resps"]
    if _is_likelihood(requests):
        raise UnusableError("whose log holds likelihoods, no generated text")
    texts = requests[0] if requests else []
    if not texts:
        raise UnusableError("without an output")
    name = qualified(record["task"], record["doc_id"])
    # The log does not say why a generation ended: a text without the closing marker will be split as truncated.
    return [
        Run(record["doc_id"], number, "stop", text_of(text, "resps"), task=record["task"])
        if text
        else LeftOut(f"{name}, repeat {number}", "without an output")
        for number, text in enumerate(texts)
    ]


def _is_likelihood(requests: Any) -> bool:
    return bool(requests) and any(isinstance(answer, list) for answer in requests[0])


def item(record: Record) -> dict[str, Any]:
    """The document as a record for ``loader: file``: its fields, ``id``, ``task``, and ``answer`` = ``target`` unless it has one.

    For a task of choices the answer is the label of the right one, and ``options`` are the document's ``options`` or ``choices``, or else the
    continuations that the model was asked to judge.
    """
    document = record["doc"]
    if not isinstance(document, dict):
        raise ValueError(f"doc is {type(document).__name__}, not an object")
    made = {"answer": record["target"], **document}
    if _is_likelihood(record.get("resps")):
        made |= _choices(record, document)
    if made["answer"] is None or made["answer"] in ("", "[]", "None", []):
        raise UnusableError("without a target")
    return {**made, "id": qualified(record["task"], record["doc_id"]), "task": record["task"]}


def _choices(record: Record, document: Record) -> dict[str, Any]:
    asked = list(dict.fromkeys(str(request["arg_1"]).strip() for request in record["arguments"].values()))
    if len(asked) > len(labels(26)):
        raise UnusableError(f"with more than {len(labels(26))} choices")
    target = str(record["target"]).strip()
    # The log has made a text of the target: "1" is the second choice, or the choice that reads "1".
    meant = {asked.index(target)} if target in asked else set()
    meant |= {int(target)} if re.fullmatch(r"\d{1,3}", target) and int(target) < len(asked) else set()
    if len(meant) != 1:
        raise UnusableError("whose target is the number of one choice and the text of another" if meant else "whose target is none of its choices")
    own = next((document[key] for key in ("options", "choices") if _are_texts(document.get(key), len(asked))), asked)
    return {"options": own, "answer": labels(26)[meant.pop()]}


def _are_texts(value: Any, count: int) -> bool:
    return isinstance(value, list) and len(value) == count and all(isinstance(text, str) for text in value)
