"""Estimands of the method page (section 4): frame in, frame out. docs/estimands.md lists them with formulas and tables."""

from midtrace.estimands.agreement import NOT_READ, agreement, binned, falsifier_rows, kappa_of_shares, later_rows, right_or_wrong
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
from midtrace.estimands.dominance import DOMINANCE, dominance, dominance_means, intersection_union, positive_p
from midtrace.estimands.judging import judging
from midtrace.estimands.lengths import length_pairs, median_ratio, weighted_medians
from midtrace.estimands.readout_bounds import COMBINED, TIPPING, reading_pairs, reading_terms, tipping, tipping_means
from midtrace.estimands.scores import score_terms
from midtrace.estimands.split import split_pairs, split_terms
from midtrace.estimands.survivors import STANDARDISED, SURVIVORS, length_strata, quantile_edges, standardised, survivor_means, trimmed
from midtrace.estimands.terms import estimate, item_means, item_terms, named

__all__ = [
    "COMBINED",
    "COMMON",
    "DOMINANCE",
    "GAPS",
    "NOT_READ",
    "PAIR_KEYS",
    "STANDARDISED",
    "SURVIVORS",
    "TERMINATION",
    "TIPPING",
    "agreement",
    "area",
    "availability_terms",
    "binned",
    "both_active_terms",
    "carried",
    "dominance",
    "dominance_means",
    "estimate",
    "falsifier_rows",
    "gap_terms",
    "in_context",
    "intersection_union",
    "item_means",
    "item_terms",
    "judging",
    "kappa_of_shares",
    "later_rows",
    "length_pairs",
    "length_strata",
    "matched_pairs",
    "median_ratio",
    "named",
    "pairs",
    "policy_terms",
    "positive_p",
    "quantile_edges",
    "reading_pairs",
    "reading_terms",
    "right_or_wrong",
    "score_terms",
    "split_pairs",
    "split_terms",
    "standardised",
    "strata",
    "strata_terms",
    "survivor_means",
    "tipping",
    "tipping_means",
    "trimmed",
    "weighted_medians",
]
