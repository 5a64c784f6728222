"""Tables of a comparison: policy, strata, scores, availability, matched horizon, falsifier, lengths."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from midtrace import estimands
from midtrace.decomposition.estimates import bootstrap_settings, one_row, strata_of, with_intervals, with_tests
from midtrace.decomposition.sources import source_tables, source_terms
from midtrace.inference import bounded, equivalence

POLICY_KEYS = ["estimand", "horizon", "readout"]
SENSITIVITY_COLUMNS = ["item_id", "replicate", "estimand", "readout", "horizon", "value", "within"]
STRATA_KEYS = ["horizon", "readout", "termination"]


def policy_terms(pairs: pl.DataFrame) -> pl.DataFrame:
    """Item terms of all estimands of the policy table."""
    return pl.concat([estimands.policy_terms(pairs), estimands.both_active_terms(pairs), estimands.gap_terms(pairs)])


def policy(pairs: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Policy accuracy, its parts and contrasts, the both-active contrast, and the readout and context gaps, by horizon and readout."""
    return with_intervals(policy_terms(pairs), POLICY_KEYS, settings)


def strata(pairs: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Termination strata by horizon and readout, with limits of contribution (``ci_low``, ``ci_high``), share and difference."""
    return strata_table(estimands.strata_terms(pairs), settings)


def strata_table(terms: Mapping[str, pl.DataFrame], settings: Mapping[str, Any]) -> pl.DataFrame:
    """The strata table of the terms of :func:`midtrace.estimands.strata_terms`."""
    stacked = pl.concat(terms[name].with_columns(part=pl.lit(name)) for name in ("contribution", "share", "difference"))
    found = with_intervals(stacked, ["part", *STRATA_KEYS], settings)
    table = found.filter(pl.col("part") == "contribution").drop("part")
    for name in ("share", "difference"):
        columns = [pl.col("estimate").alias(name), pl.col("ci_low").alias(f"{name}_low"), pl.col("ci_high").alias(f"{name}_high")]
        part = found.filter(pl.col("part") == name).select(*STRATA_KEYS, *columns)
        table = table.join(part, on=STRATA_KEYS, how="left", maintain_order="left")
    return table.with_columns(estimand=pl.lit("contribution"), contribution="estimate")


def tested(table: pl.DataFrame, terms: pl.DataFrame, by: list[str], settings: Mapping[str, Any]) -> pl.DataFrame:
    """Add ``p`` of the t test to the contrasts of a table."""
    return with_tests(table, terms.filter(pl.col("estimand").str.ends_with("contrast")), by, settings)


def by_horizon(
    outcomes: pl.LazyFrame, traces: pl.DataFrame, matched: pl.DataFrame, comparison: Mapping[str, str], settings: Mapping[str, Any]
) -> tuple[dict[str, pl.DataFrame], pl.DataFrame]:
    """The tables by horizon of one comparison, and its pairs for sensitivity analyses.

    Parameters
    ----------
    outcomes
        Token-exact outcomes of one model and benchmark, lazy: rows are read one horizon at a time and aggregated to item terms, so that
        memory holds the pairs of a horizon, not those of a study.
    traces, matched
        Token-exact traces of this model and benchmark; pairs at the matched horizon (:func:`matched_reads`).
    comparison, settings
        Arms; see :func:`midtrace.config.analysis_settings`.

    Returns
    -------
    tuple
        Tables ``policy``, ``strata``, ``scores``, ``dominance``, ``bounds``, ``survivors`` and ``split``; and pairs:
        ``item_id``, ``replicate``, ``estimand``, ``readout``, ``horizon``,
        ``value``, ``within``.
    """
    t, r, common = comparison["treatment"], comparison["reference"], comparison["common"]
    chosen = outcomes.filter(pl.col("arm").is_in([t, r]), estimands.in_context(common))
    runs = traces.filter(pl.col("arm").is_in([t, r]))
    found: dict[str, list[pl.DataFrame]] = defaultdict(list)
    for horizon in settings["horizons"]:
        rows = chosen.filter(pl.col("horizon") == horizon).collect(engine="streaming")
        pairs = estimands.pairs(rows, t, r, common)
        if pairs.is_empty():
            continue
        found["policy"].append(policy_terms(pairs))
        for name, part in {**estimands.strata_terms(pairs), **source_terms(pairs, runs, matched, t, r)}.items():
            found[name].append(part)
        if (pairs["readout"] == "symmetric").any():
            found["scores"].append(estimands.score_terms(rows, t, r, common))
        found["pairs"].append(sensitivity_pairs(pairs))
    if not found["pairs"]:
        return {}, pl.DataFrame()
    terms = {name: pl.concat(parts) for name, parts in found.items()}
    order = ["readout", "horizon"]
    tables = {
        "policy": tested(with_intervals(terms["policy"], POLICY_KEYS, settings), terms["policy"], POLICY_KEYS, settings).sort(
            "estimand", *order, maintain_order=True
        ),
        "strata": strata_table(terms, settings).sort(order, maintain_order=True),
        **source_tables(terms, runs.filter(pl.col("arm") == r), settings),
    }
    if "scores" in terms:
        tables["scores"] = with_intervals(terms["scores"], POLICY_KEYS, settings).sort("estimand", *order, maintain_order=True)
    return tables, terms["pairs"]


def sensitivity_pairs(pairs: pl.DataFrame) -> pl.DataFrame:
    """The pairs of the contrasts that are held against other methods of inference."""
    contrast = pairs.with_columns(estimand=pl.lit("contrast"), value=pl.col("difference"), within=pl.lit(True))
    active = pairs.filter(pl.col("readout").is_in(estimands.COMMON)).with_columns(
        estimand=pl.lit("both_active_contrast"), value=pl.col("difference"), within=pl.col("termination") == "both_active"
    )
    return pl.concat([contrast.select(SENSITIVITY_COLUMNS), active.select(SENSITIVITY_COLUMNS)])


def availability(outcomes: pl.LazyFrame, comparison: Mapping[str, str], settings: Mapping[str, Any]) -> pl.DataFrame:
    """Area under the gold log-odds of both arms and their contrast."""
    t, r, common = comparison["treatment"], comparison["reference"], comparison["common"]
    grid = settings["availability"]["horizons"]
    wanted = ["item_id", "replicate", "arm", "horizon", "readout", "context_arm", "complete", "gold_log_odds"]
    kept = outcomes.filter(pl.col("arm").is_in([t, r]), pl.col("readout") == "symmetric", pl.col("context_arm") == common)
    rows = kept.select(wanted).collect(engine="streaming").sort("arm", "item_id", "replicate", "horizon")
    if set(rows["arm"]) != {t, r}:
        return pl.DataFrame()
    terms = estimands.availability_terms(rows, t, r, common, grid)
    return with_intervals(terms, ["estimand"], settings).with_columns(readout=pl.lit("symmetric"), horizon=pl.lit(max(grid), pl.Int32))


def matched_reads(frames: Mapping[str, pl.DataFrame], traces: pl.DataFrame, comparison: Mapping[str, str]) -> pl.DataFrame:
    """Pairs at the matched horizon by probe and by continuation (``readout``); columns as :func:`midtrace.estimands.matched_pairs`."""
    reads = {"probe": frames["readouts"], "continuation": frames["continuations"].filter(pl.col("mode") == "answer")}
    arms = comparison["treatment"], comparison["reference"], comparison["common"]
    return pl.concat(estimands.matched_pairs(frame, traces, *arms).with_columns(readout=pl.lit(name)) for name, frame in reads.items())


def matched(frames: Mapping[str, pl.DataFrame], traces: pl.DataFrame, comparison: Mapping[str, str], settings: Mapping[str, Any]) -> pl.DataFrame:
    """Accuracy of both sides and their contrast at the matched horizon, by probe and by continuation, with the equivalence test.

    Parameters
    ----------
    frames
        ``readouts`` and ``continuations`` of matched cuts.
    traces, comparison, settings
        Traces of one model and benchmark; arms; see :func:`midtrace.config.analysis_settings`.
    """
    pairs = matched_reads(frames, traces, comparison)
    if pairs.is_empty():
        return pl.DataFrame()
    sides = {f"matched_accuracy_{name}": pl.col(f"correct_{side}") == 1 for side, name in (("t", "treatment"), ("r", "reference"))}
    values = {"matched_contrast": pl.col("difference"), **sides}
    terms = pl.concat(estimands.named(pairs, name, ["readout"], value) for name, value in values.items())
    by = ["estimand", "readout"]
    found = [tested(with_intervals(terms, by, settings), terms, by, settings)]
    margin, level = settings["inference"]["margin"], settings["inference"]["level"]
    for (readout,), part in pairs.group_by("readout", maintain_order=True):
        means = part.group_by("item_id", maintain_order=True).agg(pl.col("difference").mean())
        if len(means) > 1:
            test = equivalence(means["difference"].to_numpy(), margin, level, strata_of(means["item_id"], settings))
            method = f"two one-sided t tests, margin {margin:g}{', within strata' if settings.get('strata') else ''}"
            found.append(one_row("matched_equivalence_p", test["p"], len(means), len(part), method, readout=readout, p=test["p"]))
    return pl.concat(found, how="diagonal").sort("readout", descending=True, maintain_order=True)


def matched_sensitivity_pairs(pairs: pl.DataFrame) -> pl.DataFrame:
    """Pairs of :func:`matched_reads` for sensitivity analyses, as in :func:`by_horizon` with ``horizon`` null."""
    constants = {"estimand": pl.lit("matched_contrast"), "horizon": pl.lit(None, pl.Int32), "within": pl.lit(True)}
    return pairs.with_columns(value="difference", **constants).select(SENSITIVITY_COLUMNS)


def falsifier(
    readouts: pl.DataFrame, traces: pl.DataFrame, comparison: Mapping[str, str], settings: Mapping[str, Any], by: str = "probe"
) -> pl.DataFrame:
    """The falsifier by prefix fraction, in the common context and under the run's own prompt.

    A bin without prefixes has a row that says so; ``by`` says what the readouts are.
    """
    t, r = comparison["treatment"], comparison["reference"]
    edges = settings["validity"]["bins"]
    found = []
    for context, arm in (("common", comparison["common"]), ("policy", r)):
        if readouts.filter(pl.col("context") == context, pl.col("context_arm") == arm, pl.col("partner_arm") == t).is_empty():
            continue
        rows = estimands.falsifier_rows(readouts, traces, t, r, context, arm)
        table = estimands.agreement(estimands.binned(rows, edges), ["fraction"], **bootstrap_settings(settings))
        empty = [edge for edge in edges if table.is_empty() or edge not in table["fraction"]]
        lacking = [one_row("agreement", None, 0, 0, "no prefix", fraction=edge) for edge in empty]
        joined = pl.concat([part for part in (table, *lacking) if len(part)], how="diagonal_relaxed")
        found.append(joined.with_columns(context=pl.lit(context), readout=pl.lit(by)))
    return pl.concat(found, how="diagonal_relaxed") if found else pl.DataFrame()


def length_contrasts(traces: pl.DataFrame, treatment: str, reference: str, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Geometric-mean ratio and median ratio of the reasoning lengths, treatment over reference."""
    pairs = estimands.length_pairs(traces, treatment, reference)
    if pairs.is_empty():
        return pl.DataFrame()
    positive = pairs.filter(pl.col("log_ratio").is_not_null())
    found = []
    if len(positive):
        ratio = with_intervals(estimands.named(positive, "geometric_mean_ratio", [], pl.col("log_ratio")), ["estimand"], settings)
        found.append(ratio.with_columns(pl.col("estimate", "ci_low", "ci_high").exp()))
    if pairs["length_r"].median():
        items = pairs["item_id"].unique().sort()
        result = estimands.median_ratio(pairs, **{**bootstrap_settings(settings), "strata": strata_of(items, settings)})
        alike = np.array([len(items) == 1])
        row = bounded(result, alike, settings["inference"]["level"], np.array([len(items)]), np.array([False]))
        found.append(row.with_columns(estimand=pl.lit("median_ratio"), n_items=pl.lit(len(items)), n_pairs=pl.lit(len(pairs))))
    return pl.concat(found, how="diagonal_relaxed") if found else pl.DataFrame()
