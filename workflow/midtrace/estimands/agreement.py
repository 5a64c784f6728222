"""Does the probe read what the model would answer? Agreement, kappa, accuracy gap, the falsifier, and later readouts (method, 4.7)."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import polars as pl

from midtrace.inference.alike import all_alike
from midtrace.inference.bootstrap import bootstrap_function, ratio
from midtrace.inference.intervals import bounded

UNPARSED = "(unparsed)"  # an answer that could not be read is a category of its own and agrees with nothing,
NOT_READ = "(not read)"  # not with a continuation that could not be read either
ESTIMANDS = ("agreement", "kappa", "accuracy_probe", "accuracy_answer", "accuracy_gap")
SHARES = ("agreement", "accuracy_probe", "accuracy_answer")


def kappa_of_shares(agreement: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Cohen's kappa from shares.

    Parameters
    ----------
    agreement
        Share of agreement p_o, of any shape.
    first, second
        Shares of the categories among the answers of each side, that shape and (categories,).

    Returns
    -------
    numpy.ndarray
        (p_o - p_e) / (1 - p_e), with p_e = sum_c first_c second_c; NaN where p_e is 1 (both sides always say the same one thing).

    References
    ----------
    Cohen (1960), Educational and Psychological Measurement 20, 37-46.
    """
    chance = (first * second).sum(axis=-1)
    room = 1 - chance
    # Shares that sum to 1 by rounding only must not make a kappa out of 0 / 0.
    return np.where(room > 1e-12, ratio(agreement - chance, np.where(room > 1e-12, room, 0.0)), np.nan)


def agreement(
    frame: pl.DataFrame,
    by: Sequence[str],
    *,
    resamples: int,
    level: float,
    seed: int,
    method: str = "percentile",
    strata: Mapping[str, str] | None = None,
) -> pl.DataFrame:
    """Agreement of two readings of the same runs, with item-bootstrap limits.

    Parameters
    ----------
    frame
        One row per reading: ``item_id``, ``by``; ``choice`` (the probe's option), ``answer`` (the other reading; null: unparsed);
        ``probe_correct``, ``answer_correct``.
    by
        Keys.
    resamples, level, seed, method
        See :func:`midtrace.inference.item_bootstrap`.
    strata
        Item -> stratum; items are resampled within strata.

    Returns
    -------
    polars.DataFrame
        ``by``, ``estimand``, ``estimate``, ``ci_low``, ``ci_high``, ``n_items``, ``n_pairs`` (readings), ``method``. Estimands: ``agreement``
        = share of equal answers; ``kappa``; ``accuracy_probe``, ``accuracy_answer`` and ``accuracy_gap`` = probe - answer. Readings are
        averaged within item first, items weigh equally, for the shares in kappa too.
    """
    if frame.is_empty():
        return pl.DataFrame()
    categories = sorted({*frame["choice"].unique(), *frame["answer"].fill_null(UNPARSED).unique()})
    filled = frame.with_columns(pl.col("answer").fill_null(UNPARSED))
    columns = [
        (pl.col("choice") == pl.col("answer")).alias("_same"),
        pl.col("probe_correct").alias("_probe"),
        pl.col("answer_correct").alias("_answer"),
        *((pl.col("choice") == category).alias(f"_c{k}") for k, category in enumerate(categories)),
        *((pl.col("answer") == category).alias(f"_a{k}") for k, category in enumerate(categories)),
    ]
    names = [f"_{side}{k}" for side in "ca" for k in range(len(categories))]
    values = ["_same", "_probe", "_answer", *names]
    means = (
        filled.select(*by, "item_id", *columns)
        .group_by(*by, "item_id", maintain_order=True)
        .agg(pl.col(values).cast(pl.Float64).mean(), _pairs=pl.len())
        .with_columns(_item=pl.lit(1.0))
    )
    keys = means.select(by).unique(maintain_order=True).sort(by) if by else pl.DataFrame({"_key": [0]})
    items = pl.DataFrame({"item_id": means["item_id"].unique().sort()}).with_row_index("_row")
    placed = means.join(items, on="item_id")
    numbered = keys.with_row_index("_group")
    placed = placed.join(numbered, on=by, nulls_equal=True) if by else placed.with_columns(pl.lit(0).alias("_group"))
    # All keys are columns of one bootstrap: one resampling of items serves them all.
    sums = np.zeros((len(items), len(keys), len(values) + 1))
    sums[placed["_row"].to_numpy(), placed["_group"].to_numpy()] = placed.select(*values, "_item").to_numpy()
    split = 3 + len(categories)

    def statistic(drawn: np.ndarray) -> np.ndarray:
        cells = drawn.reshape(len(drawn), len(keys), -1)
        shares = ratio(cells[:, :, :-1], np.broadcast_to(cells[:, :, -1:], cells[:, :, :-1].shape))
        kappa = kappa_of_shares(shares[:, :, 0], shares[:, :, 3:split], shares[:, :, split:])
        found = [shares[:, :, 0], kappa, shares[:, :, 1], shares[:, :, 2], shares[:, :, 1] - shares[:, :, 2]]
        return np.stack(found, axis=2).reshape(len(drawn), -1)

    flat = sums.reshape(len(items), -1)
    groups = None if strata is None else [strata[item] for item in items["item_id"]]
    result = bootstrap_function(flat, statistic, resamples=resamples, level=level, seed=seed, method=method, strata=groups)
    counts = placed.group_by("_group").agg(n_items=pl.len(), n_pairs=pl.col("_pairs").sum()).sort("_group").select("n_items", "n_pairs")
    rows = pl.concat([keys, counts], how="horizontal").select(*by, "n_items", "n_pairs").with_columns(estimand=pl.lit(list(ESTIMANDS)))
    rows = rows.explode("estimand").with_columns(pl.col("n_items", "n_pairs").cast(pl.Int64))
    terms = np.concatenate([sums[:, :, :3], sums[:, :, 1:2] - sums[:, :, 2:3]], axis=2)
    still = all_alike(terms.reshape(len(items), -1), np.repeat(sums[:, :, -1], 4, axis=1)).reshape(len(keys), 4)
    # Where all readings agree, kappa is 1 in every resample.
    always = still[:, 0] & (result.estimate.reshape(len(keys), -1)[:, 0] == 1)
    alike = np.column_stack([still[:, 0], always, still[:, 1:]]).ravel()
    limits = bounded(result, alike, level, rows["n_items"].to_numpy(), rows["estimand"].is_in(SHARES).to_numpy())
    table = pl.concat([rows, limits], how="horizontal")
    return table.select(*by, "estimand", "estimate", "ci_low", "ci_high", "n_items", "n_pairs", "method")


