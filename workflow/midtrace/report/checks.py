"""The rows of the report that say whether the readings can be trusted."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from midtrace import tables, verdicts
from midtrace.figures.checks import CONTROLS
from midtrace.verdicts import Estimate


def readout_counts(paths: Sequence[str | Path], runs: pl.DataFrame) -> pl.DataFrame:
    """Readouts, and among them flagged ones, by ``model``, ``benchmark`` and ``arm``: ``readouts``, ``low_mass``, ``ties``, ``infinite``."""
    keys = ["model", "benchmark", "arm"]
    if not paths:
        return pl.DataFrame(schema={**dict.fromkeys(keys, pl.String), **dict.fromkeys(("readouts", "low_mass", "ties", "infinite"), pl.Int64)})
    return (
        tables.scan([(path, None) for path in paths], tables.Readouts)
        .select("trace_id", "low_mass", "tie", infinite=pl.col("gold_log_odds").is_infinite())
        .join(runs.lazy().select("trace_id", *keys), on="trace_id")
        .group_by(keys)
        .agg(readouts=pl.len(), low_mass=pl.col("low_mass").sum(), ties=pl.col("tie").sum(), infinite=pl.col("infinite").sum())
        .sort(keys)
        .collect()
    )


def estimate_of(row: Mapping[str, Any] | None) -> Estimate | None:
    """A row of a decomposition table as an estimate."""
    if row is None or row["estimate"] is None:
        return None
    return Estimate(row["estimate"], row["ci_low"], row["ci_high"], row["n_items"], row["n_pairs"], row.get("p_holm"))


def control_rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Controls in words: accuracy, share that follows the stated option, chance."""
    found = []
    present = list(dict.fromkeys(frame.select("control", "position").iter_rows()))
    for key in [*(key for key in CONTROLS if key in present), *(key for key in present if key not in CONTROLS)]:
        rows = {row["estimand"]: row for row in frame.filter(pl.col("control") == key[0], pl.col("position") == key[1]).iter_rows(named=True)}
        found.append(
            {
                "name": CONTROLS.get(key, " ".join(key)),
                "accuracy": estimate_of(rows.get("accuracy")),
                "follows": estimate_of(rows.get("follows_stated")),
                "chance": estimate_of(rows.get("chance")),
            }
        )
    return found


def drift_rows(frame: pl.DataFrame, arms: Sequence[str]) -> dict[str, Any]:
    """Share of traces that a decode-encode round trip changes, by arm: anywhere, and within the first B tokens at up to four horizons."""
    horizons = sorted(set(frame.filter(pl.col("horizon") > 0)["horizon"]))
    shown = sorted({horizons[round(step * (len(horizons) - 1) / 3)] for step in range(4)}) if horizons else []
    found = []
    for arm in arms:
        own = frame.filter(pl.col("treatment") == arm)
        whole = verdicts.one(own, estimand="trace_drift")
        if whole is not None:
            found.append({"arm": arm, "whole": whole, "prefixes": [verdicts.one(own, estimand="prefix_drift", horizon=h) for h in shown]})
    return {"horizons": shown, "rows": found}


def agreement_rows(frame: pl.DataFrame, arms: Sequence[str]) -> list[dict[str, Any]]:
    """Per arm: agreement and kappa of forced answers, with the own answer on whole blocks and with the continuation where it agrees least.

    ``by`` is what was read: ``probe``, or ``continuation`` where nothing is probed. ``whole_agreement``, ``whole_kappa`` are under the own prompt,
    ``shared`` are rows of the same on whole blocks behind the shared prompts; ``lowest_agreement``, ``lowest_kappa`` at ``horizon``.
    """
    found = []
    for arm in arms:
        own = frame.filter(pl.col("treatment") == arm, pl.col("estimate").is_not_null())
        whole = own.filter(pl.col("reading").is_in(["probe_natural_complete", "continuation_natural_complete"]))
        by = "continuation" if whole["reading"].str.starts_with("continuation").any() else "probe"
        continued = own.filter(pl.col("reading") == "probe_continuation", pl.col("context") == "policy")
        worst = continued.filter(pl.col("estimand") == "agreement").sort("estimate", "horizon").head(1)
        horizon = worst["horizon"].item() if len(worst) else None
        if len(whole) or len(worst):
            row: dict[str, Any] = {"arm": arm, "by": by, "horizon": horizon}
            shared = whole.filter(pl.col("context") == "common")
            row["shared"] = [
                {"prompt": name, **{estimand: verdicts.one(shared, context_arm=name, estimand=estimand) for estimand in ("agreement", "kappa")}}
                for name in shared["context_arm"].unique().sort()
            ]
            for name in ("agreement", "kappa"):
                row[f"whole_{name}"] = verdicts.one(whole, context="policy", estimand=name)
                row[f"lowest_{name}"] = verdicts.one(continued, estimand=name, horizon=horizon) if len(worst) else None
            found.append(row)
    return found


