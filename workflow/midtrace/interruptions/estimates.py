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
from midtrace.decomposition.estimates import bootstrap_settings, label, with_intervals
from midtrace.estimands import item_terms, judging

CUT = ["intervention", "cut", "fraction", "horizon"]
PAIR = ["item_id", "replicate", "cut_id", "cut", "fraction", "horizon"]
RECOVERED = "recovered"  # wrong uninterrupted, right interrupted: no error mode, but part of the net loss
RATIOS = (0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)  # where the distribution of the leakage ratio is read


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


def ratio_terms(frame: pl.DataFrame, by: Sequence[str], above: pl.Expr, below: pl.Expr) -> pl.DataFrame:
    """Terms of a ratio of two item means over the same rows."""
    top, bottom = (item_terms(frame, by, value.cast(pl.Float64)) for value in (above, below))
    return top.with_columns(denominator=bottom["numerator"])


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
        "stale_from_run": pl.col("stale_source") == "run",
        "doubt_markers": pl.col("doubts") > 0,
        "agrees_with_probe": pl.when(pl.col("probe_choice").is_not_null()).then(pl.col("answer").eq_missing(pl.col("probe_choice"))),
        "unfinished": (pl.col("status") == "truncated") | (pl.col("finish_reason") == "length"),
        "malformed": pl.col("status") == "malformed",
        "unparsed": pl.col("answer").is_null(),
    }
    cost = frame.filter(pl.col("doubts").is_not_null(), pl.col("fresh_tokens").is_not_null()).with_columns(estimand=pl.lit("update_cost"))
    ratio = ratio_terms(cost, ["estimand", *CUT], pl.col("output_ids").list.len(), pl.col("fresh_tokens"))
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
    spread = frame.rename({"mode": "explained_by"}).join(pl.DataFrame({"mode": tables.ERROR_MODES}), how="cross")
    inside = (pl.col("explained_by") == pl.col("mode")).fill_null(False)
    new = pl.col("explained_by").is_not_null()
    by = [*CUT, "mode"]
    return pl.concat([terms(spread, by, {"share_of_new_errors": inside}, new), terms(spread, by, {"share_of_runs": inside})])


