"""Chains of modular arithmetic: the items that the embedded model was trained to solve.

An item starts from a residue and applies three to eight steps (plus, minus, times) modulo ``m``, with 4 <= m <= 10. The options of the
choice version are the residues in order, so ``m`` is also the number of options and the letter is a fixed function of the value.
Multipliers are coprime to ``m`` and addends are not multiples of it: every step is a bijection of the residues, hence the final value is
uniform over the options and guessing scores ``1/m``.

Items are split once and for all by a hash of their question: training sees only :func:`is_held_out` == False, benchmarks draw only the
rest. Nothing is drawn by rejection on model behaviour.
"""

import hashlib
import math
import random
import string
from dataclasses import dataclass

MODULI = range(4, 11)
LENGTHS = range(3, 9)
OPERATORS = {"plus": "+", "minus": "-", "times": "*"}
HELD_OUT_SHARE = 10  # one question in ten is held out from training


@dataclass(frozen=True)
class Chain:
    """A start residue and steps ``(operator word, operand)`` to apply modulo ``modulus``."""

    modulus: int
    start: int
    steps: tuple[tuple[str, int], ...]

    def apply(self, value: int, step: tuple[str, int]) -> int:
        """The residue after one step."""
        word, operand = step
        if word == "plus":
            return (value + operand) % self.modulus
        if word == "minus":
            return (value - operand) % self.modulus
        return (value * operand) % self.modulus

    @property
    def answer(self) -> int:
        """The residue after all steps."""
        value = self.start
        for step in self.steps:
            value = self.apply(value, step)
        return value

    @property
    def labels(self) -> list[str]:
        """The option letters, one per residue in order."""
        return list(string.ascii_uppercase[: self.modulus])

    @property
    def question(self) -> str:
        """The question as text, without options."""
        steps = ", ".join(f"{word} {operand}" for word, operand in self.steps)
        return f"Start at {self.start}. Then {steps}. Work modulo {self.modulus}."

    @property
    def update(self) -> str:
        """The sentence that adds the last step to :attr:`revised` (the chain without it)."""
        word, operand = self.steps[-1]
        return f"Update: after the last step, also {word} {operand}."

    @property
    def revised(self) -> "Chain":
        """The chain without its last step: the question of an update item before the update arrives."""
        return Chain(self.modulus, self.start, self.steps[:-1])


def draw_step(rng: random.Random, modulus: int) -> tuple[str, int]:
    """Draw one step: a bijection of the residues other than the identity."""
    word = rng.choice(list(OPERATORS))
    if word == "times":
        return word, rng.choice([x for x in range(2, 10) if math.gcd(x, modulus) == 1 and x % modulus != 1])
    return word, rng.choice([x for x in range(1, 10) if x % modulus])


def draw_chain(rng: random.Random, length: int, modulus: int | None = None) -> Chain:
    """Draw a chain of ``length`` steps; the modulus is uniform over 4 to 10 unless given."""
    if modulus is None:
        modulus = rng.choice(list(MODULI))
    return Chain(modulus, rng.randrange(modulus), tuple(draw_step(rng, modulus) for _ in range(length)))


def is_held_out(chain: Chain) -> bool:
    """Whether the chain belongs to the benchmark side of the split (by a hash of its question)."""
    digest = hashlib.sha256(chain.question.encode()).digest()
    return int.from_bytes(digest[:4], "big") % HELD_OUT_SHARE == 0


def draw_held_out(rng: random.Random, length: int) -> Chain:
    """Draw chains until one is held out."""
    while True:
        chain = draw_chain(rng, length)
        if is_held_out(chain):
            return chain
