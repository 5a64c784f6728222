"""Contrasts under other methods of inference, and in cohorts that no primary table holds."""

import gc
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from midtrace import estimands
from midtrace.decomposition.contrasts import length_contrasts, matched, policy_terms
from midtrace.decomposition.estimates import bootstrap_settings, strata_of, with_intervals
from midtrace.inference import (
    CrossedFit,
    crossed_intercepts,
    equivalence,
    holm,
    linear_scores,
    mean_p,
    nested_bootstrap,
    per_replicate,
    two_way_bootstrap,
)
from midtrace.inference.alike import NO_SPREAD, all_alike
from midtrace.inference.bootstrap import stratum_codes

KEYS = ["estimand", "readout", "horizon"]
FAMILIES = {
    "comparison": ["model", "benchmark", "treatment", "reference", "estimand", "readout", "approach"],
    "study": ["estimand", "readout", "approach"],
}


def inference(cohorts: Sequence[pl.DataFrame], settings: Mapping[str, Any]) -> pl.DataFrame:
    """Every contrast of a comparison by every method (method, section 5).

    Parameters
    ----------
    cohorts
        Pairs of one primary table each, whose items are resampled together: see :func:`midtrace.decomposition.contrasts.by_horizon`.
    settings
        See :func:`midtrace.config.analysis_settings`.

    Returns
    -------
    polars.DataFrame
        ``estimand``, ``readout``, ``horizon``, ``approach``, ``estimate``, limits, bands (simultaneous over the horizons of an estimand and
        readout), ``p``, ``status``, variance components. Approaches: ``item_percentile``, ``item_bca``, ``nested``, ``two_way``,
        ``replicate`` (one row each), ``crossed_intercepts``, ``t_test``, ``equivalence``. All but ``replicate`` have the estimate of the
        primary table, the ratio of item means.
    """
    if not settings["inference"].get("sensitivity_resamples", settings["inference"]["resamples"]):
        return pl.DataFrame()
    found = [_of_cohort(pairs, settings) for pairs in cohorts if len(pairs)]
    if not found:
        return pl.DataFrame()
    # An estimand without any pair that counts (nobody is active at a late horizon) has nothing to infer.
    joined = pl.concat(found, how="diagonal_relaxed").filter(pl.col("estimate").is_not_null())
    replicate = pl.col("replicate") if "replicate" in joined.columns else pl.lit(None, pl.Int32)
    return joined.with_columns(replicate=replicate).sort(*KEYS, "approach", "replicate", maintain_order=True)


