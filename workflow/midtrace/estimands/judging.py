"""A judge beside the rules: what became of its verdicts, and how often the two graders say the same of an answer."""

from typing import Any

import polars as pl

from midtrace.estimands.agreement import agreement

READ = ("same", "different")  # verdicts that were read


def judging(frame: pl.DataFrame, by: list[str], **settings: Any) -> pl.DataFrame:
    """Counts of verdicts, and the agreement of the judge with the rules.

    Parameters
    ----------
    frame
        One row per answer that a judge graded: ``item_id``, ``by``, ``correct``, ``rules_correct``, ``judge_verdict``.
    by
        Keys.
    **settings
        ``resamples``, ``level``, ``seed``, ``method``, ``strata``: see :func:`midtrace.estimands.agreement`.

    Returns
    -------
    polars.DataFrame
        ``by``, ``estimand``, ``estimate``, ``ci_low``, ``ci_high``, ``n_items``, ``n_pairs`` (answers), ``method``. Numbers of answers, without
        limits: ``both_right``, ``only_judge``, ``only_rules``, ``both_wrong`` of those whose verdict was read; ``unread``, ``truncated``,
        ``not_asked``, which with those four are all answers. ``agreement`` and ``kappa`` (Cohen's) of right and wrong, where the verdict was read:
        answers are averaged within item first, and items weigh equally.
    """
    if frame.is_empty():
        return pl.DataFrame()
    read, judge, rules = pl.col("judge_verdict").is_in(READ), pl.col("correct"), pl.col("rules_correct")
    cells = {
        "both_right": read & judge & rules,
        "only_judge": read & judge & ~rules,
        "only_rules": read & ~judge & rules,
        "both_wrong": read & ~judge & ~rules,
        **{outcome: pl.col("judge_verdict") == outcome for outcome in ("unread", "truncated", "not_asked")},
    }
    totals = [pl.col("item_id").n_unique().cast(pl.Int64).alias("n_items"), pl.len().cast(pl.Int64).alias("n_pairs")]
    counts = (
        frame.group_by(by, maintain_order=True)
        .agg(*(cell.sum().cast(pl.Float64).alias(name) for name, cell in cells.items()), *totals)
        .unpivot(on=list(cells), index=[*by, "n_items", "n_pairs"], variable_name="estimand", value_name="estimate")
        .with_columns(method=pl.lit("count"))
    )
    sides = frame.filter(read).with_columns(
        choice=judge.cast(pl.String), answer=rules.cast(pl.String), probe_correct="correct", answer_correct="rules_correct"
    )
    agreed = agreement(sides, by, **settings)
    kept = [agreed.filter(pl.col("estimand").is_in(["agreement", "kappa"]))] if len(agreed) else []
    return pl.concat([counts, *kept], how="diagonal_relaxed").sort(by, maintain_order=True)
