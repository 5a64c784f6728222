"""Figures of what a contrast rests on: other readings of unfinished runs, bounds of survivors, and the split at equal length."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from midtrace.estimands.readout_bounds import MEASURED
from midtrace.figures import style
from midtrace.figures.parts import Parts, bars, drawn, legend

READINGS = {
    "probe_own": {"fmt": "o", "color": style.BLUE, "label": "probe, own"},
    "probe_common": {"fmt": "s", "color": style.VERMILLION, "label": "probe, common"},
    "continuation_own": {"fmt": "^", "color": style.GREEN, "label": "continuation, own"},
    "continuation_common": {"fmt": "v", "color": style.PURPLE, "label": "continuation, common"},
    "final": {"fmt": "x", "color": style.GREY, "label": "final answer (no bound)"},
}
SPLIT = {
    "equal_tokens": {"label": "at equal length", "color": style.GREEN, "hatch": "..."},
    "further_tokens": {"label": "the reference's further tokens", "color": style.VERMILLION, "hatch": "\\\\\\"},
}


def common_readout(frame: pl.DataFrame) -> str | None:
    """The readout in the common context to show: by the probe where there is one, else by continuation; None without any."""
    present = set(frame["readout"].drop_nulls())
    return next((name for name in ("symmetric", "symmetric_continuation") if name in present), None)


def bounds(parts: Parts) -> Figure | None:
    """Left: the contrast under each reading of unfinished runs, and its bounds. Right: the both-active contrast, trimmed and standardised."""
    pairs = drawn(parts, "bounds", estimand="contrast", reading="lowest")
    if not pairs:
        return None
    readout = common_readout(parts.tables["survivors"])
    figure = style.new(0.95 + 2.0 * len(pairs))
    grid = figure.subplots(len(pairs), 2, squeeze=False)
    for row, (treatment, reference) in enumerate(pairs):
        frame = parts.select("bounds", treatment=treatment, reference=reference)
        horizons = sorted(set(frame["horizon"].drop_nulls()))
        left, right = grid[row]
        contrast = frame.filter(pl.col("estimand") == "contrast")
        _range(
            left,
            contrast.filter(pl.col("reading") == "lowest"),
            contrast.filter(pl.col("reading") == "highest"),
            horizons,
            "bounds of the readings",
        )
        shown = [name for name in (*MEASURED, "final") if name in set(contrast["reading"])]
        for index, name in enumerate(shown):
            _markers(left, contrast.filter(pl.col("reading") == name), horizons, (index - (len(shown) - 1) / 2) * 0.19, READINGS[name])
        left.set_title(style.title(treatment, reference))
        survivors = parts.select("survivors", treatment=treatment, reference=reference, readout=readout)
        by = {name: survivors.filter(pl.col("estimand") == name) for name in survivors["estimand"].unique()}
        if "trimmed_lower" in by:
            _range(right, by["trimmed_lower"], by["trimmed_upper"], horizons, "trimming bounds")
        looks = {
            "both_active_contrast": {"fmt": "D", "color": style.INK, "label": "as measured"},
            "standardised_contrast": {"fmt": "P", "color": style.ORANGE, "label": "standardised"},
        }
        for (name, look), shift in zip(looks.items(), (-0.12, 0.12), strict=True):
            if name in by:
                _markers(right, by[name], horizons, shift, look)
        right.set_title("pairs that both still think")
        for axes in (left, right):
            _horizon_places(axes, horizons, label=row == len(pairs) - 1)
    figure.supylabel("accuracy difference, percentage points", fontsize=9)
    legend(figure, [grid[0, 0], grid[0, 1]], columns=4)
    return figure


def split(parts: Parts) -> Figure | None:
    """The contrast in the common context as its part at equal length and that of the reference's further tokens, by horizon."""
    readout = common_readout(parts.tables["split"])
    pairs = drawn(parts, "split", estimand="equal_tokens", readout=readout) if readout else []
    if not pairs:
        return None
    columns = min(2, len(pairs))
    rows = -(-len(pairs) // columns)
    figure = style.new(0.75 + 2.1 * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    for index, axes in enumerate(grid.flat):
        if index >= len(pairs):
            axes.set_visible(False)
            continue
        frame = parts.select("split", treatment=pairs[index][0], reference=pairs[index][1], readout=readout)
        horizons = sorted(set(frame["horizon"].drop_nulls()))
        above, below = np.zeros(len(horizons)), np.zeros(len(horizons))
        for name, look in SPLIT.items():
            values = dict(frame.filter(pl.col("estimand") == name).select("horizon", "estimate").iter_rows())
            height = np.array([100 * (values.get(h) or 0.0) for h in horizons])
            axes.bar(
                np.arange(len(horizons)), height, 0.72, bottom=np.where(height >= 0, above, below), edgecolor="white", linewidth=0.4, zorder=2, **look
            )
            above, below = above + np.clip(height, 0, None), below + np.clip(height, None, 0)
        total = {"fmt": "D", "color": style.INK, "markerfacecolor": "white", "label": "total contrast, with interval"}
        _markers(axes, frame.filter(pl.col("estimand") == "contrast"), horizons, 0.0, total)
        axes.use_sticky_edges = False
        axes.set_title(style.title(*pairs[index]))
        _horizon_places(axes, horizons, label=index + columns >= len(pairs))
    figure.supylabel("accuracy difference, percentage points", fontsize=9)
    legend(figure, [grid[0, 0]], columns=3)
    return figure


def _places(frame: pl.DataFrame, horizons: Sequence[int]) -> tuple[np.ndarray, ...]:
    """Places on a categorical axis of horizons, and estimates with limits in points, of the rows that have an estimate."""
    kept = frame.filter(pl.col("estimate").is_not_null()).sort("horizon")
    value, low, high = (100 * kept[name].cast(pl.Float64).to_numpy() for name in ("estimate", "ci_low", "ci_high"))
    return np.array([horizons.index(h) for h in kept["horizon"]], dtype=float), value, low, high


def _markers(axes: Axes, frame: pl.DataFrame, horizons: Sequence[int], shift: float, look: dict) -> None:
    at, value, low, high = _places(frame, horizons)
    if len(at):
        bars(axes, at + shift, value, low, high, **{"markersize": 3.5, "linestyle": "none", **look})


def _range(axes: Axes, lower: pl.DataFrame, upper: pl.DataFrame, horizons: Sequence[int], label: str) -> None:
    """Fields from a lower to an upper bound; thin lines reach to their outer limits."""
    at, low, outer_low, _ = _places(lower, horizons)
    _, high, _, outer_high = _places(upper, horizons)
    if len(at):
        axes.bar(at, high - low, 0.8, bottom=low, color="#D9D9D9", label=label, zorder=0)
        axes.vlines(at, np.fmin(outer_low, low), np.fmax(outer_high, high), color="#B0B0B0", linewidth=0.8, zorder=0)


def _horizon_places(axes: Axes, horizons: Sequence[int], label: bool) -> None:
    axes.axhline(0, color=style.INK, linewidth=0.8, zorder=1)
    axes.set_xticks(range(len(horizons)), [str(h) for h in horizons])
    axes.set_xlim(-0.6, len(horizons) - 0.4)
    axes.grid(axis="x", visible=False)
    if label:
        axes.set_xlabel("reasoning tokens B")
