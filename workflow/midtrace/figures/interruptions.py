"""Figures of interruptions: accuracy and length against X, the distribution of leakage, and what explains the new errors."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from midtrace.figures import style
from midtrace.tables import read, write_json

PLAIN = "uninterrupted"
FORMATS = ("svg", "pdf", "png")
KINDS = ("interruptions", "interruptions_leakage", "interruptions_errors")  # each is drawn from the table of its name
# Of each of tables.ERROR_MODES: what it is called, and colour and hatch, which say the same, so that neither is needed.
MODES = {
    "panic": ("panic: stops thinking at once", style.VERMILLION, "///"),
    "self_doubt": ("self-doubt: rejects the update", style.BLUE, "..."),
    "leakage": ("leakage: reasons in the answer", style.GREEN, "\\\\\\"),
    "unfinished": ("cut off by the token cap", style.ORANGE, "xxx"),
    "unparsed": ("no readable answer", style.PURPLE, "++"),
    "other": ("none of these", "#BBBBBB", ""),
}


def run(files: Mapping[str, str | Path], folder: str | Path, index: str | Path, settings: Mapping[str, Any]) -> None:
    """Read the tables of interruptions, draw their figures into a folder of their own, and list them.

    Parameters
    ----------
    files
        Table name -> file of ``decomposition/``; see :func:`draw`.
    folder
        Made if it is not there.
    index
        The list to write: file name -> digest of the file.
    settings
        See :func:`midtrace.config.interruptions.interruption_analysis_settings`; a table of another config is refused.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    drawn = draw({name: read(path, expected=settings) for name, path in files.items()}, folder)
    write_json({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in drawn}, index)


def kind_of(stem: str) -> str:
    """The kind of a figure file: the longest figure name that its stem begins with, one of ``KINDS``."""
    return max((name for name in KINDS if stem == name or stem.startswith(f"{name}_")), key=len)


