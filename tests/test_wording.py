"""Wordings that come with midtrace: arms that a config uses by name, and templates by answer kind and dialect."""

import re

import pytest
from helpers.builders import small_config

from midtrace import config as study_config
from midtrace import wording


def test_an_arm_that_comes_with_midtrace_is_its_text(repository):
    arms = {
        "nc_512": {"use": "numeric_concise", "horizon": 512},
        "early_low": {"use": "early_answer", "effort": "low"},
        "own": {"system": "Up to {horizon}.", "horizon": 64},
        "high": {"use": "high"},
    }
    raw = small_config(arms=arms, comparisons=[{"treatment": "nc_512", "reference": "high", "common": "high"}])
    config = study_config.validate(raw, "study")
    found = config["arms"]
    assert found["nc_512"]["suffix"] == wording.wordings()["arms"]["numeric_concise"]["suffix"].replace("{horizon}", "512")
    assert found["early_low"]["suffix"] and found["early_low"]["effort"] == "low"
    assert found["own"] == {"system": "Up to 64.", "suffix": None, "effort": None}
    assert found["high"] == {"system": None, "suffix": None, "effort": "high"}
    assert study_config.validate(config, "again") == config


def test_the_nine_arms_of_the_mechanism_study(repository):
    """Hidden horizon; numeric and concise, and exact advance notice, at 512 and 2,048; generic finite budget; number only; early answer; placebo."""
    with_numbers = [("numeric_concise", 512), ("numeric_concise", 2048), ("advance_notice", 512), ("advance_notice", 2048)]
    with_numbers += [("number_only", 512), ("placebo", 512)]
    arms = {f"{use}_{horizon}": {"use": use, "horizon": horizon} for use, horizon in with_numbers}
    arms |= {use: {"use": use} for use in ("baseline", "finite_budget", "early_answer")}
    config = study_config.validate(
        small_config(arms=arms, comparisons=[{"treatment": "early_answer", "reference": "baseline", "common": "baseline"}]), "s"
    )
    texts = [arm["suffix"] for arm in config["arms"].values()]
    assert len(set(texts)) == 9
    assert config["arms"]["baseline"] == {"system": None, "suffix": None, "effort": None}
    for name, arm in config["arms"].items():
        numbers = re.findall(r"\d+", arm["suffix"] or "")
        assert numbers == ([name.rsplit("_", 1)[1]] if name[-1].isdigit() else [])


@pytest.mark.parametrize("kind", ["choice", "math", "code"])
def test_texts_of_a_benchmark_by_dialect(kind):
    own = {"answer_kind": kind, **dict.fromkeys(wording.PROMPT), "dialects": {}}
    builtin = wording.wordings()["templates"]
    assert wording.prompt(own, "qwen3") == builtin[kind]
    assert wording.prompt(own, "embedded")["template"] == "{question}\n{options}"
    own |= {"stem": "So:", "dialects": {"gpt_oss": {"system": "S", "stem": "Then:"}}}
    assert wording.prompt(own, "qwen3") == {**builtin[kind], "stem": "So:"}
    assert wording.prompt(own, "gpt_oss") == {**builtin[kind], "stem": "Then:", "system": "S"}
