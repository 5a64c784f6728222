"""Estimates of interruptions, by hand: two items, two cuts."""

from functools import cache

import polars as pl
import pytest
from interruptions import demo

from midtrace.interruptions import estimates as interruption_estimates


def interrupted(rows):
    base = {"cut": "fraction", "horizon": None, "n_added_reasoning": 4, "n_answer": 2, "leakage_ratio": 1.0, "reasoning_markers": 0}
    base |= {
        "comment_lines": None,
        "fresh_comment_lines": None,
        "panic": None,
        "self_doubt": None,
        "stale": None,
        "doubts": None,
        "probe_choice": None,
        "status": "terminated",
        "rules_correct": None,
        "judge_verdict": None,
    }
    base |= {"finish_reason": "stop", "answer": "B", "correct": True, "fresh_correct": True, "fresh_tokens": 10, "output_ids": [1, 2], "mode": None}
    base |= {"replicate": 0, "intervention": "hard", "model": "m", "benchmark": "chains_update", "arm": "baseline"}
    rows = [base | {"cut_id": f"fraction:{row['fraction']:g}"} | row for row in rows]
    schema = {
        "comment_lines": pl.Int32,
        "fresh_comment_lines": pl.Int32,
        "horizon": pl.Int32,
        "panic": pl.Boolean,
        "self_doubt": pl.Boolean,
        "stale": pl.Boolean,
        "doubts": pl.Int32,
        "rules_correct": pl.Boolean,
        "judge_verdict": pl.String,
    }
    return pl.DataFrame(rows, schema_overrides=schema | {"mode": pl.String, "probe_choice": pl.String, "answer": pl.String})


@cache
def tables_by_hand():
    """Two items, two cuts. ``hard`` loses item a at 0.5 by leakage; ``update`` doubts on item b; ``update_guided`` does not."""
    update = {"intervention": "update", "stale": False, "doubts": 0, "self_doubt": False}
    lost = {"correct": False, "answer": "A"}
    frame = interrupted(
        [
            {"item_id": "a", "fraction": 0.1, "probe_choice": "B"},
            {"item_id": "a", "fraction": 0.5, "probe_choice": "B", **lost, "leakage_ratio": 4.0, "n_answer": 8, "mode": "leakage"},
            {"item_id": "b", "fraction": 0.1, "probe_choice": "C"},
            {"item_id": "b", "fraction": 0.5, "probe_choice": "B", "replicate": 0},
            {"item_id": "b", "fraction": 0.5, "probe_choice": "B", "replicate": 1, **lost, "fresh_correct": False},
            {"item_id": "a", "fraction": 0.5, **update, "output_ids": [1] * 5},
            {"item_id": "b", "fraction": 0.5, **update, **lost, "stale": True, "self_doubt": True, "mode": "self_doubt", "fresh_tokens": 20},
            {"item_id": "a", "fraction": 0.5, **update, "intervention": "update_guided"},
            {"item_id": "b", "fraction": 0.5, **update, "intervention": "update_guided", "answer": None},
        ]
    )
    traces = pl.DataFrame(
        {
            "model": "m",
            "arm": "baseline",
            "item_id": ["a", "b", "c", "a", "b"],
            "base": ["chains_update"] * 3 + ["chains_update+revised"] * 2,
            "status": ["terminated", "terminated", "truncated", "terminated", "malformed"],
        }
    )
    config = {**demo(), "inference": {"resamples": 200, "level": 0.95, "margin": 0.02}}
    return interruption_estimates.estimate(frame, traces, config)


def value(table, **keys):
    frame = tables_by_hand()[table]
    for key, wanted in keys.items():
        frame = frame.filter(pl.col(key) == wanted)
    assert len(frame) == 1, frame
    return frame["estimate"].item()


def test_curves_by_hand():
    at = {"intervention": "hard", "fraction": 0.5}
    assert value("interruptions", estimand="accuracy", **at) == pytest.approx((0 + 0.5) / 2), "replicates are averaged within item first"
    assert value("interruptions", estimand="uninterrupted_accuracy", **at) == pytest.approx((1 + 0.5) / 2)
    assert value("interruptions", estimand="accuracy_change", **at) == pytest.approx((-1 + 0) / 2)
    assert value("interruptions", estimand="length", **at) == pytest.approx((12 + 6) / 2)
    assert value("interruptions", estimand="leakage_2x", **at) == pytest.approx(0.5)
    assert value("interruptions", estimand="leakage_10x", **at) == 0
    assert value("interruptions", estimand="agrees_with_probe", **at) == pytest.approx((0 + 0.5) / 2)
    assert value("interruptions", estimand="agrees_with_probe", intervention="hard", fraction=0.1) == pytest.approx(0.5)
    assert value("interruptions", estimand="anytime_step", **at) == pytest.approx((-1 + 0) / 2), "only replicates that were cut at both"
    update = {"intervention": "update", "fraction": 0.5}
    assert value("interruptions", estimand="update_cost", **update) == pytest.approx((5 + 2) / (10 + 20))
    assert value("interruptions", estimand="self_doubt", **update) == 0.5
    assert value("interruptions", estimand="self_doubt_of_new_errors", **update) == 1
    assert value("interruptions", estimand="unparsed", intervention="update_guided", fraction=0.5) == 0.5


def test_unfinished_traces_are_counted():
    assert value("interruptions", estimand="base_truncated", intervention="hard") == pytest.approx(1 / 3)
    assert value("interruptions", estimand="base_malformed", intervention="update") == pytest.approx(1 / 2)
    assert value("interruptions", estimand="base_terminated", intervention="update") == pytest.approx(1 / 2)


def test_shares_of_new_errors_sum_to_one():
    frame = tables_by_hand()["interruptions_errors"]
    total = frame.filter(pl.col("estimand") == "share_of_new_errors", pl.col("estimate").is_not_null()).group_by("intervention", "fraction")
    assert set(total.agg(pl.col("estimate").sum())["estimate"].round(12)) == {1.0}
    assert value("interruptions_errors", estimand="share_of_new_errors", intervention="hard", fraction=0.5, mode="leakage") == 1
    assert value("interruptions_errors", estimand="share_of_runs", intervention="update", fraction=0.5, mode="self_doubt") == 0.5


def test_leakage_distribution_by_hand():
    found = {ratio: value("interruptions_leakage", intervention="hard", fraction=0.5, ratio=ratio) for ratio in (1.0, 3.0, 5.0)}
    assert found == {1.0: 1.0, 3.0: 0.5, 5.0: 0.0}


def test_contrast_by_hand():
    keys = {"intervention": "update_guided", "against": "update", "fraction": 0.5}
    assert value("interruptions_contrasts", estimand="accuracy_difference", **keys) == 0.5
    assert value("interruptions_contrasts", estimand="same_answer", **keys) == 0.5
    assert value("interruptions_contrasts", estimand="length_difference", **keys) == 0


def test_monotonicity_counts_steps_below_zero():
    steps = pl.DataFrame({"intervention": ["x", "x", "y"], "ci_high": [-0.1, 0.0, 0.2], "n_items": [5, 5, 5], "n_pairs": [5, 5, 5]})
    assert dict(interruption_estimates.violations(steps).select("intervention", "estimate").iter_rows()) == {"x": 1.0, "y": 0.0}
