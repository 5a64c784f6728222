"""What a user's mistake looks like on the terminal: one line that says where, what, and what is allowed; never a traceback of ours."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from helpers.checkout import SMALL, Checkout, Run
from test_config import compare, put

pytestmark = pytest.mark.slow

TRACES = "results/small/raw/traces/embedded/chains/low/r0.parquet"
ITEM = {"id": 1, "question": "Which?", "options": ["x", "y"], "answer": "A"}


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A checkout without results."""
    return Checkout.copied_to(tmp_path / "checkout")


def refused(run: Run, said: str) -> None:
    """Assert that a run failed with this one line, and without a traceback."""
    assert run.code == 1, run.text
    assert len(run.errors) == 1, run.text
    assert re.fullmatch(f"midtrace: error: {said}", run.errors[0]), run.errors[0]
    assert "Traceback" not in run.text


# Before any job


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (put("sed", 7), f"{SMALL}: sed: unknown key; allowed: study, seed, .*"),
        (compare(("low", "hihg", "low")), f"{SMALL}: comparisons.0.reference: 'hihg' is not defined; allowed: low, .*"),
        (put("models.embedded.sampling.temperature", 0), f"{SMALL}: models.embedded.sampling.temperature: is 0.0; allowed: more than 0"),
        (put("models.embedded.source", "./nothing"), f"{SMALL}: models.embedded.source: './nothing' is no folder here and no hub id; allowed: .*"),
    ],
)
def test_a_mistake_in_the_config_ends_the_run_before_it_starts(checkout: Checkout, edit: Callable[[dict[str, Any]], object], said: str) -> None:
    checkout.edit_config(edit)
    run = checkout.snakemake(check=False)
    refused(run, said)
    assert len(run.text.splitlines()) <= 2, "Snakemake names its profile, then our line"
    assert not (checkout.folder / "results").exists()


def test_a_mistake_on_the_command_line_names_it(checkout: Checkout) -> None:
    refused(checkout.snakemake("--config", "seed=-1", config=None, check=False), r"config/config.yaml \+ --config: seed: is -1; allowed: at least 0")


@pytest.mark.parametrize(("text", "said"), [("a: [", "not valid JSON or YAML"), ("- low\n- high\n", "keys at top level"), ("", "keys at top level")])
def test_a_file_that_is_no_config_is_refused(checkout: Checkout, text: str, said: str) -> None:
    """Snakemake reads the file before the Snakefile has a say; its words."""
    (checkout.folder / "bad.yaml").write_text(text)
    run = checkout.snakemake(config="bad.yaml", check=False)
    assert run.code != 0 and said in run.text and "Traceback" not in run.text


def test_a_config_file_that_is_missing_is_named(checkout: Checkout) -> None:
    """Snakemake's own words again, with its own traceback."""
    run = checkout.snakemake(config="nothing.yaml", check=False)
    assert run.code != 0 and run.text.rstrip().endswith("No such file or directory: 'nothing.yaml'")


# In a job, before a model is loaded


def test_a_prompt_that_leaves_no_room_is_refused_before_the_weights_are_loaded(checkout: Checkout) -> None:
    checkout.edit_config(put("models.embedded.max_tokens", 2040))
    run = checkout.snakemake(TRACES, check=False)
    refused(
        run,
        r"item chains/00000: models.embedded.max_tokens: prompt of \d+ tokens and max_tokens 2040 exceed the context; "
        r"allowed: together at most \d+ tokens, so that 64 are left for a forced answer",
    )
    assert not (checkout.folder / TRACES).exists()
    log = (checkout.folder / "logs/small/generate_traces/embedded/chains/low/r0.log").read_text()
    assert log.splitlines() == run.errors


def test_a_model_folder_without_a_model_is_refused(checkout: Checkout) -> None:
    (checkout.folder / "resources/empty").mkdir()
    checkout.edit_config(put("models.embedded.source", "resources/empty"))
    refused(checkout.snakemake(TRACES, check=False), r".*models.embedded.source: .*resources/empty.*")


def lines(*items: dict[str, Any]) -> str:
    """Items as JSON lines."""
    return "".join(json.dumps(item) + "\n" for item in items)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lines({**ITEM, "answer": "C"}), "mine.jsonl: items: no usable row among 1, most often because: its answer is none of its options .*"),
        (lines(ITEM, ITEM), "mine.jsonl: id: 'mine/1' stands in rows 1 and 2; allowed: each id once"),
        (
            lines({"id": 1, "question": "Which?", "options": ["x", "y"]}),
            r"\S+: benchmarks.mine.columns.answer: 'answer' is no column of mine.jsonl; .*",
        ),
        ("{not JSON", r"mine.jsonl: file: cannot be read \(.*\); allowed: .*"),
    ],
)
def test_a_source_that_no_study_can_use_is_refused(checkout: Checkout, content: str, said: str) -> None:
    (checkout.folder / "mine.jsonl").write_text(content)
    checkout.edit_config(put("benchmarks", {"mine": {"loader": "file", "path": "mine.jsonl", "answer_kind": "choice"}}))
    run = checkout.snakemake("items", check=False)
    refused(run, said)
    assert "Which?" not in run.text, "items may be gated: their text is never shown"


def test_rows_that_no_study_can_use_are_left_out_and_listed(checkout: Checkout) -> None:
    unusable = [{**ITEM, "id": 2, "answer": "C"}, {**ITEM, "id": 3, "options": ["x", "x"]}, {**ITEM, "id": 4, "question": " "}]
    (checkout.folder / "mine.jsonl").write_text(lines(ITEM, *unusable))
    checkout.edit_config(put("benchmarks", {"mine": {"loader": "file", "path": "mine.jsonl", "answer_kind": "choice"}}))
    run = checkout.snakemake("items")
    assert "Which?" not in run.text, "items may be gated: their text is never shown"
    found = checkout.tables()
    assert pl.read_parquet(found["small/items/mine.parquet"])["item_id"].to_list() == ["mine/1"]
    assert pl.read_parquet(found["small/items/mine.excluded.parquet"]).rows() == [
        (2, "mine/2", "its answer is none of its options"),
        (3, "mine/3", "two options with the same text"),
        (4, "mine/4", "no question"),
    ]
    checkout.edit_config(put("benchmarks.mine.n", 2))
    refused(
        checkout.snakemake("items", check=False),
        r"config: benchmarks.mine.n: is 2, but the usable items of mine.jsonl are 1 \(3 excluded: row 2 \(its answer is none of its options\), "
        r"row 3 .*, row 4 \(no question\)\); all of them: results/small/items/mine.excluded.csv; allowed: at most 1, or null for all",
    )
    left_out = checkout.folder / "results/small/items/mine.excluded.csv"
    assert pl.read_csv(left_out)["row"].to_list() == [2, 3, 4], "Snakemake leaves it when it removes what a failed job has made"
