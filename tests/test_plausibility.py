"""Configs that cannot be what was meant are refused before anything runs; what can be meant is said, on the terminal and in the report."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.builders import MODEL, small_config

from midtrace import config as study_config
from midtrace.errors import InputError

Config = dict[str, Any]
OTHER = {"source": "owner/name", "revision": "0" * 40}


def two_models(config: Config, **values: Any) -> None:
    config["models"]["other"] = {**config["models"]["embedded"], **OTHER, **values}


def judged(config: Config, **values: Any) -> None:
    model = {"source": str(MODEL), "dialect": "embedded", "effort": "low", "engine": "transformers", "dtype": "float32"}
    config["judge"] = {"model": {**model, **{key: values.pop(key) for key in ("context",) if key in values}}, **values}
    config["benchmarks"] = {"sums": {"loader": "chains", "answer_kind": "math", "grader": "judge", "n": 8}}


REFUSED: list[tuple[Callable[[Config], object], str]] = [
    (lambda c: c.update(horizons=[0, 8, 1000]), r"horizons: 1000 is beyond max_tokens of every model \(embedded 64\): .*; allowed: at most 64"),
    (lambda c: c["models"]["embedded"].update(context=60), "models.embedded.context: is 60, with max_tokens 64: no prompt fits; .* more than 64"),
    (lambda c: c["models"]["embedded"].update(context=4096), "models.embedded.context: is 4096; allowed: at most 2048, the model's own"),
    (
        lambda c: c["models"]["embedded"].update(max_tokens=2048),
        "models.embedded.max_tokens: is 2048, but the model takes 2048 with the prompt",
    ),
    (lambda c: judged(c, context=500, max_tokens=500), "judge.model.context: is 500, with max_tokens 500: no prompt fits"),
    (lambda c: judged(c), "judge.max_tokens: is 2048, but the model takes 2048 with the prompt"),
    (lambda c: c.update(plan={"mean_tokens": {"low": 65}}), r"plan.mean_tokens.low: is 65, beyond max_tokens of every model \(embedded 64\)"),
    (
        lambda c: c.update(interruptions={"run": {"chains": ["hard"]}, "replicates": 2}),
        "interruptions.replicates: is 2, but chains has 1 runs per item",
    ),
    (
        lambda c: c.update(interruptions={"run": {"chains": ["hard"]}, "max_tokens": 2048}),
        "interruptions.max_tokens: is 2048, but the context of embedded holds 2048; allowed: less than 2048, or null",
    ),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_what_cannot_be_meant_is_refused(change: Callable[[Config], object], message: str) -> None:
    config = small_config()
    change(config)
    with pytest.raises(InputError, match=f"^study.yaml: {message}"):
        study_config.validate(config, "study.yaml")


def warnings(change: Callable[[Config], object]) -> list[str]:
    config = small_config()
    change(config)
    return study_config.warnings(study_config.validate(config, "study.yaml"))


def test_a_plain_config_raises_no_doubt() -> None:
    assert warnings(lambda c: None) == []
    assert warnings(lambda c: c.update(horizons=[0, 64])) == []


SAID: list[tuple[Callable[[Config], object], str]] = [
    (
        lambda c: (two_models(c, max_tokens=512), c.update(horizons=[0, 64, 128, 256])),
        "horizons: 128, 256 beyond max_tokens of embedded (64): no run of it reaches that far; what is read there is where it was cut",
    ),
    (lambda c: c.update(availability={"horizons": [0, 64, 128]}), "availability.horizons: 128 beyond max_tokens of embedded (64): "),
    (lambda c: c["controls"].update(horizons=[16, 512]), "controls.horizons: 512 beyond max_tokens of embedded (64): "),
    (
        lambda c: c.update(interruptions={"run": {"chains": ["hard"]}, "tokens": [8, 65]}),
        "interruptions.tokens: 65 beyond max_tokens of embedded (64): ",
    ),
    (
        lambda c: c["models"]["embedded"].update(context=100),
        "models.embedded: of a context of 100 tokens, max_tokens (64) and continuations.max_tokens (8) leave 28 for a prompt, "
        "where plan.prompt_tokens counts on 300: a job stops at a prompt that does not fit",
    ),
    (
        lambda c: judged(c, max_tokens=1000),
        "judge.model: of a context of 2048 tokens, max_tokens (1000) and answer_tokens (1024) leave 24 for a prompt, ",
    ),
    (
        lambda c: c["arms"].update(high={"effort": "low"}),
        "arms: low and high ask in the same words, so their runs are the same, unless they are imported",
    ),
]


@pytest.mark.parametrize(("change", "said"), SAID)
def test_what_is_seldom_meant_is_said(change: Callable[[Config], object], said: str) -> None:
    found = warnings(change)
    assert len(found) == 1 and found[0].startswith(said)


def test_the_report_repeats_what_was_said() -> None:
    config = study_config.validate(small_config(availability={"horizons": [0, 128]}), "study.yaml")
    assert study_config.report_settings(config)["warnings"] == study_config.warnings(config) != []


def test_horizons_of_no_selected_model_do_not_count(tmp_path: Path) -> None:
    config = small_config(horizons=[0, 100], run={"models": ["embedded"]})
    two_models(config, max_tokens=512)
    with pytest.raises(InputError, match="horizons: 100 is beyond"):
        study_config.validate(config, "study.yaml")


def test_limits_of_a_multimodal_folder_are_found(tmp_path: Path) -> None:
    shutil.copytree(MODEL, tmp_path / "model")
    content = json.loads((MODEL / "config.json").read_text())
    nested = {"model_type": "any", "text_config": {"max_position_embeddings": content.pop("max_position_embeddings")}}
    (tmp_path / "model" / "config.json").write_text(json.dumps(nested))
    config = small_config()
    config["models"]["embedded"] |= {"source": str(tmp_path / "model"), "max_tokens": 5000}
    with pytest.raises(InputError, match=r"models.embedded.max_tokens: is 5000, but the model takes 2048"):
        study_config.validate(config, "study.yaml")


ROWS = [
    {"id": 1, "question": "q", "options": ["x", "y"], "answer": "A"},
    {"id": 2, "question": "q", "options": ["x", "y"], "answer": "A", "topic": "t"},
]


def own_file(path: Path, **values: Any) -> Config:
    return small_config(benchmarks={"mine": {"loader": "file", "answer_kind": "choice", "path": str(path), **values}})


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_columns_of_a_file_are_looked_for_before_anything_runs(tmp_path: Path, suffix: str) -> None:
    import polars as pl

    path = tmp_path / f"mine{suffix}"
    if suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif suffix == ".csv":
        path.write_text("id,question,options,answer,topic\n1,q,x | y,A,\n")
    else:
        pl.DataFrame(ROWS, infer_schema_length=None).write_parquet(path)
    study_config.validate(own_file(path, columns={"stratum": "topic"}), "study.yaml")
    for key, name in {"answer": "gold", "stratum": "kind"}.items():  # one that must be there, and one that need not, but is named
        message = rf"study.yaml: benchmarks.mine.columns.{key}: '{name}' is no column of {path}; allowed: id, question, options, answer, topic"
        with pytest.raises(InputError, match=message):
            study_config.validate(own_file(path, columns={key: name}), "study.yaml")


def test_a_file_of_another_benchmark_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"question": "q", "solution": "#### 4"}\n')
    config = small_config(benchmarks={"gsm8k": {"loader": "gsm8k", "answer_kind": "math", "path": str(tmp_path / "mine.jsonl")}})
    with pytest.raises(InputError, match=r"benchmarks.gsm8k.path: .*mine.jsonl has no column 'answer'; allowed: question, solution"):
        study_config.validate(config, "study.yaml")
