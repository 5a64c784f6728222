"""Stage 6: decomposition. From outcomes and readouts to tables of estimates, one row per estimate."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from midtrace import estimands, planted, survival, tables
from midtrace.inference import equivalence, intervals, resample_weights
from midtrace.outcomes import read_stages


def run(
    outcomes: str | Path,
    inputs: Mapping[str, Sequence[str | Path]],
    planted_file: str | Path | None,
    outputs: Mapping[str, str | Path],
    study: str,
    settings: Mapping[str, Any],
) -> None:
    """Write all tables of ``decomposition/``.

    Parameters
    ----------
    outcomes
        ``outcomes.parquet``.
    inputs
        Shards by stage: ``item_tables``, ``traces``, ``cuts``, ``readouts``, ``continuations``, ``controls``; and tables of estimates,
        ``interruptions``.
    planted_file
        Planted effects, or None.
    outputs
        Table name (a key of ``tables.DECOMPOSITION``) -> file.
    study, settings
        Name of the study; see :func:`midtrace.config.analysis_settings`.
    """
    frames = read_stages(inputs, settings["outcomes"])
    frames["outcomes"] = tables.read(outcomes, tables.Outcomes, settings["outcomes"])
    found = decompose(frames, settings)
    others = {Path(path).stem: _of_another_rule(path, settings) for path in inputs.get("interruptions", ())}
    found["planted"] = planted.compare({**found, **others}, planted_file)
    for name, path in outputs.items():
        frame = shape(found[name], name)
        tables.write(
            frame, path, None, tables.metadata("decomposition", study, settings, table=name), expect_rows=name in ("policy", "strata", "lengths")
        )


def _of_another_rule(path: str | Path, settings: Mapping[str, Any]) -> pl.DataFrame:
    """A table of estimates of interruptions; one of another study config is refused. Its own settings are its rule's business."""
    own = tables.read_metadata(path)["identity"]
    tables.check_identity(path, {**own, "study": settings["outcomes"]})
    return pl.read_parquet(path)


