"""Do the intervals cover, and does the decomposition find what was planted? Seeded simulation studies with known truth, as JSON lines.

``coverage``: how often a nominal 95% interval of the mean difference holds the truth, at 200 items x 3 replicates, by method and by where the
variance lies. ``conditional``: the same for a ratio of item means, and for completion curves with unequal
replicates. ``bands``: how often the simultaneous bands hold all of 12 horizons. ``strata``: planted effects against measured contributions.
``bias``: a readout that misses what unfinished prefixes know. ``sources``: dominance, readout and survivor bounds, tipping point, equal-token split.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl
from scipy import stats

from midtrace import simulation
from midtrace.decomposition import contrasts
from midtrace.estimands.survival import summary as survival_summary
from midtrace.inference import crossed_intercepts, item_bootstrap, linear_scores, nested_bootstrap, two_way_bootstrap
from midtrace.outcomes import outcomes

ITEMS, REPLICATES, HORIZON = 200, 3, 192
TRUE_MEAN = 0.1


def normal(rng: np.random.Generator, studies: int, item: float, replicate: float, residual: float) -> np.ndarray:
    """Differences with normal effects, shape (items, replicates, studies); their mean is ``TRUE_MEAN``."""
    effects = rng.normal(0, item, (ITEMS, 1, studies)) + rng.normal(0, replicate, (1, REPLICATES, studies))
    return TRUE_MEAN + effects + rng.normal(0, residual, (ITEMS, REPLICATES, studies))


def answers(rng: np.random.Generator, studies: int, spread: float) -> np.ndarray:
    """Differences of right answers, in {-1, 0, 1}: a run is right with a probability that is Beta over items, apart in each arm.

    ``spread`` is a + b: the smaller, the more an item decides.
    """
    treatment, reference = (rng.beta(spread * mean, spread * (1 - mean), (ITEMS, 1, studies)) for mean in (0.6 + TRUE_MEAN, 0.6))
    shape = (ITEMS, REPLICATES, studies)
    return (rng.random(shape) < treatment).astype(float) - (rng.random(shape) < reference)


DESIGNS = {
    "answers, items decide": lambda rng, n: answers(rng, n, 0.5),
    "answers, mixed": lambda rng, n: answers(rng, n, 2.0),
    "answers, luck decides": lambda rng, n: answers(rng, n, 20.0),
    "normal, items over residual 2:1": lambda rng, n: normal(rng, n, 2**0.5, 0.0, 1.0),
    "normal, items over residual 1:4": lambda rng, n: normal(rng, n, 0.5, 0.0, 1.0),
    "normal, a replicate effect": lambda rng, n: normal(rng, n, 2**0.5, 0.1, 1.0),
}


def coverage(studies: int, resamples: int, seed: int) -> Iterator[dict]:
    """Coverage by design and method. All studies of a design are columns of one call: they share resamples, not data."""
    for number, (design, draw) in enumerate(DESIGNS.items()):
        values = draw(np.random.default_rng([seed, number]), studies)
        settings = {"resamples": resamples, "seed": seed}
        means = values.mean(axis=1)
        alone = list(range(studies))
        found = {
            "item, percentile": item_bootstrap(means, **settings),
            "item, BCa": item_bootstrap(means, **settings, method="bca"),
            "nested": nested_bootstrap(values, **settings, families=alone),
            "two-way": two_way_bootstrap(values, **settings, families=alone),
        }
        limits = {name: (result.low, result.high) for name, result in found.items()}
        item, replicate = np.repeat(np.arange(ITEMS), REPLICATES), np.tile(np.arange(REPLICATES), ITEMS)
        fits = [crossed_intercepts(values[:, :, k].ravel(), item, replicate) for k in range(studies)]
        limits["crossed intercepts"] = (np.array([fit.low[0] for fit in fits]), np.array([fit.high[0] for fit in fits]))
        singular = float(np.mean([fit.status != "ok" for fit in fits]))
        for method, (low, high) in limits.items():
            covered = (low <= TRUE_MEAN) & (high >= TRUE_MEAN)
            row = {"study": "coverage", "design": design, "method": method, "covered": round(float(covered.mean()), 4)}
            row |= {"width": round(float((high - low).mean()), 4), "studies": studies, "resamples": resamples}
            yield row | ({"not_ok": round(singular, 3)} if method == "crossed intercepts" else {})


def conditional(studies: int, resamples: int, seed: int) -> Iterator[dict]:
    """Coverage for a ratio of item means (pairs that meet a condition, more often in some items) and for a curve with unequal replicates.

    The item effect is correlated with how often an item's pairs meet the condition, so that the ratio differs from the mean of item means.
    """
    rng = np.random.default_rng([seed, 7])
    chance = rng.beta(1.0, 1.0, (ITEMS, 1, studies))
    inside = rng.random((ITEMS, REPLICATES, studies)) < chance
    values = rng.normal(chance, 1.0, (ITEMS, REPLICATES, studies)) * inside
    truth = (1 / 3) / (1 / 2)  # E[chance^2] / E[chance] of a uniform chance
    top, bottom = values.mean(axis=1), inside.mean(axis=1)
    settings = {"resamples": resamples, "seed": seed}
    limits = {}
    for method in ("percentile", "bca"):
        found = item_bootstrap(top, bottom, **settings, method=method)
        limits[f"item, {method}"] = found.low, found.high
    for name, bootstrap in (("nested", nested_bootstrap), ("two-way", two_way_bootstrap)):
        bands_of = bootstrap(values, inside, **settings, families=list(range(studies)))
        limits[name] = bands_of.low, bands_of.high
    item, replicate = np.indices((ITEMS, REPLICATES)).reshape(2, -1)
    fits, scores = [], []
    for k in range(studies):
        kept = inside[:, :, k].ravel()
        fits.append(crossed_intercepts(values[:, :, k].ravel()[kept], item[kept], replicate[kept], weights=np.full(kept.sum(), 1 / kept.sum())))
        own = linear_scores(top[:, k], bottom[:, k])
        scores.append(own.mean() + np.array([-1, 1]) * stats.t.ppf(0.975, len(own) - 1) * own.std(ddof=1) / np.sqrt(len(own)))
    limits["crossed intercepts"] = np.array([fit.low[0] for fit in fits]), np.array([fit.high[0] for fit in fits])
    limits["t, linearised scores"] = np.array(scores)[:, 0], np.array(scores)[:, 1]
    for method, (low, high) in limits.items():
        covered = float(((low <= truth) & (high >= truth)).mean())
        yield {"study": "conditional", "quantity": "ratio of item means", "method": method, "covered": round(covered, 4), "studies": studies}
    yield from completion(studies, resamples, seed)


def completion(studies: int, resamples: int, seed: int) -> Iterator[dict]:
    """Coverage of P(L <= 60) and of the restricted mean up to 80, with 1 to 4 replicates and a cap at random lengths."""
    rng = np.random.default_rng([seed, 8])
    hits = np.zeros(2)
    # An item's runs are geometric with a mean of its own, uniform in 20 to 100.
    means = np.linspace(20, 100, 8_001)
    survival = (1 - 1 / means[:, None]) ** np.arange(81)
    truth = 1 - survival[:, 60].mean(), survival[:, :80].mean(axis=0).sum()
    for k in range(studies):
        counts = rng.integers(1, 5, ITEMS)
        owner = np.repeat(np.arange(ITEMS), counts)
        length = rng.geometric(1 / rng.uniform(20, 100, ITEMS)[owner])
        cap = rng.integers(30, 200, len(owner))
        status = np.where(length > cap, "truncated", "terminated")
        frame = pl.DataFrame({"item_id": owner, "n_reasoning": np.minimum(length, cap), "status": status})
        found = survival_summary(frame, [60, 80], resamples=resamples, level=0.95, seed=seed + k)
        for at, row in enumerate((0, 2)):
            hits[at] += found["ci_low"][row] <= truth[at] <= found["ci_high"][row]
    for name, count in zip(("completion at 60", "restricted mean up to 80"), hits, strict=True):
        yield {"study": "conditional", "quantity": name, "method": "Kaplan-Meier", "covered": round(count / studies, 4), "studies": studies}


def bands(studies: int, resamples: int, seed: int) -> Iterator[dict]:
    """Simultaneous coverage of 12 correlated estimands by pointwise limits and by bands."""
    rng = np.random.default_rng([seed, 99])
    shared = rng.normal(size=(ITEMS, 1, studies, 1)) + rng.normal(size=(ITEMS, 1, studies, 12))
    values = TRUE_MEAN + shared + rng.normal(size=(ITEMS, REPLICATES, studies, 12))
    for scaled in (False, True):
        families = np.repeat(np.arange(studies), 12)
        flat = values.reshape(ITEMS, REPLICATES, studies * 12)
        found = nested_bootstrap(flat, resamples=resamples, seed=seed, families=families, scaled=scaled)
        for name, low, high in (("pointwise", found.low, found.high), ("bands", found.band_low, found.band_high)):
            inside = ((low <= TRUE_MEAN) & (high >= TRUE_MEAN)).reshape(studies, 12).all(axis=1)
            yield {"study": "bands", "limits": name, "scaled": scaled, "all_12_covered": round(float(inside.mean()), 4), "studies": studies}


def measured(design: simulation.Design, seed: int, resamples: int) -> dict[str, pl.DataFrame]:
    """Tables ``policy``, ``strata`` and ``falsifier`` of one simulated study."""
    frames = simulation.simulate(design, ITEMS, REPLICATES, [HORIZON], seed)
    settings = simulation.settings([HORIZON], seed, resamples=resamples)
    stages = ("item_tables", "traces", "cuts", "readouts", "continuations")
    rows = outcomes(*(frames[name] for name in stages), contexts=simulation.CONTEXTS)
    comparison = settings["comparisons"][0]
    at_matched = contrasts.matched_reads(frames, frames["traces"], comparison)
    tables, _ = contrasts.by_horizon(rows.lazy(), frames["traces"], at_matched, comparison, settings)
    return {**tables, "falsifier": contrasts.falsifier(frames["readouts"], frames["traces"], comparison, settings)}


def strata(studies: int, resamples: int, seed: int) -> Iterator[dict]:
    """Mean measured contributions at 192 tokens beside the planted ones, and how often their intervals hold them."""
    for name, design in {"timing": simulation.TIMING, "quality": simulation.QUALITY, "mixed": simulation.MIXED, "null": simulation.NULL}.items():
        truth = design.truth(HORIZON)
        tables = [measured(design, seed + k, resamples)["strata"] for k in range(studies)]
        found = pl.concat(tables).filter(pl.col("readout") == "symmetric")
        for termination, value in truth.items():
            rows = found.filter(pl.col("termination") == termination)
            covered = rows.select(pl.lit(value).is_between(pl.col("ci_low") - 1e-12, pl.col("ci_high") + 1e-12).mean()).item()
            row = {"study": "strata", "design": name, "termination": termination, "planted": round(value, 4)}
            yield row | {"measured": round(float(rows["estimate"].mean()), 4), "covered": round(covered, 3), "studies": studies}


def bias(studies: int, resamples: int, seed: int) -> Iterator[dict]:
    """No effect but a probe that reads guesses from 60% of the unfinished prefixes that know: where it shows, and where it must not."""
    scopes = {"none": {}, "own prompt": {"bias_policy": 0.6}, "own prompt and common context": {"bias_policy": 0.6, "bias_common": 0.6}}
    places = {
        "contrast, Y": ("policy", {"estimand": "contrast", "readout": "terminal", "horizon": HORIZON}),
        "contrast, Y_sym": ("policy", {"estimand": "contrast", "readout": "symmetric", "horizon": HORIZON}),
        "readout gap": ("policy", {"estimand": "readout_gap", "horizon": HORIZON}),
        "context gap": ("policy", {"estimand": "context_gap", "horizon": HORIZON}),
        "both active, Y_sym": ("policy", {"estimand": "both_active_contrast", "readout": "symmetric", "horizon": HORIZON}),
        "falsifier, own prompt: accuracy gap": ("falsifier", {"estimand": "accuracy_gap", "context": "policy", "fraction": None}),
        "falsifier, common: accuracy gap": ("falsifier", {"estimand": "accuracy_gap", "context": "common", "fraction": None}),
        "falsifier, common: agreement": ("falsifier", {"estimand": "agreement", "context": "common", "fraction": None}),
    }
    for scope, biases in scopes.items():
        design = simulation.Design(ratio=0.6, known_t=0.3, known_r=0.3, **biases)
        found = [measured(design, seed + k, resamples) for k in range(studies)]
        for name, (table, where) in places.items():
            rows = pl.concat(tables[table] for tables in found)
            for column, value in where.items():
                rows = rows.filter(pl.col(column).eq_missing(pl.lit(value)))
            away = rows.select(((pl.col("ci_low") > 0) | (pl.col("ci_high") < 0)).mean()).item()
            row = {"study": "bias", "biased": scope, "quantity": name, "mean": round(float(rows["estimate"].mean()), 4)}
            yield row | {"interval_without_0": round(away, 3), "studies": studies}


def source_tables(frames: dict[str, pl.DataFrame], seed: int, resamples: int, **inference: object) -> dict[str, pl.DataFrame]:
    """Tables ``dominance``, ``bounds``, ``survivors``, ``split`` (and ``policy``) of one simulated study at 192 tokens."""
    settings = simulation.settings([HORIZON], seed, resamples=resamples, **inference)
    settings["strata"] = dict(frames["item_tables"].select("item_id", "stratum").iter_rows()) if inference.get("strata") else None
    comparison = settings["comparisons"][0]
    stages = ("item_tables", "traces", "cuts", "readouts", "continuations")
    rows = outcomes(*(frames[name] for name in stages), contexts=simulation.CONTEXTS)
    at_matched = contrasts.matched_reads(frames, frames["traces"], comparison)
    return contrasts.by_horizon(rows.lazy(), frames["traces"], at_matched, comparison, settings)[0]


# Easy items with short runs, hard ones with long runs: what unfinished prefixes know differs, and so do the shares that are unfinished.
EASY = simulation.Design(ratio=0.8, known_t=0.5, known_r=1.0, shortest=100, longest=300)
HARD = simulation.Design(ratio=0.8, known_t=0.5, known_r=1.0, shortest=301, longest=500)
SOURCES = {
    "mixed": simulation.MIXED,
    "biased readout": simulation.Design(ratio=0.6, known_t=0.3, known_r=0.3, bias_policy=0.6),
    "prompt effect": simulation.Design(ratio=0.6, known_t=0.4, known_r=1.0, prompt=0.2),
}
# Quantity -> where it stands.
PLACES = {
    **{name: ("dominance", {"estimand": name, "readout": "terminal"}) for name in ("finishing", "lead", "finishing_share")},
    **{
        f"finishing_{name}": ("bounds", {"estimand": "contribution", "reading": name, "termination": "treatment_complete"})
        for name in ("probe_own", "probe_common", "any_right", "all_right")
    },
    "tipping_share": ("bounds", {"estimand": "tipping_share", "reading": "probe_own"}),
    **{name: ("survivors", {"estimand": name, "readout": "symmetric"}) for name in ("both_active_contrast", "trimmed_lower", "trimmed_upper")},
    **{name: ("split", {"estimand": name, "readout": "symmetric"}) for name in ("equal_tokens", "further_tokens")},
}
LOWEST = ("bounds", {"estimand": "contrast", "reading": "lowest"})
HIGHEST = ("bounds", {"estimand": "contrast", "reading": "highest"})


def at(tables: dict[str, pl.DataFrame], place: tuple[str, dict]) -> dict:
    """The row of a place in ``PLACES``."""
    table, where = place
    found = tables[table].filter(*(pl.col(column) == value for column, value in where.items()))
    assert len(found) == 1, place
    return found.row(0, named=True)


def sources(studies: int, resamples: int, seed: int) -> Iterator[dict]:
    """Coverage of the intervals of every estimand of method 4.10 to 4.13, and how often bounds with their outer limits hold what they bound."""
    for name, design in SOURCES.items():
        truth = design.sources(HORIZON)
        unbiased = replace(design, bias_policy=0.0, bias_common=0.0).sources(HORIZON)
        found = [source_tables(simulation.simulate(design, ITEMS, REPLICATES, [HORIZON], seed + k), seed + k, resamples) for k in range(studies)]
        for quantity, place in PLACES.items():
            yield covering(name, quantity, truth[quantity], [at(tables, place) for tables in found])
        ends = {"contrast without bias": (unbiased["contrast"], LOWEST, HIGHEST)}
        ends["both-active contrast"] = (truth["both_active_contrast"], PLACES["trimmed_lower"], PLACES["trimmed_upper"])
        for quantity, (value, lower, upper) in ends.items():
            limits = [(at(tables, lower), at(tables, upper)) for tables in found]
            inside = np.mean([low["ci_low"] <= value <= high["ci_high"] for low, high in limits])
            between = [float(np.mean([row["estimate"] for row in side])) for side in zip(*limits, strict=True)]
            row = {"study": "sources", "design": name, "quantity": f"bounds of the {quantity}", "truth": round(value, 4)}
            yield row | {"mean": [round(end, 4) for end in between], "held": round(float(inside), 4), "studies": studies}
    kinds = [EASY.truth(HORIZON)["both_active"], HARD.truth(HORIZON)["both_active"]]
    shares = [kind._states(HORIZON)["both_active"].mean() for kind in (EASY, HARD)]
    standard = float(np.mean([active / share for active, share in zip(kinds, shares, strict=True)]))
    rows = {"standardised_contrast": [], "both_active_contrast": []}
    for k in range(studies):
        easy = simulation.simulate(EASY, ITEMS // 2, REPLICATES, [HORIZON], seed + k, stratum="easy")
        hard = simulation.simulate(HARD, ITEMS // 2, REPLICATES, [HORIZON], seed + studies + k, stratum="hard")
        frames = {stage: pl.concat([easy[stage], hard[stage]]) for stage in easy}
        tables = source_tables(frames, seed + k, resamples, strata=True, length_strata=2)
        for quantity, kept in rows.items():
            kept.append(at(tables, ("survivors", {"estimand": quantity})))
    truths = {"standardised_contrast": standard, "both_active_contrast": float(sum(kinds) / sum(shares))}
    for quantity, kept in rows.items():
        yield covering("easy and hard items", quantity, truths[quantity], kept)


def covering(design: str, quantity: str, truth: float, rows: list[dict]) -> dict:
    """Mean estimate and coverage of one quantity over studies; studies without limits are counted."""
    limited = [row for row in rows if row["ci_low"] is not None]
    covered = np.mean([row["ci_low"] <= truth <= row["ci_high"] for row in limited]) if limited else float("nan")
    mean = float(np.mean([row["estimate"] for row in rows]))
    row = {"study": "sources", "design": design, "quantity": quantity, "truth": round(truth, 4), "mean": round(mean, 4)}
    return row | {"covered": round(float(covered), 4), "without_limits": len(rows) - len(limited), "studies": len(rows)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=2_000, help="simulated studies per design of coverage")
    parser.add_argument("--whole-studies", type=int, default=200, help="simulated studies per design of strata, bias and sources")
    parser.add_argument("--only", choices=["coverage", "conditional", "bands", "strata", "bias", "sources"], nargs="+", help="some of the six")
    parser.add_argument("--resamples", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=20261130)
    chosen = parser.parse_args()
    parts = {"coverage": (coverage, chosen.studies), "conditional": (conditional, chosen.studies // 4)}
    parts["bands"] = bands, chosen.studies // 10
    parts |= {"strata": (strata, chosen.whole_studies), "bias": (bias, chosen.whole_studies), "sources": (sources, chosen.whole_studies)}
    for name, (part, studies) in parts.items():
        if chosen.only is None or name in chosen.only:
            for line in part(studies, chosen.resamples, chosen.seed):
                print(json.dumps(line), flush=True)
