"""Sentences about what a difference is made of: a verdict stands only where an interval supports it; and the tables that papers print."""

import polars as pl
import pytest

from midtrace import decomposition, simulation
from midtrace.figures import paper_tables
from midtrace.figures.text_tables import write_csv, write_tex
from midtrace.outcomes import outcomes
from midtrace.report import sources


def table(rows):
    """Rows (estimand, readout, estimate, low, high, more) of one comparison at 32 tokens."""
    base = {"model": "m", "benchmark": "b", "treatment": "low", "reference": "high", "horizon": 32, "n_items": 50, "n_pairs": 100}
    names = ("estimand", "readout", "estimate", "ci_low", "ci_high")
    more = {"reading": None, "termination": None, "stratum": None, "p": None}
    return pl.DataFrame(
        [{**base, **more, **dict(zip(names, row, strict=False)), **(row[5] if len(row) > 5 else {})} for row in rows], infer_schema_length=None
    )


@pytest.mark.parametrize(
    ("contrast", "share", "said"),
    [
        ((0.56, 0.46, 0.65), (0.88, 0.77, 1.0), "Under Y earlier completion makes 88% [77, 100] of +56.0 (46.0 to 65.0) points: it is most of it."),
        ((0.29, 0.2, 0.38), (0.49, 0.31, 0.68), "points: that it is most of it is not shown."),
        ((0.29, 0.2, 0.38), (0.2, 0.1, 0.49), "points: it is not most of it."),
        ((0.2, 0.1, 0.3), (1.0, None, None), "earlier completion makes 100% of +20.0 (10.0 to 30.0) points: the same in every resample."),
        ((-0.2, -0.3, -0.1), (0.9, 0.8, 1.0), "Under Y what pairs contribute of which only the treatment has finished makes 90% [80, 100]"),
        ((0.05, -0.01, 0.1), (0.9, None, None), "Under Y there is no clear difference to divide (+5.0 ("),
    ],
)
def test_most_is_said_only_where_the_interval_lies_above_one_half(contrast, share, said):
    rows = table([("contrast", "terminal", *contrast), ("finishing_share", "terminal", *share)])
    assert said in sources.dominance(rows)


def test_outcomes_by_continuation_are_spoken_of_only_where_there_is_no_probe():
    rows = [(name, readout, *values) for readout in ("terminal", "terminal_continuation") for name, values in CLEAR.items()]
    assert sources.dominance(table(rows)).count("under") == 0 and sources.dominance(table(rows)).startswith("Under Y earlier")
    assert sources.dominance(table(rows[2:])).startswith("Under Y by continuation earlier")


CLEAR = {"contrast": (0.5, 0.4, 0.6), "finishing_share": (0.9, 0.8, 1.0)}


def bound_rows(low, high, tipping, final=(0.0, -0.1, 0.1)):
    values = {"lowest": low, "highest": high, "final": final}
    rows = [("contrast", None, *value, {"reading": name}) for name, value in values.items()]
    return table(
        [*rows, ("tipping_share", None, *tipping, {"reading": "probe_own"}), ("tipping_reach", None, 0.5, 0.4, 0.6, {"reading": "probe_own"})]
    )


def test_a_reading_cannot_make_the_difference_only_if_the_outer_limits_agree():
    text = sources.bounds(bound_rows((0.2, 0.1, 0.3), (0.3, 0.2, 0.4), (0.4, 0.2, 0.6)), "low")
    assert "low is ahead whichever reading is taken" in text
    assert "For it to vanish, 40% [20, 60] of the pairs of which one run has finished would have to be misread; 50% [40, 60] of them" in text
    assert "is not shown" in sources.bounds(bound_rows((0.1, -0.01, 0.3), (0.3, 0.2, 0.4), (0.4, 0.2, 0.6)), "low")
    behind = sources.bounds(bound_rows((-0.4, -0.5, -0.3), (-0.3, -0.4, -0.2), (-0.4, -0.6, -0.2)), "low")
    assert "low is behind whichever reading is taken" in behind and "For it to vanish, 40% [20, 60]" in behind
    assert "Even if all pairs" in sources.bounds(bound_rows((0.2, 0.1, 0.3), (0.3, 0.2, 0.4), (1.5, 1.2, 2.0)), "low")
    open_sign = sources.bounds(bound_rows((-0.1, -0.2, 0.0), (0.1, 0.0, 0.2), (0.1, -0.1, 0.3)), "low")
    assert "vanish" not in open_sign


