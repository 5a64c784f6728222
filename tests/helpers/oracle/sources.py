"""Dominance, readout bounds, survivors, the equal-token split (method, 4.10 to 4.13)."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from helpers.oracle.contrasts import matched_pairs
from helpers.oracle.study import TERMINATION, Results, Study, item_mean, key, outcomes


def dominance(study: Study, comparison: Mapping[str, str], horizons: Sequence[int]) -> Results:
    """The contribution of finishing earlier over Delta, and its lead over that of the pairs that both still think (method, 4.10)."""
    results: Results = {}
    for (readout, horizon), rows in outcomes(study, comparison, horizons).items():
        parts = {
            stratum: item_mean((pair[0]["item_id"], (t - r) * (study.state(pair, horizon) == stratum)) for pair, t, r in rows)
            for stratum in TERMINATION
        }
        delta, finishing = math.fsum(parts.values()), parts["treatment_complete"]
        values = {"contrast": delta, "finishing": finishing, "lead": finishing - parts["both_active"]}
        if abs(delta) > 1e-9:
            values["finishing_share"] = finishing / delta
        results |= {key(estimand=name, horizon=horizon, readout=readout): value for name, value in values.items()}
    return results


def bounds(study: Study, comparison: Mapping[str, str], horizons: Sequence[int]) -> Results:
    """Delta and the one-sided contributions under every reading of the unfinished run, and the tipping point (method, 4.11)."""
    results: Results = {}
    common = comparison["common"]
    readouts = {"probe_own": "terminal", "probe_common": "symmetric"} if study.choice else {}
    readouts |= {"continuation_own": "terminal_continuation", "continuation_common": "symmetric_continuation"}
    first = next(iter(readouts.values()))
    for horizon in horizons:
        rows: list[tuple[str, str, dict[str, float], dict[str, float]]] = []
        for t, r in study.pairs(comparison["treatment"], comparison["reference"]):
            state = study.state((t, r), horizon)
            own = [study.outcome(run, horizon, first, common) for run in (t, r)]
            if None in own:
                continue
            if state not in ("treatment_complete", "reference_complete"):
                rows.append((t["item_id"], state, {}, {"": float(own[0]) - float(own[1])}))
                continue
            complete, open_run, sign = (t, r, 1) if state == "treatment_complete" else (r, t, -1)
            values = {name: study.outcome(open_run, horizon, readout, common) for name, readout in readouts.items()}
            if None in values.values():
                continue
            any_right, all_right = any(values.values()), all(values.values())
            against, in_favour = (any_right, all_right) if sign > 0 else (all_right, any_right)
            values |= {"any_right": any_right, "all_right": all_right, "lowest": against, "highest": in_favour, "final": open_run["correct"]}
            replaced = {name: float(value) for name, value in values.items()}
            rows.append((t["item_id"], state, replaced, {name: sign * (complete["correct"] - value) for name, value in replaced.items()}))
        if not rows:
            continue
        for reading in (*readouts, "any_right", "all_right", "lowest", "highest", "final"):
            cells = {"horizon": horizon, "reading": reading}
            differences = [(item, state, value.get(reading), change.get(reading, change.get(""))) for item, state, value, change in rows]
            delta = item_mean((item, change) for item, _, _, change in differences)
            results[key(estimand="contrast", **cells)] = delta
            for stratum in ("treatment_complete", "reference_complete"):
                inside = ((item, change * (state == stratum)) for item, state, _, change in differences)
                results[key(estimand="contribution", termination=stratum, **cells)] = item_mean(inside)
            if reading not in readouts:
                continue
            one_sided = item_mean((item, float(state in ("treatment_complete", "reference_complete"))) for item, state, _, _ in differences)
            if one_sided:
                lowers = {("treatment_complete", 0.0), ("reference_complete", 1.0)}
                raises = {("treatment_complete", 1.0), ("reference_complete", 0.0)}
                towards = lowers if delta >= 0 else raises
                results[key(estimand="tipping_share", **cells)] = delta / one_sided
                moved = item_mean((item, float((state, value) in towards)) for item, state, value, _ in differences)
                results[key(estimand="tipping_reach", **cells)] = moved / one_sided
    return {cells: value for cells, value in results.items() if value is not None}


def survivors(study: Study, comparison: Mapping[str, str], horizons: Sequence[int], n_strata: int) -> Results:
    """The both-active contrast, its trimming bounds, and standardised over strata of the reference's length (method, 4.12)."""
    results: Results = {}
    lengths: dict[str, list[int]] = defaultdict(list)
    for run in study.traces:
        if run["arm"] == comparison["reference"] and run["status"] != "malformed":
            lengths[run["item_id"]].append(run["n_reasoning"])
    means = {item: math.fsum(values) / len(values) for item, values in lengths.items()}
    ordered = sorted(means.values())
    # The smallest value that a share k / n of the items does not exceed; an edge at the largest length would make an empty stratum.
    edges = sorted({ordered[max(math.ceil(len(ordered) * k / n_strata) - 1, 0)] for k in range(1, n_strata)} - {ordered[-1]}) if ordered else []
    names = ["all lengths"] if not edges else [f"up to {edges[0]:g}"]
    names += [f"over {low:g} to {high:g}" for low, high in pairwise(edges)] + ([f"over {edges[-1]:g}"] if edges else [])
    stratum_of = {item: names[sum(mean > edge for edge in edges)] for item, mean in means.items()}
    for (readout, horizon), rows in outcomes(study, comparison, horizons).items():
        if readout not in ("symmetric", "symmetric_continuation"):
            continue
        cells = {"horizon": horizon, "readout": readout}
        active = [(pair[0]["item_id"], t, r, *(not study.complete(run, horizon) for run in pair)) for pair, t, r in rows]

        def contrast(only: set[str] | None = None, rows: Sequence[tuple] = active) -> float | None:
            return item_mean((i, t - r if a and b else None) for i, t, r, a, b in rows if only is None or i in only)

        results[key(estimand="both_active_contrast", **cells)] = contrast()
        share_t, share_r = item_mean((i, float(a)) for i, _, _, a, _ in active), item_mean((i, float(b)) for i, _, _, _, b in active)
        kept = min(share_t, share_r)
        if kept:
            sides = []
            for share, right in (
                (share_t, item_mean((i, t * a) for i, t, _, a, _ in active)),
                (share_r, item_mean((i, r * b) for i, _, r, _, b in active)),
            ):
                sides.append((max(0.0, (right - (share - kept)) / kept), min(1.0, right / kept)))
            results[key(estimand="trimmed_lower", **cells)] = sides[0][0] - sides[1][1]
            results[key(estimand="trimmed_upper", **cells)] = sides[0][1] - sides[1][0]
        members: dict[str, set[str]] = defaultdict(set)
        for item in {row[0] for row in active} & stratum_of.keys():
            members[stratum_of[item]].add(item)
        within = {name: contrast(items) for name, items in members.items()}
        known = {name: value for name, value in within.items() if value is not None}
        results |= {key(estimand="stratum_contrast", stratum=name, **cells): value for name, value in known.items()}
        if members:
            total, weight = sum(map(len, members.values())), sum(len(members[name]) for name in known)
            results[key(estimand="standardised_items", **cells)] = weight / total
            if weight:
                results[key(estimand="standardised_contrast", **cells)] = math.fsum(len(members[n]) * v for n, v in known.items()) / weight
    return {cells: value for cells, value in results.items() if value is not None}


