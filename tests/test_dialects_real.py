"""Dialects on real vocabularies: the exact ids, the split by ids, and every malformed shape."""

from dataclasses import replace

import pytest

from midtrace import dialects, probe, prompts, replay
from midtrace.errors import InputError
from midtrace.generation import first_drift

ITEM = {"question": "What is 2 + 2?", "options": ["3", "4"]}
BENCHMARK = {"template": "{question}\n{options}", "option": "{label}. {text}"}
THINK, CLOSE, IM_END = 151667, 151668, 151645
START, END, MESSAGE, CHANNEL, CONSTRAIN, RETURN, CALL = 200006, 200007, 200008, 200005, 200003, 200002, 200012
ANALYSIS, FINAL, ASSISTANT = 35644, 17196, 173781


def encode(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False)


def text_of(tokenizer, dialect, **arm):
    return tokenizer.decode(prompts.render(ITEM, arm, BENCHMARK, dialects.get(dialect), tokenizer))


def test_ids_of_the_markers(vocabulary):
    qwen3, gptoss = vocabulary("qwen3"), vocabulary("gptoss")
    assert [dialects.token_id(qwen3, text) for text in ("<think>", "</think>", "<|im_end|>")] == [THINK, CLOSE, IM_END]
    assert dialects.opening_ids(gptoss, dialects.GPT_OSS) == [CHANNEL, ANALYSIS, MESSAGE]
    assert prompts.closing_ids(dialects.GPT_OSS, "", gptoss) == [END, START, ASSISTANT, CHANNEL, FINAL, MESSAGE]
    assert prompts.closing_ids(dialects.QWEN3, "", qwen3) == [198, CLOSE, 271]
    assert dialects.stop_ids(gptoss, dialects.GPT_OSS) == [RETURN, CALL]
    assert encode(gptoss, "<|constrain|>") == [CONSTRAIN]


def test_early_stop_is_qwens_own_string(vocabulary):
    ids = prompts.closing_ids(dialects.QWEN3, "", vocabulary("qwen3"), notice=dialects.QWEN3.early_stop)
    published = "\n\nConsidering the limited time by the user, I have to give the solution based on the thinking directly now.\n</think>\n\n"
    assert ids == encode(vocabulary("qwen3"), published)
    assert len(ids) == 24 and ids[-2:] == [CLOSE, 271]


@pytest.mark.parametrize("name", ["qwen3", "gptoss"])
def test_spellings_of_ten_labels(vocabulary, name):
    tokenizer, labels = vocabulary(name), prompts.labels(10)
    found = probe.spellings(tokenizer, labels)
    for label in labels:
        assert {encode(tokenizer, label)[0], encode(tokenizer, f" {label}")[0]} <= set(found[label])
        assert all(tokenizer.decode([i]).strip() == label for i in found[label])
    every = [i for ids in found.values() for i in ids]
    assert len(every) == len(set(every))


def test_qwen3_prompt_is_the_published_template(vocabulary):
    tokenizer = vocabulary("qwen3")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": prompts.user_text(ITEM, {}, BENCHMARK)}]
    published = tokenizer.apply_chat_template(messages, add_generation_prompt=True, enable_thinking=True, tokenize=False)
    ids = prompts.render(ITEM, {"system": "Be brief."}, BENCHMARK, dialects.QWEN3, tokenizer)
    assert ids == encode(tokenizer, published)
    assert prompts.render(ITEM, {"system": "Be brief."}, BENCHMARK, dialects.QWEN3_2507, tokenizer) == [*ids, THINK, 198]


def test_harmony_prompt(vocabulary):
    tokenizer = vocabulary("gptoss")
    head = "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06"
    tail = "\n\nReasoning: low\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>"
    user = "<|start|>user<|message|>What is 2 + 2?\nA. 3\nB. 4<|end|><|start|>assistant"
    assert text_of(tokenizer, "gpt_oss", effort="low") == head + tail + user
    instructions = "<|start|>developer<|message|># Instructions\n\nBe brief.<|end|>"
    assert text_of(tokenizer, "gpt_oss", effort="low", system="Be brief.") == head + tail + instructions + user
    dated = prompts.render(ITEM, {"effort": "low"}, {**BENCHMARK, "date": "2025-06-28"}, dialects.GPT_OSS, tokenizer)
    assert tokenizer.decode(dated) == head + "\nCurrent date: 2025-06-28" + tail + user


