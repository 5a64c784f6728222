"""Figures of whether the instrument can be trusted: validity of the probe, controls, planted effects."""

import textwrap

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from midtrace.figures import style
from midtrace.figures.parts import Parts, bars, legend, series

CONTROLS = {
    ("scripted_short", "early"): "right option stated first, read early",
    ("scripted_short", "late"): "right option stated first, read late",
    ("scripted_long", "early"): "right option stated last, read early",
    ("scripted_long", "late"): "right option stated last, read late",
    ("scripted_wrong", "early"): "wrong option stated first, read early",
    ("scripted_wrong", "late"): "wrong option stated first, read late",
    ("prefix_own", "whole"): "the run's own reasoning",
    ("prefix_shuffled", "whole"): "its own reasoning, shuffled",
    ("prefix_other_item", "whole"): "the reasoning of another item",
    ("prefix_junk", "whole"): "random tokens, equally many",
}


def validity(parts: Parts) -> Figure | None:
    """Agreement of the forced answer with the natural one by fraction of the reasoning, and of the probe with the greedy continuation by horizon.

    Under the own prompt; by continuation where nothing is probed.
    """
    frame = parts.select("validity", context="policy").filter(pl.col("estimate").is_not_null())
    read = "Probe" if frame["estimand"].str.starts_with("probe").any() else "Continuation"
    natural = frame.filter(pl.col("estimand").str.contains("natural")).with_columns(at=100 * pl.col("fraction"))
    continued = frame.filter(pl.col("estimand") == "probe_continuation").with_columns(at=pl.col("horizon").cast(pl.Float64))
    shown = [
        part for part in ((natural, "the answer of the finished run", "fraction"), (continued, "the greedy continuation", "horizon")) if len(part[0])
    ]
    if not shown:
        return None
    figure = style.new(3.2)
    panels = figure.subplots(1, len(shown), squeeze=False, sharey=True)[0]
    arms = list(dict.fromkeys(frame["treatment"].drop_nulls()))
    for axes, (part, against, x) in zip(panels, shown, strict=True):
        places = sorted(set(part["at"]))
        for index, arm in enumerate(arms):
            own = part.filter(pl.col("treatment") == arm).sort("at")
            if own.is_empty():
                continue
            # Side by side within a place, so that arms that agree fully do not hide each other.
            shift = 0.09 * (index - (len(arms) - 1) / 2)
            at = np.array([places.index(value) for value in own["at"]]) + shift
            series(axes, own, at, index, arm)
        axes.set_xticks(range(len(places)), [f"{place:g}" for place in places])
        axes.set(
            title=f"{read} and {against}",
            xlabel="share of the reasoning that is read, %" if x == "fraction" else "reasoning tokens B",
            ylim=(-3, 104),
        )
        axes.grid(axis="x", visible=False)
    panels[0].set_ylabel("same answer, %" if read == "Probe" else "both right or both wrong, %")
    legend(figure, panels, columns=6 if sum(map(len, arms)) < 60 else 3)
    return figure


def controls(parts: Parts) -> Figure | None:
    """Accuracy behind constructed prefixes, and how often the probe chose the option that was stated, against chance."""
    frame = parts.tables["controls"]
    present = set(frame.select("control", "position").iter_rows())
    places = [key for key in CONTROLS if key in present] + sorted(present - set(CONTROLS))
    if not places:
        return None
    figure = style.new(0.95 + 0.28 * len(places))
    axes = figure.subplots()
    looks = {
        "accuracy": {"fmt": "o", "color": style.BLUE, "label": "chose the right option"},
        "follows_stated": {"fmt": "s", "color": style.VERMILLION, "markerfacecolor": "white", "label": "chose the option that was stated"},
    }
    for (estimand, look), shift in zip(looks.items(), (-0.13, 0.13), strict=True):
        kept = {(row["control"], row["position"]): row for row in frame.filter(pl.col("estimand") == estimand).iter_rows(named=True)}
        y = np.array([place for place, key in enumerate(places) if key in kept]) + shift
        if len(y):
            rows = [kept[key] for key in places if key in kept]
            value, low, high = (
                np.array([np.nan if row[name] is None else 100 * row[name] for row in rows]) for name in ("estimate", "ci_low", "ci_high")
            )
            bars(axes, value, y, low, high, vertical=False, **look)
    chance = frame.filter(pl.col("estimand") == "chance")["estimate"].mean()
    if chance is not None:
        axes.axvline(100 * float(chance), color=style.INK, linewidth=0.9, linestyle=(0, (1, 2)), label="chance", zorder=1)  # type: ignore[arg-type]
    axes.set_yticks(range(len(places)), [CONTROLS.get(key, " ".join(key)) for key in places])
    axes.set(ylim=(len(places) - 0.5, -0.5), xlim=(-3, 103), xlabel="share of items, %")
    axes.grid(axis="y", visible=False)
    legend(figure, [axes])
    return figure


def planted(parts: Parts) -> Figure | None:
    """Planted effects against measured ones, each on its own scale."""
    frame = parts.tables["planted"].filter(pl.col("estimate").is_not_null())
    if frame.is_empty():
        return None
    figure = style.new(0.6 + 0.62 * len(frame))
    grid = figure.subplots(len(frame), 1, squeeze=False)[:, 0]
    for axes, row in zip(grid, frame.iter_rows(named=True), strict=True):
        known = [row[name] for name in ("estimate", "ci_low", "ci_high", "planted", "low", "high") if row[name] is not None]
        reach = (max(known) - min(known)) or abs(known[0]) or 1.0
        left, right = min(known) - 0.3 * reach, max(known) + 0.3 * reach
        if row["low"] is not None or row["high"] is not None:
            promised = row["low"] if row["low"] is not None else left, row["high"] if row["high"] is not None else right
            axes.axvspan(*promised, color="#CFE8DF", zorder=0, label="promised range")
        if row["planted"] is not None:
            axes.axvline(row["planted"], color=style.GREEN, linewidth=1.6, linestyle="--", zorder=1, label="planted value")
        limits = [row[name] if row[name] is not None else row["estimate"] for name in ("ci_low", "ci_high")]
        kept = row["holds"] is not False and row["covered"] is not False
        bars(
            axes,
            np.array([row["estimate"]]),
            np.zeros(1),
            np.array(limits[:1]),
            np.array(limits[1:]),
            vertical=False,
            fmt="o" if kept else "X",
            color=style.INK if kept else style.VERMILLION,
            label="measured, with interval" if kept else "measured, misses the planted value or range",
        )
        axes.set(xlim=(left, right), ylim=(-1, 1), yticks=[0])
        axes.set_yticklabels(["\n".join(textwrap.wrap(str(row["estimand"]), 46)[:3])])
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
    grid[-1].set_xlabel("each effect in its own unit (accuracies and their differences as shares)")
    legend(figure, list(grid), columns=2)
    return figure
