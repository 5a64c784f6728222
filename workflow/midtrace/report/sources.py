"""What a difference is made of, in sentences: dominance, readings of unfinished runs, survivors, equal length.

A verdict is given only where an interval supports it: "most" where the whole interval of a share lies above one half, "whatever the reading" where
the outer limits of the bounds lie on one side of zero; else the sentence says "not shown".
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from midtrace.verdicts import READOUTS, Estimate, direction, number, one, p_value, points

HALF = 0.5
QUESTIONS = {
    "dominance": "Is it mostly that runs finish earlier?",
    "bounds": "Could it be the reading of unfinished runs?",
    "survivors": "Is it the selection of pairs that both still think?",
    "split": "Is it there at equal length?",
}


def answers(own: Mapping[str, pl.DataFrame], treatment: str, reference: str, horizon: int, level: float) -> dict[str, str]:
    """What the four tables answer about a comparison at a horizon; what was not measured is left out.

    Parameters
    ----------
    own
        Tables ``dominance``, ``bounds``, ``survivors``, ``split`` of one model and benchmark.
    treatment, reference, horizon
        Arms and B.
    level
        Level of the intervals.

    Returns
    -------
    dict
        Key of ``QUESTIONS`` -> sentences.
    """
    rows = {
        name: own[name].filter(pl.col("treatment") == treatment, pl.col("reference") == reference, pl.col("horizon") == horizon) for name in QUESTIONS
    }
    found = {
        "dominance": dominance(rows["dominance"]),
        "bounds": bounds(rows["bounds"], treatment),
        "survivors": survivors(rows["survivors"], level),
        "split": split(rows["split"], treatment, reference),
    }
    return {name: text for name, text in found.items() if text}


def shown(rows: pl.DataFrame) -> list[str]:
    """Outcomes to speak of: Y and Y_sym by the probe where there is one, else both by continuation."""
    present = [name for name in READOUTS if (rows["readout"] == name).any()]
    return [name for name in present if not name.endswith("_continuation")] or present


def percent(estimate: Estimate) -> str:
    """A share with its interval, e.g. ``88% [77, 100]``."""
    text = f"{number(100 * estimate.value, 0)}%"
    return text if estimate.low is None or estimate.high is None else f"{text} [{number(100 * estimate.low, 0)}, {number(100 * estimate.high, 0)}]"


def share_of(rows: pl.DataFrame, readout: str) -> tuple[Estimate | None, Estimate | None]:
    """Contrast and finishing share of the rows of a comparison at a horizon."""
    under = rows.filter(pl.col("readout") == readout)
    return one(under, estimand="contrast"), one(under, estimand="finishing_share")


def dominance(rows: pl.DataFrame) -> str:
    """Whether most of the difference is earlier completion, under each outcome."""
    said = []
    for readout in shown(rows):
        name, (contrast, share) = READOUTS[readout], share_of(rows, readout)
        if contrast is None:
            continue
        if contrast.direction not in ("higher", "lower") or share is None:
            said.append(f"under {name} there is no clear difference to divide ({points(contrast)} points)")
            continue
        if share.low is None or share.high is None:
            verdict = "the same in every resample"
        else:
            verdict = (
                "it is most of it" if share.low > HALF else "it is not most of it" if share.high < HALF else "that it is most of it is not shown"
            )
        source = "earlier completion" if contrast.value > 0 else "what pairs contribute of which only the treatment has finished"
        said.append(f"under {name} {source} makes {percent(share)} of {points(contrast)} points: {verdict}")
    return _sentence("; ".join(said))


def bounds(rows: pl.DataFrame, treatment: str) -> str:
    """Whether a reading of unfinished runs could make the difference, and how many would have to be misread."""
    contrast = {reading: one(rows, estimand="contrast", reading=reading) for reading in ("lowest", "highest", "final")}
    low, high = contrast["lowest"], contrast["highest"]
    tipping = next((found for name in ("probe_own", "continuation_own") if (found := one(rows, estimand="tipping_share", reading=name))), None)
    if low is None or high is None:
        return ""
    if tipping is None:
        return "There is no pair of which only one run has finished: no reading of an unfinished run is compared with an answer of a finished one."
    outer = direction(low.low, high.high)
    span = f"by its most and least favourable readings the difference is {points(low)} to {points(high)} points"
    verdict = {
        "higher": f"{treatment} is ahead whichever reading is taken",
        "lower": f"{treatment} is behind whichever reading is taken",
    }.get(outer, "that its sign holds whichever reading is taken is not shown")
    said = [_sentence(f"{span}: {verdict}")]
    reach = next((found for name in ("probe_own", "continuation_own") if (found := one(rows, estimand="tipping_reach", reading=name))), None)
    size = _size(tipping)
    enough = "" if reach is None else f"; {percent(reach)} of them are read in the way that could be such a misreading"
    if size.low is not None and size.low > 1:
        said.append(f"Even if all pairs of which one run has finished were misread, it would not vanish ({percent(size)} of them).")
    elif tipping.direction in ("higher", "lower"):
        said.append(f"For it to vanish, {percent(size)} of the pairs of which one run has finished would have to be misread{enough}.")
    if contrast["final"] is not None:
        said.append(f"Scored by what the unfinished runs answered in the end, it is {points(contrast['final'])} points: what more reasoning brings.")
    return " ".join(said)


def _size(estimate: Estimate) -> Estimate:
    """The estimate without its sign; limits on both sides of zero become 0 and the larger one."""
    if estimate.low is None or estimate.high is None:
        return Estimate(abs(estimate.value))
    low, high = sorted((abs(estimate.low), abs(estimate.high)))
    return Estimate(abs(estimate.value), 0.0 if estimate.low <= 0 <= estimate.high else low, high, estimate.n_items, estimate.n_pairs)


def survivors(rows: pl.DataFrame, level: float) -> str:
    """Whether the contrast of pairs that both still think could be their selection."""
    readout = next((name for name in ("symmetric", "symmetric_continuation") if (rows["readout"] == name).any()), None)
    rows = rows.filter(pl.col("readout") == readout, pl.col("stratum").is_null())
    active, low, high, standard, items = (
        one(rows, estimand=name) for name in ("both_active_contrast", "trimmed_lower", "trimmed_upper", "standardised_contrast", "standardised_items")
    )
    if active is None:
        return ""
    said = [f"Pairs that both still think differ by {points(active)} points."]
    if low is not None and high is not None:
        verdict = {"higher": "above zero all the same", "lower": "below zero all the same"}.get(
            direction(low.low, high.high), "a difference apart from selection is not shown"
        )
        said.append(
            f"If runs that go on under the arm which finishes more of them would go on under the other, too, trimming puts it between "
            f"{number(100 * low.value, sign=True)} and {number(100 * high.value, sign=True)} ({number(100 * level, 0)}% limits "
            f"{number(_points(low.low))} to {number(_points(high.high))}): {verdict}."
        )
    if standard is not None and items is not None:
        said.append(
            f"With items weighed by the length of their reference runs, it is {points(standard)}"
            + (f" for the {number(100 * items.value, 0)}% of items whose lengths have such pairs." if items.value < 1 else " for all items.")
        )
    return " ".join(said)


def split(rows: pl.DataFrame, treatment: str, reference: str) -> str:
    """What of the difference is there at equal length, and what the reference's further tokens change."""
    readout = next((name for name in ("symmetric", "symmetric_continuation") if (rows["readout"] == name).any()), None)
    rows = rows.filter(pl.col("readout") == readout)
    contrast, equal, further = (one(rows, estimand=name) for name in ("contrast", "equal_tokens", "further_tokens"))
    if contrast is None or equal is None or further is None:
        return ""
    at_equal = {"higher": f"{treatment} is ahead at equal length", "lower": f"{treatment} is behind at equal length"}.get(
        equal.direction, "a difference at equal length is not shown"
    )
    more = {"higher": f"further tokens make {reference} worse", "lower": f"further tokens make {reference} better"}.get(
        further.direction, f"that further tokens of {reference} change it is not shown"
    )
    whole = f"Of {points(contrast)} points under {READOUTS[readout or '']}, {points(equal)} are there at equal length"
    return f"{whole} and {points(further)} come from the further tokens of {reference}: {at_equal}; {more}."


