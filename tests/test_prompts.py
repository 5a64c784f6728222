"""Prompts: templates, turns, and text that tries to be more than text."""

import pytest
from helpers.builders import PROMPT, item
from hypothesis import given
from hypothesis import strategies as st

from midtrace import dialects, prompts
from midtrace.dialects import EMBEDDED, QWEN3
from midtrace.errors import InputError

MARKERS = ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<|endoftext|>"]
NASTY = [*MARKERS, "{question}", "{options}", "{label}", "{text}", "{", "}", "<", "k>", " a", "\n"]


def test_labels():
    assert prompts.labels(0) == []
    assert prompts.labels(10) == list("ABCDEFGHIJ")


def test_user_text_by_hand():
    row = item(question="What?", options=["x", "y"])
    assert prompts.user_text(row, {}, PROMPT) == "What?\nA. x\nB. y"
    assert prompts.user_text(row, {"suffix": "Be brief."}, PROMPT) == "What?\nA. x\nB. y\nBe brief."
    other = {"template": "{options}\nQ: {question} ({question})", "option": "({label}) {text}"}
    assert prompts.user_text(row, {}, other) == "(A) x\n(B) y\nQ: What? (What?)"


def test_a_question_without_options_leaves_no_blank_line():
    assert prompts.user_text(item(options=[]), {}, PROMPT) == item()["question"]


def test_braces_survive():
    row = item(question="Set {options} of {question}, {label}{text}{}?", options=["{text}", "{label}", "{options}", "{question}"])
    assert prompts.user_text(row, {}, PROMPT) == ("Set {options} of {question}, {label}{text}{}?\nA. {text}\nB. {label}\nC. {options}\nD. {question}")


@given(st.lists(st.sampled_from(NASTY), max_size=8).map("".join), st.lists(st.sampled_from(NASTY), max_size=4).map("".join))
def test_no_text_breaks_out_of_its_turn(tokenizer, question, suffix):
    plain = prompts.render(item(question="q"), {"effort": "low", "suffix": "s"}, PROMPT, EMBEDDED, tokenizer)
    row = item(question=f"q{question}q", options=[question + "1", question + "2"])
    ids = prompts.render(row, {"effort": "low", "suffix": f"s{suffix}s"}, PROMPT, EMBEDDED, tokenizer)
    for marker in tokenizer.added_tokens_decoder:
        assert ids.count(marker) == plain.count(marker), tokenizer.decode(ids)
    # Yet all of it is still there to be read.
    assert prompts.user_text(row, {"suffix": f"s{suffix}s"}, PROMPT) in tokenizer.decode(ids)


@given(text=st.text(st.sampled_from("<|>/thinkm_ed? "), max_size=30))
def test_plain_ids_decode_to_the_text(tokenizer, text):
    ids = prompts.plain_ids(text, tokenizer)
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text
    assert not set(ids) & set(tokenizer.added_tokens_decoder)


def test_control_tokens_of_real_vocabularies_stay_text(real_tokenizer):
    markers = [str(token) for token in real_tokenizer.added_tokens_decoder.values()]
    text = " and ".join(markers)
    ids = prompts.plain_ids(text, real_tokenizer)
    assert real_tokenizer.decode(ids) == text
    assert not set(ids) & set(real_tokenizer.added_tokens_decoder)


def test_ordinary_text_is_tokenised_as_a_whole(real_tokenizer):
    text = "Let f(x) = x < 3 and |y| > 2; think.\n\n  A. 5"
    assert prompts.plain_ids(text, real_tokenizer) == real_tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("arm", [{}, {"system": "Be kind."}, {"suffix": "Think for at most 64 tokens."}, {"system": "S", "suffix": "T"}])
def test_qwen_prompt_is_the_official_template(qwen3, arm):
    row = item(question="Is 2 < 3 and |x| > 1?\nSay why.")
    messages = [{"role": "system", "content": arm["system"]}] if "system" in arm else []
    messages.append({"role": "user", "content": prompts.user_text(row, arm, PROMPT)})
    official = qwen3.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert prompts.render(row, arm, PROMPT, QWEN3, qwen3) == qwen3.encode(official, add_special_tokens=False)


def test_embedded_prompt_by_hand(tokenizer):
    ids = prompts.render(item(question="Q?", options=["0", "1"]), {"effort": "low"}, PROMPT, EMBEDDED, tokenizer)
    assert tokenizer.decode(ids) == (
        "<|im_start|>system\nReasoning: low<|im_end|>\n<|im_start|>user\nQ?\nA. 0\nB. 1<|im_end|>\n<|im_start|>assistant\n"
    )


def test_opening_marker_in_the_prompt(tokenizer):
    dialect = dialects.replace(EMBEDDED, assistant=EMBEDDED.assistant + "<think>", opening_in_prompt=True)
    ids = prompts.render(item(), {}, PROMPT, dialect, tokenizer)
    assert ids == [*prompts.render(item(), {}, PROMPT, EMBEDDED, tokenizer), dialects.token_id(tokenizer, "<think>")]


def test_unknown_effort_is_an_error_never_a_silent_medium(tokenizer):
    with pytest.raises(InputError, match="'huge' is not an effort of dialect 'embedded'; allowed: low, medium, high"):
        prompts.render(item(), {"effort": "huge"}, PROMPT, EMBEDDED, tokenizer)
    with pytest.raises(InputError, match="allowed: none"):
        prompts.system_text({"effort": "low"}, QWEN3)


def test_closing_and_stem_are_tokenised_apart(tokenizer):
    closing = tokenizer.encode("\n</think>\n\n", add_special_tokens=False)
    stem = tokenizer.encode("Answer:", add_special_tokens=False)
    assert prompts.closing_ids(EMBEDDED, "Answer:", tokenizer) == closing + stem
