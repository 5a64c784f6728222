"""Whole decompositions of simulated studies: planted effects, text-only cohorts, lazy input, other methods of inference."""

import numpy as np
import polars as pl
import pytest
from statsmodels.duration.survfunc import SurvfuncRight

from midtrace import decomposition, estimands, simulation, tables
from midtrace.estimands import survival
from midtrace.inference import resample_weights
from midtrace.outcomes import outcomes

HORIZONS = [64, 192, 512]


def study(design=simulation.MIXED, n_items=60, replicates=2, seed=1):
    frames = simulation.simulate(design, n_items, replicates, HORIZONS, seed)
    stages = ("item_tables", "traces", "cuts", "readouts", "continuations")
    return {**frames, "outcomes": outcomes(*(frames[name] for name in stages), contexts=simulation.CONTEXTS)}


def row(table, **where):
    for column, value in where.items():
        table = table.filter(pl.col(column).eq_missing(pl.lit(value)))
    assert len(table) == 1
    return table.row(0, named=True)


@pytest.fixture(scope="module")
def mixed():
    frames = study()
    return frames, decomposition.decompose(frames, simulation.settings(HORIZONS, resamples=300, sensitivity_resamples=200))


@pytest.mark.parametrize("design", [simulation.TIMING, simulation.QUALITY, simulation.MIXED])
def test_strata_recover_what_was_planted(design):
    # 2,000 items: the standard error of a contribution is below 0.01.
    found = decomposition.decompose(study(design, 2_000, 1), simulation.settings(HORIZONS, resamples=200))
    for name, value in design.truth(192).items():
        measured = row(found["strata"], horizon=192, readout="symmetric", termination=name)
        assert measured["estimate"] == pytest.approx(value, abs=0.04)


def test_truth_of_a_design_by_hand():
    # All lengths at most 2 x 64: at 64 tokens the treatment (half as long) has finished always, the reference in half of the cases.
    truth = simulation.Design(ratio=0.5, known_t=0.5, known_r=1.0, longest=128, solves=0.8).truth(64)
    assert truth == pytest.approx({"both_complete": 0, "treatment_complete": 0.5 * 0.8 * 0.75, "reference_complete": 0, "both_active": 0})


def test_readings_that_the_own_prompt_spoils_are_seen_as_a_prompt_effect_and_not_as_quality():
    biased = simulation.Design(ratio=0.6, known_t=0.3, known_r=0.3, bias_policy=0.6)
    found = decomposition.decompose(study(biased, 600, 2), simulation.settings(HORIZONS, resamples=300))
    context = row(found["policy"], estimand="context_gap", horizon=192)
    assert context["ci_low"] > 0.02, "under the own prompts the arm that has finished is favoured"
    assert row(found["policy"], estimand="readout_gap", horizon=192)["estimate"] == 0, "finished runs are read by the probe as by their own answer"
    falsifier = found["falsifier"]
    own, common = (row(falsifier, estimand="accuracy_gap", fraction=None, context=context) for context in ("policy", "common"))
    assert own["ci_high"] < -0.1, "the probe reads less than these runs knew"
    assert common["ci_low"] < 0 < common["ci_high"]
    for readout in ("symmetric", "terminal"):
        active = row(found["policy"], estimand="both_active_contrast", horizon=192, readout=readout)
        assert abs(active["estimate"]) < 0.06


def test_contributions_sum_to_the_contrast_under_both_outcomes(mixed):
    _, found = mixed
    total = found["strata"].group_by("horizon", "readout").agg(pl.col("contribution").sum(), pl.col("share").sum())
    both = found["policy"].filter(pl.col("estimand") == "contrast").join(total, on=["horizon", "readout"])
    assert len(both) == 9, "horizons x readouts by the probe"
    assert (both["estimate"] - both["contribution"]).abs().max() < 1e-12
    assert (both["share"] - 1).abs().max() < 1e-12


def test_lazy_and_eager_frames_give_the_same_bytes(mixed, tmp_path):
    frames, found = mixed
    for name, frame in frames.items():
        frame.write_parquet(tmp_path / f"{name}.parquet", row_group_size=500)
    lazy = {name: pl.scan_parquet(tmp_path / f"{name}.parquet") for name in frames}
    again = decomposition.decompose(lazy, simulation.settings(HORIZONS, resamples=300, sensitivity_resamples=200))
    for name, table in found.items():
        assert table.equals(again[name]), name


def test_the_order_of_rows_changes_nothing(mixed):
    frames, found = mixed
    shuffled = {name: frame.sample(fraction=1, shuffle=True, seed=4) for name, frame in frames.items()}
    again = decomposition.decompose(shuffled, simulation.settings(HORIZONS, resamples=300, sensitivity_resamples=200))
    for name, table in found.items():
        assert table.equals(again[name]), name


def test_every_declared_table_is_made(mixed):
    _, found = mixed
    assert set(found) == set(tables.DECOMPOSITION)
    empty = {name for name, table in found.items() if table.is_empty()}
    assert empty == {"planted", "sensitivity", "controls", "judging"}


