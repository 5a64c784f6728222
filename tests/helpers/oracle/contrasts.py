"""Contrasts by horizon and at the matched horizon; scores and availability (method, 3 and 4.2 to 4.6)."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from helpers.oracle.study import TERMINATION, Results, Row, Study, item_mean, key, outcomes


def policy(study: Study, comparison: Mapping[str, str], horizons: Sequence[int]) -> Results:
    """Accuracy by horizon and readout, its parts, contrasts and gaps (method, 4.2 and 4.3)."""
    results: Results = {}
    contrast: dict[tuple[str, int], dict[tuple, float]] = {}
    for (readout, horizon), rows in outcomes(study, comparison, horizons).items():
        cells = {"horizon": horizon, "readout": readout}

        def put(estimand: str, values: Iterable[tuple[Hashable, float | None]], cells: Mapping[str, Any] = cells) -> None:
            results[key(estimand=estimand, **cells)] = item_mean(values)

        put("contrast", ((pair[0]["item_id"], t - r) for pair, t, r in rows))
        contrast[readout, horizon] = {(pair[0]["item_id"], pair[0]["replicate"]): t - r for pair, t, r in rows}
        active = (((pair[0]["item_id"]), t - r if study.state(pair, horizon) == "both_active" else None) for pair, t, r in rows)
        put("both_active_contrast", active)
        for side, role in enumerate(("treatment", "reference")):
            runs = [(pair[side], (t, r)[side]) for pair, t, r in rows]
            done = [study.complete(run, horizon) for run, _ in runs]
            put(f"accuracy_{role}", ((run["item_id"], y) for run, y in runs))
            put(f"complete_{role}", ((run["item_id"], float(c)) for (run, _), c in zip(runs, done, strict=True)))
            put(f"correct_completion_{role}", ((run["item_id"], y * c) for (run, y), c in zip(runs, done, strict=True)))
            put(f"stopped_accuracy_{role}", ((run["item_id"], None if c else y) for (run, y), c in zip(runs, done, strict=True)))
            if readout == "symmetric":
                place = (f"horizon:{horizon}", "common", comparison["common"])
                put(f"q_gold_{role}", ((run["item_id"], study.probe[run["trace_id"], *place]["q_gold"]) for run, _ in runs))
    for estimand, names in {"readout_gap": ("terminal", "symmetric_own"), "context_gap": ("symmetric_own", "symmetric")}.items():
        for ending in ("", "_continuation"):
            first, second = (f"{name}{ending}" for name in names)
            for horizon in horizons:
                one, other = contrast.get((first, horizon)), contrast.get((second, horizon))
                if one and other:
                    both = ((pair[0], one[pair] - other[pair]) for pair in sorted(one.keys() & other.keys()))
                    results[key(estimand=estimand, horizon=horizon, readout=f"{first} - {second}")] = item_mean(both)
    return {cells: value for cells, value in results.items() if value is not None}


def strata(study: Study, comparison: Mapping[str, str], horizons: Sequence[int]) -> dict[frozenset, dict[str, float | None]]:
    """Share, difference and contribution of the termination strata (method, 4.4)."""
    results = {}
    for (readout, horizon), rows in outcomes(study, comparison, horizons).items():
        for stratum in TERMINATION:
            inside = [(pair[0]["item_id"], t - r, study.state(pair, horizon) == stratum) for pair, t, r in rows]
            results[key(horizon=horizon, readout=readout, termination=stratum)] = {
                "share": item_mean((item, float(within)) for item, _, within in inside),
                "difference": item_mean((item, value if within else None) for item, value, within in inside),
                "contribution": item_mean((item, value * within) for item, value, within in inside),
            }
    return results


def matched_pairs(study: Study, comparison: Mapping[str, str], source: Mapping[tuple, Row]) -> list[tuple[str, float, float]]:
    """(item, treatment's outcome on its whole block, reference's on its prefix at B = L_t) of the pairs that ``source`` has both of."""
    t_arm, r_arm, common = comparison["treatment"], comparison["reference"], comparison["common"]
    rows = []
    for t, r in study.pairs(t_arm, r_arm):
        sides = [source.get((run["trace_id"], f"matched:{other}", "common", common)) for run, other in ((t, r_arm), (r, t_arm))]
        if None not in sides:
            rows.append((t["item_id"], float(sides[0]["correct"]), float(sides[1]["correct"])))
    return rows


def matched(study: Study, comparison: Mapping[str, str]) -> Results:
    """The treatment's whole block against the reference's prefix at B = L_t, common context (method, 4.5)."""
    results: Results = {}
    for readout, source in (("probe", study.probe), ("continuation", study.written)):
        rows = matched_pairs(study, comparison, source)
        if rows:
            results[key(estimand="matched_contrast", readout=readout)] = item_mean((item, a - b) for item, a, b in rows)
            results[key(estimand="matched_accuracy_treatment", readout=readout)] = item_mean((item, a) for item, a, _ in rows)
            results[key(estimand="matched_accuracy_reference", readout=readout)] = item_mean((item, b) for item, _, b in rows)
    return results


def scores(study: Study, comparison: Mapping[str, str], horizons: Sequence[int]) -> Results:
    """Proper scores of the probe in the common context (method, section 3)."""
    results: Results = {}
    finite = math.isfinite
    values: dict[str, Callable[[Row], float | None]] = {
        "brier": lambda row: row["brier"],
        "q_gold": lambda row: row["q_gold"],
        "log_loss": lambda row: row["log_loss"],
        "log_loss_finite": lambda row: row["log_loss"] if finite(row["log_loss"]) else None,
        "log_loss_infinite": lambda row: float(not finite(row["log_loss"])),
        "gold_log_odds_finite": lambda row: row["gold_log_odds"] if finite(row["gold_log_odds"]) else None,
        "gold_log_odds_infinite": lambda row: float(not finite(row["gold_log_odds"])),
        "tail_0.01": lambda row: float(row["q_gold"] < 0.01),
        "tail_0.05": lambda row: float(row["q_gold"] < 0.05),
    }
    for horizon in horizons:
        rows = []
        for pair in study.pairs(comparison["treatment"], comparison["reference"]):
            sides = [study.probe.get((run["trace_id"], f"horizon:{horizon}", "common", comparison["common"])) for run in pair]
            if None not in sides:
                rows.append((pair[0]["item_id"], *sides))
        if not rows:
            continue
        for name, value in values.items():
            cells = {"horizon": horizon, "readout": "symmetric"}
            for side, role in ((1, "treatment"), (2, "reference")):
                results[key(estimand=f"{name}_{role}", **cells)] = item_mean((row[0], value(row[side])) for row in rows)
            if name in ("brier", "q_gold", "log_loss_finite", "tail_0.01", "tail_0.05"):
                both = [(row[0], value(row[1]), value(row[2])) for row in rows]
                results[key(estimand=f"{name}_contrast", **cells)] = item_mean((i, None if None in (a, b) else a - b) for i, a, b in both)
    return {cells: value for cells, value in results.items() if value is not None}


def availability(study: Study, comparison: Mapping[str, str], grid: Sequence[int], read_at: Sequence[int]) -> Results:
    """Area under the gold log-odds, the terminal distribution carried forward (method, 4.6)."""

    def area(run: Row) -> float | None:
        reads = {h: study.probe.get((run["trace_id"], f"horizon:{h}", "common", comparison["common"])) for h in read_at}
        if all(row is None for row in reads.values()):
            return None
        ends = [h for h, row in sorted(reads.items()) if row is not None and study.complete(run, h)]
        values = []
        for horizon in grid:
            row = reads.get(horizon)
            if row is None and ends and ends[0] <= horizon:
                row = reads[ends[-1]]
            values.append(math.nan if row is None else row["gold_log_odds"])
        parts = [(after - before) * (a + b) / 2 for before, after, a, b in zip(grid, grid[1:], values, values[1:], strict=False)]
        return math.nan if any(map(math.isnan, parts)) else sum(parts) / (grid[-1] - grid[0])

    rows = []
    for pair in study.pairs(comparison["treatment"], comparison["reference"]):
        sides = [area(run) for run in pair]
        if None not in sides:
            rows.append((pair[0]["item_id"], *sides))
    if not rows:
        return {}
    cells = {"horizon": grid[-1], "readout": "symmetric"}
    defined = [(item, a, b, math.isfinite(a) and math.isfinite(b)) for item, a, b in rows]
    results = {
        key(estimand="auc_treatment", **cells): item_mean((item, a if ok else None) for item, a, _, ok in defined),
        key(estimand="auc_reference", **cells): item_mean((item, b if ok else None) for item, _, b, ok in defined),
        key(estimand="auc_contrast", **cells): item_mean((item, a - b if ok else None) for item, a, b, ok in defined),
        key(estimand="auc_undefined", **cells): item_mean((item, float(not ok)) for item, _, _, ok in defined),
    }
    return {cells: value for cells, value in results.items() if value is not None}
