"""Outcomes by hand: which readout is used when."""

import polars as pl
import pytest
from helpers.builders import Study, item, trace

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


def continued(cut: dict, context: str, arm: str, correct: bool) -> dict:
    own = {"context": context, "context_arm": arm, "mode": "answer"}
    judge = dict.fromkeys(("rules_correct", "judge_verdict", "judge_text"))
    return {**cut, **own, "text": "", "answer": None, "correct": correct, "grade_note": None, "grader": "rules", **judge, "agrees_with_probe": None}


def frame(rows: list[dict], schema) -> pl.DataFrame:
    return tables.frame_of([{key: row[key] for key in schema.column_names()} for row in rows], schema)


@pytest.fixture
def inputs() -> dict[str, pl.DataFrame]:
    """One trace, active at 4 and complete at 16; natural answer right, every probe at 4 wrong but the common one, continuations the reverse."""
    name = trace()["trace_id"]
    active, complete = cut_of(4, False, name), cut_of(16, True, name)
    places = (
        (active, ("policy", "low"), False),
        (active, ("common", "medium"), True),
        (active, ("common", "high"), False),
        (complete, ("policy", "low"), False),
        (complete, ("common", "medium"), False),
        (complete, ("common", "high"), True),
    )
    reads = [read_of(cut, *context, correct) for cut, context, correct in places]
    answers = [continued(cut, *context, not correct) for cut, context, correct in places]
    # Cuts of other kinds have no place here.
    matched = {**active, "cut": "matched", "cut_id": "matched:high"}
    return {
        "items": frame([item(stratum="easy")], tables.Items),
        "traces": frame([trace()], tables.Traces),
        "cuts": frame([active, complete, matched], tables.Cuts),
        "readouts": frame([*reads, read_of(matched, "common", "medium", True)], tables.Readouts),
        "continuations": frame([*answers, {**continued(complete, "policy", "low", False), "mode": "natural"}], tables.Continuations),
    }


def rows_of(found: pl.DataFrame) -> dict:
    keys = ("readout", "horizon", "context_arm")
    return {tuple(row[key] for key in keys): row for row in tables.conform(found, tables.Outcomes, "outcomes").iter_rows(named=True)}


def test_outcomes_by_hand(inputs):
    rows = rows_of(outcomes.outcomes(**inputs))
    assert {key: (row["complete"], row["correct"], row["q_gold"]) for key, row in rows.items()} == {
        ("terminal", 4, "low"): (False, False, 0.4),  # the probe under the own prompt
        ("terminal", 16, "low"): (True, True, None),  # the natural answer: no probe scores
        ("symmetric_own", 4, "low"): (False, False, 0.4),
        ("symmetric_own", 16, "low"): (True, False, 0.4),  # the probe under the own prompt, whatever the state
        ("symmetric", 4, "medium"): (False, True, 0.4),
        ("symmetric", 4, "high"): (False, False, 0.4),
        ("symmetric", 16, "medium"): (True, False, 0.4),  # the probe whatever the state
        ("symmetric", 16, "high"): (True, True, 0.4),
        ("terminal_continuation", 4, "low"): (False, True, None),
        ("terminal_continuation", 16, "low"): (True, True, None),
        ("symmetric_own_continuation", 4, "low"): (False, True, None),
        ("symmetric_own_continuation", 16, "low"): (True, True, None),
        ("symmetric_continuation", 4, "medium"): (False, False, None),
        ("symmetric_continuation", 4, "high"): (False, True, None),
        ("symmetric_continuation", 16, "medium"): (True, True, None),
        ("symmetric_continuation", 16, "high"): (True, False, None),
    }
    assert {row["stratum"] for row in rows.values()} == {"easy"}
    assert [rows["terminal", 16, "low"][score] for score in SCORES] == [None] * 4
    assert {score: rows["symmetric", 16, "high"][score] for score in SCORES} == SCORES


def test_a_wrong_natural_answer_is_wrong_from_then_on(inputs):
    inputs["traces"] = inputs["traces"].with_columns(correct=pl.lit(False), answer=pl.lit(None, pl.String))
    rows = rows_of(outcomes.outcomes(**inputs))
    assert not rows["terminal", 16, "low"]["correct"]
    assert rows["symmetric", 16, "high"]["correct"]


