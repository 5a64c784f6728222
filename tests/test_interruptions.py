"""Interruptions without a model: exact ids of every intervention, cuts, the split of what follows, failure modes, estimates, config."""

import copy
import json
from functools import cache
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
import yaml

from midtrace import config as study_config
from midtrace import (
    dialects,
    grading,
    interruption,
    interruption_config,
    interruption_estimates,
    interruption_grading,
    items,
    prompts,
    replay,
    tables,
)
from midtrace.errors import InputError
from midtrace.seeds import interruption_seed

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests/golden/interruptions.json"
SEVEN = ("hard", "force_answer", "soft", "update", "update_guided", "soft_user", "update_user")
# Which real vocabulary can render which dialect; the markers of deepseek_r1 and magistral are in neither.
RENDERED = {
    "qwen3": "qwen3",
    "qwen3_2507": "qwen3",
    "nemotron3": "qwen3",
    "prefill": "qwen3",
    "smollm2": "qwen3",
    "gpt_oss": "gptoss",
    "embedded": "embedded",
}
REASONING = "Two and two is four. That is option B. So I will say it.\n"
ITEM = {"item_id": "toy/1", "question": "What is 2 + 2?", "options": ["3", "4"], "answer": "B", "answer_kind": "choice"}
ITEM |= {"update": "Update: the options are swapped.", "stale_answer": "A"}
FRACTIONS = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]


@cache
def demo() -> dict:
    return study_config.load(ROOT / "config/config.yaml")


def study(**interruptions) -> dict:
    """The demo's config with another section ``interruptions``, not yet validated."""
    raw = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    raw["interruptions"] = interruptions
    return raw


def record(name: str, dialect: str, kind: str = "choice") -> dict:
    """The settings of an intervention as the paid stage gets them, from the defaults of the schema."""
    config = copy.deepcopy(demo())
    config["models"]["embedded"]["dialect"] = dialect
    config["benchmarks"]["chains_update"]["answer_kind"] = kind
    return interruption_config.interruption_settings(config, "embedded", "chains_update", "baseline", 0, name)["intervention"]


def trace_of(tokenizer, dialect: dialects.Dialect, prompt=(7, 8), **changes) -> dict:
    opening = dialects.opening_ids(tokenizer, dialect)
    reasoning = tokenizer.encode(REASONING, add_special_tokens=False)
    after = tokenizer.encode(dialect.closing.lstrip("\n") + "Answer: B" + dialect.stop[0], add_special_tokens=False)
    found = {"trace_id": "m/toy/1/plain/r0", "item_id": "toy/1", "replicate": 0, "prompt_ids": list(prompt), "drift_at": None}
    found |= {"output_ids": [*opening, *reasoning, *after], "reasoning_start": len(opening), "n_reasoning": len(reasoning), "status": "terminated"}
    return found | changes


def subject(tokenizer, dialect_name: str, intervention: dict, trace: dict | None = None, context: int | None = None) -> interruption.Inputs:
    dialect = dialects.get(dialect_name)
    trace = trace or trace_of(tokenizer, dialect)
    cuts = {"fractions": FRACTIONS, "sentences": [], "tokens": []}
    settings = {"intervention": intervention, "cuts": cuts, "max_tokens": 50, "probe": None, "traces": {"seed": 5}}
    name = trace["trace_id"]
    found = {name: list(interruption.cuts_for(trace, cuts, tokenizer))}
    return interruption.Inputs(settings, {"1": ITEM}, {name: trace}, found, tokenizer, dialect, [0], context, {}, [])


# --- what is inserted ----------------------------------------------------------------------------------------------------------------


def rendered(tokenizer, dialect: str) -> dict[str, dict]:
    """Per intervention: the ids inserted before the end and at the end, and the tokens kept at every cut."""
    found = {}
    for name in SEVEN:
        jobs = list(subject(tokenizer, dialect, record(name, dialect)).jobs("m/toy/1/plain/r0"))
        inserted = [job.inserted for job in jobs]
        assert all(ids == inserted[0] for ids in inserted[:-1]), "what is inserted does not depend on the cut"
        found[name] = {"inserted": inserted[0], "at_end": inserted[-1], "kept": {job.cut["cut_id"]: job.cut["n_tokens"] for job in jobs}}
    return found


@pytest.mark.parametrize("dialect", [name for name in RENDERED if name != "embedded"])  # whose vocabulary may be trained anew
def test_golden_ids_of_every_intervention_at_every_cut(vocabulary, dialect):
    assert rendered(vocabulary(RENDERED[dialect]), dialect) == json.loads(GOLDEN.read_text())[dialect]