def draw(tables: Mapping[str, pl.DataFrame], folder: str | Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw the figures of every model, benchmark and arm.

    Parameters
    ----------
    tables
        ``interruptions``, ``interruptions_leakage`` and ``interruptions_errors`` of ``decomposition/``.
    folder
        Where the files go.
    formats
        File name extensions.

    Returns
    -------
    list of pathlib.Path
        The files, as ``{figure}_{model}_{benchmark}_{arm}.{format}`` with figure ``interruptions``, ``interruptions_leakage`` or
        ``interruptions_errors``; a figure without rows is left out.
    """
    files: list[Path] = []
    keys = ["model", "benchmark", "treatment"]
    for key in tables["interruptions"].select(keys).unique(maintain_order=True).iter_rows():
        chosen = [pl.col(name) == value for name, value in zip(keys, key, strict=True)]
        for name, function in zip(KINDS, (curves, leakage, errors), strict=True):
            frame = tables[name].filter(*chosen, pl.col("cut") == "fraction", pl.col("fraction").is_not_null())
            with style.drawing():
                figure = function(frame) if len(frame) else None
            if figure is not None:
                paths = [Path(folder) / f"{'_'.join([name, *key])}.{extension}" for extension in formats]
                style.save(figure, paths)
                files += paths
    return files


def _names(frame: pl.DataFrame) -> list[str]:
    return frame["intervention"].drop_nulls().unique(maintain_order=True).to_list()


def _share_axis(axes: Axes, fractions: Sequence[float]) -> None:
    axes.set_xticks([100 * f for f in fractions], [f"{100 * f:g}" for f in fractions])


def curves(frame: pl.DataFrame) -> Figure:
    """Accuracy (above) and length (below) against X; interventions that bring time pressure to the left, updates to the right.

    Parameters
    ----------
    frame
        Rows of ``interruptions`` at fractions, of one model, benchmark and arm.
    """
    names = _names(frame)
    updates = [name for name in names if len(frame.filter(pl.col("intervention") == name, pl.col("estimand") == "self_doubt"))]
    columns = [(title, chosen) for title, chosen in (("time pressure", [n for n in names if n not in updates]), ("updates", updates)) if chosen]
    looks = dict(zip(names, cycle(style.ARMS), strict=False))
    figure = style.new(5.2)
    grid = figure.subplots(2, len(columns), sharex=True, sharey="row", squeeze=False)
    fractions = sorted(frame["fraction"].unique())
    for column, (title, chosen) in enumerate(columns):
        for row, (estimand, scale) in enumerate((("accuracy", 100.0), ("length", 1.0))):
            axes = grid[row][column]
            for name in chosen:
                one = frame.filter(pl.col("intervention") == name, pl.col("estimand") == estimand).sort("fraction")
                at, value, low, high = (one[key].to_numpy() for key in ("fraction", "estimate", "ci_low", "ci_high"))
                look = looks[name]
                axes.fill_between(100 * at, scale * low, scale * high, color=look["color"], alpha=0.16, linewidth=0)
                axes.plot(100 * at, scale * value, label=name, **look)
            _share_axis(axes, fractions)
        plain = frame.filter(pl.col("intervention").is_in(chosen), pl.col("estimand") == "uninterrupted_accuracy")["estimate"].mean()
        if isinstance(plain, float):
            grid[0][column].axhline(100 * plain, color=style.INK, linewidth=0.9, linestyle=(0, (1, 2)), label=PLAIN, zorder=1)
        grid[0][column].set_title(title)
        grid[1][column].set_xlabel("share X of the reasoning kept, %")
    found = {label: handle for axes in grid[0] for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    order = sorted(found, key=lambda label: label == PLAIN)
    figure.legend([found[label] for label in order], order, loc="outside upper center", ncols=4)
    grid[0][0].set(ylabel="accuracy, %", ylim=(0, 103))
    grid[1][0].set_ylabel("tokens after the interruption")
    grid[1][0].set_ylim(bottom=0)
    return figure


def _panels(names: Sequence[str], height: float) -> tuple[Figure, list[Axes]]:
    """Small multiples, at most four in a row; the axes that are left over are hidden."""
    columns = min(4, len(names))
    rows = math.ceil(len(names) / columns)
    figure = style.new(height * rows + 0.7)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes in grid[len(names) :]:
        axes.set_visible(False)
    for place, axes in enumerate(grid[: len(names)]):
        if place + columns >= len(names):  # nothing below it
            axes.xaxis.set_tick_params(labelbottom=True)
    return figure, list(grid[: len(names)])


def leakage(frame: pl.DataFrame) -> Figure:
    """Share of runs whose answer segment is at least so many times as long as the uninterrupted one, one line per X.

    Parameters
    ----------
    frame
        Rows of ``interruptions_leakage`` at fractions, of one model, benchmark and arm.
    """
    longer = frame.filter(pl.col("ratio") > 1, pl.col("estimate") > 0)["intervention"].unique()
    names, fractions = [name for name in _names(frame) if name in longer], sorted(frame["fraction"].unique())
    if not names:
        return style.nothing("No answer segment is longer than the uninterrupted one.")
    figure, panels = _panels(names, 2.3 if len(names) <= 4 else 1.75)
    shades = matplotlib.colormaps["viridis"](np.linspace(0, 0.93, len(fractions)))
    for axes, name in zip(panels, names, strict=True):
        for shade, fraction in reversed(list(zip(shades, fractions, strict=True))):
            one = frame.filter(pl.col("intervention") == name, pl.col("fraction") == fraction).sort("ratio")
            label = f"X = {100 * fraction:g}%"
            axes.plot(one["ratio"], 100 * one["estimate"], color=shade, marker="o", drawstyle="steps-pre", label=label)
        axes.set_title(name)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator([0.5, 1, 2, 5, 10, 20]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_ylim(-3, 103)
    without = [name for name in _names(frame) if name not in names]
    note = f"\nAnswers are not longer after {', '.join(without)}." if without else ""
    _finish(figure, panels, "answer length / uninterrupted answer length" + note, "runs at or above, %")
    return figure


def errors(frame: pl.DataFrame) -> Figure:
    """Runs that the interruption turned from right to wrong, as a share of all runs, split by what explains them.

    Parameters
    ----------
    frame
        Rows of ``interruptions_errors`` at fractions, of one model, benchmark and arm.
    """
    names, fractions = _names(frame), sorted(frame["fraction"].unique())
    figure, panels = _panels(names, 1.75)
    for axes, name in zip(panels, names, strict=True):
        bottom = np.zeros(len(fractions))
        for mode, (label, color, hatch) in MODES.items():
            one = frame.filter(pl.col("intervention") == name, pl.col("mode") == mode, pl.col("estimand") == "share_of_runs").sort("fraction")
            value = dict(one.select("fraction", "estimate").iter_rows())
            heights = np.array([100 * value.get(fraction, 0.0) for fraction in fractions])
            axes.bar(range(len(fractions)), heights, 0.8, bottom=bottom, color=color, hatch=hatch, edgecolor="white", linewidth=0.3, label=label)
            bottom += heights
        axes.set_title(name)
        axes.set_xticks(range(len(fractions)), [f"{100 * f:g}" for f in fractions])
        axes.grid(axis="x", visible=False)
    _finish(figure, panels, "share X of the reasoning kept, %", "new errors, % of runs")
    return figure


def _finish(figure: Figure, panels: Sequence[Axes], x: str, y: str) -> None:
    figure.supxlabel(x, fontsize=9)
    figure.supylabel(y, fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4 if len(labels) > 6 else 3)
