"""An oracle: every point estimate of a study, computed from its rows by plain Python, straight from the definitions.

It imports nothing of midtrace and shares no intermediate table with it: it reads rows of traces, cuts, readouts, continuations and controls, and
averages with ``math.fsum``. The decomposition must agree with it to 1e-12 (tests/test_oracle.py).

A result is a dictionary from the cells that name an estimate, as ``frozenset`` of (column, value), to the estimate.
"""

from helpers.oracle.arms import agreement, arm_lengths, controls, falsifier, length_contrasts, readings, replicates, retokenisation
from helpers.oracle.contrasts import availability, matched, policy, scores, strata
from helpers.oracle.sources import bounds, dominance, split, survivors
from helpers.oracle.study import Study, key

__all__ = [
    "Study",
    "agreement",
    "arm_lengths",
    "availability",
    "bounds",
    "controls",
    "dominance",
    "falsifier",
    "key",
    "length_contrasts",
    "matched",
    "policy",
    "readings",
    "replicates",
    "retokenisation",
    "scores",
    "split",
    "strata",
    "survivors",
]