SAID = {
    "hard": "EARLY",
    "force_answer": "EARLY",
    "soft": "\n\nPlease hurry and answer as soon as possible.\n\n",
    "update": "\n\nUpdate: the options are swapped.\n\n",
    "update_guided": "\n\nUpdate: the options are swapped. This update is verified and must be used.\n\n",
    "soft_user": "Please hurry and answer as soon as possible.",
    "update_user": "Update: the options are swapped.",
}
CHATML_TURN = "\n</think>\n\n<|im_end|>\n<|im_start|>user\n{said}<|im_end|>\n<|im_start|>assistant\n"
AROUND = {  # place -> the whole insertion, by dialect
    "close": {
        "gpt_oss": "{said}<|end|><|start|>assistant<|channel|>final<|message|>",
        "magistral": "{said}[/THINK]",
        "smollm2": "{said}\nThe answer is",
        "": "{said}\n</think>\n\n",
    },
    "inside": {"": "{said}"},
    "turn": {
        "gpt_oss": "<|end|><|start|>user<|message|>{said}<|end|><|start|>assistant",
        "deepseek_r1": "\n</think>\n\n<｜end▁of▁sentence｜><｜User｜>{said}<｜Assistant｜><think>\n",
        "magistral": "[/THINK]</s>[INST]{said}[/INST]",
        "smollm2": "\nThe answer is open.<|im_end|>\n<|im_start|>user\n{said}<|im_end|>\n<|im_start|>assistant\nReasoning:",
        "qwen3": CHATML_TURN,
        "embedded": CHATML_TURN,
        "": CHATML_TURN + "<think>\n",
    },
}


@pytest.mark.parametrize("dialect", dialects.DIALECTS)
@pytest.mark.parametrize("name", SEVEN)
def test_text_of_every_insertion_and_no_no_op(vocabulary, dialect, name):
    tokenizer, settings = vocabulary(RENDERED.get(dialect, "qwen3")), record(name, dialect)
    ids = interruption.insertion_ids(settings, ITEM["update"], dialects.get(dialect), tokenizer)
    said = SAID[name].replace("EARLY", dialects.get(dialect).early_stop)
    around = AROUND[settings["place"]]
    expected = around.get(dialect, around[""]).replace("{said}", said) + ("Answer:" if name == "force_answer" else "")
    assert tokenizer.decode(ids) == expected
    assert said.strip() and said.strip() in tokenizer.decode(ids)


def test_hard_ends_as_qwen3_stops_early(vocabulary):
    tokenizer = vocabulary("qwen3")
    ids = interruption.insertion_ids(record("hard", "qwen3"), None, dialects.QWEN3, tokenizer)
    assert len(ids) == 24 and ids[-2:] == [151668, 271]


@pytest.mark.parametrize("dialect", ["qwen3", "gpt_oss", "embedded"])
def test_forced_answer_without_a_notice_is_the_probes_prefix(vocabulary, dialect):
    tokenizer = vocabulary(RENDERED[dialect])
    silent = {**record("force_answer", dialect), "text": None}
    assert interruption.insertion_ids(silent, None, dialects.get(dialect), tokenizer) == prompts.closing_ids(
        dialects.get(dialect), "Answer:", tokenizer
    )


@pytest.mark.parametrize(("kind", "stem"), [("choice", "Answer:"), ("math", "\\boxed{"), ("code", "```python\n")])
def test_stem_follows_the_kind_of_answer(vocabulary, kind, stem):
    tokenizer = vocabulary("qwen3")
    ids = interruption.insertion_ids(record("force_answer", "qwen3", kind), None, dialects.QWEN3, tokenizer)
    stem_ids = tokenizer.encode(stem, add_special_tokens=False)
    assert ids[-len(stem_ids) :] == stem_ids and ids[: -len(stem_ids)] == interruption.insertion_ids(
        record("hard", "qwen3"), None, dialects.QWEN3, tokenizer
    )


