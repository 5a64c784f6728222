"""Every point estimate of the decomposition compared with an oracle that shares no code with it, on studies in which things go wrong."""

import math

import polars as pl
from helpers import oracle, untidy
from helpers.oracle import key
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from midtrace import decomposition, simulation
from midtrace.outcomes import outcomes

LATER = (4,)
LENGTH_STRATA = 4
KEYS = (
    "estimand",
    "horizon",
    "readout",
    "termination",
    "reading",
    "fraction",
    "k",
    "context",
    "context_arm",
    "stratum",
    "replicate",
    "control",
    "position",
)


def decompose(study, choice, **changes):
    """All tables of a study given as rows."""
    everywhere = ["policy", "common"]
    contexts = {"probe": everywhere if choice else [], "continuation": everywhere}
    frames = untidy.frames(study)
    parts = [frames[stage] for stage in ("item_tables", "traces", "cuts", "readouts", "continuations")]
    made = {**frames, "outcomes": outcomes(*parts, untidy.HORIZONS, contexts, untidy.GRID)}
    chosen = simulation.settings(untidy.HORIZONS, resamples=20, sensitivity_resamples=0)
    fixed = {"models": ["m"], "benchmarks": ["b"], "comparisons": [untidy.COMPARISON], "availability": {"horizons": list(untidy.GRID)}}
    found = decomposition.decompose(
        made, {**chosen, **fixed, "validity": {"bins": list(untidy.BINS), "later": list(LATER)}, "probed": ["b"] if choice else [], **changes}
    )
    return {name: decomposition.shape(table, name) for name, table in found.items()}


def estimates(table, columns=KEYS, value="estimate", **where):
    """The estimates of a table by their cells."""
    if table.is_empty():
        return {}
    for column, wanted in where.items():
        table = table.filter(pl.col(column).eq_missing(pl.lit(wanted)))
    found = [(key(**{name: row[name] for name in columns if name in row}), row[value]) for row in table.iter_rows(named=True)]
    assert len({cells for cells, _ in found}) == len(found), "two rows of one estimate"
    return dict(found)


def assert_same(measured, expected):
    """The same estimates, to 1e-12; an estimate that one side has and the other has not is a difference."""
    measured, expected = ({cells: value for cells, value in side.items() if value is not None} for side in (measured, expected))
    assert {tuple(sorted(cells, key=str)) for cells in measured} == {tuple(sorted(cells, key=str)) for cells in expected}
    for cells, value in expected.items():
        assert measured[cells] == value or math.isclose(measured[cells], value, rel_tol=1e-12, abs_tol=1e-12), (sorted(cells, key=str), value)


def check(rows, choice):
    """Compare all tables of a study with the oracle."""
    study, tables = oracle.Study(rows, choice), decompose(rows, choice)
    comparison, both = untidy.COMPARISON, {"treatment": "t", "reference": "r"}
    assert_same(estimates(tables["policy"], **both), oracle.policy(study, comparison, untidy.HORIZONS))
    strata = oracle.strata(study, comparison, untidy.HORIZONS)
    for value in ("share", "difference", "contribution"):
        measured = estimates(tables["strata"], ("horizon", "readout", "termination"), value)
        assert_same(measured, {cells: values[value] for cells, values in strata.items()})
    matched = tables["matched"].filter(pl.col("estimand") != "matched_equivalence_p") if len(tables["matched"]) else tables["matched"]
    assert_same(estimates(matched), oracle.matched(study, comparison))
    lengths = tables["lengths"]
    assert_same(estimates(lengths, **both), oracle.length_contrasts(study, comparison))
    assert_same(estimates(tables["scores"]), oracle.scores(study, comparison, untidy.HORIZONS) if choice else {})
    read_at = sorted({*untidy.HORIZONS, *untidy.GRID})
    assert_same(estimates(tables["availability"]), oracle.availability(study, comparison, untidy.GRID, read_at) if choice else {})
    assert_same(estimates(tables["falsifier"]), oracle.falsifier(study, comparison, untidy.BINS))
    assert_same(estimates(tables["controls"]), oracle.controls(study))
    assert_same(estimates(tables["dominance"]), oracle.dominance(study, comparison, untidy.HORIZONS))
    assert_same(estimates(tables["bounds"]), oracle.bounds(study, comparison, untidy.HORIZONS))
    assert_same(estimates(tables["survivors"]), oracle.survivors(study, comparison, untidy.HORIZONS, LENGTH_STRATA))
    assert_same(estimates(tables["split"]), oracle.split(study, comparison, untidy.HORIZONS))
    for arm in untidy.ARMS:
        alone = {"treatment": arm, "reference": None}
        agreed, equal = {}, {}
        for cells, rows in oracle.readings(study, arm, untidy.HORIZONS, LATER).items():
            values = oracle.agreement(rows)
            agreed |= {cells | key(estimand=name): value for name, value in values.items()}
            if "k" not in dict(cells):  # validity has no later looks
                reading = dict(cells)["reading"]
                equal[cells - key(reading=reading) | key(estimand=reading)] = values["agreement"]
        assert_same(estimates(tables["agreement"], treatment=arm), agreed)
        assert_same(estimates(tables["validity"], treatment=arm), equal)
        assert_same(estimates(lengths, **alone), oracle.arm_lengths(study, arm, untidy.HORIZONS))
        assert_same(estimates(tables["retokenisation"], treatment=arm), oracle.retokenisation(study, arm, sorted({*untidy.HORIZONS, *untidy.GRID})))
        assert_same(estimates(tables["replicates"], treatment=arm), oracle.replicates(study, arm))


# Slow to shrink and of little use smaller: a failing study is small as it is.
@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    seed=st.integers(0, 2**32 - 1),
    choice=st.booleans(),
    items=st.integers(1, 7),
    replicates=st.integers(1, 4),
    text=st.sampled_from([0.0, 0.2]),
)
def test_random_studies(seed, choice, items, replicates, text):
    check(untidy.rows(seed, choice, items, replicates, text), choice)


def test_the_random_studies_hold_what_goes_wrong():
    rows = untidy.rows(1, items=40, text=0.2)
    traces = rows["traces"]
    assert {trace["status"] for trace in traces} == {"terminated", "truncated", "malformed"}
    assert any(trace["n_reasoning"] == 0 for trace in traces)
    assert any(not trace["token_exact"] for trace in traces)
    assert any(trace["format_after"] for trace in traces), "reasoning in several messages"
    assert len({(trace["item_id"], trace["arm"]) for trace in traces}) * 3 > len(traces), "some runs are missing"
    assert any(trace["status"] == "terminated" and trace["answer"] is None for trace in traces), "an answer that was not read"
    assert any(math.isinf(read["log_loss"]) for read in rows["readouts"])
    lengths = [trace["n_reasoning"] for trace in traces if trace["arm"] == "t"]
    assert len(set(lengths)) < len(lengths) / 2, "lengths tie"