def stay_rows(frame: pl.DataFrame, arms: Sequence[str]) -> list[dict[str, Any]]:
    """Does what is read at a cut stay? Per arm: agreement and kappa with the answer of the run that was sampled on from there, by the share of the
    reasoning; and with the reading k tokens later, for each k at the horizon where they agree least.
    """
    found = []
    for arm in arms:
        own = frame.filter(pl.col("treatment") == arm, pl.col("estimate").is_not_null())
        agreed = own.filter(pl.col("estimand") == "agreement")
        resumed = agreed.filter(pl.col("reading").str.ends_with("_resume")).sort("fraction")
        later = (
            agreed.filter(pl.col("reading").str.ends_with("_later")).sort("k", "estimate", "horizon").unique("k", keep="first", maintain_order=True)
        )
        for row in [*resumed.iter_rows(named=True), *later.iter_rows(named=True)]:
            same = own.filter(pl.col("reading") == row["reading"])
            keys = {key: row[key] for key in ("fraction", "horizon", "k") if row[key] is not None}
            after = (
                f"sampled on from {100 * row['fraction']:g}% of the reasoning"
                if row["k"] is None
                else f"{row['k']} tokens later, lowest of all horizons (B = {row['horizon']})"
            )
            found.append({"arm": arm, "after": after, "agreement": estimate_of(row), "kappa": verdicts.one(same, **keys, estimand="kappa")})
    return found


VERDICTS = ("both_right", "only_judge", "only_rules", "both_wrong", "unread", "truncated", "not_asked")


def judge_rows(frame: pl.DataFrame, by: str) -> list[dict[str, Any]]:
    """How a judge graded, by arm and ``by``: numbers of answers (``VERDICTS``, and ``answers``, all of them), ``agreement`` and ``kappa``."""
    found = []
    for arm, name in frame.select("treatment", by).unique(maintain_order=True).iter_rows():
        own = frame.filter(pl.col("treatment") == arm, pl.col(by) == name)
        counts = {verdict: int(own.filter(pl.col("estimand") == verdict)["estimate"].item()) for verdict in VERDICTS}
        agreed = {estimand: verdicts.one(own, estimand=estimand) for estimand in ("agreement", "kappa")}
        found.append({"arm": arm, "name": name, "answers": sum(counts.values()), **counts, **agreed})
    return found


