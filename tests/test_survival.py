"""Reasoning lengths as survival times, by hand and against statsmodels."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.duration.survfunc import SurvfuncRight

from midtrace.estimands.survival import completion_curve, curves, summary
from midtrace.inference import resample_weights

# Five runs of five items: done at 2, done at 4, censored at 4, done at 6, censored at 8.
LENGTHS, COMPLETED = [2, 4, 4, 6, 8], [True, True, False, True, False]
# Survival: 4/5 after 2, then x 3/4 after 4 (the run censored at 4 was still at risk), then x 1/2 after 6.
AFTER = {0: 1.0, 1: 1.0, 2: 0.8, 3: 0.8, 4: 0.6, 5: 0.6, 6: 0.3, 8: 0.3, 99: 0.3}
DRAWN = {"resamples": 300, "level": 0.9, "seed": 1}


def runs(lengths, statuses, items=None) -> pl.DataFrame:
    return pl.DataFrame({"item_id": items or [f"i{k:02d}" for k in range(len(lengths))], "n_reasoning": lengths, "status": statuses})


FIVE = runs(LENGTHS, ["terminated" if done else "truncated" for done in COMPLETED])


def estimates(frame, horizons, **settings) -> dict:
    found = summary(frame, horizons, **{**DRAWN, **settings})
    return {(row["estimand"], row["horizon"]): row for row in found.iter_rows(named=True)}


def restricted_mean(frame, until):
    return summary(frame, [until], **DRAWN)["estimate"][-1]


def test_kaplan_meier_by_hand():
    assert completion_curve(FIVE, list(AFTER)) == pytest.approx([1 - value for value in AFTER.values()])


def test_restricted_mean_by_hand():
    assert restricted_mean(FIVE, 8) == pytest.approx(2 * 1 + 2 * 0.8 + 2 * 0.6 + 2 * 0.3)
    assert restricted_mean(FIVE, 3) == pytest.approx(2 * 1 + 1 * 0.8)
    assert restricted_mean(FIVE, 1) == pytest.approx(1)
    assert restricted_mean(FIVE, 0) == 0


def test_items_weigh_equally_whatever_their_replicates():
    frame = runs([10, 10, 10, 100], ["terminated"] * 4, ["a", "a", "a", "b"])
    assert completion_curve(frame, [50])[0] == 0.5
    assert restricted_mean(frame, 100) == pytest.approx(55)
    # The same where a run of another item is cut on the way: a at 10 is half of what is at risk.
    cut = pl.concat([frame, runs([20], ["truncated"], ["b"])])
    assert completion_curve(cut, [15, 100]) == pytest.approx([0.5, 1.0])


def test_a_broken_format_never_completes():
    frame = runs([10, 10, 5, 5], ["terminated", "terminated", "malformed", "malformed"])
    assert completion_curve(frame, [5, 10, 10_000]) == pytest.approx([0, 0.5, 0.5])
    found = estimates(frame, [5, 10])
    assert (found["completion", 10]["estimate"], found["completion", 10]["n_items"], found["completion", 10]["n_pairs"]) == (0.5, 4, 4)
    assert found["restricted_mean_length", 10]["estimate"] == 10
    # It is still at risk where another run is cut, unlike that one.
    assert completion_curve(pl.concat([frame, runs([7], ["truncated"], ["z"])]), [10])[0] == pytest.approx(0.5)
    assert completion_curve(runs([3], ["malformed"]), [99])[0] == 0


def test_runs_without_reasoning_complete_at_zero():
    frame = runs([0, 0, 5, 5], ["terminated"] * 4)
    assert completion_curve(frame, [0, 4, 5]) == pytest.approx([0.5, 0.5, 1])
    assert restricted_mean(frame, 10) == pytest.approx(2.5)


def test_no_run_completed():
    frame = runs(LENGTHS, ["truncated"] * 5)
    assert completion_curve(frame, [1, 9]).tolist() == [0, 0]
    assert restricted_mean(frame, 8) == 8


RUNS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 12), st.sampled_from(["terminated", "truncated", "malformed"])), min_size=1, max_size=14
)


@given(RUNS)
def test_curves_are_those_of_statsmodels(rows):
    frame = runs([length for _, length, _ in rows], [status for *_, status in rows], [item for item, *_ in rows])
    counts = {item: sum(name == item for name, *_ in rows) for item in "abcd"}
    weights = np.array([1 / counts[item] for item, *_ in rows])
    times = np.array([length if status != "malformed" else 10**6 for _, length, status in rows])
    done = np.array([status == "terminated" for *_, status in rows])
    expected = np.zeros(14)
    if done.any():
        fit = SurvfuncRight(times, done.astype(int), freq_weights=weights)
        expected = 1 - np.concatenate([[1.0], fit.surv_prob])[np.searchsorted(fit.surv_times, range(14), side="right")]
    np.testing.assert_allclose(completion_curve(frame, range(14)), expected, atol=1e-12)
    # The integral of a step function whose steps are at whole numbers.
    assert summary(frame, [13], resamples=100, level=0.9, seed=1)["estimate"][-1] == pytest.approx((1 - expected[:13]).sum(), abs=1e-9)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12), st.booleans()), min_size=1, max_size=12))
def test_without_a_cut_it_is_the_share_that_is_complete(rows):
    frame = runs([n for _, n, _ in rows], ["terminated" if done else "malformed" for *_, done in rows], [item for item, *_ in rows])
    share = [
        frame.group_by("item_id").agg(((pl.col("status") == "terminated") & (pl.col("n_reasoning") <= b)).mean().alias("x"))["x"].mean()
        for b in range(14)
    ]
    np.testing.assert_allclose(completion_curve(frame, range(14)), share, atol=1e-12)
    found = summary(frame, list(range(14)), resamples=100, level=0.9, seed=1)
    np.testing.assert_allclose(found["estimate"].to_numpy()[:14], share, atol=1e-12)


def test_both_ways_of_the_summary_are_one():
    # Where no run is cut before the last horizon the plain share and Kaplan-Meier's curve agree, limits included.
    rng = np.random.default_rng(5)
    lengths, items = rng.integers(1, 30, size=60), [f"i{k % 25:02d}" for k in range(60)]
    statuses = np.where(rng.random(60) < 0.8, "terminated", "malformed").tolist()
    plain = summary(runs(lengths, statuses, items), [8, 16], **DRAWN)
    completed, owner = np.array(statuses) == "terminated", np.unique(items, return_inverse=True)[1]
    times = np.where(np.array(statuses) == "malformed", np.inf, lengths)
    draws = curves(times, completed, owner, resample_weights(25, 300, 1), [8, 16])
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    np.testing.assert_allclose(plain["ci_low"], low, atol=1e-9)
    np.testing.assert_allclose(plain["ci_high"], high, atol=1e-9)


def test_summary():
    found = summary(FIVE, [2, 4, 8], **DRAWN)
    assert found.select("estimand", "horizon").rows() == [("completion", 2), ("completion", 4), ("completion", 8), ("restricted_mean_length", 8)]
    assert found["estimate"].to_list() == pytest.approx([0.2, 0.4, 0.7, 5.4])
    assert (found["ci_low"] <= found["estimate"]).all()
    assert (found["estimate"] <= found["ci_high"]).all()
    assert set(found["n_items"]) == {5}
    assert set(found["n_pairs"]) == {5}
    assert found.equals(summary(FIVE, [2, 4, 8], **DRAWN))
    assert summary(FIVE.clear(), [2], **DRAWN).is_empty()


@pytest.mark.parametrize("cut", [False, True])
def test_method_strata_and_exact_limits_are_as_asked_for(cut):
    lengths = [*range(1, 20), 30]
    frame = runs(lengths, ["terminated"] * 19 + ["truncated" if cut else "terminated"])
    found = estimates(frame, [0, 5, 40], method="bca", strata={item: str(k < 8) for k, item in enumerate(frame["item_id"])})
    inner = found["completion", 5]
    assert inner["method"] == "Kaplan-Meier, item bootstrap, bca, 300 resamples, within strata"
    plain = estimates(frame, [0, 5, 40])["completion", 5]
    assert plain["method"] == "Kaplan-Meier, item bootstrap, percentile, 300 resamples"
    assert (inner["ci_low"], inner["ci_high"]) != (plain["ci_low"], plain["ci_high"])
    nobody = found["completion", 0]
    assert (nobody["estimate"], nobody["ci_low"]) == (0, 0)
    assert nobody["ci_high"] == pytest.approx(1 - 0.05 ** (1 / 20))
    assert nobody["method"] == "Kaplan-Meier, Clopper-Pearson over items: all are 0"