def test_the_config_says_which_readouts_there_are(inputs):
    both, own = ["policy", "common"], ["policy"]
    by_probe, by_continuation = ({f"{name}{end}" for name in ("terminal", "symmetric_own", "symmetric")} for end in ("", "_continuation"))

    def names(**contexts):
        return {key[0] for key in rows_of(outcomes.outcomes(**inputs, contexts=contexts))}

    assert names(probe=both, continuation=both) == by_probe | by_continuation
    assert names(probe=both) == by_probe, "continuations that the config does not ask for are left alone"
    assert names(probe=both, continuation=own) == by_probe | by_continuation - {"symmetric_continuation"}
    inputs["readouts"] = inputs["readouts"].clear()
    assert names(probe=[], continuation=both) == by_continuation, "free-form items"


def test_runs_that_have_all_finished_have_the_readouts_of_the_others(inputs):
    """The readouts of a shard do not depend on whether anything in it was still unfinished."""
    done = {name: inputs[name].filter(pl.col("complete")) for name in ("cuts", "readouts", "continuations")}
    rows = rows_of(outcomes.outcomes(**{**inputs, **done}))
    assert {key[0] for key in rows} == set(tables.schemas.READOUTS)
    assert {key[1] for key in rows} == {16}


@pytest.mark.parametrize(("stage", "reading"), [("readouts", "probe"), ("continuations", "continuation")])
@pytest.mark.parametrize("context", ["policy", "common"])
def test_what_was_not_read_is_an_error_and_never_left_out(inputs, stage, reading, context):
    inputs[stage] = inputs[stage].filter((pl.col("horizon") != 4) | (pl.col("context") != context))
    with pytest.raises(InputError, match=rf"no {reading} at horizon 4, context {context} \(1 in all\)"):
        outcomes.outcomes(**inputs)


def test_nothing_to_tabulate_is_an_empty_table(inputs):
    found = outcomes.outcomes(**inputs, contexts={})
    assert found.is_empty()
    assert found.columns == tables.Outcomes.column_names()


def test_horizons_of_the_availability_grid_have_symmetric_rows_by_the_probe_only(inputs):
    inputs["continuations"] = inputs["continuations"].filter(pl.col("horizon") != 4)
    rows = rows_of(outcomes.outcomes(**inputs, horizons=[16], grid=[4]))
    assert {key[0] for key in rows if key[1] == 4} == {"symmetric"}


def test_later_looks_at_a_run_are_no_outcomes(inputs):
    inputs["readouts"] = inputs["readouts"].filter((pl.col("horizon") != 4) | (pl.col("context") == "policy"))
    inputs["continuations"] = inputs["continuations"].filter(pl.col("horizon") != 4)
    assert {key[1] for key in rows_of(outcomes.outcomes(**inputs, horizons=[16]))} == {16}


def test_one_row_per_trace_horizon_readout_and_context(study: Study):
    found = tables.read(study.folder / "outcomes.parquet", tables.Outcomes, outcomes_settings(study.config))
    assert len(found) == 2 * 8 * 3 * 6, "arms x items x horizons x readouts"
    assert set(found.filter(pl.col("readout").is_in(["symmetric", "symmetric_continuation"]))["context_arm"]) == {"medium"}
    own = found.filter(pl.col("readout").is_in(["symmetric_own", "symmetric_own_continuation"]))
    assert own["context_arm"].equals(own["arm"])


def test_a_shard_of_another_config_is_refused(study: Study, tmp_path):
    changed = {**study.config, "seed": 6}
    with pytest.raises(InputError, match=r"chains\.parquet: seed: the file was made with 5, the config says 6"):
        outcomes.run(study.stage_files(), tmp_path / "o.parquet", "unit", outcomes_settings(changed))
    changed = {**study.config, "readouts": {"spellings": "extended", "low_mass": 0.5}}
    with pytest.raises(InputError, match=r"readouts\.spellings: the file was made with 'plain', the config says 'extended'"):
        outcomes.run(study.stage_files(), tmp_path / "o.parquet", "unit", outcomes_settings(changed))
    assert not list(tmp_path.iterdir())
