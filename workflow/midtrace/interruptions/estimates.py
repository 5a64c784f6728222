"""Estimates of interruptions: A_i(X), L_i(X), failure modes, error attribution and contrasts, with item-bootstrap intervals (method, section 6).

Every estimand is a ratio of item means (:mod:`midtrace.estimands`): repeated trials are averaged within item first, and items weigh equally.
Rows with a ``cut`` but no ``fraction`` and no ``horizon`` are means over all cuts of that kind; rows without a cut are of all traces.
``treatment`` is the arm. Definitions are in ``docs/interruptions.md``.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from midtrace import config as study_config
from midtrace import tables
from midtrace.config import interruptions as interruption_config
from midtrace.estimands import item_terms, judging
from midtrace.inference import intervals

CUT = ["intervention", "cut", "fraction", "horizon"]
PAIR = ["item_id", "replicate", "cut_id", "cut", "fraction", "horizon"]
RATIOS = (0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)  # where the distribution of the leakage ratio is read
MODES = ("panic", "self_doubt", "leakage", "unfinished", "unparsed", "other")


def with_means(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows of every cut, and once more with neither fraction nor horizon, for the means over all cuts of a kind."""
    return pl.concat([frame, frame.with_columns(fraction=pl.lit(None, frame.schema["fraction"]), horizon=pl.lit(None, frame.schema["horizon"]))])


def terms(frame: pl.DataFrame, by: Sequence[str], values: Mapping[str, pl.Expr], within: pl.Expr | None = None) -> pl.DataFrame:
    """Item terms of several estimands, each over the rows where its value is not null (and ``within`` holds)."""
    found = []
    for name, value in values.items():
        known = value.is_not_null() if within is None else value.is_not_null() & within
        found.append(item_terms(frame.with_columns(estimand=pl.lit(name)), ["estimand", *by], value, known))
    return pl.concat(found)


def curve_terms(frame: pl.DataFrame, leakage: Sequence[float]) -> pl.DataFrame:
    """Terms of everything that is measured at a cut.

    Parameters
    ----------
    frame
        Interruptions of one model, benchmark and arm.
    leakage
        Thresholds of the leakage ratio.

    Returns
    -------
    polars.DataFrame
        Keys ``estimand``, ``intervention``, ``cut``, ``fraction``, ``horizon``. ``accuracy`` = A_i(X); ``length`` = L_i(X) in tokens =
        ``added_reasoning`` + ``answer_tokens``; ``update_cost`` = tokens after the interruption / tokens of a fresh run on the whole question.
    """
    number = pl.Float64
    values: dict[str, pl.Expr] = {
        "accuracy": pl.col("correct"),
        "length": pl.col("n_added_reasoning") + pl.col("n_answer"),
        "added_reasoning": pl.col("n_added_reasoning"),
        "answer_tokens": pl.col("n_answer"),
        "uninterrupted_accuracy": pl.col("fresh_correct"),
        "accuracy_change": pl.col("correct").cast(number) - pl.col("fresh_correct").cast(number),
        "new_errors": pl.col("fresh_correct") & ~pl.col("correct"),
        "leakage_ratio": pl.col("leakage_ratio"),
        **{f"leakage_{ratio:g}x": pl.col("leakage_ratio") >= ratio for ratio in leakage},
        "reasoning_markers": pl.col("reasoning_markers") > 0,
        "comment_lines": pl.col("comment_lines"),
        "comment_lines_change": pl.col("comment_lines") - pl.col("fresh_comment_lines"),
        "panic": pl.col("panic"),
        "self_doubt": pl.col("self_doubt"),
        "stale_answer": pl.col("stale"),
        "doubt_markers": pl.col("doubts") > 0,
        "agrees_with_probe": pl.when(pl.col("probe_choice").is_not_null()).then(pl.col("answer").eq_missing(pl.col("probe_choice"))),
        "unfinished": (pl.col("status") == "truncated") | (pl.col("finish_reason") == "length"),
        "malformed": pl.col("status") == "malformed",
        "unparsed": pl.col("answer").is_null(),
    }
    cost = frame.filter(pl.col("doubts").is_not_null(), pl.col("fresh_tokens").is_not_null()).with_columns(estimand=pl.lit("update_cost"))
    ratio = cost.group_by("estimand", *CUT, "item_id", maintain_order=True).agg(
        numerator=pl.col("output_ids").list.len().cast(number).mean(),
        denominator=pl.col("fresh_tokens").cast(number).mean(),
        pairs=pl.len().cast(number),
        is_share=pl.lit(False),
        by_construction=pl.lit(False),
    )
    explained = {f"{name}_of_new_errors": pl.col(name) for name in ("panic", "self_doubt")}
    return pl.concat([terms(frame, CUT, values), terms(frame, CUT, explained, pl.col("mode").is_not_null()), ratio])


