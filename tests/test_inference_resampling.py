"""Nested and two-way bootstrap: cases in which they must equal something simpler, and variances by formula."""

import numpy as np
import pytest

from midtrace.inference import item_bootstrap, nested_bootstrap, two_way_bootstrap

RNG = np.random.default_rng(11)
PAIRS = RNG.normal(size=(50, 3, 4)) + RNG.normal(size=(50, 1, 4))


def same(bands, plain):
    np.testing.assert_allclose(bands.estimate, plain.estimate, atol=1e-12)
    np.testing.assert_allclose(bands.low, plain.low, atol=1e-12)
    np.testing.assert_allclose(bands.high, plain.high, atol=1e-12)


@pytest.mark.parametrize("bootstrap", [nested_bootstrap, two_way_bootstrap])
def test_one_replicate_or_equal_replicates_are_the_item_bootstrap(bootstrap):
    single = PAIRS[:, :1]
    plain = item_bootstrap(single[:, 0], resamples=700, seed=3)
    same(bootstrap(single, resamples=700, seed=3), plain)
    same(bootstrap(np.repeat(single, 3, axis=1), resamples=700, seed=3), plain)


@pytest.mark.parametrize("bootstrap", [nested_bootstrap, two_way_bootstrap])
def test_estimates_are_means_of_item_means(bootstrap):
    values = PAIRS.copy()
    values[::4, 1] = np.nan
    found = bootstrap(values, resamples=200, seed=1)
    np.testing.assert_allclose(found.estimate, np.nanmean(values, axis=1).mean(axis=0), atol=1e-12)
    again = bootstrap(values, resamples=200, seed=1)
    np.testing.assert_array_equal(found.band_low, again.band_low)
    np.testing.assert_array_equal(found.low, again.low)


def test_ratios_count_only_what_the_indicator_admits():
    inside = RNG.random((50, 3, 4)) < 0.6
    values = np.where(inside, PAIRS, 0.0)
    expected = values.mean(1).sum(0) / inside.mean(1).sum(0)
    for bootstrap in (nested_bootstrap, two_way_bootstrap):
        found = bootstrap(values, inside, resamples=300, seed=1)
        np.testing.assert_allclose(found.estimate, expected, atol=1e-12)
        assert (found.low < expected).all()
        assert (expected < found.high).all()


def test_variance_of_the_nested_bootstrap_is_that_of_its_two_stages():
    values = PAIRS[:, :, 0]
    n, replicates = values.shape
    means = values.mean(1)
    exact = means.var() / n + values.var(axis=1).mean() / (replicates * n)
    found = nested_bootstrap(values, resamples=20_000, seed=1, level=0.6827)
    assert (found.high[0] - found.low[0]) / 2 == pytest.approx(np.sqrt(exact), rel=0.03)


def test_two_way_bootstrap_of_a_pure_replicate_effect():
    # Means of three draws from (0, 1, 2): 0 and 2 have chance 1/27 = 3.7% each, so both lie within 95% limits, and outside of 90% ones.
    values = np.tile([0.0, 1.0, 2.0], (40, 1))
    wide, narrow = (two_way_bootstrap(values, resamples=20_000, seed=1, level=level) for level in (0.95, 0.90))
    assert (wide.low[0], wide.high[0]) == pytest.approx((0.0, 2.0), abs=1e-12)
    assert (narrow.low[0], narrow.high[0]) == pytest.approx((1 / 3, 5 / 3), abs=1e-12)
    nested = nested_bootstrap(values, resamples=2_000, seed=1)
    assert nested.high[0] - nested.low[0] < 0.6


def test_bands_are_simultaneous_within_a_family():
    together = nested_bootstrap(PAIRS, resamples=2_000, seed=2)
    split = nested_bootstrap(PAIRS, resamples=2_000, seed=2, families=["a", "a", "b", "b"])
    first = nested_bootstrap(PAIRS[:, :, :2], resamples=2_000, seed=2)
    np.testing.assert_allclose(split.band_low[:2], first.band_low, atol=1e-12)
    np.testing.assert_array_equal(split.low, together.low)
    width = together.band_high - together.band_low
    assert np.ptp(width) < 1e-12
    assert (width >= split.band_high - split.band_low - 1e-12).all()
    # A family's band covers all its members at once in 95% of resamples: no narrower than any pointwise one.
    assert (width > 0.9 * (together.high - together.low)).all()


def test_scaled_bands_follow_the_precision_of_each_estimand():
    values = PAIRS * np.array([1.0, 1.0, 0.1, 0.1])
    scaled = nested_bootstrap(values, resamples=1_000, seed=2, scaled=True)
    width = scaled.band_high - scaled.band_low
    assert width[2] < 0.2 * width[0]
    assert (width > (scaled.high - scaled.low)).all()


def test_an_estimand_without_pairs_is_undefined_and_leaves_the_others_alone():
    inside = np.ones((50, 3, 4))
    inside[:, :, 2] = 0
    found = nested_bootstrap(PAIRS * inside, inside, resamples=300, seed=1)
    assert np.isnan([found.estimate[2], found.low[2], found.band_high[2]]).all()
    assert not np.isnan(np.delete(found.band_high, 2)).any()


def test_strata_are_kept():
    values = np.repeat([[1.0], [5.0]], 10, axis=0) + np.zeros((20, 3))
    kept = nested_bootstrap(values, resamples=200, strata=["a"] * 10 + ["b"] * 10)
    assert (kept.low[0], kept.high[0]) == pytest.approx((3.0, 3.0))


@pytest.mark.parametrize("bootstrap", [nested_bootstrap, two_way_bootstrap])
def test_a_pair_that_does_not_exist_for_an_estimand_is_missing(bootstrap):
    # Two of A's three pairs do not exist for the first estimand; B and C have all. Its estimate is (1 + 0 + 0) / 3, not (1/3) / (1/3 + 1 + 1).
    values = np.zeros((3, 3, 2))
    values[0, 0] = 1
    values[0, 1:, 0] = np.nan
    inside = np.ones((3, 3, 2))
    inside[0, 1:, 1] = 0
    found = bootstrap(values, inside, resamples=4_000, seed=1)
    np.testing.assert_allclose(found.estimate, [1 / 3, (1 / 3) / (1 / 3 + 2)], atol=1e-12)
    assert (found.low[0], found.high[0]) == (0, pytest.approx(1 if bootstrap is nested_bootstrap else 2 / 3))


def test_an_item_without_a_pair_for_an_estimand_does_not_count_for_it():
    values = PAIRS.copy()
    values[3] = np.nan
    values[7, :, 0] = np.nan
    for bootstrap in (nested_bootstrap, two_way_bootstrap):
        found = bootstrap(values, resamples=100, seed=1)
        kept = np.delete(values, 3, axis=0)
        expected = [np.mean([kept[i, :, k].mean() for i in range(len(kept)) if not np.isnan(kept[i, :, k]).all()]) for k in range(4)]
        np.testing.assert_allclose(found.estimate, expected, atol=1e-12)
        assert (found.low < found.estimate).all()


def test_a_study_without_items_is_refused():
    with pytest.raises(ValueError, match="no items"):
        nested_bootstrap(np.zeros((0, 3)))
