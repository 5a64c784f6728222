"""Runs of other tools: what is verified, what is reconstructed, and that stages go on from there."""

import json
import zipfile
import zlib

import polars as pl
import pyarrow as pa
import pytest
import yaml
from helpers.builders import item_files, small_config, walker

from midtrace import config as study_config
from midtrace import items, probe, prompts, replay, tables
from midtrace.dialects import EMBEDDED
from midtrace.errors import InputError
from midtrace.external import importing
from midtrace.external.formats import read_items, read_runs
from midtrace.external.runs import LeftOut, Run
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
    expected = {"taken": 3, "token_exact": 3, "unknown_items": 0, "missing_items": 1}
    assert (counts.replicates, counts.left_out, counts.beyond) == ({0: expected, 1: expected}, [], 0)
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
    assert read_items([source], "lm-eval").taken[0] == {"id": "samples/00000", "task": "samples", "answer": "D", **doc}


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
    assert {replicate: entry["taken"] for replicate, entry in counts.replicates.items()} == {0: 3, 1: 2}
    frame = imported()
    assert frame["output_ids"][0].to_list() == finished
    assert frame["status"].to_list() == ["terminated", "terminated", "truncated"]
    assert not frame["token_exact"].any()
    assert read_items([path], "inspect").taken[0] == {"id": "00000", "task": "", "question": "Q", "options": ["x", "y"], "answer": "A"}


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
        read_runs([twice], "csv")


def test_the_command_writes_items_and_never_overwrites_traces(study, finished, tmp_path, capsys):
    log = tmp_path / "log.json"
    sample = {"id": 7, "input": [{"role": "user", "content": "Q"}], "choices": ["x", "y"], "target": ["B"]}
    log.write_text(json.dumps({"eval": {"task": "law"}, "samples": [sample]}))
    assert importing.main(["items", str(log), "--format", "inspect", "--output", "items.jsonl"]) == 0
    assert json.loads((tmp_path / "items.jsonl").read_text()) == {
        "id": "law/7",
        "task": "law",
        "question": "Q",
        "options": ["x", "y"],
        "answer": "B",
    }
    entry = {"loader": "file", "answer_kind": "choice", "path": "items.jsonl"}
    exam = study_config.validate(small_config(benchmarks={"exam": entry}), "study")
    assert items.load(exam["benchmarks"]["exam"] | {"name": "exam"}, 1)["answer"].to_list() == ["B"]
    runs = write_lines(tmp_path / "runs.jsonl", [{"item_id": "00000", "output_ids": finished, "replicate": k} for k in (0, 1)])
    arguments = ["traces", str(runs), "--format", "plain", "--config", "study.yaml", "--model", "embedded", "--benchmark", "chains", "--arm", "low"]
    assert importing.main(arguments) == 0
    assert "replicate 0: taken 1, token_exact 0, unknown_items 0, missing_items 3" in capsys.readouterr().out
    assert importing.main(arguments) == 1
    assert "exists already" in capsys.readouterr().err


def lm_eval_record(number, texts=("<think>a</think>b",), **values):
    doc = {"question": f"q{number}", "choices": ["x", "y"]}
    return {"doc_id": number, "doc": doc, "target": "B", "resps": [list(texts)], "filter": "none", **values}


def test_items_of_subtasks_are_told_apart_by_their_task(tmp_path):
    law, arts = (tmp_path / f"samples_exam_{task}_2026-11-30T10-11-12.345678.jsonl" for task in ("law", "arts"))
    write_lines(law, [lm_eval_record(n) for n in range(3)])
    write_lines(arts, [lm_eval_record(n) for n in range(2)])
    found = read_items([law, arts], "lm-eval")
    assert [item["id"] for item in found.taken] == [*(f"exam_law/{n}" for n in range(3)), "exam_arts/0", "exam_arts/1"]
    assert [item["task"] for item in found.taken] == ["exam_law"] * 3 + ["exam_arts"] * 2
    assert read_items([law], "lm-eval", task="mine").taken[0]["id"] == "mine/0"
    runs = read_runs([law, arts], "lm-eval").taken
    assert [(run.task, run.item) for run in runs] == [("exam_law", "0"), ("exam_law", "1"), ("exam_law", "2"), ("exam_arts", "0"), ("exam_arts", "1")]


