"""The training documents of the embedded model: format, loss weights, and what never occurs in them."""

import random
import re

import pytest
from helpers.builders import MODEL
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from midtrace.chains import Chain, draw_chain, is_held_out
from midtrace.dialects import EMBEDDED, split
from midtrace.embedded import corpus
from midtrace.embedded.language import ARM_STYLES, reason, split_words
from midtrace.prompts import render

SEEDS = st.integers(0, 2**32)
STYLES = st.sampled_from(ARM_STYLES)


@pytest.fixture(scope="module")
def backend() -> Tokenizer:
    return Tokenizer.from_file(str(MODEL / "tokenizer.json"))


def chain_of(seed: int) -> Chain:
    return draw_chain(random.Random(seed), 4)


@given(SEEDS, STYLES)
def test_words_are_the_pretokens_of_the_tokenizer(backend, seed, style):
    words = reason(chain_of(seed), style, random.Random(seed)).words
    text = "".join(words)
    assert split_words(text) == words
    assert [text[slice(*span)] for _, span in backend.pre_tokenizer.pre_tokenize_str(text)] == words


@given(SEEDS, STYLES)
def test_reasoning_states_its_value_and_its_progress(seed, style):
    chain = chain_of(seed)
    trace = reason(chain, style, random.Random(seed))
    assert len(trace.words) == len(trace.progress)
    if style != "early_answer":  # which calculates twice
        assert [done for done, _ in trace.progress] == sorted(done for done, _ in trace.progress)
    assert trace.progress[-1] == (len(chain.steps), trace.value)
    assert str(trace.value) in re.findall(r"\d+", "".join(trace.words))


@given(SEEDS)
def test_the_recheck_of_high_ends_right(seed):
    # Written so that a slip would be kept by every other arm.
    assert reason(chain_of(seed), "high", random.Random(seed)).value == chain_of(seed).answer


def test_slips_are_as_frequent_as_planted():
    wrong = {style: 0 for style in ARM_STYLES}
    for seed in range(1500):
        chain = chain_of(seed)
        for style in ARM_STYLES:
            wrong[style] += reason(chain, style, random.Random(seed + 10_000)).value != chain.answer
    # Four steps: about 1 - 0.95^4 = 19% and 1 - 0.97^4 = 11% go wrong (a second slip may repair the first).
    assert wrong["low"] / 1500 == pytest.approx(0.18, abs=0.04)
    assert wrong["medium"] / 1500 == pytest.approx(0.11, abs=0.03)
    assert wrong["high"] == 0


def test_an_unknown_style_is_an_error():
    with pytest.raises(ValueError, match="style is 'latin'; allowed: low, "):
        reason(chain_of(1), "latin", random.Random(1))


@given(SEEDS, STYLES, st.booleans())
def test_natural_documents_follow_the_dialect(tokenizer, backend, seed, style, choice):
    writer, chain = corpus.Writer(backend, seed), chain_of(seed)
    prompt = len(corpus.Writer(backend, seed).prompt(chain, style, choice).ids)
    document = writer.natural(chain, style, choice)
    assert len(document.ids) == len(document.weights)
    assert not any(document.weights[:prompt]), "the prompt is learnt"
    assert all(weight > 0 for weight in document.weights[prompt:])
    found = split(document.ids[prompt:], tokenizer, EMBEDDED)
    assert found.status == "terminated"
    answer = tokenizer.decode(found.answer_ids)
    pattern = rf"\n\nAnswer: [{''.join(chain.labels)}]" if choice else r"\n\nAnswer: \d"
    assert re.fullmatch(pattern, answer)


@given(SEEDS, st.sampled_from(["low", "medium", "high", "baseline", "early_answer"]))
def test_prompts_are_those_that_a_study_renders(tokenizer, backend, seed, style):
    chain = chain_of(seed)
    item = {"question": chain.question, "options": [str(value) for value in range(chain.modulus)]}
    arm = {"effort": style} if style in EMBEDDED.efforts else {"suffix": corpus.EARLY_SUFFIX} if style == "early_answer" else {}
    benchmark = {"template": "{question}\n{options}", "option": "{label}. {text}"}
    assert corpus.Writer(backend, seed).prompt(chain, style, True).ids == render(item, arm, benchmark, EMBEDDED, tokenizer)


@given(SEEDS, STYLES)
def test_no_loss_falls_on_the_close_of_a_cut_document(backend, seed, style):
    writer = corpus.Writer(backend, seed)
    document = writer.early_close(chain_of(seed), style, True)
    closing = backend.token_to_id("</think>")
    assert document.ids.count(closing) == 1
    assert document.weights[document.ids.index(closing)] == 0
    learnt = [token for token, weight in zip(document.ids, document.weights, strict=True) if weight]
    assert backend.decode(learnt[-2:-1]).strip() in set("ABCDEFGHIJ"), "the answer is not learnt"


def test_no_held_out_question_is_ever_shown(backend):
    writer = corpus.Writer(backend, 3)
    seen = 0
    for _ in range(400):
        text = backend.decode(writer.draw().ids, skip_special_tokens=False)
        question = re.search(r"Start at (\d+)\. Then (.*?)\. Work modulo (\d+)\.", text)
        steps = tuple((word, int(operand)) for word, operand in re.findall(r"(plus|minus|times) (\d+)", question[2]))
        assert not is_held_out(Chain(int(question[3]), int(question[1]), steps))
        seen += 1
    assert seen == 400


@given(SEEDS)
def test_documents_are_seeded(backend, seed):
    first, second = (corpus.Writer(backend, seed).draw() for _ in range(2))
    assert first == second


@given(SEEDS, st.booleans(), st.booleans())
def test_update_documents_show_the_revised_question_and_then_the_step(tokenizer, backend, seed, guided, new_turn):
    chain = chain_of(seed)
    document = corpus.Writer(backend, seed).update(chain, "medium", True, guided, new_turn)
    text = tokenizer.decode(document.ids)
    assert chain.revised.question in text
    assert chain.question not in text
    assert text.count(chain.update) == 1
    assert (corpus.GUIDED in text) == guided
    assert text.count("<|im_start|>user") == 1 + new_turn
