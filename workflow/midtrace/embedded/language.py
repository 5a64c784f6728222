"""How the embedded model reasons: the traces that it is trained to produce, one builder per arm.

A trace is a list of *words* (pretokens, each with its leading space) so that it can be turned into token ids without a text round trip.
Next to the words it keeps, for every position, the progress of the calculation: which step is done and which value it gave. Training uses
the progress to continue sensibly after an interruption.

Planted behaviour (also written down in ``resources/embedded/expected.yaml``): the first pass slips, that is, states a wrong residue and goes
on from it; ``high`` re-checks and repairs; ``numeric_concise`` drops the trailing recapitulation; ``early_answer`` makes a quick pass first.
"""

import math
import random
from dataclasses import dataclass, field

from midtrace.chains import LENGTHS, MODULI, OPERATORS, Chain

SLIP_TERSE = 0.05  # per step, in terse calculation
SLIP_WORDED = 0.03  # per step, in worded calculation

ARM_STYLES = ("low", "medium", "high", "baseline", "numeric_concise", "early_answer")
NUMERIC_LIMITS = (32, 64, 128, 256, 512)


def numeric_suffix(limit: int) -> str:
    """The instruction of the ``numeric_concise`` arm."""
    return f"Be concise: think for at most {limit} tokens."


EARLY_SUFFIX = "Give a quick answer early, then work carefully."


@dataclass
class Trace:
    """Reasoning words, the progress after each of them, and the value that the run ends with."""

    words: list[str] = field(default_factory=list)
    progress: list[tuple[int, int]] = field(default_factory=list)  # (steps done, value) after each word
    state: tuple[int, int] = (0, 0)
    value: int = 0

    def say(self, text: str) -> None:
        """Append words; ``text`` is split before each space and before each mark."""
        for word in split_words(text):
            self.words.append(word)
            self.progress.append(self.state)

    def reach(self, done: int, value: int) -> None:
        """Record that the word just said completes step ``done`` with ``value``."""
        self.state = (done, value)
        self.progress[-1] = self.state


def split_words(text: str) -> list[str]:
    """Split a string as the embedded tokenizer's pre-tokenizer does (words with their space, marks, line breaks)."""
    words: list[str] = []
    current = ""
    for char in text:
        if char == "\n":
            if current:
                words.append(current)
                current = ""
            if words and set(words[-1]) == {"\n"}:
                words[-1] += char
            else:
                words.append(char)
        elif char == " ":
            if current:
                words.append(current)
            current = char
        elif current and current != " " and (kind(char) != kind(current[-1]) or kind(char) == "mark"):
            words.append(current)
            current = char
        else:
            current += char
    if current:
        words.append(current)
    return words


def kind(char: str) -> str:
    """Letter, digit or mark."""
    return "letter" if char.isalpha() else "digit" if char.isdigit() else "mark"


def slipped(rng: random.Random, value: int, modulus: int, rate: float) -> int:
    """The value, or with probability ``rate`` another residue."""
    if rng.random() < rate:
        return rng.choice([x for x in range(modulus) if x != value])
    return value


def terse(trace: Trace, rng: random.Random, chain: Chain, rate: float, done: int = 0, value: int | None = None, count: bool = True) -> int:
    """Say ``" 3 + 5 = 1 * 2 = 2"`` from step ``done`` on; return the final value."""
    current = chain.start if value is None else value
    trace.say(f" {current}")
    for index, step in enumerate(chain.steps[done:], done + 1):
        current = slipped(rng, chain.apply(current, step), chain.modulus, rate)
        trace.say(f" {OPERATORS[step[0]]} {step[1]} = {current}")
        if count:
            trace.reach(index, current)
    return current


def worded(trace: Trace, rng: random.Random, chain: Chain) -> list[int]:
    """Say ``" Now 3 plus 5 gives 1."`` for each step; return the values."""
    values = []
    current = chain.start
    for index, (word, operand) in enumerate(chain.steps, 1):
        result = slipped(rng, chain.apply(current, (word, operand)), chain.modulus, SLIP_WORDED)
        lead = "Now" if trace.words[-1] == "\n" else " Now"
        trace.say(f"{lead} {current} {word} {operand} gives {result}")
        trace.reach(index, result)
        trace.say(".")
        values.append(result)
        current = result
    return values


def reason(chain: Chain, style: str, rng: random.Random) -> Trace:
    """The reasoning of one run, between the markers, in the style of an arm.

    Parameters
    ----------
    chain
        The item.
    style
        One of ``ARM_STYLES``.
    rng
        Source of the slips.
    """
    trace = Trace(state=(0, chain.start))
    trace.say("\n")
    if style == "low":
        trace.say("Go:")
        trace.value = terse(trace, rng, chain, SLIP_TERSE)
    elif style == "high":
        steps = ", ".join(f"{word} {operand}" for word, operand in chain.steps)
        trace.say(f"Task: start at {chain.start}, {steps}, modulo {chain.modulus}.")
        first = worded(trace, rng, chain)[-1]
        trace.say(f" First result is {first}. Check:")
        trace.value = terse(trace, rng, chain, 0.0, count=False)
        trace.reach(len(chain.steps), trace.value)
        trace.say("." if first == trace.value else ". That differs.")
        trace.say(f" So the result is {trace.value}.")
    elif style in ("medium", "numeric_concise", "baseline", "early_answer"):
        if style == "early_answer":
            trace.say("Quick:")
            terse(trace, rng, chain, SLIP_TERSE)
            trace.say(". Carefully:")
        values = worded(trace, rng, chain)
        trace.value = values[-1]
        trace.say(f" So the result is {trace.value}.")
        if style in ("baseline", "early_answer"):
            trace.say(" The values were" + "".join(f" {value}" for value in values) + ".")
    else:
        raise ValueError(f"style is {style!r}; allowed: {', '.join(ARM_STYLES)}")
    trace.say("\n")
    return trace


def planted_accuracy(rate: float) -> float:
    """Accuracy of a calculation that slips with ``rate`` per step, over the item population (lengths and moduli uniform).

    A slip gives one of the other ``m - 1`` residues; a second slip repairs the first one time in ``m - 1``. With ``p`` the probability of
    being right, one step gives ``p (1 - rate) + (1 - p) rate / (m - 1)``.
    """
    values = []
    for modulus in MODULI:
        for length in LENGTHS:
            p = 1.0
            for _ in range(length):
                p = p * (1 - rate) + (1 - p) * rate / (modulus - 1)
            values.append(p)
    return sum(values) / len(values)


def planted_length_ratio() -> float:
    """Geometric-mean reasoning length of ``numeric_concise`` over ``baseline``: 7k + 8 tokens against 8k + 12 for k steps."""
    return math.exp(sum(math.log((7 * k + 8) / (8 * k + 12)) for k in LENGTHS) / len(LENGTHS))


def chance() -> float:
    """Accuracy of guessing: the mean of 1/m."""
    return sum(1 / modulus for modulus in MODULI) / len(MODULI)
