"""Tables: schemas, metadata, refusal of what does not belong, writing that is whole or not at all."""

import errno
import json
import math
import os
import random
import subprocess

import dataframely as dy
import polars as pl
import pytest
from helpers.builders import item, trace
from polars.testing import assert_frame_equal

from midtrace import tables
from midtrace.errors import InputError
from midtrace.tables import files

SCHEMAS = [
    tables.Items,
    tables.RawTraces,
    tables.Traces,
    tables.Cuts,
    tables.Readouts,
    tables.RawContinuations,
    tables.Continuations,
    tables.Outcomes,
    tables.Controls,
]
META = tables.metadata("items", "toy", {"seed": 1, "benchmark": {"name": "toy", "n": None}})


def readout(**values) -> dict:
    row = {
        "trace_id": "t", "cut_id": "horizon:8", "cut": "horizon", "horizon": 8, "fraction": None, "partner_arm": None, "n_tokens": 8,
        "complete": False, "context": "policy", "context_arm": "low", "option_logprob": [-0.5, -1.5], "candidate_mass": 0.8, "choice": "A",
        "tie": False, "low_mass": False, "q_gold": 0.7, "correct": True, "brier": 0.2, "log_loss": 0.3, "gold_log_odds": 0.8,
    }  # fmt: skip
    return {**row, **values}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_round_trip(tmp_path, schema):
    frame = schema.sample(12, generator=dy.random.Generator(3))
    tables.write(frame, tmp_path / "deep" / "a.parquet", schema, META)
    again = tables.read(tmp_path / "deep" / "a.parquet", schema, META["identity"])
    assert_frame_equal(again, frame)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.parquet"]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_empty_frames_keep_their_types(tmp_path, schema):
    tables.write(tables.frame_of([], schema), tmp_path / "a.parquet", schema, META, expect_rows=False)
    frame = pl.read_parquet(tmp_path / "a.parquet")
    assert len(frame) == 0
    assert frame.schema == schema.sample(3, generator=dy.random.Generator(1)).schema
    if "output_ids" in frame.columns:
        assert frame.schema["output_ids"] == pl.List(pl.Int32)


def test_an_unexpected_empty_frame_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"a\.parquet: rows: 0 rows would be written"):
        tables.write(tables.frame_of([], tables.Items), tmp_path / "a.parquet", tables.Items, META)
    assert not list(tmp_path.iterdir())


def test_rows_without_tokens_keep_their_type():
    frame = tables.frame_of([trace(output_ids=[], prompt_ids=[])], tables.Traces)
    assert frame.schema["output_ids"] == pl.List(pl.Int32)


def test_infinities_survive_and_not_a_number_is_refused(tmp_path):
    row = readout(option_logprob=[-math.inf, 0.0], log_loss=math.inf, gold_log_odds=-math.inf, q_gold=0.0)
    tables.write(tables.frame_of([row], tables.Readouts), tmp_path / "a.parquet", tables.Readouts, META)
    again = tables.read(tmp_path / "a.parquet", tables.Readouts)
    assert again["option_logprob"].to_list() == [[-math.inf, 0.0]]
    assert again.select("log_loss", "gold_log_odds").row(0) == (math.inf, -math.inf)
    with pytest.raises(InputError, match="brier"):
        tables.conform(tables.frame_of([readout(brier=math.nan)], tables.Readouts), tables.Readouts, "f")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop("answer"), r"f\.parquet: column answer: missing; allowed: item_id, "),
        (lambda frame: pl.concat([frame, frame]), r"f\.parquet: columns item_id: \('toy/1',\) occurs more than once"),
        (lambda frame: frame.with_columns(options=pl.lit("x")), r"f\.parquet: items: .*options"),
        (lambda frame: frame.with_columns(answer_kind=pl.lit("essay")), r"f\.parquet: items: .*answer_kind.*regex"),
        (lambda frame: frame.with_columns(answer_kind=pl.lit("choices")), r"f\.parquet: items: .*answer_kind.*regex"),
        (lambda frame: frame.with_columns(question=pl.lit(None, pl.String)), r"f\.parquet: items: .*question.*nullability"),
    ],
)
def test_a_bad_frame_is_one_clear_line(change, message):
    frame = tables.frame_of([item()], tables.Items)
    tables.conform(frame, tables.Items, "f.parquet")
    with pytest.raises(InputError, match=message) as caught:
        tables.conform(change(frame), tables.Items, "f.parquet")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["many", 2**40])