def test_two_items_of_one_id_are_refused(tmp_path):
    once = write_lines(tmp_path / "law.jsonl", [lm_eval_record(0), lm_eval_record(0)])
    assert len(read_items([once], "lm-eval").taken) == 1
    other = write_lines(tmp_path / "law.jsonl", [lm_eval_record(0), lm_eval_record(0, target="A")])
    with pytest.raises(InputError, match="item law/0: is two different items"):
        read_items([other], "lm-eval")


def test_one_filter_of_several_is_read(tmp_path):
    both = [lm_eval_record(n, filter=name) for name in ("strict", "flexible") for n in range(2)]
    log = write_lines(tmp_path / "law.jsonl", both)
    assert [run.item for run in read_runs([log], "lm-eval").taken] == ["0", "1"]
    assert len(read_runs([log], "lm-eval", chosen="flexible").taken) == 2
    with pytest.raises(InputError, match="filter: 'loose' is not in the log; allowed: strict, flexible"):
        read_runs([log], "lm-eval", chosen="loose")
    with pytest.raises(InputError, match="filter: is given, but plain logs have none"):
        read_runs([log], "plain", chosen="strict")
    write_lines(log, [*both, lm_eval_record(2, filter="flexible")])
    assert read_runs([log], "lm-eval").left_out == [LeftOut("law/2", "without a line of filter strict")]
    write_lines(log, [*both[:3], lm_eval_record(1, ["another"], filter="flexible")])
    with pytest.raises(InputError, match="doc_id 1: has other outputs under another filter"):
        read_runs([log], "lm-eval")
    assert [run.text for run in read_runs([log], "lm-eval", chosen="flexible").taken][1] == "another"


def test_outputs_that_failed_are_counted_and_the_others_taken(tmp_path):
    likely = {"resps": [[["-1.5", "False"]], [["-0.5", "True"]]], "arguments": {"a": {"arg_1": " x"}, "b": {"arg_1": " y"}}}
    records = [lm_eval_record(0, ["a", "", None]), lm_eval_record(1, []), lm_eval_record(2, **likely), lm_eval_record(3)]
    found = read_runs([write_lines(tmp_path / "law.jsonl", records)], "lm-eval")
    assert [(run.item, run.replicate) for run in found.taken] == [("0", 0), ("3", 0)]
    assert [(sample.name, sample.reason) for sample in found.left_out] == [
        ("law/0, repeat 1", "without an output"),
        ("law/0, repeat 2", "without an output"),
        ("law/1", "without an output"),
        ("law/2", "whose log holds likelihoods, no generated text"),
    ]


@pytest.mark.parametrize(
    ("target", "asked", "answer"),
    [
        ("1", [" x", " y"], "B"),  # the number of a choice
        (" y", [" x", " y"], "B"),  # its text
        ("1", [" 0", " 1"], "B"),  # both, and the same one
        ("1", [" 1", " 2"], None),  # both, and not the same one
        ("3", [" x", " y"], None),
    ],
)
def test_the_target_of_likelihoods_is_a_choice(tmp_path, target, asked, answer):
    arguments = {f"gen_args_{k}": {"arg_0": "q", "arg_1": text} for k, text in enumerate(asked)}
    record = lm_eval_record(0, target=target, resps=[[["-1.5", "False"]]] * 2, arguments=arguments, doc={"question": "q", "answer": 7})
    found = read_items([write_lines(tmp_path / "law.jsonl", [record])], "lm-eval")
    if answer is None:
        assert [sample.name for sample in found.left_out] == ["law/0"]
    else:
        assert (found.taken[0]["answer"], found.taken[0]["options"]) == (answer, [text.strip() for text in asked])


def inspect_log(path, samples):
    path.write_text(json.dumps({"eval": {"task": "law"}, "samples": samples}))
    return path


def inspect_sample(number, **values):
    choice = {"message": {"role": "assistant", "content": "<think>a</think>b"}, "stop_reason": "stop"}
    return {"id": number, "epoch": 1, "input": "Q", "choices": ["x", "y"], "target": "B", "output": {"choices": [choice]}, **values}


def test_samples_of_inspect_that_failed_are_counted_and_the_others_taken(tmp_path):
    partial = inspect_sample(3, error={"message": "limit"})
    redacted = {"message": {"content": [{"type": "reasoning", "reasoning": "xyz", "redacted": True}, {"type": "text", "text": "B"}]}}
    samples = [inspect_sample(1), inspect_sample(2, output={"choices": []}), partial, inspect_sample(4, output={"choices": [redacted]})]
    found = read_runs([inspect_log(tmp_path / "log.json", samples)], "inspect")
    assert [(run.task, run.item) for run in found.taken] == [("law", "1")]
    assert [(sample.name, sample.reason) for sample in found.left_out] == [
        ("law/2", "that failed"),
        ("law/3", "that failed"),
        ("law/4", "whose reasoning is redacted"),
    ]


