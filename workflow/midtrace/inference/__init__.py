"""Inference: intervals and tests. Items are the sampling unit; replicates are averaged within item before anything else (method, section 5)."""

from midtrace.inference.bootstrap import Intervals, bootstrap_function, bootstrap_statistic, item_bootstrap, resample_weights, weight_chunks
from midtrace.inference.hypotheses import equivalence, holm, linear_scores, mean_p
from midtrace.inference.intervals import bounded, intervals
from midtrace.inference.mixed import CrossedFit, crossed_intercepts
from midtrace.inference.replicates import duplicate_replicates, per_replicate
from midtrace.inference.resampling import Bands, nested_bootstrap, two_way_bootstrap

__all__ = [
    "Bands",
    "CrossedFit",
    "Intervals",
    "bootstrap_function",
    "bootstrap_statistic",
    "bounded",
    "crossed_intercepts",
    "duplicate_replicates",
    "equivalence",
    "holm",
    "intervals",
    "item_bootstrap",
    "linear_scores",
    "mean_p",
    "nested_bootstrap",
    "per_replicate",
    "resample_weights",
    "two_way_bootstrap",
    "weight_chunks",
]
