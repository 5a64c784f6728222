"""Contrasts of accuracy between two arms: at horizons, by termination stratum, at the matched horizon (method, 4.2 to 4.5)."""

import polars as pl

from midtrace.estimands.terms import estimate, item_terms, named

PAIR_KEYS = ("model", "benchmark", "item_id", "replicate", "horizon", "readout")
COMMON = ("symmetric", "symmetric_continuation")  # readouts in the common context of a comparison: an arm may have several
# What changes a contrast between Y and Y_sym, in two parts that add up: the contrast under the first readout minus that under the second.
GAPS = {"readout_gap": ("terminal", "symmetric_own"), "context_gap": ("symmetric_own", "symmetric")}
TERMINATION = ("both_complete", "treatment_complete", "reference_complete", "both_active")


def in_context(common: str) -> pl.Expr:
    """Outcomes that enter a comparison whose common context is the prompt of the arm ``common``."""
    return ~pl.col("readout").is_in(COMMON) | (pl.col("context_arm") == common)


def pairs(outcomes: pl.DataFrame, treatment: str, reference: str, common: str | None = None) -> pl.DataFrame:
    """Pairs (item, replicate) with both runs present, one row per horizon and readout.

    Parameters
    ----------
    outcomes
        The outcomes table.
    treatment, reference
        Arms.
    common
        For readouts in a common context, the arm whose prompt it is; None if the table holds one context only.

    Returns
    -------
    polars.DataFrame
        ``PAIR_KEYS``, ``correct_t``, ``correct_r``, ``complete_t``, ``complete_r``, ``q_t``, ``q_r``, ``difference``, ``termination``.
    """
    if common is not None:
        outcomes = outcomes.filter(in_context(common))
    elif "context_arm" in outcomes.columns:
        read = outcomes.filter(pl.col("readout").is_in(COMMON), pl.col("arm").is_in([treatment, reference]))
        if read["context_arm"].n_unique() > 1:
            raise ValueError(f"symmetric rows in several contexts ({', '.join(sorted(read['context_arm'].unique()))}): say which is common")
    q_gold = pl.col("q_gold") if "q_gold" in outcomes.columns else pl.lit(None, pl.Float64).alias("q_gold")
    columns = [pl.col("correct").cast(pl.Float64), pl.col("complete"), q_gold]
    t, r = (outcomes.filter(pl.col("arm") == arm).select(*PAIR_KEYS, *columns) for arm in (treatment, reference))
    joined = t.join(r, on=PAIR_KEYS, suffix="_r", validate="1:1").rename(
        {"correct": "correct_t", "complete": "complete_t", "q_gold": "q_t", "q_gold_r": "q_r"}
    )
    state = (
        pl.when(pl.col("complete_t") & pl.col("complete_r"))
        .then(pl.lit("both_complete"))
        .when("complete_t")
        .then(pl.lit("treatment_complete"))
        .when("complete_r")
        .then(pl.lit("reference_complete"))
        .otherwise(pl.lit("both_active"))
    )
    return joined.with_columns(difference=pl.col("correct_t") - pl.col("correct_r"), termination=state).sort(PAIR_KEYS)


def policy_terms(frame: pl.DataFrame) -> pl.DataFrame:
    """Terms of policy accuracy by horizon and of what it is made of (method, 4.2).

    Parameters
    ----------
    frame
        See :func:`pairs`.

    Returns
    -------
    polars.DataFrame
        Keys ``estimand``, ``horizon``, ``readout``. Estimands, each for treatment and reference: ``accuracy`` = mean Y(B);
        ``complete`` = share complete at B; ``correct_completion`` = complete at B and right (share of all pairs);
        ``stopped_accuracy`` = accuracy among runs active at B; ``q_gold`` = mean probability of the right option where read by the probe.
        And ``contrast`` = mean Y_t(B) - mean Y_c(B).
    """
    found = [_term(frame, "contrast", pl.col("difference"), by_construction=same_input())]
    for side, name in (("t", "treatment"), ("r", "reference")):
        correct, complete, q = pl.col(f"correct_{side}") == 1, pl.col(f"complete_{side}"), pl.col(f"q_{side}")
        found += [
            _term(frame, f"accuracy_{name}", correct),
            _term(frame, f"complete_{name}", complete),
            _term(frame, f"correct_completion_{name}", correct & complete),
            _term(frame, f"stopped_accuracy_{name}", correct, ~complete),
        ]
        read = frame.filter(pl.col("readout") == "symmetric")
        if len(read):
            found.append(_term(read, f"q_gold_{name}", q))
    return pl.concat(found)


def same_input() -> pl.Expr:
    """Where both runs are read from the same ids, so that nothing can differ: at B = 0 in the common context."""
    return (pl.col("horizon") == 0) & pl.col("readout").is_in(COMMON)


def _term(frame: pl.DataFrame, estimand: str, value: pl.Expr, within: pl.Expr | None = None, by_construction: pl.Expr | None = None) -> pl.DataFrame:
    return named(frame, estimand, ["horizon", "readout"], value, within, by_construction=by_construction)


