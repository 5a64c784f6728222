"""From intervals to plain words, by rules that are written down.

Direction of a difference with interval [low, high]: ``higher`` if low > 0, ``lower`` if high < 0, ``exact`` if it is 0 in every item,
``unclear`` if the interval includes 0 otherwise, ``missing`` if there is none. Where the difference is one of a family of tests, its adjusted
p must also be below 1 - level, else it is ``unclear``. ``unclear`` is no evidence of absence: that is what the equivalence
test is for.

The horizon of the headline is chosen from lengths alone, without a look at accuracy: the configured horizon nearest to the mean reasoning
length of the shorter arm (the smaller one in a tie). About half of that arm's runs have finished there, so that both sources of a
difference, finishing earlier and knowing more while both still think, can show.

An accuracy is above or below chance where its interval lies wholly above or below the chance level, the mean of 1 / options over the items; else
it is not distinguishable from chance.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from midtrace.errors import InputError
from midtrace.estimands import GAPS

MINUS = "\N{MINUS SIGN}"
TERMINAL = ("terminal", "terminal_continuation")
# The readouts that figures and report show, and what they call them there.
READOUTS = {
    "terminal": "Y",
    "terminal_continuation": "Y by continuation",
    "symmetric": "Y_sym",
    "symmetric_continuation": "Y_sym by continuation",
}
BY_READING = (("terminal", "symmetric"), ("terminal_continuation", "symmetric_continuation"))


@dataclass(frozen=True)
class Estimate:
    """An estimate with its interval, in the unit of its table (shares, ratios, tokens)."""

    value: float
    low: float | None = None
    high: float | None = None
    n_items: int | None = None
    n_pairs: int | None = None
    p: float | None = None  # of the test that it is 0, adjusted within its family

    @property
    def direction(self) -> str:
        """By the interval alone; see the rule of :mod:`midtrace.verdicts`."""
        if self.low is None and self.high is None and self.value == 0 and (self.n_items or 0) > 1:
            return "exact"  # items that do not differ have no interval
        return direction(self.low, self.high)

    def shown(self, level: float) -> str:
        """The direction, ``unclear`` where the adjusted p value does not bear it out."""
        found = self.direction
        return "unclear" if found in ("higher", "lower") and self.p is not None and self.p >= 1 - level else found


@dataclass(frozen=True)
class Headline:
    """The row of a comparison in the headline table; by readout where a mapping; None where it was not measured.

    ``finishing`` and ``active`` are the contributions of the strata ``treatment_complete`` and ``both_active``; ``rest`` is what the other
    two strata contribute; the shares are shares of pairs; ``final`` is the terminal contrast at the largest horizon, ``last``;
    ``readout_gap`` and ``context_gap`` say what changes the contrast from Y to Y_sym.
    """

    treatment: str
    reference: str
    horizon: int
    ratio: Estimate | None
    contrast: dict[str, Estimate] = field(default_factory=dict)
    finishing: dict[str, Estimate] = field(default_factory=dict)
    active: dict[str, Estimate] = field(default_factory=dict)
    rest: dict[str, float] = field(default_factory=dict)
    finishing_share: float | None = None
    active_share: float | None = None
    matched: Estimate | None = None
    matched_by: str = "probe"
    equivalence_p: float | None = None
    final: Estimate | None = None
    last: int | None = None
    readout_gap: Estimate | None = None
    context_gap: Estimate | None = None

    def matched_verdict(self, level: float) -> str:
        """See :func:`matched_verdict`."""
        if self.matched is None:
            return "missing"
        return matched_verdict(self.matched.shown(level), self.equivalence_p, level)

    @property
    def readouts(self) -> list[str]:
        """Readouts with a contrast: the terminal one first."""
        return [name for by in BY_READING for name in by if name in self.contrast]


def direction(low: float | None, high: float | None) -> str:
    """``higher``, ``lower``, ``exact``, ``unclear`` or ``missing``; see the rule of :mod:`midtrace.verdicts`."""
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return "missing"
    if low > 0:
        return "higher"
    if high < 0:
        return "lower"
    return "exact" if low == high == 0 else "unclear"


def matched_verdict(found: str, p: float | None, level: float) -> str:
    """Verdict on the matched-horizon contrast.

    Parameters
    ----------
    found
        Its direction.
    p
        P value of the equivalence test (the larger of the two one-sided ones), adjusted within its family; equivalence is claimed where
        p < 1 - level.
    level
        Level of intervals and test.

    Returns
    -------
    str
        ``better`` or ``worse`` (a difference is shown, equivalence is not), ``differs within margin`` (both are shown), ``equivalent`` (only
        equivalence is), ``undecided`` (neither), ``missing``.
    """
    if found == "missing":
        return "missing"
    equivalent = p is not None and p < 1 - level
    if found in ("higher", "lower"):
        return "differs within margin" if equivalent else {"higher": "better", "lower": "worse"}[found]
    return "equivalent" if equivalent else "undecided"


def falsifier_counts(rows: pl.DataFrame) -> dict[float, int]:
    """Unfinished prefixes by the upper edge of their fraction of the run's reasoning; rows of one comparison and context."""
    agreed = rows.filter(pl.col("estimand") == "agreement", pl.col("fraction").is_not_null()).sort("fraction")
    return dict(agreed.select("fraction", "n_pairs").iter_rows())


