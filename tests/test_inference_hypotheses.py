"""Tests of means, Holm's adjustment, replicates."""

import numpy as np
import polars as pl
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import ttost_paired

from midtrace.estimands import carried, intersection_union, positive_p
from midtrace.estimands.contrasts import same_input
from midtrace.inference import duplicate_replicates, equivalence, holm, linear_scores, mean_p, per_replicate

VALUES = np.random.default_rng(2).normal(0.01, 0.05, size=80)


@pytest.mark.parametrize("seed", range(5))
def test_holm_is_that_of_statsmodels(seed):
    p = np.random.default_rng(seed).random(9) ** 3
    np.testing.assert_allclose(holm(p), multipletests(p, method="holm")[1], atol=1e-15)


def test_holm_leaves_out_what_was_not_tested():
    np.testing.assert_allclose(holm([0.01, np.nan, 0.04, 0.03]), [0.03, np.nan, 0.06, 0.06])
    assert holm([0.9, 0.8]).max() == 1.0
    assert len(holm([])) == 0


def test_p_value_of_a_mean():
    assert mean_p(VALUES) == pytest.approx(stats.ttest_1samp(VALUES, 0).pvalue, rel=1e-12)
    assert np.isnan(mean_p(np.array([0.3])))
    assert mean_p(np.zeros(5)) == 1.0
    assert np.isnan(mean_p(np.full(5, 0.2))), "no spread to test with"


def test_equivalence_is_the_larger_of_two_one_sided_tests():
    expected = ttost_paired(VALUES, np.zeros(80), -0.03, 0.03)[0]
    found = equivalence(VALUES, 0.03)
    assert found["p"] == pytest.approx(expected, rel=1e-12)
    assert found["equivalent"] is bool(expected < 0.05)


def test_duplicate_replicates_are_counted_by_their_ids():
    outputs = {"x": [[1, 2], [1, 2], [1, 2]], "y": [[1], [1, 2], [1]], "z": [[3], [4], []]}
    rows = [
        {"model": "m", "item_id": item, "arm": "a", "replicate": k, "output_ids": ids} for item, runs in outputs.items() for k, ids in enumerate(runs)
    ]
    found = duplicate_replicates(pl.DataFrame(rows))
    assert found.select("item_id", "n_replicates", "n_duplicates").rows() == [("x", 3, 2), ("y", 3, 1), ("z", 3, 0)]
    assert found.equals(duplicate_replicates(pl.DataFrame(rows).lazy()).collect())


def test_each_replicate_on_its_own():
    frame = pl.DataFrame({"item_id": ["x", "y", "x", "y"], "replicate": [0, 0, 1, 1], "value": [1.0, 0.0, 0.5, 5.0], "within": [True] * 3 + [False]})
    frame = frame.with_columns(estimand=pl.lit("d"))
    found = per_replicate(frame, ["estimand"], "value", "within", resamples=200, level=0.95, seed=1)
    assert found.select("replicate", "estimate", "n_items", "n_pairs").rows() == [(0, 0.5, 2, 2), (1, 0.5, 1, 1)]


def test_linear_scores_by_hand():
    """T = 1.5 / 2, and m / sum of denominators = 3 / 2; the item without a denominator has no score."""
    scores = linear_scores(np.array([1.0, 0.0, 0.5, 0.0]), np.array([1.0, 0.5, 0.5, 0.0]))
    assert scores == pytest.approx([0.75 + 0.25 * 1.5, 0.75 - 0.375 * 1.5, 0.75 + 0.125 * 1.5])


def test_a_positive_mean_has_the_p_value_of_the_one_sided_test():
    assert positive_p(VALUES) == pytest.approx(stats.ttest_1samp(VALUES, 0, alternative="greater").pvalue)


def test_all_alternatives_hold_only_as_surely_as_the_least_sure():
    assert intersection_union([0.01, 0.04, 0.02]) == 0.04
    assert np.isnan(intersection_union([0.01, np.nan]))


def test_all_but_one_of_three_equal_replicates_are_duplicates():
    traces = pl.DataFrame({"model": "m", "item_id": "i", "arm": "a", "replicate": [0, 1, 2], "output_ids": [[1, 2]] * 3})
    assert duplicate_replicates(traces).row(0) == ("m", "i", "a", 3, 2)


def test_the_last_reading_of_a_finished_run_is_carried_forward():
    read = pl.DataFrame({"item_id": "i", "replicate": 0, "horizon": [100, 128], "complete": True, "gold_log_odds": [1.0, 2.0]})
    assert carried(read, [64, 100, 128, 256])["log_odds"].to_list() == [[None, 1.0, 2.0, 2.0]]


def test_inputs_are_the_same_at_horizon_0_in_the_common_context_alone():
    frame = pl.DataFrame({"horizon": [0, 64, 0], "readout": ["symmetric", "symmetric", "terminal"]})
    assert frame.select(same_input()).to_series().to_list() == [True, False, False]
