"""Figures of what depends on the method: the falsifier of the probe, and the same contrasts by every method of inference."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from midtrace import verdicts
from midtrace.figures import style
from midtrace.figures.parts import Parts, bars, drawn, legend, series

APPROACHES = {
    "item_percentile": "items, percentile",
    "item_bca": "items, BCa",
    "nested": "nested: items, replicates",
    "two_way": "two-way: items x replicates",
    "crossed_intercepts": "crossed intercepts",
    "replicate": "replicate",
}
QUANTITIES = {
    **{readout: ("contrast", label) for readout, label in verdicts.READOUTS.items()},
    "matched": ("matched_contrast", "equal length"),
}


def falsifier(parts: Parts) -> Figure | None:
    """Unfinished prefixes of the reference against the answer that the run gave in the end, by how much of the reasoning the prefix holds."""
    # A share with a single item shows that item, not the model.
    frame = parts.select("falsifier", context="common").filter(
        pl.col("estimate").is_not_null(), pl.col("fraction").is_not_null(), pl.col("n_items") > 1
    )
    pairs = [pair for pair in parts.comparisons if len(frame.filter(pl.col("treatment") == pair[0], pl.col("reference") == pair[1]))]
    if not pairs:
        return None
    read = "Probe" if "probe" in set(frame["readout"]) else "Continuation"
    places = sorted(set(frame["fraction"]))
    figure = style.new(3.3)
    panels = figure.subplots(1, 2)
    shown = (
        ("agreement", f"{read} and the answer in the end", "same answer, %" if read == "Probe" else "both right or both wrong, %"),
        ("accuracy_gap", f"{read} minus the answer in the end", "accuracy, points"),
    )
    for axes, (estimand, title, label) in zip(panels, shown, strict=True):
        for index, (treatment, reference) in enumerate(pairs):
            own = frame.filter(pl.col("estimand") == estimand, pl.col("treatment") == treatment, pl.col("reference") == reference).sort("fraction")
            at = np.array([places.index(value) for value in own["fraction"]]) + 0.09 * (index - (len(pairs) - 1) / 2)
            series(axes, own, at, index, f"{reference}, cut at the length of {treatment}")
        axes.set_xticks(range(len(places)), [f"up to {100 * place:g}%" for place in places])
        axes.set(title=title, xlabel="share of the run's reasoning in the prefix", ylabel=label, xlim=(-0.5, len(places) - 0.5))
        axes.grid(axis="x", visible=False)
    panels[0].set_ylim(-3, 104)
    panels[1].axhline(0, color=style.INK, linewidth=0.9)
    legend(figure, panels, columns=2)
    return figure


def methods(parts: Parts) -> Figure | None:
    """The contrasts of the headline by every method of inference, one row of panels per comparison."""
    pairs = [pair for pair in drawn(parts, "inference") if _headline_horizon(parts, pair) is not None]
    columns = _columns(parts.tables["inference"])
    if not pairs or not columns:
        return None
    found = {(pair, name): _estimates(parts, pair, name) for pair in pairs for name in columns}
    labels = list(dict.fromkeys(label for frame in found.values() for label, *_ in frame))
    order = [label for name in APPROACHES.values() for label in labels if label == name or (name == "replicate" and label.startswith("replicate"))]
    figure = style.new(0.7 + len(pairs) * (0.55 + 0.16 * len(order)))
    grid = figure.subplots(len(pairs), len(columns), squeeze=False, sharey=True)
    for row, pair in enumerate(pairs):
        for axes, name in zip(grid[row], columns, strict=True):
            axes.axvline(0, color=style.INK, linewidth=0.9)
            for label, value, low, high in found[pair, name]:
                primary = label == APPROACHES["item_percentile"]
                x, y, left, right = (np.array([number]) for number in (100 * value, float(order.index(label)), 100 * low, 100 * high))
                bars(axes, x, y, left, right, vertical=False, fmt="o", color=style.BLUE if primary else style.INK, markersize=3.5)
            axes.set_title(QUANTITIES[name][1] if row else f"{QUANTITIES[name][1]}, points")
            axes.grid(axis="y", visible=False)
        grid[row][0].set_yticks(range(len(order)), order)
        grid[row][0].set_ylim(len(order) - 0.5, -0.5)
        at = _headline_horizon(parts, pair)
        grid[row][0].set_title(f"{pair[0]} against {pair[1]}, B = {at}\n{QUANTITIES[columns[0]][1]}, points")
    return figure


def _columns(frame: pl.DataFrame) -> list[str]:
    """The quantities to show: Y and Y_sym at the headline horizon (by continuation where nothing is probed), and equal length."""
    estimated = frame.filter(pl.col("estimate").is_not_null())
    present = set(estimated.filter(pl.col("estimand") == "contrast")["readout"])
    kept = next((shown for by in verdicts.BY_READING if (shown := [name for name in by if name in present])), [])
    return kept + (["matched"] if "matched_contrast" in set(estimated["estimand"]) else [])


def _headline_horizon(parts: Parts, pair: tuple[str, str]) -> int | None:
    lengths = parts.select("lengths", estimand="mean_length").filter(pl.col("reference").is_null(), pl.col("estimate").is_not_null())
    means = [mean for arm in pair for mean in lengths.filter(pl.col("treatment") == arm)["estimate"]]
    if len(means) < 2:
        return None
    return verdicts.headline_horizon(means[0], means[1], sorted(set(parts.tables["policy"]["horizon"].drop_nulls())))


def _estimates(parts: Parts, pair: tuple[str, str], name: str) -> Sequence[tuple[str, float, float, float]]:
    """(method, estimate, lower and upper limit) of one quantity of one comparison."""
    estimand = QUANTITIES[name][0]
    frame = parts.select("inference", treatment=pair[0], reference=pair[1], estimand=estimand)
    frame = frame.filter(pl.col("approach").is_in(list(APPROACHES)), pl.col("estimate").is_not_null())
    if name == "matched":
        frame = frame.filter(pl.col("readout") == ("probe" if "probe" in set(frame["readout"]) else "continuation"))
    else:
        frame = frame.filter(pl.col("readout") == name, pl.col("horizon") == _headline_horizon(parts, pair))
    found = []
    for row in frame.iter_rows(named=True):
        label = APPROACHES[row["approach"]] + ("" if row["replicate"] is None else f" {row['replicate']} alone")
        limits = (row[side] if row[side] is not None else row["estimate"] for side in ("ci_low", "ci_high"))
        found.append((label, row["estimate"], *limits))
    return found