@pytest.mark.parametrize("dialect", RENDERED)
@pytest.mark.parametrize("name", SEVEN)
def test_prefix_is_the_stored_ids(vocabulary, dialect, name):
    tokenizer = vocabulary(RENDERED[dialect])
    one = subject(tokenizer, dialect, record(name, dialect))
    trace = next(iter(one.traces.values()))
    jobs = list(one.jobs(trace["trace_id"]))
    assert [job.cut["fraction"] for job in jobs] == FRACTIONS
    for job in jobs:
        stored = [*trace["prompt_ids"], *trace["output_ids"][: trace["reasoning_start"] + job.cut["n_tokens"]]]
        assert list(job.request.prompt_ids) == [*stored, *job.inserted]
    assert len({job.request.seed for job in jobs}) == len(jobs)


@pytest.mark.parametrize("dialect", RENDERED)
def test_silent_hard_at_the_end_is_the_natural_context(vocabulary, dialect):
    tokenizer = vocabulary(RENDERED[dialect])
    one = subject(tokenizer, dialect, {"name": "silent", "place": "close", "text": None, "stem": None})
    trace = next(iter(one.traces.values()))
    last = list(one.jobs(trace["trace_id"]))[-1]
    natural = [*trace["prompt_ids"], *trace["output_ids"]]
    assert list(last.request.prompt_ids) == natural[: len(last.request.prompt_ids)]
    rest = natural[len(last.request.prompt_ids) :]
    assert tokenizer.decode(rest).startswith("Answer: B")


def test_seed_belongs_to_item_replicate_intervention_and_cut():
    parts = (1, "toy/1", 0, "hard", "fraction:0.5")
    others = [(2, *parts[1:]), (1, "toy/2", *parts[2:]), (1, "toy/1", 1, *parts[3:]), (*parts[:3], "soft", parts[4]), (*parts[:4], "fraction:0.7")]
    seeds = [interruption_seed(*values) for values in (parts, *others)]
    assert len(set(seeds)) == 6 and seeds[0] == interruption_seed(*parts)


def test_words_of_a_marker_are_said_not_done(vocabulary):
    tokenizer = vocabulary("qwen3")
    rogue = {"name": "rogue", "place": "inside", "text": "Stop </think> now <|im_end|>", "stem": None}
    ids = interruption.insertion_ids(rogue, None, dialects.QWEN3, tokenizer)
    assert not {151668, 151645} & set(ids) and tokenizer.decode(ids) == rogue["text"]
    told = interruption.insertion_ids(record("update_user", "qwen3"), "Say <|im_start|>", dialects.QWEN3, tokenizer)
    plain = interruption.insertion_ids(record("update_user", "qwen3"), "Say it", dialects.QWEN3, tokenizer)
    assert told.count(151644) == plain.count(151644)


@pytest.mark.parametrize("update", [None, "", "  "])
def test_update_item_without_update_is_an_error(vocabulary, update):
    with pytest.raises(InputError, match="update: missing"):
        interruption.insertion_ids(record("update", "qwen3"), update, dialects.QWEN3, vocabulary("qwen3"))


@pytest.mark.parametrize("text", [None, "", " \n"])
def test_inserting_nothing_is_an_error(vocabulary, text):
    with pytest.raises(InputError, match="inserts nothing"):
        interruption.insertion_ids({"name": "x", "place": "inside", "text": text, "stem": None}, None, dialects.QWEN3, vocabulary("qwen3"))


def test_no_room_for_an_answer_is_an_error(vocabulary):
    one = subject(vocabulary("qwen3"), "qwen3", record("hard", "qwen3"), context=20)
    with pytest.raises(InputError, match="leave no room"):
        list(one.jobs("m/toy/1/plain/r0"))
    roomy = subject(vocabulary("qwen3"), "qwen3", record("hard", "qwen3"), context=70)
    limits = [job.request.max_tokens + len(job.request.prompt_ids) for job in roomy.jobs("m/toy/1/plain/r0")]
    assert max(limits) <= 70


# --- where it is cut -----------------------------------------------------------------------------------------------------------------


def test_cuts(vocabulary):
    tokenizer = vocabulary("qwen3")
    trace = trace_of(tokenizer, dialects.QWEN3)
    length = trace["n_reasoning"]
    asked = {"fractions": [0.0, 0.1, 1.0], "sentences": [0.0, 0.4, 0.99], "tokens": [0, 3, length, length + 1]}
    cuts = list(interruption.cuts_for(trace, asked, tokenizer))
    kept = {cut["cut_id"]: cut["n_tokens"] for cut in cuts}
    assert (kept["fraction:0"], kept["fraction:0.1"], kept["fraction:1"]) == (0, 2, length)
    assert (kept["horizon:0"], kept["horizon:3"], kept[f"horizon:{length}"]) == (0, 3, length) and f"horizon:{length + 1}" not in kept
    reasoning = trace["output_ids"][1 : 1 + length]
    assert [tokenizer.decode(reasoning[: kept[f"sentence:{x}"]]) for x in ("0", "0.4", "0.99")] == [
        "Two and two is four.",
        "Two and two is four.",
        REASONING,
    ]


