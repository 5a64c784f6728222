"""A file of one's own: Parquet, JSON Lines or CSV, with the names of its columns in the config."""

import re
from typing import Any

from midtrace.errors import InputError
from midtrace.loaders.loader import Loader, Row, Settings, UnusableError, written
from midtrace.prompts import labels

KEYS = ("id", "question", "options", "answer", "stratum", "revised_question", "update", "stale_answer")
OPTIONAL = ("options", "stratum", "revised_question", "update", "stale_answer")


def _names(settings: Settings) -> dict[str, str]:
    return {key: settings["columns"].get(key, key) for key in KEYS}


def _columns(settings: Settings) -> dict[str, tuple]:
    """The columns that must be there, of any type: a table that people write by hand has numbers for ids and answers."""
    choice = settings["answer_kind"] == "choice"
    return {name: () for key, name in _names(settings).items() if key not in OPTIONAL or (key == "options" and choice)}


def _item(row: Row, settings: Settings) -> dict[str, Any]:
    names = _names(settings)
    value = {key: row.get(name) for key, name in names.items()}
    options = value["options"]
    if isinstance(options, str):
        options = re.split(r"\s\|\s", options)
    if not (options is None or isinstance(options, list)):
        raise InputError(settings["path"], f"column {names['options']!r}", f"is {type(options).__name__}", "lists of texts")
    for key in KEYS:
        parts = options or [] if key == "options" else [value[key]]
        if any(isinstance(part, list | dict) for part in parts):
            raise InputError(settings["path"], f"column {names[key]!r}", "is nested", "plain texts")
    item = {key: _text(value[key]) for key in ("question", "answer", "revised_question", "update", "stale_answer")}
    for key in ("question", "answer"):
        if item[key] is None:
            raise UnusableError(f"no {key}")
    return {**item, "options": [_text(option) or "" for option in options or []]}


def _text(value: Any) -> str | None:
    return written(value) or None


def _finish(items: list[dict[str, Any]], settings: Settings) -> None:
    if settings["answer_kind"] == "choice":
        for key in ("answer", "stale_answer"):
            _texts_to_labels(items, key, settings)


def _texts_to_labels(items: list[dict[str, Any]], key: str, settings: Settings) -> None:
    """Turn answers that are texts of options into labels.

    Which of the two a file holds is seen on the whole column: the text of an option may itself be a letter ("B", the element).
    """
    as_label: list[str] = []
    as_text: list[str] = []
    for item in items:
        is_label = item[key] in labels(len(item["options"]))
        is_text = item["options"].count(item[key]) == 1
        if is_label != is_text:
            (as_label if is_label else as_text).append(item["item_id"])
    if as_label and as_text:
        raise InputError(
            settings["path"], key, f"is a label for {as_label[0]} and the text of an option for {as_text[0]}", "one of the two in all rows"
        )
    if as_text:
        for item in items:
            if item["options"].count(item[key]) == 1:
                item[key] = labels(len(item["options"]))[item["options"].index(item[key])]


USER_FILE = Loader(
    name="file",
    answer_kinds=("choice", "math"),
    item=_item,
    columns=_columns,
    id_column=lambda settings: _names(settings)["id"],
    stratum=lambda row, settings: _text(row.get(_names(settings)["stratum"])) or "all",
    finish=_finish,
    updates=True,
)
