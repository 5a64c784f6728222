"""Planted against measured."""

import polars as pl
import pytest
import yaml

from midtrace import planted
from midtrace.errors import InputError

MATCHED = pl.DataFrame(
    {
        "model": ["m", "m", "m"],
        "treatment": ["low", "low", "medium"],
        "reference": ["high", "high", "high"],
        "estimand": ["matched_contrast"] * 3,
        "readout": ["probe", "continuation", "probe"],
        "horizon": [None, 8, None],
        "estimate": [0.2, 0.3, 0.1],
        "ci_low": [0.1, 0.2, 0.0],
        "ci_high": [0.3, 0.4, 0.2],
    },
    schema_overrides={"horizon": pl.Int32},
)
EFFECT = {"effect": "low knows early", "table": "matched", "estimand": "matched_contrast", "treatment": "low", "readout": "probe"}


@pytest.fixture
def compare(tmp_path):
    def run(*effects) -> list[dict]:
        (tmp_path / "expected.yaml").write_text(yaml.safe_dump(list(effects)))
        return planted.compare({"matched": MATCHED, "empty": pl.DataFrame()}, tmp_path / "expected.yaml").rows(named=True)

    return run


@pytest.mark.parametrize(
    ("values", "covered", "holds"),
    [
        ({"planted": 0.15}, True, True),
        ({"planted": 0.35}, False, True),
        ({"low": 0.2}, None, True),
        ({"low": 0.21}, None, False),
        ({"high": 0.1}, None, False),
        ({"low": 0.0, "high": 0.5, "planted": 0.1}, True, True),
    ],
)
def test_covered_and_holds(compare, values, covered, holds):
    (row,) = compare({**EFFECT, **values})
    assert (row["covered"], row["holds"]) == (covered, holds)
    assert (row["estimand"], row["estimate"], row["planted"]) == ("low knows early", 0.2, values.get("planted"))
    assert (row["low"], row["high"]) == (values.get("low"), values.get("high"))


def test_a_null_key_picks_the_row_without_it(compare):
    (row,) = compare({"effect": "e", "table": "matched", "treatment": "low", "horizon": None, "low": 0})
    assert row["readout"] == "probe"
    (row,) = compare({"effect": "e", "table": "matched", "horizon": 8, "control": None, "low": 0})
    assert row["readout"] == "continuation"


@pytest.mark.parametrize(
    ("effect", "message"),
    [
        ({**EFFECT, "treatment": "none"}, "low knows early: matches 0 estimates; allowed: exactly 1"),
        ({"effect": "e", "table": "matched"}, "e: matches 3 estimates"),
        ({"effect": "e", "table": "empty", "horizon": 8}, "e: matches 0 estimates"),
        ({"effect": "e", "table": "matched", "control": "junk"}, "e: matches 0 estimates"),
        ({"effect": "e", "table": "nowhere"}, "e: table 'nowhere' is unknown; allowed: matched, empty"),
        ({**EFFECT, "planed": 3}, r"0\.planed: unknown key"),
        ({"effect": "e"}, r"0\.table: missing"),
        ("text", r"0\.effect: missing"),
    ],
)
def test_a_comparison_that_compares_nothing_is_refused(compare, effect, message):
    with pytest.raises(InputError, match=message):
        compare(effect)


def test_no_file_and_no_list(tmp_path):
    assert planted.compare({"matched": MATCHED}, None).is_empty()
    (tmp_path / "expected.yaml").write_text("effect: x\n")
    with pytest.raises(InputError, match="is not a list of effects"):
        planted.compare({}, tmp_path / "expected.yaml")
