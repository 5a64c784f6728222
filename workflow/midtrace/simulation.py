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

    A reference run has L_r reasoning tokens, uniform on ``shortest``, ..., ``longest``; its treatment twin has ceil(``ratio`` x L_r). A run *solves*
    its item with a probability that varies by item (Beta with mean ``solves`` and ``spread`` = a + b); the gold answer can be read from
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
    prompt
        Chance that the treatment's own prompt makes a run say the gold answer whatever it has thought: its own answer and every reading under
        that prompt, none in the common context.
    """

    ratio: float = 1.0
    known_t: float = 1.0
    known_r: float = 1.0
    shortest: int = 1
    longest: int = 512
    solves: float = 0.7
    spread: float = 4.0
    bias_policy: float = 0.0
    bias_common: float = 0.0
    prompt: float = 0.0

    def truth(self, horizon: int) -> dict[str, float]:
        """Expected contributions of the termination strata at a horizon, under a readout without bias.

        A sum over the L_r: gain = ``solves`` x (1 - chance) wherever one arm knows and the other does not.
        """
        length_r = self._lengths()
        length_t, from_t, from_r = self._times(length_r)
        gain = self.solves * (1 - 1 / OPTIONS)
        difference = gain * ((from_t <= np.minimum(horizon, length_t)).astype(float) - (from_r <= np.minimum(horizon, length_r)))
        return {name: float((difference * inside).mean()) for name, inside in self._states(horizon).items()}

    def sources(self, horizon: int) -> dict[str, float]:
        """Expected values of what :mod:`midtrace.decomposition.sources` estimates at a horizon, biases and prompt included.

        Returns
        -------
        dict
            ``contrast``, ``contrast_own``, ``contrast_common`` under Y, ``symmetric_own`` and Y_sym; of Y the ``finishing`` contribution, its
            ``lead`` and ``finishing_share``; the ``finishing`` contribution by reading (``finishing_any_right``, ...) and the ``tipping_share``;
            of Y_sym the ``both_active_contrast``, ``trimmed_lower`` and ``trimmed_upper``, and the parts ``equal_tokens``, ``further_tokens``.
        """
        length_r = self._lengths()
        length_t, from_t, from_r = self._times(length_r)
        states = self._states(horizon)
        done_t, done_r = length_t <= horizon, length_r <= horizon
        at_t, at_r, equal = np.minimum(horizon, length_t), np.minimum(horizon, length_r), np.minimum(horizon, length_t)
        own_t = self._right(from_t <= at_t, done_t, self.bias_policy)
        own_t += self.prompt * (1 - own_t)
        own_r = self._right(from_r <= at_r, done_r, self.bias_policy)
        common_t, common_r = self._right(from_t <= at_t, done_t, self.bias_common), self._right(from_r <= at_r, done_r, self.bias_common)
        # A run's own answer is what is read of its whole block under its own prompt: Y and symmetric_own have one expectation.
        contrast, common = own_t - own_r, common_t - common_r
        finishing, active = (float((contrast * states[name]).mean()) for name in ("treatment_complete", "both_active"))
        knows = self.solves * (from_r <= at_r)
        missed = [(1 - 1 / OPTIONS) * bias for bias in (self.bias_policy, self.bias_common)]
        any_right = knows * (1 - missed[0] * missed[1]) + (1 - knows) * (1 - (1 - 1 / OPTIONS) ** 2)
        all_right = knows * (1 - missed[0]) * (1 - missed[1]) + (1 - knows) / OPTIONS**2
        readings = {"probe_own": own_r, "probe_common": common_r, "any_right": any_right, "all_right": all_right}
        one_sided = (states["treatment_complete"] | states["reference_complete"]).mean()
        active_t, active_r = (~done_t).mean(), (~done_r).mean()
        survivors = min(active_t, active_r)
        low, high = [], []
        for right, share in ((common_t * ~done_t, active_t), (common_r * ~done_r, active_r)):
            low.append(max(0.0, (right.mean() - (share - survivors)) / survivors) if survivors else np.nan)
            high.append(min(1.0, right.mean() / survivors) if survivors else np.nan)
        shorter = self._right(from_r <= np.minimum(equal, length_r), length_r <= equal, self.bias_common)
        return {
            "contrast": float(contrast.mean()),
            "contrast_own": float(contrast.mean()),
            "contrast_common": float(common.mean()),
            "finishing": finishing,
            "lead": finishing - active,
            "finishing_share": finishing / float(contrast.mean()) if contrast.mean() else np.nan,
            **{f"finishing_{name}": float(((own_t - value) * states["treatment_complete"]).mean()) for name, value in readings.items()},
            "tipping_share": float(contrast.mean() / one_sided) if one_sided else np.nan,
            "both_active_contrast": float((common * states["both_active"]).mean() / states["both_active"].mean()) if survivors else np.nan,
            "trimmed_lower": float(low[0] - high[1]),
            "trimmed_upper": float(high[0] - low[1]),
            "equal_tokens": float((common_t - shorter).mean()),
            "further_tokens": float((shorter - common_r).mean()),
        }

    def _lengths(self) -> np.ndarray:
        return np.arange(self.shortest, self.longest + 1)

    def _states(self, horizon: int) -> dict[str, np.ndarray]:
        length_r = self._lengths()
        done_t, done_r = self._times(length_r)[0] <= horizon, length_r <= horizon
        return {
            "both_complete": done_t & done_r,
            "treatment_complete": done_t & ~done_r,
            "reference_complete": ~done_t & done_r,
            "both_active": ~done_t & ~done_r,
        }

    def _right(self, known: np.ndarray, done: np.ndarray, bias: float) -> np.ndarray:
        """Chance that a reading is right: of a run that solves its item, where the answer is known and the reading does not miss it; or a guess."""
        read = self.solves * known * np.where(done, 1.0, 1.0 - bias)
        return 1 / OPTIONS + (1 - 1 / OPTIONS) * read

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
    design: Design, n_items: int, replicates: int, horizons: Sequence[int], seed: int, benchmark: str = "simulated", stratum: str = "all"
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
    stratum
        Stratum of the items, which is in their ids too: studies of several kinds of items can be put together.

    Returns
    -------
    dict
        ``item_tables``, ``traces``, ``cuts``, ``readouts``, ``continuations``, ``controls``; horizon, fraction and matched cuts, read under the
        own prompt and in the common context ``c``.
    """
    rng = np.random.default_rng(seed)
    kind = "" if stratum == "all" else f"{stratum}-"
    items = [f"{benchmark}/{kind}{k:06d}" for k in range(n_items)]
    gold = rng.integers(OPTIONS, size=n_items)
    solving = rng.beta(design.spread * design.solves, design.spread * (1 - design.solves), size=n_items)
    runs = n_items * replicates
    item, replicate = np.repeat(np.arange(n_items), replicates), np.tile(np.arange(replicates), n_items)
    length_r = rng.integers(design.shortest, design.longest + 1, size=runs)
    length_t, from_t, from_r = design._times(length_r)
    traces, cuts, readouts, natural = [], [], [], []
    for arm, length, start in (("t", length_t, from_t), ("r", length_r, from_r)):
        known = np.where(rng.random(runs) < solving[item], start, design.longest + 1)
        thought = np.where(known <= length, gold[item], rng.integers(OPTIONS, size=runs))
        given = rng.random(runs) < design.prompt if arm == "t" and design.prompt else np.zeros(runs, bool)
        final = np.where(given, gold[item], thought)
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
                choice = np.where(complete, thought, choice)
                choice = np.where(given, gold[item], choice) if context == "policy" else choice
                readouts.append(_readouts({**base, "context": context, "context_arm": context_arm}, choice, gold[item]))
            if cut == "fraction":
                answered = {**base, "context": "policy", "context_arm": arm, "mode": "natural", "text": "", "answer": _letters(final)}
                natural.append(_typed({**answered, "correct": final == gold[item], "agrees_with_probe": final == choice}))
    return {
        "item_tables": _items(items, gold, benchmark, stratum),
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
        "validity": {"bins": [0.25, 0.5, 0.75, 1.0], "later": []},
        "probed": ["simulated"],
        "inference": {**defaults, **inference},
        "seed": seed,
        "judge": None,
    }


def _letters(choice: np.ndarray) -> np.ndarray:
    return np.array(list("ABCD"))[choice]


def _items(items: Sequence[str], gold: np.ndarray, benchmark: str, stratum: str) -> pl.DataFrame:
    return pl.DataFrame({"item_id": items, "benchmark": benchmark, "stratum": stratum, "answer": _letters(gold)})


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
        grade_note=pl.lit(None, pl.String),
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
