"""docs/pitfalls.md names tests that exist."""

import re

import pytest
from helpers.checkout import ROOT

NAMED = re.findall(r"`(test_\w+\.py)::(\w+)`", (ROOT / "docs/pitfalls.md").read_text(encoding="utf-8"))


def test_tests_are_named_in_every_row():
    rows = [line for line in (ROOT / "docs/pitfalls.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith(("| what", "| ---"))]
    assert len(rows) >= 70
    assert [row for row in rows if not re.search(r"`test_\w+\.py::\w+`", row.rsplit("|", 2)[1])] == []


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_named_test_exists(file: str, name: str):
    source = (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert re.search(rf"^(def|class) {name}\b", source, re.MULTILINE), f"{file} has no {name}"
