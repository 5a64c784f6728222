"""Estimands by hand and by property: pairs, strata, matched horizons, lengths."""

import math

import numpy as np
import polars as pl
import pytest
from helpers.builders import outcome, outcomes, trace
from hypothesis import given, settings
from hypothesis import strategies as st

from midtrace import decomposition, estimands
from midtrace.estimands import TERMINATION

T, R = "low", "high"
SETTINGS = {"seed": 1, "inference": {"resamples": 100, "level": 0.9, "margin": 0.1}}


def frame(pairs: list[tuple], **values) -> pl.DataFrame:
    """Outcomes of (item, replicate, complete_t, correct_t, complete_r, correct_r)."""
    rows = []
    for name, replicate, *states in pairs:
        rows.append(outcome(name, T, replicate, states[0], states[1], **values))
        rows.append(outcome(name, R, replicate, states[2], states[3], **values))
    return outcomes(rows)


# Item a has two replicates, items b and c one each.
BY_HAND = [
    ("a", 0, True, True, True, False),  # both complete, +1
    ("a", 1, True, False, False, True),  # treatment complete, -1
    ("b", 0, True, True, False, False),  # treatment complete, +1
    ("c", 0, False, True, False, True),  # both active, 0
]


def test_pairs_by_hand():
    rows = [*frame(BY_HAND).iter_rows(named=True), outcome("d", T), outcome("a", R, 2), outcome("a", "medium")]
    found = estimands.pairs(outcomes(rows), T, R)
    assert found.select("item_id", "replicate", "difference", "termination").rows() == [
        ("a", 0, 1.0, "both_complete"),
        ("a", 1, -1.0, "treatment_complete"),
        ("b", 0, 1.0, "treatment_complete"),
        ("c", 0, 0.0, "both_active"),
    ]


def test_strata_by_hand():
    found = {row["termination"]: row for row in estimands.strata(frame(BY_HAND), T, R, 8).iter_rows(named=True)}
    assert list(found) == list(TERMINATION)
    # Items weigh 1/3 each; item a is half in one stratum and half in another.
    assert [found[name]["share"] for name in TERMINATION] == pytest.approx([0.5 / 3, 1.5 / 3, 0, 1 / 3])
    assert [found[name]["contribution"] for name in TERMINATION] == pytest.approx([0.5 / 3, 0.5 / 3, 0, 0])
    assert [found[name]["difference"] for name in TERMINATION if name != "reference_complete"] == pytest.approx([1, (-0.5 + 1) / 1.5, 0])
    empty = found["reference_complete"]
    assert (empty["share"], empty["contribution"], empty["difference"]) == (0.0, 0.0, None)


def test_strata_have_the_columns_of_the_contract():
    assert estimands.strata(frame(BY_HAND), T, R, 8).columns == ["readout", "termination", "share", "difference", "contribution"]
    with pytest.raises(ValueError, match="no pair of 'low' and 'high' at horizon 9"):
        estimands.strata(frame(BY_HAND), T, R, 9)


STATES = st.tuples(*[st.booleans()] * 4)
PAIRS = st.dictionaries(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3)), STATES, min_size=1, max_size=14)


@settings(max_examples=40)
@given(PAIRS, PAIRS, st.sampled_from(["terminal", "terminal_continuation", "symmetric"]))
def test_contributions_sum_to_the_contrast(pairs, others, readout):
    table = outcomes(
        [
            *frame([(*key, *states) for key, states in pairs.items()], readout=readout, context_arm="x").iter_rows(named=True),
            *frame([(*key, *states) for key, states in others.items()], readout=readout, context_arm="x", horizon=64).iter_rows(named=True),
        ]
    )
    found = estimands.strata(table, T, R, 8)
    by_item: dict[str, list[float]] = {}
    for (name, _), (_, correct_t, _, correct_r) in pairs.items():
        by_item.setdefault(name, []).append(correct_t - correct_r)
    contrast = np.mean([np.mean(values) for values in by_item.values()])
    assert set(found["readout"]) == {readout}
    assert found["termination"].to_list() == list(TERMINATION)
    assert abs(found["contribution"].sum() - contrast) < 1e-12
    assert abs(found["share"].sum() - 1) < 1e-12
    weighted = found["share"] * found["difference"].fill_null(0.0)
    assert (weighted - found["contribution"]).abs().max() < 1e-12
    empty = found.filter(pl.col("share") == 0)
    assert empty["difference"].null_count() == len(empty)
    assert (empty["contribution"] == 0).all()


