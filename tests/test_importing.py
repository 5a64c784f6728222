"""Runs of other tools: what is verified, what is reconstructed, and that stages go on from there."""

import json
import zipfile

import polars as pl
import pytest
import yaml
from builders import item_files, small_config, walker

from midtrace import config as study_config
from midtrace import items, probe, prompts, replay, tables
from midtrace.dialects import EMBEDDED
from midtrace.errors import InputError
from midtrace.external import importing
from midtrace.external.formats import Run, read_items, read_runs
from midtrace.grading import answers

REASONING = "\n1 plus 2 is 3.\n"
ANSWER = "\n\nAnswer: D"


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A study of four items, two replicates, with its items table; the working folder is its own."""
    monkeypatch.chdir(tmp_path)
    config = small_config(replicates=2, benchmarks={"chains": {"loader": "chains", "answer_kind": "choice", "n": 4}})
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(config))
    valid = study_config.load("study.yaml")
    settings = study_config.items_settings(valid, "chains")
    items.run(*item_files("results/unit/items/chains.parquet"), "unit", settings)
    return valid


def ids_of(text, tokenizer):
    return tokenizer.encode(text, add_special_tokens=False)


def rendered(study, tokenizer, number=0, arm="low"):
    settings = study_config.traces_settings(study, "embedded", "chains", arm, 0)
    item = tables.read("results/unit/items/chains.parquet", tables.Items).row(number, named=True)
    return prompts.render(item, settings["arm"], settings["prompt"], EMBEDDED, tokenizer)


def vllm_record(study, tokenizer, number, outputs, **values):
    prompt = rendered(study, tokenizer, number)
    full = [
        {"index": k, "text": tokenizer.decode(ids, skip_special_tokens=True), "token_ids": ids, "finish_reason": reason}
        for k, (ids, reason) in enumerate(outputs)
    ]
    return {"request_id": f"{number:05d}", "prompt": tokenizer.decode(prompt), "prompt_token_ids": prompt, "outputs": full, **values}


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def bring(kind, path, arm="low", **names):
    return importing.run([path], kind, "study.yaml", "embedded", "chains", arm, **names)


def imported(replicate=0, arm="low"):
    return tables.read(f"results/unit/raw/traces/embedded/chains/{arm}/r{replicate}.parquet", tables.RawTraces)


@pytest.fixture
def finished(tokenizer):
    return ids_of(f"<think>{REASONING}</think>{ANSWER}<|im_end|>", tokenizer)


def test_request_outputs_keep_their_ids(study, tokenizer, finished, tmp_path):
    cut = finished[:6]
    records = [vllm_record(study, tokenizer, n, [(finished, "stop"), (cut, "length")]) for n in range(3)]
    counts = bring("vllm", write_lines(tmp_path / "out.jsonl", records))
    assert counts == {0: {"taken": 3, "token_exact": 3, "unknown_items": 0}, 1: {"taken": 3, "token_exact": 3, "unknown_items": 0}}
    first, second = imported(0).row(0, named=True), imported(1).row(0, named=True)
    assert first["output_ids"] == finished
    assert first["prompt_ids"] == rendered(study, tokenizer)
    assert (first["status"], first["n_reasoning"], first["answer_text"].strip()) == ("terminated", len(ids_of(REASONING, tokenizer)), "Answer: D")
    assert (first["trace_id"], first["seed"], first["token_exact"]) == ("embedded/chains/00000/low/r0", -1, True)
    assert (second["status"], second["n_reasoning"], second["finish_reason"]) == ("truncated", 5, "length")
    meta = tables.read_metadata("results/unit/raw/traces/embedded/chains/low/r0.parquet")
    assert meta["engine"] == "imported"
    assert meta["imported"]["format"] == "vllm"


def test_stages_go_on_from_imported_traces(study, tokenizer, finished, tmp_path):
    # Another tool asked in its own words: its prompt is what the policy context replays.
    words = ids_of("<|im_start|>user\n", tokenizer) + rendered(study, tokenizer)[4:]
    records = [vllm_record(study, tokenizer, n, [(finished, "stop")] * 2) for n in range(3)]
    for record in records:
        record["prompt_token_ids"] = words
    source = write_lines(tmp_path / "out.jsonl", records)
    for arm in ("low", "high"):
        bring("vllm", source, arm)
    shard = "embedded/chains/{}/r0.parquet"
    folder = tmp_path / "results/unit"
    of = {stage: getattr(study_config, f"{stage}_settings")(study, "embedded", "chains", "low", 0) for stage in ("traces", "replay", "probe")}
    low, high = (folder / "raw/traces" / shard.format(arm) for arm in ("low", "high"))
    answers.grade_traces(low, folder / "items/chains.parquet", folder / "traces" / shard.format("low"), "unit", of["traces"])
    replay.run(low, {"high": high}, folder / "cuts" / shard.format("low"), "unit", of["replay"])
    cuts, reads = folder / "cuts" / shard.format("low"), folder / "readouts" / shard.format("low")
    probe.run(folder / "items/chains.parquet", low, cuts, reads, "unit", of["probe"], 2, engine=walker(tokenizer))
    found = tables.read(reads, tables.Readouts)
    assert found["trace_id"].n_unique() == 3
    assert set(found["context"]) == {"policy", "common"}
    inputs = probe.Inputs.read(folder / "items/chains.parquet", low, cuts, of["probe"])
    assert inputs.trunk("embedded/chains/00000/low/r0", "low", 2)[0] == words
    assert inputs.prompts["chains/00000", "medium"] == rendered(study, tokenizer, arm="medium")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r["outputs"][0]["token_ids"].__setitem__(2, 99_999), "output_ids: holds 99999, which is not in the vocabulary"),
        (lambda r: r["outputs"][0].__setitem__("text", "another text"), "decode to another text than the recorded one"),
        (lambda r: r.__setitem__("prompt_token_ids", [19, 20]), "do not end with the opening of the model's turn"),
        (lambda r: r["outputs"][0].__setitem__("token_ids", None) or r["outputs"][0].__setitem__("text", None), "neither ids nor text"),
    ],
)
def test_ids_that_cannot_be_what_they_claim_are_refused(study, tokenizer, finished, tmp_path, change, message):
    record = vllm_record(study, tokenizer, 0, [(list(finished), "stop")])
    change(record)
    with pytest.raises(InputError, match=message):
        bring("vllm", write_lines(tmp_path / "out.jsonl", [record]))
    assert not list(tmp_path.glob("results/unit/raw/**/*.parquet"))


def test_the_wrong_dialect_is_refused(study, tokenizer, tmp_path):
    ids = ids_of(f"{REASONING}{ANSWER}<|im_end|>", tokenizer)
    records = [vllm_record(study, tokenizer, n, [(ids, "stop")]) for n in range(3)]
    with pytest.raises(InputError, match=r"dialect embedded: 3 of 3 outputs are malformed \(the output does not begin with the opening marker\)"):
        bring("vllm", write_lines(tmp_path / "out.jsonl", records))


def test_ids_without_a_prompt_are_not_token_exact(study, finished, tmp_path):
    records = [{"item_id": "00001", "output_ids": finished, "replicate": k, "seed": 12} for k in (0, 1)]
    bring("plain", write_lines(tmp_path / "runs.jsonl", records))
    row = imported().row(0, named=True)
    assert (row["output_ids"], row["token_exact"], row["seed"], row["item_id"]) == (finished, False, 12, "chains/00001")


def test_samples_of_the_harness_are_text(study, tokenizer, finished, tmp_path):
    texts = [f"<think>{REASONING}</think>{ANSWER}", f"<think>{REASONING}"]
    doc = {"question": "Start at 1.", "choices": ["0", "1"]}
    records = [{"doc_id": n, "doc": doc, "target": "D", "arguments": [["..."]], "resps": [texts], "filtered_resps": ["D"]} for n in range(2)]
    source = write_lines(tmp_path / "samples.jsonl", records)
    with pytest.raises(InputError, match="2 runs of items that the study does not have"):
        bring("lm-eval", source)
    renamed = [{**record, "doc_id": f"{record['doc_id']:05d}"} for record in records]
    bring("lm-eval", write_lines(source, renamed))
    done, cut = imported(0).row(0, named=True), imported(1).row(0, named=True)
    assert done["output_ids"] == finished
    assert (done["status"], done["token_exact"], done["prompt_ids"]) == ("terminated", False, rendered(study, tokenizer))
    assert (cut["status"], cut["n_reasoning"]) == ("truncated", len(ids_of(REASONING, tokenizer)))
    assert read_items([source], "lm-eval")[0] == {"id": "00000", "answer": "D", **doc}


@pytest.mark.parametrize("archive", [False, True])
def test_logs_of_inspect_keep_reasoning_apart(study, finished, tmp_path, archive):
    def sample(number, epoch, content, reason="stop"):
        choice = {"message": {"role": "assistant", "content": content}, "stop_reason": reason}
        return {"id": f"{number:05d}", "epoch": epoch, "input": "Q", "choices": ["x", "y"], "target": "A", "output": {"choices": [choice]}}

    parts = [{"type": "reasoning", "reasoning": REASONING}, {"type": "text", "text": ANSWER}]
    samples = [sample(n, e, parts) for n in range(2) for e in (1, 2)] + [sample(2, 1, [*parts[:1], {"type": "text", "text": ""}], "max_tokens")]
    path = tmp_path / ("log.eval" if archive else "log.json")
    if archive:
        with zipfile.ZipFile(path, "w") as handle:
            handle.writestr("header.json", "{}")
            for number, entry in enumerate(samples):
                handle.writestr(f"samples/{number}.json", json.dumps(entry))
    else:
        path.write_text(json.dumps({"status": "success", "samples": samples}))
    counts = bring("inspect", path)
    assert {replicate: entry["taken"] for replicate, entry in counts.items()} == {0: 3, 1: 2}
    frame = imported()
    assert frame["output_ids"][0].to_list() == finished
    assert frame["status"].to_list() == ["terminated", "terminated", "truncated"]
    assert not frame["token_exact"].any()
    assert read_items([path], "inspect")[0] == {"id": "00000", "question": "Q", "options": ["x", "y"], "answer": "A"}


def test_parquet_tables_are_read(study, finished, tmp_path):
    pl.DataFrame({"item_id": ["chains/00000", "chains/00000"], "replicate": [0, 1], "output_ids": [finished, finished[:4]]}).write_parquet(
        tmp_path / "runs.parquet"
    )
    bring("plain", tmp_path / "runs.parquet")
    assert imported(1)["output_ids"][0].to_list() == finished[:4]


def test_markers_spelled_in_the_question_of_a_text_are_no_markers(tokenizer):
    run = Run("x", 0, "stop", text=" Answer: D", reasoning="the word </think> is text")
    ids = importing._encode(run, EMBEDDED, tokenizer)
    closing = tokenizer.convert_tokens_to_ids("</think>")
    assert ids.count(closing) == 1


def test_mistakes_of_the_user_are_one_line(study, finished, tmp_path, capsys):
    twice = write_lines(tmp_path / "twice.jsonl", [{"item_id": "00000", "output_ids": finished}] * 2)
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{not json\n")
    lacking = write_lines(tmp_path / "lacking.jsonl", [{"item_id": "00000"}])
    options = ["--config", "study.yaml", "--model", "embedded", "--benchmark", "chains"]
    cases = [
        ([str(twice), "--format", "plain", *options, "--arm", "low"], "item chains/00000, replicate 0: occurs twice"),
        ([str(broken), "--format", "plain", *options, "--arm", "low"], "cannot be read"),
        ([str(lacking), "--format", "plain", *options, "--arm", "low"], "record 1: has no 'output_ids or text'"),
        ([str(twice), "--format", "plain", *options, "--arm", "slow"], "arms: 'slow' is not defined"),
        (["absent.jsonl", "--format", "plain", *options, "--arm", "low"], "cannot be read"),
    ]
    for arguments, message in cases:
        assert importing.main(["traces", *arguments]) == 1
        told = capsys.readouterr().err
        assert told.count("\n") == 1
        assert message in told
    assert importing.main(["items", str(twice), "--format", "vllm", "--output", "items.jsonl"]) == 1
    with pytest.raises(InputError, match="unknown"):
        list(read_runs([twice], "csv"))


def test_the_command_writes_items_and_never_overwrites_traces(study, finished, tmp_path, capsys):
    log = tmp_path / "log.json"
    sample = {"id": 7, "input": [{"role": "user", "content": "Q"}], "choices": ["x", "y"], "target": ["B"]}
    log.write_text(json.dumps({"samples": [sample]}))
    assert importing.main(["items", str(log), "--format", "inspect", "--output", "items.jsonl"]) == 0
    assert json.loads((tmp_path / "items.jsonl").read_text()) == {"id": "7", "question": "Q", "options": ["x", "y"], "answer": "B"}
    entry = {"loader": "file", "answer_kind": "choice", "path": "items.jsonl"}
    exam = study_config.validate(small_config(benchmarks={"exam": entry}), "study")
    assert items.load(exam["benchmarks"]["exam"] | {"name": "exam"}, 1)["answer"].to_list() == ["B"]
    runs = write_lines(tmp_path / "runs.jsonl", [{"item_id": "00000", "output_ids": finished, "replicate": k} for k in (0, 1)])
    arguments = ["traces", str(runs), "--format", "plain", "--config", "study.yaml", "--model", "embedded", "--benchmark", "chains", "--arm", "low"]
    assert importing.main(arguments) == 0
    assert "replicate 0: taken 1, token_exact 0, unknown_items 0" in capsys.readouterr().out
    assert importing.main(arguments) == 1
    assert "exists already" in capsys.readouterr().err