def test_survivors_and_split_are_judged_by_their_limits():
    rows = [
        ("both_active_contrast", "symmetric", 0.2, 0.1, 0.3),
        ("trimmed_lower", "symmetric", 0.1, 0.02, 0.2),
        ("trimmed_upper", "symmetric", 0.3, 0.2, 0.4),
        ("standardised_contrast", "symmetric", 0.25, 0.1, 0.4),
        ("standardised_items", "symmetric", 0.5, 0.4, 0.6),
    ]
    text = sources.survivors(table(rows), 0.95)
    assert "above zero all the same" in text and "for the 50% of items" in text
    rows[1] = ("trimmed_lower", "symmetric", 0.01, -0.02, 0.2)
    assert "a difference apart from selection is not shown" in sources.survivors(table(rows), 0.95)
    parts = [
        ("contrast", "symmetric", 0.1, 0.0, 0.2),
        ("equal_tokens", "symmetric", 0.3, 0.2, 0.4),
        ("further_tokens", "symmetric", -0.2, -0.3, -0.1),
    ]
    assert sources.split(table(parts), "low", "high").endswith("low is ahead at equal length; further tokens make high better.")


def claim_of(settings, p):
    rows = [
        ("contrast", "terminal", 0.56, 0.46, 0.65),
        ("finishing_share", "terminal", 0.88, 0.77, 1.0),
        ("contrast", "terminal", 0.29, 0.2, 0.38, {"treatment": "medium"}),
        ("finishing_share", "terminal", 0.49, 0.31, 0.68, {"treatment": "medium"}),
        ("dominant_in_all_p", "terminal", p, None, None, {"model": None, "benchmark": None, "treatment": None, "reference": None}),
    ]
    return sources.claim(table(rows), settings)


def test_the_declared_claim_names_every_comparison_and_its_test():
    comparisons = [{"treatment": arm, "reference": "high"} for arm in ("low", "medium")]
    inference = {"level": 0.95, "dominance": {"horizon": 32, "comparisons": comparisons}}
    settings = {"models": ["m"], "benchmarks": ["b"], "inference": inference}
    assert claim_of(settings, 0.563) == [
        "Most of the advantage at 32 tokens is earlier completion (under Y): 88% [77, 100] for low against high: shown; 49% [31, 68] for medium "
        "against high: not shown. That it contributes, and more than the pairs that both still think, in all of them: not shown (p = 0.563)."
    ]
    assert "in all of them: shown (p = 0.010)" in claim_of(settings, 0.01)[0]
    assert "not tested" in claim_of(settings, None)[0]
    assert claim_of({**settings, "inference": {**inference, "dominance": None}}, 0.01) == []


@pytest.fixture(scope="module")
def found():
    horizons = [64, 192]
    frames = simulation.simulate(simulation.MIXED, 40, 2, horizons, 3)
    stages = ("item_tables", "traces", "cuts", "readouts", "continuations")
    frames["outcomes"] = outcomes(*(frames[name] for name in stages), contexts=simulation.CONTEXTS)
    tables = decomposition.decompose(frames, simulation.settings(horizons, resamples=200))
    return {name: decomposition.shape(frame, name) for name, frame in tables.items()}


def test_the_tables_of_papers_hold_the_numbers_of_the_decomposition(found, tmp_path):
    made = paper_tables.paper_tables(found)
    strata = made["termination_strata"]
    assert len(strata) == found["policy"].filter(pl.col("estimand") == "contrast").height
    parts = strata.select(pl.sum_horizontal(pl.col("^.*_contribution$")).alias("sum"), "contrast")
    assert (parts["sum"] - parts["contrast"]).abs().max() < 1e-12
    row = strata.filter(pl.col("readout") == "symmetric", pl.col("horizon") == 192).row(0, named=True)
    own = found["strata"].filter(pl.col("readout") == "symmetric", pl.col("horizon") == 192, pl.col("termination") == "treatment_complete")
    assert row["treatment_complete_contribution"] == own["contribution"][0] and row["treatment_complete_ci_high"] == own["ci_high"][0]
    check = made["generated_answer_check"].row(0, named=True)
    assert check["matched_accuracy_treatment"] - check["matched_accuracy_reference"] == pytest.approx(check["matched_contrast"], abs=1e-12)
    blocks = made["completed_block_agreement"]
    assert set(blocks["arm"]) == {"t", "r"} and blocks["agreement"].to_list() == [1.0] * len(blocks), (
        "the simulated probe reads finished runs as they answer"
    )
    for name, frame in made.items():
        write_csv(frame, tmp_path / f"{name}.csv")
        write_tex(frame, tmp_path / f"{name}.tex")
        assert pl.read_csv(tmp_path / f"{name}.csv").height == len(frame) > 0
        assert r"\begin{longtable}" in (tmp_path / f"{name}.tex").read_text()


def test_the_tables_of_papers_are_empty_where_nothing_was_measured(found):
    empty = {name: frame.clear() for name, frame in found.items()}
    made = paper_tables.paper_tables(empty)
    full = paper_tables.paper_tables(found)
    assert all(frame.is_empty() and frame.columns == full[name].columns for name, frame in made.items())
