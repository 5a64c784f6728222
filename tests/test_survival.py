"""Reasoning lengths as survival times, by hand."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midtrace.estimands.survival import completion_curve, restricted_mean, summary

# Five runs: done at 2, done at 4, censored at 4, done at 6, censored at 8.
LENGTHS, COMPLETED = np.array([2, 4, 4, 6, 8]), np.array([True, True, False, True, False])
# Survival: 4/5 after 2, then x 3/4 after 4 (the run censored at 4 was still at risk), then x 1/2 after 6.
AFTER = {0: 1.0, 1: 1.0, 2: 0.8, 3: 0.8, 4: 0.6, 5: 0.6, 6: 0.3, 8: 0.3, 99: 0.3}


def test_kaplan_meier_by_hand():
    found = completion_curve(LENGTHS, COMPLETED, list(AFTER))
    assert found == pytest.approx([1 - value for value in AFTER.values()])


def test_restricted_mean_by_hand():
    assert restricted_mean(LENGTHS, COMPLETED, 8) == pytest.approx(2 * 1 + 2 * 0.8 + 2 * 0.6 + 2 * 0.3)
    assert restricted_mean(LENGTHS, COMPLETED, 3) == pytest.approx(2 * 1 + 1 * 0.8)
    assert restricted_mean(LENGTHS, COMPLETED, 1) == pytest.approx(1)
    assert restricted_mean(LENGTHS, COMPLETED, 0) == 0


def test_runs_without_reasoning_complete_at_zero():
    assert completion_curve(np.array([0, 0, 5, 5]), np.ones(4, bool), [0, 4, 5]) == pytest.approx([0.5, 0.5, 1])
    assert restricted_mean(np.array([0, 0, 5, 5]), np.ones(4, bool), 10) == pytest.approx(2.5)


def test_no_run_completed():
    assert completion_curve(LENGTHS, np.zeros(5, bool), [1, 9]).tolist() == [0, 0]
    assert restricted_mean(LENGTHS, np.zeros(5, bool), 8) == 8


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans(), st.integers(1, 3)), min_size=1, max_size=12))
def test_weights_are_repetitions(runs):
    lengths, completed, weights = (np.array(column) for column in zip(*runs, strict=True))
    repeated = np.repeat(lengths, weights), np.repeat(completed, weights)
    horizons = range(14)
    assert completion_curve(lengths, completed, horizons, weights) == pytest.approx(completion_curve(*repeated, horizons))
    assert restricted_mean(lengths, completed, 10, weights) == pytest.approx(restricted_mean(*repeated, 10))


@given(st.lists(st.integers(0, 12), min_size=1, max_size=12))
def test_without_censoring_it_is_the_empirical_distribution(values):
    lengths = np.array(values)
    found = completion_curve(lengths, np.ones(len(lengths), bool), range(14))
    assert found == pytest.approx([(lengths <= horizon).mean() for horizon in range(14)])
    assert restricted_mean(lengths, np.ones(len(lengths), bool), 10) == pytest.approx(np.minimum(lengths, 10).mean())


def runs(**values) -> pl.DataFrame:
    rows = {"item_id": ["a", "a", "b", "c", "c"], "n_reasoning": LENGTHS, "status": np.where(COMPLETED, "terminated", "truncated")}
    return pl.DataFrame({**rows, **values})


def test_summary():
    found = summary(runs(), [2, 4, 8], resamples=300, level=0.9, seed=1)
    assert found.select("estimand", "horizon").rows() == [("completion", 2), ("completion", 4), ("completion", 8), ("restricted_mean_length", 8)]
    assert found["estimate"].to_list() == pytest.approx([0.2, 0.4, 0.7, 5.4])
    assert (found["ci_low"] <= found["estimate"]).all()
    assert (found["estimate"] <= found["ci_high"]).all()
    assert set(found["n_items"]) == {3}
    assert set(found["n_pairs"]) == {5}
    assert found.equals(summary(runs(), [2, 4, 8], resamples=300, level=0.9, seed=1))


def test_malformed_runs_are_left_out():
    status = ["terminated", "malformed", "malformed", "malformed", "malformed"]
    found = summary(runs(status=status), [2], resamples=100, level=0.9, seed=1)
    assert found.filter(pl.col("estimand") == "completion").select("estimate", "n_items", "n_pairs").row(0) == (1.0, 1, 1)
    assert summary(runs(status=["malformed"] * 5), [2], resamples=100, level=0.9, seed=1).is_empty()
