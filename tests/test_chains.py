"""Chains of modular arithmetic."""

import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from midtrace import chains
from midtrace.chains import Chain, draw_chain, draw_held_out, draw_step, is_held_out

SEEDS = st.integers(0, 2**32)


def test_by_hand():
    chain = Chain(7, 3, (("plus", 5), ("times", 3), ("minus", 6)))
    assert chain.answer == ((3 + 5) * 3 - 6) % 7
    assert chain.question == "Start at 3. Then plus 5, times 3, minus 6. Work modulo 7."
    assert chain.labels == list("ABCDEFG")
    assert chain.revised == Chain(7, 3, (("plus", 5), ("times", 3)))
    assert chain.update == "Update: after the last step, also minus 6."


@given(SEEDS, st.sampled_from(list(chains.MODULI)))
def test_every_step_is_a_bijection_that_moves_something(seed, modulus):
    step = draw_step(random.Random(seed), modulus)
    chain = Chain(modulus, 0, ())
    image = [chain.apply(value, step) for value in range(modulus)]
    assert sorted(image) == list(range(modulus))
    assert image != list(range(modulus))


@given(SEEDS, st.sampled_from(list(chains.LENGTHS)))
def test_draws(seed, length):
    chain = draw_chain(random.Random(seed), length)
    assert chain == draw_chain(random.Random(seed), length)
    assert chain.modulus in chains.MODULI
    assert 0 <= chain.start < chain.modulus
    assert len(chain.steps) == length
    assert 0 <= chain.answer < chain.modulus
    assert chain.revised.apply(chain.revised.answer, chain.steps[-1]) == chain.answer
    assert all(math.gcd(operand, chain.modulus) == 1 for word, operand in chain.steps if word == "times")


def test_one_question_in_ten_is_held_out_and_a_draw_is_always():
    rng = random.Random(1)
    drawn = [draw_chain(rng, 4) for _ in range(4_000)]
    share = sum(map(is_held_out, drawn)) / len(drawn)
    assert share == pytest.approx(0.1, abs=0.02)
    assert all(is_held_out(draw_held_out(rng, 3)) for _ in range(50))


@pytest.mark.parametrize("modulus", list(chains.MODULI))
def test_answers_are_uniform(modulus):
    rng = random.Random(modulus)
    counts = Counter(draw_chain(rng, 5, modulus).answer for _ in range(2_000))
    assert set(counts) == set(range(modulus))
    assert chisquare(list(counts.values())).pvalue > 1e-4
