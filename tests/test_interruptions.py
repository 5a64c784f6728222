"""Interruptions without a model: exact ids of every intervention, cuts, the split of what follows."""

import json
from itertools import pairwise

import pytest
from helpers.builders import ROOT
from helpers.interruptions import FRACTIONS, ITEM, REASONING, SEVEN, record, subject, trace_of

from midtrace import dialects, prompts, replay
from midtrace.errors import InputError
from midtrace.interruptions import interrupt
from midtrace.seeds import interruption_seed

GOLDEN = ROOT / "tests/golden/interruptions.json"
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
    ids = interrupt.insertion_ids(settings, ITEM["update"], dialects.get(dialect), tokenizer)
    said = SAID[name].replace("EARLY", dialects.get(dialect).early_stop)
    around = AROUND[settings["place"]]
    expected = around.get(dialect, around[""]).replace("{said}", said) + ("Answer:" if name == "force_answer" else "")
    assert tokenizer.decode(ids) == expected
    assert said.strip() and said.strip() in tokenizer.decode(ids)


def test_hard_ends_as_qwen3_stops_early(vocabulary):
    tokenizer = vocabulary("qwen3")
    ids = interrupt.insertion_ids(record("hard", "qwen3"), None, dialects.QWEN3, tokenizer)
    assert len(ids) == 24 and ids[-2:] == [151668, 271]


@pytest.mark.parametrize("dialect", ["qwen3", "gpt_oss", "embedded"])
def test_forced_answer_without_a_notice_is_the_probes_prefix(vocabulary, dialect):
    tokenizer = vocabulary(RENDERED[dialect])
    silent = {**record("force_answer", dialect), "text": None}
    assert interrupt.insertion_ids(silent, None, dialects.get(dialect), tokenizer) == prompts.closing_ids(dialects.get(dialect), "Answer:", tokenizer)


@pytest.mark.parametrize(("kind", "stem"), [("choice", "Answer:"), ("math", "\\boxed{"), ("code", "```python\n")])
def test_stem_follows_the_kind_of_answer(vocabulary, kind, stem):
    tokenizer = vocabulary("qwen3")
    ids = interrupt.insertion_ids(record("force_answer", "qwen3", kind), None, dialects.QWEN3, tokenizer)
    stem_ids = tokenizer.encode(stem, add_special_tokens=False)
    assert ids[-len(stem_ids) :] == stem_ids and ids[: -len(stem_ids)] == interrupt.insertion_ids(
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
    ids = interrupt.insertion_ids(rogue, None, dialects.QWEN3, tokenizer)
    assert not {151668, 151645} & set(ids) and tokenizer.decode(ids) == rogue["text"]
    told = interrupt.insertion_ids(record("update_user", "qwen3"), "Say <|im_start|>", dialects.QWEN3, tokenizer)
    plain = interrupt.insertion_ids(record("update_user", "qwen3"), "Say it", dialects.QWEN3, tokenizer)
    assert told.count(151644) == plain.count(151644)


@pytest.mark.parametrize("update", [None, "", "  "])
def test_update_item_without_update_is_an_error(vocabulary, update):
    with pytest.raises(InputError, match="update: missing"):
        interrupt.insertion_ids(record("update", "qwen3"), update, dialects.QWEN3, vocabulary("qwen3"))


@pytest.mark.parametrize("text", [None, "", " \n"])
def test_inserting_nothing_is_an_error(vocabulary, text):
    with pytest.raises(InputError, match="inserts nothing"):
        interrupt.insertion_ids({"name": "x", "place": "inside", "text": text, "stem": None}, None, dialects.QWEN3, vocabulary("qwen3"))


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
    cuts = list(interrupt.cuts_for(trace, asked, tokenizer))
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
    assert not list(interrupt.cuts_for(trace_of(tokenizer, dialects.QWEN3, status=status), {"fractions": FRACTIONS}, tokenizer))


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
    found = interrupt.split_continuation(place, kept, inserted, output, vocabulary(RENDERED[dialect]), dialects.get(dialect))
    assert (found.added, found.answer, found.status) == expected
    assert (found.problem is not None) == (found.status == "malformed")


def test_content_leaves_white_space_out(vocabulary):
    tokenizer = vocabulary("qwen3")
    ids = tokenizer.encode("\n\nAnswer: B\n", add_special_tokens=False)
    assert tokenizer.decode(interrupt.content(ids, tokenizer)) == "Answer: B"
    assert interrupt.content(tokenizer.encode("\n\n", add_special_tokens=False), tokenizer) == []
    assert interrupt.content([], tokenizer) == []
