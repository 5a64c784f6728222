"""Reading answers: the many ways to state an option, and the many ways to seem to."""

import threading
import time

import pytest
from builders import item
from hypothesis import given
from hypothesis import strategies as st

from midtrace.grading import grade, grade_math, parse_choice, parse_math

LABELS = list("ABCDEFGHIJ")
CASES = {
    "plain": [
        ("Answer: C", "C"),
        ("Answer:C", "C"),
        ("\n\nAnswer: C\n", "C"),
        ("ANSWER: C", "C"),
        ("The answer is C.", "C"),
        ("The answer is: C", "C"),
        ("The final answer is C", "C"),
        ("Final choice: C", "C"),
        ("The correct option is C", "C"),
        ("The correct choice is (C).", "C"),
        ("answer = C", "C"),
        ("Answer:\n\nC", "C"),
        ("Answer: C. 42", "C"),
        ("Answer: C) 42", "C"),
        ("Answer: C - forty-two", "C"),
        ("Answer: C, as shown.", "C"),
        ("Answer: option C", "C"),
        ("So the answer is letter C", "C"),
    ],
    "markdown": [
        ("**Answer:** C", "C"),
        ("**Answer: C**", "C"),
        ("Answer: **C**", "C"),
        ("The answer is **(C)**.", "C"),
        ("*Answer*: `C`", "C"),
        ("### Answer: __C__", "C"),
        ("**C**", "C"),
    ],
    "LaTeX": [
        (r"\boxed{C}", "C"),
        (r"$\boxed{C}$.", "C"),
        (r"\boxed{\text{C}}", "C"),
        (r"\boxed{\textbf{(C)}}", "C"),
        (r"\boxed{\mathrm{C}. 42}", "C"),
        (r"\boxed{\text{Option C}}", "C"),
        (r"Answer: \(C\)", "C"),
        (r"The answer is $\mathbf{C}$", "C"),
        (r"\boxed{ (C) }", "C"),
        (r"\boxed{42}", None),
        (r"\boxed{a+b}", None),
        (r"\boxed{x}", None),
        (r"\boxed{\alpha}", None),
        (r"\boxed{}", None),
    ],
    "alone": [
        ("C", "C"),
        ("(C)", "C"),
        ("C.", "C"),
        ("[C]", "C"),
        ("$C$", "C"),
        ("c", "C"),
        ("Some words.\n\nC", "C"),
        ('"C"', "C"),
        ("I", "I"),
        ("Cat", None),
    ],
    "JSON": [
        ('{"answer": "C"}', "C"),
        ('{"answer":"c"}', "C"),
        ("{'answer': 'C'}", "C"),
        ('{"final_answer": "C", "why": "option B is wrong"}', "C"),
        ('{"choice": "C"}', "C"),
        ('{"answer": null}', None),
        ('{"answer": "Carbon"}', None),
    ],
    "lower case": [("answer: c", "C"), ("the answer is c.", "C"), ("answer: (c) 42", "C"), ("answer: c\nthanks", "C"), ("answer: a", "A")],
    "the article": [
        ("The answer is a bit unclear", None),
        ("The answer is a prime number.", None),
        ("Answer: A train leaves at noon", None),
        ("Answer: a train", None),
        ("It is an option a person has.", None),
        ("A good question.", None),
        ("The answer is A because 3 < 4", "A"),
        ("The answer is A trivially", "A"),
        ("Answer: A because it fits", "A"),
        ("Answer: A\nbecause it fits", "A"),
        ("Answer: (A) because", "A"),
        ("Option A is correct.", "A"),
        ("I choose option A", "A"),
    ],
    "the pronoun": [
        ("Answer: I think so", None),
        ("The answer is I believe unclear", None),
        ("I think it is hard", None),
        ("Answer: I don't know", None),
        ("The answer is I.", "I"),
        ("Answer: I", "I"),
        ("Option I is correct", "I"),
        ("The answer is I, since 8 is there", "I"),
    ],
    "several": [
        ("Answer: B\nWait.\nAnswer: C", "C"),
        ("The answer is not B. The answer is C.", "C"),
        (r"Answer: B, then \boxed{C}", "C"),
        ("Option B looks right, but the answer is C", "C"),
        ("Answer: C\nOption B is wrong because it is odd.", "C"),
        ("Answer: C\nOption B was a trap", "C"),
        ("Answer: B or C", None),
        ("The answer is B/C", None),
        ("The answer is either B or C", None),
        ("Answer: C and I checked it", "C"),
        ("I like option B and option C", None),
        ("Option B is wrong.", None),
        ("Neither option B nor option C", None),
        ("It cannot be option C.", None),
        ("I choose option C. Yes, option C.", "C"),
    ],
    "nothing": [
        ("", None),
        ("   \n ", None),
        ("I do not know.", None),
        ("Answer:", None),
        ("Answer: 42", None),
        ("Answer: None of the above", None),
        ("Answer: Carbon", None),
        ("Answer: C3", None),
        ("Answer: C's", None),
        ("The answer is not C", None),
        ("The answer isn't C", None),
        ("Answer: C = 2 pi r", None),
        ("A) 3\nB) 4", None),
    ],
}


