"""Proper scores, kappa and availability: against scikit-learn, numpy and hand computation."""

import math

import numpy as np
import polars as pl
import pytest

from midtrace import estimands
from midtrace.probe import read

RNG = np.random.default_rng(8)
LABELS = ["A", "B", "C", "D"]


def outcomes(rows):
    columns = ("arm", "item_id", "replicate", "horizon", "complete", "q_gold")
    frame = pl.DataFrame([dict(zip(columns, row, strict=True)) for row in rows], schema_overrides={"horizon": pl.Int32})
    q = pl.col("q_gold")
    return frame.with_columns(
        readout=pl.lit("symmetric"),
        context_arm=pl.lit("c"),
        brier=2 * (1 - q) ** 2,
        log_loss=-q.log(),
        gold_log_odds=(q / (1 - q)).log(),
    )


def values(terms):
    found = estimands.estimate(terms, ["estimand"])
    return dict(found.iter_rows())


def test_scores_of_a_readout_are_those_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    logits = RNG.normal(size=(40, 4)) * 2
    gold = RNG.integers(4, size=40)
    logprobs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    spelled = {label: [k] for k, label in enumerate(LABELS)}
    reads = [read(row, spelled, LABELS, LABELS[g]) for row, g in zip(logprobs, gold, strict=True)]
    probabilities = np.array([r.q for r in reads])
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    assert np.mean([r.log_loss for r in reads]) == pytest.approx(metrics.log_loss(gold, probabilities, labels=range(4)), rel=1e-9)
    squared = sum(metrics.mean_squared_error(gold == k, probabilities[:, k]) for k in range(4))
    assert np.mean([r.brier for r in reads]) == pytest.approx(squared, rel=1e-9)
    assert np.mean([r.correct for r in reads]) == pytest.approx(metrics.accuracy_score(gold, probabilities.argmax(axis=1)))


def test_score_terms_by_hand():
    q_t, q_r = [0.5, 0.9, 0.02, 0.0], [0.25, 0.8, 0.004, 0.5]
    frame = outcomes([(arm, f"i{k}", 0, 64, False, q) for arm, qs in (("t", q_t), ("r", q_r)) for k, q in enumerate(qs)])
    found = values(estimands.score_terms(frame, "t", "r", "c"))
    assert found["q_gold_treatment"] == pytest.approx(np.mean(q_t))
    assert found["q_gold_contrast"] == pytest.approx(np.mean(q_t) - np.mean(q_r))
    assert found["brier_reference"] == pytest.approx(np.mean([2 * (1 - q) ** 2 for q in q_r]))
    assert (found["tail_0.01_treatment"], found["tail_0.05_treatment"]) == (0.25, 0.5)
    assert (found["tail_0.01_reference"], found["tail_0.05_reference"]) == (0.25, 0.25)
    # A gold option of probability 0: the mean loss is infinite, its share is counted, the others are averaged.
    assert math.isinf(found["log_loss_treatment"])
    assert found["log_loss_infinite_treatment"] == 0.25
    assert found["log_loss_infinite_reference"] == 0
    assert found["log_loss_finite_treatment"] == pytest.approx(-np.log(q_t[:3]).mean())
    assert found["log_loss_finite_contrast"] == pytest.approx((-np.log(q_t[:3]) + np.log(q_r[:3])).mean())
    assert found["gold_log_odds_infinite_treatment"] == 0.25


def test_items_weigh_equally_whatever_their_replicates():
    rows = [("t", "x", k, 64, False, 0.5) for k in range(3)] + [("t", "y", 0, 64, False, 0.1)]
    frame = outcomes(rows + [("r", *row[1:]) for row in rows])
    assert values(estimands.score_terms(frame, "t", "r", "c"))["q_gold_treatment"] == pytest.approx(0.3)


def test_area_is_the_trapezoid_rule_over_the_span():
    grid, heights = [0, 64, 100, 512], RNG.normal(size=(5, 4))
    np.testing.assert_allclose(estimands.area(heights, grid), np.trapezoid(heights, grid, axis=1) / 512, atol=1e-12)
    assert estimands.area(np.full((1, 4), 2.5), grid)[0] == pytest.approx(2.5)
    with pytest.raises(ValueError, match="at least 2"):
        estimands.area(np.zeros((1, 1)), [64])


def test_terminal_distribution_is_carried_forward():
    # x ends between 64 and 128 and is not read again; y never ends and is not read at 128; z is read everywhere.
    rows = [("t", "x", 0, 0, False, 0.2), ("t", "x", 0, 64, False, 0.4), ("t", "x", 0, 100, True, 0.9)]
    rows += [("t", "y", 0, 0, False, 0.3), ("t", "y", 0, 64, False, 0.3)]
    rows += [("t", "z", 0, b, b > 0, 0.6) for b in (0, 64, 128, 192)]
    found = {row[0]: row[2] for row in estimands.carried(outcomes(rows), [0, 64, 128, 192]).iter_rows()}
    odds = {q: math.log(q / (1 - q)) for q in (0.2, 0.3, 0.4, 0.6, 0.9)}
    assert found["x"] == pytest.approx([odds[0.2], odds[0.4], odds[0.9], odds[0.9]])
    assert found["y"][:2] == pytest.approx([odds[0.3]] * 2)
    assert found["y"][2:] == [None, None]
    assert found["z"] == pytest.approx([odds[0.6]] * 4)


def test_availability_by_hand():
    rows = [("t", "x", 0, 0, False, 0.5), ("t", "x", 0, 64, True, 0.9), ("r", "x", 0, 0, False, 0.5), ("r", "x", 0, 64, False, 0.5)]
    rows += [("t", "y", 0, 0, False, 0.5), ("r", "y", 0, 0, False, 0.5), ("r", "y", 0, 64, False, 0.5)]
    rows += [("r", "y", 0, 128, True, 0.5), ("r", "x", 0, 128, True, 0.8)]
    found = values(estimands.availability_terms(outcomes(rows), "t", "r", "c", [0, 64, 128]))
    nine, eight = math.log(9), math.log(4)
    assert found["auc_treatment"] == pytest.approx((nine / 2 + nine) / 2)
    assert found["auc_reference"] == pytest.approx(eight / 4)
    assert found["auc_contrast"] == pytest.approx((nine / 2 + nine) / 2 - eight / 4)
    assert found["auc_undefined"] == 0.5  # y of the treatment was not read after 0


def test_infinite_log_odds_leave_a_pair_out_and_are_counted():
    rows = [(arm, item, 0, b, b > 0, 1.0 if (arm, item) == ("t", "x") else 0.6) for arm in "tr" for item in "xy" for b in (0, 64)]
    found = values(estimands.availability_terms(outcomes(rows), "t", "r", "c", [0, 64]))
    assert found["auc_undefined"] == 0.5
    assert found["auc_contrast"] == pytest.approx(0.0)
