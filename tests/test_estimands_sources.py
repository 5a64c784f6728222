"""What a contrast rests on: dominance, readout bounds, survivor bounds, equal-token split; by hand, as identities, and against known truths."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from midtrace import decomposition, estimands, simulation
from midtrace.decomposition import contrasts, sources
from midtrace.outcomes import outcomes

B = 8


def outcome_rows(pairs):
    """Outcomes of pairs (item, replicate, complete_t, complete_r, reading -> (t, r)) at horizon 8."""
    rows = []
    for item, replicate, *complete, readings in pairs:
        for readout, values in readings.items():
            for arm, done, value in zip("tr", complete, values, strict=True):
                rows.append(
                    {
                        "model": "m",
                        "benchmark": "toy",
                        "item_id": item,
                        "arm": arm,
                        "replicate": replicate,
                        "horizon": B,
                        "complete": done,
                        "readout": readout,
                        "context_arm": "c" if readout.startswith("symmetric") else arm,
                        "correct": bool(value),
                    }
                )
    return pl.DataFrame(rows)


def ends(pairs):
    """Traces with final answers: (item, replicate) -> (t, r)."""
    return pl.DataFrame(
        [
            {"item_id": item, "replicate": replicate, "arm": arm, "correct": bool(value)}
            for (item, replicate), values in pairs.items()
            for arm, value in zip("tr", values, strict=True)
        ]
    )


def one(frame, **where):
    for column, value in where.items():
        frame = frame.filter(pl.col(column).eq_missing(pl.lit(value)))
    assert len(frame) == 1, where
    return frame.row(0, named=True)


# A: one run pair where only t is complete, read differently by each readout; another where both think. B: only r is complete. C: both complete.
PAIRS = [
    ("A", 0, True, False, {"terminal": (1, 0), "symmetric": (1, 1), "terminal_continuation": (1, 0)}),
    ("A", 1, False, False, {"terminal": (1, 0), "symmetric": (0, 0), "terminal_continuation": (1, 1)}),
    ("B", 0, False, True, {"terminal": (0, 0), "symmetric": (1, 0), "terminal_continuation": (0, 0)}),
    ("C", 0, True, True, {"terminal": (1, 0), "symmetric": (1, 0), "terminal_continuation": (1, 0)}),
]
FINAL = {("A", 0): (1, 1), ("A", 1): (1, 1), ("B", 0): (1, 0), ("C", 0): (1, 0)}


@pytest.fixture(scope="module")
def by_hand():
    pairs = estimands.pairs(outcome_rows(PAIRS), "t", "r", "c")
    return pairs, estimands.reading_pairs(pairs, ends(FINAL), "t", "r")


def values(terms, **where):
    for column, value in where.items():
        terms = terms.filter(pl.col(column).eq_missing(pl.lit(value)))
    return terms["numerator"].sum() / terms["denominator"].sum()


def test_readings_replace_the_unfinished_side_only(by_hand):
    terms = estimands.reading_terms(by_hand[1])
    # Items weigh a third each; A's pairs half of that. Both-active and both-complete pairs keep Y: A's second pair 1, C's 1.
    kept = (1 / 2 + 1) / 3
    one_sided = {  # contribution of A's first pair (t complete), of B's (r complete)
        "probe_own": (1 / 6, 0),
        "probe_common": (0, 1 / 3),
        "continuation_own": (1 / 6, 0),
        "any_right": (0, 1 / 3),
        "all_right": (1 / 6, 0),
        "lowest": (0, 0),
        "highest": (1 / 6, 1 / 3),
        "final": (0, 1 / 3),
    }
    assert set(terms["reading"]) == set(one_sided)
    for reading, (first, second) in one_sided.items():
        assert values(terms, estimand="contribution", reading=reading, termination="treatment_complete") == pytest.approx(first, abs=1e-12)
        assert values(terms, estimand="contribution", reading=reading, termination="reference_complete") == pytest.approx(second, abs=1e-12)
        assert values(terms, estimand="contrast", reading=reading) == pytest.approx(kept + first + second, abs=1e-12)


def test_a_one_sided_pair_that_lacks_a_reading_is_left_out_under_all():
    pairs = [*PAIRS, ("D", 0, True, False, {"terminal": (1, 0), "symmetric": (1, 0)})]
    found = estimands.reading_pairs(estimands.pairs(outcome_rows(pairs), "t", "r", "c"), ends({**FINAL, ("D", 0): (1, 0)}), "t", "r")
    assert set(found["item_id"]) == {"A", "B", "C"}
    # Without any continuation there is no such reading, and the pair counts.
    probed = [(*pair[:4], {name: pair[4][name] for name in ("terminal", "symmetric")}) for pair in pairs]
    found = estimands.reading_pairs(estimands.pairs(outcome_rows(probed), "t", "r", "c"), ends({**FINAL, ("D", 0): (1, 0)}), "t", "r")
    assert set(found["item_id"]) == {"A", "B", "C", "D"}
    assert "continuation_own" not in set(found["reading"])


def test_free_form_answers_are_read_by_continuation():
    pairs = [
        ("A", 0, True, False, {"terminal_continuation": (1, 0), "symmetric_continuation": (1, 1)}),
        ("B", 0, False, False, {"terminal_continuation": (1, 0), "symmetric_continuation": (0, 0)}),
    ]
    frame = outcome_rows(pairs).with_columns(pl.col("readout").cast(pl.String))
    found = estimands.reading_pairs(estimands.pairs(frame, "t", "r"), ends({("A", 0): (1, 0), ("B", 0): (0, 0)}), "t", "r")
    assert set(found["reading"]) == {"continuation_own", "continuation_common", *estimands.COMBINED}
    terms = estimands.reading_terms(found)
    assert values(terms, estimand="contrast", reading="lowest") == 0.5
    assert values(terms, estimand="contrast", reading="highest") == 1.0


def test_tipping_point_by_hand(by_hand):
    means = estimands.tipping_means(by_hand[1]).filter(pl.col("reading") == "probe_own")
    sums = np.array([*means.select("contrast", "one_sided", "lowering", "raising").sum().row(0), len(means)])
    # Delta = 1/2 + 1/6. One-sided pairs: 1/6 + 1/3. Read the other way, A's (wrong) and B's (wrong) would lower and raise it.
    share, reach = estimands.tipping(sums)
    assert share == pytest.approx((2 / 3) / (1 / 2))
    assert reach == pytest.approx((1 / 6) / (1 / 2))
    assert estimands.tipping(np.array([-0.5, 1.0, 0.2, 0.7, 2]))[1] == pytest.approx(0.7), "a negative contrast is raised"
    assert np.isnan(estimands.tipping(np.array([0.5, 0.0, 0.0, 0.0, 1]))).all()


def test_trimming_bounds_by_hand():
    # t: 40 of 100 active, 30 of them right. r: 80 active, 44 right. Half of r's are trimmed.
    found = estimands.trimmed(np.array([40, 80, 30, 44.0]))
    assert found == pytest.approx([30 / 40 - 1, 30 / 40 - 4 / 40])
    # The other arm is trimmed where it has more active runs.
    assert estimands.trimmed(np.array([80, 40, 44, 30.0])) == pytest.approx([4 / 40 - 30 / 40, 1 - 30 / 40])
    # Equally many: nothing to trim, the bounds meet. None: undefined.
    assert estimands.trimmed(np.array([50, 50, 20, 10.0])) == pytest.approx([0.2, 0.2])
    assert np.isnan(estimands.trimmed(np.array([0, 50, 0, 10.0]))).all()


def test_standardised_contrast_weighs_strata_as_among_all_items():
    # Stratum 0: half of the items, both-active contrast 0.1 from few pairs; stratum 1: 0.5 from many; stratum 2: none active.
    sums = np.array([[0.1, 1, 5], [2.0, 4, 3], [0, 0, 2.0]])
    contrast, items = estimands.standardised(sums)
    assert contrast == pytest.approx((5 * 0.1 + 3 * 0.5) / 8)
    assert items == pytest.approx(0.8)
    assert np.isnan(estimands.standardised(np.zeros((2, 3)))[0])


def test_items_fall_into_strata_by_the_mean_length_of_their_reference_runs():
    runs = pl.DataFrame(
        {
            "item_id": ["A", "A", "B", "C", "C", "D", "E"],
            "n_reasoning": [10, 30, 40, 30, 90, 80, 7],
            "status": ["terminated"] * 4 + ["truncated", "terminated", "malformed"],
        }
    )
    edges = estimands.quantile_edges(runs, 2)
    assert edges == [40.0], "means 20, 40, 60, 80; a malformed run has no length"
    assert dict(estimands.length_strata(runs, edges).iter_rows()) == {"A": 0, "B": 0, "C": 1, "D": 1}
    assert estimands.quantile_edges(runs, 1) == []
    assert estimands.quantile_edges(runs.with_columns(n_reasoning=5), 4) == [], "no edge where all lengths are one"
    assert sources.stratum_names([40.0, 52.5]) == ["up to 40", "over 40 to 52.5", "over 52.5"]
    assert sources.stratum_names([]) == ["all lengths"]


def test_split_by_hand_and_without_a_matched_reading():
    symmetric = [(*pair[:4], {"symmetric": pair[4]["symmetric"]}) for pair in PAIRS]
    pairs = estimands.pairs(outcome_rows(symmetric), "t", "r", "c")
    matched = pl.DataFrame({"item_id": ["A", "B", "C"], "replicate": [0, 0, 0], "correct_r": [0.0, 0.0, 1.0]})
    found = estimands.split_pairs(pairs, matched).sort("item_id", "replicate")
    # A, 0: at L_t the reference was wrong, at B right. B: t is active, all at equal length. C: right at L_t, wrong at B.
    assert found["equal"].to_list() == [1.0, 0.0, 1.0, 0.0]
    assert found["further"].to_list() == [-1.0, 0.0, 0.0, 1.0]
    terms = estimands.split_terms(found)
    assert values(terms, estimand="equal_tokens") == pytest.approx((0.5 + 1 + 0) / 3)
    assert values(terms, estimand="further_tokens_finished") == pytest.approx((-0.5 + 1) / 1.5), "A's finished half and C"
    left = estimands.split_pairs(pairs, matched.filter(pl.col("item_id") != "C"))
    assert set(left["item_id"]) == {"A", "B"}


def test_a_contrast_of_zero_but_for_rounding_has_no_share():
    third = np.array([1 / 3, -1 / 3, 1 / 7, -1 / 7, 0.1, 0.2, -0.3])
    assert third.sum() != 0, "rounding"
    assert np.isnan(estimands.dominance(np.array([third.sum(), 0.2, 0.1, 7.0]))[3])


def test_one_sided_test_and_intersection_union():
    sample = np.array([0.5, 0.1, 0.3, -0.1, 0.2])
    assert estimands.positive_p(sample) == pytest.approx(stats.ttest_1samp(sample, 0, alternative="greater").pvalue)
    assert estimands.positive_p(np.zeros(4)) == 1
    assert math.isnan(estimands.positive_p(np.ones(4))) and math.isnan(estimands.positive_p(np.ones(1)))
    assert estimands.intersection_union([0.001, 0.2, 0.03]) == 0.2
    assert math.isnan(estimands.intersection_union([0.001, math.nan]))
    with pytest.raises(ValueError, match="no test"):
        estimands.intersection_union([])


HORIZONS = [64, 192, 512]


def simulated(design, n_items, replicates=2, seed=1):
    frames = simulation.simulate(design, n_items, replicates, HORIZONS, seed)
    stages = ("item_tables", "traces", "cuts", "readouts", "continuations")
    return {**frames, "outcomes": outcomes(*(frames[name] for name in stages), contexts=simulation.CONTEXTS)}


def decomposed(design, n_items, resamples=200, **inference):
    return decomposition.decompose(simulated(design, n_items), simulation.settings(HORIZONS, resamples=resamples, **inference))


CLAIM = {"horizon": 192, "comparisons": [{"treatment": "t", "reference": "r"}]}


@pytest.fixture(scope="module")
def mixed():
    return decomposed(simulation.MIXED, 80, dominance=CLAIM)


def test_the_parts_of_the_split_add_up_to_the_contrast(mixed):
    for horizon in HORIZONS:
        part = {name: one(mixed["split"], estimand=name, horizon=horizon)["estimate"] for name in ("contrast", "equal_tokens", "further_tokens")}
        delta = one(mixed["policy"], estimand="contrast", horizon=horizon, readout="symmetric")["estimate"]
        assert part["equal_tokens"] + part["further_tokens"] == pytest.approx(delta, abs=1e-12)
        assert part["contrast"] == pytest.approx(delta, abs=1e-12)


def test_the_share_times_the_contrast_is_the_contribution(mixed):
    for horizon in HORIZONS:
        for readout in ("terminal", "symmetric"):
            row = {name: one(mixed["dominance"], estimand=name, horizon=horizon, readout=readout) for name in estimands.DOMINANCE}
            strata = mixed["strata"].filter(pl.col("horizon") == horizon, pl.col("readout") == readout)
            contribution = {name: one(strata, termination=name)["estimate"] for name in ("treatment_complete", "both_active")}
            assert row["contrast"]["estimate"] == one(mixed["policy"], estimand="contrast", horizon=horizon, readout=readout)["estimate"]
            assert row["finishing_share"]["estimate"] * row["contrast"]["estimate"] == pytest.approx(contribution["treatment_complete"], abs=1e-12)
            assert row["lead"]["estimate"] == pytest.approx(contribution["treatment_complete"] - contribution["both_active"], abs=1e-12)
            assert (row["finishing"]["ci_low"], row["finishing"]["ci_high"]) == pytest.approx(
                tuple(one(strata, termination="treatment_complete")[limit] for limit in ("ci_low", "ci_high"))
            ), "the very resamples of the strata table"


def test_bounds_are_ordered_and_hold_every_reading(mixed):
    table = mixed["bounds"]
    for horizon in HORIZONS:
        contrast = {row["reading"]: row for row in table.filter(pl.col("estimand") == "contrast", pl.col("horizon") == horizon).iter_rows(named=True)}
        measured = [contrast[name]["estimate"] for name in ("probe_own", "probe_common")]
        assert contrast["lowest"]["estimate"] <= min(measured) + 1e-12
        assert contrast["highest"]["estimate"] >= max(measured) - 1e-12
        assert contrast["probe_own"]["estimate"] == pytest.approx(
            one(mixed["policy"], estimand="contrast", horizon=horizon, readout="terminal")["estimate"], abs=1e-12
        ), "the reading that Y uses"
    # At 512 tokens all runs are complete: nothing is read, and all readings agree.
    assert table.filter(pl.col("estimand") == "contrast", pl.col("horizon") == 512)["estimate"].n_unique() == 1
    assert one(table, estimand="tipping_share", horizon=512, reading="probe_own")["estimate"] is None


def test_trimming_bounds_hold_the_contrast_of_monotone_pairs(mixed):
    for horizon in (64, 192):
        found = {
            row["estimand"]: row["estimate"]
            for row in mixed["survivors"].filter(pl.col("horizon") == horizon, pl.col("stratum").is_null()).iter_rows(named=True)
        }
        assert found["trimmed_lower"] - 1e-12 <= found["both_active_contrast"] <= found["trimmed_upper"] + 1e-12
        active = one(mixed["policy"], estimand="both_active_contrast", horizon=horizon, readout="symmetric")
        again = one(mixed["survivors"], estimand="both_active_contrast", horizon=horizon)
        assert [again[c] for c in ("estimate", "ci_low", "ci_high", "n_items", "n_pairs")] == [
            active[c] for c in ("estimate", "ci_low", "ci_high", "n_items", "n_pairs")
        ]


def test_the_standardised_contrast_is_the_weighted_mean_of_its_strata(mixed):
    for horizon in (64, 192):
        rows = mixed["survivors"].filter(pl.col("horizon") == horizon)
        strata = rows.filter(pl.col("estimand") == "stratum_contrast", pl.col("estimate").is_not_null())
        # Four groups of 20 of the 80 items.
        assert one(rows, estimand="standardised_contrast")["estimate"] == pytest.approx(strata["estimate"].mean(), abs=1e-12)
        assert one(rows, estimand="standardised_items")["estimate"] == pytest.approx(len(strata) / 4, abs=1e-12)


def test_a_share_of_a_contrast_that_may_be_zero_has_no_limits():
    table = decomposed(simulation.NULL, 60)["dominance"]
    row = one(table, estimand="finishing_share", horizon=192, readout="symmetric")
    assert row["estimate"] is not None and row["ci_low"] is None and row["method"].startswith("no limits")
    contrast = one(table, estimand="contrast", horizon=192, readout="symmetric")
    assert contrast["ci_low"] <= 0 <= contrast["ci_high"]


def test_a_claim_about_several_comparisons_holds_only_if_each_does(mixed):
    tests = mixed["dominance"].filter(pl.col("horizon") == 192, pl.col("readout") == "terminal", pl.col("estimand").is_in(["finishing", "lead"]))
    claim = one(mixed["dominance"], estimand="dominant_in_all_p", readout="terminal")
    assert claim["p"] == claim["estimate"] == tests["p"].max()
    assert claim["treatment"] is None and claim["horizon"] == 192
    absent = {**CLAIM, "comparisons": [*CLAIM["comparisons"], {"treatment": "x", "reference": "r"}]}
    table = mixed["dominance"].filter(pl.col("estimand") != "dominant_in_all_p")
    untested = one(sources.claimed(table, simulation.settings(HORIZONS, dominance=absent)), estimand="dominant_in_all_p", readout="terminal")
    assert untested["p"] is None and untested["method"].endswith("of which 2 could be made")
    assert sources.claimed(table, simulation.settings(HORIZONS)).equals(table)


@pytest.mark.parametrize(
    ("design", "places"),
    [
        (simulation.MIXED, ("finishing", "finishing_share", "tipping_share", "trimmed_lower", "trimmed_upper", "equal_tokens", "further_tokens")),
        (
            simulation.Design(ratio=0.6, known_t=0.3, known_r=0.3, bias_policy=0.6),
            ("finishing", "lead", "finishing_any_right", "finishing_all_right"),
        ),
        (simulation.Design(ratio=0.6, known_t=0.4, known_r=1.0, prompt=0.3), ("contrast_own", "contrast_common", "finishing", "lead")),
    ],
    ids=["mixed", "biased", "prompt"],
)
def test_large_studies_find_the_known_truth(design, places):
    found, truth = decomposed(design, 3_000, resamples=100), design.sources(192)
    where = {
        "contrast_own": ("policy", {"estimand": "contrast", "readout": "terminal"}),
        "contrast_common": ("policy", {"estimand": "contrast", "readout": "symmetric"}),
        **{name: ("dominance", {"estimand": name, "readout": "terminal"}) for name in ("finishing", "lead", "finishing_share")},
        **{
            f"finishing_{name}": ("bounds", {"estimand": "contribution", "reading": name, "termination": "treatment_complete"})
            for name in ("any_right", "all_right")
        },
        "tipping_share": ("bounds", {"estimand": "tipping_share", "reading": "probe_own"}),
        **{name: ("survivors", {"estimand": name}) for name in ("trimmed_lower", "trimmed_upper")},
        **{name: ("split", {"estimand": name}) for name in ("equal_tokens", "further_tokens")},
    }
    for name in places:
        table, row = where[name]
        measured = one(found[table], **row, horizon=192)
        error = (measured["ci_high"] - measured["ci_low"]) / (2 * 1.96)
        assert abs(measured["estimate"] - truth[name]) < 4 * error, name
        assert error < 0.04, name


def test_bounds_hold_what_a_biased_readout_hides():
    biased = simulation.Design(ratio=0.6, known_t=0.3, known_r=0.3, bias_policy=0.6)
    found = decomposed(biased, 2_000, resamples=100)["bounds"]
    unbiased = biased.truth(192)
    assert sum(unbiased.values()) == 0, "no difference in what the arms know"
    low, read, high = (one(found, estimand="contrast", horizon=192, reading=name) for name in ("lowest", "probe_own", "highest"))
    assert read["ci_low"] > 0.03, "the biased reading makes a difference"
    assert low["ci_low"] <= 0 <= high["ci_high"]


def test_a_biased_readout_moves_the_tipping_point_and_not_the_context_gap():
    # The probe misses the same in both contexts.
    fair, biased = (decomposed(replace(simulation.NULL, bias_policy=bias, bias_common=bias), 1_500, resamples=100) for bias in (0.0, 0.6))
    tipping = [one(found["bounds"], estimand="tipping_share", horizon=192, reading="probe_own") for found in (fair, biased)]
    assert tipping[1]["ci_low"] > tipping[0]["ci_high"]
    for found in (fair, biased):
        gap = one(found["policy"], estimand="context_gap", horizon=192)
        assert gap["ci_low"] < 0 < gap["ci_high"] and abs(gap["estimate"]) < 0.03


def test_a_prompt_effect_moves_the_context_gap_and_not_the_readout_gap():
    design = simulation.Design(ratio=0.6, known_t=0.4, known_r=1.0, prompt=0.3)
    found, truth = decomposed(design, 1_500, resamples=100), design.sources(192)
    gap = one(found["policy"], estimand="context_gap", horizon=192)
    assert gap["ci_low"] > 0.05
    assert gap["estimate"] == pytest.approx(truth["contrast_own"] - truth["contrast_common"], abs=0.03)
    assert one(found["policy"], estimand="readout_gap", horizon=192)["estimate"] == 0


draws = st.lists(st.integers(0, 1), min_size=6, max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), draws), min_size=1, max_size=12, unique_by=lambda row: row[:2]))
def test_identities_on_random_studies(rows):
    pairs = []
    for item, replicate, (done_t, done_r, own_t, own_r, common_t, common_r) in rows:
        readings = {"terminal": (own_t, own_r), "symmetric": (common_t, common_r)}
        pairs.append((f"i{item}", replicate, bool(done_t), bool(done_r), readings))
    frame = estimands.pairs(outcome_rows(pairs), "t", "r", "c")
    final = {(pair[0], pair[1]): pair[4]["terminal"] for pair in pairs}
    readings = estimands.reading_terms(estimands.reading_pairs(frame, ends(final), "t", "r"))
    contrast = {name: values(readings, estimand="contrast", reading=name) for name in readings["reading"].unique()}
    assert contrast["lowest"] <= min(contrast["any_right"], contrast["all_right"]) + 1e-12
    assert contrast["highest"] >= max(contrast["any_right"], contrast["all_right"]) - 1e-12
    for name in ("probe_own", "probe_common", "final"):
        assert contrast["lowest"] - 1e-12 <= contrast[name] <= contrast["highest"] + 1e-12
    strata = estimands.strata_terms(frame)["contribution"]
    means = estimands.dominance_means(frame)
    for readout in ("terminal", "symmetric"):
        own = means.filter(pl.col("readout") == readout)
        delta, finishing, lead, share = estimands.dominance(np.array([*own.select("contrast", "finishing", "active").sum().row(0), len(own)]))
        parts = {name: values(strata, readout=readout, termination=name) for name in estimands.TERMINATION}
        assert delta == pytest.approx(sum(parts.values()), abs=1e-12)
        assert finishing == pytest.approx(parts["treatment_complete"], abs=1e-12)
        assert lead == pytest.approx(parts["treatment_complete"] - parts["both_active"], abs=1e-12)
        assert (np.isnan(share) and delta == 0) or share * delta == pytest.approx(finishing, abs=1e-12)
    # Whatever the reference knew at L_t, the two parts add up.
    matched = pl.DataFrame([{"item_id": p[0], "replicate": p[1], "correct_r": float((p[1] + len(p[0])) % 2)} for p in pairs])
    split = estimands.split_terms(estimands.split_pairs(frame.filter(pl.col("readout") == "symmetric"), matched))
    whole = values(split, estimand="contrast")
    assert values(split, estimand="equal_tokens") + values(split, estimand="further_tokens") == pytest.approx(whole, abs=1e-12)
    assert whole == pytest.approx(values(estimands.policy_terms(frame), estimand="contrast", readout="symmetric"), abs=1e-12)


def test_split_of_the_simulated_study_uses_the_stored_matched_cuts():
    frames = simulated(simulation.MIXED, 30)
    comparison = simulation.settings(HORIZONS)["comparisons"][0]
    matched = contrasts.matched_reads(frames, frames["traces"], comparison)
    pairs = estimands.pairs(frames["outcomes"].filter(pl.col("horizon") == 192, pl.col("readout") == "symmetric"), "t", "r", "c")
    found = estimands.split_pairs(pairs, matched)
    assert len(found) == len(pairs) == 60, "every complete treatment has its matched reading"
    assert found.filter(~pl.col("finished"))["further"].to_list() == [0.0] * found.filter(~pl.col("finished")).height
