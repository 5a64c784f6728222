"""Tables of a single arm, or of none: lengths, judging, retokenisation, replicates, controls."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from midtrace import estimands, tables
from midtrace.decomposition.estimates import bootstrap_settings, with_intervals
from midtrace.estimands import survival
from midtrace.inference import duplicate_replicates


def arm_lengths(traces: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Per arm: mean length; shares truncated, malformed, unparsed, read without a statement; natural accuracy; completion curve, restricted mean.

    ``share_several_messages`` is there where any run reasons in several messages.

    ``natural_accuracy`` is over all runs, truncated and malformed ones wrong; ``natural_accuracy_terminated`` over terminated runs alone.
    """
    terminated = pl.col("status") == "terminated"
    # Where the format broke, the length of the reasoning is not known.
    formed = pl.col("status") != "malformed"
    values = {
        "share_truncated": pl.col("status") == "truncated",
        "share_malformed": pl.col("status") == "malformed",
        "share_unparsed": terminated & pl.col("answer").is_null(),
        "natural_accuracy": pl.col("correct"),
    }
    if "grade_note" in traces.columns:
        values["share_unstated"] = (pl.col("grade_note") == tables.UNSTATED).fill_null(False)
    if "format_after" in traces.columns and (traces["format_after"].list.len() > 0).any():
        values["share_several_messages"] = pl.col("format_after").list.len() > 0
    terms = [estimands.named(traces, "mean_length", [], pl.col("n_reasoning"), formed)]
    terms += [estimands.named(traces, name, [], value) for name, value in values.items()]
    terms.append(estimands.named(traces, "natural_accuracy_terminated", [], pl.col("correct"), terminated))
    curve = survival.summary(traces, settings["horizons"], **bootstrap_settings(settings))
    return pl.concat([with_intervals(pl.concat(terms), ["estimand"], settings), curve], how="diagonal_relaxed")


def judged(own: pl.DataFrame, traces: pl.LazyFrame, continuations: pl.LazyFrame) -> pl.DataFrame:
    """The answers that a judge graded: of runs (``reading`` is ``natural``) and of continuations (their mode).

    Parameters
    ----------
    own
        ``trace_id``, ``item_id``, ``arm`` of the traces of one model and benchmark.
    traces, continuations
        Graded tables of any.

    Returns
    -------
    polars.DataFrame
        ``item_id``, ``arm``, ``reading``, ``correct``, ``rules_correct``, ``judge_verdict``, sorted by trace.
    """
    columns = ["trace_id", "reading", "correct", "rules_correct", "judge_verdict"]
    # Mode natural repeats the runs.
    parts = [traces.with_columns(reading=pl.lit("natural")), continuations.filter(pl.col("mode") != "natural").rename({"mode": "reading"})]
    found = pl.concat([part.select(columns) for part in parts]).join(own.lazy().select("trace_id", "item_id", "arm"), on="trace_id")
    return found.collect(engine="streaming").sort("reading", "trace_id").select("item_id", "arm", *columns[1:])


def judging(answers: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Verdicts and agreement with the rules of the answers of an arm (:func:`judged`), by reading."""
    return estimands.judging(answers, ["reading"], **bootstrap_settings(settings))


def retokenisation(cuts: pl.DataFrame, traces: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Share of traces that a decode-encode round trip changes: anywhere (``trace_drift``), and within the prefix at B (``prefix_drift``)."""
    by = ["estimand", "horizon"]
    whole = traces.with_columns(estimand=pl.lit("trace_drift"), horizon=pl.lit(None, pl.Int32))
    at = cuts.filter(pl.col("cut") == "horizon").join(traces.select("trace_id", "item_id"), on="trace_id").sort("horizon", "trace_id")
    prefix = at.with_columns(estimand=pl.lit("prefix_drift"))
    terms = [estimands.item_terms(whole, by, pl.col("drift_at").is_not_null()), estimands.item_terms(prefix, by, pl.col("drift"))]
    return with_intervals(pl.concat(terms), by, settings)


def replicates(duplicates: pl.DataFrame, traces: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Whether an arm's replicates are replicates, and what each says alone.

    ``share_duplicates``: traces whose output ids another, lower replicate of the item has too. ``share_all_identical``: items whose replicates
    are all the same (near 1: unseeded generation; such replicates add nothing). ``natural_accuracy`` and ``mean_length`` by ``replicate``.
    """
    several = duplicates.filter(pl.col("n_replicates") > 1)
    found = []
    if len(several):
        share = pl.col("n_duplicates") / (pl.col("n_replicates") - 1)
        terms = [
            estimands.named(several, "share_duplicates", [], share),
            estimands.named(several, "share_all_identical", [], pl.col("n_duplicates") == pl.col("n_replicates") - 1),
        ]
        found.append(with_intervals(pl.concat(terms), ["estimand"], settings))
    alone = [
        estimands.named(traces, "natural_accuracy", ["replicate"], pl.col("correct")),
        estimands.named(traces, "mean_length", ["replicate"], pl.col("n_reasoning"), pl.col("status") != "malformed"),
    ]
    found.append(with_intervals(pl.concat(alone), ["estimand", "replicate"], settings))
    return pl.concat(found, how="diagonal_relaxed")


def duplicates(traces: pl.LazyFrame) -> pl.DataFrame:
    """See :func:`midtrace.inference.duplicate_replicates`; reads output ids shard by shard."""
    return duplicate_replicates(traces).collect(engine="streaming")


def controls(frame: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Per control and horizon: accuracy; share that follows the stated label; and chance (mean of 1 / options)."""
    if frame.is_empty():
        return pl.DataFrame()
    by = ["control", "position"]
    stated = frame.filter(pl.col("follows").is_not_null())
    terms = [
        estimands.named(frame, "accuracy", by, pl.col("correct")),
        estimands.named(frame, "chance", by, 1 / pl.col("n_options")),
        estimands.named(stated, "follows_stated", by, pl.col("follows")),
    ]
    return with_intervals(pl.concat(terms), ["estimand", *by], settings)