def test_sentence_ends(vocabulary):
    tokenizer = vocabulary("qwen3")
    ids = tokenizer.encode('It is 3.14 now. "Yes!" he said.\nThen 𓀀? No', add_special_tokens=False)
    ends = replay.sentence_ends(ids, tokenizer)
    sentences = [tokenizer.decode(ids[a:b]) for a, b in pairwise([0, *ends])]
    assert sentences == ["It is 3.14 now.", ' "Yes!"', " he said.\n", "Then 𓀀?", " No"]


@pytest.mark.parametrize("status", ["truncated", "malformed"])
def test_unfinished_traces_are_not_interrupted(vocabulary, status):
    tokenizer = vocabulary("qwen3")
    assert not list(interruption.cuts_for(trace_of(tokenizer, dialects.QWEN3, status=status), {"fractions": FRACTIONS}, tokenizer))


# --- what follows --------------------------------------------------------------------------------------------------------------------

THINK, CLOSE, IM_END = 151667, 151668, 151645
START, END, MESSAGE, CHANNEL, RETURN, ANALYSIS, FINAL, ASSISTANT = 200006, 200007, 200008, 200005, 200002, 35644, 17196, 173781
TO_FINAL = [END, START, ASSISTANT, CHANNEL, FINAL, MESSAGE]


@pytest.mark.parametrize(
    ("dialect", "place", "kept", "inserted", "output", "expected"),
    [
        ("qwen3", "close", [THINK, 1, 2], [9, CLOSE, 271], [3, IM_END], ([], [271, 3], "terminated")),
        ("qwen3", "close", [THINK, 1, 2], [9, CLOSE, 271, 5], [3], ([], [271, 5, 3], "terminated")),
        ("qwen3", "close", [THINK, 1, 2], [9, CLOSE, 271], [3, CLOSE, 4], ([], [271, 3, CLOSE, 4], "malformed")),
        ("qwen3", "close", [THINK, 1, 2], [9, CLOSE, 271], [THINK, 3, IM_END], ([], [271, THINK, 3], "malformed")),
        ("qwen3", "inside", [THINK, 1, 2], [9, 9], [3, 4, CLOSE, 271, 5, IM_END], ([3, 4], [271, 5], "terminated")),
        ("qwen3", "inside", [THINK], [9, 9], [CLOSE, 271, 5, IM_END], ([], [271, 5], "terminated")),
        ("qwen3", "inside", [THINK, 1], [9], [3, 4], ([3, 4], [], "truncated")),
        ("qwen3", "turn", [THINK, 1], [198, CLOSE, IM_END, 9], [THINK, 3, CLOSE, 5, IM_END], ([3], [5], "terminated")),
        ("qwen3", "turn", [THINK, 1], [198, CLOSE, IM_END, 9], [5, IM_END], ([5], [], "malformed")),
        ("qwen3_2507", "turn", [1], [198, CLOSE, IM_END, 9, THINK], [3, CLOSE, 5, IM_END], ([3], [5], "terminated")),
        ("gpt_oss", "close", [CHANNEL, ANALYSIS, MESSAGE, 1], [9, *TO_FINAL], [5, RETURN], ([], [5], "terminated")),
        ("gpt_oss", "close", [CHANNEL, ANALYSIS, MESSAGE, 1], [9, *TO_FINAL], [5, *TO_FINAL, 6, RETURN], ([], [5, *TO_FINAL, 6], "malformed")),
        ("gpt_oss", "inside", [CHANNEL, ANALYSIS, MESSAGE, 1], [9], [3, *TO_FINAL, 5, RETURN], ([3], [5], "terminated")),
        ("gpt_oss", "turn", [CHANNEL, ANALYSIS, MESSAGE, 1], [END, 9], [CHANNEL, ANALYSIS, MESSAGE, 3, *TO_FINAL, 5], ([3], [5], "terminated")),
        ("gpt_oss", "turn", [CHANNEL, ANALYSIS, MESSAGE, 1], [END, 9], [CHANNEL, FINAL, MESSAGE, 5, RETURN], ([], [5], "malformed")),
    ],
)
def test_split_of_what_follows(vocabulary, dialect, place, kept, inserted, output, expected):
    found = interruption.split_continuation(place, kept, inserted, output, vocabulary(RENDERED[dialect]), dialects.get(dialect))
    assert (found.added, found.answer, found.status) == expected
    assert (found.problem is not None) == (found.status == "malformed")