def split(study: Study, comparison: Mapping[str, str], horizons: Sequence[int]) -> Results:
    """Delta at equal length, and what the reference's further tokens change (method, 4.13)."""
    results: Results = {}
    for (readout, horizon), rows in outcomes(study, comparison, horizons).items():
        if readout not in ("symmetric", "symmetric_continuation"):
            continue
        source = study.probe if readout == "symmetric" else study.written
        if not matched_pairs(study, comparison, source):
            continue  # no run of the treatment ended, so nothing was read at its length
        place = (f"matched:{comparison['treatment']}", "common", comparison["common"])
        parts = []
        for pair, t, r in rows:
            finished, at_length = study.complete(pair[0], horizon), r
            if finished:
                read = source.get((pair[1]["trace_id"], *place))
                if read is None:
                    continue
                at_length = float(read["correct"])
            parts.append((pair[0]["item_id"], finished, {"contrast": t - r, "equal_tokens": t - at_length, "further_tokens": at_length - r}))
        for name in ("contrast", "equal_tokens", "further_tokens"):
            cells = {"horizon": horizon, "readout": readout}
            results[key(estimand=name, **cells)] = item_mean((item, values[name]) for item, _, values in parts)
            inside = ((item, values[name] if finished else None) for item, finished, values in parts)
            results[key(estimand=f"{name}_finished", **cells)] = item_mean(inside)
    return {cells: value for cells, value in results.items() if value is not None}
