"""Estimands of the method page (section 4): frame in, frame out. docs/estimands.md lists them with formulas and tables."""

from midtrace.estimands.agreement import agreement, binned, falsifier_rows, kappa_of_shares, later_rows
from midtrace.estimands.availability import area, availability_terms, carried
from midtrace.estimands.contrasts import (
    COMMON,
    GAPS,
    PAIR_KEYS,
    TERMINATION,
    both_active_terms,
    gap_terms,
    in_context,
    matched_pairs,
    pairs,
    policy_terms,
    strata,
    strata_terms,
)
from midtrace.estimands.judging import judging
from midtrace.estimands.lengths import length_pairs, median_ratio, median_ratio_interval, weighted_medians
from midtrace.estimands.scores import score_terms
from midtrace.estimands.terms import estimate, item_terms, named

__all__ = [
    "COMMON",
    "GAPS",
    "PAIR_KEYS",
    "TERMINATION",
    "agreement",
    "area",
    "availability_terms",
    "binned",
    "both_active_terms",
    "carried",
    "estimate",
    "falsifier_rows",
    "gap_terms",
    "in_context",
    "item_terms",
    "judging",
    "kappa_of_shares",
    "later_rows",
    "length_pairs",
    "matched_pairs",
    "median_ratio",
    "median_ratio_interval",
    "named",
    "pairs",
    "policy_terms",
    "score_terms",
    "strata",
    "strata_terms",
    "weighted_medians",
]
