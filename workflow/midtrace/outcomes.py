"""Outcomes: one row per trace, horizon and readout; the table from which every contrast by horizon is computed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dataframely as dy
import polars as pl

from midtrace import config as study_config
from midtrace import tables
from midtrace.tables import TableKey

SCORES = ("q_gold", "brier", "log_loss", "gold_log_odds")


def outcomes(
    items: pl.DataFrame,
    traces: pl.DataFrame,
    cuts: pl.DataFrame,
    readouts: pl.DataFrame,
    continuations: pl.DataFrame,
    horizons: Sequence[int] | None = None,
) -> pl.DataFrame:
    """The outcomes table.

    Parameters
    ----------
    items, traces, cuts, readouts, continuations
        Tables of any number of models, benchmarks, arms and replicates; ``readouts`` is empty where no benchmark has options.
    horizons
        Horizons at which a run may stop; at others (the availability grid) there are ``symmetric`` rows only. None: all.

    Returns
    -------
    polars.DataFrame
        ``terminal``: Y(B) = the natural answer if complete at B, else the probe under the own prompt. ``terminal_continuation``: the same
        with the continued answer. ``symmetric``: the probe in the common context ``context_arm``, whatever the state (method, section 3).
        Scores are null where the natural answer is used.
    """
    base = (
        cuts.filter(pl.col("cut") == "horizon")
        .select("trace_id", "horizon", "complete")
        .join(traces.select("trace_id", "model", "item_id", "arm", "replicate", "token_exact", natural="correct"), on="trace_id")
        .join(items.select("item_id", "benchmark", "stratum"), on="item_id")
    )
    stops = base if horizons is None else base.filter(pl.col("horizon").is_in(list(horizons)))
    keys = ["trace_id", "horizon"]
    parts = []
    if len(readouts):
        read = readouts.filter(pl.col("cut") == "horizon").select(*keys, "context", "context_arm", "correct", *SCORES)
        policy = stops.join(read.filter(pl.col("context") == "policy"), on=keys)
        natural = pl.col("complete")
        parts.append(
            policy.with_columns(
                pl.when(natural).then("natural").otherwise("correct").alias("correct"),
                *(pl.when(natural).then(None).otherwise(score).alias(score) for score in SCORES),
                readout=pl.lit("terminal"),
            )
        )
        parts.append(base.join(read.filter(pl.col("context") == "common"), on=keys).with_columns(readout=pl.lit("symmetric")))
    continued = continuations.filter(pl.col("cut") == "horizon", pl.col("mode") == "answer").select(*keys, "correct")
    if len(continued):
        parts.append(
            stops.join(continued, on=keys, how="left")
            .filter(pl.col("complete") | pl.col("correct").is_not_null())
            .with_columns(
                pl.when("complete").then("natural").otherwise("correct").alias("correct"),
                *(pl.lit(None, pl.Float64).alias(score) for score in SCORES),
                readout=pl.lit("terminal_continuation"),
                context_arm="arm",
            )
        )
    if not parts:
        return tables.Outcomes.create_empty()
    names = tables.Outcomes.column_names()
    order = ["model", "benchmark", "arm", "replicate", "item_id", "horizon", "readout", "context_arm"]
    return pl.concat([part.select(names) for part in parts]).sort(order)


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
    by_shard = {stage: {names_of(path, stage): path for path in inputs.get(stage, ())} for stage in ("traces", "cuts", "readouts", "continuations")}

    def parts() -> Iterator[pl.DataFrame]:
        for names in sorted(by_shard["traces"], key=tuple):
            own = {stage: read_stage(stage, {stage: [paths[names]] if names in paths else []}, settings) for stage, paths in by_shard.items()}
            frame = outcomes(items, own["traces"], own["cuts"], own["readouts"], own["continuations"], settings["horizons"])
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
