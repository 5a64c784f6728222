"""Logs of Inspect: ``.eval`` archives (members deflated or compressed by zstd) and ``.json`` files."""

import copy
import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from midtrace.external.runs import Record, Run, UnusableError, name_of, qualified, text_of, whole
from midtrace.loaders.sources import decode

ZSTANDARD = 93  # a compression method that Python's zipfile knows from 3.14 on
LENGTH = ("length", "max_tokens", "model_length")


def samples(path: Path, task: str | None) -> Iterator[tuple[str, Record]]:
    """The samples of a log with their names.

    Parameters
    ----------
    path
        A log.
    task
        Its task; None for the one that the log names.

    Raises
    ------
    ValueError
        If it is no log.
    """
    header, found = _archived(path) if zipfile.is_zipfile(path) else _whole(path)
    if task is None:
        entry = header.get("eval")
        task = text_of(entry["task"], "eval.task") if isinstance(entry, dict) and "task" in entry else ""
    for number, record in enumerate(found, 1):
        if not isinstance(record, dict):
            raise ValueError(f"sample {number} is no object")
        if "id" not in record:
            raise ValueError(f"sample {number} has no 'id'")
        name = name_of(record["id"], "id")
        yield qualified(task, name), {**record, "id": name, "task": task}


def _whole(path: Path) -> tuple[Record, Iterator[Any]]:
    log = decode(path.read_bytes())
    if not isinstance(log, dict) or not isinstance(log.get("samples") or [], list):
        raise ValueError("is no object with a list of samples")
    if "samples" not in log:
        raise ValueError("has no samples: only the header was written")
    return log, iter(log["samples"] or [])


def _archived(path: Path) -> tuple[Record, Iterator[Any]]:
    """The header and the samples of an archive; a run that was killed has left its first words only."""
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        header = next((name for name in ("header.json", "_journal/start.json") if name in names), None)
        content = decode(_member(archive, header)) if header else {}

    def members() -> Iterator[Any]:
        with zipfile.ZipFile(path) as archive:
            for name in sorted(name for name in archive.namelist() if name.startswith("samples/") and name.endswith(".json")):
                yield decode(_member(archive, name))

    return content if isinstance(content, dict) else {}, members()


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    """A member's content. What zipfile cannot decompress it hands over as it is stored, and Arrow decompresses it."""
    member = archive.getinfo(name)
    if member.compress_type != ZSTANDARD or hasattr(zipfile, "ZIP_ZSTANDARD"):
        return archive.read(name)
    import pyarrow

    stored = copy.copy(member)
    stored.compress_type, stored.file_size = zipfile.ZIP_STORED, member.compress_size
    del stored.CRC  # it is that of the content
    with archive.open(stored) as handle:
        packed = handle.read()
    content = pyarrow.input_stream(io.BytesIO(packed), compression="zstd").read()
    if zlib.crc32(content) != member.CRC:
        raise zipfile.BadZipFile(f"bad CRC-32 of {name!r}")
    return content


def runs(record: Record) -> list[Run]:
    """The run of a sample; epochs are replicates."""
    output = record.get("output")
    choices = output.get("choices") if isinstance(output, dict) else None
    if record.get("error") or not choices:
        raise UnusableError("that failed")
    parts = _parts(choices[0]["message"]["content"])
    if any(part.get("redacted") for part in parts if part.get("type") == "reasoning"):
        raise UnusableError("whose reasoning is redacted")
    thoughts = [text_of(part["reasoning"], "reasoning") for part in parts if part.get("type") == "reasoning"]
    text = _joined(parts)
    if not text and not any(thoughts):
        raise UnusableError("without an output")
    epoch = whole(record.get("epoch", 1), "epoch")
    # Some providers do not say why a generation ended ("unknown").
    finish = "length" if choices[0].get("stop_reason") in LENGTH else "stop"
    return [Run(record["id"], epoch - 1, finish, text, "\n".join(thoughts) if thoughts else None, task=record["task"])]


def item(record: Record) -> dict[str, Any]:
    """The sample as a record for ``loader: file``: ``id``, ``task``, ``question``, ``options``, ``answer``."""
    targets = record["target"] if isinstance(record["target"], list) else [record["target"]]
    if not any(targets):
        raise UnusableError("without a target")
    if len(targets) > 1:
        raise UnusableError("with several targets")
    options = record.get("choices") or []
    if not isinstance(options, list):
        raise ValueError(f"choices is {type(options).__name__}, not a list")
    return {
        "id": qualified(record["task"], record["id"]),
        "task": record["task"],
        "question": _question(record["input"]),
        "options": [text_of(option, "choices") for option in options],
        "answer": text_of(targets[0], "target"),
    }


def _question(asked: Any) -> str:
    if isinstance(asked, str):
        return text_of(asked, "input")
    said = [message["content"] for message in asked if message["role"] == "user"]
    if len(said) != 1:
        raise UnusableError("with several messages of the user" if said else "without a message of the user")
    parts = _parts(said[0])
    if any(part.get("type") != "text" for part in parts):
        raise UnusableError("whose question is more than text")
    return _joined(parts)


def _parts(content: Any) -> list[Mapping[str, Any]]:
    """The parts of a message, which may be a plain text."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise ValueError(f"content is {type(content).__name__}, neither text nor a list of parts")
    return content


def _joined(parts: list[Mapping[str, Any]]) -> str:
    return "".join(text_of(part["text"], "text") for part in parts if part.get("type") == "text")