@pytest.mark.parametrize(("text", "expected"), [case for cases in CASES.values() for case in cases], ids=lambda value: repr(value)[:40])
def test_parse_choice(text, expected):
    assert parse_choice(text, LABELS) == expected


def test_labels_that_the_item_lacks_are_no_answers():
    assert parse_choice("Answer: E", list("ABCD")) is None
    assert parse_choice("E", list("ABCD")) is None
    assert parse_choice("Answer: D", list("ABCD")) == "D"
    # The last statement counts even so: an earlier one was taken back.
    assert parse_choice("Answer: B. No, the answer is E.", list("ABCD")) is None


PIECES = ["answer", "option", "choice", "is", "A", "B", "I", "a", "c", ":", "=", "}", "(", ")", "**", "$", ".", ",", "not", "or", "because", "'", "3"]
WORDS = st.lists(st.sampled_from([*PIECES, '"answer"', "\\boxed{", "\\text{", "\n"]), max_size=14)
FORMS = ["Answer: {}", "**Answer:** {}", "The answer is ({}).", "\\boxed{{{}}}", '{{"answer": "{}"}}']
SPACES = "answer is" + " " * 20_000 + "("


@given(WORDS, st.booleans(), st.integers(0, 10))
def test_never_a_label_outside_the_items(words, spaced, n):
    label = parse_choice((" " if spaced else "").join(words), LABELS[:n])
    assert label is None or label in LABELS[:n]


@given(st.sampled_from(LABELS), st.sampled_from(FORMS), st.data())
def test_text_after_a_final_answer_changes_nothing(label, form, data):
    words = st.sampled_from(["because", "I", "a", "A", "think", "it", "option", "B", "fits", "3.", "was", "not", "C,", "(D)", "\n"])
    after = " ".join(data.draw(st.lists(words, max_size=10)))
    assert parse_choice(f"{form.format(label)}\n{after}", LABELS) == label


@given(st.sampled_from(LABELS), st.sampled_from(["Answer: {}", "The answer is {}.", "**{}**", "option {}", "\\boxed{{\\text{{({})}}}}", "({})"]))
def test_every_label_is_read_alike(label, form):
    assert parse_choice(form.format(label), LABELS) == label


@pytest.mark.parametrize("text", [SPACES, "(" * 20_000, "answer: " + "\\text{" * 4_000, "option A " * 2_000, "\\boxed{" * 1_000])
def test_hostile_text_takes_no_time(text):
    start = time.process_time()
    parse_choice(text, LABELS)
    parse_math(text)
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Answer: 42", "42"),
        ("The answer is 42.", "42"),
        ("**Answer:** 42", "42"),
        ("The answer is **42**.", "42"),
        ("Answer:\n42", "42"),
        ("Answer: 41\nAnswer: 42", "42"),
        ("Answer: 42\nI hope this answers your question", "42"),
        (r"So \boxed{\frac{1}{2}}, the answer is 3", r"\frac{1}{2}"),
        (r"\boxed{1} then \boxed{\sqrt{\frac{1}{2}}}", r"\sqrt{\frac{1}{2}}"),
        ("First\n 6 x 7 = 42 ", "6 x 7 = 42"),
        ("Answer: -3.5", "-3.5"),
        ("", None),
        ("Answer: **", None),
        ("Final answer:\n", None),
    ],
)
def test_parse_math(text, expected):
    assert parse_math(text) == expected


@pytest.mark.parametrize(
    ("text", "gold", "right"),
    [
        ("42", "42", True),
        ("42.0", "42", True),
        ("43", "42", False),
        ("-3", "3", False),
        ("1,234", "1234", True),
        ("007", "7", True),
        ("3/4", r"\frac{3}{4}", True),
        ("0.75", "3/4", True),
        (r"\frac{3}{4}", "0.75", True),
        ("0.74", "3/4", False),
        ("$42$", "42", True),
        ("42 apples", "42", True),
        ("x+1", "1+x", True),
        ("x+2", "1+x", False),
        (r"\sqrt{2}", "1.41421356", True),
        ("", "1", False),
        ("}{", "1", False),
        (r"\frac{", "1", False),
        ("no idea", "1", False),
    ],
)
def test_grade_math(text, gold, right):
    assert grade_math(text, gold) is right


def test_grading_works_in_a_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append((grade_math("1/2", "0.5"), grade_math("2", "3"))))
    thread.start()
    thread.join()
    assert found == [(True, False)]


def test_a_tower_of_powers_does_not_hang(monkeypatch):
    monkeypatch.setattr("midtrace.grading.free_form.COMPARISON_SECONDS", 1)
    start = time.process_time()
    assert grade_math("9^{9^{9^{9}}}", "1") is False
    assert time.process_time() - start < 15


def test_grade():
    assert grade("Answer: D", item(), list("ABCD")) == ("D", True)
    assert grade("Answer: A", item(), list("ABCD")) == ("A", False)
    assert grade("no idea", item(), list("ABCD")) == (None, False)
    free = item(answer_kind="math", answer="0.5", options=[])
    assert grade("Answer: 1/2", free, []) == ("1/2", True)
    assert grade("", free, []) == (None, False)
