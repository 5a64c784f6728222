"""Outcomes: one row per trace, horizon and readout; the table from which every contrast by horizon is computed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dataframely as dy
import polars as pl

from midtrace import config as study_config
from midtrace import tables
from midtrace.errors import InputError
from midtrace.tables import TableKey

SCORES = ("q_gold", "brier", "log_loss", "gold_log_odds")
# Readings of a cut, and what a readout's name ends in that rests on them.
READINGS = {"probe": "", "continuation": "_continuation"}
EVERYWHERE = dict.fromkeys(READINGS, ("policy", "common"))


def outcomes(
    items: pl.DataFrame,
    traces: pl.DataFrame,
    cuts: pl.DataFrame,
    readouts: pl.DataFrame,
    continuations: pl.DataFrame,
    horizons: Sequence[int] | None = None,
    contexts: Mapping[str, Sequence[str]] = EVERYWHERE,
    grid: Sequence[int] = (),
) -> pl.DataFrame:
    """The outcomes table.

    Parameters
    ----------
    items, traces, cuts, readouts, continuations
        Tables of any number of models, benchmarks, arms and replicates.
    horizons
        Horizons at which a run may stop. None: all.
    contexts
        Reading (``probe``, ``continuation``) -> the contexts in which the config has cuts read (:func:`midtrace.config.read_contexts`): they
        say which readouts there are, whatever the tables hold.
    grid
        Other horizons that have ``symmetric`` rows only, for the availability area.

    Returns
    -------
    polars.DataFrame
        ``terminal``: Y(B) = the natural answer if complete at B, else the probe under the own prompt. ``symmetric_own``: the probe under the own
        prompt, whatever the state. ``symmetric``: the probe in the common context ``context_arm``, whatever the state (method, section 3).
        ``terminal_continuation``, ``symmetric_own_continuation``, ``symmetric_continuation``: the same with the continued answer. Scores are
        null where no probe is used.

    Raises
    ------
    InputError
        If a cut that the config has read is missing from the tables.
    """
    base = (
        cuts.filter(pl.col("cut") == "horizon")
        .select("trace_id", "horizon", "complete")
        .join(traces.select("trace_id", "model", "item_id", "arm", "replicate", "token_exact", natural="correct"), on="trace_id")
        .join(items.select("item_id", "benchmark", "stratum"), on="item_id")
    )
    stops = base if horizons is None else base.filter(pl.col("horizon").is_in(list(horizons)))
    on_grid = base if horizons is None else base.filter(pl.col("horizon").is_in([*horizons, *grid]))
    unscored = [pl.lit(None, pl.Float64).alias(score) for score in SCORES]
    answered = continuations.filter(pl.col("mode") == "answer").with_columns(unscored)
    parts = []
    for reading, frame in (("probe", readouts), ("continuation", answered)):
        ending = READINGS[reading]
        read = frame.filter(pl.col("cut") == "horizon").select("trace_id", "horizon", "context", "context_arm", "correct", *SCORES)
        if "policy" in contexts.get(reading, ()):
            own = _read(stops, read, "policy", reading)
            natural = [pl.when("complete").then("natural").otherwise("correct").alias("correct")]
            natural += [pl.when("complete").then(None).otherwise(score).alias(score) for score in SCORES]
            parts.append(own.with_columns(natural, readout=pl.lit(f"terminal{ending}")))
            parts.append(own.with_columns(readout=pl.lit(f"symmetric_own{ending}")))
        if "common" in contexts.get(reading, ()):
            common = _read(on_grid if reading == "probe" else stops, read, "common", reading)
            parts.append(common.with_columns(readout=pl.lit(f"symmetric{ending}")))
    if not parts:
        return tables.Outcomes.create_empty()
    names = tables.Outcomes.column_names()
    order = ["model", "benchmark", "arm", "replicate", "item_id", "horizon", "readout", "context_arm"]
    return pl.concat([part.select(names) for part in parts]).sort(order)


def _read(stops: pl.DataFrame, read: pl.DataFrame, context: str, reading: str) -> pl.DataFrame:
    """Stops with what was read there in a context; one that was not read is an error, never left out."""
    found = stops.join(read.filter(pl.col("context") == context), on=["trace_id", "horizon"], how="left")
    absent = found.filter(pl.col("correct").is_null())
    if len(absent):
        trace_id, horizon = absent.select("trace_id", "horizon").row(0)
        problem = f"no {reading} at horizon {horizon}, context {context} ({len(absent)} in all)"
        raise InputError(trace_id, reading, problem, "every horizon read, as the config asks")
    return found


def run(inputs: Mapping[str, Sequence[str | Path]], output: str | Path, study: str, settings: Mapping[str, Any]) -> None:
    """Read the shards of all stages and write ``outcomes.parquet``, one shard of traces at a time: memory holds no more than that.

    Parameters
    ----------
    inputs
        Shards by stage: ``item_tables``, ``traces``, ``cuts``, ``readouts``, ``continuations``.
    output
        The outcomes table.
    study, settings
        Name of the study; see :func:`midtrace.config.outcomes_settings`.
    """
    items = read_stage("item_tables", inputs, settings)
    by_shard = {stage: {TableKey.parse(path): path for path in inputs.get(stage, ())} for stage in ("traces", "cuts", "readouts", "continuations")}

    def parts() -> Iterator[pl.DataFrame]:
        for names in sorted(by_shard["traces"], key=tuple):
            own = {stage: read_stage(stage, {stage: [paths[names]] if names in paths else []}, settings) for stage, paths in by_shard.items()}
            contexts = study_config.read_contexts(settings, TableKey.parse(by_shard["traces"][names]).benchmark)
            horizons, grid = settings["horizons"], settings["availability"]["horizons"]
            frame = outcomes(items, own["traces"], own["cuts"], own["readouts"], own["continuations"], horizons, contexts, grid)
            if len(frame):
                yield frame

    tables.write_parts(parts(), output, tables.Outcomes, lambda: tables.metadata("outcomes", study, settings))


STAGES: dict[str, tuple[type[dy.Schema], Callable[..., dict[str, Any]]]] = {
    "item_tables": (tables.Items, study_config.items_settings),
    "traces": (tables.Traces, study_config.graded_traces_settings),
    "cuts": (tables.Cuts, study_config.replay_settings),
    "readouts": (tables.Readouts, study_config.probe_settings),
    "continuations": (tables.Continuations, study_config.graded_continuation_settings),
    "controls": (tables.Controls, study_config.controls_settings),
}


def names_of(path: str | Path, stage: str) -> TableKey | tuple[str, ...]:
    """What a file of a stage is about, from the end of its path (contract): benchmark; model, benchmark; or the key of a table of runs."""
    depth = {"item_tables": 1, "controls": 2}.get(stage)
    return TableKey.parse(path) if depth is None else Path(path).with_suffix("").parts[-depth:]


def read_stage(stage: str, inputs: Mapping[str, Sequence[str | Path]], config: Mapping[str, Any]) -> pl.DataFrame:
    """All rows of a stage (a key of ``STAGES``), checked against their schema and config; no file gives no rows."""
    schema, settings_of = STAGES[stage]
    found = [tables.read(path, schema, settings_of(config, *names_of(path, stage))) for path in inputs.get(stage, ())]
    return pl.concat([schema.create_empty(), *found])


def scan_stages(inputs: Mapping[str, Sequence[str | Path]], config: Mapping[str, Any]) -> dict[str, pl.LazyFrame]:
    """Lazy tables by stage; a stage without files has no rows.

    Parameters
    ----------
    inputs
        Shards by stage (a key of ``STAGES``), at the paths of the contract: the names of a shard are the end of its path.
    config
        What the shards must belong to; a shard of another config is refused.
    """
    return {
        stage: tables.scan([(path, settings_of(config, *names_of(path, stage))) for path in inputs.get(stage, ())], schema)
        for stage, (schema, settings_of) in STAGES.items()
    }
