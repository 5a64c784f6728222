"""Failure modes of interrupted runs: panic, self-doubt, leakage, comments of programs, and which mode a run is counted under."""

import pytest
from helpers.interruptions import ITEM, demo, record

from midtrace import grading
from midtrace.interruptions import grade as interruption_grading

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
    before = (
        interruption_grading.stale_item(item, grading.Grade(None, False)) if "{update}" in settings["interruption"]["intervention"]["text"] else None
    )
    stale = (grading.grade_all([(interruption_grading.answer_of(whole), before.item)])[0].correct, before.source) if before else ()
    return interruption_grading.grade_row(whole, item, fresh, settings, grade, *stale)


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


# The answer before the update


@pytest.mark.parametrize(
    ("item", "own", "expected"),
    [
        ({}, ("B", False), ("A", "item")),
        ({"stale_answer": None}, ("C", False), ("C", "run")),
        ({"stale_answer": None}, ("B", True), None),  # the run was right before it knew
        ({"stale_answer": None}, (None, False), None),
        ({"answer_kind": "code"}, ("print(1)", False), None),
    ],
)
def test_the_answer_before_an_update_is_the_sources_or_else_the_runs_own(item, own, expected):
    found = interruption_grading.stale_item({**ITEM, **item}, grading.Grade(*own))
    assert (found and (found.item["answer"], found.source)) == expected
    assert found is None or found.item["question"] == ITEM["question"]


def test_a_runs_own_stale_answer_is_read_from_its_stored_text():
    """Two runs on revised questions whose source states no stale answer, one that has no end, and one of another kind of answer."""
    number = {**ITEM, "answer_kind": "math", "options": [], "answer": "5", "stale_answer": None}
    traces = {
        "kept": {"status": "terminated", "answer_text": "So it is \\boxed{4}."},
        "right": {"status": "terminated", "answer_text": "So it is \\boxed{5.0}."},
        "cut": {"status": "truncated", "answer_text": "\\boxed{4}"},
        "program": {"status": "terminated", "answer_text": "```python\nprint(4)\n```"},
    }
    items = {name: number | ({"answer_kind": "code"} if name == "program" else {}) for name in traces}
    found = interruption_grading.stale_items(items, traces)
    assert {name: (stale.item["answer"], stale.source) for name, stale in found.items()} == {"kept": ("4", "run")}
