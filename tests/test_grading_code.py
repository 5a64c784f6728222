"""Programs: found in answers, run on their tests, compared, and graded many at a time."""

import json
import os

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_sandbox import needs_bubblewrap, ours, settles

from midtrace.errors import InputError
from midtrace.grading import code, sandbox

LIMITS = sandbox.Limits(seconds=1, memory_mb=512, output_mb=4)
DOUBLE = "print(2 * int(input()))"


def stdin(*pairs: tuple[str, str]) -> list[dict]:
    return [{"test_id": k, "kind": "stdin", "function": None, "input": given, "expected": wanted} for k, (given, wanted) in enumerate(pairs)]


def call(function: str, *pairs: tuple[list, object]) -> list[dict]:
    return [
        {"test_id": k, "kind": "call", "function": function, "input": "\n".join(map(json.dumps, given)), "expected": json.dumps(wanted)}
        for k, (given, wanted) in enumerate(pairs)
    ]


def fenced(program: str, language: str = "python") -> str:
    return f"Here it is:\n\n```{language}\n{program}\n```\n"


TWICE = stdin(("1\n", "2\n"), ("21\n", "42\n"))
TESTS = {"item": TWICE}


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (fenced("x = 1"), "x = 1\n"),
        (fenced("x = 1", "py"), "x = 1\n"),
        (fenced("x = 1", "Python3"), "x = 1\n"),
        (fenced("x = 1", ""), "x = 1\n"),
        ("``` python\nx = 1\n```", "x = 1\n"),
        ('```python title="a.py"\nx = 1\n```', "x = 1\n"),
        ("~~~python\nx = 1\n~~~", "x = 1\n"),
        (fenced("x = 1") + fenced("x = 2"), "x = 2\n"),
        (fenced("x = 1") + "It prints:\n" + fenced("42", ""), "x = 1\n"),
        (fenced("x = 1") + fenced("int x;", "cpp"), "x = 1\n"),
        (fenced("42", "") + fenced("43", ""), "43\n"),
        ("```python\nx = 1", "x = 1\n"),
        ("```python\n```python\nx = 1\n```", "x = 1\n"),
        ("1. Do\n\n   ```python\n   if x:\n       y()\n   ```\n", "if x:\n    y()\n"),
        ("````python\nx = '''\n```\n'''\n````", "x = '''\n```\n'''\n"),
        ("```python\r\nx = 1\r\n```", "x = 1\r\n"),
        ("print(1)", None),
        ("Use `print(1)`.", None),
        ("", None),
        (fenced("int x;", "cpp"), None),
        (fenced("   "), None),
        (fenced(""), None),
        ("the fence ```python is not at the start of its line", None),
    ],
)
def test_the_program_is_the_last_python_block(text, program):
    assert code.extract_program(text) == program


@given(st.text(st.sampled_from("`~ \tpython\n#x"), max_size=60), st.sampled_from(["x = 1", "for i in range(3):\n    print(i)"]))
def test_a_closed_python_block_after_any_text_is_the_program(before, program):
    assert code.extract_program(before + "\n" + "```\n" + fenced(program)) == program + "\n"


def test_a_long_line_takes_no_time():
    assert code.extract_program("```" + "x" * 200_000 + "`") is None
    assert code.extract_program(("`" * 100_000 + "\n") * 3) is None


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("42", "42\n"), ("42\n\n\n", "42"), ("\n42", "42"), ("  42  \n", "42"), ("1 2\n3\n", "1 2 \n3"), ("1\r\n2\r\n", "1\n2"),
        ("0.50", "0.5"), (".5", "0.5"), ("1.0", "1"), ("-0", "0"), ("1e3", "1000"), ("0.3333333", "0.33333333333"), ("1000000.5", "1000000"".0"),
        ("a 0.1 b", "a 0.10 b"), ("", ""),
    ],
)  # fmt: skip
def test_outputs_that_are_the_same(found, expected):
    assert code.same_output(found, expected)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("42", "43"), ("", "0"), ("1\n2", "1 2"), ("1\n\n2", "1\n2"), ("12", "1 2"), ("Yes", "YES"), ("1.000001", "1"), ("0.3334", "0.3333"),
        ("0x10", "16"), ("nan", "0.5"), ("inf", "1e999"), ("1_0", "10"), ("100000000000000000001", "100000000000000000000"),
        ("42 ", "42 43"), ("٤", "4"),
    ],
)  # fmt: skip
def test_outputs_that_differ(found, expected):
    assert not code.same_output(found, expected)