def falsifier_verdict(rows: pl.DataFrame, level: float) -> str:
    """What the falsifier says: only prefixes near the whole reasoning, those of the last bin, can show that the probe misses what is there.

    Parameters
    ----------
    rows
        Rows of the falsifier table of one comparison and context.
    level
        Level of the intervals.

    Returns
    -------
    str
        ``not decidable`` (no prefix, or those of one item only, in the last bin), ``falls short`` (the accuracy gap is below 0 there), ``no
        shortfall shown`` otherwise.
    """
    counts = falsifier_counts(rows)
    last = max(counts, default=1.0)
    gap = one(rows, estimand="accuracy_gap", fraction=last) if counts.get(last) else None
    if gap is None or gap.n_items == 1:
        return "not decidable"
    return "falls short" if gap.shown(level) == "lower" else "no shortfall shown"


def falsifier_sentence(rows: pl.DataFrame, level: float) -> str:
    """:func:`falsifier_verdict` in plain words, with the number of prefixes by fraction."""
    counts = falsifier_counts(rows)
    edges = list(counts)
    numbers = ", ".join(f"up to {100 * edge:g}%: {count}" for edge, count in counts.items())
    near = f"more than {100 * edges[-2]:g}%" if len(edges) > 1 else "any part"
    gap = one(rows, estimand="accuracy_gap", fraction=edges[-1]) if edges else None
    said = {
        "not decidable": f"Not decidable from this study: too few prefixes hold {near} of the run's reasoning.",
        "falls short": f"The probe falls short: it is behind the final answer on prefixes that hold {near} of the reasoning, {points(gap)} points.",
        "no shortfall shown": f"No shortfall is shown on prefixes that hold {near} of the reasoning: {points(gap)} points.",
    }
    return f"{said[falsifier_verdict(rows, level)]} Prefixes by the share of the reasoning they hold: {numbers or 'none'}."


