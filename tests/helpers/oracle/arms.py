"""Lengths, readings, controls, copies (method, 2, 4.1, 4.7, 4.8)."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from helpers.oracle.study import UNREAD, Reading, Results, Row, Study, item_mean, key

# What ``grade_note`` says of an answer that was read without an answer statement (docs/benchmarks.md).
UNSTATED = "read without an answer statement"


def length_contrasts(study: Study, comparison: Mapping[str, str]) -> Results:
    """Ratios of reasoning lengths over well-formed pairs (method, 4.1)."""
    well_formed = [
        pair for pair in study.pairs(comparison["treatment"], comparison["reference"]) if all(run["status"] != "malformed" for run in pair)
    ]
    results: Results = {}
    positive = [(t["item_id"], math.log(t["n_reasoning"] / r["n_reasoning"])) for t, r in well_formed if t["n_reasoning"] and r["n_reasoning"]]
    if positive:
        results[key(estimand="geometric_mean_ratio")] = math.exp(item_mean(positive))
    if well_formed:
        sides = [median([(pair[side]["item_id"], pair[side]["n_reasoning"]) for pair in well_formed]) for side in (0, 1)]
        if sides[1]:
            results[key(estimand="median_ratio")] = sides[0] / sides[1]
    return results


def median(values: Sequence[tuple[Hashable, float]]) -> float:
    """Median of (item, value) with items weighing equally: where the cumulative weight passes one half; the mean of both neighbours if it hits it."""
    counts = Counter(item for item, _ in values)
    # In whole numbers: a half must be hit exactly or not at all.
    unit = math.lcm(*counts.values())
    ordered = sorted((value, unit // counts[item]) for item, value in values)
    total, reached = sum(weight for _, weight in ordered), 0
    for place, (value, weight) in enumerate(ordered):
        reached += weight
        if 2 * reached > total:
            return value
        if 2 * reached == total:
            return (value + ordered[place + 1][0]) / 2
    raise AssertionError("no weight")


def completion(runs: Sequence[Row], horizon: float) -> float:
    """P(L <= B) by Kaplan-Meier; a run weighs 1 / n_i, truncated runs are censored at their length, malformed ones never complete."""
    counts = Counter(run["item_id"] for run in runs)
    weights = [1 / counts[run["item_id"]] for run in runs]
    surviving = 1.0
    for time in sorted({run["n_reasoning"] for run in runs if run["status"] == "terminated" and run["n_reasoning"] <= horizon}):
        events = math.fsum(w for run, w in zip(runs, weights, strict=True) if run["status"] == "terminated" and run["n_reasoning"] == time)
        at_risk = math.fsum(w for run, w in zip(runs, weights, strict=True) if run["status"] == "malformed" or run["n_reasoning"] >= time)
        surviving *= 1 - events / at_risk
    return 1 - surviving


def arm_lengths(study: Study, arm: str, horizons: Sequence[int]) -> Results:
    """Lengths and shares of one arm (method, 4.1)."""
    runs = [row for row in study.traces if row["arm"] == arm]
    if not runs:
        return {}
    values: dict[str, Callable[[Row], float | None]] = {
        "mean_length": lambda run: None if run["status"] == "malformed" else run["n_reasoning"],
        "share_truncated": lambda run: run["status"] == "truncated",
        "share_malformed": lambda run: run["status"] == "malformed",
        "share_unparsed": lambda run: run["status"] == "terminated" and run["answer"] is None,
        "share_unstated": lambda run: run["grade_note"] == UNSTATED,
        # Only an arm of which some run has several messages has this share.
        "share_several_messages": lambda run: bool(run["format_after"]) if any(other["format_after"] for other in runs) else None,
        "natural_accuracy": lambda run: run["correct"],
        "natural_accuracy_terminated": lambda run: run["correct"] if run["status"] == "terminated" else None,
    }
    results: Results = {}
    for name, value in values.items():
        read = [(run["item_id"], value(run)) for run in runs]
        results[key(estimand=name)] = item_mean((item, None if entry is None else float(entry)) for item, entry in read)
    for horizon in horizons:
        results[key(estimand="completion", horizon=horizon)] = completion(runs, horizon)
    until = max(horizons)
    times = sorted({run["n_reasoning"] for run in runs if run["status"] == "terminated" and run["n_reasoning"] < until} | {0, until})
    areas = ((after - before) * (1 - completion(runs, before)) for before, after in pairwise(times))
    results[key(estimand="restricted_mean_length", horizon=until)] = math.fsum(areas)
    return {cells: value for cells, value in results.items() if value is not None}


def agreement(readings: Sequence[Reading]) -> dict[str, float]:
    """Agreement, Cohen's kappa and accuracies of two readings; items weigh equally, an unread answer is a category that agrees with nothing."""
    filled = [(item, a, UNREAD if b is None else b, p, q) for item, a, b, p, q in readings]
    same = item_mean((item, float(a == b)) for item, a, b, _, _ in filled)
    categories = {row[1] for row in filled} | {row[2] for row in filled}
    shares = [[item_mean((row[0], float(row[side] == category)) for row in filled) for side in (1, 2)] for category in categories]
    chance = math.fsum(a * b for a, b in shares)
    probe, other = item_mean((row[0], float(row[3])) for row in filled), item_mean((row[0], float(row[4])) for row in filled)
    found = {"agreement": same, "accuracy_probe": probe, "accuracy_answer": other, "accuracy_gap": probe - other}
    return found if 1 - chance <= 1e-12 else {**found, "kappa": (same - chance) / (1 - chance)}


