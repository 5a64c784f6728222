"""Which figures a study has. Known from its config alone, so that the DAG needs no checkpoint; nothing heavy is imported here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from midtrace.errors import InputError

FORMATS = ("svg", "pdf", "png")
STUDY_WIDE = "planted"
PAPER_TABLES = ("completed_block_agreement", "generated_answer_check", "termination_strata")  # made by midtrace.figures.paper_tables


@dataclass(frozen=True)
class Kind:
    """A question and the table that answers it.

    Attributes
    ----------
    name
        First part of the file name.
    question
        Heading in the report.
    table, estimands
        The decomposition table, and the rows of it without which there is nothing to draw (empty: any row).
    needs_probe
        Whether it exists only for benchmarks with options.
    """

    name: str
    question: str
    table: str
    estimands: tuple[str, ...] = ()
    needs_probe: bool = False


KINDS = (
    Kind("decomposition", "Where does the difference come from?", "strata", ("contribution",)),
    Kind("split", "Is it there at equal length, or do the reference's further tokens make it?", "split", ("equal_tokens",)),
    Kind("bounds", "How much of it could the reading of unfinished runs make, or their selection?", "bounds", ("contrast",)),
    Kind("policy", "How accurate is a run that is stopped at B tokens?", "policy", ("accuracy_treatment", "accuracy_reference")),
    Kind("matched", "Do equally many tokens carry equally much?", "matched", ("matched_contrast",)),
    Kind("early", "What is known early?", "policy", ("q_gold_treatment", "q_gold_reference"), needs_probe=True),
    Kind("lengths", "How long does each arm think?", "lengths", ("completion",)),
    Kind("validity", "Does a forced answer say what the model would answer?", "validity"),
    Kind("falsifier", "Does a forced answer miss what an unfinished run already has?", "falsifier"),
    Kind("controls", "Does the probe read the prefix, and nothing else?", "controls", ("accuracy",), needs_probe=True),
    Kind("methods", "Does a contrast depend on the method of inference?", "inference", ("contrast", "matched_contrast")),
    Kind(STUDY_WIDE, "Does the instrument find what was planted?", "planted"),
)


def stem(kind: str, model: str, benchmark: str) -> str:
    """File name of a figure, without its extension."""
    return kind if kind == STUDY_WIDE else f"{kind}_{model}_{benchmark}"


def wanted(settings: Mapping[str, Any]) -> Iterator[tuple[Kind, str, str]]:
    """The figures of a study as (kind, model, benchmark); both names are empty for the figure of the whole study.

    Parameters
    ----------
    settings
        See :func:`midtrace.config.figures_settings`.
    """
    for kind in KINDS:
        if kind.name == STUDY_WIDE:
            if settings["analysis"]["planted"]:
                yield kind, "", ""
            continue
        for model in settings["analysis"]["models"]:
            for benchmark in settings["analysis"]["benchmarks"]:
                probed = settings["answer_kinds"][benchmark] == "choice"
                if (probed or not kind.needs_probe) and settings["asked"].get(kind.name, True):
                    yield kind, model, benchmark


def stems(settings: Mapping[str, Any]) -> list[str]:
    """File names, without extension, of all figures of a study.

    Raises
    ------
    InputError
        If two figures would have one name (model ``a_b`` on ``c``, model ``a`` on ``b_c``).
    """
    names = [stem(kind.name, model, benchmark) for kind, model, benchmark in wanted(settings)]
    for name in names:
        if names.count(name) > 1:
            raise InputError("config", "models, benchmarks", f"two figures would be named {name!r}", "names that differ when joined by '_'")
    return names


def rows(kind: Kind, tables: Mapping[str, pl.DataFrame], model: str, benchmark: str) -> pl.DataFrame:
    """The rows without which a figure has nothing to show; an empty frame means that it is left out."""
    frame = tables[kind.table]
    if kind.name != STUDY_WIDE:
        frame = of(frame, model, benchmark)
    frame = frame.filter(pl.col("estimate").is_not_null())
    return frame.filter(pl.col("estimand").is_in(kind.estimands)) if kind.estimands else frame


def of(frame: pl.DataFrame, model: str, benchmark: str) -> pl.DataFrame:
    """The rows of one model and benchmark."""
    return frame.filter(pl.col("model") == model, pl.col("benchmark") == benchmark)