def falsifier_rows(frame: pl.DataFrame, comparisons: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Unfinished reference prefixes in the common context, by comparison and share of the reasoning that they hold: pairs, agreement, kappa, gap."""
    found = []
    for comparison in comparisons:
        own = frame.filter(
            pl.col("treatment") == comparison["treatment"],
            pl.col("reference") == comparison["reference"],
            pl.col("context") == "common",
            pl.col("estimate").is_not_null(),
        )
        edges = sorted(set(own["fraction"].drop_nulls()))
        for edge in [None, *edges]:
            at = own.filter(pl.col("fraction").eq_missing(pl.lit(edge, pl.Float64)))
            if len(at):
                parts = {name: verdicts.one(at, estimand=name) for name in ("agreement", "kappa", "accuracy_gap")}
                found.append({**comparison, "share": "all" if edge is None else f"up to {100 * edge:g}%", **parts})
    return found


def falsifier_verdicts(frame: pl.DataFrame, comparisons: Sequence[Mapping[str, str]], level: float) -> list[dict[str, Any]]:
    """The falsifier's verdict in the common context, in a sentence, by comparison; where it was read at all."""
    found = []
    for comparison in comparisons:
        pair = [pl.col(side) == comparison[side] for side in ("treatment", "reference")]
        own = frame.filter(*pair, pl.col("context") == "common")
        if len(own):
            found.append({**comparison, "sentence": verdicts.falsifier_sentence(own, level)})
    return found


def method_rows(frame: pl.DataFrame, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Tests of the contrasts of a headline row (:func:`midtrace.report.headline_row`), by approach of ``decomposition/inference.parquet``."""
    headline = row["headline"]
    own = frame.filter(pl.col("treatment") == headline.treatment, pl.col("reference") == headline.reference)
    wanted = [("contrast", name, headline.horizon, f"{row['names'][name]} at B = {headline.horizon}") for name in headline.readouts]
    wanted.append(("matched_contrast", headline.matched_by, None, "at equal length"))
    found = []
    for estimand, readout, horizon, name in wanted:
        at = own.filter(pl.col("estimand") == estimand, pl.col("readout") == readout, pl.col("replicate").is_null())
        at = at.filter(pl.col("horizon").eq_missing(pl.lit(horizon, pl.Int32)))
        by = {one["approach"]: one for one in at.iter_rows(named=True)}
        if by:
            found.append({"treatment": headline.treatment, "reference": headline.reference, "name": name, "by": by})
    return found


def early_rows(own: Mapping[str, pl.DataFrame], row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Other measures of early knowledge for a headline row: availability, and proper scores at its horizon, treatment minus reference."""
    headline = row["headline"]
    pair = {"treatment": headline.treatment, "reference": headline.reference}
    found = {name: verdicts.one(own["availability"], **pair, estimand=name) for name in ("auc_contrast", "auc_undefined")}
    for name in ("q_gold_contrast", "brier_contrast", "log_loss_finite_contrast", "tail_0.01_contrast"):
        found[name] = verdicts.one(own["scores"], **pair, estimand=name, horizon=headline.horizon, readout="symmetric")
    return {**pair, "horizon": headline.horizon, **found} if any(found.values()) else None


def replicate_rows(frame: pl.DataFrame, arms: Sequence[str]) -> list[dict[str, Any]]:
    """Per arm: how many replicates repeat another, and what every replicate says alone."""
    found = []
    for arm in arms:
        own = frame.filter(pl.col("treatment") == arm)
        alone = own.filter(pl.col("estimand") == "natural_accuracy", pl.col("estimate").is_not_null()).sort("replicate")
        if len(alone):
            shares = {name: verdicts.one(own, estimand=f"share_{name}") for name in ("duplicates", "all_identical")}
            found.append({"arm": arm, **shares, "accuracies": list(alone["estimate"])})
    return found


def text_rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Contrasts of pairs whose ids were reconstructed from text."""
    kept = frame.filter(pl.col("estimate").is_not_null(), pl.col("estimand").is_in(["contrast", "matched_contrast"]))
    return [{**row, "estimate": estimate_of(row)} for row in kept.iter_rows(named=True)]


def planted_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A planted effect, what was promised of it, what was measured, and the verdict."""
    bounds = {(False, False): "", (True, False): f"at least {row['low']:g}" if row["low"] is not None else ""}
    low, high = row["low"], row["high"]
    bound = bounds.get((low is not None, high is not None))
    if bound is None:
        bound = f"{low:g} to {high:g}" if low is not None else f"at most {high:g}"
    return {
        "effect": row["estimand"],
        "planted": row["planted"],
        "promised": bound.replace("-", verdicts.MINUS),
        "measured": estimate_of(row),
        "covered": {None: "", True: "covered", False: "not covered"}[row["covered"]],
        "holds": {None: "", True: "kept", False: "broken"}[row["holds"] if bound else None],
    }