def falsifier(study: Study, comparison: Mapping[str, str], edges: Sequence[float]) -> Results:
    """Unfinished reference prefixes at matched horizons beside how these runs ended (method, 4.7)."""
    results: Results = {}
    t_arm, r_arm = comparison["treatment"], comparison["reference"]
    source = study.probe if study.choice else study.written
    for context, arm in (("common", comparison["common"]), ("policy", r_arm)):
        rows = []
        for (name, cut_id, *where), read in sorted(source.items()):
            run = study.by_id[name]
            if run["arm"] != r_arm or cut_id != f"matched:{t_arm}" or where != [context, arm] or read["complete"] or run["status"] != "terminated":
                continue
            fraction = read["n_tokens"] / run["n_reasoning"]
            rows.append((fraction, study.beside(run, read, run)))
        bins: dict[float | None, list[Reading]] = {None: [reading for _, reading in rows]}
        for fraction, reading in rows:
            bins.setdefault(min(edge for edge in edges if fraction <= edge), []).append(reading)
        for edge, readings in bins.items():
            if readings:
                named = {"context": context, "fraction": edge, "readout": "probe" if study.choice else "continuation"}
                results |= {key(estimand=name, **named): value for name, value in agreement(readings).items()}
    return results


def readings(study: Study, arm: str, horizons: Sequence[int], later: Sequence[int]) -> dict[frozenset[tuple[str, Any]], list[Reading]]:
    """The readings of an arm by their cells (method, 4.7)."""
    by = "probe" if study.choice else "continuation"
    source = study.probe if study.choice else study.written
    found: dict[frozenset[tuple[str, Any]], list[Reading]] = defaultdict(list)
    whole = set()
    steps = {*pairwise(horizons), *((b, b + k) for b in horizons for k in later)}
    for (name, cut_id, context, context_arm), read in sorted(source.items()):
        run = study.by_id[name]
        if run["arm"] != arm:
            continue
        place = {"context": context, "context_arm": context_arm}
        if read["complete"]:
            if (name, context, context_arm) not in whole:
                found[key(reading=f"{by}_natural_complete", fraction=1.0, **place)].append(study.beside(run, read, run))
            whole.add((name, context, context_arm))
            continue
        if read["cut"] == "horizon" and by == "probe" and (name, cut_id, context, context_arm) in study.written:
            written = study.written[name, cut_id, context, context_arm]
            found[key(reading="probe_continuation", horizon=read["horizon"], **place)].append(study.beside(run, read, written))
        if context != "policy":
            continue
        if read["cut"] == "fraction":
            if run["status"] == "terminated":
                found[key(reading=f"{by}_natural_unfinished", fraction=read["fraction"], **place)].append(study.beside(run, read, run))
            resumed = study.resumed.get((name, cut_id, context, context_arm))
            if resumed is not None:
                found[key(reading=f"{by}_resume", fraction=read["fraction"], **place)].append(study.beside(run, read, resumed))
        if read["cut"] == "horizon":
            for at in (after for before, after in steps if before == read["horizon"]):
                other = source.get((name, f"horizon:{at}", context, context_arm))
                if other is not None and not other["complete"]:
                    cells = key(reading=f"{by}_later", horizon=read["horizon"], k=at - read["horizon"], **place)
                    found[cells].append(study.beside(run, read, other))
    return found