@pytest.mark.parametrize("effort", [None, "extreme", "Medium"])
def test_unknown_effort_is_an_error(vocabulary, effort):
    with pytest.raises(InputError, match="low, medium, high"):
        prompts.render(ITEM, {"effort": effort}, BENCHMARK, dialects.GPT_OSS, vocabulary("gptoss"))
    if effort:
        with pytest.raises(InputError, match="allowed: none"):
            prompts.render(ITEM, {"effort": effort}, BENCHMARK, dialects.QWEN3, vocabulary("qwen3"))


def test_prompts_of_the_other_dialects(vocabulary):
    qwen3 = vocabulary("qwen3")
    assert text_of(qwen3, "nemotron3").startswith("<|im_start|>system\n/think<|im_end|>\n<|im_start|>user\n")
    assert text_of(qwen3, "nemotron3", system="Be brief.").startswith("<|im_start|>system\n/think\n\nBe brief.<|im_end|>\n")
    assert text_of(qwen3, "prefill").endswith("<|im_start|>assistant\n<think>\n")
    smollm2 = text_of(qwen3, "smollm2")
    assert smollm2.startswith(
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n<|im_start|>user\n"
    )
    assert smollm2.endswith("<|im_end|>\n<|im_start|>assistant\nReasoning:")
    # Their markers are not tokens of this vocabulary, but their text is the same in any.
    user = "What is 2 + 2?\nA. 3\nB. 4"
    deepseek = text_of(qwen3, "deepseek_r1", system="Be brief.")
    assert deepseek == f"<｜begin▁of▁sentence｜>Be brief.<｜User｜>{user}<｜Assistant｜><think>\n"
    magistral = text_of(qwen3, "magistral", system="Be brief.")
    assert magistral.startswith("<s>[SYSTEM_PROMPT]First draft your thinking process")
    assert magistral.endswith(f"self-contained response.\n\nBe brief.[/SYSTEM_PROMPT][INST]{user}[/INST]")


@pytest.mark.parametrize("name", dialects.DIALECTS)
def test_records_are_whole(name):
    dialect = dialects.get(name)
    assert dialect.closing.count(dialect.closing_marker) == 1
    assert dialect.turn_end.count(dialect.closing_marker) == 1, "a user turn from inside the reasoning closes it"
    assert dialect.user.count("{text}") == dialect.system.count("{text}") == 1
    assert (dialect.opening in dialect.assistant) == dialect.opening_in_prompt
    assert dialect.early_stop.strip() and dialect.stop
    assert bool(dialect.efforts) == bool(dialect.effort_system or dialect.needs_effort)


def test_unknown_dialect_and_foreign_vocabulary(vocabulary):
    with pytest.raises(InputError, match="gpt_oss"):
        dialects.get("harmony")
    with pytest.raises(InputError, match="tokens in this vocabulary"):
        dialects.split([1, 2], vocabulary("qwen3"), "magistral")


@pytest.mark.parametrize("marker", ["</think>", "<|im_end|>", "<think>"])
def test_a_question_cannot_break_out_of_its_turn(vocabulary, marker):
    tokenizer = vocabulary("qwen3")
    ids = prompts.render({**ITEM, "question": f"Say {marker} twice"}, {}, BENCHMARK, dialects.QWEN3, tokenizer)
    plain = prompts.render(ITEM, {}, BENCHMARK, dialects.QWEN3, tokenizer)
    token = dialects.token_id(tokenizer, marker)
    assert ids.count(token) == plain.count(token)
    assert marker in tokenizer.decode(ids)


# --- one block between markers -------------------------------------------------------------------------------------------------------

BLOCKS = {
    "qwen3": [([THINK, 1, 2, CLOSE, 271, 3, IM_END], (1, 2, "terminated", [271, 3])), ([THINK, 1, 2], (1, 2, "truncated", []))],
    "qwen3_2507": [([1, 2, CLOSE, 271, 3, IM_END], (0, 2, "terminated", [271, 3])), ([1, 2], (0, 2, "truncated", []))],
    "nemotron3": [([1, 2, CLOSE, 3], (0, 2, "terminated", [3])), ([CLOSE, 3], (0, 0, "terminated", [3]))],
}


@pytest.mark.parametrize(("name", "ids", "expected"), [(name, *case) for name, cases in BLOCKS.items() for case in cases])
def test_block_is_split_by_ids(vocabulary, name, ids, expected):
    found = dialects.split(ids, vocabulary("qwen3"), name)
    assert (found.start, found.n_reasoning, found.status, found.answer_ids) == expected
    assert found.problem is None


