"""Inference against scipy, statsmodels and slow loops."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from midtrace.inference import equivalence, intervals, item_bootstrap, resample_weights


@pytest.mark.parametrize(("ours", "theirs"), [("percentile", "percentile"), ("bca", "BCa")])
def test_limits_agree_with_scipy(ours, theirs):
    values = np.random.default_rng(4).exponential(size=40)
    found = item_bootstrap(values, resamples=20_000, method=ours)
    expected = stats.bootstrap((values,), np.mean, n_resamples=20_000, method=theirs, rng=1).confidence_interval
    spread = values.std() / np.sqrt(len(values))
    # Monte-Carlo error of a 2.5% quantile of 20,000 draws is about 2% of the standard error, twice over for a difference.
    assert found.estimate[0] == pytest.approx(values.mean())
    assert [found.low[0], found.high[0]] == pytest.approx(list(expected), abs=0.08 * spread)


def test_bca_corrects_a_skewed_mean():
    values = np.random.default_rng(4).exponential(size=40) ** 2
    plain, corrected = (item_bootstrap(values, resamples=20_000, method=method) for method in ("percentile", "bca"))
    assert corrected.low[0] > plain.low[0]
    assert corrected.high[0] > plain.high[0]


def test_ratios_equal_a_slow_loop():
    rng = np.random.default_rng(2)
    denominators = rng.integers(0, 3, size=(12, 2)) / 2
    numerators = rng.normal(size=(12, 2)) * denominators
    found = item_bootstrap(numerators, denominators, resamples=300, level=0.9, seed=5)
    weights = resample_weights(12, 300, 5)
    for k in range(2):
        draws = []
        for row in weights:
            items = [i for i in range(12) for _ in range(int(row[i]))]
            assert len(items) == 12
            total = sum(denominators[i, k] for i in items)
            if total:
                draws.append(sum(numerators[i, k] for i in items) / total)
        assert found.estimate[k] == pytest.approx(numerators[:, k].sum() / denominators[:, k].sum())
        assert [found.low[k], found.high[k]] == pytest.approx(np.quantile(draws, [0.05, 0.95]))


def test_resamples_draw_items_uniformly():
    weights = resample_weights(7, 4_000, 0)
    assert (weights.sum(1) == 7).all()
    assert stats.chisquare(weights.sum(0)).pvalue > 1e-3
    # As drawing with replacement does: the variance of a count is n p (1 - p).
    assert weights.var(0) == pytest.approx(np.full(7, 6 / 7), rel=0.1)


def test_resamples_are_seeded():
    assert (resample_weights(5, 20, 1) == resample_weights(5, 20, 1)).all()
    assert (resample_weights(5, 20, 1) != resample_weights(5, 20, 2)).any()
    values = np.random.default_rng(0).normal(size=30)
    first, second = (item_bootstrap(values, resamples=5_000, seed=3) for _ in range(2))
    assert (first.low, first.high) == (second.low, second.high)


def test_chunks_of_resamples_change_nothing(monkeypatch):
    values = np.random.default_rng(0).normal(size=(30, 2))
    whole = item_bootstrap(values, resamples=501)
    monkeypatch.setattr("midtrace.inference.bootstrap.CHUNK", 7)
    pieces = item_bootstrap(values, resamples=501)
    assert pieces.low == pytest.approx(whole.low, abs=1e-12)
    assert pieces.high == pytest.approx(whole.high, abs=1e-12)


def test_what_is_undefined_is_nan_and_what_is_constant_has_no_width():
    numerators = np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    denominators = np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    for method in ("percentile", "bca"):
        found = item_bootstrap(numerators, denominators, resamples=100, method=method)
        assert np.isnan([found.estimate[0], found.low[0], found.high[0]]).all()
        assert (found.estimate[1], found.low[1], found.high[1]) == (1.0, 1.0, 1.0)


def test_bad_arguments():
    with pytest.raises(ValueError, match="no items to resample"):
        item_bootstrap(np.zeros((0, 2)))
    with pytest.raises(ValueError, match="method is 'magic'; allowed: percentile, bca"):
        item_bootstrap(np.zeros(3), method="magic")


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=30), st.floats(0.01, 0.5))
def test_equivalence_agrees_with_statsmodels(values, margin):
    from statsmodels.stats.weightstats import DescrStatsW

    found = equivalence(np.array(values), margin)
    assert found["estimate"] == pytest.approx(np.mean(values))
    if np.std(values) > 1e-9:
        expected = DescrStatsW(values).ttost_mean(-margin, margin)[0]
        assert found["p"] == pytest.approx(expected, abs=1e-9)
    assert found["equivalent"] == (found["p"] < 1 - 0.95)


def test_equivalence_by_hand():
    # Items that all agree have no spread to test with: that is no evidence, however small the margin.
    for value in (0.0, 0.01, 0.02):
        found = equivalence(np.full(5, value), 0.02)
        assert np.isnan(found["p"])
        assert found["equivalent"] is False
    assert not equivalence(np.array([-0.5, 0.5, 0.4, -0.4]), 0.02)["equivalent"]
    with pytest.raises(ValueError, match="1 items; an equivalence test needs at least 2"):
        equivalence(np.array([0.1]), 0.02)


def terms(rows: list[tuple]) -> pl.DataFrame:
    keys = {"horizon": pl.Int32, "readout": pl.String, "item_id": pl.String}
    return pl.DataFrame(rows, schema={**keys, **dict.fromkeys(["numerator", "denominator", "pairs"], pl.Float64)}, orient="row")


def test_intervals_keep_null_keys_apart():
    found = intervals(
        terms([(None, "x", "a", 1.0, 1.0, 2.0), (8, "x", "a", 0.0, 1.0, 1.0), (None, "x", "b", 0.0, 1.0, 1.0), (None, None, "a", 0.5, 0.5, 1.0)]),
        ["horizon", "readout"],
        resamples=100,
        level=0.9,
        seed=0,
    )
    assert found.columns == ["horizon", "readout", "estimate", "ci_low", "ci_high", "n_items", "n_pairs", "method"]
    rows = {(row["horizon"], row["readout"]): (row["estimate"], row["n_items"], row["n_pairs"]) for row in found.iter_rows(named=True)}
    assert rows == {(None, "x"): (0.5, 2, 3), (8, "x"): (0.0, 1, 1), (None, None): (1.0, 1, 1)}


def test_intervals_count_only_items_with_a_denominator():
    rows = [(8, "x", "a", 0.0, 0.0, 0.0), (8, "x", "b", 1.0, 1.0, 2.0), (9, "x", "a", 0.0, 0.0, 0.0)]
    found = intervals(terms(rows), ["horizon"], resamples=100, level=0.9, seed=0)
    assert found.select("horizon", "estimate", "n_items", "n_pairs").rows() == [(8, 1.0, 1, 2), (9, None, 0, 0)]
    assert found["ci_low"].to_list()[1] is None


def test_intervals_equal_the_bootstrap_of_each_estimand_alone():
    rng = np.random.default_rng(3)
    rows = [(horizon, "x", f"i{k:02d}", float(rng.normal()), 1.0, 1.0) for k in range(25) for horizon in (8, 16)]
    found = intervals(terms(rows), ["horizon"], resamples=400, level=0.95, seed=2)
    for horizon in (8, 16):
        alone = item_bootstrap(np.array([row[3] for row in rows if row[0] == horizon]), resamples=400, seed=2)
        row = found.filter(pl.col("horizon") == horizon).row(0, named=True)
        assert (row["estimate"], row["ci_low"], row["ci_high"]) == pytest.approx((alone.estimate[0], alone.low[0], alone.high[0]))


def test_no_terms_give_no_intervals():
    found = intervals(terms([]), ["horizon", "readout"], resamples=100, level=0.9, seed=0)
    assert found.is_empty()
    assert found.schema["horizon"] == pl.Int32