def falsifier_rows(readouts: pl.DataFrame, traces: pl.DataFrame, treatment: str, reference: str, context: str, context_arm: str) -> pl.DataFrame:
    """Unfinished reference prefixes at matched horizons: the probe beside the answer that the run gave when it finished naturally.

    Parameters
    ----------
    readouts
        ``trace_id``, ``cut``, ``partner_arm``, ``n_tokens``, ``complete``, ``context``, ``context_arm``, ``choice``, ``correct``.
    traces
        ``trace_id``, ``item_id``, ``arm``, ``replicate``, ``status``, ``n_reasoning``, ``answer``, ``correct``.
    treatment, reference
        Arms: the reference's runs are cut at the treatment's lengths.
    context, context_arm
        The context that is read, ``common`` or ``policy``, and the arm whose prompt it is.

    Returns
    -------
    polars.DataFrame
        ``item_id``, ``replicate``, ``prefix_fraction`` = tokens of the prefix / L in [0, 1), ``choice``, ``answer``, ``probe_correct``,
        ``answer_correct``; of reference runs that terminated, but not by the matched horizon.
    """
    kept = readouts.filter(
        pl.col("cut") == "matched",
        pl.col("partner_arm") == treatment,
        ~pl.col("complete"),
        pl.col("context") == context,
        pl.col("context_arm") == context_arm,
    )
    runs = traces.filter(pl.col("arm") == reference, pl.col("status") == "terminated")
    joined = kept.select("trace_id", "n_tokens", "choice", probe_correct="correct").join(
        runs.select("trace_id", "item_id", "replicate", "n_reasoning", "answer", answer_correct="correct"), on="trace_id"
    )
    fraction = pl.col("n_tokens") / pl.col("n_reasoning")
    wanted = ["item_id", "replicate", "prefix_fraction", "choice", "answer", "probe_correct", "answer_correct"]
    return joined.with_columns(prefix_fraction=fraction).select(wanted).sort("item_id", "replicate")


def binned(frame: pl.DataFrame, edges: Sequence[float]) -> pl.DataFrame:
    """Rows by prefix fraction in (previous edge, edge], with ``fraction`` = the upper edge; and once more all together, ``fraction`` null.

    Edges increase and end at 1; the first bin starts at 0 and holds it.
    """
    upper = pl.lit(None, pl.Float64)
    for edge in reversed(edges):
        upper = pl.when(pl.col("prefix_fraction") <= edge).then(edge).otherwise(upper)
    return pl.concat(
        [frame.with_columns(fraction=pl.lit(None, pl.Float64)), frame.with_columns(fraction=upper).sort("fraction", maintain_order=True)]
    )


def later_rows(readouts: pl.DataFrame, traces: pl.DataFrame, horizons: Sequence[int], later: Sequence[int] = ()) -> pl.DataFrame:
    """The probe at B beside the probe after k more reasoning tokens of the same unfinished run.

    Parameters
    ----------
    readouts
        Readouts under the own prompt: ``trace_id``, ``cut``, ``horizon``, ``complete``, ``context``, ``choice``, ``correct``.
    traces
        ``trace_id``, ``item_id``, ``arm``.
    horizons
        Horizons B, increasing.
    later
        Numbers k of tokens; besides, each horizon is compared with the next one.

    Returns
    -------
    polars.DataFrame
        ``item_id``, ``arm``, ``horizon`` (B), ``k``, ``choice`` and ``probe_correct`` at B, ``answer`` and ``answer_correct`` at B + k; runs
        active at B + k.
    """
    active = readouts.filter(pl.col("cut") == "horizon", pl.col("context") == "policy", ~pl.col("complete"))
    pairs = sorted({*pairwise(horizons), *((horizon, horizon + k) for horizon in horizons for k in later)})
    steps = pl.DataFrame(pairs, schema={"horizon": pl.Int32, "later": pl.Int32}, orient="row").with_columns(k=pl.col("later") - pl.col("horizon"))
    at = active.select("trace_id", "horizon", "choice", probe_correct="correct").join(steps, on="horizon")
    after = active.select("trace_id", later="horizon", answer="choice", answer_correct="correct")
    joined = at.join(after, on=["trace_id", "later"]).join(traces.select("trace_id", "item_id", "arm"), on="trace_id")
    return joined.sort("trace_id", "horizon", "k").select("item_id", "arm", "horizon", "k", "choice", "answer", "probe_correct", "answer_correct")


def right_or_wrong() -> pl.Expr:
    """What a free-form ``answer`` is compared by, having no options: ``right``, ``wrong``, or null where nothing was read and nothing is right.

    Two answers agree where both are right or both are wrong; whether two wrong ones are the same is not asked, since texts and programs that
    differ can mean the same.
    """
    return pl.when("correct").then(pl.lit("right")).when(pl.col("answer").is_not_null()).then(pl.lit("wrong"))