def test_a_wrong_type_names_the_column(value):
    frame = tables.frame_of([trace()], tables.Traces).with_columns(n_reasoning=pl.lit(value))
    with pytest.raises(InputError, match="n_reasoning"):
        tables.conform(frame, tables.Traces, "f.parquet")


def test_conform_orders_columns_and_drops_others():
    frame = tables.frame_of([item()], tables.Items).with_columns(extra=1).select(pl.all().reverse())
    frame = frame.select(sorted(frame.columns))
    assert tables.conform(frame, tables.Items, "f").columns == tables.Items.column_names()


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ({"seed": 2, "benchmark": {"name": "toy", "n": None}}, "seed: the file was made with 1, the config says 2"),
        ({"seed": 1, "benchmark": {"name": "other", "n": None}}, "benchmark.name: the file was made with 'toy', the config says 'other'"),
        ({"seed": 1, "benchmark": {"name": "toy", "n": 3}}, "benchmark.n: the file was made with None, the config says 3"),
        ({"seed": 1, "benchmark": {"name": "toy"}, "arm": "x"}, "arm: the file was made with None, the config says 'x'"),
        ({"seed": 1}, "benchmark.name: the file was made with 'toy', the config says None"),
    ],
)
def test_a_foreign_identity_names_the_field_and_both_values(tmp_path, expected, message):
    tables.write(tables.frame_of([item()], tables.Items), tmp_path / "a.parquet", tables.Items, META)
    with pytest.raises(InputError) as caught:
        tables.read(tmp_path / "a.parquet", tables.Items, expected)
    assert f"a.parquet: {message}" in str(caught.value)


def test_identity_compares_after_json(tmp_path):
    meta = tables.metadata("items", "toy", {"ids": (1, 2), "share": 0.1, "map": {"b": 1, "a": [True, None]}})
    tables.write(tables.frame_of([item()], tables.Items), tmp_path / "a.parquet", tables.Items, meta)
    assert tables.check_identity(tmp_path / "a.parquet", {"map": {"a": [True, None], "b": 1}, "share": 0.1, "ids": [1, 2]})["study"] == "toy"


def test_another_schema_version_is_refused(tmp_path):
    tables.write(tables.frame_of([item()], tables.Items), tmp_path / "a.parquet", tables.Items, {**META, "schema_version": 0})
    with pytest.raises(InputError, match="schema_version: is 0; allowed: 1"):
        tables.check_identity(tmp_path / "a.parquet", META["identity"])


def test_missing_corrupt_cut_and_foreign_files(tmp_path):
    path = tmp_path / "a.parquet"
    with pytest.raises(InputError, match=r"a\.parquet: file: does not exist"):
        tables.read(path, tables.Items)
    path.write_bytes(b"not parquet")
    with pytest.raises(InputError, match=r"a\.parquet: file: cannot be read as Parquet"):
        tables.read(path, tables.Items)
    tables.write(tables.frame_of([item()], tables.Items), path, tables.Items, META)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"a\.parquet: file: cannot be read as Parquet"):
        tables.read(path, tables.Items, META["identity"])
    tables.frame_of([item()], tables.Items).write_parquet(path)
    with pytest.raises(InputError, match=r"a\.parquet: metadata: has no 'midtrace' entry"):
        tables.read(path, tables.Items)


