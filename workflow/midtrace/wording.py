"""Wordings that come with midtrace: arms by name, and how items are asked, by answer kind and dialect. They stand in ``wording.yaml``.

A config that uses one ends up with its text, so the text is part of what identifies a trace: a new wording means new traces.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from midtrace.errors import InputError

FILE = Path(__file__).with_name("wording.yaml")
TEXTS = ("system", "suffix")
PROMPT = ("system", "template", "option", "stem")
HORIZON = "{horizon}"


@cache
def wordings() -> dict[str, Any]:
    """The file, as read."""
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


def arm(name: str, record: Mapping[str, Any], where: object) -> dict[str, Any]:
    """An arm of a config with the wording that it uses written out.

    Parameters
    ----------
    name
        Name of the arm, for messages.
    record
        ``system``, ``suffix``, ``effort`` (null: none) and optionally ``use`` (an arm of this file) and ``horizon`` (tokens).
    where
        File for messages.

    Returns
    -------
    dict
        ``system``, ``suffix``, ``effort``.

    Raises
    ------
    InputError
        For an unknown wording, a key that both sides set, a horizon that no text holds, or a text whose horizon is not given.
    """
    own = {key: record[key] for key in (*TEXTS, "effort")}
    known = wordings()["arms"]
    if "use" in record:
        if record["use"] not in known:
            raise InputError(where, f"arms.{name}.use", f"{record['use']!r} is unknown", known)
        for key, value in known[record["use"]].items():
            if key == "about":
                continue
            if own[key] is not None:
                raise InputError(where, f"arms.{name}.{key}", f"is set here and by {record['use']!r}", "one of the two")
            own[key] = value
    wanted = any(HORIZON in (own[key] or "") for key in TEXTS)
    if wanted and "horizon" not in record:
        raise InputError(where, f"arms.{name}.horizon", "missing, and the text of the arm names it", "a number of tokens")
    if "horizon" in record and not wanted:
        raise InputError(where, f"arms.{name}.horizon", f"is {record['horizon']}, but no text of the arm holds {HORIZON}", "an arm that announces it")
    return own | {key: own[key].replace(HORIZON, str(record["horizon"])) for key in TEXTS if own[key] and wanted}


def prompt(benchmark: Mapping[str, Any], dialect: str) -> dict[str, Any]:
    """How the items of a benchmark are asked in a dialect.

    Parameters
    ----------
    benchmark
        Its entry in a config: ``answer_kind``; ``system``, ``template``, ``option``, ``stem`` (null: what comes with midtrace); ``dialects``,
        the same keys by the name of a dialect.
    dialect
        Name of a dialect.

    Returns
    -------
    dict
        ``system`` (None or empty: none), ``template``, ``option``, ``stem``. The benchmark's own text for the dialect comes first, then its
        text for all dialects, then midtrace's for the dialect, then midtrace's for the answer kind.
    """
    templates = wordings()["templates"]
    layers = (
        benchmark["dialects"].get(dialect, {}),
        benchmark,
        templates["dialects"].get(dialect, {}),
        templates[benchmark["answer_kind"]],
    )
    return {key: next((layer[key] for layer in layers if layer.get(key) is not None), None) for key in PROMPT}