def shape(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """Give a table its declared columns; what it lacks is null."""
    columns = {**tables.ESTIMATE_COLUMNS, **tables.DECOMPOSITION[name]}
    if frame.is_empty():
        return pl.DataFrame(schema=columns)
    absent = [pl.lit(None, dtype).alias(column) for column, dtype in columns.items() if column not in frame.columns]
    return frame.with_columns(absent).select(pl.col(column).cast(dtype) for column, dtype in columns.items())


def decompose(frames: Mapping[str, pl.DataFrame], settings: Mapping[str, Any]) -> dict[str, pl.DataFrame]:
    """All tables but ``planted``, by name, for every model, benchmark and comparison."""
    found: dict[str, list[pl.DataFrame]] = {name: [] for name in tables.DECOMPOSITION}
    items = frames["item_tables"].select("item_id", "benchmark")
    traces = frames["traces"].join(items, on="item_id")
    for model in settings["models"]:
        for benchmark in settings["benchmarks"]:
            where = (pl.col("model") == model) & (pl.col("benchmark") == benchmark)
            own = traces.filter(where)
            outcomes = frames["outcomes"].filter(where)
            label = {"model": model, "benchmark": benchmark}
            for comparison in settings["comparisons"]:
                t, r, common = comparison["treatment"], comparison["reference"], comparison["common"]
                both = {**label, "treatment": t, "reference": r}
                pairs = estimands.pairs(outcomes, t, r, common)
                found["policy"].append(_label(policy(pairs, settings), both))
                found["strata"].append(_label(strata(pairs, settings), both))
                found["matched"].append(_label(matched(frames, own, comparison, settings), both))
                found["lengths"].append(_label(length_contrasts(own, t, r, settings), both))
            for arm in own["arm"].unique(maintain_order=True):
                one = {**label, "treatment": arm}
                mine = own.filter(pl.col("arm") == arm)
                found["lengths"].append(_label(arm_lengths(mine, settings), one))
                found["validity"].append(_label(validity(frames["continuations"], mine, settings), one))
                found["retokenisation"].append(_label(retokenisation(frames["cuts"], mine, settings), one))
            read = frames["controls"].filter(pl.col("model") == model, pl.col("item_id").str.starts_with(f"{benchmark}/"))
            found["controls"].append(_label(controls(read, settings), label))
    return {
        name: pl.concat([f for f in parts if len(f)], how="diagonal_relaxed") if any(map(len, parts)) else pl.DataFrame()
        for name, parts in found.items()
    }


def _label(frame: pl.DataFrame, values: Mapping[str, str]) -> pl.DataFrame:
    return frame.with_columns(pl.lit(value).alias(name) for name, value in values.items()) if len(frame) else frame


def _intervals(terms: pl.DataFrame, by: Sequence[str], settings: Mapping[str, Any]) -> pl.DataFrame:
    inference = settings["inference"]
    return intervals(terms, by, resamples=inference["resamples"], level=inference["level"], seed=settings["seed"])


def policy(pairs: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Policy accuracy, its parts and contrasts, the both-active contrast, and the readout gap, by horizon and readout."""
    terms = [estimands.policy_terms(pairs), estimands.both_active_terms(pairs)]
    if {"terminal", "symmetric"} <= set(pairs["readout"]):
        terms.append(estimands.readout_gap_terms(pairs))
    return _intervals(pl.concat(terms), ["estimand", "horizon", "readout"], settings)


def strata(pairs: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Termination strata by horizon and readout; the interval is that of the contribution."""
    by = ["horizon", "readout", "termination"]
    terms = estimands.strata_terms(pairs)
    contribution = _intervals(terms["contribution"], by, settings)
    for name in ("share", "difference"):
        contribution = contribution.join(estimands.estimate(terms[name], by).rename({"estimate": name}), on=by, how="left")
    return contribution.with_columns(estimand=pl.lit("contribution"), contribution="estimate")


def matched(frames: Mapping[str, pl.DataFrame], traces: pl.DataFrame, comparison: Mapping[str, str], settings: Mapping[str, Any]) -> pl.DataFrame:
    """Accuracy of both sides and their contrast at the matched horizon, by probe and by continuation, with the equivalence test."""
    reads = {"probe": frames["readouts"], "continuation": frames["continuations"].filter(pl.col("mode") == "answer")}
    found = []
    for readout, frame in reads.items():
        pairs = estimands.matched_pairs(frame, traces, comparison["treatment"], comparison["reference"], comparison["common"])
        if pairs.is_empty():
            continue
        pairs = pairs.with_columns(readout=pl.lit(readout))
        terms = [
            estimands.item_terms(pairs.with_columns(estimand=pl.lit(f"matched_{name}")), ["estimand", "readout"], pl.col(column))
            for name, column in (("contrast", "difference"), ("accuracy_treatment", "correct_t"), ("accuracy_reference", "correct_r"))
        ]
        found.append(_intervals(pl.concat(terms), ["estimand", "readout"], settings))
        means = pairs.group_by("item_id").agg(pl.col("difference").mean())["difference"].to_numpy()
        if len(means) > 1:
            margin = settings["inference"]["margin"]
            test = equivalence(means, margin, settings["inference"]["level"])
            found.append(
                pl.DataFrame(
                    {
                        "estimand": "matched_equivalence_p",
                        "readout": readout,
                        "estimate": test["p"],
                        "n_items": len(means),
                        "n_pairs": len(pairs),
                        "method": f"two one-sided t tests, margin {margin:g}",
                    }
                )
            )
    return pl.concat(found, how="diagonal") if found else pl.DataFrame()


def length_contrasts(traces: pl.DataFrame, treatment: str, reference: str, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Geometric-mean ratio and median ratio of the reasoning lengths, treatment over reference."""
    pairs = estimands.length_pairs(traces, treatment, reference)
    if pairs.is_empty():
        return pl.DataFrame()
    positive = pairs.filter(pl.col("log_ratio").is_not_null()).with_columns(estimand=pl.lit("geometric_mean_ratio"))
    ratio = _intervals(estimands.item_terms(positive, ["estimand"], pl.col("log_ratio")), ["estimand"], settings)
    ratio = ratio.with_columns(pl.col("estimate", "ci_low", "ci_high").exp())
    grid = pairs.group_by("item_id", maintain_order=True).agg("length_t", "length_r")
    weights = resample_weights(len(grid), min(settings["inference"]["resamples"], 1_000), settings["seed"]).astype(int)
    lists = [(np.array(t), np.array(r)) for t, r in grid.select("length_t", "length_r").iter_rows()]
    draws = []
    for row in weights:
        drawn = [lists[k] for k, count in enumerate(row) for _ in range(count)]
        draws.append(np.median(np.concatenate([t for t, _ in drawn])) / max(np.median(np.concatenate([r for _, r in drawn])), 1))
    tail = (1 - settings["inference"]["level"]) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    median = pl.DataFrame(
        {
            "estimand": "median_ratio",
            "estimate": estimands.median_ratio(pairs),
            "ci_low": low,
            "ci_high": high,
            "n_items": len(grid),
            "n_pairs": len(pairs),
            "method": f"item bootstrap, percentile, {len(weights)} resamples",
        }
    )
    return pl.concat([ratio, median], how="diagonal_relaxed")


def arm_lengths(traces: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Per arm: mean length, shares truncated, malformed and unparsed, natural accuracy, completion curve, restricted mean length."""
    values = {
        "mean_length": pl.col("n_reasoning"),
        "share_truncated": pl.col("status") == "truncated",
        "share_malformed": pl.col("status") == "malformed",
        "share_unparsed": (pl.col("status") == "terminated") & pl.col("answer").is_null(),
        "natural_accuracy": pl.col("correct"),
    }
    terms = [estimands.item_terms(traces.with_columns(estimand=pl.lit(name)), ["estimand"], value) for name, value in values.items()]
    inference = settings["inference"]
    curve = survival.summary(traces, settings["horizons"], resamples=inference["resamples"], level=inference["level"], seed=settings["seed"])
    return pl.concat([_intervals(pl.concat(terms), ["estimand"], settings), curve], how="diagonal_relaxed")


def validity(continuations: pl.DataFrame, traces: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Agreement of the probe with what the run answered, and with the greedy continuation.

    ``probe_natural_complete``: on whole blocks of terminated runs. ``probe_natural_unfinished``: by fraction of the reasoning, below 1.
    ``probe_continuation``: on unfinished horizon cuts, by horizon.
    """
    frame = continuations.filter(pl.col("agrees_with_probe").is_not_null()).join(traces.select("trace_id", "item_id", "status"), on="trace_id")
    fraction, natural = pl.col("cut") == "fraction", pl.col("mode") == "natural"
    kinds = {
        "probe_natural_complete": natural & fraction & pl.col("complete"),
        "probe_natural_unfinished": natural & fraction & ~pl.col("complete") & (pl.col("status") == "terminated"),
        "probe_continuation": (pl.col("mode") == "answer") & (pl.col("cut") == "horizon"),
    }
    by = ["estimand", "horizon", "fraction"]
    terms = []
    for name, condition in kinds.items():
        rows = frame.filter(condition).with_columns(estimand=pl.lit(name))
        if name == "probe_natural_complete":
            rows = rows.with_columns(pl.lit(None, pl.Int32).alias("horizon"), pl.lit(1.0).alias("fraction"))
            rows = rows.unique("trace_id", keep="last", maintain_order=True)
        if len(rows):
            terms.append(estimands.item_terms(rows, by, pl.col("agrees_with_probe")))
    return _intervals(pl.concat(terms), by, settings) if terms else pl.DataFrame()


def retokenisation(cuts: pl.DataFrame, traces: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Share of traces that a decode-encode round trip changes: anywhere (``trace_drift``), and within the prefix at B (``prefix_drift``)."""
    whole = estimands.item_terms(
        traces.with_columns(estimand=pl.lit("trace_drift"), horizon=pl.lit(None, pl.Int32)), ["estimand", "horizon"], pl.col("drift_at").is_not_null()
    )
    at = cuts.filter(pl.col("cut") == "horizon").join(traces.select("trace_id", "item_id"), on="trace_id")
    prefix = estimands.item_terms(at.with_columns(estimand=pl.lit("prefix_drift")), ["estimand", "horizon"], pl.col("drift"))
    return _intervals(pl.concat([whole, prefix]), ["estimand", "horizon"], settings)


def controls(frame: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Per control and horizon: accuracy; share that follows the stated label; and chance (mean of 1 / options)."""
    if frame.is_empty():
        return pl.DataFrame()
    by = ["estimand", "control", "position"]
    terms = [
        estimands.item_terms(frame.with_columns(estimand=pl.lit("accuracy")), by, pl.col("correct")),
        estimands.item_terms(frame.with_columns(estimand=pl.lit("chance")), by, 1 / pl.col("n_options")),
        estimands.item_terms(frame.filter(pl.col("follows").is_not_null()).with_columns(estimand=pl.lit("follows_stated")), by, pl.col("follows")),
    ]
    return _intervals(pl.concat(terms), by, settings)
