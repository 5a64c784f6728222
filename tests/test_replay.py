"""Replay: exact prefixes and where traces are cut."""

import math
from fractions import Fraction

import pytest
from helpers.builders import trace
from hypothesis import example, given
from hypothesis import strategies as st

from midtrace import replay, tables
from midtrace.errors import InputError

IDS = st.lists(st.integers(0, 151_668), max_size=30)


@given(IDS, IDS, st.integers(0, 30), st.integers(0, 30))
def test_prefix_ids_are_the_stored_ids(prompt, output, start, n):
    start = min(start, len(output))
    if n > len(output) - start:
        with pytest.raises(ValueError, match=f"cannot keep {n} reasoning tokens from {start} on of {len(output)} output tokens"):
            replay.prefix_ids(prompt, output, start, n)
    else:
        assert replay.prefix_ids(prompt, output, start, n) == (prompt + output)[: len(prompt) + start + n]


def test_prefix_of_no_reasoning_keeps_the_opening_marker():
    assert replay.prefix_ids([1, 2], [512, 7, 8], 1, 0) == [1, 2, 512]
    with pytest.raises(ValueError, match="cannot keep -1"):
        replay.prefix_ids([1], [2, 3], 0, -1)


@pytest.mark.parametrize(
    ("status", "length", "horizon", "complete"),
    [
        ("terminated", 10, 10, True),
        ("terminated", 10, 11, True),
        ("terminated", 10, 9, False),
        ("terminated", 0, 0, True),
        ("truncated", 10, 10, False),
        ("truncated", 10, 99, False),
        ("malformed", 10, 99, False),
    ],
)
def test_complete_iff_terminated_and_not_longer(status, length, horizon, complete):
    assert replay.is_complete(status, length, horizon) is complete


def cuts(horizons=(), fractions=(), matched=None, **values) -> dict[str, dict]:
    return {row["cut_id"]: row for row in replay.cuts_of(trace(**values), horizons, fractions, matched or {})}


def test_horizon_cuts_by_hand():
    found = cuts(horizons=[0, 4, 10, 64])
    kept = [(row["horizon"], row["n_tokens"], row["complete"]) for row in found.values()]
    assert kept == [(0, 0, False), (4, 4, False), (10, 10, True), (64, 10, True)]
    assert set(found) == {"horizon:0", "horizon:4", "horizon:10", "horizon:64"}
    truncated = cuts(horizons=[4, 64], status="truncated")
    assert [(row["n_tokens"], row["complete"]) for row in truncated.values()] == [(4, False), (10, False)]


def test_fraction_cuts_by_hand():
    found = cuts(fractions=[0.01, 0.3, 0.7, 0.75, 1.0])
    assert {key: (row["n_tokens"], row["complete"]) for key, row in found.items()} == {
        "fraction:0.01": (1, False),
        "fraction:0.3": (3, False),
        "fraction:0.7": (7, False),
        "fraction:0.75": (8, False),
        "fraction:1": (10, True),
    }
    assert not cuts(fractions=[1.0], status="truncated")["fraction:1"]["complete"]


# Whole products are the hard ones: 0.55 * 100 is 55.00000000000001 in floating point.
@given(st.integers(1, 40_000) | st.integers(1, 400).map(lambda k: 100 * k), st.integers(1, 100))
@example(100, 55)
@example(100, 7)
@example(10, 70)
def test_fractions_take_the_ceiling_of_the_exact_product(length, percent):
    row = trace(n_reasoning=length, output_ids=[512, *[7] * length, 513])
    (found,) = replay.cuts_of(row, [], [percent / 100], {})
    assert found["n_tokens"] == max(1, math.ceil(Fraction(percent, 100) * length))


def test_a_trace_without_reasoning_has_no_fraction_cuts():
    found = cuts(horizons=[0, 5], fractions=[0.5, 1.0], n_reasoning=0, output_ids=[512, 513, 2])
    assert {key: row["n_tokens"] for key, row in found.items()} == {"horizon:0": 0, "horizon:5": 0}


@pytest.mark.parametrize(
    ("drift_at", "drifts"),
    [(None, [False, False]), (0, [True, True]), (2, [True, True]), (3, [False, True]), (10, [False, True]), (11, [False, False])],
)
def test_drift_counts_from_the_first_output_token(drift_at, drifts):
    # The opening marker is output token 0, so the prefix of 2 reasoning tokens ends before index 3.
    assert [row["drift"] for row in cuts(horizons=[2, 10], drift_at=drift_at).values()] == drifts


