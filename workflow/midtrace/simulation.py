"""Simulated studies whose truth is known: to check that the decomposition finds what was put in, and how often its intervals cover it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from midtrace import tables

OPTIONS = 4
CONFIDENT = 0.7  # probability of the chosen option in a simulated readout; the others share the rest
FRACTIONS = (0.25, 0.5, 0.75, 1.0)
CONTEXTS = {"probe": ("policy", "common")}  # what is read, as midtrace.outcomes takes it: nothing is continued


@dataclass(frozen=True)
class Design:
    """Two arms, ``t`` (treatment) and ``r`` (reference), on items with four options.

    A reference run has L_r reasoning tokens, uniform on 1, ..., ``longest``; its treatment twin has ceil(``ratio`` x L_r). A run *solves* its
    item with a probability that varies by item (Beta with mean ``solves`` and ``spread`` = a + b); the gold answer can be read from
    ceil(``known`` x L_r) tokens on (one value per arm, at most the arm's own length). Before that, and in runs that solve nothing, answers
    are guesses.

    Attributes
    ----------
    ratio
        Length of the treatment over the reference.
    known_t, known_r
        When the answer can be read, as a share of L_r.
    solves, spread
        Distribution of the probability to solve.
    bias_policy, bias_common
        Chance that the probe reads a guess from an *unfinished* prefix although the answer is known there, under the own prompt and in the
        common context.
    """

    ratio: float = 1.0
    known_t: float = 1.0
    known_r: float = 1.0
    longest: int = 512
    solves: float = 0.7
    spread: float = 4.0
    bias_policy: float = 0.0
    bias_common: float = 0.0

    def truth(self, horizon: int) -> dict[str, float]:
        """Expected contributions of the termination strata at a horizon, under a readout without bias.

        A sum over the L_r: gain = ``solves`` x (1 - chance) wherever one arm knows and the other does not.
        """
        length_r = np.arange(1, self.longest + 1)
        length_t, from_t, from_r = self._times(length_r)
        gain = self.solves * (1 - 1 / OPTIONS)
        difference = gain * ((from_t <= np.minimum(horizon, length_t)).astype(float) - (from_r <= np.minimum(horizon, length_r)))
        done_t, done_r = length_t <= horizon, length_r <= horizon
        strata = {
            "both_complete": done_t & done_r,
            "treatment_complete": done_t & ~done_r,
            "reference_complete": ~done_t & done_r,
            "both_active": ~done_t & ~done_r,
        }
        return {name: float((difference * inside).mean()) for name, inside in strata.items()}

    def _times(self, length_r: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Length of the treatment, and tokens from which the answer is known in either arm."""
        length_t = np.ceil(self.ratio * length_r).astype(int)
        from_t = np.minimum(np.ceil(self.known_t * length_r).astype(int), length_t)
        return length_t, from_t, np.minimum(np.ceil(self.known_r * length_r).astype(int), length_r)


# Finishing earlier and nothing else; knowing more of an unfinished prefix and nothing else; both.
TIMING = Design(ratio=0.5, known_t=0.5, known_r=1.0)
QUALITY = Design(ratio=1.0, known_t=0.4, known_r=1.0)
MIXED = Design(ratio=0.6, known_t=0.4, known_r=1.0)
# No effect at all: both arms know at the same token, and the treatment stops talking sooner.
NULL = Design(ratio=0.6, known_t=0.3, known_r=0.3)


def simulate(
    design: Design, n_items: int, replicates: int, horizons: Sequence[int], seed: int, benchmark: str = "simulated"
) -> dict[str, pl.DataFrame]:
    """A study as the tables that :func:`midtrace.decomposition.decompose` takes.

    Parameters
    ----------
    design
        What is planted.
    n_items, replicates, horizons, seed
        Size, horizons in tokens, seed.
    benchmark
        Name of the benchmark; the model is ``simulated``.

    Returns
    -------
    dict
        ``item_tables``, ``traces``, ``cuts``, ``readouts``, ``continuations``, ``controls``; horizon, fraction and matched cuts, read under the
        own prompt and in the common context ``c``.
    """
    rng = np.random.default_rng(seed)
    items = [f"{benchmark}/{k:06d}" for k in range(n_items)]
    gold = rng.integers(OPTIONS, size=n_items)
    solving = rng.beta(design.spread * design.solves, design.spread * (1 - design.solves), size=n_items)
    runs = n_items * replicates
    item, replicate = np.repeat(np.arange(n_items), replicates), np.tile(np.arange(replicates), n_items)
    length_r = rng.integers(1, design.longest + 1, size=runs)
    length_t, from_t, from_r = design._times(length_r)
    traces, cuts, readouts, natural = [], [], [], []
    for arm, length, start in (("t", length_t, from_t), ("r", length_r, from_r)):
        known = np.where(rng.random(runs) < solving[item], start, design.longest + 1)
        final = np.where(known <= length, gold[item], rng.integers(OPTIONS, size=runs))
        ids = np.array([f"simulated/{items[i]}/{arm}/r{k}" for i, k in zip(item, replicate, strict=True)])
        trace = {"trace_id": ids, "item": item, "replicate": replicate, "n_reasoning": length, "final": final}
        traces.append(_traces(trace, arm, items, gold))
        partner = "r" if arm == "t" else "t"
        places: list[tuple[str, str, int | None, float | None, np.ndarray]] = [
            ("horizon", f"horizon:{b}", b, None, np.minimum(b, length)) for b in horizons
        ]
        places += [("fraction", f"fraction:{x:g}", None, x, np.ceil(x * length).astype(int)) for x in FRACTIONS]
        places.append(("matched", f"matched:{partner}", None, None, np.minimum(length_t, length)))
        for cut, name, horizon, fraction, n in places:
            until = np.full(runs, horizon) if horizon is not None else length_t if cut == "matched" else n
            complete = length <= until
            base = {"trace_id": ids, "cut_id": name, "cut": cut, "horizon": until if cut == "matched" else horizon, "fraction": fraction}
            base |= {"partner_arm": partner if cut == "matched" else None, "n_tokens": n, "complete": complete}
            cuts.append(_typed({**base, "drift": False}))
            contexts = [("policy", arm, design.bias_policy)]
            contexts += [] if cut == "fraction" else [("common", "c", design.bias_common)]
            for context, context_arm, bias in contexts:
                missed = ~complete & (rng.random(runs) < bias)
                choice = np.where((known <= n) & ~missed, gold[item], rng.integers(OPTIONS, size=runs))
                choice = np.where(complete, final, choice)
                readouts.append(_readouts({**base, "context": context, "context_arm": context_arm}, choice, gold[item]))
            if cut == "fraction":
                answered = {**base, "context": "policy", "context_arm": arm, "mode": "natural", "text": "", "answer": _letters(final)}
                natural.append(_typed({**answered, "correct": final == gold[item], "agrees_with_probe": final == choice}))
    return {
        "item_tables": _items(items, gold, benchmark),
        "traces": pl.concat(traces),
        "cuts": pl.concat(cuts),
        "readouts": pl.concat(readouts),
        "continuations": pl.concat(natural),
        "controls": tables.Controls.create_empty(),
    }


def settings(horizons: Sequence[int], seed: int = 0, **inference: Any) -> dict[str, Any]:
    """Settings for :func:`midtrace.decomposition.decompose` on a simulated study."""
    defaults = {"resamples": 2_000, "level": 0.95, "margin": 0.03, "method": "percentile", "sensitivity_resamples": 0}
    return {
        "models": ["simulated"],
        "benchmarks": ["simulated"],
        "comparisons": [{"treatment": "t", "reference": "r", "common": "c"}],
        "horizons": list(horizons),
        "availability": {"horizons": list(horizons)},
        "validity": {"bins": [0.25, 0.5, 0.75, 1.0]},
        "inference": {**defaults, **inference},
        "seed": seed,
        "judge": None,
    }


def _letters(choice: np.ndarray) -> np.ndarray:
    return np.array(list("ABCD"))[choice]


def _items(items: Sequence[str], gold: np.ndarray, benchmark: str) -> pl.DataFrame:
    return pl.DataFrame({"item_id": items, "benchmark": benchmark, "stratum": "all", "answer": _letters(gold)})


def _traces(trace: Mapping[str, np.ndarray], arm: str, items: Sequence[str], gold: np.ndarray) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "trace_id": trace["trace_id"],
            "model": "simulated",
            "item_id": np.array(items)[trace["item"]],
            "arm": arm,
            "replicate": trace["replicate"].astype(np.int32),
            "n_reasoning": trace["n_reasoning"].astype(np.int32),
            "status": "terminated",
            "answer": _letters(trace["final"]),
            "correct": trace["final"] == gold[trace["item"]],
            "token_exact": True,
        }
    ).with_columns(
        # Any ids do: runs of one item differ by their replicate.
        output_ids=pl.concat_list(pl.col("replicate"), pl.col("n_reasoning")),
        drift_at=pl.lit(None, pl.Int32),
    )


def _readouts(base: Mapping[str, Any], choice: np.ndarray, gold: np.ndarray) -> pl.DataFrame:
    right = choice == gold
    q = np.where(right, CONFIDENT, (1 - CONFIDENT) / (OPTIONS - 1))
    others = (1 - CONFIDENT) / (OPTIONS - 1)
    brier = np.where(right, (1 - CONFIDENT) ** 2 + 3 * others**2, CONFIDENT**2 + (1 - others) ** 2 + 2 * others**2)
    scores = {"q_gold": q, "correct": right, "brier": brier, "log_loss": -np.log(q), "gold_log_odds": np.log(q / (1 - q))}
    return _typed({**base, "choice": _letters(choice), **scores})


def _typed(columns: Mapping[str, Any]) -> pl.DataFrame:
    types = {"horizon": pl.Int32, "n_tokens": pl.Int32, "fraction": pl.Float64, "partner_arm": pl.String}
    return pl.DataFrame(columns).with_columns(pl.col(name).cast(dtype) for name, dtype in types.items())
