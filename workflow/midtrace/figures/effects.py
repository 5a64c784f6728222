"""Figures of what the arms do: accuracy under a budget, its sources, equal lengths, early knowledge, lengths."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from midtrace.estimands import TERMINATION
from midtrace.estimands.survival import completion_curve
from midtrace.figures import style
from midtrace.figures.parts import Parts, band, bars, chance_line, drawn, legend, terminal_readouts
from midtrace.verdicts import READOUTS


def _curves(axes: Axes, frame: pl.DataFrame, estimand: str) -> None:
    for side, look in style.SIDES.items():
        named = "treatment (named first)" if side == "treatment" else "reference (named second)"
        band(axes, frame.filter(pl.col("estimand") == f"{estimand}_{side}"), "horizon", look, named)


def policy(parts: Parts) -> Figure | None:
    """Policy accuracy by horizon for both arms of each comparison, and beneath it the share of runs that have finished."""
    readouts = terminal_readouts(parts.tables["policy"])
    if not readouts:
        return None
    readout = readouts[0]
    pairs = drawn(parts, "policy", readout=readout, estimand="accuracy_treatment")
    columns = min(2, len(pairs))
    rows = -(-len(pairs) // columns)
    figure = style.new(0.5 + 3.1 * rows)
    grid = figure.subplots(2 * rows, columns, squeeze=False, height_ratios=[2.6, 1] * rows)
    for index in range(rows * columns):
        upper, lower = grid[2 * (index // columns), index % columns], grid[2 * (index // columns) + 1, index % columns]
        if index >= len(pairs):
            upper.set_visible(False)
            lower.set_visible(False)
            continue
        frame = parts.select("policy", treatment=pairs[index][0], reference=pairs[index][1], readout=readout)
        horizons = sorted(set(frame["horizon"].drop_nulls()))
        _curves(upper, frame, "accuracy")
        chance_line(upper, parts)
        upper.set(ylim=(-3, 103), title=style.title(*pairs[index]))
        for side, look in style.SIDES.items():
            arm = pairs[index][0 if side == "treatment" else 1]
            curve = parts.select("lengths", estimand="completion", treatment=arm)
            if len(curve):
                band(lower, curve, "horizon", {**look, "markersize": 2.5, "linewidth": 1}, f"_{side}")
        lower.set(ylim=(-5, 105), yticks=[0, 50, 100])
        if index % columns == 0:
            upper.set_ylabel("accuracy, %")
            lower.set_ylabel("finished, %")
        style.horizon_axis(upper, horizons, label=False)
        upper.tick_params(labelbottom=False)
        style.horizon_axis(lower, horizons, label=index + columns >= len(pairs))
    legend(figure, [grid[0, 0]])
    return figure


def decomposition(parts: Parts) -> Figure | None:
    """Contributions of the four termination strata by horizon as diverging stacks, the total contrast as a marker."""
    readouts = terminal_readouts(parts.tables["strata"])
    if not readouts:
        return None
    pairs = drawn(parts, "strata", readout=readouts[0])
    if not pairs:
        return None
    figure = style.new(0.75 + 1.95 * len(pairs))
    grid = figure.subplots(len(pairs), len(readouts), squeeze=False, sharey="row")
    for row, (treatment, reference) in enumerate(pairs):
        for column, readout in enumerate(readouts):
            axes = grid[row, column]
            frame = parts.select("strata", treatment=treatment, reference=reference, readout=readout)
            horizons = sorted(set(frame["horizon"].drop_nulls()))
            _stack(axes, frame, horizons)
            total = parts.select("policy", treatment=treatment, reference=reference, readout=readout, estimand="contrast").sort("horizon")
            if len(total):
                at = np.array([horizons.index(h) for h in total["horizon"]], dtype=float)
                value, low, high = (100 * total[name].cast(pl.Float64).to_numpy() for name in ("estimate", "ci_low", "ci_high"))
                bars(
                    axes, at, value, low, high, fmt="D", color=style.INK, markerfacecolor="white", markersize=4, label="total contrast, with interval"
                )
            axes.axhline(0, color=style.INK, linewidth=0.8)
            axes.use_sticky_edges = False  # bars would end the axis at zero, and cut the markers there in half
            axes.set_xticks(range(len(horizons)), [str(h) for h in horizons])
            axes.grid(axis="x", visible=False)
            axes.set_title(style.title(treatment, reference, READOUTS[readout]))
            if row == len(pairs) - 1:
                axes.set_xlabel("reasoning tokens B")
    figure.supylabel("accuracy difference, percentage points", fontsize=9)
    legend(figure, [grid[0, 0]], columns=3)
    return figure


def _stack(axes: Axes, frame: pl.DataFrame, horizons: Sequence[int]) -> None:
    above, below = np.zeros(len(horizons)), np.zeros(len(horizons))
    assert set(style.STRATA) == set(TERMINATION)
    for termination, look in style.STRATA.items():
        values = dict(frame.filter(pl.col("termination") == termination).select("horizon", "contribution").iter_rows())
        height = np.array([100 * (values.get(h) or 0.0) for h in horizons])
        bottom = np.where(height >= 0, above, below)
        axes.bar(np.arange(len(horizons)), height, 0.72, bottom=bottom, edgecolor="white", linewidth=0.4, zorder=2, **look)
        above, below = above + np.clip(height, 0, None), below + np.clip(height, None, 0)


def matched(parts: Parts) -> Figure | None:
    """The matched-horizon contrast of each comparison, by probe and by continuation, and the accuracies behind it."""
    pairs = drawn(parts, "matched", estimand="matched_contrast")
    if not pairs:
        return None
    figure = style.new(1.25 + 0.62 * len(pairs))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[1.25, 1])
    left.axvspan(-100 * parts.margin, 100 * parts.margin, color="#D9D9D9", zorder=0, label=f"equivalence margin, ±{100 * parts.margin:g} points")
    left.axvline(0, color=style.INK, linewidth=0.8, zorder=1)
    looks = {
        "probe": {"fmt": "o", "color": style.BLUE, "label": "by probe"},
        "continuation": {"fmt": "D", "color": style.ORANGE, "markerfacecolor": "white", "label": "by continuation"},
    }
    for (readout, look), shift in zip(looks.items(), (-0.14, 0.14), strict=True):
        frame = parts.select("matched", estimand="matched_contrast", readout=readout)
        _rows(left, frame, pairs, shift, look)
    readout = "probe" if len(parts.select("matched", readout="probe")) else "continuation"
    for (side, look), shift in zip(style.SIDES.items(), (-0.14, 0.14), strict=True):
        frame = parts.select("matched", estimand=f"matched_accuracy_{side}", readout=readout)
        name = "treatment, finished" if side == "treatment" else "reference, cut at the same length"
        _rows(right, frame, pairs, shift, {"fmt": look["marker"], "color": look["color"], "label": name})
    chance_line(right, parts, vertical=True)
    left.set_yticks(range(len(pairs)), ["\nagainst ".join(pair) for pair in pairs])
    left.set(ylim=(len(pairs) - 0.5, -0.5), xlabel="accuracy difference, percentage points")
    right.set(xlim=(-3, 103), xlabel=f"accuracy by {readout}, %")
    for axes in (left, right):
        axes.grid(axis="y", visible=False)
    legend(figure, [left, right], columns=3)
    return figure


def _rows(axes: Axes, frame: pl.DataFrame, pairs: Sequence[tuple[str, str]], shift: float, look: dict) -> None:
    kept = [
        (pairs.index((row["treatment"], row["reference"])), row)
        for row in frame.iter_rows(named=True)
        if (row["treatment"], row["reference"]) in pairs
    ]
    if not kept:
        return
    y = np.array([place for place, _ in kept]) + shift
    value, low, high = (np.array([np.nan if row[name] is None else 100 * row[name] for _, row in kept]) for name in ("estimate", "ci_low", "ci_high"))
    bars(axes, value, y, low, high, vertical=False, **look)


def lengths(parts: Parts) -> Figure | None:
    """Reasoning lengths of each arm as boxes, and the share of runs that have finished by B (Kaplan-Meier)."""
    runs = parts.runs.filter(pl.col("status") != "malformed")
    arms = list(dict.fromkeys(parts.runs["arm"]))
    if runs.is_empty():
        return None
    arms = [arm for arm in arms if arm in set(runs["arm"])]
    figure = style.new(1.15 + max(1.9, 0.36 * len(arms)))
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.15])
    until = int(runs["n_reasoning"].to_numpy().max())
    for place, arm in enumerate(arms):
        look = style.ARMS[place % len(style.ARMS)]
        own = runs.filter(pl.col("arm") == arm)
        values = own["n_reasoning"].to_numpy()
        box = left.boxplot(values, positions=[place], orientation="horizontal", whis=(5, 95), widths=0.55, showfliers=False, patch_artist=True)
        for part in (*box["whiskers"], *box["caps"], *box["medians"]):
            part.set_color(look["color"])
        box["medians"][0].set_linewidth(2)
        box["boxes"][0].set(facecolor=look["color"], alpha=0.3, edgecolor=look["color"])
        at = np.arange(until + 1) if until <= 4_096 else np.unique(np.linspace(0, until, 4_096).astype(int))
        curve = 100 * completion_curve(parts.runs.filter(pl.col("arm") == arm), at.tolist())
        right.step(at, curve, where="post", color=look["color"], linestyle=look["linestyle"], label=arm)
        table = parts.select("lengths", estimand="completion", treatment=arm)
        if len(table):
            value, low, high = (100 * table[name].cast(pl.Float64).to_numpy() for name in ("estimate", "ci_low", "ci_high"))
            bars(right, table["horizon"].to_numpy(), value, low, high, fmt=look["marker"], color=look["color"], markersize=3, linestyle="none")
    left.set_yticks(range(len(arms)), arms)
    left.set(ylim=(len(arms) - 0.4, -0.6), xlabel="reasoning tokens per run", xlim=(0, None))
    left.grid(axis="y", visible=False)
    right.set(xlabel="reasoning tokens B", ylabel="runs finished by B, %", ylim=(-3, 103), xlim=(-0.02 * until, 1.02 * until))
    legend(figure, [right], columns=6 if sum(map(len, arms)) < 60 else 3)
    return figure


def early(parts: Parts) -> Figure | None:
    """Mean probability of the right option by horizon, both arms read in the common context."""
    pairs = drawn(parts, "policy", readout="symmetric", estimand="q_gold_treatment")
    if not pairs:
        return None
    columns = min(2, len(pairs))
    rows = -(-len(pairs) // columns)
    figure = style.new(0.5 + 2.15 * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    for index, axes in enumerate(grid.flat):
        if index >= len(pairs):
            axes.set_visible(False)
            continue
        frame = parts.select("policy", treatment=pairs[index][0], reference=pairs[index][1], readout="symmetric")
        _curves(axes, frame, "q_gold")
        chance_line(axes, parts)
        axes.set(ylim=(-3, 103), title=style.title(*pairs[index]))
        if index % columns == 0:
            axes.set_ylabel("probability of the\nright option, %")
        style.horizon_axis(axes, sorted(set(frame["horizon"].drop_nulls())), label=index + columns >= len(pairs))
    legend(figure, [grid[0, 0]])
    return figure