def against_chance(estimate: Estimate | None, chance: float) -> str:
    """``above``, ``below``, ``unclear`` or ``missing``; see the rule of :mod:`midtrace.verdicts`."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return "missing"
    found = direction(estimate.low - chance, estimate.high - chance)
    return {"higher": "above", "lower": "below", "missing": "missing"}.get(found, "unclear")


def chance_sentences(natural: Mapping[str, Estimate | None], probed: Mapping[str, Estimate | None], chance: float, horizon: int) -> list[str]:
    """Whether the runs' own answers and the probe know more than guessing would, in plain words.

    Parameters
    ----------
    natural, probed
        Arm -> accuracy of the runs' own answers; of the probe in the common context at ``horizon``, the largest one.
    chance
        Chance level of the benchmark.

    Returns
    -------
    list of str
        A sentence for each of the two that was measured, and, where no accuracy is above chance, what follows from that.
    """
    words = {"above": "above chance", "below": "below chance", "unclear": "not distinguishable from chance"}
    found, seen = [], []
    for what, accuracies in (("Own answers", natural), (f"The probe at {horizon} tokens", probed)):
        kinds = {arm: against_chance(estimate, chance) for arm, estimate in accuracies.items()}
        parts = []
        for kind, said in words.items():
            arms = [f"{arm} {plain(accuracies[arm], 1, 100)}" for arm in kinds if kinds[arm] == kind]
            if arms:
                parts.append(f"{said}: {', '.join(arms)}")
        if parts:
            found.append(f"{what}, % right where chance is {number(100 * chance)}: {'; '.join(parts)}.")
        seen += [kind for kind in kinds.values() if kind != "missing"]
    if seen and "above" not in seen:
        found.append("Nothing shows that this model does better than guessing: its readouts carry little, and so do differences between arms.")
    return found


def headline_horizon(mean_treatment: float, mean_reference: float, horizons: Sequence[int]) -> int:
    """The configured horizon nearest to the smaller of two mean lengths; the smaller one in a tie."""
    shorter = min(mean_treatment, mean_reference)
    return min(horizons, key=lambda horizon: (abs(horizon - shorter), horizon))


def one(frame: pl.DataFrame, **values: Any) -> Estimate | None:
    """The only row with these values as an estimate; None if there is none or it is null.

    Raises
    ------
    InputError
        If several rows match: the table is not what it claims to be.
    """
    found = frame.filter(*(pl.col(column) == value for column, value in values.items()))
    if len(found) > 1:
        raise InputError("decomposition", ", ".join(f"{k}={v}" for k, v in values.items()), f"matches {len(found)} estimates", "at most 1")
    if found.is_empty() or found["estimate"][0] is None:
        return None
    row = found.row(0, named=True)
    return Estimate(row["estimate"], row["ci_low"], row["ci_high"], row["n_items"], row["n_pairs"], row.get("p_holm"))


def headline(tables: Mapping[str, pl.DataFrame], treatment: str, reference: str, horizons: Sequence[int]) -> Headline | None:
    """The headline row of a comparison; None if nothing was measured.

    Parameters
    ----------
    tables
        ``lengths``, ``policy``, ``strata``, ``matched`` of one model and benchmark.
    treatment, reference
        Arms.
    horizons
        Horizons of the study.
    """
    pair = {"treatment": treatment, "reference": reference}
    lengths = tables["lengths"]
    means = [one(lengths.filter(pl.col("reference").is_null()), estimand="mean_length", treatment=arm) for arm in (treatment, reference)]
    if means[0] is None or means[1] is None:
        return None
    at = headline_horizon(means[0].value, means[1].value, horizons)
    contrast: dict[str, Estimate] = {}
    finishing: dict[str, Estimate] = {}
    active: dict[str, Estimate] = {}
    rest: dict[str, float] = {}
    shares: dict[str, float | None] = {}
    at_horizon = tables["policy"].filter(pl.col("horizon") == at)
    measured = {readout: one(at_horizon, **pair, estimand="contrast", readout=readout) for by in BY_READING for readout in by}
    # By continuation only where nothing is probed.
    readouts = next((by for by in BY_READING if any(measured[readout] for readout in by)), ())
    for readout in readouts:
        total = measured[readout]
        if total is None:
            continue
        contrast[readout] = total
        strata = tables["strata"].filter(*(pl.col(key) == value for key, value in {**pair, "horizon": at, "readout": readout}.items()))
        for kept, name in ((finishing, "treatment_complete"), (active, "both_active")):
            found = one(strata, termination=name)
            if found is not None:
                kept[readout] = found
            shares[name] = dict(strata.select("termination", "share").iter_rows()).get(name)
        others = strata.filter(pl.col("termination").is_in(["both_complete", "reference_complete"]))
        rest[readout] = float(others["contribution"].sum())
    ending = "" if "terminal" in contrast else "_continuation"
    gaps = {gap: one(at_horizon, **pair, estimand=gap, readout=f"{first}{ending} - {second}{ending}") for gap, (first, second) in GAPS.items()}
    by = "probe" if one(tables["matched"], **pair, estimand="matched_contrast", readout="probe") else "continuation"
    p = one(tables["matched"], **pair, estimand="matched_equivalence_p", readout=by)
    return Headline(
        treatment,
        reference,
        at,
        one(lengths, **pair, estimand="geometric_mean_ratio"),
        contrast,
        finishing,
        active,
        rest,
        shares.get("treatment_complete"),
        shares.get("both_active"),
        one(tables["matched"], **pair, estimand="matched_contrast", readout=by),
        by,
        None if p is None else p.value if p.p is None else p.p,
        next((f for name in TERMINAL if (f := one(tables["policy"], **pair, estimand="contrast", horizon=max(horizons), readout=name))), None),
        max(horizons),
        **gaps,
    )


def number(value: float | None, digits: int = 1, sign: bool = False) -> str:
    """A number for readers: a true minus sign, no negative zero, a dash where there is none."""
    if value is None or math.isnan(value):
        return "\N{EN DASH}"
    text = f"{abs(value):.{digits}f}"
    negative = value < 0 and float(text) != 0
    return (MINUS if negative else "+" if sign and float(text) != 0 else "") + text


def points(estimate: Estimate | None, interval: bool = True) -> str:
    """A difference of shares in percentage points with its interval, e.g. ``+5.0 (1.0 to 9.0)``."""
    if estimate is None:
        return "not measured"
    text = number(100 * estimate.value, sign=True)
    if interval and estimate.low is not None and estimate.high is not None:
        text += f" ({number(100 * estimate.low)} to {number(100 * estimate.high)})"
    return text


def plain(estimate: Estimate | None, digits: int = 3, scale: float = 1.0) -> str:
    """An estimate with its interval."""
    if estimate is None:
        return "not measured"
    text = number(scale * estimate.value, digits)
    if estimate.low is not None and estimate.high is not None:
        text += f" ({number(scale * estimate.low, digits)} to {number(scale * estimate.high, digits)})"
    return text


def p_value(p: float) -> str:
    """A p value for readers."""
    return "p < 0.001" if p < 0.001 else "p > 0.999" if p > 0.999 else f"p = {p:.3f}"


def adjusted(estimate: Estimate) -> str:
    """The adjusted p value in brackets, if there is one."""
    return "" if estimate.p is None else f" (adjusted {p_value(estimate.p)})"


def sentences(row: Headline, margin: float, level: float) -> list[str]:
    """The headline row of a comparison in plain words, one sentence per question."""
    found = []
    t, r = row.treatment, row.reference
    if row.ratio is not None and row.ratio.low is not None and row.ratio.high is not None:
        word = "shorter" if row.ratio.high < 1 else "longer" if row.ratio.low > 1 else ""
        found.append(
            f"Length: {t} reasons in {plain(row.ratio, 2)} times as many tokens as {r}" + (f": it is {word}." if word else ": no clear difference.")
        )
    if row.readouts:
        main = row.contrast[row.readouts[0]]
        words = {
            "higher": f"{t} is right more often",
            "lower": f"{t} is right less often",
            "unclear": "no clear difference in accuracy",
            "exact": "the same accuracy in every pair",
            "missing": "no interval",
        }
        found.append(f"Stopped at {row.horizon} tokens: {words[main.shown(level)]}, {points(main)} points{adjusted(main)}.")
        found.append(_origin(row, level))
        if row.readout_gap is not None and row.context_gap is not None:
            found.append(_gaps(row.readout_gap, row.context_gap, level))
    if row.final is not None and row.last != row.horizon:
        found.append(f"Stopped at the largest horizon, {row.last}: {points(row.final)} points.")
    margin_points = f"{100 * margin:g}"
    beyond = (
        row.matched is not None
        and row.matched.low is not None
        and row.matched.high is not None
        and (row.matched.low > margin or row.matched.high < -margin)
    )
    size = (
        f"the whole interval lies beyond the margin of {margin_points} points" if beyond else f"whether by more than {margin_points} points is open"
    )
    verdict = row.matched_verdict(level)
    p = (
        " (no equivalence test: the items do not differ)"
        if row.equivalence_p is None
        else f" (equivalence test, adjusted {p_value(row.equivalence_p)})"
    )
    at = f"At equal length, the finished reasoning of {t} against as many tokens of {r}: {points(row.matched)} points"
    longer = row.ratio is not None and row.ratio.low is not None and row.ratio.low > 1
    note = f" Since {t} is the longer arm, most runs of {r} have finished by then and are read whole." if longer else ""
    found.append(
        {
            "better": f"{at}: {t} is ahead; {size}.{note}",
            "worse": f"{at}: {t} is behind; {size}.{note}",
            "differs within margin": f"{at}. There is a difference, but one smaller than {margin_points} points{p}.{note}",
            "equivalent": f"{at}. Equivalent within {margin_points} points{p}{'' if longer else ': equally many tokens carry equally much'}.{note}",
            "undecided": f"{at}. Undecided: neither a difference nor equivalence within {margin_points} points is shown{p}.{note}",
            "missing": "At equal length: not measured.",
        }[verdict]
    )
    return found


def _origin(row: Headline, level: float) -> str:
    """Which of the two named strata has a contribution that is clearly not zero, under each readout."""
    said = {}
    for readout in row.readouts:
        sources = {"runs that finish earlier": row.finishing.get(readout), "pairs that both still think": row.active.get(readout)}
        clear = [name for name, estimate in sources.items() if estimate is not None and estimate.shown(level) in ("higher", "lower")]
        said[READOUTS[readout].removesuffix(" by continuation")] = " and ".join(clear) or "neither of the two sources"
    if len(set(said.values())) == 1:
        return f"What clearly contributes, under {' and '.join(said)}: {next(iter(said.values()))}."
    return "What clearly contributes: " + "; ".join(f"{text} under {name}" for name, text in said.items()) + ". Y and Y_sym disagree."


def _gaps(readout: Estimate, context: Estimate, level: float) -> str:
    """What changes the difference from Y to Y_sym: the reading of finished runs, and the prompt. Only the first is a readout effect."""
    words = {"exact": "changes nothing in any pair", "unclear": "is not clearly different from 0", "missing": "has no interval"}
    parts = [
        f"{name} {words[gap.shown(level)]}{'' if gap.shown(level) == 'exact' else f', {points(gap)} points'}"
        if gap.shown(level) in words
        else f"{name} is {points(gap)} points"
        for name, gap in (
            ("the readout gap (finished runs read by their own answers instead of as the others are)", readout),
            ("the context gap (own prompts instead of the shared one)", context),
        )
    ]
    return f"Of Y minus Y_sym, {' and '.join(parts)}."