def test_content_leaves_white_space_out(vocabulary):
    tokenizer = vocabulary("qwen3")
    ids = tokenizer.encode("\n\nAnswer: B\n", add_special_tokens=False)
    assert tokenizer.decode(interruption.content(ids, tokenizer)) == "Answer: B"
    assert interruption.content(tokenizer.encode("\n\n", add_special_tokens=False), tokenizer) == []
    assert interruption.content([], tokenizer) == []


# --- failure modes -------------------------------------------------------------------------------------------------------------------


FRESH_PROGRAM = "```python\n# Double it.\nprint(2 * int(input()))\n```"


def graded(name="soft", fresh_correct=True, kind="choice", grade=None, **row):
    base = {"status": "terminated", "finish_reason": "stop", "n_reasoning": 110, "n_tokens": 10, "n_added_content": 40}
    base |= {"n_answer": 3, "n_base_answer": 3, "added_text": "", "answer_text": "Answer: B"}
    settings = {
        "interruption": {"intervention": record(name, "qwen3")},
        "fresh": {"replicate": 0},
        "thresholds": {key: demo()["interruptions"][key] for key in ("panic", "leakage")}
        | {"reasoning_markers": ["wait", "let me"], "doubt_markers": ["may be wrong"]},
    }
    fresh = None if fresh_correct is None else {"correct": fresh_correct, "output_ids": [1] * 50, "answer_text": FRESH_PROGRAM}
    whole, item = base | row, {**ITEM, "answer_kind": kind}
    if grade is None:
        grade = grading.grade_all([(whole["answer_text"] if whole["status"] == "terminated" else None, item)])[0]
    before = interruption_grading.stale_item(item, settings)
    stale = grading.grade_all([(whole["answer_text"] if whole["status"] == "terminated" else None, before)])[0].correct if before else None
    return interruption_grading.grade_row(whole, item, fresh, settings, grade, stale)


def test_panic_is_little_reasoning_and_a_lost_answer():
    wrong = {"answer_text": "Answer: A"}
    assert graded(**wrong, n_added_content=0)["panic"] and graded(**wrong, n_added_content=0)["mode"] == "panic"
    assert not graded(**wrong, n_added_content=1)["panic"], "1 of 100 remaining tokens is not less than 1%"
    assert not graded(n_added_content=0)["panic"], "right all the same"
    assert not graded(**wrong, n_added_content=0, fresh_correct=False)["panic"], "wrong anyway"
    assert not graded(**wrong, n_added_content=0, fresh_correct=None)["panic"]
    assert not graded(**wrong, n_added_content=0, n_tokens=110)["panic"], "nothing remained"
    assert not graded(**wrong, n_added_content=0, status="malformed")["panic"]
    assert graded("hard", **wrong)["panic"] is None and graded("update", **wrong)["panic"] is None


def test_self_doubt_is_the_stale_answer_or_a_doubt_and_wrong():
    assert graded("update", answer_text="Answer: A")["self_doubt"], "stale"
    assert graded("update", answer_text="no idea", added_text="That may be WRONG, so")["self_doubt"]
    assert not graded("update", added_text="That may be wrong, or not")["self_doubt"], "right all the same"
    assert not graded("update", answer_text="no idea", added_text="That maybe wrong")["self_doubt"]
    assert graded("update", answer_text="Answer: A")["mode"] == "self_doubt" and graded("update")["mode"] is None
    assert graded("soft", answer_text="Answer: A")["self_doubt"] is None


def test_leakage_ratio_and_markers():
    found = graded("hard", n_answer=6, answer_text="Wait, let me see. Await. Answer: A")
    assert (found["leakage_ratio"], found["reasoning_markers"], found["mode"]) == (2.0, 2, "leakage")
    assert graded("hard", n_answer=5, answer_text="Answer: A")["mode"] == "other"
    assert graded("hard", n_base_answer=0)["leakage_ratio"] is None