@settings(max_examples=20)
@given(PAIRS)
def test_the_decomposition_agrees_with_the_library_function(pairs):
    table = frame([(*key, *states) for key, states in pairs.items()])
    written = decomposition.strata(estimands.pairs(table, T, R), SETTINGS)
    point = estimands.strata(table, T, R, 8)
    both = point.join(written, on=["readout", "termination"], suffix="_w")
    assert len(both) == 4
    for name in ("share", "contribution"):
        assert (both[name] - both[f"{name}_w"]).abs().max() < 1e-12
    assert (both["difference"].is_null() == both["difference_w"].is_null()).all()
    assert not ((both["difference"] - both["difference_w"]).abs() > 1e-12).any()
    policy = decomposition.policy(estimands.pairs(table, T, R), SETTINGS).filter(pl.col("estimand") == "contrast")
    assert abs(policy["estimate"].item() - point["contribution"].sum()) < 1e-12


def test_policy_by_hand():
    found = decomposition.policy(estimands.pairs(frame(BY_HAND), T, R), SETTINGS)
    estimates = {row["estimand"]: row for row in found.iter_rows(named=True)}
    expected = {
        "contrast": 1 / 3,
        "accuracy_treatment": (0.5 + 1 + 1) / 3,
        "accuracy_reference": (0.5 + 0 + 1) / 3,
        "complete_treatment": 2 / 3,
        "complete_reference": 0.5 / 3,
        "correct_completion_treatment": 1.5 / 3,
        "correct_completion_reference": 0.0,
        "stopped_accuracy_treatment": 1.0,
        "stopped_accuracy_reference": (0.5 + 0 + 1) / (0.5 + 1 + 1),
        "both_active_contrast": 0.0,
    }
    assert {name: row["estimate"] for name, row in estimates.items()} == pytest.approx(expected)
    assert (estimates["contrast"]["n_items"], estimates["contrast"]["n_pairs"]) == (3, 4)
    assert (estimates["both_active_contrast"]["n_items"], estimates["both_active_contrast"]["n_pairs"]) == (1, 1)
    assert (estimates["stopped_accuracy_reference"]["n_items"], estimates["stopped_accuracy_reference"]["n_pairs"]) == (3, 3)


@given(st.integers(1, 9))
def test_items_weigh_equally_whatever_their_replicates(n):
    pairs = [("a", replicate, False, True, False, False) for replicate in range(n)] + [("b", 0, False, False, False, True)]
    contrast = decomposition.policy(estimands.pairs(frame(pairs), T, R), SETTINGS).filter(pl.col("estimand") == "contrast")
    assert contrast.select("estimate", "n_items", "n_pairs").row(0) == pytest.approx((0.0, 2, n + 1))


def test_symmetric_rows_are_paired_in_the_common_context():
    table = outcomes(
        [outcome("a", arm, readout="symmetric", context_arm=context, correct=context == "x") for arm in (T, R) for context in ("x", "y")]
        + [outcome("a", arm) for arm in (T, R)]
    )
    assert len(estimands.pairs(table, T, R, "x")) == 2
    assert estimands.pairs(table, T, R, "y").filter(readout="symmetric")["correct_t"].to_list() == [0.0]
    with pytest.raises(ValueError, match=r"symmetric rows in several contexts \(x, y\): say which is common"):
        estimands.strata(table, T, R, 8)


