"""A made-up study on disk for the tests of figures and report: three benchmarks (generated, from a file, free form and judged), no model, no
pipeline.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import yaml

from helpers.builders import item_files
from midtrace import config as study_config
from midtrace import continuation, decomposition, items, outcomes, planted, probe, replay, tables
from midtrace.figures import catalogue
from midtrace.prompts import labels

HOSTILE = "<script>alert('answer')</script>"
GATED = "GATED QUESTION & TEXT"
HOSTILE_ARM = "b_<x>$"  # never valid in a config; figures and report must still treat it as text
PLANTED = [
    {
        "effect": f"a ratio {HOSTILE} $x$",
        "table": "lengths",
        "estimand": "geometric_mean_ratio",
        "treatment": "low",
        "planted": 0.4,
        "low": 0.2,
        "high": 0.6,
    },
    {"effect": "an impossible effect", "table": "lengths", "estimand": "median_ratio", "treatment": "low", "low": 5.0},
]


def config(folder: Path) -> dict[str, Any]:
    """The config of the study; its file benchmark and planted effects are written to ``folder``."""
    exam = folder / "exam.csv"
    with exam.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["id", "question", "options", "answer"])
        writer.writerows([[k, f"{GATED} {k}", f"{GATED} a | {GATED} b | {GATED} c", "ABC"[k % 3]] for k in range(6)])
    (folder / "planted.yaml").write_text(yaml.safe_dump(PLANTED))
    model = {
        "source": "owner/tiny",
        "revision": "0" * 40,
        "dialect": "embedded",
        "engine": "transformers",
        "dtype": "float64",
        "max_tokens": 64,
        "sampling": {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0},
    }
    judge = {key: value for key, value in model.items() if key not in ("max_tokens", "sampling")} | {"source": "owner/judge"}
    return study_config.validate(
        {
            "study": "made-up",
            "seed": 1,
            "replicates": 2,
            "models": {"tiny": model},
            "benchmarks": {
                "chains": {"loader": "chains", "answer_kind": "choice", "n": 8},
                "exam": {"loader": "file", "answer_kind": "choice", "path": str(exam)},
                "free": {"loader": "chains", "answer_kind": "math", "n": 6, "grader": "judge"},
            },
            "judge": {"model": judge, "template": f"{HOSTILE} {{question}} {{gold}} {{answer}}"},
            "arms": {"low": {"effort": "low"}, "high": {"effort": "high"}, "terse": {"suffix": HOSTILE}},
            "comparisons": [
                {"treatment": "low", "reference": "high", "common": "high"},
                {"treatment": "terse", "reference": "high", "common": "high"},
            ],
            "horizons": [0, 8, 16, 32],
            "availability": {"horizons": [0, 8, 16, 32]},
            "fractions": [0.5, 1.0],
            "readouts": {"spellings": "plain", "low_mass": 0.5},
            "continuations": {"modes": ["answer", "natural"], "max_tokens": 8},
            "controls": {"items": 4, "filler": " well", "statement": " It is {text}.", "horizons": [8, 16]},
            "inference": {"resamples": 100, "level": 0.95, "margin": 0.03},
            "planted": None,
        },
        "test",
    )


@dataclass(frozen=True)
class Made:
    """Files of the study and the settings that figures and report are given."""

    folder: Path
    config: dict[str, Any]
    decomposition: dict[str, str]
    inputs: dict[str, list[str]]

    @property
    def figure_settings(self) -> dict[str, Any]:
        return study_config.figures_settings(self.config)

    @property
    def report_settings(self) -> dict[str, Any]:
        return study_config.report_settings(self.config)

    def figures(self, *formats: str) -> list[str]:
        return [str(self.folder / f"figures/{stem}.{end}") for stem in catalogue.stems(self.figure_settings) for end in formats]


def make(folder: Path) -> Made:
    """Write the study to ``folder`` and give its files."""
    settings = config(folder)
    settings["planted"] = str(folder / "planted.yaml")
    rng = np.random.default_rng(3)
    inputs: dict[str, list[str]] = {stage: [] for stage in ("item_tables", "traces", "readouts", "control_tables")}
    frames: dict[str, list[pl.DataFrame]] = {stage: [] for stage in ("item_tables", "traces", "cuts", "readouts", "continuations", "controls")}
    for benchmark, entry in settings["benchmarks"].items():
        path = str(folder / f"items/{benchmark}.parquet")
        items.run(*item_files(path), "made-up", study_config.items_settings(settings, benchmark))
        inputs["item_tables"].append(path)
        frames["item_tables"].append(pl.read_parquet(path))
        for arm in study_config.arms(settings):
            for replicate in range(2):
                origin = study_config.graded_traces_settings(settings, "tiny", benchmark, arm, replicate)
                traces = pl.concat([tables.frame_of([_trace(item, arm, replicate)], tables.Traces) for item in _rows(frames["item_tables"][-1])])
                shard = f"tiny/{benchmark}/{arm}/r{replicate}.parquet"
                meta = tables.metadata("traces", "made-up", origin, tokenizer="v" * 16, engine="transformers", engine_version="1.2.3", device="cpu")
                meta |= {"judge": {"engine_version": "4.5.6", "device": "cpu"}} if benchmark == "free" else {}
                tables.write(traces, folder / "traces" / shard, tables.Traces, meta)
                inputs["traces"].append(str(folder / "traces" / shard))
                by_id = {item["item_id"]: item for item in _rows(frames["item_tables"][-1])}
                cuts, readouts, continuations = _reads(traces, by_id, arm, settings, rng)
                frames["traces"].append(traces)
                frames["cuts"].append(cuts)
                frames["continuations"].append(continuations)
                if entry["answer_kind"] == "choice":
                    identity = study_config.probe_settings(settings, "tiny", benchmark, arm, replicate)
                    tables.write(
                        readouts, folder / "readouts" / shard, tables.Readouts, tables.metadata("probe", "made-up", identity, suffix_ids=[1, 2])
                    )
                    inputs["readouts"].append(str(folder / "readouts" / shard))
                    frames["readouts"].append(readouts)
        if entry["answer_kind"] == "choice":
            frames["controls"].append(_controls(frames["item_tables"][-1]))
    whole = {stage: pl.concat(parts) for stage, parts in frames.items()}
    analysis = study_config.analysis_settings(settings)
    whole["outcomes"] = pl.concat(
        outcomes.outcomes(
            whole["item_tables"].filter(pl.col("benchmark") == name),
            *(whole[stage] for stage in ("traces", "cuts", "readouts", "continuations")),
            contexts=study_config.read_contexts(settings, name),
        )
        for name in settings["benchmarks"]
    )
    found = decomposition.decompose(whole, analysis)
    chains = {name: frame.filter(pl.col("benchmark") == "chains") if len(frame) else frame for name, frame in found.items()}
    found["planted"] = planted.compare(chains, settings["planted"])
    written = {}
    for name, frame in found.items():
        written[name] = str(folder / f"decomposition/{name}.parquet")
        shaped = decomposition.shape(frame, name)
        tables.write(shaped, written[name], None, tables.metadata("decomposition", "made-up", analysis, table=name), expect_rows=False)
    return Made(folder, settings, written, inputs)


def _rows(frame: pl.DataFrame) -> Iterator[dict[str, Any]]:
    return frame.iter_rows(named=True)


def _trace(item: dict[str, Any], arm: str, replicate: int) -> dict[str, Any]:
    number = sum(map(ord, item["item_id"])) + replicate
    n = {"low": 6, "terse": 14, "high": 20}[arm] + number % 7
    status = "truncated" if arm == "high" and number % 5 == 0 else "terminated"
    right = number % 4 > 0
    return {
        "trace_id": f"tiny/{item['item_id']}/{arm}/r{replicate}",
        "model": "tiny",
        "item_id": item["item_id"],
        "arm": arm,
        "replicate": replicate,
        "seed": number,
        "prompt_ids": [1],
        "output_ids": [512, *[7] * n, *([] if status == "truncated" else [513, 9])],
        "reasoning_start": 1,
        "n_reasoning": n,
        "format_after": [],
        "status": status,
        "problem": None,
        "finish_reason": "length" if status == "truncated" else "stop",
        "answer_text": HOSTILE,
        "drift_at": 4 if number % 6 == 0 else None,
        "token_exact": True,
        "answer": None if status == "truncated" else item["answer"] if right else HOSTILE,
        "correct": right and status == "terminated",
        **_graded(item, right and status == "terminated", "not_asked" if status == "truncated" else "unread" if number % 7 == 3 else None),
    }


def _graded(item: dict[str, Any], right: bool, outcome: str | None = None) -> dict[str, Any]:
    """Who graded an answer: of free-form items a judge, with whom the rules agree."""
    if item["answer_kind"] != "math":
        return {"grader": "rules"}
    return {"grader": "judge", "rules_correct": right, "judge_verdict": outcome or ("same" if right else "different"), "judge_text": HOSTILE}


def _reads(traces: pl.DataFrame, by_id: dict, arm: str, settings: dict, rng: np.random.Generator) -> tuple[pl.DataFrame, ...]:
    cuts, readouts, continuations = [], [], []
    commons = study_config.context_arms(settings, arm)
    for trace in _rows(traces):
        item = by_id[trace["item_id"]]
        names = labels(len(item["options"]))
        matched = dict.fromkeys(study_config.partners(settings, arm), 8)
        for cut in replay.cuts_of(trace, settings["horizons"], settings["fractions"], matched):
            cuts.append(cut)
            keys = {key: value for key, value in cut.items() if key != "drift"}
            for context, context_arm in probe.contexts_of(cut, arm, commons):
                choice = item["answer"]
                if names:
                    score = rng.normal(size=len(names))
                    score[names.index(item["answer"])] += cut["n_tokens"] / 8
                    logprob = dict(enumerate(score - np.logaddexp.reduce(score) - 0.01))
                    read = probe.read(logprob, {name: [k] for k, name in enumerate(names)}, names, item["answer"])
                    choice = read.choice
                    row = {**keys, "context": context, "context_arm": context_arm, **vars(read)}
                    readouts.append({key: row[key] for key in tables.Readouts.column_names()})
                jobs = continuation.jobs_of(cut, probe.contexts_of(cut, arm, commons), settings["continuations"], bool(names))
                if ("answer", context, context_arm) in jobs or context == "policy":
                    for mode in ("answer", "natural"):
                        if context != "policy" if mode == "natural" else ("answer", context, context_arm) not in jobs:
                            continue
                        answer = choice if mode == "answer" else trace["answer"]
                        agrees = answer == choice if names else None
                        continuations.append(
                            {
                                **keys,
                                "context": context,
                                "context_arm": context_arm,
                                "mode": mode,
                                "text": HOSTILE,
                                "answer": answer,
                                "correct": answer == item["answer"],
                                **_graded(item, answer == item["answer"]),
                                "agrees_with_probe": agrees,
                            }
                        )
    return tables.frame_of(cuts, tables.Cuts), tables.frame_of(readouts, tables.Readouts), tables.frame_of(continuations, tables.Continuations)


def _controls(frame: pl.DataFrame) -> pl.DataFrame:
    rows = []
    for item in _rows(frame.head(4)):
        for control, position, stated in (
            ("scripted_short", "early", item["answer"]),
            ("scripted_wrong", "early", "A"),
            ("prefix_junk", "whole", None),
        ):
            choice = stated or "B"
            rows.append(
                {
                    "model": "tiny",
                    "item_id": item["item_id"],
                    "control": control,
                    "position": position,
                    "n_tokens": 8,
                    "n_options": len(item["options"]),
                    "stated": stated,
                    "choice": choice,
                    "follows": None if stated is None else True,
                    "correct": choice == item["answer"],
                }
            )
    return tables.frame_of(rows, tables.Controls)