def net_loss_shares(frame: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """The new errors of each mode over the net loss of accuracy, uninterrupted minus interrupted on the same runs.

    Parameters
    ----------
    frame
        Interruptions of one model, benchmark and arm.
    settings
        See :func:`midtrace.decomposition.estimates.with_intervals`.

    Returns
    -------
    polars.DataFrame
        Estimand ``share_of_net_loss`` by cut and ``mode``. The further mode ``recovered``, wrong uninterrupted and right interrupted, is negative:
        all rows of a cut sum to 1. No rows for a cut without a net loss; no limits where the interval of the loss includes 0.
    """
    known = frame.filter(pl.col("fresh_correct").is_not_null()).with_columns(
        loss=pl.col("fresh_correct").cast(pl.Float64) - pl.col("correct").cast(pl.Float64), estimand=pl.lit("share_of_net_loss")
    )
    loss = with_intervals(item_terms(known, CUT, pl.col("loss")), CUT, settings).filter(pl.col("estimate") > 0)
    spread = known.rename({"mode": "explained_by"}).join(pl.DataFrame({"mode": [*tables.ERROR_MODES, RECOVERED]}), how="cross")
    recovered = (pl.col("mode") == RECOVERED) & ~pl.col("fresh_correct") & pl.col("correct")
    share = (pl.col("explained_by") == pl.col("mode")).fill_null(False).cast(pl.Int8) - recovered.cast(pl.Int8)
    shares = ratio_terms(spread, ["estimand", *CUT, "mode"], share, pl.col("loss"))
    lost = shares.join(loss.select(CUT), on=CUT, how="semi", nulls_equal=True)
    sure = pl.col("ci_low_loss") > 0
    return (
        with_intervals(lost, ["estimand", *CUT, "mode"], settings)
        .join(loss.select(*CUT, "n_items", "ci_low"), on=CUT, suffix="_loss", nulls_equal=True)
        .with_columns(
            pl.when(sure).then(pl.col("ci_low", "ci_high")),
            method=pl.when(sure).then("method").otherwise(pl.lit("no limits: the loss may be 0")),
            n_items="n_items_loss",
        )
        .drop("n_items_loss", "ci_low_loss")
    )


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
        ``interruptions``, ``inference``, ``comparisons`` and ``seed`` are used; ``strata`` (item -> stratum) where strata are kept.
    """
    section = config["interruptions"]
    judged = frame.filter(pl.col("judge_verdict").is_not_null())
    frame = with_means(frame)

    def bounded(found: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
        # One at a time: bounds the memory.
        groups = found.partition_by("estimand", maintain_order=True) or [found]
        return pl.concat([with_intervals(group, ["estimand", *by], config) for group in groups])

    made: dict[str, list[pl.DataFrame]] = {name: [] for name in tables.INTERRUPTIONS}
    for (model, benchmark), of_benchmark in frame.group_by(["model", "benchmark"], maintain_order=True):
        for (arm,), of_arm in of_benchmark.group_by(["arm"], maintain_order=True):
            names = {"model": str(model), "benchmark": str(benchmark), "treatment": str(arm)}
            steps = bounded(step_terms(of_arm), CUT)
            bases = {name: interruption_config.base(config, str(benchmark), name) for name in of_arm["intervention"].unique(maintain_order=True)}
            states = traces.filter(pl.col("model") == model, pl.col("arm") == arm)
            answers = judged.filter(pl.col("model") == model, pl.col("benchmark") == benchmark, pl.col("arm") == arm)
            verdicts = judging(answers, ["intervention"], **bootstrap_settings(config))
            curves = [
                bounded(curve_terms(of_arm, section["leakage"]), CUT),
                steps,
                violations(steps),
                bounded(state_terms(states, bases), ["intervention"]),
                verdicts.with_columns(estimand="judge_" + pl.col("estimand")) if len(verdicts) else verdicts,
            ]
            errors = [bounded(error_terms(of_arm), [*CUT, "mode"]), net_loss_shares(of_arm, config)]
            made["interruptions"].append(label(pl.concat(curves, how="diagonal_relaxed"), names))
            made["interruptions_leakage"].append(label(bounded(leakage_terms(of_arm), [*CUT, "ratio"]), names))
            made["interruptions_errors"].append(label(pl.concat(errors, how="diagonal_relaxed"), names))
            for first, second in section["contrasts"]:
                left, right = (of_arm.filter(pl.col("intervention") == name) for name in (first, second))
                if len(left) and len(right):
                    contrast = bounded(paired_terms(left, right), ["cut", "fraction", "horizon"])
                    made["interruptions_contrasts"].append(label(contrast, {**names, "intervention": first, "against": second}))
        for comparison in config["comparisons"]:
            sides = {"treatment": comparison["treatment"], "reference": comparison["reference"]}
            for intervention in of_benchmark["intervention"].unique(maintain_order=True):
                left, right = (of_benchmark.filter(pl.col("arm") == arm, pl.col("intervention") == intervention) for arm in sides.values())
                if len(left) and len(right):
                    contrast = bounded(paired_terms(left, right), ["cut", "fraction", "horizon"])
                    names = {"model": str(model), "benchmark": str(benchmark), **sides, "intervention": intervention}
                    made["interruptions_contrasts"].append(label(contrast, names))
    return {name: _shape(parts, name) for name, parts in made.items()}


def _shape(parts: Sequence[pl.DataFrame], name: str) -> pl.DataFrame:
    columns = {**tables.ESTIMATE_COLUMNS, **tables.INTERRUPTIONS[name]}
    frame = pl.concat([pl.DataFrame(schema=columns), *parts], how="diagonal_relaxed")
    return frame.filter(pl.col("n_pairs") > 0).select(pl.col(column).cast(dtype) for column, dtype in columns.items())


def strata_of_items(paths: Sequence[str | Path], config: Mapping[str, Any]) -> dict[str, str]:
    """Item -> stratum, for the items of these tables and of their revised views; a table of another config is refused."""
    strata: dict[str, str] = {}
    for path in paths:
        benchmark = Path(path).stem
        items = tables.read(path, tables.Items, study_config.items_settings(config, benchmark))
        for item, stratum in items.select("item_id", "stratum").iter_rows():
            strata |= {item: stratum, f"{benchmark}{study_config.REVISED}{item.removeprefix(benchmark)}": stratum}
    return strata


def run(
    shards: Sequence[str | Path],
    traces: Sequence[str | Path],
    item_tables: Sequence[str | Path],
    outputs: Mapping[str, str | Path],
    study: str,
    settings: Mapping[str, Any],
) -> None:
    """Write ``decomposition/interruptions*.parquet``.

    Parameters
    ----------
    shards
        Graded interruptions.
    traces
        Raw traces that were to be interrupted.
    item_tables
        Items of the benchmarks, for their strata.
    outputs
        Table name (a key of ``tables.INTERRUPTIONS``) -> file.
    study, settings
        Name of the study; see :func:`midtrace.config.interruptions.interruption_analysis_settings`.
    """
    config = {**settings["study"], **{key: settings[key] for key in ("interruptions", "inference")}}
    if config["inference"]["strata"]:
        config["strata"] = strata_of_items(item_tables, config)
    found = estimate(*read(shards, traces, config), config)
    for name, path in outputs.items():
        meta = tables.metadata("decomposition", study, settings, table=name)
        tables.write(found[name], path, None, meta, expect_rows=name != "interruptions_contrasts")
