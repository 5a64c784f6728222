"""Tables of estimates with limits, from item terms."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from midtrace.inference.alike import all_alike, without_spread
from midtrace.inference.bootstrap import Intervals, item_bootstrap


def intervals(
    terms: pl.DataFrame | pl.LazyFrame,
    by: Sequence[str],
    *,
    resamples: int,
    level: float,
    seed: int,
    method: str = "percentile",
    strata: Mapping[str, str] | None = None,
) -> pl.DataFrame:
    """Estimates and item-bootstrap limits for every combination of ``by``.

    Parameters
    ----------
    terms
        Columns ``by``, ``item_id``, ``numerator``, ``denominator`` (item means, see :func:`midtrace.estimands.item_terms`), ``pairs``; and,
        where it matters, ``is_share`` and ``by_construction``.
    by
        Key columns of the estimands; nulls are values of their own.
    resamples, level, seed, method
        See :func:`item_bootstrap`. All estimands share the same resamples of items.
    strata
        Item -> stratum; items are resampled within strata.

    Returns
    -------
    polars.DataFrame
        ``by``, ``estimate``, ``ci_low``, ``ci_high``, ``n_items``, ``n_pairs``, ``method``; null where undefined. Where all items have one
        value resamples do not spread: a share has Clopper-Pearson limits, anything else none, and ``method`` says so
        (:func:`midtrace.inference.alike.without_spread`).
    """
    terms = terms.lazy().collect(engine="streaming")
    if terms.is_empty():
        types = {"estimate": pl.Float64, "ci_low": pl.Float64, "ci_high": pl.Float64, "n_items": pl.Int64, "n_pairs": pl.Int64, "method": pl.String}
        return pl.DataFrame(schema={**{key: terms.schema[key] for key in by}, **types})
    keys = terms.select(by).unique(maintain_order=True).with_row_index("column")
    items = terms["item_id"].unique().sort()
    placed = terms.join(keys, on=by, nulls_equal=True).join(pl.DataFrame({"item_id": items}).with_row_index("row"), on="item_id")
    numerators, denominators = np.zeros((len(items), len(keys))), np.zeros((len(items), len(keys)))
    at = placed["row"].to_numpy(), placed["column"].to_numpy()
    numerators[at], denominators[at] = placed["numerator"].to_numpy(), placed["denominator"].to_numpy()
    groups = None if strata is None else [strata[item] for item in items]
    result = item_bootstrap(numerators, denominators, resamples=resamples, level=level, seed=seed, method=method, strata=groups)
    flags = [(pl.col(name) if name in terms.columns else pl.lit(False)).all().alias(name) for name in ("is_share", "by_construction")]
    counts = placed.group_by("column").agg(*flags, n_items=(pl.col("denominator") > 0).sum(), n_pairs=pl.col("pairs").sum()).sort("column")
    n_items, is_share, by_construction = (counts[name].to_numpy() for name in ("n_items", "is_share", "by_construction"))
    limits = bounded(result, all_alike(numerators, denominators), level, n_items, is_share, by_construction)
    columns = pl.concat([keys, counts.select(pl.col("n_items", "n_pairs").cast(pl.Int64)), limits], how="horizontal")
    return columns.select(*by, "estimate", "ci_low", "ci_high", "n_items", "n_pairs", "method")


def bounded(
    result: Intervals, alike: np.ndarray, level: float, n_items: np.ndarray, is_share: np.ndarray, by_construction: np.ndarray | None = None
) -> pl.DataFrame:
    """Estimates and limits as columns ``estimate``, ``ci_low``, ``ci_high``, ``method``; NaN is null.

    Parameters
    ----------
    result
        Of the bootstrap.
    alike, n_items, is_share, by_construction
        Of every estimand; see :func:`midtrace.inference.alike.without_spread`, whose limits replace those of the bootstrap.
    level
        Level of the limits.
    """
    low, high, method = result.low.copy(), result.high.copy(), [result.method] * len(result.estimate)
    fixed = np.zeros(len(low), bool) if by_construction is None else by_construction
    for k, estimate in enumerate(result.estimate):
        exact = without_spread(
            float(estimate), int(n_items[k]), level, alike=bool(alike[k]), is_share=bool(is_share[k]), by_construction=bool(fixed[k])
        )
        if exact is not None:
            low[k], high[k], method[k] = exact
    values = {"estimate": result.estimate, "ci_low": low, "ci_high": high}
    return pl.DataFrame({**values, "method": method}).with_columns(pl.col(list(values)).fill_nan(None))
