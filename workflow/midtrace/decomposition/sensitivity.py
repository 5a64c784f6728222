"""Contrasts under other methods of inference, and in cohorts that no primary table holds."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from midtrace import estimands
from midtrace.decomposition.contrasts import length_contrasts, matched, policy_terms
from midtrace.decomposition.estimates import with_intervals
from midtrace.inference import crossed_intercepts, equivalence, holm, mean_p, nested_bootstrap, per_replicate, two_way_bootstrap

KEYS = ["estimand", "readout", "horizon"]
FAMILIES = {
    "comparison": ["model", "benchmark", "treatment", "reference", "estimand", "readout", "approach"],
    "study": ["estimand", "readout", "approach"],
}


def inference(pairs: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Every contrast of a comparison by every method (method, section 5).

    Parameters
    ----------
    pairs
        See :func:`midtrace.decomposition.contrasts.by_horizon`.
    settings
        See :func:`midtrace.config.analysis_settings`.

    Returns
    -------
    polars.DataFrame
        ``estimand``, ``readout``, ``horizon``, ``approach``, ``estimate``, limits, bands (simultaneous over the horizons of an estimand and
        readout), ``p``, ``status``, variance components. Approaches: ``item_percentile``, ``item_bca``, ``nested``, ``two_way``,
        ``replicate`` (one row each), ``crossed_intercepts``, ``t_test``, ``equivalence``.
    """
    count = settings["inference"].get("sensitivity_resamples", settings["inference"]["resamples"])
    if pairs.is_empty() or not count:
        return pl.DataFrame()
    terms = estimands.item_terms(pairs, KEYS, pl.col("value"), pl.col("within"))
    found = [with_intervals(terms, KEYS, settings, method=method).with_columns(approach=pl.lit(f"item_{method}")) for method in ("percentile", "bca")]
    several = pairs["replicate"].n_unique() > 1
    if several:
        found.append(_resampled(pairs, settings, count))
        plain = {"resamples": count, "level": settings["inference"]["level"], "seed": settings["seed"]}
        found.append(per_replicate(pairs, KEYS, "value", "within", **plain).with_columns(approach=pl.lit("replicate")))
    found.append(_tests(pairs, settings))
    # An estimand without any pair that counts (nobody is active at a late horizon) has nothing to infer.
    joined = pl.concat([frame for frame in found if len(frame)], how="diagonal_relaxed").filter(pl.col("estimate").is_not_null())
    return joined if several else joined.with_columns(replicate=pl.lit(None, pl.Int32))


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
    top, bottom, present = np.zeros(shape), np.zeros(shape), np.zeros(shape[:2], bool)
    inside = placed["within"].to_numpy()
    top[at], bottom[at], present[at[:2]] = np.where(inside, placed["value"].to_numpy(), 0.0), inside, True
    top[~present] = bottom[~present] = np.nan
    families = [f"{estimand} {readout}" for estimand, readout in keys.select("estimand", "readout").iter_rows()]
    strata = settings.get("strata")
    drawn = {"resamples": resamples, "level": settings["inference"]["level"], "seed": settings["seed"], "families": families}
    drawn["strata"] = [strata[item] for item in items] if strata else None
    counts = placed.filter("within").group_by("column").agg(n_items=pl.col("item_id").n_unique(), n_pairs=pl.len())
    found = []
    for approach, bootstrap in (("nested", nested_bootstrap), ("two_way", two_way_bootstrap)):
        result = bootstrap(top, bottom, **drawn)
        values = {"estimate": result.estimate, "ci_low": result.low, "ci_high": result.high}
        values |= {"band_low": result.band_low, "band_high": result.band_high}
        columns = [pl.Series(name, value).fill_nan(None) for name, value in values.items()]
        found.append(keys.with_columns(*columns, approach=pl.lit(approach), method=pl.lit(result.method)))
    table = pl.concat(found).join(counts, on="column", how="left").drop("column").with_columns(pl.col("n_items", "n_pairs").cast(pl.Int64))
    # As in other tables: one item has no spread.
    return table.with_columns(pl.when(pl.col("n_items") > 1).then(pl.col("ci_low", "ci_high", "band_low", "band_high")))


def _tests(pairs: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Crossed intercepts, t test and equivalence test of every contrast."""
    level, margin = settings["inference"]["level"], settings["inference"]["margin"]
    rows: list[dict[str, Any]] = []
    for key, part in pairs.filter("within").partition_by(KEYS, as_dict=True, maintain_order=True).items():
        values, items, replicates = (part[name].to_numpy() for name in ("value", "item_id", "replicate"))
        _, owner, counts = np.unique(items, return_inverse=True, return_counts=True)
        common = {**dict(zip(KEYS, key, strict=True)), "n_items": len(counts), "n_pairs": len(part)}
        fit = crossed_intercepts(values, owner, replicates, level=level)
        rows.append(
            {
                **common,
                "approach": "crossed_intercepts",
                "estimate": fit.estimate[0],
                "ci_low": fit.low[0],
                "ci_high": fit.high[0],
                "p": fit.p[0],
                "status": fit.status,
                "method": fit.method,
                "variance_item": fit.variance_item,
                "variance_replicate": fit.variance_replicate,
                "variance_residual": fit.variance_residual,
            }
        )
        if len(counts) < 2:
            continue
        means = np.bincount(owner, values) / counts
        test = equivalence(means, margin, level)
        common["estimate"] = test["estimate"]
        rows.append({**common, "approach": "t_test", "p": mean_p(means), "method": "paired t test of item means"})
        status = "equivalent" if test["equivalent"] else "not shown to be equivalent"
        method = f"two one-sided t tests of item means, margin {margin:g}"
        rows.append({**common, "approach": "equivalence", "p": test["p"], "status": status, "method": method})
    if not rows:
        return pl.DataFrame()
    frame = pl.DataFrame(rows, schema_overrides={name: pairs.schema[name] for name in KEYS}, infer_schema_length=None)
    return frame.with_columns(pl.col(pl.Float64).fill_nan(None))


def adjusted(table: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Holm-adjusted p values, ``p_holm``, within the families that the config declares."""
    if table.is_empty():
        return table
    family = FAMILIES[settings["inference"].get("families", "comparison")]
    parts = [
        part.with_columns(pl.Series("p_holm", holm(part["p"].fill_null(np.nan).to_numpy())).fill_nan(None))
        for _, part in table.group_by(family, maintain_order=True)
    ]
    return pl.concat(parts).sort("model", "benchmark", "treatment", "reference", *KEYS, "approach", "replicate", maintain_order=True)


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
