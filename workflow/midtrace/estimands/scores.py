"""Proper scores of the probe's distribution over the options, with their tails (method, section 3)."""

import polars as pl

from midtrace.estimands.terms import named

TAILS = (0.01, 0.05)
PAIR_KEYS = ("item_id", "replicate", "horizon", "readout")
# Name -> (value, condition); infinite values stay infinite in the plain mean, and ``_finite`` says what the others average.
SCORES: dict[str, tuple[pl.Expr, pl.Expr | None]] = {
    "brier": (pl.col("brier"), None),
    "q_gold": (pl.col("q_gold"), None),
    "log_loss": (pl.col("log_loss"), None),
    "log_loss_finite": (pl.col("log_loss"), pl.col("log_loss").is_finite()),
    "log_loss_infinite": (pl.col("log_loss").is_infinite(), None),
    "gold_log_odds_finite": (pl.col("gold_log_odds"), pl.col("gold_log_odds").is_finite()),
    "gold_log_odds_infinite": (pl.col("gold_log_odds").is_infinite(), None),
    **{f"tail_{limit:g}": (pl.col("q_gold") < limit, None) for limit in TAILS},
}
CONTRASTS = ("brier", "q_gold", "log_loss_finite", *(f"tail_{limit:g}" for limit in TAILS))


def score_terms(outcomes: pl.DataFrame, treatment: str, reference: str, common: str | None = None) -> pl.DataFrame:
    """Terms of the proper scores of both arms and of their contrasts, by horizon, in the common context.

    Parameters
    ----------
    outcomes
        The outcomes table; ``symmetric`` rows are used: every run is read by the probe whatever its state.
    treatment, reference, common
        Arms; see :func:`midtrace.estimands.pairs`.

    Returns
    -------
    polars.DataFrame
        Keys ``estimand``, ``horizon``, ``readout``. With q the probabilities over the item's options: ``brier`` = sum_o (q_o - 1[o =
        gold])^2; ``q_gold``; ``log_loss`` = -ln q_gold (nats; infinite if any run's is, without limits); ``log_loss_finite`` and
        ``gold_log_odds_finite``, means over runs where they are finite; ``log_loss_infinite`` and ``gold_log_odds_infinite``, the shares of
        runs where not; ``tail_0.01`` and ``tail_0.05``, the shares with q_gold below. Each ``_treatment`` and ``_reference``; and
        ``_contrast`` = treatment - reference for ``CONTRASTS`` (pairs finite on both sides).

    References
    ----------
    Gneiting and Raftery (2007), JASA 102, 359-378.
    """
    kept = outcomes.filter(pl.col("readout") == "symmetric")
    if common is not None:
        kept = kept.filter(pl.col("context_arm") == common)
    columns = ("q_gold", "brier", "log_loss", "gold_log_odds")
    t, r = (kept.filter(pl.col("arm") == arm).select(*PAIR_KEYS, *columns) for arm in (treatment, reference))
    both = t.join(r, on=PAIR_KEYS, suffix="_r", validate="1:1").sort(PAIR_KEYS)
    sides = {"treatment": both.select(*PAIR_KEYS, *columns), "reference": both.select(*PAIR_KEYS, *(pl.col(f"{c}_r").alias(c) for c in columns))}
    by = ["horizon", "readout"]
    found = []
    for name, (value, within) in SCORES.items():
        found += [named(side, f"{name}_{role}", by, value, within) for role, side in sides.items()]
        if name in CONTRASTS:
            ends = [side.select(value.cast(pl.Float64).alias("value"), inside=pl.lit(True) if within is None else within) for side in sides.values()]
            pairs = both.select(PAIR_KEYS).with_columns(difference=ends[0]["value"] - ends[1]["value"], inside=ends[0]["inside"] & ends[1]["inside"])
            found.append(named(pairs, f"{name}_contrast", by, pl.col("difference"), pl.col("inside")))
    return pl.concat(found)
