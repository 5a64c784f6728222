"""Kinds of figures by name."""

from collections.abc import Callable

from matplotlib.figure import Figure

from midtrace.figures import checks, effects, methods, sources, style
from midtrace.figures.parts import Parts

DRAWN: dict[str, Callable[[Parts], Figure | None]] = {
    "decomposition": effects.decomposition,
    "split": sources.split,
    "bounds": sources.bounds,
    "policy": effects.policy,
    "matched": effects.matched,
    "early": effects.early,
    "lengths": effects.lengths,
    "validity": checks.validity,
    "falsifier": methods.falsifier,
    "controls": checks.controls,
    "methods": methods.methods,
    "planted": checks.planted,
}


def draw(kind: str, parts: Parts) -> Figure:
    """Draw one kind of figure (a name of :mod:`midtrace.figures.catalogue`); a note stands where there is nothing to draw."""
    with style.drawing():
        return DRAWN[kind](parts) or style.nothing()