@pytest.mark.parametrize(
    ("program", "lines"),
    [
        ("# think\nx = 1  # and go on\n  \ny = '#'\n", 2),
        ('def f():\n    """Think.\n\n    And think.\n    """\n    return """\n    no comment\n    """\n', 4),
        ("'first' 'second'\n'third'.join(x)\n", 1),
        ("# think\ndef f(:\n  # so (\n", 2),
        ("x = 1\n", 0),
    ],
)
def test_comments_are_counted_in_programs_only(program, lines):
    text = f"# A heading\n\n```python\n{program}```\n# Another\n```cpp\n# pragma\n```\n"
    assert interruption_grading.comment_lines(text) == lines
    assert interruption_grading.comment_lines(f"# A heading\n{program}") == 0


def test_comments_of_an_interrupted_program_stand_beside_those_of_the_uninterrupted_one():
    program = "```python\n# Let me think.\n# Doubling is adding to itself.\nprint(2 * int(input()))\n```"
    found = graded("hard", kind="code", answer_text=program, grade=grading.Grade("print(1)\n", False, "test 1 of 2: wrong output"))
    assert (found["comment_lines"], found["fresh_comment_lines"], found["reasoning_markers"]) == (2, 1, 1)
    assert (found["grade_note"], found["correct"], found["mode"]) == ("test 1 of 2: wrong output", False, "other")
    assert graded("hard")["comment_lines"] is None
    assert graded("hard", kind="code", fresh_correct=None, answer_text=program, grade=grading.Grade("x", True))["fresh_comment_lines"] is None


def test_mode_takes_the_first_that_applies():
    assert graded(answer_text="?", status="truncated", finish_reason="length")["mode"] == "unfinished"
    assert graded(answer_text="Answer: A", status="malformed")["mode"] == "unparsed"
    assert graded(answer_text="Answer: A", status="malformed")["answer"] is None
    assert graded(answer_text="I do not know")["mode"] == "unparsed"
    assert graded(answer_text="Answer: A")["mode"] == "other"
    assert graded(answer_text="Answer: A", fresh_correct=False)["mode"] is None


# --- estimates -----------------------------------------------------------------------------------------------------------------------


def interrupted(rows):
    base = {"cut": "fraction", "horizon": None, "n_added_reasoning": 4, "n_answer": 2, "leakage_ratio": 1.0, "reasoning_markers": 0}
    base |= {
        "comment_lines": None,
        "fresh_comment_lines": None,
        "panic": None,
        "self_doubt": None,
        "stale": None,
        "doubts": None,
        "probe_choice": None,
        "status": "terminated",
        "rules_correct": None,
        "judge_verdict": None,
    }
    base |= {"finish_reason": "stop", "answer": "B", "correct": True, "fresh_correct": True, "fresh_tokens": 10, "output_ids": [1, 2], "mode": None}
    base |= {"replicate": 0, "intervention": "hard", "model": "m", "benchmark": "chains_update", "arm": "baseline"}
    rows = [base | {"cut_id": f"fraction:{row['fraction']:g}"} | row for row in rows]
    schema = {
        "comment_lines": pl.Int32,
        "fresh_comment_lines": pl.Int32,
        "horizon": pl.Int32,
        "panic": pl.Boolean,
        "self_doubt": pl.Boolean,
        "stale": pl.Boolean,
        "doubts": pl.Int32,
        "rules_correct": pl.Boolean,
        "judge_verdict": pl.String,
    }
    return pl.DataFrame(rows, schema_overrides=schema | {"mode": pl.String, "probe_choice": pl.String, "answer": pl.String})


@cache
def tables_by_hand():
    """Two items, two cuts. ``hard`` loses item a at 0.5 by leakage; ``update`` doubts on item b; ``update_guided`` does not."""
    update = {"intervention": "update", "stale": False, "doubts": 0, "self_doubt": False}
    lost = {"correct": False, "answer": "A"}
    frame = interrupted(
        [
            {"item_id": "a", "fraction": 0.1, "probe_choice": "B"},
            {"item_id": "a", "fraction": 0.5, "probe_choice": "B", **lost, "leakage_ratio": 4.0, "n_answer": 8, "mode": "leakage"},
            {"item_id": "b", "fraction": 0.1, "probe_choice": "C"},
            {"item_id": "b", "fraction": 0.5, "probe_choice": "B", "replicate": 0},
            {"item_id": "b", "fraction": 0.5, "probe_choice": "B", "replicate": 1, **lost, "fresh_correct": False},
            {"item_id": "a", "fraction": 0.5, **update, "output_ids": [1] * 5},
            {"item_id": "b", "fraction": 0.5, **update, **lost, "stale": True, "self_doubt": True, "mode": "self_doubt", "fresh_tokens": 20},
            {"item_id": "a", "fraction": 0.5, **update, "intervention": "update_guided"},
            {"item_id": "b", "fraction": 0.5, **update, "intervention": "update_guided", "answer": None},
        ]
    )
    traces = pl.DataFrame(
        {
            "model": "m",
            "arm": "baseline",
            "item_id": ["a", "b", "c", "a", "b"],
            "base": ["chains_update"] * 3 + ["chains_update+revised"] * 2,
            "status": ["terminated", "terminated", "truncated", "terminated", "malformed"],
        }
    )
    config = {**demo(), "inference": {"resamples": 200, "level": 0.95, "margin": 0.02}}
    return interruption_estimates.estimate(frame, traces, config)


