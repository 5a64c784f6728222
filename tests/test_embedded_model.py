"""The committed embedded model: its size, what its card records, and a live sample of what it promises."""

import json
import math
from pathlib import Path

import pytest
import yaml
from safetensors import safe_open

from midtrace.embedded import card, evaluate, language

FOLDER = Path(__file__).parents[1] / "resources" / "embedded"


@pytest.fixture(scope="module")
def measured() -> dict:
    return json.loads((FOLDER / "measured.json").read_text())


def test_weights_are_small_enough_to_commit():
    with safe_open(FOLDER / "model.safetensors", "numpy") as weights:
        parameters = sum(math.prod(weights.get_slice(name).get_shape()) for name in list(weights.keys()))
    assert parameters <= 1_000_000
    assert (FOLDER / "model.safetensors").stat().st_size <= 4 * 2**20


def test_recorded_behaviour_keeps_every_promise(measured):
    assert measured["items"] >= 1000
    assert measured["letter_matches_value"] >= 0.98
    assert measured["high_minus_low_both_finished"] >= 0.08
    assert measured["matched_low_minus_high"] >= 0.10
    assert 0.75 <= measured["length_ratio_numeric_concise"] <= 0.90
    assert abs(measured["matched_numeric_concise_minus_baseline"]) <= 0.03
    assert measured["early_answer_gain_both_active"] >= 0.05
    for arm in ("low", "baseline", "high"):
        assert abs(measured[f"forced_at_0_{arm}"] - measured["chance"]) <= 0.05
        assert abs(measured[f"forced_at_fifth_{arm}"] - measured["chance"]) <= 0.05
        assert measured[f"forced_at_end_follows_chain_{arm}"] >= 0.95
    assert measured["update_guided_accuracy"] > measured["update_accuracy"] > 2 * measured["chance"]
    assert measured["soft_panics"] > 0.05
    assert measured["hard_leaks"] > 0.05
    assert measured["update_doubts"] > measured["update_guided_doubts"]


def test_card_is_the_one_that_its_records_render(measured):
    training = json.loads((FOLDER / "training.json").read_text())
    values = {key: value for key, value in measured.items() if key != "items"}
    assert (FOLDER / "README.md").read_text() == card.render(training, values, measured["items"])
    assert training["cpu_seconds"] / 2 < 45 * 60


def test_planted_values_follow_from_construction_or_card(measured):
    planted = {
        effect["effect"].split(":")[0].split(" (")[0]: effect["planted"]
        for effect in yaml.safe_load((FOLDER / "expected.yaml").read_text())
        if "planted" in effect
    }
    for arm, rate in (("low", language.SLIP_TERSE), ("baseline", language.SLIP_WORDED)):
        assert planted[f"natural accuracy, {arm}"] == pytest.approx(measured[f"accuracy_{arm}"], abs=1e-4)
        assert measured[f"accuracy_{arm}"] == pytest.approx(language.planted_accuracy(rate), abs=0.03)
    assert planted["length of numeric_concise over baseline"] == pytest.approx(language.planted_length_ratio(), abs=1e-4)
    assert planted["forced answer before any reasoning, low"] == pytest.approx(language.chance(), abs=1e-4)


def test_live_sample_agrees_with_the_record(measured):
    """Fresh chains (another seed than the record's): within four standard errors of what the card says."""
    n = 80
    live = evaluate.measure(str(FOLDER), n, seed=11)
    for key in ("accuracy_low", "accuracy_high", "accuracy_baseline", "soft_accuracy", "update_accuracy"):
        assert abs(live[key] - measured[key]) < 4 * (0.25 / n) ** 0.5, key
    assert live["letter_matches_value"] >= 0.97
    assert abs(live["length_ratio_numeric_concise"] - measured["length_ratio_numeric_concise"]) < 0.02