def claim(found: pl.DataFrame, settings: Mapping[str, Any]) -> list[str]:
    """The declared claim: the share of each comparison in every model and benchmark, and the test of all at once; one sentence per outcome.

    Parameters
    ----------
    found
        The dominance table of the study.
    settings
        See :func:`midtrace.config.analysis_settings`.
    """
    declared, level = settings["inference"]["dominance"], settings["inference"]["level"]
    if not declared or found.is_empty():
        return []
    several = len(settings["models"]) * len(settings["benchmarks"]) > 1
    at = found.filter(pl.col("horizon") == declared["horizon"])
    said = []
    for readout in shown(at):
        parts = []
        for model in settings["models"]:
            for benchmark in settings["benchmarks"]:
                for comparison in declared["comparisons"]:
                    t, r = comparison["treatment"], comparison["reference"]
                    where = {"model": model, "benchmark": benchmark, "treatment": t, "reference": r}
                    contrast, share = share_of(at.filter(*(pl.col(key) == value for key, value in where.items())), readout)
                    if contrast is not None:
                        pair = f"{t} against {r}" + (f" ({model} on {benchmark})" if several else "")
                        parts.append(_claimed(contrast, share, pair))
        tested = one(at, estimand="dominant_in_all_p", readout=readout)
        if not parts:
            continue
        whole = f"Most of the advantage at {declared['horizon']} tokens is earlier completion (under {READOUTS[readout]}): {'; '.join(parts)}."
        if tested is None:
            verdict = " All at once: not tested, since not every comparison could be."
        else:
            word = "shown" if tested.value < 1 - level else "not shown"
            verdict = f" That it contributes, and more than the pairs that both still think, in all of them: {word} ({p_value(tested.value)})."
        said.append(whole + verdict)
    return said


def _claimed(contrast: Estimate, share: Estimate | None, pair: str) -> str:
    if contrast.direction != "higher" or share is None:
        return f"no clear advantage for {pair} ({points(contrast)} points): not shown"
    if share.low is None:
        return f"{percent(share)} for {pair}: the same in every resample"
    return f"{percent(share)} for {pair}: {'shown' if share.low > HALF else 'not shown'}"


def _points(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""
