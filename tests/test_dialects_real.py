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
    assert dialects.stop_ids(gptoss, dialects.GPT_OSS) == [RETURN, CALL, 199999]
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


COMMENTARY = [START, ASSISTANT, CHANNEL, 12606, 815, MESSAGE]
MALFORMED = {
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


AGAIN = [END, START, ASSISTANT, *A]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [  # (status, reasoning, after how many of its tokens the headers stand, answer)
        ([*A, 11, 12, *AGAIN, 13, END, *F, 3, RETURN], ("terminated", [11, 12, 13], [2] * 6, [3])),
        ([*A, 11, *AGAIN, 12, *AGAIN, 13, 14, END, *F, 3, 4], ("terminated", [11, 12, 13, 14], [1] * 6 + [2] * 6, [3, 4])),
        ([*A, *AGAIN, 11, END, *F, 3, RETURN], ("terminated", [11], [0] * 6, [3])),  # an empty first message
        ([*A, 11, *AGAIN, END, *F, 3, RETURN], ("terminated", [11], [1] * 6, [3])),  # an empty last one
        ([*A, 11, *AGAIN, 12], ("truncated", [11, 12], [1] * 6, [])),
        *[([*A, 11, 12, *AGAIN[:n]], ("truncated", [11, 12], [], [])) for n in range(6)],  # the cap falls into the header
    ],
)
def test_several_analysis_messages_are_one_reasoning(vocabulary, ids, expected):
    status, reasoning, format_after, answer = expected
    found = dialects.split(ids, vocabulary("gptoss"), "gpt_oss")
    assert (found.status, found.problem, found.n_reasoning, found.answer_ids) == (status, None, len(reasoning), answer)
    assert (found.start, found.format_after) == (3, format_after)
    trace = {"output_ids": ids, "reasoning_start": found.start, "n_reasoning": found.n_reasoning, "format_after": format_after}
    assert replay.reasoning_ids(trace) == reasoning
    for n in range(len(reasoning) + 1):
        prefix = replay.prefix_ids([9], ids, found.start, n, found.format_after)
        assert prefix == [9, *ids[: replay.prefix_end(trace, n)]]
        # A prefix ends with its n-th reasoning token and holds whole headers only, so that a forced close may follow.
        assert n == 0 or prefix[-1] == reasoning[n - 1]
        closed = dialects.split([*prefix[1:], END, *F, 3, RETURN], vocabulary("gptoss"), "gpt_oss")
        assert (closed.status, closed.n_reasoning) == ("terminated", n)
    with pytest.raises(ValueError, match="cannot keep"):
        replay.prefix_ids([], ids[:-1] if status == "truncated" and not format_after else ids, found.start, len(ids), found.format_after)


def test_an_answer_in_harmony_ends_at_the_first_of_all_ends(vocabulary):
    tokenizer = vocabulary("gptoss")
    head, endoftext = [*A, 1, END, *F], 199999
    for ids, status, answer in (
        ([*head, 3, RETURN, *A, 4, END, *F, 5, RETURN], "terminated", [3]),
        ([*head, 3, endoftext, 5, RETURN], "terminated", [3]),
        ([*head, 3, START, ASSISTANT, CHANNEL, FINAL, MESSAGE, 5, RETURN], "malformed", [3, START, ASSISTANT, CHANNEL, FINAL, MESSAGE, 5]),
        ([*A, 1, endoftext, END, *F, 3, RETURN], "malformed", []),
    ):
        found = dialects.split(ids, tokenizer, "gpt_oss")
        assert (found.status, found.answer_ids) == (status, answer)
    for marker in (START, END, MESSAGE, CHANNEL, RETURN, CALL, endoftext):
        assert dialects.answer_part([3, 4, marker, 5], tokenizer, dialects.GPT_OSS) == [3, 4]


@pytest.mark.parametrize("name", ["qwen3", "qwen3_2507", "nemotron3", "prefill"])
@pytest.mark.parametrize("end", ["<|im_end|>", "<|endoftext|>", "<|im_start|>"])
def test_an_answer_ends_at_the_first_of_all_ends(vocabulary, name, end):
    tokenizer, dialect = vocabulary("qwen3"), dialects.get(name)
    opening = dialects.opening_ids(tokenizer, dialect)
    close = prompts.plain_ids("</think>", tokenizer) if dialect.spelled else [CLOSE]
    say = {letter: encode(tokenizer, f"\n\nAnswer: {letter}") for letter in "BC"}
    rest = [*encode(tokenizer, end), *say["B"], IM_END]
    found = dialects.split([*opening, 11, 12, *close, *say["C"], *rest], tokenizer, name)
    assert (found.status, found.answer_ids) == ("terminated", say["C"])
    assert dialects.answer_part([*say["C"], *rest], tokenizer, dialect) == say["C"]
    # A second closing behind the end changes nothing; an end inside the reasoning leaves no answer to grade.
    assert dialects.split([*opening, 11, *close, *say["C"], *encode(tokenizer, end), *close, *say["B"]], tokenizer, name) == replace(
        found, n_reasoning=1
    )
    broken = dialects.split([*opening, 11, *encode(tokenizer, end), 12, *close, *say["B"], IM_END], tokenizer, name)
    assert (broken.status, broken.n_reasoning, broken.answer_ids) == ("malformed", 1, [])


def test_an_imported_text_ends_at_the_first_of_all_ends(vocabulary):
    from midtrace.external.importing import _encode
    from midtrace.external.runs import Run

    tokenizer = vocabulary("qwen3")
    rest = "<|endoftext|>Answer: B<|im_end|>"
    for text, reasoning, expected in (
        ("<think>Hm.</think>Answer: C" + rest, None, ("terminated", "Answer: C")),
        ("Answer: C" + rest, "Hm.", ("terminated", "Answer: C")),
        ("<think>Hm." + rest + "</think>Answer: B", None, ("malformed", "")),
    ):
        ids = _encode(Run(item="1", replicate=0, text=text, reasoning=reasoning, finish_reason="stop"), dialects.QWEN3, tokenizer)
        found = dialects.split(ids, tokenizer, "qwen3")
        assert (found.status, tokenizer.decode(found.answer_ids)) == expected
        assert tokenizer.decode(ids[1 : 1 + found.n_reasoning]) == "Hm."
        assert ids[-1] == IM_END


def test_ends_that_the_generation_settings_list(vocabulary):
    from copy import deepcopy

    tokenizer = deepcopy(vocabulary("qwen3"))
    tokenizer.generation_ends = [IM_END, 777]
    assert dialects.stop_ids(tokenizer, dialects.QWEN3) == [IM_END, 151643, 777]
    assert dialects.split([THINK, 1, CLOSE, 2, 777, 3, IM_END], tokenizer, "qwen3").answer_ids == [2]


def test_what_stands_between_the_analysis_messages_of_a_malformed_run_is_format(vocabulary):
    ids = [*A, 11, 12, END, *COMMENTARY, 5, 6, END, START, ASSISTANT, *A, 13, END, *F, 3, END, *F, 4, RETURN]
    found = dialects.split(ids, vocabulary("gptoss"), "gpt_oss")
    assert (found.status, found.start, found.n_reasoning, found.answer_ids) == ("malformed", 3, 3, [3, END, *F, 4])
    assert found.format_after == [2] * (1 + len(COMMENTARY) + 2 + 1 + 2 + len(A))
    assert [replay.prefix_ids([], ids, found.start, n, found.format_after)[-1] for n in range(1, 4)] == [11, 12, 13]


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
