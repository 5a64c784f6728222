"""What a contrast by horizon rests on: dominance, readout bounds, survivor bounds, equal-token split (method, 4.10 to 4.13)."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from midtrace import estimands
from midtrace.decomposition.estimates import of_sums, strata_of, with_intervals

SYMMETRIC = {"symmetric": "probe", "symmetric_continuation": "continuation"}  # readout by horizon: reading at the matched horizon
LENGTH_STRATA = 4
READING_KEYS = ["estimand", "horizon", "reading", "termination"]
SPLIT_KEYS = ["estimand", "horizon", "readout"]


def source_terms(pairs: pl.DataFrame, traces: pl.DataFrame, matched: pl.DataFrame, treatment: str, reference: str) -> dict[str, pl.DataFrame]:
    """Item terms of all tables of this module, of the pairs of one horizon.

    Parameters
    ----------
    pairs
        See :func:`midtrace.estimands.pairs`.
    traces
        Traces of both arms.
    matched
        Pairs at the matched horizon by ``readout`` (``probe``, ``continuation``).
    treatment, reference
        Arms.
    """
    found = {"dominance": estimands.dominance_means(pairs)}
    readings = estimands.reading_pairs(pairs, traces, treatment, reference)
    if len(readings):
        found |= {"readings": estimands.reading_terms(readings), "tipping": estimands.tipping_means(readings)}
    present = set(pairs["readout"])
    survivors = [estimands.survivor_means(pairs, name).with_columns(readout=pl.lit(name)) for name in SYMMETRIC if name in present]
    if survivors:
        found["survivors"] = pl.concat(survivors)
    split = [
        estimands.split_pairs(pairs.filter(pl.col("readout") == name), matched.filter(pl.col("readout") == reading))
        for name, reading in SYMMETRIC.items()
        if name in present and len(matched) and (matched["readout"] == reading).any()
    ]
    if split:
        found["split"] = estimands.split_terms(pl.concat(split))
    return found


def source_tables(terms: Mapping[str, pl.DataFrame], reference_traces: pl.DataFrame, settings: Mapping[str, Any]) -> dict[str, pl.DataFrame]:
    """Tables ``dominance``, ``bounds``, ``survivors``, ``split`` of one comparison, from :func:`source_terms` of all horizons.

    ``reference_traces``: the traces of the reference arm, whose lengths make the strata of items.
    """
    found = {"dominance": dominance(terms["dominance"], settings)}
    if "readings" in terms:
        found["bounds"] = bounds(terms["readings"], terms["tipping"], settings)
    if "survivors" in terms:
        found["survivors"] = survivors(terms["survivors"], reference_traces, settings)
    if "split" in terms:
        found["split"] = with_intervals(terms["split"], SPLIT_KEYS, settings).sort(SPLIT_KEYS, maintain_order=True)
    return found


def dominance(means: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Contribution of finishing earlier, its share of the contrast, and its lead over the pairs that both still think, by horizon and readout.

    A share of a contrast that may be 0 has no limits: a ratio whose denominator crosses 0 can be anything.
    """
    by = ["horizon", "readout"]
    table = of_sums(means, by, ["contrast", "finishing", "active"], estimands.dominance, estimands.DOMINANCE, settings)
    open_contrast = table.filter(pl.col("estimand") == "contrast", ~((pl.col("ci_low") > 0) | (pl.col("ci_high") < 0)).fill_null(False))
    unlimited = (pl.col("estimand") == "finishing_share") & pl.col("_open").fill_null(False)
    rows = table.join(open_contrast.select(*by, _open=pl.lit(True)), on=by, how="left")
    tests = [
        {**dict(zip(by, key, strict=True)), "estimand": name, "p": estimands.positive_p(values.to_numpy(), strata_of(part["item_id"], settings))}
        for key, part in means.sort("item_id").partition_by(by, as_dict=True).items()
        for name, values in (("finishing", part["finishing"]), ("lead", part["finishing"] - part["active"]))
    ]
    tested = pl.DataFrame(tests, schema={"horizon": means.schema["horizon"], "readout": pl.String, "estimand": pl.String, "p": pl.Float64})
    return (
        rows.join(tested.with_columns(pl.col("p").fill_nan(None)), on=[*by, "estimand"], how="left", maintain_order="left")
        .with_columns(
            pl.when(~unlimited).then(pl.col("ci_low", "ci_high")),
            pl.when(unlimited).then(pl.lit("no limits: the interval of the contrast includes 0")).otherwise("method").alias("method"),
        )
        .drop("_open")
    )