def step_terms(frame: pl.DataFrame) -> pl.DataFrame:
    """Terms of the steps of the anytime curve: A_i(X) minus A_i at the fraction before, on the same runs; ``fraction`` is the later one."""
    kept = frame.filter(pl.col("fraction").is_not_null(), pl.col("cut") == "fraction").select(
        *PAIR, "intervention", pl.col("correct").cast(pl.Float64)
    )
    fractions = sorted(kept["fraction"].unique())
    before = {later: earlier for earlier, later in pairwise(fractions)}
    later = kept.filter(pl.col("fraction").is_in(list(before))).with_columns(
        earlier=pl.col("fraction").replace_strict(before, return_dtype=pl.Float64) if before else pl.lit(None, pl.Float64)
    )
    keys = ["item_id", "replicate", "intervention"]
    steps = later.join(kept.select(*keys, earlier="fraction", correct_before="correct"), on=[*keys, "earlier"])
    return terms(steps, CUT, {"anytime_step": pl.col("correct") - pl.col("correct_before")})


def violations(steps: pl.DataFrame) -> pl.DataFrame:
    """The monotonicity check: per intervention, how many steps of the anytime curve have an interval wholly below 0."""
    return steps.group_by("intervention", maintain_order=True).agg(
        estimand=pl.lit("anytime_violations"),
        estimate=(pl.col("ci_high") < 0).sum().cast(pl.Float64),
        n_items=pl.col("n_items").max(),
        n_pairs=pl.col("n_pairs").sum(),
        method=pl.lit("steps whose interval lies below 0"),
    )


def leakage_terms(frame: pl.DataFrame) -> pl.DataFrame:
    """Terms of the distribution of the leakage ratio: the share of runs at or above each ``ratio``."""
    spread = frame.filter(pl.col("leakage_ratio").is_not_null()).join(pl.DataFrame({"ratio": RATIOS}), how="cross")
    return terms(spread, [*CUT, "ratio"], {"leakage_at_least": pl.col("leakage_ratio") >= pl.col("ratio")})


def error_terms(frame: pl.DataFrame) -> pl.DataFrame:
    """Terms of the attribution of new errors (right uninterrupted, wrong interrupted): their shares by mode sum to one."""
    spread = frame.rename({"mode": "found"}).join(pl.DataFrame({"mode": MODES}), how="cross")
    inside = (pl.col("found") == pl.col("mode")).fill_null(False)
    new = pl.col("found").is_not_null()
    by = [*CUT, "mode"]
    return pl.concat([terms(spread, by, {"share_of_new_errors": inside}, new), terms(spread, by, {"share_of_runs": inside})])


