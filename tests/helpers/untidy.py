"""Studies in which things go wrong: truncated, malformed and missing runs, runs without reasoning, unequal replicates, ties, copies, runs made from
text, infinite scores, answers that could not be read. As rows, for the oracle, and as the tables that a decomposition takes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from midtrace import tables

ARMS = ("t", "r", "c")
COMPARISON = {"treatment": "t", "reference": "r", "common": "c"}
HORIZONS = (0, 4, 8, 16)
GRID = (0, 4, 12, 16)  # of availability: 12 is no horizon
FRACTIONS = (0.5, 1.0)
BINS = (0.25, 0.5, 0.75, 1.0)
CAP = 20
LETTERS = "ABCD"
SCHEMAS = {
    "item_tables": tables.Items,
    "traces": tables.Traces,
    "cuts": tables.Cuts,
    "readouts": tables.Readouts,
    "continuations": tables.Continuations,
    "controls": tables.Controls,
}


def rows(seed: int, choice: bool = True, items: int = 6, replicates: int = 3, text: float = 0.0) -> dict[str, list[dict[str, Any]]]:
    """A random study, as rows by stage.

    Parameters
    ----------
    seed, choice, items, replicates
        Size; ``choice``: items have options, and so a probe.
    text
        Probability that a run is made from text.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, list[dict[str, Any]]] = {stage: [] for stage in SCHEMAS}
    for number in range(items):
        item = _item(number, choice, rng)
        found["item_tables"].append(item)
        runs = {(arm, r): _trace(item, arm, r, rng, text) for arm in ARMS for r in range(replicates) if rng.random() > 0.15}
        for (arm, r), trace in runs.items():
            found["traces"].append(trace)
            partner = runs.get(({"t": "r", "r": "t"}.get(arm, ""), r))
            treatment = trace if arm == "t" else partner
            at = {partner["arm"]: treatment["n_reasoning"]} if partner and treatment and treatment["status"] == "terminated" else {}
            said: dict[tuple, Any] = {}
            for cut in _cuts(trace, at):
                found["cuts"].append(cut)
                _read(cut, trace, item, said, rng, found)
        for control, position in (("scripted_short", "early"), ("prefix_junk", "whole")) if choice else ():
            stated = LETTERS[rng.integers(4)] if position == "early" else None
            said = LETTERS[rng.integers(4)]
            follows = None if stated is None else said == stated
            entry = {"model": "m", "item_id": item["item_id"], "control": control, "position": position, "n_tokens": 4, "n_options": 4}
            found["controls"].append({**entry, "stated": stated, "choice": said, "follows": follows, "correct": said == item["answer"]})
    return found


def frames(study: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, pl.DataFrame]:
    """The tables of these rows."""
    return {stage: tables.frame_of(study[stage], schema) for stage, schema in SCHEMAS.items()}


def _item(number: int, choice: bool, rng: np.random.Generator) -> dict[str, Any]:
    return {
        "item_id": f"b/{number}",
        "benchmark": "b",
        "stratum": "xy"[number % 2],
        "question": "?",
        "options": list(LETTERS) if choice else [],
        "answer": LETTERS[rng.integers(4)] if choice else str(number),
        "answer_kind": "choice" if choice else "math",
        "revised_question": None,
        "update": None,
        "stale_answer": None,
    }


def _trace(item: Mapping[str, Any], arm: str, replicate: int, rng: np.random.Generator, text: float) -> dict[str, Any]:
    status = rng.choice(["terminated", "truncated", "malformed"], p=[0.7, 0.15, 0.15])
    # Few lengths, so that many tie; some runs do not reason at all.
    length = CAP if status == "truncated" else int(rng.choice([0, 2, 4, 5, 8, 11, 16, 18]))
    answer = _answer(item, rng) if status == "terminated" else None
    # Two in ten runs repeat another one: their ids depend on the length alone.
    own = 100 + replicate if rng.random() < 0.8 else 7
    return {
        "trace_id": f"m/{item['item_id']}/{arm}/r{replicate}",
        "model": "m",
        "item_id": item["item_id"],
        "arm": arm,
        "replicate": replicate,
        "seed": 1,
        "prompt_ids": [1],
        "output_ids": [*[own] * length, 2],
        "reasoning_start": 0,
        "n_reasoning": length,
        "status": str(status),
        "format_after": [3] * 6 if length == 5 and status != "truncated" else [],  # as where the reasoning has two messages
        "problem": "broken" if status == "malformed" else None,
        "finish_reason": "length" if status == "truncated" else "stop",
        "answer_text": "...",
        "drift_at": int(rng.integers(CAP)) if rng.random() < 0.3 else None,
        "token_exact": bool(rng.random() >= text),
        **_graded(item, answer),
    }


