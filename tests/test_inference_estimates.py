"""Whatever the method of inference, the estimate is that of the primary table; and limits where resampling has no width."""

import numpy as np
import polars as pl
import pytest
from helpers.builders import outcome, outcomes, trace
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from midtrace import estimands, tables
from midtrace.decomposition import contrasts, sensitivity
from midtrace.decomposition.estimates import with_intervals
from midtrace.inference import crossed_intercepts, linear_scores, mean_p

T, R, COMMON = "low", "high", "medium"
COMPARISON = {"treatment": T, "reference": R, "common": COMMON}
SETTINGS = {
    "horizons": [0, 8, 16],
    "inference": {"resamples": 100, "level": 0.95, "margin": 0.1, "method": "percentile", "sensitivity_resamples": 40},
    "seed": 3,
    "strata": None,
}
KEYS = ["estimand", "readout", "horizon"]


def strict(value, **more):
    return {**SETTINGS, "inference": {**SETTINGS["inference"], **more}, **value}


def study(runs):
    """Outcomes, traces and matched readouts of runs: (item, arm, replicate) -> (length, status, right on its own, right if read)."""
    rows, traces, reads = [], [], []
    for (item, arm, replicate), (length, status, natural, read) in runs.items():
        traces.append(trace(item, arm, replicate, n_reasoning=length, status=status, correct=natural))
        for horizon in SETTINGS["horizons"]:
            complete = status == "terminated" and length <= horizon
            where = {"replicate": replicate, "complete": complete, "horizon": horizon}
            rows.append(outcome(item, arm, correct=natural if complete else read[horizon // 8], readout="terminal", **where))
            rows.append(outcome(item, arm, correct=read[horizon // 8], readout="symmetric", context_arm=COMMON, **where))
        partner = runs.get((item, R if arm == T else T, replicate))
        treatment = runs.get((item, T, replicate))
        if partner is not None and treatment is not None and treatment[1] == "terminated":
            kept = {"trace_id": traces[-1]["trace_id"], "cut": "matched", "partner_arm": R if arm == T else T, "context": "common"}
            reads.append({**kept, "context_arm": COMMON, "correct": read[-1]})
    schema = {**dict.fromkeys(["trace_id", "cut", "partner_arm", "context", "context_arm"], pl.String), "correct": pl.Boolean}
    matched = pl.DataFrame(reads, schema=schema)
    frame = outcomes([{"token_exact": True, **row} for row in rows])
    return frame, tables.frame_of(traces, tables.Traces), {"readouts": matched, "continuations": matched.clear().with_columns(mode=pl.lit("answer"))}


def tables_of(runs, config=SETTINGS):
    frame, traces, matched = study(runs)
    read = contrasts.matched_reads(matched, traces, COMPARISON)
    by_horizon, pairs = contrasts.by_horizon(frame.lazy(), traces, read, COMPARISON, config)
    at_matched = contrasts.matched_sensitivity_pairs(read)
    found = {**by_horizon, "matched": contrasts.matched(matched, traces, COMPARISON, config)}
    return {**found, "inference": sensitivity.inference([pairs, at_matched], config)}


def row(table, **where):
    for column, value in where.items():
        table = table.filter(pl.col(column).eq_missing(pl.lit(value)))
    assert len(table) == 1
    return table.row(0, named=True)


STATUS = st.sampled_from(["terminated", "terminated", "terminated", "truncated", "malformed"])
RUN = st.tuples(st.integers(0, 20), STATUS, st.booleans(), st.tuples(st.booleans(), st.booleans(), st.booleans()))
# Items with unequal replicates, runs missing in either arm.
STUDIES = st.dictionaries(
    st.tuples(st.sampled_from(["toy/a", "toy/b", "toy/c", "toy/d"]), st.sampled_from([T, R]), st.integers(0, 2)), RUN, min_size=8, max_size=24
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STUDIES, st.booleans())
def test_every_row_of_inference_has_the_estimate_of_the_primary_table(runs, keep_strata):
    config = strict({"strata": {f"toy/{k}": k < "c" for k in "abcd"} if keep_strata else None})
    found = tables_of(runs, config)
    if found["inference"].is_empty():
        return
    parts = [found[name].select(*KEYS, "estimate") for name in ("policy", "matched") if len(found[name]) and "horizon" in found[name].columns]
    if len(found["matched"]):
        parts.append(found["matched"].select("estimand", "readout", pl.lit(None, pl.Int32).alias("horizon"), "estimate"))
    primary = pl.concat(parts)
    whole = found["inference"].filter(pl.col("approach") != "replicate")
    both = whole.join(primary, on=KEYS, how="left", suffix="_primary", nulls_equal=True)
    assert both["estimate_primary"].null_count() == 0
    assert (both["estimate"] - both["estimate_primary"]).abs().max() <= 1e-12
    # And every replicate's row has the estimate of that replicate alone.
    for replicate in whole["replicate"].unique().drop_nulls():
        alone = tables_of({key: value for key, value in runs.items() if key[2] == replicate}, config)
        kept = found["inference"].filter(pl.col("replicate") == replicate).join(alone["policy"], on=KEYS, suffix="_primary")
        assert (kept["estimate"] - kept["estimate_primary"]).abs().max() <= 1e-12


def pairs(rows, estimand="contrast"):
    """Pairs for sensitivity analyses: (item, replicate, value, within)."""
    schema = {"item_id": pl.String, "replicate": pl.Int32, "value": pl.Float64, "within": pl.Boolean}
    constants = {"estimand": pl.lit(estimand), "readout": pl.lit("symmetric"), "horizon": pl.lit(8, pl.Int32)}
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(**constants)


def test_a_pair_that_does_not_exist_is_missing():
    # A, B, C x 3 replicates; two of A's treatments are truncated, its only difference is 1.
    rows = [("A", 0, 1.0, True), *(("B", k, 0.0, True) for k in range(3)), *(("C", k, 0.0, True) for k in range(3))]
    found = sensitivity.inference([pairs(rows)], SETTINGS)
    whole = found.filter(pl.col("approach") != "replicate")
    assert set(whole["approach"]) == {"item_percentile", "item_bca", "nested", "two_way", "crossed_intercepts", "t_test", "equivalence"}
    assert whole["estimate"].to_list() == pytest.approx([1 / 3] * 7, abs=1e-12)
    assert row(found, approach="t_test")["p"] == pytest.approx(stats.ttest_1samp([1, 0, 0], 0).pvalue)


def test_tests_of_a_conditional_estimand_are_of_the_ratio():
    # Both active: A in one of three pairs with difference 1, B and C always with 0.
    rows = [("A", k, float(k == 0), k == 0) for k in range(3)] + [(name, k, 0.0, True) for name in "BC" for k in range(3)]
    found = sensitivity.inference([pairs(rows, "both_active_contrast")], SETTINGS)
    whole = found.filter(pl.col("approach") != "replicate")
    assert whole["estimate"].to_list() == pytest.approx([1 / 7] * 7, abs=1e-12)
    # Linearised: T + (n_i - T d_i) / mean(d), with T = 1/7, d = 1/3, 1, 1, mean 7/9.
    scores = [1 / 7 + (1 / 3 - 1 / 21) * 9 / 7, 1 / 7 - 1 / 7 * 9 / 7, 1 / 7 - 1 / 7 * 9 / 7]
    np.testing.assert_allclose(linear_scores(np.array([1 / 3, 0, 0]), np.array([1 / 3, 1, 1])), scores, atol=1e-12)
    assert np.mean(scores) == pytest.approx(1 / 7)
    assert row(found, approach="t_test")["p"] == pytest.approx(stats.ttest_1samp(scores, 0).pvalue)
    assert row(found, approach="t_test")["method"] == "t test of linearised item scores"


def test_the_spread_of_linear_scores_is_that_of_the_ratio():
    # 4,000 studies of 60 items: the spread of the ratio, and the mean of its squared linearised error, agree.
    rng = np.random.default_rng(4)
    bottom = rng.integers(1, 4, size=(4_000, 60)) / 3
    top = bottom * rng.normal(0.2, 1, size=bottom.shape)
    ratios = top.sum(1) / bottom.sum(1)
    squared = [linear_scores(t, b).var(ddof=1) / 60 for t, b in zip(top, bottom, strict=True)]
    assert np.mean(squared) == pytest.approx(ratios.var(), rel=0.06)
    covered = np.mean([mean_p(linear_scores(t - 0.2 * b, b)) > 0.05 for t, b in zip(top, bottom, strict=True)])
    assert covered == pytest.approx(0.95, abs=0.012)


def test_tests_keep_strata():
    values, strata = np.array([1.0, 1.1, 0.9, -1.0, -1.1, -0.8]), list("aaabbb")
    # Within strata: variance (s_a^2 / 3 + s_b^2 / 3) / 4 of the mean of means, 4 degrees of freedom.
    error = np.sqrt((np.var(values[:3], ddof=1) / 3 + np.var(values[3:], ddof=1) / 3) / 4)
    assert mean_p(values, strata) == pytest.approx(2 * stats.t.sf(abs(values.mean()) / error, 4))
    assert mean_p(values) > mean_p(values, strata)


# Limits where all items have one value


def terms(values, dtype=pl.Boolean, **more):
    frame = pl.DataFrame({"item_id": [f"i{k:03d}" for k in range(len(values))], "x": pl.Series(values, dtype=dtype)})
    return estimands.named(frame, "e", [], pl.col("x"), **more)


def test_a_share_of_which_all_items_are_one_has_exact_limits():
    found = with_intervals(terms([True] * 120), ["estimand"], SETTINGS).row(0, named=True)
    low, high = proportion_confint(120, 120, method="beta")
    assert (found["estimate"], found["ci_low"], found["ci_high"]) == (1, pytest.approx(low), high)
    assert found["ci_low"] == pytest.approx(0.970, abs=5e-4)
    assert found["method"] == "Clopper-Pearson over items: all are 1"
    none = with_intervals(terms([False] * 30), ["estimand"], SETTINGS).row(0, named=True)
    assert (none["ci_low"], none["ci_high"]) == (0, pytest.approx(1 - 0.025 ** (1 / 30)))
    one = with_intervals(terms([True]), ["estimand"], SETTINGS).row(0, named=True)
    assert (one["ci_low"], one["ci_high"]) == (pytest.approx(0.025), 1)
    wider = with_intervals(terms([True] * 30), ["estimand"], strict({}, level=0.8)).row(0, named=True)
    assert wider["ci_low"] == pytest.approx(0.1 ** (1 / 30))


def test_agreement_of_all_items_has_exact_limits_too():
    frame = pl.DataFrame({"item_id": [f"i{k:03d}" for k in range(120)], "choice": list("ABCD") * 30, "probe_correct": True, "answer_correct": True})
    drawn = {"resamples": 100, "level": 0.95, "seed": 1}
    found = {row["estimand"]: row for row in estimands.agreement(frame.with_columns(answer="choice"), [], **drawn).iter_rows(named=True)}
    assert found["agreement"]["ci_low"] == pytest.approx(0.970, abs=5e-4)
    assert found["accuracy_probe"]["method"] == "Clopper-Pearson over items: all are 1"
    assert (found["accuracy_gap"]["ci_low"], found["accuracy_gap"]["method"]) == (None, "no limits: all items have this value")
    assert (found["kappa"]["estimate"], found["kappa"]["ci_low"], found["kappa"]["method"]) == (1, None, "no limits: all items have this value")
    strata = {item: item < "i060" for item in frame["item_id"]}
    mixed = frame.with_columns(answer=pl.when(pl.col("item_id") < "i030").then(pl.lit("A")).otherwise("choice"))
    kept = estimands.agreement(mixed, [], **drawn, strata=strata)
    assert "within strata" in kept.filter(pl.col("estimand") == "agreement")["method"].item()


def test_what_is_no_share_and_does_not_spread_has_no_limits():
    for value in (0.0, 0.25):
        found = with_intervals(terms([value] * 12, pl.Float64), ["estimand"], SETTINGS).row(0, named=True)
        assert (found["estimate"], found["ci_low"], found["ci_high"]) == (value, None, None)
        assert found["method"] == "no limits: all items have this value"
    one = with_intervals(terms([0.25], pl.Float64), ["estimand"], SETTINGS).row(0, named=True)
    assert (one["ci_low"], one["method"]) == (None, "no limits: one item")
    infinite = with_intervals(terms([np.inf, 1.0], pl.Float64), ["estimand"], SETTINGS).row(0, named=True)
    assert (infinite["ci_low"], infinite["method"]) == (None, "no limits: infinite")


def test_exact_zeros_by_construction_are_marked():
    runs = {
        (f"toy/{k}", arm, 0): (20 if arm == R or k % 2 else 4, "terminated", k % 3 == 0, (True, k % 3 == 0, k % 4 == 0))
        for k in range(12)
        for arm in (T, R)
    }
    found = tables_of(runs)
    nothing = "no limits: exactly 0 by construction"
    assert row(found["policy"], estimand="contrast", readout="symmetric", horizon=0)["method"] == nothing
    # Under the own prompts the arms could have differed, and did not.
    assert row(found["policy"], estimand="contrast", readout="terminal", horizon=0)["method"] == "no limits: all items have this value"
    empty = row(found["strata"], readout="terminal", horizon=8, termination="reference_complete")
    assert (empty["contribution"], empty["ci_low"], empty["method"]) == (0, None, nothing)
    assert (empty["share"], empty["share_low"], empty["difference"], empty["difference_low"]) == (0, 0, None, None)
    assert empty["share_high"] == pytest.approx(1 - 0.025 ** (1 / 12))


def test_strata_shares_and_differences_have_the_limits_of_their_own_bootstrap():
    rng = np.random.default_rng(2)
    runs = {
        (f"toy/{k}", arm, r): (int(rng.integers(0, 20)), "terminated", bool(rng.random() < 0.5), tuple(bool(x) for x in rng.random(3) < 0.5))
        for k in range(30)
        for arm in (T, R)
        for r in range(2)
    }
    frame, *_ = study(runs)
    found = tables_of(runs)["strata"].filter(pl.col("horizon") == 8)
    own = estimands.strata_terms(estimands.pairs(frame.filter(pl.col("horizon") == 8), T, R, COMMON))
    for name in ("share", "difference"):
        alone = with_intervals(own[name], ["readout", "termination"], SETTINGS)
        both = found.join(alone, on=["readout", "termination"], suffix="_alone")
        assert len(both) == 8
        for side in ("low", "high"):
            np.testing.assert_allclose(both[f"{name}_{side}"].to_numpy(), both[f"ci_{side}_alone"].to_numpy(), atol=1e-12)
    assert (found["share_low"] < found["share"]).all()
    assert (found["share_high"] > found["share"]).all()


# Crossed intercepts of sums of an item's and a replicate's effect


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_additive_data_have_the_variances_of_their_effects(missing, weighted):
    rng = np.random.default_rng(1)
    a, b = rng.normal(0, 2, size=12), np.array([0.3, -0.1, 0.4])
    item, replicate = np.repeat(np.arange(12), 3), np.tile(np.arange(3), 12)
    kept = (item * 3 + replicate) % 7 != 0 if missing else item >= 0
    item, replicate = item[kept], replicate[kept]
    weights = 1 / (12 * np.bincount(item)[item]) if weighted else None
    y = a[item] + b[replicate]
    fit = crossed_intercepts(y, item, replicate, weights=weights)
    assert fit.status == "singular: residual variance is 0"
    assert (fit.variance_item, fit.variance_replicate, fit.variance_residual) == pytest.approx((a.var(ddof=1), b.var(ddof=1), 0), abs=1e-9)
    assert fit.estimate[0] == pytest.approx(weights @ y if weighted else a.mean() + b.mean())
    if not missing:
        assert fit.error[0] == pytest.approx(np.sqrt(a.var(ddof=1) / 12 + b.var(ddof=1) / 3))


def test_effects_that_leave_nothing_to_the_residual_are_a_status():
    # Three items, two replicates, four rows: any data are sums of effects.
    fit = crossed_intercepts(np.array([1.0, 3.0, 2.0, 7.0]), [0, 0, 1, 2], [0, 1, 0, 1])
    assert fit.status == "fallback: items and replicates leave nothing to the residual"
    only = crossed_intercepts(np.tile([0.0, 1.0, 3.0], 8), np.repeat(np.arange(8), 3), np.tile(np.arange(3), 8))
    assert only.status == "singular: item and residual variance is 0"
    assert only.variance_replicate == pytest.approx(np.var([0, 1, 3], ddof=1))


def test_weights_fix_the_estimate_and_its_variance():
    rng = np.random.default_rng(3)
    item, replicate = np.nonzero(rng.random((40, 3)) > 0.25)
    y = rng.normal(0, 1, 40)[item] + np.array([0.2, 0.0, -0.3])[replicate] + rng.normal(0, 0.7, len(item))
    weights = 1 / (len(np.unique(item)) * np.bincount(item, minlength=40)[item])
    free, fixed = crossed_intercepts(y, item, replicate), crossed_intercepts(y, item, replicate, weights=weights)
    assert (free.variance_item, free.variance_residual) == (fixed.variance_item, fixed.variance_residual)
    assert fixed.estimate[0] == pytest.approx(np.mean([y[item == k].mean() for k in np.unique(item)]), abs=1e-12)
    same = item[:, None] == item, replicate[:, None] == replicate
    covariance = fixed.variance_item * same[0] + fixed.variance_replicate * same[1] + fixed.variance_residual * np.eye(len(y))
    assert fixed.error[0] == pytest.approx(np.sqrt(weights @ covariance @ weights), rel=1e-9)
    assert fixed.error[0] >= free.error[0], "generalised least squares has the least variance"
    # Balanced data have one estimate and error.
    whole = rng.normal(size=(20, 1)) + rng.normal(size=(20, 3))
    item, replicate = np.repeat(np.arange(20), 3), np.tile(np.arange(3), 20)
    free, fixed = (crossed_intercepts(whole.ravel(), item, replicate, weights=w) for w in (None, np.full(60, 1 / 60)))
    assert (fixed.estimate[0], fixed.error[0], fixed.df[0]) == pytest.approx((free.estimate[0], free.error[0], free.df[0]), rel=1e-6)