def paired_terms(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    """Terms of the contrasts of two sets of interruptions at equal cuts of equal (item, replicate)."""
    columns = [
        pl.col("correct").cast(pl.Float64),
        pl.col("answer"),
        (pl.col("n_added_reasoning") + pl.col("n_answer")).cast(pl.Float64).alias("length"),
    ]
    pairs = left.select(*PAIR, *columns).join(right.select(*PAIR, *columns), on=PAIR, suffix="_r", nulls_equal=True, validate="1:1")
    values = {
        "accuracy_difference": pl.col("correct") - pl.col("correct_r"),
        "length_difference": pl.col("length") - pl.col("length_r"),
        "same_answer": pl.col("answer").eq_missing(pl.col("answer_r")) & pl.col("answer").is_not_null(),
    }
    return terms(pairs, ["cut", "fraction", "horizon"], values)


def state_terms(traces: pl.DataFrame, of: Mapping[str, str]) -> pl.DataFrame:
    """Terms of the shares of traces by status: only terminated ones are interrupted.

    Parameters
    ----------
    traces
        ``item_id``, ``base`` (benchmark, or its revised view), ``status``; one model and arm.
    of
        Intervention -> base.
    """
    found = []
    for intervention, base in of.items():
        frame = traces.filter(pl.col("base") == base).with_columns(intervention=pl.lit(intervention))
        statuses = {f"base_{status}": pl.col("status") == status for status in ("terminated", "truncated", "malformed")}
        found.append(terms(frame, ["intervention"], statuses))
    return pl.concat(found)


def read(shards: Sequence[str | Path], traces: Sequence[str | Path], config: Mapping[str, Any]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """All interruptions, and the statuses of all traces that were to be interrupted; files of another config are refused.

    Returns
    -------
    tuple
        Interruptions with ``model``, ``benchmark``, ``arm``; traces with ``model``, ``base``, ``arm``, ``item_id``, ``status``.
    """
    found, states = [], []
    for path in shards:
        key = tables.TableKey.parse(path, interrupted=True)
        frame = tables.read(path, tables.Interruptions, interruption_config.interruption_grading_settings(config, *key))
        found.append(frame.with_columns(model=pl.lit(key.model), benchmark=pl.lit(key.benchmark), arm=pl.lit(key.arm)))
    for path in traces:
        key = tables.TableKey.parse(path)
        frame = tables.read(path, tables.RawTraces, study_config.traces_settings(config, *key))
        states.append(frame.select("model", "arm", "item_id", "status", base=pl.lit(key.benchmark)))
    return pl.concat(found), pl.concat(states)


def estimate(frame: pl.DataFrame, traces: pl.DataFrame, config: Mapping[str, Any]) -> dict[str, pl.DataFrame]:
    """All tables of interruptions, by name.

    Parameters
    ----------
    frame, traces
        See :func:`read`.
    config
        ``interruptions``, ``inference``, ``comparisons``, ``seed`` are used.
    """
    section, inference = config["interruptions"], config["inference"]
    options = {"resamples": inference["resamples"], "level": inference["level"], "seed": config["seed"]}
    judged = frame.filter(pl.col("judge_verdict").is_not_null())
    frame = with_means(frame)

    def bounded(found: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
        # One at a time: bounds the memory.
        groups = found.partition_by("estimand", maintain_order=True) or [found]
        return pl.concat([intervals(group, ["estimand", *by], **options) for group in groups])

    tables_: dict[str, list[pl.DataFrame]] = {name: [] for name in tables.INTERRUPTIONS}
    for (model, benchmark), own in frame.group_by(["model", "benchmark"], maintain_order=True):
        for (arm,), one in own.group_by(["arm"], maintain_order=True):
            label = {"model": model, "benchmark": benchmark, "treatment": arm}
            steps = bounded(step_terms(one), CUT)
            of = {name: interruption_config.base(config, str(benchmark), name) for name in one["intervention"].unique(maintain_order=True)}
            states = traces.filter(pl.col("model") == model, pl.col("arm") == arm)
            answers = judged.filter(pl.col("model") == model, pl.col("benchmark") == benchmark, pl.col("arm") == arm)
            verdicts = judging(answers, ["intervention"], **options)
            curves = [
                bounded(curve_terms(one, section["leakage"]), CUT),
                steps,
                violations(steps),
                bounded(state_terms(states, of), ["intervention"]),
                verdicts.with_columns(estimand="judge_" + pl.col("estimand")) if len(verdicts) else verdicts,
            ]
            tables_["interruptions"].append(_label(pl.concat(curves, how="diagonal_relaxed"), label))
            tables_["interruptions_leakage"].append(_label(bounded(leakage_terms(one), [*CUT, "ratio"]), label))
            tables_["interruptions_errors"].append(_label(bounded(error_terms(one), [*CUT, "mode"]), label))
            for first, second in section["contrasts"]:
                left, right = (one.filter(pl.col("intervention") == name) for name in (first, second))
                if len(left) and len(right):
                    contrast = bounded(paired_terms(left, right), ["cut", "fraction", "horizon"])
                    tables_["interruptions_contrasts"].append(_label(contrast, {**label, "intervention": first, "against": second}))
        for comparison in config["comparisons"]:
            sides = {"treatment": comparison["treatment"], "reference": comparison["reference"]}
            for intervention in own["intervention"].unique(maintain_order=True):
                left, right = (own.filter(pl.col("arm") == arm, pl.col("intervention") == intervention) for arm in sides.values())
                if len(left) and len(right):
                    contrast = bounded(paired_terms(left, right), ["cut", "fraction", "horizon"])
                    label = {"model": model, "benchmark": benchmark, **sides, "intervention": intervention}
                    tables_["interruptions_contrasts"].append(_label(contrast, label))
    return {name: _shape(parts, name) for name, parts in tables_.items()}


def _label(frame: pl.DataFrame, values: Mapping[str, Any]) -> pl.DataFrame:
    return frame.with_columns(pl.lit(value).alias(name) for name, value in values.items())


def _shape(parts: Sequence[pl.DataFrame], name: str) -> pl.DataFrame:
    columns = {**tables.ESTIMATE_COLUMNS, **tables.INTERRUPTIONS[name]}
    frame = pl.concat([pl.DataFrame(schema=columns), *parts], how="diagonal_relaxed")
    return frame.filter(pl.col("n_pairs") > 0).select(pl.col(column).cast(dtype) for column, dtype in columns.items())


def run(
    shards: Sequence[str | Path], traces: Sequence[str | Path], outputs: Mapping[str, str | Path], study: str, settings: Mapping[str, Any]
) -> None:
    """Write ``decomposition/interruptions*.parquet``.

    Parameters
    ----------
    shards
        Graded interruptions.
    traces
        Raw traces that were to be interrupted.
    outputs
        Table name (a key of ``tables.INTERRUPTIONS``) -> file.
    study, settings
        Name of the study; see :func:`midtrace.config.interruptions.interruption_analysis_settings`.
    """
    config = {**settings["study"], **{key: settings[key] for key in ("interruptions", "inference")}}
    found = estimate(*read(shards, traces, config), config)
    for name, path in outputs.items():
        meta = tables.metadata("decomposition", study, settings, table=name)
        tables.write(found[name], path, None, meta, expect_rows=name != "interruptions_contrasts")