@pytest.mark.parametrize(
    ("name", "ids", "problem"),
    [
        ("qwen3", [], "does not begin"),
        ("qwen3", [1, 2, CLOSE, 3, IM_END], "does not begin"),
        ("qwen3", [1, THINK, 2, CLOSE, 3], "does not begin"),
        ("qwen3", [THINK, 1, IM_END], "stopped inside"),
        ("qwen3", [THINK, 1, THINK, 2, CLOSE, 3], "second opening"),
        ("qwen3", [THINK, 1, CLOSE, 2, CLOSE, 3], "second closing"),
        ("qwen3", [THINK, 1, CLOSE, 2, THINK, 3], "second opening"),
        ("qwen3_2507", [THINK, 1, CLOSE, 2, IM_END], "in the prompt and again"),
        ("qwen3_2507", [1, IM_END], "stopped inside"),
    ],
)
def test_broken_block_is_flagged(vocabulary, name, ids, problem):
    found = dialects.split(ids, vocabulary("qwen3"), name)
    assert found.status == "malformed" and problem in found.problem
    assert 0 <= found.start <= found.start + found.n_reasoning <= len(ids)


def test_a_marker_in_words_is_no_marker(vocabulary):
    tokenizer = vocabulary("qwen3")
    words = prompts.plain_ids("so I write </think> and <|im_end|> here", tokenizer)
    found = dialects.split([THINK, *words, CLOSE, 271, 3, IM_END], tokenizer, "qwen3")
    assert (found.n_reasoning, found.status) == (len(words), "terminated")
    gptoss = vocabulary("gptoss")
    words = prompts.plain_ids("assistantfinal <|channel|>final<|message|> <|end|>", gptoss)
    found = dialects.split([CHANNEL, ANALYSIS, MESSAGE, *words], gptoss, "gpt_oss")
    assert (found.n_reasoning, found.status) == (len(words), "truncated")


@pytest.mark.parametrize("closing", ["</think>\n\n", ".</think>", "\n</think>\n\n"])
def test_spelled_marker_is_found_whatever_it_merges_with(vocabulary, closing):
    tokenizer = vocabulary("qwen3")
    before, marker, after = closing.partition("</think>")
    ids = prompts.plain_ids(f"Two and two is four{before}", tokenizer) + prompts.plain_ids(f"{marker}{after}Answer: B", tokenizer)
    assert CLOSE not in ids
    found = dialects.split([*ids, IM_END], tokenizer, "prefill")
    assert found.status == "terminated"
    assert tokenizer.decode(ids[: found.n_reasoning]) == f"Two and two is four{before}"
    assert tokenizer.decode(found.answer_ids).strip() == "Answer: B"


def test_spelled_marker_inside_a_larger_token(vocabulary):
    tokenizer, dialect = vocabulary("gptoss"), replace(dialects.PREFILL, stop=("<|return|>",))
    ids = encode(tokenizer, "four.</think>\n\nB")
    found = dialects.split([*ids, RETURN], tokenizer, dialect)
    assert (found.status, tokenizer.decode(found.answer_ids).strip()) == ("terminated", "B")
    assert tokenizer.decode(ids[: found.n_reasoning]) == "four", "a token that holds the first character of the marker belongs to it"
    glued = encode(tokenizer, "four.</think>B")
    assert tokenizer.decode(glued[-1:]) == ">B"
    assert "shares a token" in dialects.split([*glued, RETURN], tokenizer, dialect).problem


def test_a_phrase_ends_the_reasoning_of_smollm2(vocabulary):
    tokenizer = vocabulary("qwen3")
    ids = encode(tokenizer, " Two and two is four.\nThe answer is option B.<|im_end|>")
    found = dialects.split(ids, tokenizer, "smollm2")
    assert (found.status, tokenizer.decode(ids[: found.n_reasoning]), tokenizer.decode(found.answer_ids)) == (
        "terminated",
        " Two and two is four.\n",
        " option B.",
    )
    assert ids[found.n_reasoning :][: len(encode(tokenizer, "The answer is"))] == encode(tokenizer, "The answer is")


def test_spelled_marker_missing(vocabulary):
    tokenizer = vocabulary("qwen3")
    ids = encode(tokenizer, "Two and two is four")
    assert dialects.split(ids, tokenizer, "prefill").status == "truncated"
    assert "stopped inside" in dialects.split([*ids, IM_END], tokenizer, "prefill").problem


# --- messages with channels ----------------------------------------------------------------------------------------------------------

A = [CHANNEL, ANALYSIS, MESSAGE]
F = [START, ASSISTANT, CHANNEL, FINAL, MESSAGE]


