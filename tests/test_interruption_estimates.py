"""Estimates of interruptions, by hand: two items, two cuts."""

from functools import cache

import polars as pl
import pytest
from helpers.builders import item
from helpers.interruptions import demo

from midtrace import config as study_config
from midtrace import tables
from midtrace.figures import interruptions as interruption_figures
from midtrace.interruptions import estimates as interruption_estimates


def interrupted(rows):
    base = {"cut": "fraction", "horizon": None, "n_added_reasoning": 4, "n_answer": 2, "leakage_ratio": 1.0, "reasoning_markers": 0}
    base |= {
        "comment_lines": None,
        "fresh_comment_lines": None,
        "panic": None,
        "self_doubt": None,
        "stale": None,
        "stale_source": None,
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
        "stale_source": pl.String,
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


# Net loss, and what the config asks of intervals


def runs(**kinds: int) -> pl.DataFrame:
    """So many runs (one per item) of each kind at one cut, and as many that stay right at another."""
    kept = {"correct": True, "fresh_correct": True, "mode": None}
    lost = {"correct": False, "fresh_correct": True}
    looks = {
        "kept": kept,
        "panic": lost | {"mode": "panic"},
        "other": lost | {"mode": "other"},
        "recovered": {"correct": True, "fresh_correct": False},
    }
    names = [name for name, n in kinds.items() for _ in range(n)]
    lines = [{"item_id": f"chains_update/{k:03d}", **looks[name]} for k, name in enumerate(names)]
    return interrupted([{**line, "fraction": 0.5} for line in lines] + [{**line, **kept, "fraction": 0.9} for line in lines])


def estimated(frame: pl.DataFrame, strata: dict | None = None, **inference) -> dict[str, pl.DataFrame]:
    config = {**demo(), "inference": {**demo()["inference"], "resamples": 500, **inference}}
    traces = frame.select("model", "arm", "item_id", base="benchmark", status=pl.lit("terminated")).unique(maintain_order=True)
    return interruption_estimates.estimate(frame, traces, config | ({"strata": strata} if strata else {}))


def shares(frame: pl.DataFrame) -> pl.DataFrame:
    return estimated(frame)["interruptions_errors"].filter(pl.col("estimand") == "share_of_net_loss", pl.col("fraction").is_not_null())


def test_shares_of_the_net_loss_by_hand():
    found = shares(runs(kept=30, panic=9, other=6, recovered=5))
    assert set(found["fraction"]) == {0.5}, "nothing is lost at the other cut"
    by_mode = dict(found.select("mode", "estimate").iter_rows())
    wanted = {"panic": 0.9, "other": 0.6, "recovered": -0.5, "self_doubt": 0, "leakage": 0, "unfinished": 0, "unparsed": 0}
    assert by_mode == pytest.approx(wanted, abs=1e-12) and sum(by_mode.values()) == pytest.approx(1)
    assert set(found["n_items"]) == {50}
    limited = found.filter(pl.col("mode") == "panic").row(0, named=True)
    assert limited["ci_low"] < 0.9 < limited["ci_high"] and "percentile" in limited["method"]


def test_a_loss_that_may_be_none_gives_shares_without_limits():
    found = shares(runs(kept=5, panic=3, recovered=2))
    assert dict(found.select("mode", "estimate").iter_rows())["panic"] == pytest.approx(3.0)
    assert found["ci_low"].null_count() == found["ci_high"].null_count() == len(found)
    assert set(found["method"]) == {"no limits: the loss may be 0"}
    assert shares(runs(kept=5, panic=2, recovered=2)).is_empty(), "nothing is lost on balance"


def accuracy(found: dict[str, pl.DataFrame]) -> dict:
    return found["interruptions"].filter(pl.col("estimand") == "accuracy", pl.col("fraction") == 0.5).row(0, named=True)


def test_method_strata_and_level_are_those_of_the_config():
    frame = runs(kept=30, panic=10)
    plain = accuracy(estimated(frame))
    assert "percentile" in plain["method"] and plain["ci_low"] < 0.75 < plain["ci_high"]
    assert "bca" in accuracy(estimated(frame, method="bca"))["method"].lower()
    narrow = accuracy(estimated(frame, level=0.5))
    assert plain["ci_low"] < narrow["ci_low"] and narrow["ci_high"] < plain["ci_high"]
    # Strata within which all items are alike: resamples within them do not differ.
    strata = {item: str(correct) for item, correct in frame.filter(pl.col("fraction") == 0.5).select("item_id", "correct").iter_rows()}
    kept = accuracy(estimated(frame, strata))
    assert (kept["estimate"], kept["ci_low"], kept["ci_high"]) == (0.75, 0.75, 0.75)


def test_strata_of_revised_items_are_those_of_the_items(tmp_path):
    config = demo()
    rows = [{**item(f"chains_update/{k}"), "benchmark": "chains_update", "stratum": f"s{k}"} for k in range(2)]
    path = tmp_path / "chains_update.parquet"
    meta = tables.metadata("items", "demo", study_config.items_settings(config, "chains_update"))
    tables.write(tables.frame_of(rows, tables.Items), path, tables.Items, meta)
    assert interruption_estimates.strata_of_items([path], config) == {
        "chains_update/0": "s0", "chains_update+revised/0": "s0", "chains_update/1": "s1", "chains_update+revised/1": "s1",
    }  # fmt: skip


def test_modes_have_one_vocabulary():
    assert set(interruption_figures.MODES) == set(tables.ERROR_MODES)
    assert set(tables_by_hand()["interruptions_errors"]["mode"]) == {*tables.ERROR_MODES, "recovered"}
