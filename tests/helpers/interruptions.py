"""Builders for the tests of interruptions: the demo's config, an intervention's settings, an item, a trace, what a job reads."""

import copy
from functools import cache

import yaml

from helpers.builders import ROOT
from midtrace import config as study_config
from midtrace import dialects
from midtrace.config import interruptions as interruption_config
from midtrace.interruptions import interrupt

SEVEN = ("hard", "force_answer", "soft", "update", "update_guided", "soft_user", "update_user")
ITEM = {"item_id": "toy/1", "question": "What is 2 + 2?", "options": ["3", "4"], "answer": "B", "answer_kind": "choice"}
ITEM |= {"update": "Update: the options are swapped.", "stale_answer": "A"}
REASONING = "Two and two is four. That is option B. So I will say it.\n"
FRACTIONS = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]


@cache
def demo() -> dict:
    return study_config.load(ROOT / "config/config.yaml")


def study(**interruptions) -> dict:
    """The demo's config with another section ``interruptions``, not yet validated."""
    raw = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    raw["interruptions"] = interruptions
    return raw


def record(name: str, dialect: str, kind: str = "choice") -> dict:
    """The settings of an intervention as the paid stage gets them, from the defaults of the schema."""
    config = copy.deepcopy(demo())
    config["models"]["embedded"]["dialect"] = dialect
    config["benchmarks"]["chains_update"]["answer_kind"] = kind
    return interruption_config.interruption_settings(config, "embedded", "chains_update", "baseline", 0, name)["intervention"]


def trace_of(tokenizer, dialect: dialects.Dialect, prompt=(7, 8), **changes) -> dict:
    opening = dialects.opening_ids(tokenizer, dialect)
    reasoning = tokenizer.encode(REASONING, add_special_tokens=False)
    after = tokenizer.encode(dialect.closing.lstrip("\n") + "Answer: B" + dialect.stop[0], add_special_tokens=False)
    found = {"trace_id": "m/toy/1/plain/r0", "item_id": "toy/1", "replicate": 0, "prompt_ids": list(prompt), "drift_at": None}
    found |= {"output_ids": [*opening, *reasoning, *after], "reasoning_start": len(opening), "n_reasoning": len(reasoning), "status": "terminated"}
    return found | changes


def subject(tokenizer, dialect_name: str, intervention: dict, trace: dict | None = None, context: int | None = None) -> interrupt.Inputs:
    dialect = dialects.get(dialect_name)
    trace = trace or trace_of(tokenizer, dialect)
    cuts = {"fractions": FRACTIONS, "sentences": [], "tokens": []}
    settings = {"intervention": intervention, "cuts": cuts, "max_tokens": 50, "probe": None, "traces": {"seed": 5}}
    name = trace["trace_id"]
    found = {name: list(interrupt.cuts_for(trace, cuts, tokenizer))}
    return interrupt.Inputs(settings, {"1": ITEM}, {name: trace}, found, tokenizer, dialect, [0], context, {}, [])
