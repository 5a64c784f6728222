"""Reading LaTeX: braces to any depth, in golds as in answers."""

import time

import pytest

from midtrace.latex import Box, boxes, enclosed, split, unwrap
from midtrace.loaders import UnusableError
from midtrace.loaders.mathematics import gold_after_hashes, gold_in_box, gold_of_aime
from midtrace.loaders.updates import gold

DEEP = r"\frac{\sqrt{2+\sqrt{2+\sqrt{2}}}}{2}"


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        (rf"\boxed{{{DEEP}}}", [DEEP]),
        (r"\boxed{3} then \boxed{4}", ["3", "4"]),
        (r"\boxed{\{1,2\}}", [r"\{1,2\}"]),
        (r"\boxed{\left\{ x \right\}}", [r"\left\{ x \right\}"]),
        (r"\boxed{a\boxed{b}c}", [r"a\boxed{b}c"]),
        (r"\boxed {5}", ["5"]),
        (r"\boxed 5", ["5"]),
        (r"\fbox{5}", ["5"]),
        (r'{"answer": "\\boxed{5}"}', ["5"]),
        (r"} \boxed{5}", ["5"]),
        (r"{ \boxed{5}", ["5"]),
        (r"\boxed{5", [None]),
        (r"\boxed{5} \boxed{6", ["5", None]),
        (r"\boxed{5\}", [None]),
        (r"\unboxed{5}", []),
        ("boxed", []),
    ],
)
def test_boxes(text, contents):
    assert [box.content for box in boxes(text)] == contents


def test_where_a_box_is():
    assert boxes(r"ab \boxed{c} d") == [Box(3, 12, "c")]


def test_a_million_braces_take_no_time():
    start = time.process_time()
    assert boxes("\\boxed{" * 100_000)[-1].content is None
    assert boxes("\\boxed{" + "{" * 200_000 + "}" * 200_001)[0].content == "{" * 200_000 + "}" * 200_000
    assert time.process_time() - start < 3


def test_brackets():
    import re

    assert enclosed("[0, 1)") == ("[", "0, 1", ")") and enclosed("(1)(2)") is None and enclosed(r"\{1\}") == (r"\{", "1", r"\}")
    assert split("a,(b,c),{d,e}", re.compile(",")) == ["a", "(b,c)", "{d,e}"]
    assert unwrap(r"5\text{ cm \textbf{x}}", ["text", "textbf"]) == "5 cm x"


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [("336", "336"), ("025", "25"), (r"336^\circ", "336"), ("336^{\\circ}", "336"), ("$204$", "204"), (r"204\text{ cm}", "204"), ("0", "0")],
)
def test_golds_of_aime(answer, wanted):
    assert gold_of_aime(answer) == wanted


@pytest.mark.parametrize("answer", ["1000", "-1", "2.5", r"\frac{1}{2}", "50%", "x", "", "1 or 2", "(1,2)"])
def test_no_golds_of_aime(answer):
    with pytest.raises(UnusableError, match="no whole number from 0 to 999"):
        gold_of_aime(answer)


def test_golds_in_boxes_and_after_hashes():
    assert gold_in_box(rf"First \boxed{{3}}, then $\boxed{{{DEEP}}}$.") == DEEP == gold(rf"\boxed{{{DEEP}}}")
    for unusable in (r"First \boxed{3}, then \boxed{4", "none", r"\boxed{ }"):
        with pytest.raises(UnusableError):
            gold_in_box(unusable)
    assert [gold_after_hashes(f"text\n#### {number}") for number in ("1,234", "$5.50", "-3", "3/4", "50%")] == ["1234", "5.50", "-3", "3/4", "50%"]
    for unusable in ("#### many", "42", "#### 1 or 2"):
        with pytest.raises(UnusableError):
            gold_after_hashes(unusable)
