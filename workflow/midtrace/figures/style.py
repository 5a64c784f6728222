"""How figures look, and how they are written: the same input gives the same bytes."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from midtrace.tables import whole

WIDTH = 7.2  # inches: a page's text width, so that nine points stay nine points
# Okabe and Ito: told apart with every common colour vision.
BLUE, VERMILLION, GREEN, ORANGE, SKY, PURPLE, GREY, INK = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#8A8A8A", "#222222"
SIDES = {
    "treatment": {"color": BLUE, "linestyle": "-", "marker": "o"},
    "reference": {"color": VERMILLION, "linestyle": "--", "marker": "s"},
}
ARMS = tuple(
    {"color": color, "linestyle": line, "marker": marker}
    for color, line, marker in zip(
        (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, INK, GREY),
        ("-", "--", "-.", ":", (0, (6, 1.5)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2, 1, 2))),
        ("o", "s", "^", "D", "v", "P", "X", "*"),
        strict=True,
    )
)
STRATA: dict[str, dict[str, Any]] = {
    "treatment_complete": {"label": "only the treatment has finished", "color": BLUE, "hatch": "///"},
    "both_active": {"label": "both still think", "color": GREEN, "hatch": "..."},
    "reference_complete": {"label": "only the reference has finished", "color": VERMILLION, "hatch": "\\\\\\"},
    "both_complete": {"label": "both have finished", "color": "#BBBBBB", "hatch": ""},
}
RC: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same glyphs on every machine
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "text.parse_math": False,  # names of arms and effects are text, also when they hold a dollar sign
    "svg.hashsalt": "midtrace",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "savefig.dpi": 160,
    "figure.facecolor": "white",
}
# No dates, no versions: bytes depend on what is drawn.
METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}


@contextmanager
def drawing() -> Iterator[None]:
    """In this block matplotlib draws in this style and by its own defaults; what a matplotlibrc of the user says is no part of a figure."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(RC)
        yield


def new(height: float) -> Figure:
    """An empty figure of page width; ``height`` in inches. Call under :func:`drawing`."""
    return Figure(figsize=(WIDTH, height), layout="constrained")


def save(figure: Figure, paths: Iterable[str | Path]) -> None:
    """Write a figure, in the format that each file name ends in."""
    for path in map(Path, paths):
        extension = path.suffix[1:]
        drawn = BytesIO()  # on a full disk matplotlib stumbles when it tidies up, and hides what was wrong
        with drawing():
            figure.savefig(drawn, format=extension, metadata=METADATA[extension])
        with whole(path) as temporary:
            temporary.write_bytes(drawn.getvalue())


def nothing(text: str = "Nothing to draw: the study has no such rows.") -> Figure:
    """The figure that stands where there is nothing to show."""
    figure = new(1.0)
    figure.text(0.5, 0.5, text, ha="center", va="center", color=INK)
    return figure


def title(treatment: str, reference: str, readout: str = "") -> str:
    """Title of the panel of a comparison, in as many lines as it needs."""
    return "\n".join(textwrap.wrap(f"{treatment} against {reference}" + (f", {readout}" if readout else ""), 42))


def horizon_axis(axes: Axes, horizons: Sequence[int], label: bool = True) -> None:
    """Scale and ticks of an axis of horizons: linear, or logarithmic where they span more than a factor of 32; no ticks that collide."""
    positive = [h for h in horizons if h > 0]
    if positive and max(positive) / min(positive) > 32:
        axes.set_xscale("symlog", base=2, linthresh=min(positive), linscale=0.5)
    if label:
        axes.set_xlabel("reasoning tokens B")
    if len(set(horizons)) > 1:
        pad = 0.03 * (max(horizons) - min(horizons))
        axes.set_xlim(min(horizons) - (pad if axes.get_xscale() == "linear" else 0.2 * min(positive)), max(horizons) + pad)
    transform = axes.get_xaxis().get_transform()
    places = transform.transform([float(h) for h in horizons])
    span = (places.max() - places.min()) or 1.0
    kept: list[int] = []
    for horizon, place in sorted(zip(horizons, places, strict=True), reverse=True):
        if not kept or min(abs(place - transform.transform([float(k)])[0]) for k in kept) >= 0.075 * span:
            kept.append(horizon)
    axes.set_xticks(sorted(kept), [str(h) for h in sorted(kept)], minor=False)
    axes.minorticks_off()