def both_active_terms(frame: pl.DataFrame) -> pl.DataFrame:
    """Terms of the contrast among pairs with both runs active at B (method, 4.3); primary in the common context."""
    active = pl.col("termination") == "both_active"
    return _term(frame, "both_active_contrast", pl.col("difference"), active, by_construction=same_input())


def gap_terms(frame: pl.DataFrame) -> pl.DataFrame:
    """Terms of what changes a contrast between Y and Y_sym, in two parts that add up (method, section 3), by horizon.

    Parameters
    ----------
    frame
        See :func:`pairs`.

    Returns
    -------
    polars.DataFrame
        ``readout_gap`` = Delta under Y minus Delta under ``symmetric_own``: the prompt is fixed, the reading of finished runs changes.
        ``context_gap`` = Delta under ``symmetric_own`` minus Delta under Y_sym: the reading is fixed, the prompt changes. ``readout`` names the
        two; by probe and by continuation, for pairs that are read both ways.
    """
    keys = ["item_id", "replicate", "horizon"]
    found = []
    for ending in ("", "_continuation"):
        for gap, sides in GAPS.items():
            first, second = (f"{name}{ending}" for name in sides)
            both = frame.filter(pl.col("readout") == first).join(frame.filter(pl.col("readout") == second), on=keys, suffix="_second")
            named_both = both.with_columns(readout=pl.lit(f"{first} - {second}"))
            # Y reads an unfinished run as symmetric_own does.
            same = ~(pl.col("complete_t") | pl.col("complete_r")) if gap == "readout_gap" else None
            found.append(_term(named_both, gap, pl.col("difference") - pl.col("difference_second"), by_construction=same))
    return pl.concat(found)


def strata_terms(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Terms of the termination strata (method, 4.4), by ``horizon``, ``readout``, ``termination``.

    Returns
    -------
    dict
        ``share``; ``difference`` (within the stratum); ``contribution`` = mean over items of (difference x in the stratum). The four
        contributions sum to the contrast.
    """
    by = ["horizon", "readout", "termination"]
    spread = frame.rename({"termination": "state"}).join(pl.DataFrame({"termination": TERMINATION}), how="cross")
    inside = pl.col("state") == pl.col("termination")
    return {
        "share": item_terms(spread, by, inside),
        "difference": item_terms(spread, by, pl.col("difference"), inside, by_construction=same_input()),
        "contribution": item_terms(spread, by, pl.col("difference") * inside.cast(pl.Float64), by_construction=same_input() | ~inside),
    }


def strata(outcomes: pl.DataFrame, treatment: str, reference: str, horizon: int, common: str | None = None) -> pl.DataFrame:
    """Termination strata at one horizon, as point estimates.

    Parameters
    ----------
    outcomes
        The outcomes table of one model and benchmark.
    treatment, reference, horizon
        Arms and B.
    common
        See :func:`pairs`.

    Returns
    -------
    polars.DataFrame
        ``readout``, ``termination``, ``share``, ``difference`` (null in an empty stratum), ``contribution``; four rows per readout.

    Raises
    ------
    ValueError
        If there is no pair at that horizon.
    """
    frame = pairs(outcomes.filter(pl.col("horizon") == horizon), treatment, reference, common)
    if frame.is_empty():
        raise ValueError(f"no pair of {treatment!r} and {reference!r} at horizon {horizon}")
    by = ["readout", "termination"]
    found = {name: estimate(terms, by).rename({"estimate": name}) for name, terms in strata_terms(frame).items()}
    return found["share"].join(found["difference"], on=by, how="left").join(found["contribution"], on=by, how="left")


def matched_pairs(reads: pl.DataFrame, traces: pl.DataFrame, treatment: str, reference: str, common: str) -> pl.DataFrame:
    """Pairs at the matched horizon B = L_t (method, 4.5): the treatment's whole block against the reference's prefix, same context.

    Parameters
    ----------
    reads
        Readouts, or continuations in mode ``answer``: ``trace_id``, ``cut``, ``partner_arm``, ``context``, ``context_arm``, ``correct``.
    traces
        ``trace_id``, ``model``, ``item_id``, ``arm``, ``replicate``.
    treatment, reference, common
        Arms.

    Returns
    -------
    polars.DataFrame
        ``item_id``, ``replicate``, ``correct_t``, ``correct_r``, ``difference``.
    """
    kept = reads.filter((pl.col("cut") == "matched") & (pl.col("context") == "common") & (pl.col("context_arm") == common))
    kept = kept.select("trace_id", "partner_arm", pl.col("correct").cast(pl.Float64)).join(
        traces.select("trace_id", "item_id", "arm", "replicate"), on="trace_id"
    )
    t = kept.filter((pl.col("arm") == treatment) & (pl.col("partner_arm") == reference))
    r = kept.filter((pl.col("arm") == reference) & (pl.col("partner_arm") == treatment))
    keys = ["item_id", "replicate"]
    joined = t.select(*keys, correct_t="correct").join(r.select(*keys, correct_r="correct"), on=keys, validate="1:1")
    return joined.with_columns(difference=pl.col("correct_t") - pl.col("correct_r")).sort(keys)
