"""The figures. Each function takes the parts of one model and benchmark and gives a figure; parts that are missing leave their panel out."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from midtrace.estimands import TERMINATION
from midtrace.figures import style
from midtrace.survival import completion_curve

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
READOUTS = {"terminal": "Y", "symmetric": "Y_sym", "terminal_continuation": "Y by continuation"}


@dataclass(frozen=True)
class Parts:
    """What the figures of one model and benchmark are drawn from.

    Attributes
    ----------
    tables
        Decomposition tables by name, rows of this model and benchmark only (``planted``: all rows).
    runs
        ``arm``, ``n_reasoning``, ``status``: one row per trace.
    comparisons
        (treatment, reference) in the order of the config.
    chance
        Mean of 1 / options over items; None without options.
    margin
        Equivalence margin, a share.
    level
        Level of the intervals.
    """

    tables: dict[str, pl.DataFrame]
    runs: pl.DataFrame
    comparisons: list[tuple[str, str]]
    chance: float | None
    margin: float
    level: float = 0.95

    def select(self, table: str, **values: object) -> pl.DataFrame:
        """Rows of a table whose columns have these values."""
        return self.tables[table].filter(*(pl.col(column) == value for column, value in values.items()))


def draw(kind: str, parts: Parts) -> Figure:
    """Draw one kind of figure (a name of :mod:`midtrace.figures.catalogue`); a note stands where there is nothing to draw."""
    functions: dict[str, Callable[[Parts], Figure | None]] = {
        "policy": policy,
        "decomposition": decomposition,
        "matched": matched,
        "lengths": lengths,
        "early": early,
        "validity": validity,
        "controls": controls,
        "planted": planted,
    }
    with matplotlib.rc_context(style.RC):
        return functions[kind](parts) or style.nothing()


def terminal_readouts(frame: pl.DataFrame) -> list[str]:
    """Readouts to show: Y and Y_sym where there is a probe, else Y by continuation."""
    present = set(frame["readout"].drop_nulls())
    return [name for name in ("terminal", "symmetric") if name in present] or [name for name in ("terminal_continuation",) if name in present]


def _band(axes: Axes, frame: pl.DataFrame, x: str, look: dict, label: str) -> None:
    frame = frame.filter(pl.col("estimate").is_not_null()).sort(x)
    at, value, low, high = (frame[column].cast(pl.Float64).to_numpy() for column in (x, "estimate", "ci_low", "ci_high"))
    axes.fill_between(at, 100 * low, 100 * high, color=look["color"], alpha=0.18, linewidth=0)
    axes.plot(at, 100 * value, label=label, **look)


def _bars(axes: Axes, x: np.ndarray, y: np.ndarray, low: np.ndarray, high: np.ndarray, vertical: bool = True, **look) -> None:
    distances = np.clip(np.stack([(x if not vertical else y) - low, high - (x if not vertical else y)]), 0, None)
    axes.errorbar(x, y, **{"yerr" if vertical else "xerr": distances}, capsize=2.2, elinewidth=1.1, **look)


def _chance(axes: Axes, parts: Parts, vertical: bool = False) -> None:
    if parts.chance is not None:
        (axes.axvline if vertical else axes.axhline)(
            100 * parts.chance, color=style.INK, linewidth=0.9, linestyle=(0, (1, 2)), label="chance", zorder=1
        )


def _legend(figure: Figure, axes: Sequence[Axes], columns: int = 4) -> None:
    """One legend above all panels, each entry once."""
    found: dict[str, Artist] = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(list(found.values()), list(found), loc="outside upper center", ncols=min(columns, len(found)))


def _drawn(parts: Parts, table: str, **values: object) -> list[tuple[str, str]]:
    frame = parts.select(table, **values).filter(pl.col("estimate").is_not_null())
    present = set(frame.select("treatment", "reference").iter_rows())
    return [pair for pair in parts.comparisons if pair in present]


def _curves(axes: Axes, frame: pl.DataFrame, estimand: str) -> None:
    for side, look in style.SIDES.items():
        named = "treatment (named first)" if side == "treatment" else "reference (named second)"
        _band(axes, frame.filter(pl.col("estimand") == f"{estimand}_{side}"), "horizon", look, named)


def policy(parts: Parts) -> Figure | None:
    """Policy accuracy by horizon for both arms of each comparison, and beneath it the share of runs that have finished."""
    readouts = terminal_readouts(parts.tables["policy"])
    if not readouts:
        return None
    readout = readouts[0]
    pairs = _drawn(parts, "policy", readout=readout, estimand="accuracy_treatment")
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
        _chance(upper, parts)
        upper.set(ylim=(-3, 103), title=style.title(*pairs[index]))
        for side, look in style.SIDES.items():
            arm = pairs[index][0 if side == "treatment" else 1]
            curve = parts.select("lengths", estimand="completion", treatment=arm)
            if len(curve):
                _band(lower, curve, "horizon", {**look, "markersize": 2.5, "linewidth": 1}, f"_{side}")
        lower.set(ylim=(-5, 105), yticks=[0, 50, 100])
        if index % columns == 0:
            upper.set_ylabel("accuracy, %")
            lower.set_ylabel("finished, %")
        style.horizon_axis(upper, horizons, label=False)
        upper.tick_params(labelbottom=False)
        style.horizon_axis(lower, horizons, label=index + columns >= len(pairs))
    _legend(figure, [grid[0, 0]])
    return figure


def decomposition(parts: Parts) -> Figure | None:
    """Contributions of the four termination strata by horizon as diverging stacks, the total contrast as a marker."""
    readouts = terminal_readouts(parts.tables["strata"])
    if not readouts:
        return None
    pairs = _drawn(parts, "strata", readout=readouts[0])
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
                _bars(
                    axes, at, value, low, high, fmt="D", color=style.INK, markerfacecolor="white", markersize=4, label="total contrast, with interval"
                )
            axes.axhline(0, color=style.INK, linewidth=0.8)
            axes.set_xticks(range(len(horizons)), [str(h) for h in horizons])
            axes.grid(axis="x", visible=False)
            axes.set_title(style.title(treatment, reference, READOUTS[readout]))
            if row == len(pairs) - 1:
                axes.set_xlabel("reasoning tokens B")
    figure.supylabel("accuracy difference, percentage points", fontsize=9)
    _legend(figure, [grid[0, 0]], columns=3)
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
    pairs = _drawn(parts, "matched", estimand="matched_contrast")
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
    _chance(right, parts, vertical=True)
    left.set_yticks(range(len(pairs)), ["\nagainst ".join(pair) for pair in pairs])
    left.set(ylim=(len(pairs) - 0.5, -0.5), xlabel="accuracy difference, percentage points")
    right.set(xlim=(-3, 103), xlabel=f"accuracy by {readout}, %")
    for axes in (left, right):
        axes.grid(axis="y", visible=False)
    _legend(figure, [left, right], columns=3)
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
    _bars(axes, value, y, low, high, vertical=False, **look)


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
        values, done = own["n_reasoning"].to_numpy(), (own["status"] == "terminated").to_numpy()
        box = left.boxplot(values, positions=[place], orientation="horizontal", whis=(5, 95), widths=0.55, showfliers=False, patch_artist=True)
        for part in (*box["whiskers"], *box["caps"], *box["medians"]):
            part.set_color(look["color"])
        box["medians"][0].set_linewidth(2)
        box["boxes"][0].set(facecolor=look["color"], alpha=0.3, edgecolor=look["color"])
        at = np.arange(until + 1) if until <= 4_096 else np.unique(np.linspace(0, until, 4_096).astype(int))
        right.step(at, 100 * completion_curve(values, done, at.tolist()), where="post", color=look["color"], linestyle=look["linestyle"], label=arm)
        table = parts.select("lengths", estimand="completion", treatment=arm)
        if len(table):
            value, low, high = (100 * table[name].cast(pl.Float64).to_numpy() for name in ("estimate", "ci_low", "ci_high"))
            _bars(right, table["horizon"].to_numpy(), value, low, high, fmt=look["marker"], color=look["color"], markersize=3, linestyle="none")
    left.set_yticks(range(len(arms)), arms)
    left.set(ylim=(len(arms) - 0.4, -0.6), xlabel="reasoning tokens per run", xlim=(0, None))
    left.grid(axis="y", visible=False)
    right.set(xlabel="reasoning tokens B", ylabel="runs finished by B, %", ylim=(-3, 103), xlim=(-0.02 * until, 1.02 * until))
    _legend(figure, [right], columns=6 if sum(map(len, arms)) < 60 else 3)
    return figure


def early(parts: Parts) -> Figure | None:
    """Mean probability of the right option by horizon, both arms read in the common context."""
    pairs = _drawn(parts, "policy", readout="symmetric", estimand="q_gold_treatment")
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
        _chance(axes, parts)
        axes.set(ylim=(-3, 103), title=style.title(*pairs[index]))
        if index % columns == 0:
            axes.set_ylabel("probability of the\nright option, %")
        style.horizon_axis(axes, sorted(set(frame["horizon"].drop_nulls())), label=index + columns >= len(pairs))
    _legend(figure, [grid[0, 0]])
    return figure


def validity(parts: Parts) -> Figure | None:
    """Agreement of the probe with the natural answer by fraction of the reasoning, and with the greedy continuation by horizon."""
    frame = parts.tables["validity"].filter(pl.col("estimate").is_not_null())
    natural = frame.filter(pl.col("estimand").is_in(["probe_natural_complete", "probe_natural_unfinished"])).with_columns(at=100 * pl.col("fraction"))
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
            value, low, high = (100 * own[name].cast(pl.Float64).to_numpy() for name in ("estimate", "ci_low", "ci_high"))
            look = style.ARMS[index % len(style.ARMS)]
            _bars(
                axes,
                at,
                value,
                low,
                high,
                fmt=look["marker"],
                color=look["color"],
                linestyle=look["linestyle"],
                linewidth=0.9,
                markersize=3.5,
                label=arm,
            )
        axes.set_xticks(range(len(places)), [f"{place:g}" for place in places])
        axes.set(
            title=f"Probe and {against}", xlabel="share of the reasoning that is read, %" if x == "fraction" else "reasoning tokens B", ylim=(-3, 104)
        )
        axes.grid(axis="x", visible=False)
    panels[0].set_ylabel("same answer, %")
    _legend(figure, panels, columns=6 if sum(map(len, arms)) < 60 else 3)
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
            _bars(axes, value, y, low, high, vertical=False, **look)
    chance = frame.filter(pl.col("estimand") == "chance")["estimate"].mean()
    if chance is not None:
        axes.axvline(100 * float(chance), color=style.INK, linewidth=0.9, linestyle=(0, (1, 2)), label="chance", zorder=1)  # type: ignore[arg-type]
    axes.set_yticks(range(len(places)), [CONTROLS.get(key, " ".join(key)) for key in places])
    axes.set(ylim=(len(places) - 0.5, -0.5), xlim=(-3, 103), xlabel="share of items, %")
    axes.grid(axis="y", visible=False)
    _legend(figure, [axes])
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
        _bars(
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
    _legend(figure, list(grid), columns=2)
    return figure
