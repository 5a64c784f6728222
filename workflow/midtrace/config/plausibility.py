"""Configs whose parts go together but cannot be what was meant: refused, or, where they can be meant, said in a warning that the report repeats."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from midtrace.config.selection import all_arms, choice_benchmarks, replicates, selected
from midtrace.errors import InputError


def check(config: Mapping[str, Any], where: object) -> None:
    """Refuse what no run can show.

    Raises
    ------
    InputError
        For a horizon that no model's runs can reach, a context that holds no prompt, more replicates interrupted than there are, and the like.
    """
    caps = {model: config["models"][model]["max_tokens"] for model in selected(config, "models")}
    longest = max(caps.values())
    capped = "max_tokens of every model (" + ", ".join(f"{model} {cap}" for model, cap in caps.items()) + ")"
    for horizon in config["horizons"]:
        if horizon > longest:
            raise InputError(where, "horizons", f"{horizon} is beyond {capped}: runs are cut before it", f"at most {longest}")
    for model in caps:
        _check_context(f"models.{model}", config["models"][model], caps[model], where)
    judge = config["judge"]
    if judge is not None:
        _check_context("judge.model", judge["model"], judge["max_tokens"], where)
    _check_interruptions(config, where)
    for arm, mean in config["plan"]["mean_tokens"].items():
        if mean > longest:
            raise InputError(where, f"plan.mean_tokens.{arm}", f"is {mean:g}, beyond {capped}", f"at most {longest}")


def _check_interruptions(config: Mapping[str, Any], where: object) -> None:
    section = config["interruptions"]
    for benchmark in section["run"]:
        runs = replicates(config, benchmark)
        if section["replicates"] is not None and section["replicates"] > runs:
            problem = f"is {section['replicates']}, but {benchmark} has {runs} runs per item"
            raise InputError(where, "interruptions.replicates", problem, f"at most {runs}, or null for all")
    for model in selected(config, "models") if section["run"] else ():
        limit = _limit(config["models"][model])
        if section["max_tokens"] is not None and limit is not None and section["max_tokens"] >= limit:
            problem = f"is {section['max_tokens']}, but the context of {model} holds {limit}"
            raise InputError(where, "interruptions.max_tokens", problem, f"less than {limit}, or null")


def _check_context(field: str, model: Mapping[str, Any], max_tokens: int, where: object) -> None:
    own, asked = _own_limit(model), model["context"]
    if own is not None and asked is not None and asked > own:
        raise InputError(where, f"{field}.context", f"is {asked}", f"at most {own}, the model's own")
    if asked is not None and asked <= max_tokens:
        raise InputError(where, f"{field}.context", f"is {asked}, with max_tokens {max_tokens}: no prompt fits", f"more than {max_tokens}, or null")
    if own is not None and own <= max_tokens:
        raise InputError(
            where,
            f"{field.replace('judge.model', 'judge')}.max_tokens",
            f"is {max_tokens}, but the model takes {own} with the prompt",
            f"less than {own}",
        )


def _own_limit(model: Mapping[str, Any]) -> int | None:
    """The longest sequence that a model folder here allows; None if it does not say."""
    try:
        content = json.loads((Path(model["source"]) / "config.json").read_text(encoding="utf-8"))
        for part in (content, content.get("text_config", {})):
            if type(part.get("max_position_embeddings")) is int:
                return part["max_position_embeddings"]
    except (OSError, ValueError, AttributeError):  # no folder here, or a file that the engine will refuse
        pass
    return None


def _limit(model: Mapping[str, Any]) -> int | None:
    """The longest sequence of a model as far as the config and a folder here say."""
    return model["context"] or _own_limit(model)


def warnings(config: Mapping[str, Any]) -> list[str]:
    """What can be meant and seldom is, a sentence each, beginning with the field."""
    return [*_beyond_some_caps(config), *_tight_contexts(config), *_same_arms(config)]


def _beyond_some_caps(config: Mapping[str, Any]) -> Iterator[str]:
    section = config["interruptions"]
    grids = {
        "horizons": config["horizons"],
        "availability.horizons": config["availability"]["horizons"] if choice_benchmarks(config) else [],
        "controls.horizons": config["controls"]["horizons"] if config["controls"]["items"] else [],
        "interruptions.tokens": section["tokens"] if section["run"] else [],
    }
    for model in selected(config, "models"):
        cap = config["models"][model]["max_tokens"]
        for field, values in grids.items():
            beyond = [value for value in values if value > cap]
            if beyond:
                names = ", ".join(map(str, beyond))
                yield f"{field}: {names} beyond max_tokens of {model} ({cap}): no run of it reaches that far; what is read there is where it was cut"


def _tight_contexts(config: Mapping[str, Any]) -> Iterator[str]:
    """Contexts without room for the prompts that the plan counts on; a job refuses the prompts that do not fit."""
    prompt, after = config["plan"]["prompt_tokens"], config["continuations"]["max_tokens"]
    entries = {f"models.{name}": (config["models"][name], config["models"][name]["max_tokens"], after) for name in selected(config, "models")}
    judge = config["judge"]
    if judge is not None:
        entries["judge.model"] = judge["model"], judge["max_tokens"], judge["answer_tokens"]
    for field, (model, max_tokens, more) in entries.items():
        limit = _limit(model)
        if limit is not None and limit < max_tokens + more + prompt:
            room = limit - max_tokens - more
            what = "answer_tokens" if field == "judge.model" else "continuations.max_tokens"
            yield (
                f"{field}: of a context of {limit} tokens, max_tokens ({max_tokens}) and {what} ({more}) leave {max(room, 0)} for a prompt, "
                f"where plan.prompt_tokens counts on {prompt:g}: a job stops at a prompt that does not fit"
            )


def _same_arms(config: Mapping[str, Any]) -> Iterator[str]:
    arms = config["arms"]
    names = all_arms(config)
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            if arms[one] == arms[other]:
                yield f"arms: {one} and {other} ask in the same words, so their runs are the same, unless they are imported"