def claimed(table: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """The dominance table with the claim that ``inference.dominance`` declares: positive and dominant in all of its comparisons.

    One row per readout, ``estimand`` = ``dominant_in_all_p`` and no model, benchmark and arms: the p value of the intersection-union test over the
    contributions and leads of all declared comparisons at the declared horizon, in all models and benchmarks. A comparison that was not
    measured leaves the claim untested (null).
    """
    declared = settings["inference"].get("dominance")
    if table.is_empty() or not declared:
        return table
    pairs = [(comparison["treatment"], comparison["reference"]) for comparison in declared["comparisons"]]
    wanted = pl.any_horizontal((pl.col("treatment") == t) & (pl.col("reference") == r) for t, r in pairs)
    own = table.filter(wanted, pl.col("horizon") == declared["horizon"], pl.col("estimand").is_in(["finishing", "lead"]))
    expected = 2 * len(pairs) * len(settings["models"]) * len(settings["benchmarks"])
    claims = []
    for (readout,), part in own.group_by("readout", maintain_order=True):
        whole = len(part) == expected
        p = estimands.intersection_union(part["p"].fill_null(np.nan).to_list()) if whole else float("nan")
        named = ", ".join(f"{t} against {r}" for t, r in pairs)
        method = f"intersection-union of {expected} one-sided t tests of item means ({named})"
        claims.append(
            {
                "estimand": "dominant_in_all_p",
                "horizon": declared["horizon"],
                "readout": readout,
                "estimate": p,
                "p": p,
                "n_items": part["n_items"].to_numpy().min(),
                "n_pairs": part.filter(pl.col("estimand") == "lead")["n_pairs"].sum(),
                "method": method if whole else f"{method}, of which {len(part)} could be made",
            }
        )
    if not claims:
        return table
    added = pl.DataFrame(claims, schema_overrides={"horizon": table.schema["horizon"]}).with_columns(pl.col("estimate", "p").fill_nan(None))
    return pl.concat([table, added], how="diagonal_relaxed")


def bounds(terms: pl.DataFrame, means: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """Contrast and one-sided contributions under each reading of unfinished runs, and the tipping point, by horizon."""
    columns = ["contrast", "one_sided", "lowering", "raising"]
    tipping = of_sums(means, ["horizon", "reading"], columns, estimands.tipping, estimands.TIPPING, settings)
    found = pl.concat([with_intervals(terms, READING_KEYS, settings), tipping], how="diagonal_relaxed")
    return found.sort(READING_KEYS, nulls_last=False, maintain_order=True)


def survivors(means: pl.DataFrame, reference_traces: pl.DataFrame, settings: Mapping[str, Any]) -> pl.DataFrame:
    """The both-active contrast beside its trimming bounds and its standardised version, by horizon and readout.

    ``stratum`` is null but for ``stratum_contrast``, the both-active contrast among items of one stratum of the reference's length; there it
    names the stratum by the mean lengths that it holds.
    """
    by = ["horizon", "readout"]
    found = [
        with_intervals(
            means.select(*by, "item_id", numerator="difference", denominator="both_active", pairs=pl.col("both_active") * pl.col("pairs")),
            by,
            settings,
        ).with_columns(estimand=pl.lit("both_active_contrast")),
        of_sums(means, by, ["active_t", "active_r", "right_t", "right_r"], estimands.trimmed, estimands.SURVIVORS, settings),
    ]
    edges = estimands.quantile_edges(reference_traces, settings["inference"].get("length_strata", LENGTH_STRATA))
    placed = means.join(estimands.length_strata(reference_traces, edges), on="item_id")
    if len(placed):
        names = stratum_names(edges)
        inside = [
            (pl.col("stratum") == k).cast(pl.Float64) * value
            for k in range(len(names))
            for value in (pl.col("difference"), pl.col("both_active"), 1.0)
        ]
        spread = placed.with_columns(value.alias(f"_{at}") for at, value in enumerate(inside))

        def standardised(sums: np.ndarray) -> np.ndarray:
            return estimands.standardised(sums[..., :-1].reshape(*sums.shape[:-1], len(names), 3))

        found.append(of_sums(spread, by, [f"_{at}" for at in range(len(inside))], standardised, estimands.STANDARDISED, settings))
        labelled = placed.with_columns(pl.col("stratum").replace_strict(dict(enumerate(names)), return_dtype=pl.String))
        terms = labelled.select(
            *by, "stratum", "item_id", numerator="difference", denominator="both_active", pairs=pl.col("both_active") * pl.col("pairs")
        )
        found.append(with_intervals(terms, [*by, "stratum"], settings).with_columns(estimand=pl.lit("stratum_contrast")))
    return pl.concat(found, how="diagonal_relaxed").sort(*by, maintain_order=True)


def stratum_names(edges: Sequence[float]) -> list[str]:
    """Names of the strata between these edges, in tokens."""
    if not edges:
        return ["all lengths"]
    inner = [f"over {low:g} to {high:g}" for low, high in pairwise(edges)]
    return [f"up to {edges[0]:g}", *inner, f"over {edges[-1]:g}"]
