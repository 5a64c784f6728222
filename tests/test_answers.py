"""Grading of traces and continuations: what is natural, what agrees, what is refused."""

import polars as pl
import pytest
from helpers.builders import Study

from midtrace import tables
from midtrace.errors import InputError
from midtrace.grading import answers, grade
from midtrace.prompts import labels


def regrade(study: Study, output, arm="low", change=lambda frame: frame) -> pl.DataFrame:
    """Grade raw traces after a change of their rows."""
    raw = output.parent / "raw.parquet"
    meta = tables.read_metadata(study.shard("raw/traces", arm))
    tables.write(change(tables.read(study.shard("raw/traces", arm), tables.RawTraces)), raw, tables.RawTraces, meta)
    answers.grade_traces(raw, study.items, output, "unit", study.settings("traces", arm))
    return tables.read(output, tables.Traces)


def test_traces_keep_their_rows_and_get_their_answers(study: Study, tmp_path):
    items = {row["item_id"]: row for row in tables.read(study.items, tables.Items).iter_rows(named=True)}
    raw = tables.read(study.shard("raw/traces", "low"), tables.RawTraces)
    graded = regrade(study, tmp_path / "a.parquet")
    assert graded.select(raw.columns).equals(raw)
    for row in graded.iter_rows(named=True):
        item = items[row["item_id"]]
        expected = grade(row["answer_text"], item, labels(len(item["options"]))) if row["status"] == "terminated" else (None, False)
        assert (row["answer"], row["correct"]) == expected


@pytest.mark.parametrize("status", ["truncated", "malformed"])
def test_only_a_terminated_run_has_an_answer(study: Study, tmp_path, status):
    change = pl.lit("Answer: A").alias("answer_text"), pl.lit(status).alias("status")
    graded = regrade(study, tmp_path / "a.parquet", change=lambda frame: frame.with_columns(change))
    assert graded["answer"].null_count() == len(graded) == 8
    assert not graded["correct"].any()


def test_an_unparsed_answer_is_wrong_and_kept(study: Study, tmp_path):
    change = pl.lit("I cannot say").alias("answer_text"), pl.lit("terminated").alias("status")
    graded = regrade(study, tmp_path / "a.parquet", change=lambda frame: frame.with_columns(change))
    assert (len(graded), graded["answer"].null_count(), graded["correct"].sum()) == (8, 8, 0)


def paths(study: Study, arm: str) -> list:
    return [study.items, *(study.shard(stage, arm) for stage in ("traces", "cuts", "raw/continuations", "readouts"))]


def test_natural_rows_hold_the_own_answer_against_the_probe_at_every_cut(study: Study):
    for arm in ("low", "high"):
        _, traces, cuts, _, readouts = (pl.read_parquet(path) for path in paths(study, arm))
        found = tables.read(study.shard("continuations", arm), tables.Continuations, study.settings("continuation", arm))
        natural = found.filter(pl.col("mode") == "natural")
        assert len(natural) == len(cuts)
        choice = {(row["trace_id"], row["cut_id"]): row["choice"] for row in readouts.filter(pl.col("context") == "policy").iter_rows(named=True)}
        own = {row["trace_id"]: row for row in traces.iter_rows(named=True)}
        for row in natural.iter_rows(named=True):
            trace = own[row["trace_id"]]
            assert (row["answer"], row["correct"], row["text"]) == (trace["answer"], trace["correct"], trace["answer_text"])
            assert row["agrees_with_probe"] == (trace["answer"] == choice[row["trace_id"], row["cut_id"]])


def test_answers_agree_with_the_probe_of_the_same_context(study: Study):
    found = tables.read(study.shard("continuations", "high"), tables.Continuations).filter(pl.col("mode") == "answer")
    keys = ["trace_id", "cut_id", "context", "context_arm"]
    joined = found.join(tables.read(study.shard("readouts", "high"), tables.Readouts).select(*keys, "choice"), on=keys)
    assert len(joined) == len(found) > 0
    assert set(joined["context"]) == {"policy", "common"}
    assert (joined["agrees_with_probe"] == pl.select(joined["answer"].eq_missing(joined["choice"])).to_series()).all()


def test_without_readouts_nothing_is_compared(study: Study, tmp_path):
    items, traces, cuts, raw, _ = paths(study, "low")
    settings = study.settings("continuation", "low")
    answers.grade_continuations(items, traces, cuts, raw, None, tmp_path / "a.parquet", "unit", settings)
    assert tables.read(tmp_path / "a.parquet", tables.Continuations)["agrees_with_probe"].null_count() > 0
    assert tables.read(tmp_path / "a.parquet", tables.Continuations)["agrees_with_probe"].drop_nulls().is_empty()


def test_readouts_of_another_arm_are_refused(study: Study, tmp_path):
    items, traces, cuts, raw, _ = paths(study, "low")
    with pytest.raises(InputError, match=r"high/r0\.parquet: contexts\.high\.effort|high/r0\.parquet: .*the config says"):
        answers.grade_continuations(
            items, traces, cuts, raw, study.shard("readouts", "high"), tmp_path / "a.parquet", "unit", study.settings("continuation", "low")
        )
    assert not (tmp_path / "a.parquet").exists()


@pytest.mark.parametrize("position", [0, 1, 2, 3])
def test_every_input_of_another_config_is_refused(study: Study, tmp_path, position):
    files = paths(study, "low")
    schema = (tables.Items, tables.Traces, tables.Cuts, tables.RawContinuations)[position]
    meta = tables.read_metadata(files[position])
    foreign = {**meta, "identity": {**meta["identity"], "seed": 99}}
    tables.write(tables.read(files[position], schema), tmp_path / "foreign.parquet", schema, foreign, expect_rows=False)
    files[position] = tmp_path / "foreign.parquet"
    with pytest.raises(InputError, match=r"foreign\.parquet: seed: the file was made with 99"):
        answers.grade_continuations(*files, tmp_path / "a.parquet", "unit", study.settings("continuation", "low"))
