"""Reading answers: the many ways to state an option, and the many ways to seem to."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midtrace.grading import parse_choice, parse_math

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
        ("The answer is therefore C.", "C"),
        ("The answer must be C", "C"),
        ("Hence the correct answer will be (C).", "C"),
        ("Answer - C.", "C"),
        ("ANS:C", "C"),
        ("The answer is most likely C.", "C"),
        ("The answer is, indeed, C.", "C"),
        ("The correct letter is C", "C"),
        ("Letter: C", "C"),
        ("I choose C.", "C"),
        ("I would go with option (C)", "C"),
        ("I'm going with **C**", "C"),
        ("Therefore I select C, because 6 x 7 = 42.", "C"),
        ("<answer>C</answer>", "C"),
        ("<final_answer> (C) </final_answer>", "C"),
        ("答案：C", "C"),
        ("答案是 C。", "C"),
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
        ("### Answer\n\nC", "C"),
        ("### Final answer\n**C. 42**", "C"),
        ("**Final Answer**\n\n(C) 42", "C"),
        ("Final answer:\n> **C**", None),
        ("- **Answer**: (C) 42", "C"),
        ("| Answer: | C |", None),
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
        (r"\boxed{\text{Answer: C}}", "C"),
        (r"The answer is $\boxed{\text{C}}$", "C"),
        (r"\[\boxed{C}\]", "C"),
        (r"Answer: $\text{(C)}$", "C"),
        (r"\textbf{Answer: C}", "C"),
        (r"\boxed{B, C}", None),
        (r"\boxed{B} \text{ or } \boxed{C}", "C"),
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
        ("C. 42", "C"),
        ("(C) 42 apples", "C"),
        ("**C) 42**", "C"),
        ("C: forty-two", "C"),
        ("A. Smith or B. Jones", "A"),
        ("c. 42", None),
        ("C or D", None),
        ("Reasons first.\nC. 42", None),
    ],
    "praised": [
        ("C is correct.", "C"),
        ("(C) is the correct answer", "C"),
        ("So C is the right option.", "C"),
        ("**C** is the best answer.", "C"),
        ("C is clearly correct", "C"),
        ("C is not correct", None),
        ("C is incorrect", None),
        ("Vitamin C is the right one.", None),
        ("Hepatitis B is the best answer to that.", None),
        ("It follows that C is correct.", "C"),
        ("Only (C) is correct", "C"),
        ("A is correct, and so B is correct", None),
        ("Statement A is correct. Answer: D", "D"),
    ],
    "JSON": [
        ('{"answer": "C"}', "C"),
        ('{"answer":"c"}', "C"),
        ("{'answer': 'C'}", "C"),
        ('{"final_answer": "C", "why": "option B is wrong"}', "C"),
        ('{"choice": "C"}', "C"),
        ('{"answer_letter": "C"}', "C"),
        ('{"correct_option": "C", "confidence": 0.9}', "C"),
        ('{"reasoning": "A or B?", "answer": ["C"]}', "C"),
        ('```json\n{"answer": "C"}\n```', "C"),
        ('{\n  "answer": "(C) 42"\n}', "C"),
        ('{"answer": "B"}\n{"answer": "C"}', "C"),
        ('{"answer": null}', None),
        ('{"answer_index": 2}', None),
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
        ("Answer: B, C", None),
        ("The answer is A, B and D", None),
        ("Answer: C & D", None),
        ("Answer: C, not B", "C"),
        ("Answer: C, which rules out B", "C"),
        ("First I chose B. Then I choose C.", "C"),
    ],
    "not asserted": [
        ("If the answer is B, then 3 > 4.", None),
        ("Let me check whether the answer is B.", None),
        ("I don't think the answer is B.", None),
        ("I do not know if it is so, the answer is B", "B"),
        ("It is not sure, but the answer is B.", "B"),
        ("Is the answer B?", None),
        ("The answer is B?", None),
        ("Maybe the answer is (B)?\nAnswer: C", "C"),
        ("Answer: C\nThe wrong answer is B.", "C"),
        ("The tempting answer is B.", None),
        ("My previous answer: B", None),
        ("Answer: C. If the answer was B, it would be odd.", "C"),
        ("Unless the answer is B there is no solution.\nAnswer: C", "C"),
        ("I would not choose B.", None),
        ("Suppose the answer is B. Then 1 = 2.", None),
        ("The first choice is B", None),
    ],
    "which counts": [
        ("Answer: B\n\n" + r"\boxed{C}", "C"),
        (r"\boxed{B}" + "\n\nAnswer: C", "C"),
        (r"\boxed{B}" + "\nSo the answer is C.", "C"),
        ("I choose B.\nAnswer: C", "C"),
        ("Answer: B\nI choose C.", "C"),
        ('{"answer": "B"}\nAnswer: C', "C"),
        (r"The answer is B. \boxed{\text{C}}", "C"),
        ("The answer is B.\n### Final answer\nC", "C"),
        ("Answer: C\n\nB", "C"),
        ("Answer: C\n\nB is correct.", "C"),
        (r"\boxed{C}" + "\nOption B is a trap.", "C"),
        (r"Answer: C. Proof: \boxed{x = 3}", "C"),
        (r"Answer: C" + "\n" + r"\boxed{\frac{A}{B}}", "C"),
        (r"Answer: C, where \boxed{B^2}", "C"),
        (r"\boxed{A + B}, so the answer is C", "C"),
        (r"Answer: C" + "\n" + r"\boxed{B", None),
        (r"\boxed{C} \boxed{", None),
        (r"Answer: C. The answer is 42.", "C"),
        (r"Answer: C. If \boxed{B}, then no.", "C"),
        (r"Not \boxed{B}. Answer: C", "C"),
        (r"\boxed{A} or \boxed{C}", "C"),
        (r"Answer: B" + "\n" + r"\boxed{A, C}", None),
        (r"Answer: B" + "\n" + r"\boxed{Z}", "B"),
        ("Answer: B\nCorrection: the answer is D.", "D"),
        ("The answer is B or C. The answer is C.", "C"),
        ("The answer is C. The answer is B or C.", None),
        ("<answer>B</answer> <answer>C</answer>", "C"),
        ("Answer: C\n\n" + r"\boxed{42}", "C"),
    ],
    "mathematics in a box": [
        (r"\boxed{\frac{A}{B}}", None),
        (r"\boxed{\sqrt{C}}", None),
        (r"\boxed{B^2}", None),
        (r"\boxed{A_1}", None),
        (r"\boxed{A \cup B}", None),
        (r"\boxed{A \cdot B}", None),
        (r"\boxed{(A) \cup (B)}", None),
        (r"\boxed{C(n,k)}", None),
        (r"\boxed{E = mc^2}", None),
        (r"\boxed{2A}", None),
        (r"\boxed{-B}", None),
        (r"\boxed{A!}", None),
        (r"\boxed{A'}", None),
        (r"\boxed{\vec{E}}", None),
        (r"\boxed{\mathbb{C}}", None),
        (r"\boxed{B - A}", None),
        (r"\boxed{F/m}", None),
        (r"\boxed{A \text{ and } B}", None),
        (r"\boxed{\overline{AB}}", None),
        (r"\boxed{e^x}", None),
        (r"\boxed{\frac{\sqrt{B+\sqrt{2}}}{2}}", None),
    ],
    "options in a box": [
        (r"\boxed{\text{C) the }\frac{1}{2}}", "C"),
        (r"\boxed{(C) \frac{1}{2}}", "C"),
        (r"\boxed{C. x = 3}", "C"),
        (r"\boxed{C) A theory}", "C"),
        (r"\boxed{(C) -5}", "C"),
        (r"\boxed{C: forty-two}", "C"),
        (r"\boxed{\textbf{Answer: (C)}}", "C"),
        (r"\boxed{\text{The answer is C}}", "C"),
        (r"\boxed{\boxed{C}}", "C"),
        (r"\boxed{\mathrm{\textbf{\text{C}}}}", "C"),
        (r"\boxed{{C}}", "C"),
        (r"\fbox{C}", "C"),
        (r"\boxed C", "C"),
        (r"\boxed{C}.", "C"),
        (r"\boxed{c}", "C"),
        (r"\boxed{C \text{ is correct}}", "C"),
    ],
    "mathematics in prose": [
        ("The answer is A + B.", None),
        (r"The answer is $A \cap B$.", None),
        ("The answer is A_1.", None),
        (r"The answer is \boxed{\frac{A}{B}}.", None),
        (r"Answer: \frac{A}{B}", None),
        ("Answer: B - C", None),
        ("The answer is f(x) = 3", None),
        ("The answer is A \u2229 B", None),
        ("Answer: C - 42 apples", "C"),
        ("Answer: C (42)", "C"),
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


# Words of which no statement can be made: no verb of choosing, no "answer" or "option" with "is" or a colon, no box.
AFTER = ["because", "I", "a", "A", "think", "it", "option", "B", "fits", "3.", "was", "not", "C,", "(D)", "\n", "is", "correct", "I.", "**E**", "$F$"]


@given(st.sampled_from(LABELS), st.sampled_from(FORMS), st.data())
def test_text_after_a_final_answer_changes_nothing(label, form, data):
    """Any text that makes no statement of its own: mentions, single letters and sentences about other options included."""
    after = " ".join(data.draw(st.lists(st.sampled_from(AFTER), max_size=12))).replace("option is", "option was")
    assert parse_choice(f"{form.format(label)}\n{after}", LABELS) == label


@given(st.sampled_from(LABELS), st.sampled_from(FORMS), st.text(max_size=80))
def test_text_before_a_final_answer_changes_nothing(label, form, before):
    assert parse_choice(f"{before}\n\n{form.format(label)}", LABELS) == label


def test_there_are_enough_cases():
    assert sum(map(len, CASES.values())) > 150
    assert min(map(len, CASES.values())) >= 5


@given(st.sampled_from(LABELS), st.sampled_from(["Answer: {}", "The answer is {}.", "**{}**", "option {}", "\\boxed{{\\text{{({})}}}}", "({})"]))
def test_every_label_is_read_alike(label, form):
    assert parse_choice(form.format(label), LABELS) == label


@pytest.mark.parametrize("text", [SPACES, "(" * 20_000, "answer: " + "\\text{" * 4_000, "option A " * 2_000, "\\boxed{" * 1_000])
def test_hostile_text_takes_no_time(text):
    start = time.process_time()
    parse_choice(text, LABELS)
    parse_math(text)
    assert time.process_time() - start < 2


@pytest.mark.parametrize("loop", ["the\n", "final\n", "\\boxed{", "-", " ", "The answer is ", "答案 "])
def test_the_end_of_a_loop_is_what_is_searched(loop):
    """Half a million characters: quadratic search of them would outlast any patience."""
    from midtrace.grading.bounded import LONGEST, bounded

    text = loop * (500_000 // len(loop)) + "\nAnswer: C"
    assert len(bounded(text)) <= LONGEST
    assert parse_choice(text, list("ABCD")) == "C"


def test_full_width_parentheses():
    assert parse_choice("答案是\uff08C\uff09", list("ABCD")) == "C"


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("The answer is C. If the ball were heavier, the answer would be B.", "C"),
        ("The answer is C. Had we stopped here, the answer would be B.", "C"),
        ("If x is 3, the answer is C.", "C"),
        ("I would pick C.", "C"),
        ("The answer is C. Many students would pick A because they forget the sign.", "C"),
        ("Answer: A only", "A"),
        ("I choose A over B.", "A"),
        ("Answer: C\nWait.\nAnswer: A is correct.", "A"),
        ("Answer: C\nWait.\nAnswer: A or B", None),
        ("Answer: A train leaves", None),
        ("Answer: C or perhaps D", None),
        ("Answer: B (or possibly C)", None),
        ("The correct answer is C, E. coli.", "C"),
        ("The correct answer is C, B-cells.", "C"),
        ("The correct answer is B, D = 3.", "B"),
        ("Answer: B, C", None),
    ],
)
def test_other_cases_other_people_and_texts_of_options(text, label):
    assert parse_choice(text, list("ABCD")) == label
