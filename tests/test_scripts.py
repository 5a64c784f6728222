"""Each script's ``main`` in process, chained from items to decomposition on the embedded model (the ``study`` fixture runs them)."""

import ast

import polars as pl
import pytest
from helpers.builders import ROOT, Study

from midtrace import tables
from midtrace.errors import InputError

SCHEMAS = {
    "raw/traces": tables.RawTraces,
    "traces": tables.Traces,
    "cuts": tables.Cuts,
    "readouts": tables.Readouts,
    "raw/continuations": tables.RawContinuations,
    "continuations": tables.Continuations,
}
SCRIPTS = sorted(path for path in (ROOT / "scripts").glob("*.py") if "snakemake" in path.read_text())


def test_every_shard_has_its_schema_and_its_rows(study: Study):
    for arm in ("low", "high"):
        frames = {stage: tables.read(study.shard(stage, arm), schema) for stage, schema in SCHEMAS.items()}
        assert len(frames["raw/traces"]) == len(frames["traces"]) == 8
        assert frames["traces"]["item_id"].to_list() == tables.read(study.items, tables.Items)["item_id"].to_list()
        assert set(frames["cuts"]["trace_id"]) == set(frames["traces"]["trace_id"])
        # Every cut is read under its own prompt; horizons, matched cuts and whole blocks in the common one besides.
        cuts = frames["cuts"]
        assert len(frames["readouts"]) == len(cuts) + len(cuts.filter((pl.col("cut") != "fraction") | pl.col("complete")))
        natural = frames["continuations"].filter(pl.col("mode") == "natural")
        assert len(natural) == len(cuts)


@pytest.mark.parametrize("stage", list(SCHEMAS))
def test_metadata_says_where_a_shard_comes_from(study: Study, stage: str):
    meta = tables.read_metadata(study.shard(stage, "low"))
    named = {"raw/traces": "traces", "cuts": "replay", "readouts": "probe", "raw/continuations": "continuations"}
    assert (meta["study"], meta["stage"], meta["schema_version"]) == ("unit", named.get(stage, stage), tables.SCHEMA_VERSION)
    traces = meta["identity"] if "traces" in stage else meta["identity"].get("traces") or meta["identity"]["replay"]["traces"]
    assert traces["seed"] == 5
    assert traces["model"]["dtype"] == "float64"
    assert len(traces["model"]["weights"]) == 16
    assert traces["model"]["sampling"] == {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}
    if stage in ("raw/traces", "traces", "readouts"):
        assert len(meta["tokenizer"]) == 16
        assert meta["engine"] == "transformers"


def test_batches_leave_nothing_behind_but_what_was_paid_for(study: Study):
    assert not [path for path in study.folder.rglob(".*") if path.suffix != ".store"]


def test_matched_cuts_are_those_of_the_treatment(study: Study):
    low, high = (tables.read(study.shard("traces", arm), tables.Traces) for arm in ("low", "high"))
    length = {row["item_id"]: row["n_reasoning"] for row in low.iter_rows(named=True) if row["status"] == "terminated"}
    for arm, frame in (("low", low), ("high", high)):
        cuts = tables.read(study.shard("cuts", arm), tables.Cuts).filter(pl.col("cut") == "matched").join(frame, on="trace_id")
        assert {row["item_id"]: row["horizon"] for row in cuts.iter_rows(named=True)} == length
    assert length, "no treatment run terminated: the test tests nothing"


def test_strata_of_the_study_sum_to_its_contrast(study: Study):
    policy, strata = (pl.read_parquet(study.folder / "decomposition" / f"{name}.parquet") for name in ("policy", "strata"))
    keys = ["horizon", "readout"]
    total = strata.group_by(keys).agg(pl.col("contribution").sum(), pl.col("share").sum())
    both = policy.filter(pl.col("estimand") == "contrast").join(total, on=keys)
    assert len(both) == 3 * 6, "horizons x readouts"
    assert (both["estimate"] - both["contribution"]).abs().max() < 1e-12
    assert (both["share"] - 1).abs().max() < 1e-12


@pytest.mark.parametrize("table", list(tables.DECOMPOSITION))
def test_decomposition_tables_have_their_columns(study: Study, table: str):
    path = study.folder / "decomposition" / f"{table}.parquet"
    frame = pl.read_parquet(path)
    assert dict(frame.schema) == {**tables.ESTIMATE_COLUMNS, **tables.DECOMPOSITION[table]}
    assert tables.read_metadata(path)["table"] == table
    # Nothing is planted, every trace is token-exact, and rules grade.
    assert frame.is_empty() == (table in ("planted", "sensitivity", "judging"))
    # No run of the long arm finishes here: there is nothing to falsify, and the table says so.
    if table == "falsifier":
        assert set(frame["n_pairs"]) == {0}


def test_a_table_of_another_config_is_refused(study: Study, tmp_path):
    import cut_traces

    settings = study.settings("replay", "low")
    settings["traces"]["seed"] = 6
    partner = str(study.shard("raw/traces", "high"))
    with pytest.raises(InputError, match=r"low/r0\.parquet: seed: the file was made with 5, the config says 6"):
        cut_traces.main(str(study.shard("raw/traces", "low")), [partner], str(tmp_path / "cuts.parquet"), "unit", settings)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_are_thin_guarded_and_import_nothing_from_the_future(path):
    tree = ast.parse(path.read_text())
    *_, main, guard = tree.body
    assert isinstance(main, ast.FunctionDef)
    assert main.name == "main"
    assert isinstance(guard, ast.If)
    assert ast.unparse(guard.test) == "__name__ == '__main__'"
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    assert "snakemake.config" not in path.read_text()
    assert len(path.read_text().splitlines()) <= 40