def test_questions_of_inspect_are_read_or_counted(tmp_path):
    parts = [{"type": "text", "text": "What is"}, {"type": "text", "text": " this?"}]
    picture = [*parts, {"type": "image", "image": "attachment://1"}]

    def asked(number, *messages):
        return inspect_sample(number, input=[{"role": role, "content": content} for role, content in messages])

    samples = [
        asked(1, ("system", "Be brief."), ("user", parts)),
        inspect_sample(2, target=[]),
        inspect_sample(3, target=["A", "B"]),
        asked(4, ("system", "Be brief.")),
        asked(5, ("user", "a"), ("assistant", "b"), ("user", "c")),
        asked(6, ("user", picture)),
        inspect_sample(7, target=["A"]),
        inspect_sample(7, epoch=2, target=["A"]),
    ]
    found = read_items([inspect_log(tmp_path / "log.json", samples)], "inspect")
    assert [(item["id"], item["question"], item["answer"]) for item in found.taken] == [("law/1", "What is this?", "B"), ("law/7", "Q", "A")]
    assert {sample.name: sample.reason for sample in found.left_out} == {
        "law/2": "without a target",
        "law/3": "with several targets",
        "law/4": "without a message of the user",
        "law/5": "with several messages of the user",
        "law/6": "whose question is more than text",
    }


def test_what_an_import_leaves_out_is_said(study, finished, tmp_path, capsys):
    records = [{"item_id": "00000", "output_ids": finished, "replicate": k} for k in (0, 1, 2, 3)]
    arguments = ["--config", "study.yaml", "--model", "embedded", "--benchmark", "chains", "--arm", "low"]
    assert importing.main(["traces", str(write_lines(tmp_path / "runs.jsonl", records)), "--format", "plain", *arguments]) == 0
    assert "2 runs of replicates that the study does not have" in capsys.readouterr().out
    log = inspect_log(tmp_path / "log.json", [inspect_sample(1), *(inspect_sample(n, target=[]) for n in range(2, 9))])
    assert importing.main(["items", str(log), "--format", "inspect", "--output", "items.jsonl"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines() == [
        "1 items: items.jsonl",
        "7 samples left out: 7 without a target (law/2, law/3, law/4, law/5, law/6, ...)",
    ]
    assert importing.main(["items", str(log), "--format", "inspect", "--output", "no/folder/items.jsonl"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_values_of_documents_come_out_as_they_were_written(tmp_path):
    log = tmp_path / "law.jsonl"
    log.write_text(
        '{"doc_id": 0, "doc": {"question": "q", "options": [1.10, 2, 3e2], "big": 123456789012345678901}, "target": "2", "resps": [["x"]]}\n'
    )
    assert importing.main(["items", str(log), "--format", "lm-eval", "--output", str(tmp_path / "items.jsonl")]) == 0
    written = json.loads((tmp_path / "items.jsonl").read_text())
    assert (written["options"], written["big"]) == (["1.10", 2, "3e2"], 123456789012345678901)


def zstd_archive(path, members):
    """A zip whose members are compressed by zstd, as Inspect writes it: method 93, put into the headers of stored members."""
    content = {name: pa.compress(data, codec="zstd", asbytes=True) for name, data in members.items()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
        for entry in archive.filelist:
            entry.compress_type, entry.file_size, entry.CRC = 93, len(members[entry.filename]), zlib.crc32(members[entry.filename])
    return path


def test_members_compressed_by_zstd_are_read(tmp_path):
    header, sample = json.dumps({"eval": {"task": "law"}}).encode(), json.dumps(inspect_sample(1)).encode()
    log = zstd_archive(tmp_path / "log.eval", {"header.json": header, "samples/1_epoch_1.json": sample})
    assert [item["id"] for item in read_items([log], "inspect").taken] == ["law/1"]
    spoiled = bytearray(log.read_bytes())
    spoiled[spoiled.index(b"\x28\xb5\x2f\xfd") + 12] ^= 255
    log.write_bytes(spoiled)
    with pytest.raises(InputError, match=r"log.eval: file: cannot be read"):
        read_items([log], "inspect")
