"""Tables of whether the readings hold: the probe beside what the run answered, wrote on, or was read as later (method, 4.7)."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from midtrace import estimands
from midtrace.decomposition.estimates import bootstrap_settings, with_intervals

KEYS = ["reading", "context", "context_arm", "horizon", "fraction"]
READ_COLUMNS = [
    "trace_id",
    "cut_id",
    "cut",
    "horizon",
    "fraction",
    "partner_arm",
    "n_tokens",
    "complete",
    "context",
    "context_arm",
    "choice",
    "correct",
]


def stand_in(continuations: pl.LazyFrame) -> pl.LazyFrame:
    """Continued answers as readouts, for a benchmark without options: ``choice`` is ``right``, ``wrong``, or that nothing could be read."""
    choice = estimands.right_or_wrong().fill_null(estimands.NOT_READ)
    return continuations.filter(pl.col("mode") == "answer").with_columns(choice=choice)


def readings(
    readouts: pl.LazyFrame, continuations: pl.LazyFrame, traces: pl.DataFrame, by: str, horizons: list[int], later: list[int]
) -> pl.DataFrame:
    """The probe beside what the run answered, wrote on, or was read as later; one row per reading.

    Parameters
    ----------
    readouts
        Columns ``READ_COLUMNS``: of the probe, or of what stands in for it (:func:`stand_in`).
    continuations
        Graded continuations; where something stands in for the probe, with an ``answer`` to compare as it is.
    traces
        Traces of one model and benchmark, likewise.
    by
        ``probe`` or ``continuation``: what the readouts are, which names the readings.
    horizons, later
        See :func:`midtrace.estimands.later_rows`.

    Returns
    -------
    polars.DataFrame
        ``item_id``, ``arm``, ``KEYS``, ``k``, ``choice``, ``answer``, ``probe_correct``, ``answer_correct``. Readings: ``{by}_natural_complete``,
        on whole blocks of terminated runs, from any cut that reaches the whole block, one row per run and context;
        ``{by}_natural_unfinished``, by fraction of the reasoning, below 1; ``probe_continuation``, on unfinished horizon cuts, by horizon and
        context; ``{by}_resume``, by fraction: the answer of the run that was sampled on from there; ``{by}_later``, by horizon and ``k``.
    """
    keys = ["trace_id", "cut_id", "context", "context_arm"]
    runs = traces.select("trace_id", "item_id", "arm", "status", "answer", answer_correct="correct")
    ids = runs.lazy().select("trace_id")
    read = readouts.select(READ_COLUMNS).rename({"correct": "probe_correct"}).join(ids, on="trace_id", how="semi")
    answered = continuations.select(*keys, "mode", "answer", answer_correct="correct").join(ids, on="trace_id", how="semi")
    own = pl.col("context") == "policy"
    # All cuts that reach the whole block keep the same tokens: any of them is the reading.
    whole = read.filter("complete").unique(["trace_id", "context", "context_arm"], keep="any").collect(engine="streaming")
    unfinished = read.filter(~pl.col("complete"))
    by_fraction = unfinished.filter(own, pl.col("cut") == "fraction").collect(engine="streaming")
    parts = {
        f"{by}_natural_complete": whole.join(runs, on="trace_id").with_columns(horizon=pl.lit(None, pl.Int32), fraction=pl.lit(1.0)),
        f"{by}_natural_unfinished": by_fraction.join(runs.filter(pl.col("status") == "terminated"), on="trace_id"),
        f"{by}_resume": _beside(by_fraction, answered.filter(pl.col("mode") == "resume"), keys, runs),
    }
    at_horizons = unfinished.filter(pl.col("cut") == "horizon")
    if by == "probe":
        parts["probe_continuation"] = _beside(at_horizons.collect(engine="streaming"), answered.filter(pl.col("mode") == "answer"), keys, runs)
    own_at = at_horizons.filter(own).rename({"probe_correct": "correct"}).collect(engine="streaming")
    parts[f"{by}_later"] = estimands.later_rows(own_at, traces, horizons, later).with_columns(
        context=pl.lit("policy"),
        context_arm="arm",
        fraction=pl.lit(None, pl.Float64),
        # Two looks of which nothing could be read do not agree.
        answer=pl.when(pl.col("answer") != estimands.NOT_READ).then("answer"),
    )
    columns = ["item_id", "arm", *KEYS, "k", "choice", "answer", "probe_correct", "answer_correct"]
    no_k = pl.lit(None, pl.Int32).alias("k")
    named = (part.with_columns(pl.lit(name).alias("reading"), *([] if "k" in part.columns else [no_k])) for name, part in parts.items())
    return pl.concat([part.select(columns) for part in named]).sort(*KEYS, "k", "arm", "item_id", maintain_order=True)


def _beside(read: pl.DataFrame, answered: pl.LazyFrame, keys: list[str], runs: pl.DataFrame) -> pl.DataFrame:
    """Readouts beside the continuation of the same cut."""
    both = read.lazy().join(answered, on=keys).collect(engine="streaming")
    return both.join(runs.select("trace_id", "item_id", "arm"), on="trace_id").sort("trace_id", "cut_id", "context_arm")


def validity(readings: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Share of equal answers of the probe and the run, or what was written on from the cut; an unparsed answer equals nothing."""
    kept = readings.filter(pl.col("k").is_null())
    if kept.is_empty():
        return pl.DataFrame()
    same = (pl.col("choice") == pl.col("answer")).fill_null(False)
    by = ["estimand", *KEYS[1:]]
    return with_intervals(estimands.item_terms(kept.rename({"reading": "estimand"}), by, same), by, settings)


def agreement(readings: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Agreement, Cohen's kappa and accuracy gap of :func:`readings`."""
    return estimands.agreement(readings, [*KEYS, "k"], **bootstrap_settings(settings))
