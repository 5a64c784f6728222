"""Read the tables of a study, draw its figures, write its tables for readers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from midtrace import tables
from midtrace.errors import InputError
from midtrace.figures import catalogue, panels, style
from midtrace.figures.paper_tables import paper_tables
from midtrace.figures.parts import Parts
from midtrace.figures.text_tables import write_csv, write_tex


def read_decomposition(inputs: Mapping[str, str | Path], analysis: Mapping[str, Any]) -> dict[str, pl.DataFrame]:
    """Decomposition tables by name; a file of another config is refused.

    Parameters
    ----------
    inputs
        Table name -> file.
    analysis
        See :func:`midtrace.config.analysis_settings`.
    """
    return {name: tables.read(path, expected=analysis) for name, path in inputs.items()}


def read_runs(paths: Sequence[str | Path]) -> pl.DataFrame:
    """Traces without ids and texts: keys, ``benchmark``, ``n_reasoning``, ``status``, ``answer``, ``grade_note``."""
    columns = ["trace_id", "model", "item_id", "arm", "replicate", "n_reasoning", "status", "answer", "grade_note"]
    frame = tables.scan([(path, None) for path in paths], tables.Traces).select(columns).collect()
    return frame.with_columns(benchmark=pl.col("item_id").str.split("/").list.first())


def chance_level(paths: Sequence[str | Path]) -> dict[str, float]:
    """Benchmark -> mean of 1 / options over its items, where they have options. No text of an item is read."""
    counts = tables.scan([(path, None) for path in paths], tables.Items).select("benchmark", n=pl.col("options").list.len()).collect()
    return dict(counts.filter(pl.col("n") > 0).group_by("benchmark", maintain_order=True).agg((1 / pl.col("n")).mean()).iter_rows())


def parts_of(
    found: Mapping[str, pl.DataFrame], runs: pl.DataFrame, chance: Mapping[str, float], settings: Mapping[str, Any], model: str, benchmark: str
) -> Parts:
    """What the figures of one model and benchmark are drawn from; see :class:`midtrace.figures.parts.Parts`."""
    analysis = settings["analysis"]
    order = {arm: place for place, arm in enumerate(settings["arms"])}
    own = catalogue.of(runs, model, benchmark)
    return Parts(
        {name: frame if name == catalogue.STUDY_WIDE else catalogue.of(frame, model, benchmark) for name, frame in found.items()},
        own.sort(pl.col("arm").replace_strict(order, default=len(order), return_dtype=pl.Int64), maintain_order=True),
        [(c["treatment"], c["reference"]) for c in analysis["comparisons"]],
        chance.get(benchmark),
        analysis["inference"]["margin"],
        analysis["inference"]["level"],
    )


def run(
    decomposition: Mapping[str, str | Path],
    item_tables: Sequence[str | Path],
    traces: Sequence[str | Path],
    figures: Sequence[str | Path],
    text_tables: Sequence[str | Path],
    settings: Mapping[str, Any],
) -> None:
    """Write ``figures/*`` and ``tables/*``.

    Parameters
    ----------
    decomposition
        Table name -> file of ``decomposition/``.
    item_tables, traces
        Shards of these stages.
    figures, text_tables
        Files to write; their names say what they show.
    settings
        See :func:`midtrace.config.figures_settings`.
    """
    found = read_decomposition(decomposition, settings["analysis"])
    runs, chance = read_runs(traces), chance_level(item_tables)
    pending = {str(path) for path in figures}
    for kind, model, benchmark in catalogue.wanted(settings):
        paths = sorted(path for path in pending if Path(path).stem == catalogue.stem(kind.name, model, benchmark))
        if not paths:
            continue
        style.save(panels.draw(kind.name, parts_of(found, runs, chance, settings, model, benchmark)), paths)
        pending -= set(paths)
    shown = {**found, **paper_tables(found)}
    for path in map(Path, text_tables):
        path.parent.mkdir(parents=True, exist_ok=True)
        (write_csv if path.suffix == ".csv" else write_tex)(shown[path.stem], path)
    if pending:
        raise InputError(sorted(pending)[0], "figure", "is none that the config asks for", catalogue.stems(settings))