def _of_cohort(pairs: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """The contrasts of one cohort by every method."""
    count = settings["inference"].get("sensitivity_resamples", settings["inference"]["resamples"])
    terms = estimands.item_terms(pairs, KEYS, pl.col("value"), pl.col("within"))
    found = [with_intervals(terms, KEYS, settings, method=method).with_columns(approach=pl.lit(f"item_{method}")) for method in ("percentile", "bca")]
    if pairs["replicate"].n_unique() > 1:
        drawn = {**bootstrap_settings(settings), "resamples": count}
        found.append(_resampled(pairs, settings, count))
        found.append(per_replicate(pairs, KEYS, "value", "within", **drawn).with_columns(approach=pl.lit("replicate")))
    found.append(_tests(pairs, settings))
    return pl.concat([frame for frame in found if len(frame)], how="diagonal_relaxed")


def _resampled(pairs: pl.DataFrame, settings: Mapping[str, Any], resamples: int) -> pl.DataFrame:
    """Nested and two-way bootstrap, all estimands at once."""
    keys = pairs.select(KEYS).unique(maintain_order=True).with_row_index("column")
    items, replicates = pairs["item_id"].unique().sort(), pairs["replicate"].unique().sort()
    placed = (
        pairs.join(keys, on=KEYS, nulls_equal=True)
        .join(pl.DataFrame({"item_id": items}).with_row_index("row"), on="item_id")
        .join(pl.DataFrame({"replicate": replicates}).with_row_index("cell"), on="replicate")
    )
    at = tuple(placed[name].to_numpy() for name in ("row", "cell", "column"))
    shape = (len(items), len(replicates), len(keys))
    # A pair that does not exist for an estimand is missing; one that does not count for it has value and denominator 0.
    top, bottom = np.full(shape, np.nan), np.full(shape, np.nan)
    inside = placed["within"].to_numpy()
    top[at], bottom[at] = np.where(inside, placed["value"].to_numpy(), 0.0), inside
    families = [f"{estimand} {readout}" for estimand, readout in keys.select("estimand", "readout").iter_rows()]
    drawn = {"resamples": resamples, "level": settings["inference"]["level"], "seed": settings["seed"], "families": families}
    drawn["strata"] = strata_of(items, settings)
    exists = np.maximum((~np.isnan(top)).sum(1), 1)
    still = all_alike(np.nansum(top, axis=1) / exists, np.nansum(bottom, axis=1) / exists)
    counts = placed.filter("within").group_by("column").agg(n_items=pl.col("item_id").n_unique(), n_pairs=pl.len())
    found = []
    for approach, bootstrap in (("nested", nested_bootstrap), ("two_way", two_way_bootstrap)):
        result = bootstrap(top, bottom, **drawn)
        limits = {"ci_low": result.low, "ci_high": result.high, "band_low": result.band_low, "band_high": result.band_high}
        columns = [pl.Series(name, np.where(still, np.nan, value)).fill_nan(None) for name, value in limits.items()]
        columns.append(pl.Series("estimate", result.estimate).fill_nan(None))
        method = pl.Series("method", [NO_SPREAD if alike else result.method for alike in still])
        found.append(keys.with_columns(*columns, method, approach=pl.lit(approach)))
    table = pl.concat(found).join(counts, on="column", how="left").drop("column").with_columns(pl.col("n_items", "n_pairs").cast(pl.Int64))
    # As in other tables: one item has no spread.
    return table.with_columns(pl.when(pl.col("n_items") > 1).then(pl.col("ci_low", "ci_high", "band_low", "band_high")))


def _tests(pairs: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Crossed intercepts, t test and equivalence test of every contrast, all of the ratio of item means that the primary table has."""
    level, margin = settings["inference"]["level"], settings["inference"]["margin"]
    rows: list[dict[str, Any]] = []
    for key, part in pairs.partition_by(KEYS, as_dict=True, maintain_order=True).items():
        items, owner, present = np.unique(part["item_id"].to_numpy(), return_inverse=True, return_counts=True)
        inside = part["within"].to_numpy()
        if not inside.any():
            continue
        shares = inside / present[owner]
        values = np.where(inside, part["value"].to_numpy(), 0.0)
        numerators, denominators = (np.bincount(owner, weights) for weights in (values / present[owner], shares))
        scores = linear_scores(numerators, denominators)
        estimate = numerators.sum() / denominators.sum()
        counted = denominators > 0
        common = {**dict(zip(KEYS, key, strict=True)), "n_items": int(counted.sum()), "n_pairs": int(inside.sum()), "estimate": estimate}
        strata = strata_of(items[counted], settings)
        fit = _crossed(part.filter("within"), shares[inside] / shares.sum(), settings)
        variances = {f"variance_{name}": getattr(fit, f"variance_{name}") for name in ("item", "replicate", "residual")}
        fitted = {"ci_low": fit.low[0], "ci_high": fit.high[0], "p": fit.p[0], "status": fit.status, "method": fit.method, **variances}
        rows.append({**common, **fitted, "approach": "crossed_intercepts"})
        if counted.sum() < 2:
            continue
        test = equivalence(scores, margin, level, strata)
        of = "item means" if (denominators[counted] == 1).all() else "linearised item scores"
        within = "" if strata is None else ", within strata"
        rows.append({**common, "approach": "t_test", "p": mean_p(scores, strata), "method": f"t test of {of}{within}"})
        status = "equivalent" if test["equivalent"] else "not shown to be equivalent"
        method = f"two one-sided t tests of {of}, margin {margin:g}{within}"
        rows.append({**common, "approach": "equivalence", "p": test["p"], "status": status, "method": method})
    if not rows:
        return pl.DataFrame()
    frame = pl.DataFrame(rows, schema_overrides={name: pairs.schema[name] for name in KEYS}, infer_schema_length=None)
    return frame.with_columns(pl.col(pl.Float64).fill_nan(None))


def _crossed(part: pl.DataFrame, weights: np.ndarray, settings: Mapping[str, Any]) -> CrossedFit:
    """Crossed intercepts of the pairs that count; where strata are kept, items vary about the means of their strata."""
    values, items, replicates = (part[name].to_numpy() for name in ("value", "item_id", "replicate"))
    strata = strata_of(items, settings)
    design = None
    if strata is not None:
        codes = stratum_codes(strata)
        design = (codes[:, None] == np.arange(codes.max() + 1)).astype(float)
    return crossed_intercepts(values, items, replicates, design, weights=weights, level=settings["inference"]["level"])


def adjusted(table: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Holm-adjusted p values, ``p_holm``, within the families that the config declares: of one estimand, readout and kind of test each."""
    if table.is_empty() or "p" not in table.columns:
        return table
    gc.freeze()  # multipletests collects garbage at every call: what is there already need not be walked each time
    family = [key for key in FAMILIES[settings["inference"].get("families", "comparison")] if key in table.columns]
    parts = [
        part.with_columns(pl.Series("p_holm", holm(part["p"].fill_null(np.nan).to_numpy())).fill_nan(None))
        for _, part in table.with_row_index("_row").group_by(family, maintain_order=True)
    ]
    gc.unfreeze()
    return pl.concat(parts).sort("_row").drop("_row")


def text_cohort(
    outcomes: pl.LazyFrame,
    frames: Mapping[str, pl.DataFrame],
    traces: pl.DataFrame,
    comparison: Mapping[str, str],
    settings: Mapping[str, Any],
) -> pl.DataFrame:
    """Contrasts of pairs in which a trace was reconstructed from text: labelled, and in no other table.

    ``outcomes`` and ``traces`` hold all rows of one model and benchmark. Policy contrasts by horizon and readout, matched contrasts, and
    length ratios, of pairs with at least one side that is not token-exact (``cohort`` = ``text_reconstructed``).
    """
    t, r, common = comparison["treatment"], comparison["reference"], comparison["common"]
    arms = traces.filter(pl.col("arm").is_in([t, r]))
    rebuilt = arms.filter(~pl.col("token_exact")).select("item_id", "replicate").unique()
    if rebuilt.is_empty():
        return pl.DataFrame()
    own = arms.join(rebuilt, on=["item_id", "replicate"], how="semi").sort("trace_id")
    kept = outcomes.filter(pl.col("arm").is_in([t, r])).join(rebuilt.lazy(), on=["item_id", "replicate"], how="semi").collect(engine="streaming")
    found = []
    pairs = estimands.pairs(kept, t, r, common)
    if len(pairs):
        found.append(with_intervals(policy_terms(pairs), KEYS, settings).filter(pl.col("estimand").str.contains("contrast|gap")))
    at_matched = matched(frames, own, comparison, settings)
    found += [frame for frame in (at_matched, length_contrasts(own, t, r, settings)) if len(frame)]
    if not found:
        return pl.DataFrame()
    return pl.concat(found, how="diagonal_relaxed").with_columns(cohort=pl.lit("text_reconstructed"))