def _answer(item: Mapping[str, Any], rng: np.random.Generator) -> str | None:
    """Right, wrong or unread."""
    wrong = LETTERS if item["options"] else ("x", "y")
    return rng.choice([item["answer"], str(rng.choice(list(wrong))), None], p=[0.5, 0.35, 0.15])


def _graded(item: Mapping[str, Any], answer: str | None) -> dict[str, Any]:
    empty = dict.fromkeys(("rules_correct", "judge_verdict", "judge_text"))
    note = tables.UNSTATED if answer == "B" else None  # as good as any other rule
    return {"answer": answer, "correct": answer == item["answer"], "grade_note": note, "grader": "rules", **empty}


def _cuts(trace: Mapping[str, Any], matched: Mapping[str, int]) -> list[dict[str, Any]]:
    length, finished = trace["n_reasoning"], trace["status"] == "terminated"

    def cut(kind: str, name: object, n: int, within: float, **place: Any) -> dict[str, Any]:
        drifts = trace["drift_at"] is not None and trace["drift_at"] < n
        keys = {"horizon": None, "fraction": None, "partner_arm": None, **place}
        cells = {"trace_id": trace["trace_id"], "cut_id": f"{kind}:{name}", "cut": kind, **keys, "n_tokens": n}
        return {**cells, "complete": finished and length <= within, "drift": drifts}

    found = [cut("horizon", b, min(b, length), b, horizon=b) for b in sorted({*HORIZONS, *GRID})]
    if length:
        ends = {x: max(1, math.ceil(x * length)) for x in FRACTIONS}
        found += [cut("fraction", f"{x:g}", n, n, fraction=x) for x, n in ends.items()]
    return found + [cut("matched", arm, min(b, length), b, horizon=b, partner_arm=arm) for arm, b in matched.items()]


def _read(
    cut: Mapping[str, Any],
    trace: Mapping[str, Any],
    item: Mapping[str, Any],
    said: dict[tuple, Any],
    rng: np.random.Generator,
    found: Mapping[str, list[dict[str, Any]]],
) -> None:
    """Read and continue a cut in both contexts; ``resume`` from unfinished fraction cuts, ``natural`` everywhere under the own prompt.

    ``said`` holds what was read of the trace before: the same tokens behind the same prompt are read alike, whatever the cut is called.
    """
    keys = {name: value for name, value in cut.items() if name != "drift"}
    for context, arm in (("policy", trace["arm"]), ("common", COMPARISON["common"])):
        place, same = {**keys, "context": context, "context_arm": arm}, (cut["n_tokens"], arm)
        if item["options"]:
            found["readouts"].append({**place, **said.setdefault(("probe", *same), _probe(item, rng))})
        answer = said.setdefault(("answer", *same), _answer(item, rng))
        choice = said["probe", *same]["choice"] if item["options"] else None
        found["continuations"].append(_written(place, "answer", item, answer, choice))
    own = {**keys, "context": "policy", "context_arm": trace["arm"]}
    if cut["cut"] == "fraction" and not cut["complete"]:
        found["continuations"].append(_written(own, "resume", item, _answer(item, rng), None))
    found["continuations"].append(_written(own, "natural", item, trace["answer"], None))


def _written(place: Mapping[str, Any], mode: str, item: Mapping[str, Any], answer: str | None, said: str | None) -> dict[str, Any]:
    return {**place, "mode": mode, "text": "...", **_graded(item, answer), "agrees_with_probe": None if said is None else said == answer}


def _probe(item: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """A readout whose scores belong together; now and then all mass is on one option, so that log loss and log-odds are infinite."""
    q = np.eye(4)[rng.integers(4)] if rng.random() < 0.1 else rng.dirichlet(np.full(4, 0.4))
    gold = LETTERS.index(item["answer"])
    said = int(rng.choice(np.flatnonzero(q == q.max())))
    with np.errstate(divide="ignore"):
        logs, odds = np.log(q), np.log(q[gold]) - np.log1p(-min(q[gold], 1.0))
    return {
        "option_logprob": logs.tolist(),
        "candidate_mass": 1.0,
        "choice": LETTERS[said],
        "tie": bool((q == q.max()).sum() > 1),
        "low_mass": False,
        "q_gold": float(q[gold]),
        "correct": said == gold,
        "brier": float(((q - np.eye(4)[gold]) ** 2).sum()),
        "log_loss": float(-logs[gold]),
        "gold_log_odds": float(odds),
    }