def value(table, **keys):
    frame = tables_by_hand()[table]
    for key, wanted in keys.items():
        frame = frame.filter(pl.col(key) == wanted)
    assert len(frame) == 1, frame
    return frame["estimate"].item()


def test_curves_by_hand():
    at = {"intervention": "hard", "fraction": 0.5}
    assert value("interruptions", estimand="accuracy", **at) == pytest.approx((0 + 0.5) / 2), "replicates are averaged within item first"
    assert value("interruptions", estimand="uninterrupted_accuracy", **at) == pytest.approx((1 + 0.5) / 2)
    assert value("interruptions", estimand="accuracy_change", **at) == pytest.approx((-1 + 0) / 2)
    assert value("interruptions", estimand="length", **at) == pytest.approx((12 + 6) / 2)
    assert value("interruptions", estimand="leakage_2x", **at) == pytest.approx(0.5)
    assert value("interruptions", estimand="leakage_10x", **at) == 0
    assert value("interruptions", estimand="agrees_with_probe", **at) == pytest.approx((0 + 0.5) / 2)
    assert value("interruptions", estimand="agrees_with_probe", intervention="hard", fraction=0.1) == pytest.approx(0.5)
    assert value("interruptions", estimand="anytime_step", **at) == pytest.approx((-1 + 0) / 2), "only replicates that were cut at both"
    update = {"intervention": "update", "fraction": 0.5}
    assert value("interruptions", estimand="update_cost", **update) == pytest.approx((5 + 2) / (10 + 20))
    assert value("interruptions", estimand="self_doubt", **update) == 0.5
    assert value("interruptions", estimand="self_doubt_of_new_errors", **update) == 1
    assert value("interruptions", estimand="unparsed", intervention="update_guided", fraction=0.5) == 0.5


def test_unfinished_traces_are_counted():
    assert value("interruptions", estimand="base_truncated", intervention="hard") == pytest.approx(1 / 3)
    assert value("interruptions", estimand="base_malformed", intervention="update") == pytest.approx(1 / 2)
    assert value("interruptions", estimand="base_terminated", intervention="update") == pytest.approx(1 / 2)


def test_shares_of_new_errors_sum_to_one():
    frame = tables_by_hand()["interruptions_errors"]
    total = frame.filter(pl.col("estimand") == "share_of_new_errors", pl.col("estimate").is_not_null()).group_by("intervention", "fraction")
    assert set(total.agg(pl.col("estimate").sum())["estimate"].round(12)) == {1.0}
    assert value("interruptions_errors", estimand="share_of_new_errors", intervention="hard", fraction=0.5, mode="leakage") == 1
    assert value("interruptions_errors", estimand="share_of_runs", intervention="update", fraction=0.5, mode="self_doubt") == 0.5


def test_leakage_distribution_by_hand():
    found = {ratio: value("interruptions_leakage", intervention="hard", fraction=0.5, ratio=ratio) for ratio in (1.0, 3.0, 5.0)}
    assert found == {1.0: 1.0, 3.0: 0.5, 5.0: 0.0}


def test_contrast_by_hand():
    keys = {"intervention": "update_guided", "against": "update", "fraction": 0.5}
    assert value("interruptions_contrasts", estimand="accuracy_difference", **keys) == 0.5
    assert value("interruptions_contrasts", estimand="same_answer", **keys) == 0.5
    assert value("interruptions_contrasts", estimand="length_difference", **keys) == 0


def test_monotonicity_counts_steps_below_zero():
    steps = pl.DataFrame({"intervention": ["x", "x", "y"], "ci_high": [-0.1, 0.0, 0.2], "n_items": [5, 5, 5], "n_pairs": [5, 5, 5]})
    assert dict(interruption_estimates.violations(steps).select("intervention", "estimate").iter_rows()) == {"x": 1.0, "y": 0.0}


