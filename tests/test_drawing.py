"""Draws: what the draw for a smaller n holds, the draw for a larger one holds too; and how strata share them."""

from collections import Counter
from fractions import Fraction
from itertools import islice

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midtrace.loaders.draw import draw, turns

SIZES = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 30), min_size=1)


def frame(sizes: dict[str, int]) -> pl.DataFrame:
    rows = [(f"toy/{stratum}{k}", stratum) for stratum, size in sizes.items() for k in range(size)]
    return pl.DataFrame(rows, schema=["item_id", "stratum"], orient="row")


def quota(sizes: dict[str, int], stratum: str, n: int) -> Fraction:
    return Fraction(n * sizes[stratum], sum(sizes.values()))


def largest_remainders(sizes: dict[str, int], n: int) -> dict[str, int]:
    """By the book: whole quotas first, then one each to the largest remainders."""
    shares = {stratum: int(quota(sizes, stratum, n)) for stratum in sizes}
    rest = sorted(sizes, key=lambda stratum: (shares[stratum] - quota(sizes, stratum, n), stratum))
    for stratum in rest[: n - sum(shares.values())]:
        shares[stratum] += 1
    return shares


@given(SIZES, st.sampled_from([None, "proportional", "equal"]), st.integers(0, 9))
def test_a_larger_draw_begins_with_the_smaller(sizes, strata, seed):
    items = frame(sizes)
    whole = draw(items, None, seed, strata)
    assert sorted(whole["item_id"]) == sorted(items["item_id"])
    for n in range(1, len(items) + 1):
        assert draw(items, n, seed, strata).equals(whole[:n])


@given(SIZES)
def test_equal_strata_differ_by_one_until_they_are_empty(sizes):
    for n in range(sum(sizes.values()) + 1):
        drawn = Counter(islice(turns(sizes, "equal"), n))
        most = max(drawn.values(), default=0)
        assert all(drawn[stratum] >= min(sizes[stratum], most - 1) for stratum in sizes)


@given(SIZES)
def test_proportional_strata_minimise_the_spread_of_their_shares(sizes):
    """Sainte-Laguë by its own test: moving an item between strata never brings their shares (2k - 1 against 2k + 1) into a better order."""
    drawn: Counter[str] = Counter()
    for stratum in turns(sizes, "proportional"):
        drawn[stratum] += 1
        for one in sizes:
            for other in sizes:
                if drawn[other] < sizes[other]:
                    assert Fraction(2 * drawn[one] - 1, sizes[one]) <= Fraction(2 * drawn[other] + 1, sizes[other])
    assert drawn == sizes


def test_the_draw_of_a_third_by_hand():
    # Sizes 6, 3, 1: priorities 1/6, 1/3, 3/6, 5/6, 3/3 and 1/1, so six of ten are 4 (or 3), 2 (or 1), ...
    assert list(islice(turns({"a": 6, "b": 3, "c": 1}, "proportional"), 6)) == ["a", "b", "a", "a", "b", "c"]
    assert list(islice(turns({"b": 3, "a": 6, "c": 1}, "equal"), 8)) == ["a", "b", "c", "a", "b", "a", "b", "a"]


def test_largest_remainders_are_not_stable():
    # The Alabama paradox: with one item more a stratum would lose one. So a draw by largest remainders could not grow.
    sizes = {"a": 6, "b": 6, "c": 2}
    assert largest_remainders(sizes, 10)["c"] == 2 and largest_remainders(sizes, 11)["c"] == 1
    shares = [Counter(islice(turns(sizes, "proportional"), n))["c"] for n in range(15)]
    assert shares == sorted(shares)


@pytest.mark.parametrize("strata", ["proportional", "equal"])
def test_the_order_within_a_stratum_hangs_on_nothing_else(strata):
    sizes = {"a": 20, "b": 10}
    alone = draw(frame(sizes).filter(stratum="a"), None, 3)["item_id"].to_list()
    mixed = draw(frame({"b": 10, "a": 20})[::-1], None, 3, strata).filter(stratum="a")["item_id"].to_list()
    assert mixed == alone


def test_another_seed_is_another_draw():
    items = frame({"a": 50, "b": 50})
    for strata in (None, "proportional", "equal"):
        assert draw(items, 20, 0, strata)["item_id"].to_list() != draw(items, 20, 1, strata)["item_id"].to_list()