@pytest.mark.parametrize("ending", ["", "_continuation"])
def test_the_gaps_by_hand(ending):
    # Differences of items a, b, c: under Y 1, 0, 0; with all runs read alike 0, 0, 1; and so in the common context 0, 1, 0. Item c is missing there.
    terminal = frame(
        [("a", 0, True, True, False, False), ("b", 0, True, True, True, True), ("c", 0, False, False, False, False)], readout=f"terminal{ending}"
    )
    alike = frame(
        [("a", 0, True, False, False, False), ("b", 0, True, True, True, True), ("c", 0, False, True, False, False)], readout=f"symmetric_own{ending}"
    )
    common = {"readout": f"symmetric{ending}", "context_arm": "x"}
    symmetric = frame([("a", 0, True, False, False, False), ("b", 0, True, True, True, False)], **common)
    terms = estimands.gap_terms(estimands.pairs(pl.concat([terminal, alike, symmetric]), T, R, "x"))
    assert estimands.estimate(terms, ["estimand", "readout"]).rows() == [
        ("readout_gap", f"terminal{ending} - symmetric_own{ending}", pytest.approx((1 + 0 - 1) / 3)),
        ("context_gap", f"symmetric_own{ending} - symmetric{ending}", pytest.approx((0 - 1) / 2)),
    ]


@settings(max_examples=20)
@given(st.dictionaries(st.tuples(st.sampled_from("abcd"), st.integers(0, 2)), st.tuples(STATES, STATES, STATES), min_size=1, max_size=8))
def test_the_gaps_add_up_to_what_changes(pairs):
    readouts = ("terminal", "symmetric_own", "symmetric")
    parts = [frame([(*key, *states[at]) for key, states in pairs.items()], readout=name, context_arm="x") for at, name in enumerate(readouts)]
    both = estimands.pairs(pl.concat(parts), T, R, "x")
    contrast, gaps = (
        dict(estimands.estimate(terms, [key]).select(key, "estimate").iter_rows())
        for terms, key in (
            (estimands.policy_terms(both).filter(pl.col("estimand") == "contrast"), "readout"),
            (estimands.gap_terms(both), "estimand"),
        )
    )
    assert gaps["readout_gap"] + gaps["context_gap"] == pytest.approx(contrast["terminal"] - contrast["symmetric"], abs=1e-12)


def test_item_terms_count_rows_that_meet_the_condition():
    rows = pl.DataFrame({"item_id": ["a", "a", "b"], "x": [1, 3, 5], "in": [True, False, False]})
    found = estimands.item_terms(rows.with_columns(key=pl.lit(None, pl.Int32)), ["key"], pl.col("x"), pl.col("in"))
    assert found.rows() == [(None, "a", 0.5, 0.5, 1.0, False, False), (None, "b", 0.0, 0.0, 0.0, False, False)]
    assert estimands.estimate(found, ["key"])["estimate"].to_list() == [1.0]
    assert estimands.estimate(found.filter(pl.col("item_id") == "b"), ["key"])["estimate"].to_list() == [None]


# Matched horizons


def matched_reads(rows: list[tuple]) -> pl.DataFrame:
    names = ["trace_id", "partner_arm", "correct", "cut", "context", "context_arm"]
    return pl.DataFrame([(*row, "matched", "common", "medium")[:6] if len(row) == 3 else row for row in rows], schema=names, orient="row")


def test_matched_pairs_by_hand():
    traces = pl.DataFrame([trace(name, arm, replicate) for name in ("a", "b") for arm in (T, R) for replicate in (0, 1)])
    reads = matched_reads(
        [
            ("m/a/low/r0", R, True),
            ("m/a/high/r0", T, False),
            ("m/a/low/r1", R, False),  # no partner: the reference's trace is missing
            ("m/b/low/r0", R, True),
            ("m/b/high/r0", T, True),
            ("m/b/high/r0", "other", False),  # matched to another partner
            ("m/b/low/r0", R, False, "matched", "policy", T),
            ("m/b/low/r0", R, False, "matched", "common", "high"),
            ("m/b/low/r0", R, False, "horizon", "common", "medium"),
        ]
    )
    found = estimands.matched_pairs(reads, traces, T, R, "medium")
    assert found.rows() == [("a", 0, 1.0, 0.0, 1.0), ("b", 0, 1.0, 1.0, 0.0)]
    frames = {"readouts": reads, "continuations": reads.clear().with_columns(mode=pl.lit("answer"))}
    table = decomposition.matched(frames, traces, {"treatment": T, "reference": R, "common": "medium"}, SETTINGS)
    estimates = {row["estimand"]: (row["estimate"], row["n_items"], row["n_pairs"]) for row in table.iter_rows(named=True)}
    assert estimates["matched_contrast"] == (0.5, 2, 2)
    assert estimates["matched_accuracy_treatment"] == (1.0, 2, 2)
    assert estimates["matched_accuracy_reference"] == (0.5, 2, 2)
    assert estimates["matched_equivalence_p"][1:] == (2, 2)


