"""The command that prints a prompt: text and ids as the model gets them, before and after there are items."""

import pytest
import yaml
from helpers.builders import MODEL, Study, item_files, small_config

from midtrace import config as study_config
from midtrace import items, prompts, show_prompt, tables
from midtrace.dialects import EMBEDDED


@pytest.fixture
def config_file(tmp_path, monkeypatch):
    """A config in a working folder of its own."""
    monkeypatch.chdir(tmp_path)
    benchmarks = {name: {"loader": name, "answer_kind": "choice", "n": 8} for name in ("chains", "chains_update")}
    config = small_config(benchmarks=benchmarks)
    assert str(MODEL) == config["models"]["embedded"]["source"]
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(config))
    return "study.yaml"


def shown(capsys, *arguments: str) -> tuple[str, list[int]]:
    """Text and ids that the command prints."""
    assert show_prompt.main(["--config", "study.yaml", "--model", "embedded", *arguments]) == 0
    head, rest = capsys.readouterr().out.split("\n", 1)
    assert head.endswith(": text")
    text, rest = rest.rsplit("\n--- ", 1)
    count, ids = rest.split(" token ids\n")
    assert int(count) == len(ids.split())
    return text, [int(i) for i in ids.split()]


def test_the_prompt_is_the_one_that_the_traces_have(study: Study, tokenizer, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(small_config()))
    for trace in tables.read(study.shard("raw/traces", "low"), tables.RawTraces).iter_rows(named=True):
        text, ids = shown(capsys, "--benchmark", "chains", "--arm", "low", "--item", trace["item_id"])
        assert ids == trace["prompt_ids"]
        assert text == tokenizer.decode(ids)


def test_an_item_by_either_id_or_none(config_file, capsys):
    whole = shown(capsys, "--benchmark", "chains", "--arm", "high", "--item", "chains/00000")
    assert shown(capsys, "--benchmark", "chains", "--arm", "high", "--item", "00000") == whole
    assert shown(capsys, "--benchmark", "chains", "--arm", "high") == whole
    assert "Reasoning: high" in whole[0]


def test_the_question_before_its_update(config_file, capsys, tokenizer):
    config = study_config.load(config_file)
    row = items.load(study_config.items_settings(config, "chains_update")["benchmark"], config["seed"]).row(0, named=True)
    text, _ = shown(capsys, "--benchmark", "chains_update+revised", "--arm", "low")
    assert row["revised_question"] in text and row["question"] not in text


def test_items_of_another_config_are_not_shown(config_file, capsys, tmp_path, tokenizer):
    config = study_config.load(config_file)
    settings = study_config.items_settings(config, "chains")
    files = item_files(tmp_path / "results/unit/items/chains.parquet")
    items.run(*files, "unit", {**settings, "seed": 99})
    row = items.load(settings["benchmark"], config["seed"]).row(0, named=True)
    _, ids = shown(capsys, "--benchmark", "chains", "--arm", "low")
    prompt = study_config.traces_settings(config, "embedded", "chains", "low", 0)["prompt"]
    assert ids == prompts.render(row, {"effort": "low"}, prompt, EMBEDDED, tokenizer)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--benchmark", "chain", "--arm", "low"], "study.yaml: --benchmark: 'chain' is not defined; allowed: chains, chains_update"),
        (["--benchmark", "chains", "--arm", "lo"], "study.yaml: --arm: 'lo' is not defined; allowed: "),
        (["--benchmark", "chains", "--arm", "low", "--item", "x"], "study.yaml: --item: 'x' is none of the 8 items that the study draws of chains; "),
        (["--benchmark", "chains+revised", "--arm", "low"], "study.yaml: item chains/00000, update: missing; "),
    ],
)
def test_mistakes_are_one_line(config_file, capsys, arguments, message):
    assert show_prompt.main(["--config", "study.yaml", "--model", "embedded", *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith(f"midtrace: error: {message}") and captured.err.count("\n") == 1
    assert captured.out == ""