@pytest.mark.parametrize(
    ("found", "expected", "same"),
    [
        ([1, 2], [1, 2], True), ([1, 2], [2, 1], False), ([1, 2], [1, 2, 3], False), (0.3333333, 1 / 3, True), (0.334, 1 / 3, False), (2, 2.0, True),
        (2.0, 2, True), (2.0000001, 2, False), ("2", 2, False), (None, 0, False), (None, None, True), ([[0.5], []], [[0.50000001], []], True),
        ({"a": 1.0}, {"a": 1}, True), ({"a": 1}, {"b": 1}, False), ("x", [1], False), (1, {"a": 1}, False),
        (float("nan"), 0.5, False), ("0.5", 0.5, False),
    ],
)  # fmt: skip
def test_values(found, expected, same):
    assert code.same_value(found, expected) is same


def test_an_item_without_tests_is_refused():
    with pytest.raises(InputError, match="every program would be right"):
        code.fault_of(DOUBLE, [])


@needs_bubblewrap
@pytest.mark.parametrize(
    ("program", "tests", "fault"),
    [
        (DOUBLE, TWICE, None),
        ("print(2)", TWICE, "test 2 of 2: wrong output"),
        ("print(2 * int(inputs()))", TWICE, "test 1 of 2: crashed: NameError"),
        ("n = int(input())\nwhile n > 1: pass\nprint(2)", TWICE, "test 2 of 2: time limit of 1 s"),
        ("import sys\nprint(2 * int(sys.stdin.readline()))\nsys.exit(1)", TWICE, "test 1 of 2: crashed with exit status 1"),
        ("def double(x):\n    return 2 * x", call("double", ([1], 2), ([21], 42)), None),
        ("class Solution:\n    def double(self, x: int) -> int:\n        return 2 * x", call("double", ([1], 2), ([21], 42)), None),
        ("class Solution:\n    def double(self, x: int) -> int:\n        return 2", call("double", ([1], 2), ([21], 42)), "test 2 of 2: wrong value"),
        ("class Solution:\n    def triple(self, x): return 3", call("double", ([1], 2)), "test 1 of 1: crashed: AttributeError"),
        ("def triple(x): return 3", call("double", ([1], 2)), "test 1 of 1: crashed: KeyError"),
        ("def pair(a, b): return b, a", call("pair", ([[1], "x"], ["x", [1]])), None),
        ("def deep():\n    x = []\n    for _ in range(5000): x = [x]\n    return x", call("deep", ([], [])), "test 1 of 1: wrong value"),
        ("import os\ndef f():\n    os.write(3, b'[42]')\n    os._exit(0)", call("f", ([], [41])), "test 1 of 1: wrong value"),
    ],
)  # fmt: skip
def test_a_program_is_run_on_its_tests(program, tests, fault):
    assert code.fault_of(program, tests, LIMITS) == fault
    assert code.grade_code(fenced(program), tests, LIMITS) is (fault is None)


@needs_bubblewrap
def test_the_total_time_ends_a_slow_program():
    slow = "import time\ntime.sleep(0.4)\nprint(2 * int(input()))"
    fault = code.fault_of(slow, TWICE * 20, sandbox.Limits(seconds=1, total_seconds=1, memory_mb=512))
    assert fault.startswith("total time limit of 1 s after test ")