# --- config and items ----------------------------------------------------------------------------------------------------------------

BAD = {
    "unknown intervention": (dict(run={"chains_update": ["hrad"]}), "'hrad' is not defined; allowed: hard"),
    "unknown benchmark": (dict(run={"chain": ["hard"]}), "run.chain: is not defined"),
    "an update that no item has": (dict(run={"chains": ["update"]}), "its items have none"),
    "an empty text": (dict(interventions={"x": {"place": "inside", "text": ""}}), "interventions.x.text: is ''; allowed: some text"),
    "white space": (dict(interventions={"x": {"place": "inside", "text": " \n"}}), "says nothing"),
    "nothing inside": (dict(interventions={"x": {"place": "inside", "text": None}}), "nothing is inserted"),
    "nothing in a dialect": (dict(interventions={"x": {"place": "turn", "text": "a", "dialects": {"qwen3": None}}}), "dialects.qwen3: is null"),
    "unknown dialect": (dict(interventions={"x": {"place": "inside", "text": "a", "dialects": {"qwen": "b"}}}), "'qwen' is unknown"),
    "unknown placeholder": (dict(interventions={"x": {"place": "inside", "text": "{updat}"}}), "{updat} is unknown"),
    "update lost in a dialect": (dict(interventions={"x": {"place": "inside", "text": "{update}", "dialects": {"qwen3": "b"}}}), "in all texts"),
    "a stem where none follows": (dict(interventions={"x": {"place": "inside", "text": "a", "stems": {}}}), "stems: place is inside"),
    "unknown place": (dict(interventions={"x": {"place": "after", "text": "a"}}), "allowed: inside, close, turn"),
    "a typo": (dict(fraction=[0.5]), "interruptions.fraction: unknown key"),
    "fractions that fall": (dict(fractions=[0.5, 0.1]), "interruptions.fractions: 0.1 comes after"),
    "unknown arm": (dict(arms=["plain"]), "'plain' is not defined"),
    "unknown contrast": (dict(contrasts=[["hard", "sof"]]), "'sof' is not defined"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_config_names_the_key(name):
    section, message = BAD[name]
    with pytest.raises(InputError) as error:
        study_config.validate(study(**section), "study.yaml")
    assert message in str(error.value)


def test_an_effort_is_demanded_where_the_dialect_needs_one():
    raw = study()
    raw["models"]["embedded"]["dialect"] = "gpt_oss"
    with pytest.raises(InputError, match="needs one; allowed: low, medium, high"):
        study_config.validate(raw, "study.yaml")
    raw["models"]["embedded"] |= {"dialect": "qwen3", "date": "2025-01-01"}
    with pytest.raises(InputError, match="states no date"):
        study_config.validate(raw, "study.yaml")


def test_an_added_intervention_changes_no_settings_of_another():
    plain = study_config.validate(study(run={"chains_update": ["hard"]}), "a")
    added = {"place": "inside", "text": "Draft: be quick."}
    more = study_config.validate(study(run={"chains_update": ["hard", "draft"]}, interventions={"draft": added}), "a")
    where = ("embedded", "chains_update", "baseline", 0, "hard")
    assert interruption_config.interruption_settings(plain, *where) == interruption_config.interruption_settings(more, *where)
    assert interruption_config.interruption_grading_settings(plain, *where) == interruption_config.interruption_grading_settings(more, *where)
    assert set(more["interruptions"]["interventions"]) == {*SEVEN, "draft"}
    assert interruption_config.bases(more) == ["chains_update"]
    assert study_config.outcomes_settings(plain) == study_config.outcomes_settings(more)


def test_revised_view_asks_the_revised_question():
    benchmark = {"name": "toy", "loader": "chains_update", "answer_kind": "choice", "n": 6}
    frame = items.load(benchmark, 3)
    view = items.revised(frame, "toy")
    assert view["question"].to_list() == frame["revised_question"].to_list() and view["answer"].to_list() == frame["stale_answer"].to_list()
    assert view["item_id"].to_list() == [name.replace("toy/", "toy+revised/") for name in frame["item_id"]]
    tables.conform(view, tables.Items, "view")
    with pytest.raises(InputError, match="update: missing"):
        items.revised(frame.with_columns(update=pl.lit(None, pl.String)), "toy")