# The stage

LOW, HIGH = "low", "high"


def settings(own: str, other: str) -> dict:
    role = "reference" if own == HIGH else "treatment"
    return {
        "traces": {"arm": {"name": own}},
        "partners": {other: {"role": role, "traces": {"arm": {"name": other}}}},
        "horizons": [0, 4],
        "fractions": [0.5],
    }


@pytest.fixture
def cut(tmp_path):
    """Cuts of the arms ``low`` (treatment) and ``high`` (reference), from lists of traces."""

    def make(low: list[dict], high: list[dict]) -> tuple[dict, dict]:
        for arm, rows in ((LOW, low), (HIGH, high)):
            frame = tables.frame_of([{key: row[key] for key in tables.RawTraces.column_names()} for row in rows], tables.RawTraces)
            meta = tables.metadata("traces", "toy", {"arm": {"name": arm}}, tokenizer="t", engine="fake", dtype="float64")
            tables.write(frame, tmp_path / f"{arm}.parquet", tables.RawTraces, meta)
        found = []
        for own, other in ((LOW, HIGH), (HIGH, LOW)):
            output = tmp_path / f"{own}_cuts.parquet"
            replay.run(tmp_path / f"{own}.parquet", {other: tmp_path / f"{other}.parquet"}, output, "toy", settings(own, other))
            frame = tables.read(output, tables.Cuts, settings(own, other))
            found.append({(row["trace_id"].split("/")[2], row["cut_id"]): row for row in frame.iter_rows(named=True)})
        return found[0], found[1]

    return make


def test_matched_cuts_of_both_roles(cut):
    shorter = {"n_reasoning": 6, "output_ids": [512, *range(20, 26), 513, 2]}
    low, high = cut(
        [trace("toy/1", LOW, **shorter), trace("toy/2", LOW), trace("toy/3", LOW, status="truncated"), trace("toy/4", LOW), trace("toy/6", LOW)],
        [trace("toy/1", HIGH), trace("toy/2", HIGH, **shorter), trace("toy/3", HIGH), trace("toy/4", HIGH, status="truncated"), trace("toy/5", HIGH)],
    )
    matched = "matched:high", "matched:low"
    of = {
        name: [
            tuple(side[name, key][column] for column in ("horizon", "n_tokens", "complete")) for side, key in ((low, matched[0]), (high, matched[1]))
        ]
        for name in ("1", "2", "4")
    }
    assert of["1"] == [(6, 6, True), (6, 6, False)]  # the reference is cut where the treatment ended
    assert of["2"] == [(10, 10, True), (10, 6, True)]  # it had finished by then: its whole block
    assert of["4"] == [(10, 10, True), (10, 10, False)]  # as long but truncated: active
    # No matched cut where the treatment was truncated, or where the partner is missing.
    for item, side, key in (("3", low, matched[0]), ("3", high, matched[1]), ("5", high, matched[1]), ("6", low, matched[0])):
        assert (item, "horizon:4") in side
        assert (item, key) not in side


def test_the_stage_records_where_it_comes_from_and_refuses_foreign_traces(cut, tmp_path):
    cut([trace("toy/1", LOW)], [trace("toy/1", HIGH)])
    meta = tables.read_metadata(tmp_path / "low_cuts.parquet")
    assert (meta["stage"], meta["tokenizer"], meta["engine"], meta["dtype"]) == ("replay", "t", "fake", "float64")
    with pytest.raises(InputError, match=r"high\.parquet: arm\.name: the file was made with 'high', the config says 'low'"):
        replay.run(tmp_path / "high.parquet", {}, tmp_path / "x.parquet", "toy", settings(LOW, HIGH))
    with pytest.raises(InputError, match=r"low\.parquet: arm\.name: the file was made with 'low', the config says 'high'"):
        replay.run(tmp_path / "low.parquet", {HIGH: tmp_path / "low.parquet"}, tmp_path / "x.parquet", "toy", settings(LOW, HIGH))
    assert not (tmp_path / "x.parquet").exists()


def test_format_is_kept_between_kept_tokens_and_not_after_the_last():
    between = [1, 1, 3, 3]  # two tokens of format after the first reasoning token, two after the third
    assert [replay.end_of(2, n, between) for n in range(5)] == [2, 3, 6, 7, 10]
    assert replay.positions(2, 4, between) == [2, 5, 6, 9]
