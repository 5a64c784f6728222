"""What figures are drawn from, and the marks that they share."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from midtrace.figures import style
from midtrace.verdicts import BY_READING


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


def terminal_readouts(frame: pl.DataFrame) -> list[str]:
    """Readouts to show: Y and Y_sym by the probe where there is one, else by continuation."""
    present = set(frame["readout"].drop_nulls())
    return next((shown for by in BY_READING if (shown := [name for name in by if name in present])), [])


def band(axes: Axes, frame: pl.DataFrame, x: str, look: dict, label: str) -> None:
    """A line of estimates over ``x`` with its intervals as a band, in percent."""
    frame = frame.filter(pl.col("estimate").is_not_null()).sort(x)
    at, value, low, high = (frame[column].cast(pl.Float64).to_numpy() for column in (x, "estimate", "ci_low", "ci_high"))
    axes.fill_between(at, 100 * low, 100 * high, color=look["color"], alpha=0.18, linewidth=0)
    axes.plot(at, 100 * value, label=label, **look)


def bars(axes: Axes, x: np.ndarray, y: np.ndarray, low: np.ndarray, high: np.ndarray, vertical: bool = True, **look) -> None:
    """Markers with intervals."""
    distances = np.clip(np.stack([(x if not vertical else y) - low, high - (x if not vertical else y)]), 0, None)
    axes.errorbar(x, y, **{"yerr" if vertical else "xerr": distances}, capsize=2.2, elinewidth=1.1, **look)


def series(axes: Axes, frame: pl.DataFrame, at: np.ndarray, index: int, label: str) -> None:
    """Estimates at the places ``at`` in percent, with intervals, joined by a thin line in the look of the ``index``-th arm."""
    value, low, high = (100 * frame[name].cast(pl.Float64).to_numpy() for name in ("estimate", "ci_low", "ci_high"))
    look = style.ARMS[index % len(style.ARMS)]
    line = look["linestyle"]
    bars(axes, at, value, low, high, fmt=look["marker"], color=look["color"], linestyle=line, linewidth=0.9, markersize=3.5, label=label)


def chance_line(axes: Axes, parts: Parts, vertical: bool = False) -> None:
    """The chance level, where there are options."""
    if parts.chance is not None:
        (axes.axvline if vertical else axes.axhline)(
            100 * parts.chance, color=style.INK, linewidth=0.9, linestyle=(0, (1, 2)), label="chance", zorder=1
        )


def legend(figure: Figure, axes: Sequence[Axes], columns: int = 4) -> None:
    """One legend above all panels, each entry once."""
    found: dict[str, Artist] = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(list(found.values()), list(found), loc="outside upper center", ncols=min(columns, len(found)))


def drawn(parts: Parts, table: str, **values: object) -> list[tuple[str, str]]:
    """Comparisons of which a table has estimates with these values, in the order of the config."""
    frame = parts.select(table, **values).filter(pl.col("estimate").is_not_null())
    present = set(frame.select("treatment", "reference").iter_rows())
    return [pair for pair in parts.comparisons if pair in present]
