"""Splitting outputs by ids: every shape of format, good and broken."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midtrace import dialects
from midtrace.dialects import EMBEDDED, QWEN3, split
from midtrace.errors import InputError
from midtrace.prompts import plain_ids

IN_PROMPT = dialects.replace(EMBEDDED, name="in_prompt", opening_in_prompt=True)


def ids_of(shape: str, tokenizer) -> list[int]:
    """``o`` opening, ``c`` closing, ``s`` stop, anything else an ordinary token."""
    marks = {"o": "<think>", "c": "</think>", "s": "<|im_end|>"}
    return [dialects.token_id(tokenizer, marks[letter]) if letter in marks else 100 + at for at, letter in enumerate(shape)]


@pytest.mark.parametrize(
    ("shape", "start", "n_reasoning", "status", "n_answer", "problem"),
    [
        ("oxxxcyys", 1, 3, "terminated", 2, None),
        ("oxxxcyy", 1, 3, "terminated", 2, None),  # the cap fell into the answer
        ("oxc", 1, 1, "terminated", 0, None),  # nothing after the closing marker
        ("oxcs", 1, 1, "terminated", 0, None),
        ("oc", 1, 0, "terminated", 0, None),  # no reasoning at all
        ("oxxx", 1, 3, "truncated", 0, None),
        ("o", 1, 0, "truncated", 0, None),
        ("", 0, 0, "malformed", 0, "begin"),
        ("s", 0, 0, "malformed", 0, "begin"),
        ("xxx", 0, 3, "malformed", 0, "begin"),
        ("xoxcy", 0, 3, "malformed", 1, "begin"),  # text before the opening marker
        ("cxos", 0, 0, "malformed", 2, "begin"),  # closing first
        ("xxcyys", 0, 2, "malformed", 2, "begin"),  # no opening
        ("oxoxcys", 1, 3, "malformed", 1, "second opening"),
        ("oxcyoys", 1, 1, "malformed", 3, "second opening"),
        ("ooc", 1, 1, "malformed", 0, "second opening"),
        ("oxcycys", 1, 1, "malformed", 3, "second closing"),
        ("occ", 1, 0, "malformed", 1, "second closing"),
        ("oxxs", 1, 2, "malformed", 0, "stopped inside"),
        ("os", 1, 0, "malformed", 0, "stopped inside"),
    ],
)
def test_split(tokenizer, shape, start, n_reasoning, status, n_answer, problem):
    ids = ids_of(shape, tokenizer)
    found = split(ids, tokenizer, "embedded")
    assert (found.start, found.n_reasoning, found.status, len(found.answer_ids)) == (start, n_reasoning, status, n_answer)
    assert (found.problem is None) == (problem is None)
    assert problem is None or problem in found.problem
    assert ids == ids_of(shape, tokenizer), "the raw ids were touched"


@pytest.mark.parametrize(
    ("shape", "start", "n_reasoning", "status"),
    [
        ("xxcys", 0, 2, "terminated"),
        ("cys", 0, 0, "terminated"),
        ("xx", 0, 2, "truncated"),
        ("", 0, 0, "truncated"),
        ("oxcys", 1, 1, "malformed"),
        ("xoxcys", 0, 3, "malformed"),
        ("xs", 0, 1, "malformed"),
    ],
)
def test_split_where_the_prompt_opens_the_reasoning(tokenizer, shape, start, n_reasoning, status):
    found = split(ids_of(shape, tokenizer), tokenizer, IN_PROMPT)
    assert (found.start, found.n_reasoning, found.status) == (start, n_reasoning, status)


@given(st.text("ocxy", max_size=12), st.booleans(), st.booleans())
def test_split_agrees_with_the_grammar(tokenizer, shape, stopped, in_prompt):
    shape += "s" * stopped
    ids = ids_of(shape, tokenizer)
    found = split(ids, tokenizer, IN_PROMPT if in_prompt else EMBEDDED)
    opening = "" if in_prompt else "o"
    whole, open_ended = re.fullmatch(f"{opening}([xy]*)c([xy]*)s?", shape), re.fullmatch(f"{opening}([xy]*)", shape)
    assert found.status == ("terminated" if whole else "truncated" if open_ended else "malformed")
    assert (found.problem is not None) == (found.status == "malformed")
    reasoning = ids[found.start : found.start + found.n_reasoning]
    assert len(reasoning) == found.n_reasoning >= 0
    assert ids_of("c", tokenizer)[0] not in reasoning
    if whole:
        assert found.n_reasoning == len(whole[1])
        assert found.answer_ids == ids[whole.start(2) : whole.end(2)]


def test_markers_spelled_by_ordinary_tokens_are_not_markers(tokenizer):
    spelled = plain_ids(" </think> <think>", tokenizer)
    assert tokenizer.decode(spelled) == " </think> <think>"
    found = split([*ids_of("ox", tokenizer), *spelled, *ids_of("x", tokenizer)], tokenizer, "embedded")
    assert (found.status, found.n_reasoning) == ("truncated", 2 + len(spelled))


def test_real_ids_of_qwen3(qwen3):
    assert dialects.token_id(qwen3, "<think>") == 151667
    assert dialects.token_id(qwen3, "</think>") == 151668
    assert dialects.stop_ids(qwen3, QWEN3) == [151645, 151643]


def test_unknown_dialect_and_foreign_vocabulary_are_one_clear_line(tokenizer):
    with pytest.raises(InputError, match="'latin' is unknown; allowed: qwen3, embedded"):
        dialects.get("latin")
    foreign = dialects.replace(EMBEDDED, opening="[THINK]")
    with pytest.raises(InputError, match=r"marker '\[THINK\]': is \d+ tokens in this vocabulary; allowed: exactly 1 token"):
        split([1], tokenizer, foreign)