def test_harmony_is_split_by_ids(vocabulary):
    tokenizer = vocabulary("gptoss")

    def split(ids):
        found = dialects.split(ids, tokenizer, "gpt_oss")
        assert found.problem is None
        return found.start, found.n_reasoning, found.status, found.answer_ids

    assert split([*A, 1, 2, END, *F, 3, 4, RETURN]) == (3, 2, "terminated", [3, 4])
    assert split([*A, 1, 2, END, *F, 3, 4]) == (3, 2, "terminated", [3, 4])
    assert split([*A, END, *F, 3, RETURN]) == (3, 0, "terminated", [3])
    assert split([*A, 1, 2]) == (3, 2, "truncated", [])
    for n in range(len(F)):  # the cap may fall anywhere in the change of channels
        assert split([*A, 1, 2, END, *F[:n]]) == (3, 2, "truncated", [])


MALFORMED = {
    "several analysis messages": ([*A, 1, END, START, ASSISTANT, *A, 2, END, *F, 3, RETURN], (3, 8), [3], "analysis, analysis, final"),
    "a commentary channel": (
        [*A, 1, END, START, ASSISTANT, CHANNEL, 12606, 815, MESSAGE, 2, END, *F, 3, RETURN],
        (3, 1),
        [3],
        "analysis, commentary",
    ),
    "a tool call": ([*A, 1, END, START, ASSISTANT, CHANNEL, 12606, 815, CONSTRAIN, 4108, MESSAGE, 2, CALL], (3, 1), [], "ended by <|call|>"),
    "a direct final": ([CHANNEL, FINAL, MESSAGE, 3, RETURN], (0, 0), [3], "are: final"),
    "a missing message marker": ([CHANNEL, ANALYSIS, 1, 2, END, *F, 3, RETURN], (0, 0), [3], "without <|message|>, final"),
    "repeated finals": ([*A, 1, END, *F, 3, END, *F, 4, RETURN], (3, 1), [3, END, *F, 4], "analysis, final, final"),
    "no channel": ([1, 2, RETURN], (0, 0), [], "without <|message|>"),
    "a message without a channel": ([MESSAGE, 1, END, *F, 3, RETURN], (0, 0), [3], "without a channel, final"),
    "a missing end": ([*A, 1, *F, 3, RETURN], (3, 1), [3], "analysis, final"),
    "a stop inside the analysis": ([*A, 1, RETURN], (3, 1), [], "are: analysis"),
    "a call inside the analysis": ([*A, 1, CALL], (3, 1), [], "analysis; ended by <|call|>"),
    "a call instead of a return": ([*A, 1, END, *F, 3, CALL], (3, 1), [3], "ended by <|call|>"),
    "the channel in other tokens": ([CHANNEL, 8878, 10311, MESSAGE, 1, END, *F, 3, RETURN], (0, 0), [3], "final"),
    "nothing": ([], (0, 0), [], "are: none"),
}


@pytest.mark.parametrize("shape", MALFORMED)
def test_malformed_harmony_is_flagged_and_kept(vocabulary, shape):
    ids, (start, n), answer, problem = MALFORMED[shape]
    found = dialects.split(ids, vocabulary("gptoss"), "gpt_oss")
    assert found.status == "malformed" and problem in found.problem
    assert (found.start, found.n_reasoning) == (start, n)
    assert found.answer_ids == answer


# --- ids are the truth ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["qwen3", "gptoss"])
def test_round_trip_that_changes_ids(vocabulary, name):
    tokenizer = vocabulary(name)
    canonical = encode(tokenizer, "the answer is unknown")
    sampled = encode(tokenizer, "the answer is un") + encode(tokenizer, "known")
    assert tokenizer.decode(sampled) == tokenizer.decode(canonical) and sampled != canonical
    assert first_drift(canonical, tokenizer) is None
    at = first_drift(sampled, tokenizer)
    assert at is not None and sampled[:at] == canonical[:at]
    assert replay.prefix_ids([9], sampled, 0, at + 1) == [9, *sampled[: at + 1]]


@pytest.mark.parametrize("name", ["qwen3", "gptoss"])
def test_cut_inside_a_character(vocabulary, name):
    tokenizer = vocabulary(name)
    ids = encode(tokenizer, "x 𓀀 y")
    cuts = [n for n in range(1, len(ids)) if "\ufffd" in tokenizer.decode(ids[:n])]
    assert cuts, "the character takes several tokens in this vocabulary"
    for n in cuts:
        assert replay.prefix_ids([], ids, 0, n) == ids[:n]
        assert encode(tokenizer, tokenizer.decode(ids[:n])) != ids[:n], "re-encoding text would have changed the prefix"
    dialect = "qwen3_2507" if name == "qwen3" else "gpt_oss"
    opening = dialects.opening_ids(tokenizer, dialects.get(dialect))
    found = dialects.split([*opening, *ids[: cuts[0]]], tokenizer, dialect)
    assert (found.status, found.n_reasoning) == ("truncated", cuts[0])
