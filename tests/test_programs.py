"""Right programs and their wrong twins, in the environment of LiveCodeBench's judge: what is imported, called, printed and compared."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from test_sandbox import needs_bubblewrap

from midtrace.grading import code, sandbox

KINDS = [pytest.param("bubblewrap", marks=needs_bubblewrap), "none"]
LIMITS = sandbox.Limits(seconds=5, memory_mb=512, output_mb=4)

# Name: (body of a function of its argument x, argument, value, body of the wrong twin). None imports anything that it does not name.
EXPRESSIONS = {
    "bisect module": ("bisect.bisect_left(x, 3)", [1, 3, 5], 1, "bisect.bisect_right(x, 3)"),
    "bisect name": ("bisect_left(x, 3)", [1, 3, 5], 1, "bisect_right(x, 3)"),
    "insort": ("(insort(x, 2), x)[1]", [1, 3], [1, 2, 3], "(x.append(2), x)[1]"),
    "copy module": ("(copy.deepcopy(x)[0].append(1), x)[1]", [[0]], [[0]], "(copy.copy(x)[0].append(1), x)[1]"),
    "copy name": ("(deepcopy(x)[0].append(1), x)[1]", [[0]], [[0]], "(x[0].append(1), x)[1]"),
    "statistics module": ("statistics.median(x)", [3, 1, 2], 2, "x[0]"),
    "statistics name": ("median(x)", [4, 1, 2, 3], 2.5, "median(x[1:])"),
    "datetime module": ("datetime.date(*x).isoformat()", [2024, 2, 29], "2024-02-29", "datetime.date(*x).strftime('%d.%m.%Y')"),
    "date name": ("(date(*x) + timedelta(days=1)).day", [2024, 2, 29], 1, "date(*x).day + 1"),
    "weekday": ("datetime.datetime(*x).weekday()", [2026, 12, 1], 1, "datetime.datetime(*x).isoweekday()"),
    "heapq module": ("(heapq.heapify(x), heapq.heappop(x))[1]", [5, 2, 9], 2, "x.pop()"),
    "heapq name": ("nlargest(2, x)", [5, 2, 9], [9, 5], "nsmallest(2, x)"),
    "math module": ("math.gcd(*x)", [12, 18], 6, "math.lcm(*x)"),
    "math name": ("isqrt(x)", 10**40 + 1, 10**20, "int(sqrt(x)) + 1"),
    "infinity": ("min([inf, *x])", [3], 3, "max([-inf, 4, *x])"),
    "pow of builtins": ("pow(2, 10, x)", 1000, 24, "math.fmod(math.pow(2, 11), x)"),
    "sum of builtins": ("sum(x)", [1, 2], 3, "prod(x)"),
    "open of builtins": ("open.__module__", 0, "io", "'_io' * 2"),
    "compile of builtins": ("eval(compile(x, '', 'eval'))", "1+1", 2, "len(compile(x, '', 'eval').co_code) * 0"),
    "re module": ("re.findall(r'\\d+', x)", "a1b22", ["1", "22"], "re.findall(r'\\d', x)"),
    "re name": ("findall(r'[a-z]', x)", "a1b", ["a", "b"], "findall(r'.', x)"),
    "string module": ("string.ascii_lowercase[x]", 2, "c", "string.ascii_uppercase[x]"),
    "string name": ("ascii_lowercase.index(x)", "z", 25, "printable.index(x)"),
    "collections module": ("collections.Counter(x).most_common(1)[0][0]", "abb", "b", "collections.Counter(x).most_common()[-1][0]"),
    "collections name": ("list(deque(x, maxlen=2))", [1, 2, 3], [2, 3], "list(deque(x))"),
    "defaultdict": ("(lambda d: (d['k'].append(x), d)[1])(defaultdict(list))", 1, {"k": [1]}, "{'k': x}"),
    "itertools module": ("list(itertools.accumulate(x))", [1, 2, 3], [1, 3, 6], "list(itertools.chain(x))"),
    "itertools name": ("[''.join(p) for p in permutations(x)]", "ab", ["ab", "ba"], "[''.join(p) for p in combinations(x, 2)]"),
    "pairwise": ("[b - a for a, b in pairwise(x)]", [1, 4, 9], [3, 5], "[a - b for a, b in pairwise(x)]"),
    "functools module": ("functools.reduce(lambda a, b: a * b, x)", [2, 3, 4], 24, "functools.reduce(lambda a, b: a + b, x)"),
    "functools name": ("sorted(x, key=cmp_to_key(lambda a, b: b - a))", [1, 3, 2], [3, 2, 1], "sorted(x)"),
    "operator module": ("sorted(x, key=operator.itemgetter(1))", [[1, 2], [2, 1]], [[2, 1], [1, 2]], "sorted(x, key=operator.itemgetter(0))"),
    "operator name": ("reduce(xor, x)", [1, 2, 3, 4], 4, "reduce(or_, x)"),
    "random module": ("(random.seed(x), random.random() < 1)[1]", 7, True, "random.randrange(1) > 0"),
    "io module": ("io.StringIO(x).readline()", "a\nb", "a\n", "io.StringIO(x).read()"),
    "io name": ("StringIO(x).read()", "ab", "ab", "BytesIO(x.encode()).read().hex()"),
    "sys module": ("sys.getrecursionlimit() >= x", 50_000, True, "sys.getrecursionlimit() < x"),
    "json module": ("json.dumps(x)", [1], "[1]", "dumps([x])"),
    "typing": ("x if List[int] and Optional[int] else None", 5, 5, "str(List)"),
    "tuple": ("(x, x)", 1, [1, 1], "(x,)"),
    "fraction": ("__import__('fractions').Fraction(x, 4)", 2, 0.5, "__import__('fractions').Fraction(x, 3)"),
    "decimal": ("__import__('decimal').Decimal(x)", 3, 3, "__import__('decimal').Decimal(x) / 2"),
    "large integer": ("10 ** x + 1", 5000, 10**5000 + 1, "10 ** x"),
    "negative large integer": ("-(7 ** x)", 6000, -(7**6000), "-(7 ** x) - 1"),
    "large argument": ("x % 1000", 10**5000 + 123, 123, "x % 100"),
    "line separators": ("x.split('\\n')", "a\u2028b\x85c\x0cd\n\u2029e", ["a\u2028b\x85c\x0cd", "\u2029e"], "x.splitlines()"),
}
SEPARATED = "a\u2028b\x85c\x0cd\u2029e"
# Whole programs: (source, input, output, the text of the source that the wrong twin replaces, and what by).
SCRIPTS = {
    "dataclass with annotations as text": (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass(order=True)\nclass P:\n    x: int\n    y: int = 0\nprint(max(P(int(input())), P(2)).x)",
        "7\n", "7\n", "max", "min",
    ),
    "pickling": (
        "import pickle\nclass P:\n    def __init__(self, x):\n        self.x = x\nprint(pickle.loads(pickle.dumps(P(int(input())))).x)",
        "7\n", "7\n", "= x\n", "= -x\n",
    ),
    "enumeration": ("from enum import Enum\nclass C(Enum):\n    A = 1\nprint(C(int(input())).name)", "1\n", "A\n", "A = 1", "B = 1"),
    "named tuple": ("P = namedtuple('P', 'x y')\nprint(P(*map(int, input().split())).y)", "1 2\n", "2\n", ".y", ".x"),
    "type hints": ("def f(x: int) -> List[int]: return [x]\nprint(*sorted(get_type_hints(f)))", "", "return x\n", "sorted", "list"),
    "main guard": ("def main():\n    print(int(input()) + 1)\nif __name__ == '__main__':\n    main()", "1\n", "2\n", "+ 1", "+ 2"),
    "names of main": ("import __main__\nN = 5\nprint(__main__.N)", "", "5\n", "N = 5", "N = 6"),
    "globals": ("total = 0\ndef add(n):\n    global total\n    total += n\nadd(int(input()))\nprint(total)", "4\n", "4\n", "+= n", "-= n"),
    "5,000 digits": ("print(10 ** 5000 + int(input()))", "7\n", f"1{'0' * 4999}7\n", "+ int", "- int"),
    "5,000 digits read": ("print(int(input()) % 97)", f"{'9' * 5000}\n", f"{(10**5000 - 1) % 97}\n", "97", "96"),
    "separators read": ("import sys\nprint(len(sys.stdin.read().split('\\n')))", "a\u2028b\x85c\x0bd\n\x1ce", "2\n", "split('\\n')", "splitlines()"),
    "separators printed": ("print(input())", f"{SEPARATED}\n", f"{SEPARATED}\n", "input()", "input().replace(chr(0x2028), ' ')"),
    "lines by the handle": ("for line in sys.stdin: print(line.strip()[::-1])", "ab\ncd\n", "ba\ndc\n", "[::-1]", ""),
    "a cache": (
        "@lru_cache(None)\ndef f(n): return n if n < 2 else f(n - 1) + f(n - 2)\nprint(f(int(input())))",
        "80\n", "23416728348467685\n", "n if n < 2", "1 if n < 2",
    ),
}  # fmt: skip


def whole(value: object) -> str:
    """A value as JSON, with integers of any length."""
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(value)
    finally:
        sys.set_int_max_str_digits(limit)


def stdin(given: str, expected: str) -> list[dict]:
    return [{"test_id": 0, "kind": "stdin", "function": None, "input": given, "expected": expected}]


def values(side: int, head: str, kind: str) -> list[object]:
    """What the functions of one side (0: right, 3: wrong) return, called in one program; a process for each would take a minute."""
    indent = "    " if head else ""
    functions = "\n".join(
        f"{indent}def f{k}({'self, ' * bool(head)}x):\n{indent}    return {case[side]}" for k, case in enumerate(EXPRESSIONS.values())
    )
    calls = ", ".join(f"{'self.' * bool(head)}f{k}(x[{k}])" for k in range(len(EXPRESSIONS)))
    program = f"{head}\n{functions}\n{indent}def f({'self, ' * bool(head)}x):\n{indent}    return [{calls}]\n"
    done = sandbox.run(program, whole([case[1] for case in EXPRESSIONS.values()]), LIMITS, kind, "f")
    assert done.problem is None
    return json.loads(done.stdout, parse_int=code._whole)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", ["", "class Solution:"])
def test_functions_and_methods_return_the_right_value(kind, head):
    expected = json.loads(whole([case[2] for case in EXPRESSIONS.values()]), parse_int=code._whole)
    right = dict(zip(EXPRESSIONS, map(code.same_value, values(0, head, kind), expected), strict=True))
    assert [name for name, same in right.items() if not same] == []
    if not head:
        wrong = dict(zip(EXPRESSIONS, map(code.same_value, values(3, head, kind), expected), strict=True))
        assert [name for name, same in wrong.items() if same] == []


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_scripts_print_the_right_output_and_their_wrong_twins_another(kind):
    cases = [(source, given, expected) for source, given, expected, _, _ in SCRIPTS.values()]
    cases += [(source.replace(old, new), given, expected) for source, given, expected, old, new in SCRIPTS.values()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = list(pool.map(lambda case: code.fault_of(case[0], stdin(*case[1:]), LIMITS, kind), cases))
    right, wrong = (dict(zip(SCRIPTS, part, strict=True)) for part in (faults[: len(SCRIPTS)], faults[len(SCRIPTS) :]))
    assert {name: fault for name, fault in right.items() if fault is not None} == {}
    # A twin prints something else: one that crashes would show nothing about the comparison.
    assert set(wrong.values()) == {"test 1 of 1: wrong output"}


@needs_bubblewrap
@pytest.mark.parametrize("name", ["large integer", "bisect module", "line separators"])
def test_functions_are_graded(name):
    right, x, value, wrong = EXPRESSIONS[name]
    tests = [{"test_id": 0, "kind": "call", "function": "f", "input": whole(x), "expected": whole(value)}]
    assert [code.fault_of(f"def f(x):\n    return {e}", tests, LIMITS) for e in (right, wrong)] == [None, "test 1 of 1: wrong value"]


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r", "\u00a0", "\u3000"])
def test_no_separator_but_the_line_feed_ends_a_line(separator):
    text = f"a{separator}b"
    assert code.same_output(text + "\n", text)
    assert not code.same_output(text, "a\nb"), "not a line feed"
    assert not code.same_output("a\nb", text)
    if separator not in "\x0b\x0c\r":
        assert not code.same_output(text, "a b"), "nor a space between words"


@pytest.mark.parametrize(("found", "same"), [("9" * 5000, True), ("9" * 4999 + "8", False), ("9" * 5000 + ".0", True), ("9" * 5001, False)])
def test_whole_numbers_of_any_length_are_compared_exactly(found, same):
    assert code.same_output(found, "9" * 5000) is same
    if "." not in found:
        assert code._passes({"kind": "call", "expected": "9" * 5000}, found) is same


def test_millions_of_digits_take_no_time():
    assert not code._passes({"kind": "call", "expected": "1"}, "9" * 4_000_000)
    assert not code.same_output("1" * 4_000_000 + "x", "2")
