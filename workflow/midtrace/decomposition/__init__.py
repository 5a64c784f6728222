"""Stage 6: decomposition. From outcomes and readouts to tables of estimates, one row per estimate."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from midtrace import estimands, planted, tables
from midtrace.decomposition import arms, contrasts, sensitivity, sources
from midtrace.decomposition.arms import arm_lengths, controls, retokenisation
from midtrace.decomposition.contrasts import length_contrasts, matched, policy, strata
from midtrace.decomposition.estimates import label
from midtrace.decomposition.readings import READ_COLUMNS, agreement, stand_in, validity
from midtrace.decomposition.readings import readings as made_readings
from midtrace.outcomes import scan_stages

__all__ = ["arm_lengths", "controls", "decompose", "length_contrasts", "matched", "policy", "retokenisation", "run", "shape", "strata", "validity"]

TRACE_COLUMNS = [
    "trace_id",
    "model",
    "item_id",
    "arm",
    "replicate",
    "status",
    "n_reasoning",
    "format_after",
    "answer",
    "correct",
    "grade_note",
    "drift_at",
    "token_exact",
]
CONTINUED_COLUMNS = [
    "trace_id",
    "cut_id",
    "cut",
    "horizon",
    "fraction",
    "partner_arm",
    "n_tokens",
    "complete",
    "context",
    "context_arm",
    "mode",
    "answer",
    "correct",
]


def run(
    outcomes: str | Path,
    inputs: Mapping[str, Sequence[str | Path]],
    planted_file: str | Path | None,
    outputs: Mapping[str, str | Path],
    study: str,
    settings: Mapping[str, Any],
) -> None:
    """Write all tables of ``decomposition/``.

    Parameters
    ----------
    outcomes
        ``outcomes.parquet``.
    inputs
        Shards by stage: ``item_tables``, ``traces``, ``cuts``, ``readouts``, ``continuations``, ``controls``; and tables of estimates,
        ``interruptions``.
    planted_file
        Planted effects, or None.
    outputs
        Table name (a key of ``tables.DECOMPOSITION``) -> file.
    study, settings
        Name of the study; see :func:`midtrace.config.analysis_settings`.
    """
    frames = scan_stages(inputs, settings["outcomes"])
    frames["outcomes"] = tables.scan([(outcomes, settings["outcomes"])], tables.Outcomes)
    found = decompose(frames, settings)
    # Tables that another rule wrote: they are held against what was planted too.
    others = {Path(path).stem: _of_another_rule(path, settings) for path in inputs.get("interruptions", ())}
    found["planted"] = planted.compare({**found, **others}, planted_file)
    # Without any token-exact trace the primary tables are empty, and only the sensitivity table speaks.
    exact = frames["traces"].select(pl.col("token_exact").any()).collect().item()
    for name, path in outputs.items():
        frame = shape(found[name], name)
        required = name in ("policy", "strata", "lengths") if exact else name == "sensitivity"
        tables.write(frame, path, None, tables.metadata("decomposition", study, settings, table=name), expect_rows=required)


def _of_another_rule(path: str | Path, settings: Mapping[str, Any]) -> pl.DataFrame:
    """A table of estimates of interruptions; one of another study config is refused. Its own settings are its rule's business."""
    own = tables.read_metadata(path)["identity"]
    tables.check_identity(path, {**own, "study": settings["outcomes"]})
    return tables.read(path)