ATTACKS = {
    "network": ("import socket\nsocket.create_connection(('127.0.0.1', 22), 1)", "crashed: ConnectionRefusedError"),
    "fork bomb": ("import os\nwhile True: os.fork()", "crashed: PermissionError"),
    "memory": ("x = bytearray(10**11)", "memory limit of 512 MiB"),
    "loop": ("while True: pass", "time limit of 1 s"),
    "output": ("while True: print('2' * 10_000)", "more than 4 MiB of output"),
    "checkout": (f"print(open({code.__file__!r}).read())", "crashed: FileNotFoundError"),
    "outside": ("open('/usr/bin/python3', 'w')", "crashed: OSError"),
    "parent": ("import os\nos.kill(os.getppid(), 9)\nos.kill(os.getpid(), 9)", "killed"),
}


@pytest.mark.long
@needs_bubblewrap
def test_attacks_are_wrong_answers_with_a_reason_and_grading_goes_on():
    answers = [(fenced(program), "item") for program, _ in ATTACKS.values()]
    mixed = [entry for attack in answers for entry in (attack, (fenced(DOUBLE), "item"))]
    found = code.grade_programs([*mixed, ("I cannot.", "item")], TESTS.get, LIMITS, "bubblewrap", 4)
    assert [note for _, _, note in found[:-1:2]] == [f"test 1 of 2: {reason}" for _, reason in ATTACKS.values()]
    assert not any(correct for _, correct, _ in found[:-1:2])
    assert found[1:-1:2] == [(DOUBLE + "\n", True, None)] * len(ATTACKS)
    assert found[-1] == (None, False, "no code block")


@pytest.mark.long
@needs_bubblewrap
def test_two_hundred_programs_leak_nothing():
    processes, descriptors, memory = ours(), set(os.listdir("/proc/self/fd")), psutil.Process().memory_info().rss
    answers = [(fenced(f"print({k % 3} * int(input()))"), "item") for k in range(200)]
    found = code.grade_programs(answers, TESTS.get, LIMITS, "bubblewrap", 8)
    assert [correct for _, correct, _ in found] == [k % 3 == 2 for k in range(200)]
    assert settles(lambda: ours() <= processes)
    assert set(os.listdir("/proc/self/fd")) == descriptors
    assert psutil.Process().memory_info().rss < memory + 100 * 2**20


def test_the_number_of_workers_decides_no_grade():
    sandbox.check.cache_clear()
    answers = [(fenced(DOUBLE), "item"), (fenced("print(1)"), "item"), ("", "item")]
    assert code.grade_programs(answers, TESTS.get, LIMITS, "none", 1) == code.grade_programs(answers, TESTS.get, LIMITS, "none", 3)


def test_tests_are_held_for_a_few_items_only():
    asked: list[str] = []

    def tests_of(item: str) -> list[dict]:
        asked.append(item)
        return TWICE

    answers = [(fenced(DOUBLE), item) for item in "aaabbba"]
    assert all(correct for _, correct, _ in code.grade_programs(answers, tests_of, LIMITS, "none", 1))
    assert asked == ["a", "b", "a"]


def test_without_a_sandbox_nothing_is_graded(monkeypatch):
    sandbox.check.cache_clear()
    monkeypatch.setattr("shutil.which", lambda tool: None)
    with pytest.raises(InputError, match="bubblewrap"):
        code.grade_programs([(fenced(DOUBLE), "item")], TESTS.get, LIMITS, "bubblewrap", 1)


@pytest.mark.parametrize(
    ("answer", "program"),
    [
        ("```python\nprint(1)\n``` done", "print(1)\n"),
        ("```python\ns = '''\n```text\n'''\n```", "s = '''\n```text\n'''\n"),
        ("```python3.11\nprint(1)\n```", "print(1)\n"),
        ("```{.python}\nprint(1)\n```", "print(1)\n"),
        ("```python:main.py\nprint(1)\n```", "print(1)\n"),
        ("```python\n```python\nprint(1)\n```", "print(1)\n"),
        ("```text\nno program\n```", None),
    ],
)
def test_fences_as_models_write_them(answer, program):
    assert code.extract_program(answer) == program


def test_a_number_beyond_any_fraction_is_a_wrong_value():
    test = {"kind": "call", "function": "f", "input": "1", "expected": "1.5"}
    assert not code._passes(test, "1" + 400 * "0")