def test_a_damaged_page_is_an_input_error(tmp_path):
    path = tmp_path / "a.parquet"
    tables.write(tables.frame_of([item(f"toy/{k}") for k in range(50)], tables.Items), path, tables.Items, META)
    content = bytearray(path.read_bytes())
    content[4:200] = bytes(196)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.parquet: file: cannot be read as Parquet"):
        tables.read(path, tables.Items, META["identity"])


@pytest.mark.parametrize("schema", [tables.RawTraces, tables.Readouts, tables.StoredGenerations, tables.StoredScores])
def test_one_flipped_bit_is_noticed_or_changes_nothing(tmp_path, schema):
    path = tmp_path / "a.parquet"
    frame = schema.sample(40, generator=dy.random.Generator(5))
    tables.write(frame, path, schema, META)
    content, places = path.read_bytes(), random.Random(3)
    noticed = 0
    for _ in range(60):
        damaged = bytearray(content)
        damaged[places.randrange(len(content))] ^= 1 << places.randrange(8)
        path.write_bytes(damaged)
        try:
            assert_frame_equal(tables.read(path, schema, META["identity"]), frame)
            assert_frame_equal(tables.scan([(path, META["identity"])], schema).collect(), frame)
        except InputError as error:
            assert str(error).startswith(f"{path}: ")
            noticed += 1
        except pl.exceptions.ComputeError as error:  # Polars is stricter with the heads of pages, which have no checksum, than pyarrow
            assert "specification" in str(error)
            noticed += 1
    assert noticed > 30


