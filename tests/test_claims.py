"""Claims: every one is a row of a table, to the last bit."""

import json
import math

import polars as pl
import pytest

from midtrace import claims, decomposition, simulation, tables
from midtrace.errors import InputError
from midtrace.outcomes import outcomes

HORIZONS = [64, 256]
CLAIM = {"horizon": 64, "comparisons": [{"treatment": "t", "reference": "r"}]}
SETTINGS = simulation.settings(HORIZONS, resamples=100, dominance=CLAIM)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    frames = simulation.simulate(simulation.MIXED, 30, 2, HORIZONS, 3)
    stages = ("item_tables", "traces", "cuts", "readouts", "continuations")
    frames["outcomes"] = outcomes(*(frames[name] for name in stages), contexts=simulation.CONTEXTS)
    found = {name: decomposition.shape(table, name) for name, table in decomposition.decompose(frames, SETTINGS).items()}
    folder = tmp_path_factory.mktemp("claims")
    files = {}
    for name, table in found.items():
        files[name] = folder / "decomposition" / f"{name}.parquet"
        tables.write(table, files[name], None, tables.metadata("decomposition", "s", SETTINGS), expect_rows=False)
    claims.run(files, folder / "claims.json", "s", SETTINGS)
    return folder, found, json.loads((folder / "claims.json").read_text())


def test_every_claim_is_a_row_of_the_table_it_names(made):
    _, found, content = made
    for claim in content["claims"]:
        table = found[claim["file"].removeprefix("decomposition/").removesuffix(".parquet")]
        for column in ("treatment", "reference", "estimand", "horizon", "readout", "termination", "context", "reading", "method"):
            if column in table.columns:
                table = table.filter(pl.col(column).eq_missing(pl.lit(claim[column])))
        rows = table.select("estimate", "ci_low", "ci_high", "n_items", "n_pairs").rows()
        assert (claim["estimate"], claim["ci_low"], claim["ci_high"], claim["n_items"], claim["n_pairs"]) in rows


def test_the_headlines_are_all_there(made):
    _, _, content = made
    by = {}
    for claim in content["claims"]:
        by.setdefault(claim["estimand"], []).append(claim)
    read = [claim for claim in by["contrast"] if claim["file"] == "decomposition/bounds.parquet"]
    by["contrast"] = [claim for claim in by["contrast"] if claim not in read]
    # Two horizons under three readouts; the treatment-complete stratum likewise.
    assert len(by["contrast"]) == len(by["contribution"]) == 6
    assert {claim["termination"] for claim in by["contribution"]} == {"treatment_complete"}
    assert len(by["readout_gap"]) == len(by["context_gap"]) == len(by["both_active_contrast"]) == 2
    assert not any("readout" in claim["claim"].partition(":")[0] for claim in by["context_gap"]), "a prompt effect is no readout effect"
    assert len(by["geometric_mean_ratio"]) == len(by["auc_contrast"]) == len(by["matched_contrast"]) == 1
    # Two horizons, by each reading and its combinations; one-sided pairs are there at both.
    assert len(read) == 2 * len({claim["reading"] for claim in read}) and {"lowest", "highest", "final"} < {claim["reading"] for claim in read}
    assert len(by["equal_tokens"]) == len(by["further_tokens"]) == len(by["trimmed_lower"]) == len(by["trimmed_upper"]) == 2
    assert len(by["finishing_share"]) == len(by["lead"]) == 6 and len(by["tipping_share"]) == 4
    claimed = [claim for claim in by["dominant_in_all_p"] if claim["readout"] == "terminal"]
    assert [claim["horizon"] for claim in claimed] == [64] and claimed[0]["treatment"] is None and "t against r" in claimed[0]["method"]
    assert {claim["reference"] for claim in by["kappa"]} == {None, "r"}
    assert by["contrast"][0]["claim"] == "accuracy of t minus r, stopped at 64 tokens"
    assert content["resamples"] == 100
    assert content["files"].keys() == {f"decomposition/{name}.parquet" for name in tables.DECOMPOSITION}


def test_adjusted_p_values_and_the_verdict_of_the_falsifier_are_claimed(made):
    _, found, content = made
    named = ("contrast", "matched_contrast", "matched_equivalence_p")
    contrasts = [claim for claim in content["claims"] if claim["estimand"] in named and claim["file"].endswith(("policy.parquet", "matched.parquet"))]
    assert all(claim["p_holm"] >= claim["p"] for claim in contrasts)
    assert any(claim["p_holm"] > claim["p"] for claim in contrasts), "two horizons are a family"
    (verdict,) = content["falsifier"]
    rows = found["falsifier"].filter(pl.col("context") == "common", pl.col("estimand") == "agreement", pl.col("fraction").is_not_null())
    assert verdict["prefixes"] == {f"{edge:g}": count for edge, count in rows.select("fraction", "n_pairs").iter_rows()}
    assert (verdict["treatment"], verdict["reference"]) == ("t", "r")


def test_the_file_repeats(made, tmp_path):
    folder, _, _ = made
    files = {name: folder / "decomposition" / f"{name}.parquet" for name in tables.DECOMPOSITION}
    claims.run(files, folder / "again.json", "s", SETTINGS)
    assert (folder / "again.json").read_bytes() == (folder / "claims.json").read_bytes()


def test_tables_of_another_config_are_refused(made):
    folder, _, _ = made
    files = {name: folder / "decomposition" / f"{name}.parquet" for name in tables.DECOMPOSITION}
    with pytest.raises(InputError, match="seed: the file was made with 0, the config says 1"):
        claims.run(files, folder / "no.json", "s", {**SETTINGS, "seed": 1})
    assert not (folder / "no.json").exists()


def test_an_infinite_estimate_is_told_as_text(made):
    _, found, _ = made
    infinite = found["policy"].filter(pl.col("estimand") == "contrast").head(1).with_columns(estimate=pl.lit(math.inf))
    told = claims.claims({**found, "policy": infinite}, {name: name for name in found})
    assert [claim["estimate"] for claim in told if claim["estimand"] == "contrast" and claim["file"] == "policy"] == ["inf"]
    json.dumps(told, allow_nan=False)
