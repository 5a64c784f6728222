"""The section of interruptions in a config, and the items that they ask for."""

import inspect
import json

import polars as pl
import pytest
from helpers.interruptions import SEVEN, demo, study

from midtrace import config as study_config
from midtrace import items, tables
from midtrace.config import interruptions as interruption_config
from midtrace.config import settings
from midtrace.errors import InputError

BAD = {
    "unknown intervention": (dict(run={"chains_update": ["hrad"]}), "'hrad' is not defined; allowed: hard"),
    "unknown benchmark": (dict(run={"chain": ["hard"]}), "run.chain: is not defined"),
    "an update that no item has": (dict(run={"chains": ["update"]}), "its items have none"),
    "an empty text": (dict(interventions={"x": {"place": "inside", "text": ""}}), "interventions.x.text: is ''; allowed: some text"),
    "white space": (dict(interventions={"x": {"place": "inside", "text": " \n"}}), "says nothing"),
    "nothing inside": (dict(interventions={"x": {"place": "inside", "text": None}}), "nothing is inserted"),
    "nothing in a dialect": (dict(interventions={"x": {"place": "turn", "text": "a", "dialects": {"qwen3": None}}}), "dialects.qwen3: is null"),
    "unknown dialect": (dict(interventions={"x": {"place": "inside", "text": "a", "dialects": {"qwen": "b"}}}), "'qwen' is unknown"),
    "unknown placeholder": (dict(interventions={"x": {"place": "inside", "text": "{updat}"}}), "{updat} is unknown"),
    "update lost in a dialect": (dict(interventions={"x": {"place": "inside", "text": "{update}", "dialects": {"qwen3": "b"}}}), "in all texts"),
    "a stem where none follows": (dict(interventions={"x": {"place": "inside", "text": "a", "stems": {}}}), "stems: place is inside"),
    "unknown place": (dict(interventions={"x": {"place": "after", "text": "a"}}), "allowed: inside, close, turn"),
    "a typo": (dict(fraction=[0.5]), "interruptions.fraction: unknown key"),
    "fractions that fall": (dict(fractions=[0.5, 0.1]), "interruptions.fractions: 0.1 comes after"),
    "unknown arm": (dict(arms=["plain"]), "'plain' is not defined"),
    "a wording without the update": (
        dict(interventions={"x": {"place": "inside", "text": "{update}", "wordings": {"b": {"text": "Hurry."}}}}),
        "x.wordings.b.text: holds {update} where the text of the intervention does not",
    ),
    "a wording that says nothing": (
        dict(interventions={"x": {"place": "inside", "text": "a", "wordings": {"b": {"text": " "}}}}),
        "interventions.x.b.text: says nothing",
    ),
    "a wording of a taken name": (
        dict(interventions={"x": {"place": "inside", "text": "a", "wordings": {"b": {"text": "c"}}}, "x.b": {"place": "inside", "text": "d"}}),
        "x.wordings.b: would be named 'x.b'",
    ),
    "unknown contrast": (dict(contrasts=[["hard", "sof"]]), "'sof' is not defined"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_config_names_the_key(name):
    section, message = BAD[name]
    with pytest.raises(InputError) as error:
        study_config.validate(study(**section), "study.yaml")
    assert message in str(error.value)


def test_an_effort_is_demanded_where_the_dialect_needs_one():
    raw = study()
    raw["models"]["embedded"]["dialect"] = "gpt_oss"
    with pytest.raises(InputError, match="needs one; allowed: low, medium, high"):
        study_config.validate(raw, "study.yaml")
    raw["models"]["embedded"] |= {"dialect": "qwen3", "date": "2025-01-01"}
    with pytest.raises(InputError, match="states no date"):
        study_config.validate(raw, "study.yaml")


def test_an_added_intervention_changes_no_settings_of_another():
    plain = study_config.validate(study(run={"chains_update": ["hard"]}), "a")
    added = {"place": "inside", "text": "Draft: be quick."}
    more = study_config.validate(study(run={"chains_update": ["hard", "draft"]}, interventions={"draft": added}), "a")
    where = ("embedded", "chains_update", "baseline", 0, "hard")
    assert interruption_config.interruption_settings(plain, *where) == interruption_config.interruption_settings(more, *where)
    assert interruption_config.interruption_grading_settings(plain, *where) == interruption_config.interruption_grading_settings(more, *where)
    assert set(more["interruptions"]["interventions"]) == {*SEVEN, "draft"}
    assert interruption_config.bases(more) == ["chains_update"]
    assert study_config.outcomes_settings(plain) == study_config.outcomes_settings(more)


def test_revised_view_asks_the_revised_question():
    benchmark = {"name": "toy", "loader": "chains_update", "answer_kind": "choice", "n": 6}
    frame = items.load(benchmark, 3)
    view = items.revised(frame, "toy")
    assert view["question"].to_list() == frame["revised_question"].to_list() and view["answer"].to_list() == frame["stale_answer"].to_list()
    assert view["item_id"].to_list() == [name.replace("toy/", "toy+revised/") for name in frame["item_id"]]
    tables.conform(view, tables.Items, "view")
    with pytest.raises(InputError, match="update: missing"):
        items.revised(frame.with_columns(update=pl.lit(None, pl.String)), "toy")


# Wordings


GUIDED = {
    "place": "inside",
    "text": "{update} It is verified.",
    "wordings": {"doubtless": {"text": "{update} I have checked it."}, "user": {"place": "turn", "text": "{update} I have verified it; use it."}},
}


def worded() -> dict:
    run = {"chains_update": ["update", "update_guided"]}
    return study_config.validate(study(run=run, interventions={"update_guided": GUIDED}), "study.yaml")


def test_every_wording_is_an_intervention_of_its_own():
    config = worded()
    names = ["update_guided", "update_guided.doubtless", "update_guided.user"]
    assert interruption_config.interventions(config, "chains_update") == ["update", *names]
    key = (config, "embedded", "chains_update", "baseline", 0)
    said = {name: interruption_config.interruption_settings(*key, name) for name in names}
    assert [(said[name]["intervention"]["place"], said[name]["intervention"]["text"]) for name in names] == [
        ("inside", GUIDED["text"]),
        ("inside", "{update} I have checked it."),
        ("turn", "{update} I have verified it; use it."),
    ]
    assert {settings["traces"]["items"]["view"] for settings in said.values()} == {"revised"}
    contrasts = config["interruptions"]["contrasts"]
    assert all(pair in contrasts for name in names for pair in [[name, "update"]])
    assert [pair for pair in contrasts if pair[1] == "update_guided"] == [[name, "update_guided"] for name in names[1:]]


def test_a_config_with_wordings_is_read_again_as_it_is():
    config = worded()
    assert study_config.validate(config, "again") == config


def test_wordings_leave_the_intervention_itself_as_it_was():
    plain = study_config.validate(study(run={"chains_update": ["update_guided"]}, interventions={"update_guided": {**GUIDED, "wordings": {}}}), "s")
    key = ("embedded", "chains_update", "baseline", 0, "update_guided")
    assert interruption_config.interruption_settings(worded(), *key) == interruption_config.interruption_settings(plain, *key)


# Another order of keys is no other config


def turned(value):
    """The same value with the keys of every mapping in the opposite order."""
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in reversed(value)}
    return [turned(entry) for entry in value] if isinstance(value, list) else value


def all_settings(config):
    """Every settings function of the package, by name, for a table of this config; as text, in which the order of keys shows."""
    arguments = {"benchmark": "chains_update", "model": "embedded", "arm": "baseline", "replicate": 0, "intervention": "update"}
    found = {}
    for module in (settings, interruption_config):
        for name, function in vars(module).items():
            if name.endswith("_settings"):
                wanted = [parameter for parameter in inspect.signature(function).parameters if parameter != "config"]
                found[name] = json.dumps(function(config, **{key: arguments[key] for key in wanted}))
    return found


def test_settings_do_not_depend_on_the_order_of_keys():
    config = study_config.validate(demo(), "demo")
    other = turned(config)
    for registry in ("models", "benchmarks", "arms"):  # their order is that of rows and figures
        other[registry] = {key: other[registry][key] for key in config[registry]}
    first, second = all_settings(config), all_settings(other)
    assert len(first) >= 18 and list(other) != list(config) and list(other["readouts"]) != list(config["readouts"])
    assert [name for name in first if first[name] != second[name]] == []
