"""Outcomes by hand: which readout is used when."""

import polars as pl
import pytest
from builders import Study, item, trace

from midtrace import outcomes, tables
from midtrace.config import outcomes_settings
from midtrace.errors import InputError

SCORES = {"q_gold": 0.4, "brier": 0.5, "log_loss": 0.9, "gold_log_odds": -0.4}


def cut_of(n: int, complete: bool, trace_id: str) -> dict:
    return {
        "trace_id": trace_id, "cut_id": f"horizon:{n}", "cut": "horizon", "horizon": n, "fraction": None, "partner_arm": None,
        "n_tokens": n, "complete": complete, "drift": False,
    }  # fmt: skip


def read_of(cut: dict, context: str, arm: str, correct: bool) -> dict:
    filling = {"option_logprob": [-1.0], "candidate_mass": 0.9, "choice": "A", "tie": False, "low_mass": False}
    return {**cut, **filling, **SCORES, "context": context, "context_arm": arm, "correct": correct}


def continued(cut: dict, correct: bool) -> dict:
    own = {"context": "policy", "context_arm": "low", "mode": "answer"}
    judge = dict.fromkeys(("rules_correct", "judge_verdict", "judge_text"))
    return {**cut, **own, "text": "", "answer": None, "correct": correct, "grade_note": None, "grader": "rules", **judge, "agrees_with_probe": None}


def frame(rows: list[dict], schema) -> pl.DataFrame:
    return tables.frame_of([{key: row[key] for key in schema.column_names()} for row in rows], schema)


@pytest.fixture
def inputs() -> dict[str, pl.DataFrame]:
    """One trace, active at 4 and complete at 16; natural answer right, every probe at 4 wrong but the common one."""
    name = trace()["trace_id"]
    active, complete = cut_of(4, False, name), cut_of(16, True, name)
    reads = [
        read_of(cut, *context, correct)
        for cut, context, correct in (
            (active, ("policy", "low"), False),
            (active, ("common", "medium"), True),
            (active, ("common", "high"), False),
            (complete, ("policy", "low"), False),
            (complete, ("common", "medium"), False),
            (complete, ("common", "high"), True),
        )
    ]
    # Cuts of other kinds have no place here.
    matched = {**active, "cut": "matched", "cut_id": "matched:high"}
    return {
        "items": frame([item(stratum="easy")], tables.Items),
        "traces": frame([trace()], tables.Traces),
        "cuts": frame([active, complete, matched], tables.Cuts),
        "readouts": frame([*reads, read_of(matched, "common", "medium", True)], tables.Readouts),
        "continuations": frame([continued(active, True), {**continued(complete, False), "mode": "natural"}], tables.Continuations),
    }


def rows_of(found: pl.DataFrame) -> dict:
    keys = ("readout", "horizon", "context_arm")
    return {tuple(row[key] for key in keys): row for row in tables.conform(found, tables.Outcomes, "outcomes").iter_rows(named=True)}


def test_outcomes_by_hand(inputs):
    rows = rows_of(outcomes.outcomes(**inputs))
    assert {key: (row["complete"], row["correct"], row["q_gold"]) for key, row in rows.items()} == {
        ("terminal", 4, "low"): (False, False, 0.4),  # the probe under the own prompt
        ("terminal", 16, "low"): (True, True, None),  # the natural answer: no probe scores
        ("terminal_continuation", 4, "low"): (False, True, None),
        ("terminal_continuation", 16, "low"): (True, True, None),
        ("symmetric", 4, "medium"): (False, True, 0.4),
        ("symmetric", 4, "high"): (False, False, 0.4),
        ("symmetric", 16, "medium"): (True, False, 0.4),  # the probe whatever the state
        ("symmetric", 16, "high"): (True, True, 0.4),
    }
    assert {row["stratum"] for row in rows.values()} == {"easy"}
    assert [rows["terminal", 16, "low"][score] for score in SCORES] == [None] * 4
    assert {score: rows["symmetric", 16, "high"][score] for score in SCORES} == SCORES


def test_a_wrong_natural_answer_is_wrong_from_then_on(inputs):
    inputs["traces"] = inputs["traces"].with_columns(correct=pl.lit(False), answer=pl.lit(None, pl.String))
    rows = rows_of(outcomes.outcomes(**inputs))
    assert not rows["terminal", 16, "low"]["correct"]
    assert rows["symmetric", 16, "high"]["correct"]


def test_free_form_items_have_continuations_only(inputs):
    inputs["readouts"] = inputs["readouts"].clear()
    assert {key[0] for key in rows_of(outcomes.outcomes(**inputs))} == {"terminal_continuation"}


def test_nothing_to_tabulate_is_an_empty_table(inputs):
    inputs["readouts"], inputs["continuations"] = inputs["readouts"].clear(), inputs["continuations"].clear()
    found = outcomes.outcomes(**inputs)
    assert found.is_empty()
    assert found.columns == tables.Outcomes.column_names()


def test_one_row_per_trace_horizon_readout_and_context(study: Study):
    found = tables.read(study.folder / "outcomes.parquet", tables.Outcomes, outcomes_settings(study.config))
    assert len(found) == 2 * 8 * 3 * 3, "arms x items x horizons x readouts"
    assert set(found.filter(pl.col("readout") == "symmetric")["context_arm"]) == {"medium"}


def test_a_shard_of_another_config_is_refused(study: Study, tmp_path):
    changed = {**study.config, "seed": 6}
    with pytest.raises(InputError, match=r"chains\.parquet: seed: the file was made with 5, the config says 6"):
        outcomes.run(study.stage_files(), tmp_path / "o.parquet", "unit", outcomes_settings(changed))
    changed = {**study.config, "readouts": {"spellings": "extended", "low_mass": 0.5}}
    with pytest.raises(InputError, match=r"readouts\.spellings: the file was made with 'plain', the config says 'extended'"):
        outcomes.run(study.stage_files(), tmp_path / "o.parquet", "unit", outcomes_settings(changed))
    assert not list(tmp_path.iterdir())