def shape(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """Give a table its declared columns; what it lacks is null."""
    columns = {**tables.ESTIMATE_COLUMNS, **tables.DECOMPOSITION[name]}
    if frame.is_empty():
        return pl.DataFrame(schema=columns)
    absent = [pl.lit(None, dtype).alias(column) for column, dtype in columns.items() if column not in frame.columns]
    ordered = frame.with_columns(absent).select(pl.col(column).cast(dtype) for column, dtype in columns.items())
    return ordered.with_columns(pl.selectors.float().fill_nan(None))


def decompose(frames: Mapping[str, pl.DataFrame | pl.LazyFrame], settings: Mapping[str, Any]) -> dict[str, pl.DataFrame]:
    """All tables but ``planted``, by name, for every model, benchmark and comparison.

    Parameters
    ----------
    frames
        ``item_tables``, ``traces``, ``cuts``, ``readouts``, ``continuations``, ``controls``, ``outcomes``; lazy frames are scanned for what a
        table needs and never collected whole.
    settings
        See :func:`midtrace.config.analysis_settings`.

    Notes
    -----
    Traces that are not token-exact are in ``sensitivity`` only.
    """
    lazy = {name: frame.lazy() for name, frame in frames.items()}
    items = lazy["item_tables"].select("item_id", "benchmark", "stratum").collect()
    there = lazy["traces"].collect_schema().names()
    columns = [name for name in TRACE_COLUMNS if name not in ("format_after", "grade_note") or name in there]  # frames made by hand have none
    traces = lazy["traces"].select(columns).join(items.lazy().select("item_id", "benchmark"), on="item_id").collect(engine="streaming")
    if settings["inference"].get("strata"):
        settings = {**settings, "strata": dict(items.select("item_id", "stratum").iter_rows())}
    # The copies of one output are looked for among token-exact traces; a study's ids are read once, as digests.
    copies = arms.duplicates(lazy["traces"].filter("token_exact"))
    found: dict[str, list[pl.DataFrame]] = {name: [] for name in tables.DECOMPOSITION}
    for model in settings["models"]:
        for benchmark in settings["benchmarks"]:
            own = traces.filter(pl.col("model") == model, pl.col("benchmark") == benchmark).sort("trace_id")
            for name, table in _of_benchmark(lazy, own, copies, settings):
                found[name].append(label(table, {"model": model, "benchmark": benchmark}))
            read = lazy["controls"].filter(pl.col("model") == model, pl.col("item_id").str.starts_with(f"{benchmark}/")).collect()
            found["controls"].append(label(arms.controls(read, settings), {"model": model, "benchmark": benchmark}))
    joined = {
        name: pl.concat([f for f in parts if len(f)], how="diagonal_relaxed") if any(map(len, parts)) else pl.DataFrame()
        for name, parts in found.items()
    }
    tested = {name: sensitivity.adjusted(joined[name], settings) for name in ("policy", "matched", "inference")}
    return {**joined, **tested, "dominance": sources.claimed(joined["dominance"], settings)}


def _of_benchmark(
    lazy: Mapping[str, pl.LazyFrame], traces: pl.DataFrame, copies: pl.DataFrame, settings: Mapping[str, Any]
) -> Iterator[tuple[str, pl.DataFrame]]:
    """Tables by name of one model and benchmark."""
    if traces.is_empty():
        return
    model, benchmark = traces["model"][0], traces["benchmark"][0]
    ids = traces.lazy().select("trace_id")

    def part(stage: str, columns: list[str], *conditions: pl.Expr) -> pl.DataFrame:
        rows = lazy[stage].filter(*conditions).select(columns).join(ids, on="trace_id", how="semi").collect(engine="streaming")
        return rows.sort("trace_id", "cut_id", *(key for key in ("context", "context_arm", "mode") if key in columns))

    is_matched = pl.col("cut") == "matched"
    matched_reads = {"readouts": part("readouts", READ_COLUMNS, is_matched), "continuations": part("continuations", CONTINUED_COLUMNS, is_matched)}
    outcomes = lazy["outcomes"].filter(pl.col("model") == model, pl.col("benchmark") == benchmark)
    exact, exact_outcomes = traces.filter("token_exact"), outcomes.filter("token_exact")
    # Where there are no options to probe, the continued answer stands in for the probe, and answers are compared as right or wrong.
    prefixes, by = matched_reads["readouts"], "probe" if benchmark in settings["probed"] else "continuation"
    reads, continued, comparable = lazy["readouts"], lazy["continuations"], exact
    if by == "continuation":
        reads, continued = stand_in(continued), continued.with_columns(answer=estimands.right_or_wrong())
        comparable, prefixes = exact.with_columns(answer=estimands.right_or_wrong()), stand_in(matched_reads["continuations"].lazy()).collect()
    for comparison in settings["comparisons"]:
        t, r = comparison["treatment"], comparison["reference"]
        both = {"treatment": t, "reference": r}
        at_matched = contrasts.matched_reads(matched_reads, exact, comparison)
        by_horizon, pairs = contrasts.by_horizon(exact_outcomes, exact, at_matched, comparison, settings)
        at_matched_pairs = contrasts.matched_sensitivity_pairs(at_matched)
        made = {
            **by_horizon,
            "matched": contrasts.matched(matched_reads, exact, comparison, settings),
            "availability": contrasts.availability(exact_outcomes, comparison, settings),
            "falsifier": contrasts.falsifier(prefixes, comparable, comparison, settings, by),
            "lengths": contrasts.length_contrasts(exact, t, r, settings),
            "inference": sensitivity.inference([pairs, at_matched_pairs], settings),
            "sensitivity": sensitivity.text_cohort(outcomes, matched_reads, traces, comparison, settings),
        }
        yield from ((name, label(table, both)) for name, table in made.items())
    readings = made_readings(reads, continued, comparable, by, settings["horizons"], settings["validity"]["later"])
    if settings["judge"] and benchmark in settings["judge"]["benchmarks"]:
        judged = arms.judged(traces, lazy["traces"], lazy["continuations"])
        for arm in judged["arm"].unique(maintain_order=True):
            yield "judging", label(arms.judging(judged.filter(pl.col("arm") == arm), settings), {"treatment": arm})
    for arm in exact["arm"].unique(maintain_order=True):
        mine = exact.filter(pl.col("arm") == arm)
        read = readings.filter(pl.col("arm") == arm)
        at_horizons = lazy["cuts"].filter(pl.col("cut") == "horizon").select("trace_id", "cut", "horizon", "drift")
        cuts = at_horizons.join(mine.lazy().select("trace_id"), on="trace_id", how="semi").collect(engine="streaming")
        repeated = copies.filter(pl.col("model") == model, pl.col("arm") == arm).join(mine, on="item_id", how="semi")
        made = {
            "lengths": arms.arm_lengths(mine, settings),
            "validity": validity(read, settings),
            "agreement": agreement(read, settings),
            "retokenisation": arms.retokenisation(cuts, mine, settings),
            "replicates": arms.replicates(repeated, mine, settings),
        }
        yield from ((name, label(table, {"treatment": arm})) for name, table in made.items())
