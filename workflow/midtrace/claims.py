"""Claims: the headline estimates of a study, machine-readable, each with where it came from."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from midtrace import __version__, tables, verdicts
from midtrace.config import file_hash
from midtrace.estimands import COMMON


@dataclass(frozen=True)
class Headline:
    """A kind of claim: which rows of which table.

    Attributes
    ----------
    claim
        What is claimed, in words; ``{treatment}``, ``{reference}``, ``{horizon}`` are filled.
    table
        A decomposition table.
    where
        Column -> value (or values) that its rows have; None stands for an empty cell.
    """

    claim: str
    table: str
    where: Mapping[str, Any]


HEADLINES = (
    Headline("reasoning length of {treatment} over {reference}, geometric mean", "lengths", {"estimand": "geometric_mean_ratio"}),
    Headline("reasoning length of {treatment} over {reference}, median", "lengths", {"estimand": "median_ratio"}),
    Headline("accuracy of {treatment} minus {reference}, stopped at {horizon} tokens", "policy", {"estimand": "contrast"}),
    Headline(
        "accuracy of {treatment} minus {reference} at {horizon} tokens, both runs unfinished, common context",
        "policy",
        {"estimand": "both_active_contrast", "readout": COMMON},
    ),
    Headline(
        "readout gap at {horizon} tokens: what the contrast changes by where finished runs are read as unfinished ones are ({readout})",
        "policy",
        {"estimand": "readout_gap"},
    ),
    Headline(
        "context gap at {horizon} tokens: what the contrast changes by where the shared prompt replaces the own ones ({readout})",
        "policy",
        {"estimand": "context_gap"},
    ),
    Headline(
        "contribution at {horizon} tokens of pairs of which only {treatment} has finished",
        "strata",
        {"estimand": "contribution", "termination": "treatment_complete"},
    ),
    Headline(
        "share of the contrast at {horizon} tokens that comes from pairs of which only {treatment} has finished",
        "dominance",
        {"estimand": "finishing_share"},
    ),
    Headline(
        "lead at {horizon} tokens of what pairs contribute of which only {treatment} has finished over what pairs contribute that both still think",
        "dominance",
        {"estimand": "lead"},
    ),
    Headline(
        "p value of the claim that pairs of which only the treatment has finished contribute at {horizon} tokens, and more than those that both "
        "still think, in all declared comparisons",
        "dominance",
        {"estimand": "dominant_in_all_p"},
    ),
    Headline(
        "accuracy of {treatment} minus {reference} at {horizon} tokens if unfinished runs beside finished ones are read as: {reading}",
        "bounds",
        {"estimand": "contrast"},
    ),
    Headline(
        "share of the pairs of which one run has finished at {horizon} tokens that would have to be misread for the contrast to vanish",
        "bounds",
        {"estimand": "tipping_share"},
    ),
    Headline(
        "trimming bounds at {horizon} tokens of {treatment} minus {reference} among runs that would be unfinished under both",
        "survivors",
        {"estimand": ("trimmed_lower", "trimmed_upper")},
    ),
    Headline(
        "accuracy of {treatment} minus {reference} at {horizon} tokens, both runs unfinished, standardised over the reference's length",
        "survivors",
        {"estimand": "standardised_contrast"},
    ),
    Headline("part of the contrast at {horizon} tokens that is there at equal length", "split", {"estimand": "equal_tokens"}),
    Headline("part of the contrast at {horizon} tokens that the further tokens of {reference} make", "split", {"estimand": "further_tokens"}),
    Headline("accuracy of {treatment} minus {reference} at the matched horizon", "matched", {"estimand": "matched_contrast"}),
    Headline("p value of equivalence at the matched horizon", "matched", {"estimand": "matched_equivalence_p"}),
    Headline("answer availability of {treatment} minus {reference}, mean gold log-odds", "availability", {"estimand": "auc_contrast"}),
    Headline(
        "agreement of the probe with the answer of finished runs, {treatment}, whole blocks read behind the prompt of {context_arm}",
        "agreement",
        {"estimand": ("agreement", "kappa"), "reading": "probe_natural_complete"},
    ),
    Headline(
        "agreement of the continued answer with that of finished runs, right or wrong, {treatment}, whole blocks behind the prompt of {context_arm}",
        "agreement",
        {"estimand": ("agreement", "kappa"), "reading": "continuation_natural_complete"},
    ),
    Headline("share of right answers, {treatment}, all runs (truncated and malformed ones are wrong)", "lengths", {"estimand": "natural_accuracy"}),
    Headline("share of right answers, {treatment}, terminated runs alone", "lengths", {"estimand": "natural_accuracy_terminated"}),
    Headline(
        "falsifier: unfinished {reference} prefixes at the lengths of {treatment}, {readout} against the run's own answer",
        "falsifier",
        {"estimand": ("agreement", "kappa", "accuracy_gap"), "fraction": None, "context": "common"},
    ),
    Headline(
        "number of answers of {treatment} ({reading}) whose verdict of the judge could not be read or was cut off",
        "judging",
        {"estimand": ("unread", "truncated")},
    ),
    Headline("agreement of the judge with the rules on answers of {treatment} ({reading})", "judging", {"estimand": ("agreement", "kappa")}),
    Headline("traces of {treatment} that repeat another replicate", "replicates", {"estimand": "share_duplicates"}),
    Headline("traces of {treatment} that a decode-encode round trip changes", "retokenisation", {"estimand": "trace_drift"}),
)


def claims(found: Mapping[str, pl.DataFrame], files: Mapping[str, str]) -> list[dict[str, Any]]:
    """The headline estimates as records.

    Parameters
    ----------
    found
        Decomposition tables by name.
    files
        Table -> the file it is in, as it shall be named.

    Returns
    -------
    list of dict
        ``claim``, ``model``, ``benchmark``, ``treatment``, ``reference``, ``estimand``, ``horizon``, ``readout``, ``termination``, ``context``,
        ``estimate``, ``ci_low``, ``ci_high``, ``n_items``, ``n_pairs``, ``method``, ``p``, ``p_holm`` (adjusted within the declared family),
        ``file``; estimates as in the tables, to the last bit. What is empty is null; rows without an estimate are no claims.
    """
    columns = [*tables.ESTIMATE_COLUMNS, "termination", "context", "reading", "p", "p_holm"]
    records = []
    for headline in HEADLINES:
        frame = found[headline.table].filter(pl.col("estimate").is_not_null())
        for column, value in headline.where.items():
            values = value if isinstance(value, tuple) else (value,)
            frame = frame.filter(pl.any_horizontal(pl.col(column).eq_missing(pl.lit(entry)) for entry in values))
        for row in frame.iter_rows(named=True):
            record = {column: _plain(row.get(column)) for column in columns}
            records.append({"claim": headline.claim.format_map(row), **record, "file": files[headline.table]})
    return records


def falsified(table: pl.DataFrame, level: float) -> list[dict[str, Any]]:
    """The falsifier's verdict by comparison, in the common context, with the number of prefixes by fraction.

    Returns
    -------
    list of dict
        ``model``, ``benchmark``, ``treatment``, ``reference``, ``verdict`` (:func:`midtrace.verdicts.falsifier_verdict`), ``prefixes`` (upper
        edge -> number).
    """
    keys = ["model", "benchmark", "treatment", "reference"]
    parts = table.filter(pl.col("context") == "common").partition_by(keys, as_dict=True, maintain_order=True)
    return [
        {
            **dict(zip(keys, key, strict=True)),
            "verdict": verdicts.falsifier_verdict(rows, level),
            "prefixes": {f"{edge:g}": count for edge, count in verdicts.falsifier_counts(rows).items()},
        }
        for key, rows in parts.items()
    ]


def _plain(value: Any) -> Any:
    """JSON has no infinities; they are written as text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def run(inputs: Mapping[str, str | Path], output: str | Path, study: str, settings: Mapping[str, Any]) -> None:
    """Write ``claims.json``.

    Parameters
    ----------
    inputs
        Table -> file, for all of ``tables.DECOMPOSITION``.
    output
        The file to write: ``study``, ``version``, ``level``, ``resamples``, ``margin``, ``judge`` (the benchmarks whose answers it graded, its
        model, and what it was asked; null: rules graded all), ``files`` (name -> digest), ``claims``, ``falsifier`` (:func:`falsified`).
    study, settings
        Name of the study; see :func:`midtrace.config.analysis_settings`.
    """
    found = {}
    for name, path in inputs.items():
        found[name] = tables.read(path, expected=settings)
    root = Path(output).parent
    files = {name: Path(os.path.relpath(path, root)).as_posix() for name, path in inputs.items()}
    inference = settings["inference"]
    content = {
        "study": study,
        "version": __version__,
        **{key: inference[key] for key in ("level", "resamples", "margin")},
        "seed": settings["seed"],
        "judge": settings["judge"],
        "files": {files[name]: file_hash(str(path)) for name, path in inputs.items()},
        "claims": claims(found, files),
        "falsifier": falsified(found["falsifier"], inference["level"]),
    }
    with tables.whole(output) as temporary:
        temporary.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