def controls(study: Study) -> Results:
    """Accuracy, chance and obedience behind constructed prefixes (method, 4.8)."""
    results: Results = {}
    for control, position in sorted({(row["control"], row["position"]) for row in study.control_rows}):
        rows = [row for row in study.control_rows if (row["control"], row["position"]) == (control, position)]
        cells = {"control": control, "position": position}
        results[key(estimand="accuracy", **cells)] = item_mean((row["item_id"], float(row["correct"])) for row in rows)
        results[key(estimand="chance", **cells)] = item_mean((row["item_id"], 1 / row["n_options"]) for row in rows)
        stated = [(row["item_id"], float(row["follows"])) for row in rows if row["follows"] is not None]
        if stated:
            results[key(estimand="follows_stated", **cells)] = item_mean(stated)
    return results


def retokenisation(study: Study, arm: str, horizons: Sequence[int]) -> Results:
    """Shares that a decode-encode round trip changes (method, section 2)."""
    runs = {row["trace_id"]: row for row in study.traces if row["arm"] == arm}
    results = {key(estimand="trace_drift"): item_mean((run["item_id"], float(run["drift_at"] is not None)) for run in runs.values())}
    for horizon in horizons:
        cuts = [cut for cut in study.cuts if cut["trace_id"] in runs and cut["cut_id"] == f"horizon:{horizon}"]
        if cuts:
            results[key(estimand="prefix_drift", horizon=horizon)] = item_mean(
                (runs[cut["trace_id"]]["item_id"], float(cut["drift"])) for cut in cuts
            )
    return results


def replicates(study: Study, arm: str) -> Results:
    """Copies among the replicates of an item, and what each replicate says alone."""
    runs = [row for row in study.traces if row["arm"] == arm]
    by_item: dict[str, list[Row]] = defaultdict(list)
    for run in runs:
        by_item[run["item_id"]].append(run)
    several = {item: rows for item, rows in by_item.items() if len(rows) > 1}
    results: Results = {}
    if several:
        copies = {item: len(rows) - len({tuple(row["output_ids"]) for row in rows}) for item, rows in several.items()}
        results[key(estimand="share_duplicates")] = item_mean((item, copies[item] / (len(rows) - 1)) for item, rows in several.items())
        results[key(estimand="share_all_identical")] = item_mean((item, float(copies[item] == len(rows) - 1)) for item, rows in several.items())
    for number in sorted({run["replicate"] for run in runs}):
        alone = [run for run in runs if run["replicate"] == number]
        results[key(estimand="natural_accuracy", replicate=number)] = item_mean((run["item_id"], float(run["correct"])) for run in alone)
        results[key(estimand="mean_length", replicate=number)] = item_mean(
            (run["item_id"], None if run["status"] == "malformed" else run["n_reasoning"]) for run in alone
        )
    return {cells: value for cells, value in results.items() if value is not None}
