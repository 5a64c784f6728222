"""Item bootstrap: against scipy, against loops, and its invariants."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from midtrace.inference import bootstrap, bootstrap_function, intervals, item_bootstrap, resample_weights

RNG = np.random.default_rng(5)
SKEWED = RNG.exponential(size=60)


def test_weights_are_resamples_of_the_items():
    weights = resample_weights(40, 300, 1)
    assert weights.shape == (300, 40)
    assert (weights.sum(1) == 40).all()
    assert weights.min() == 0
    np.testing.assert_array_equal(weights, resample_weights(40, 300, 1))
    assert not np.array_equal(weights, resample_weights(40, 300, 2))
    # Each item is drawn binomial(40, 1/40) times: mean 1, variance 0.975.
    assert weights.mean() == 1
    assert weights.var() == pytest.approx(0.975, abs=0.05)


def test_strata_keep_their_sizes():
    strata = ["a"] * 10 + ["b"] * 25 + ["a"] * 5
    weights = resample_weights(40, 200, 1, strata)
    inside = np.array([name == "a" for name in strata])
    assert (weights[:, inside].sum(1) == 15).all()
    assert (weights[:, ~inside].sum(1) == 25).all()
    with pytest.raises(ValueError, match="3 strata for 40 items"):
        resample_weights(40, 10, 1, ["a", "b", "c"])


@pytest.mark.parametrize("strata", [None, ["a"] * 12 + ["b"] * 18])
def test_weights_do_not_depend_on_how_they_are_chunked(monkeypatch, strata):
    whole = resample_weights(30, 250, 3, strata)
    monkeypatch.setattr(bootstrap, "CACHED", 0)
    for chunk in (7, 100, 1000):
        np.testing.assert_array_equal(whole, np.concatenate(list(bootstrap.weight_chunks(30, 250, 3, strata, chunk))))


def test_estimates_and_limits_equal_a_loop_over_resamples():
    numerator, denominator = RNG.normal(size=(25, 3)), RNG.integers(0, 2, size=(25, 3)).astype(float)
    numerator *= denominator
    found = item_bootstrap(numerator, denominator, resamples=400, seed=9)
    weights = resample_weights(25, 400, 9)
    for k in range(3):
        draws = []
        for weight in weights:
            drawn = np.repeat(np.arange(25), weight.astype(int))
            draws.append(numerator[drawn, k].sum() / denominator[drawn, k].sum())
        assert found.estimate[k] == pytest.approx(numerator[:, k].sum() / denominator[:, k].sum(), abs=1e-12)
        np.testing.assert_allclose([found.low[k], found.high[k]], np.quantile(draws, [0.025, 0.975]), atol=1e-12)


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_limits_agree_with_scipy(method):
    ours = item_bootstrap(SKEWED, resamples=20_000, seed=1, method=method)
    theirs = stats.bootstrap((SKEWED,), np.mean, n_resamples=20_000, method=method, rng=np.random.default_rng(2)).confidence_interval
    # Monte-Carlo error of a 2.5% quantile: sqrt(p (1 - p) / n) / density = about 0.02 standard errors here; four of them, twice.
    tolerance = 8 * 0.02 * SKEWED.std() / np.sqrt(len(SKEWED)) / 1.5
    assert ours.low[0] == pytest.approx(theirs.low, abs=tolerance)
    assert ours.high[0] == pytest.approx(theirs.high, abs=tolerance)


def test_bca_moves_the_limits_of_a_skewed_mean_towards_the_tail():
    percentile, bca = (item_bootstrap(SKEWED, resamples=5_000, seed=1, method=method) for method in ("percentile", "bca"))
    assert bca.low[0] > percentile.low[0]
    assert bca.high[0] > percentile.high[0]


def test_an_estimand_has_the_same_limits_alone_and_among_others():
    values = RNG.normal(size=(30, 5))
    together = item_bootstrap(values, np.ones_like(values), resamples=500, seed=4, method="bca")
    for k in range(5):
        alone = item_bootstrap(values[:, k], resamples=500, seed=4, method="bca")
        np.testing.assert_allclose([alone.low[0], alone.high[0]], [together.low[k], together.high[k]], atol=1e-12)


def test_undefined_and_infinite_estimands_have_no_limits():
    numerators = np.array([[0.0, np.inf, 1.0], [0.0, 2.0, 3.0], [0.0, 1.0, 2.0]])
    denominators = np.array([[0.0, 1.0, 1.0], [0.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    found = item_bootstrap(numerators, denominators, resamples=200)
    assert np.isnan(found.estimate[0])
    assert np.isinf(found.estimate[1])
    assert np.isnan(found.low[:2]).all()
    assert np.isnan(found.high[:2]).all()
    assert 1 <= found.low[2] <= found.high[2] <= 3


def test_strata_without_spread_have_limits_without_width():
    values = np.array([1.0] * 6 + [5.0] * 4)
    kept = item_bootstrap(values, resamples=300, strata=["a"] * 6 + ["b"] * 4)
    free = item_bootstrap(values, resamples=300)
    assert kept.low[0] == kept.high[0] == pytest.approx(2.6)
    assert free.low[0] < 2.6 < free.high[0]


def test_any_function_of_sums():
    def spread(sums):
        mean = sums[:, 0] / sums[:, 2]
        return (sums[:, 1] / sums[:, 2] - mean**2)[:, None]

    found = bootstrap_function(np.column_stack([SKEWED, SKEWED**2, np.ones(60)]), spread, resamples=300, seed=7)
    draws = [np.var(np.repeat(SKEWED, weight.astype(int))) for weight in resample_weights(60, 300, 7)]
    assert found.estimate[0] == pytest.approx(np.var(SKEWED))
    np.testing.assert_allclose([found.low[0], found.high[0]], np.quantile(draws, [0.025, 0.975]), atol=1e-10)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="no items"):
        item_bootstrap(np.zeros((0, 2)))
    with pytest.raises(ValueError, match="percentile, bca"):
        item_bootstrap(np.zeros(3), method="studentised")


def test_intervals_of_terms():
    terms = pl.DataFrame(
        {
            "estimand": ["a", "a", "b"],
            "horizon": pl.Series([None, None, 8], dtype=pl.Int32),
            "item_id": ["x", "y", "x"],
            "numerator": [1.0, 0.0, 0.5],
            "denominator": [1.0, 1.0, 1.0],
            "pairs": [2.0, 2.0, 1.0],
        }
    )
    found = intervals(terms, ["estimand", "horizon"], resamples=200, level=0.9, seed=0)
    assert found.select("estimand", "horizon", "estimate", "n_items", "n_pairs").rows() == [("a", None, 0.5, 2, 4), ("b", 8, 0.5, 1, 1)]
    assert found.filter(pl.col("estimand") == "a").select("ci_low", "ci_high").row(0) == (0.0, 1.0)
    assert found.filter(pl.col("estimand") == "b").select("ci_low", "ci_high").row(0) == (None, None), "one item has no spread"
    assert found.equals(intervals(terms.lazy(), ["estimand", "horizon"], resamples=200, level=0.9, seed=0))
    empty = intervals(terms.clear(), ["estimand", "horizon"], resamples=200, level=0.9, seed=0)
    assert empty.is_empty()
    assert empty.columns == found.columns