def test_no_matched_pair_is_an_empty_table():
    traces = pl.DataFrame([trace("a", T)])
    reads = matched_reads([("m/a/low/r0", R, True)])
    frames = {"readouts": reads, "continuations": reads.clear().with_columns(mode=pl.lit("answer"))}
    assert decomposition.matched(frames, traces, {"treatment": T, "reference": R, "common": "medium"}, SETTINGS).is_empty()


# Lengths


def length(name: str, arm: str, n: int, replicate: int = 0, **values) -> dict:
    return trace(name, arm, replicate, n_reasoning=n, **values)


def test_length_pairs_by_hand():
    rows = [length("a", T, 10), length("a", R, 40, status="truncated"), length("b", T, 0), length("b", R, 5), length("c", T, 3), length("d", R, 3)]
    found = estimands.length_pairs(pl.DataFrame(rows), T, R)
    names = ["item_id", "length_t", "length_r", "truncated_t", "truncated_r"]
    assert found.select(names).rows() == [("a", 10, 40, False, True), ("b", 0, 5, False, False)]
    assert found["log_ratio"].to_list() == [pytest.approx(math.log(0.25)), None]
    assert estimands.median_ratio(found, resamples=100).estimate[0] == pytest.approx(5 / 22.5)


def test_geometric_mean_ratio_weighs_items_equally():
    rows = [length("a", T, 10, r) for r in (0, 1, 2)] + [length("a", R, 20, r) for r in (0, 1, 2)] + [length("b", T, 10), length("b", R, 80)]
    table = decomposition.length_contrasts(pl.DataFrame(rows), T, R, SETTINGS)
    estimates = {row["estimand"]: row for row in table.iter_rows(named=True)}
    assert estimates["geometric_mean_ratio"]["estimate"] == pytest.approx(0.25)
    assert (estimates["geometric_mean_ratio"]["n_items"], estimates["geometric_mean_ratio"]["n_pairs"]) == (2, 4)
    # Half of the reference's weight lies at 20 (three runs, a third each), half at 80.
    assert estimates["median_ratio"]["estimate"] == pytest.approx(10 / 50)


def test_malformed_runs_leave_length_ratios():
    rows = [length(name, T, 10) for name in "abcdef"] + [length(name, R, 20) for name in "abcdef"]
    broken = [length("g", T, 1, status="malformed"), length("g", R, 20), length("h", T, 10), length("h", R, 500, status="malformed")]
    for table in (decomposition.length_contrasts(pl.DataFrame([*rows, *more]), T, R, SETTINGS) for more in ([], broken)):
        estimates = {row["estimand"]: (row["estimate"], row["n_items"], row["n_pairs"]) for row in table.iter_rows(named=True)}
        assert estimates["geometric_mean_ratio"] == (pytest.approx(0.5), 6, 6)
        assert estimates["median_ratio"] == (0.5, 6, 6)
    only = pl.DataFrame([row for row in broken if row["arm"] == T])
    found = {row["estimand"]: row for row in decomposition.arm_lengths(only, {**SETTINGS, "horizons": [64]}).iter_rows(named=True)}
    assert (found["mean_length"]["estimate"], found["mean_length"]["n_pairs"]) == (10, 1)
    assert found["share_malformed"]["estimate"] == 0.5


def test_lengths_without_any_reasoning_are_no_crash():
    table = decomposition.length_contrasts(pl.DataFrame([length("a", T, 0), length("a", R, 4)]), T, R, SETTINGS)
    assert "geometric_mean_ratio" not in table["estimand"].to_list()