def test_what_the_system_cannot_read_now_is_not_called_damaged(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    tables.write(tables.frame_of([item()], tables.Items), path, tables.Items, META)

    def lost(*_, **__):
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(tables.files.pq, "ParquetFile", lost)
    with pytest.raises(OSError) as caught:
        tables.read(path, tables.Items)
    assert (caught.value.errno, caught.value.filename) == (errno.ESTALE, str(path))


@pytest.mark.parametrize("before", [None, b"old"])
def test_a_failed_write_leaves_no_trace(tmp_path, monkeypatch, before):
    path = tmp_path / "a.parquet"
    if before:
        path.write_bytes(before)

    def half(self, *_):
        raise OSError(errno.ENOSPC, "as the system says it")

    monkeypatch.setattr(tables.files.pq.ParquetWriter, "write_table", half)
    with pytest.raises(InputError, match=r"a\.parquet: file: cannot be written \(No space left on device\); allowed: a disk with room"):
        tables.write(tables.frame_of([item()], tables.Items), path, tables.Items, META)
    assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == ([("a.parquet", before)] if before else [])


def test_the_final_name_appears_only_when_whole(tmp_path, monkeypatch):
    seen = []
    real = tables.files.pq.ParquetWriter.close

    def spy(self):
        real(self)
        seen.append([path.name for path in tmp_path.iterdir()])

    monkeypatch.setattr(tables.files.pq.ParquetWriter, "close", spy)
    tables.write(tables.frame_of([item()], tables.Items), tmp_path / "a.parquet", tables.Items, META)
    assert seen
    assert "a.parquet" not in seen[0]


def test_the_file_comes_by_renaming_and_by_nothing_else(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("no renaming")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(InputError, match=r"a\.parquet: file: cannot be written \(no renaming\)"):
        tables.write(tables.frame_of([item()], tables.Items), tmp_path / "a.parquet", tables.Items, META)
    assert not list(tmp_path.iterdir())


def test_a_block_that_fails_leaves_the_old_file(tmp_path):
    (tmp_path / "a.json").write_text("old")
    with pytest.raises(ZeroDivisionError), tables.whole(tmp_path / "a.json") as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.json", "old")]


def test_what_killed_processes_left_half_written_goes_and_what_others_write_stays(tmp_path):
    dead = subprocess.Popen(["true"])
    dead.wait()
    place = files._place()
    left = [f".{name}.parquet.{place}.{dead.pid}.tmp" for name in "ab"]
    kept = [
        f".a.parquet.{place}.{os.getppid()}.tmp",
        f".a.parquet.elsewhere.{dead.pid}.tmp",
        "a.tmp",
        f".a.{place}.x.tmp",
        f".a.{place}.other.{dead.pid}.tmp",
    ]
    for name in (*left, *kept):
        (tmp_path / name).write_bytes(b"half")
    tables.write(tables.frame_of([item()], tables.Items), tmp_path / "a.parquet", tables.Items, META)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["a.parquet", *kept])


def test_metadata_holds_what_the_contract_lists(tmp_path):
    meta = tables.metadata("traces", "toy", {"seed": 1}, engine="fake", tokenizer="abc")
    tables.write(tables.frame_of([item()], tables.Items), tmp_path / "a.parquet", tables.Items, meta)
    found = tables.read_metadata(tmp_path / "a.parquet")
    assert found == json.loads(json.dumps(meta))
    assert set(found) == {"schema_version", "version", "study", "stage", "identity", "engine", "tokenizer"}


def test_flatten():
    assert list(tables.flatten({"b": {"y": 1, "x": [1, {"z": 2}]}, "a": None})) == [("a", None), ("b.x", [1, {"z": 2}]), ("b.y", 1)]


def test_the_fault_of_another_file_is_not_blamed_on_the_table(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing"), files.whole(tmp_path / "a.parquet"):
        (tmp_path / "missing").read_text()


# Keys and paths

KEYS = [
    (tables.TableKey("m", "chains", "low", 0), "m/chains/low/r0.parquet"),
    (tables.TableKey("qwen3-0.6b", "b.v2+revised", "early_answer", 12), "qwen3-0.6b/b.v2+revised/early_answer/r12.parquet"),
    (tables.TableKey("m", "chains", "r1", 3, "soft.now"), "m/chains/r1/r3/soft.now.parquet"),
]


@pytest.mark.parametrize(("key", "end"), KEYS)
@pytest.mark.parametrize("folder", ["results/demo/raw/interruptions", "/elsewhere/r7/traces"])
def test_a_key_and_its_path_are_inverse(key, end, folder):
    assert key.path(folder) == f"{folder}/{end}"
    assert tables.TableKey.parse(key.path(folder), interrupted=key.intervention is not None) == key


def test_a_key_spreads_into_the_arguments_of_settings():
    assert [tuple(key) for key, _ in KEYS] == [
        ("m", "chains", "low", 0),
        ("qwen3-0.6b", "b.v2+revised", "early_answer", 12),
        ("m", "chains", "r1", 3, "soft.now"),
    ]


@pytest.mark.parametrize(
    ("path", "interrupted"),
    [("m/chains/low/0.parquet", False), ("low/r0.parquet", False), ("m/chains/low/r0/hard.parquet", False), ("m/chains/low/r0.parquet", True)],
)
def test_a_path_that_is_none_of_a_table_is_refused(path, interrupted):
    with pytest.raises(InputError, match="does not end like that of a table") as error:
        tables.TableKey.parse(path, interrupted)
    assert ("{intervention}" in str(error.value)) == interrupted


def test_a_table_of_estimates_whose_column_has_another_name_is_refused(tmp_path):
    columns = tables.ESTIMATE_COLUMNS | tables.DECOMPOSITION["agreement"]
    frame = pl.DataFrame(schema=columns)
    meta = tables.metadata("decomposition", "s", {}, table="agreement")
    tables.write(frame, tmp_path / "agreement.parquet", None, meta, expect_rows=False)
    assert tables.read(tmp_path / "agreement.parquet").equals(frame)
    tables.write(frame.rename({"context": "cont%xt"}), tmp_path / "damaged.parquet", None, meta, expect_rows=False)
    with pytest.raises(InputError, match=r"damaged.parquet: columns.*cont%xt"):
        tables.read(tmp_path / "damaged.parquet")
