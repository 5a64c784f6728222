"""Seeds belong to (item, replicate) and to nothing else."""

import inspect

from hypothesis import given
from hypothesis import strategies as st

from midtrace.seeds import continuation_seed, stable_hash, trace_seed


def test_values_are_pinned():
    # A change here would silently give every study other traces.
    assert stable_hash("a", 1) == 4742018630964328543
    assert trace_seed(7, "chains/00000", 0) == 9072487920200378005
    assert continuation_seed(7, "chains/00000", 0, ("resume", "fraction:0.5")) == 4077882645664899044


def test_the_arm_cannot_enter_a_trace_seed():
    assert list(inspect.signature(trace_seed).parameters) == ["base", "item_id", "replicate"]


@given(st.integers(0, 2**31), st.text(min_size=1, max_size=12), st.integers(0, 50))
def test_seeds_are_63_bit_and_differ_by_every_part(base, item_id, replicate):
    seed = trace_seed(base, item_id, replicate)
    assert 0 <= seed < 2**63
    others = {
        trace_seed(base + 1, item_id, replicate),
        trace_seed(base, item_id + "x", replicate),
        trace_seed(base, item_id, replicate + 1),
        continuation_seed(base, item_id, replicate, ("resume", "fraction:0.5")),
        continuation_seed(base, item_id, replicate, ("resume", "fraction:0.7")),
    }
    assert len(others) == 5
    assert seed not in others


def test_parts_are_kept_apart():
    assert stable_hash("a", "bc") != stable_hash("ab", "c")
    assert stable_hash(1, 11) != stable_hash(11, 1)


def test_no_collision_over_a_large_study():
    seeds = {trace_seed(0, f"bench/{item}", replicate) for item in range(2_000) for replicate in range(8)}
    assert len(seeds) == 16_000