def test_other_methods_of_inference_tell_of_the_same_estimate(mixed):
    _, found = mixed
    table = found["inference"].filter(pl.col("estimand") == "contrast", pl.col("horizon") == 192, pl.col("readout") == "symmetric")
    assert set(table["approach"]) == {"item_percentile", "item_bca", "nested", "two_way", "replicate", "crossed_intercepts", "t_test", "equivalence"}
    primary = row(found["policy"], estimand="contrast", horizon=192, readout="symmetric")
    whole = table.filter(pl.col("approach") != "replicate")
    assert (whole["estimate"] - primary["estimate"]).abs().max() < 1e-9
    assert table.filter(pl.col("approach") == "replicate")["estimate"].mean() == pytest.approx(primary["estimate"])
    same = row(table, approach="item_percentile")
    assert (same["ci_low"], same["ci_high"]) == (primary["ci_low"], primary["ci_high"])
    nested = row(table, approach="nested")
    assert nested["band_low"] < nested["ci_low"] < nested["ci_high"] < nested["band_high"]
    assert row(table, approach="crossed_intercepts")["status"].startswith(("ok", "singular"))


def test_holm_adjusts_the_horizons_of_a_contrast_or_the_whole_study(mixed):
    frames, found = mixed
    tests = found["inference"].filter(pl.col("approach") == "t_test", pl.col("estimand") == "contrast")
    one = tests.filter(pl.col("readout") == "symmetric").sort("p")
    assert one["p_holm"][0] == pytest.approx(min(1, 3 * one["p"][0]))
    wider = decomposition.decompose(frames, simulation.settings(HORIZONS, resamples=300, sensitivity_resamples=100, families="study"))["inference"]
    assert wider.filter(pl.col("approach") == "t_test")["p"].equals(found["inference"].filter(pl.col("approach") == "t_test")["p"])


def test_traces_made_of_text_are_in_no_primary_table(mixed):
    frames, _ = mixed
    settings = simulation.settings(HORIZONS, resamples=300, sensitivity_resamples=200)
    text = frames["traces"].filter(pl.col("item_id") < "simulated/000020").select("trace_id")
    relabelled = {
        **frames,
        "traces": frames["traces"].with_columns(token_exact=~pl.col("trace_id").is_in(text["trace_id"].implode())),
        "outcomes": frames["outcomes"].with_columns(token_exact=pl.col("item_id") >= "simulated/000020"),
    }
    primary = decomposition.decompose(relabelled, settings)
    # The same study without these items gives the same primary tables.
    keep = pl.col("item_id") >= "simulated/000020"
    without = {**frames, "traces": frames["traces"].filter(keep), "outcomes": frames["outcomes"].filter(keep)}
    expected = decomposition.decompose(without, settings)
    for name in tables.DECOMPOSITION:
        if name != "sensitivity":
            assert primary[name].equals(expected[name]), name
    assert expected["sensitivity"].is_empty()
    cohort = primary["sensitivity"]
    assert cohort["cohort"].unique().to_list() == ["text_reconstructed"]
    assert set(cohort["estimand"]) >= {
        "contrast",
        "both_active_contrast",
        "readout_gap",
        "context_gap",
        "matched_contrast",
        "geometric_mean_ratio",
        "median_ratio",
    }
    only = {**frames, "traces": frames["traces"].filter(~keep), "outcomes": frames["outcomes"].filter(~keep)}
    alone = decomposition.decompose(only, settings)["policy"]
    for horizon in HORIZONS:
        where = {"estimand": "contrast", "horizon": horizon, "readout": "symmetric"}
        assert row(cohort, **where)["estimate"] == row(alone, **where)["estimate"]


def test_items_are_resampled_within_strata_where_configured(mixed):
    frames, found = mixed
    strata = frames["item_tables"].with_columns(stratum=pl.when(pl.col("item_id") < "simulated/000030").then(pl.lit("a")).otherwise(pl.lit("b")))
    kept = decomposition.decompose({**frames, "item_tables": strata}, simulation.settings(HORIZONS, resamples=300, strata=True))
    where = {"estimand": "contrast", "horizon": 192, "readout": "symmetric"}
    a, b = row(kept["policy"], **where), row(found["policy"], **where)
    assert a["estimate"] == b["estimate"]
    assert "within strata" in a["method"]
    assert (a["ci_low"], a["ci_high"]) != (b["ci_low"], b["ci_high"])


def repeats(items, weights):
    """How often each run counts, in whole numbers: as often as its item was drawn, shared by the runs of the item."""
    counts = np.bincount(items)
    return (weights * (np.lcm.reduce(counts) // counts))[items].astype(int)


def test_medians_of_resamples_are_those_of_repeated_runs():
    rng = np.random.default_rng(3)
    lengths, items = rng.integers(1, 50, size=41), np.concatenate([np.arange(12), rng.integers(12, size=29)])
    weights = resample_weights(12, 60, 2)
    expected = [np.median(np.repeat(lengths, repeats(items, weight))) for weight in weights]
    np.testing.assert_array_equal(estimands.weighted_medians(lengths, items, weights), expected)


def test_curves_of_resamples_are_those_of_statsmodels():
    rng = np.random.default_rng(3)
    lengths, completed = rng.integers(1, 40, size=70).astype(float), rng.random(70) < 0.7
    items = np.concatenate([np.arange(15), rng.integers(15, size=55)])
    weights = resample_weights(15, 25, 2)
    found = survival.curves(lengths, completed, items, weights, [5, 20, 60])
    for weight, values in zip(weights, found, strict=True):
        repeated = np.repeat(np.arange(70), repeats(items, weight))
        fit = SurvfuncRight(lengths[repeated], completed[repeated].astype(int))
        at = np.searchsorted(fit.surv_times, [5, 20, 60], side="right")
        np.testing.assert_allclose(values[:3], 1 - np.concatenate([[1.0], fit.surv_prob])[at], atol=1e-12)
        steps = np.concatenate([[0.0], fit.surv_times, [60.0]])
        assert values[3] == pytest.approx((np.diff(steps) * np.concatenate([[1.0], fit.surv_prob])).sum(), abs=1e-9)
