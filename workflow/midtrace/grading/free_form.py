"""Free-form mathematical answers: what a text states, and whether it equals the gold one."""

import re
from functools import lru_cache

from midtrace import expressions
from midtrace.expressions import Expression, Formula, Number, Sequence, Words, clean, parse
from midtrace.grading import comparison
from midtrace.grading.bounded import bounded
from midtrace.grading.statements import HEADING, IS, SURELY, Reading, is_asserted, is_of_another_case
from midtrace.latex import Box, boxes

LONGEST = 1000  # characters of an answer; more is no answer
FEW_WORDS = 3  # an answer in words has no more
_EMPTY = re.compile(r"\W*(?:(?:(?:the|my)\s+)?(?:final\s+)?answer(?:\s+is)?)?\W*", re.IGNORECASE)
_HEADED = re.compile(r"\banswer\b(?:\s+is)?\W*$", re.IGNORECASE)
# What is stated, on the rest of its line; the group "words" is there where words alone are an answer, as in a line "Answer: Monday".
_STATEMENTS = (
    re.compile(r"[\"'](?:\w+[_ ])?answer[\"']\s*:\s*+(?P<words>\"[^\"\n]*\"|'[^'\n]*'|\[[^\]\n]*\]|[^,}\n]+)", re.IGNORECASE),
    re.compile(r"<(?:\w+[_ ])?answer>\s*+(?P<words>[^<\n]+)", re.IGNORECASE),
    re.compile(r"^[^\S\n]*+####[^\S\n]*+(?=(?P<words>[^\n]{1,1000}))", re.MULTILINE),
    re.compile(rf"{HEADING}\s*+(?=(?P<words>[^\n]{{1,1000}}))", re.IGNORECASE | re.MULTILINE),
    re.compile(
        r"^[^\w\n]*+(?:(?:the|my|final|correct)[^\S\n]+){0,3}+answer\b[\s*_`]*+[:=][\s*_`:=]*+(?=(?P<words>[^\n]{1,1000}))",
        re.IGNORECASE | re.MULTILINE,
    ),
    re.compile(rf"\b(?:answer|ans)\b(?:\s+(?:to|of|for)(?:\s+[a-z]+){{1,6}}?)?[\s*_`]*+{SURELY}{IS}(?=(?P<sentence>[^\n]{{1,1000}}))", re.IGNORECASE),
    re.compile(r"答案(?:是|为)?[\s:：*]{0,20}+(?=(?P<sentence>[^\n]{1,1000}))"),
)
_DISPLAY = re.compile(r"(?<!\\)\\\[(.*?)\\\]|\$\$(.*?)\$\$", re.DOTALL)
# Where the answer of a sentence ends.
_END = re.compile(r"(?:(?<!\bapprox)(?<!\b[Cc]a)(?<!\b[Nn]o)\.|(?<=[A-Za-z]{2})!)(?=\s|$)|。")
_REST = re.compile(r",?\s+(?:because|since|which|as|so|where|for)\b.*", re.IGNORECASE | re.DOTALL)
_BULLET = re.compile(r"^(?:[-*+>#\u2022]+\s+|\d+[.)]\s+(?=\D))+")
_FINISHED = re.compile(r"[.!。][)\]*_`\"'$]*$|\\\]$|\$\$$")
# What makes a sentence state nothing.
_UNSURE = re.compile(
    r"\b(?:could|may|might|maybe|perhaps|possibly|probably|guess|or\s+so|if|whether|unless|suppose|assume|assuming|not|never|cannot|no"
    r"|(?:more|less|fewer|greater|larger|smaller|other|rather)\s+than)\b|n't|\?",
    re.IGNORECASE,
)
_CALCULATED = re.compile(r"<<[^<>\n]*>>")  # the notes of a calculator in solutions of GSM8K
_DANGLING = re.compile(r"\b(?:and|or|but|because|so|then|that|the|an?|of|is|are|was|we|i|to|for|with|in|by|as|which|if)\W*$", re.IGNORECASE)
_SPELLED = r"half|third|quarter|twice|thrice|double|triple|squared|cubed"
_PART = re.compile(rf"\b(?:{_SPELLED})s?\b|\band\s+(?:a|one|two|three)\b", re.IGNORECASE)
# A closing dollar sign has no space before it and no digit behind it: "$5 and $6" are sums of money.
_MATHS = re.compile(r"\\\((?P<round>.*?)\\\)|(?<![\\\w])\$(?=\S)(?P<dollar>[^$\n]+?)(?<=[^\s\\])\$(?!\d)")
_OPERATOR = r"\s*(?:[-+*/=\u00d7\u00f7\u2212]|\\times|\\cdot|\bx\b)\s*"
_VALUE = (
    r"(?<![\w.,])[+-]?(?:\\?\$|[\u20ac\u00a3\u00a5\u20b9])?(?:\d{1,3}(?:(?:,|\{,\}|\\,)\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:\s+\d+/\d+|/\d+)?"
    r"(?:\s*\\?%|\s*(?:\^\s*\{?\\circ\}?|\u00b0))?"
)
_QUANTITY = re.compile(rf"(?:{_VALUE}(?:\s*[A-Za-z]+)?{_OPERATOR})*{_VALUE}(?![\w])(?P<unit>(?:[\s-]+[A-Za-z]+)*)")
_UNIT_ENDS = re.compile(
    r"[\s-]+(?:and|or|but|in|of|for|to|at|with|from|by|on|that|than|after|before|when|while|until|is|are|was|were|left|total|each|every|this|an?|per|more|less|fewer|times)\b.*",
    re.IGNORECASE | re.DOTALL,
)


_DENIED = re.compile(r"(?:\b(?:not|wrong|incorrect)|n't)\W*$", re.IGNORECASE)
_SYMBOL = re.compile(r"\\?[A-Za-z]+(?:_\{?\w\}?)?'?|")
_PRODUCT = re.compile(r"[+-]?[\d.]+[A-Za-z]")
_BASE = re.compile(r"(?P<digits>[0-9A-Fa-f]+)\s*_\s*\{?\s*(?P<base>\d{1,2})\s*\}?")


def parse_math(text: str) -> str | None:
    """The free-form answer that a text states; see :func:`read`."""
    return read(text).answer


def read(text: str) -> Reading:
    """The last answer statement of a text, or else what its last line states.

    Parameters
    ----------
    text
        Text of the answer segment; its last 20,000 characters are searched.

    Notes
    -----
    *An answer statement* is a ``\\boxed{}``, what follows ``Answer:``, ``####`` or a heading ``Final answer``, a JSON ``answer``, ``<answer>``, or
    ``the answer is`` in a sentence. The one that begins last counts, however it is worded. It must assert an answer (not under ``if`` or ``not``, not
    as a question), and one must be readable in it. A box that is never closed, or a last line ``Answer:`` with nothing behind it, is a statement
    without an answer: what was said before it is not taken instead. ``the answer is`` with words alone behind it ("reasonable") is a statement only
    where there is no other.

    *An answer* is mathematics, a quantity, or up to three words. Of a sentence it is the one quantity in it, or the result of its equation; one
    with several quantities or none, or that is unsure (``could be 42``), states nothing. *The last line* is read alike, by its last sentence, if
    that is finished: by a full stop, or by an equation whose result is not left hanging. Commas change nothing.
    """
    text = _DISPLAY.sub(_on_one_line, _CALCULATED.sub("", bounded(text)))
    lines = [line for line in text.splitlines() if line.strip(" \t*_`>$")]
    if lines and _EMPTY.fullmatch(lines[-1]) and _HEADED.search(lines[-1]):
        return Reading(None, True)
    found: list[tuple[int, int, Box | re.Match[str]]] = [(box.start, 1, box) for box in boxes(text)]
    found += [(match.start(match.lastgroup or 0), 0, match) for pattern in _STATEMENTS for match in pattern.finditer(text)]
    in_words = None
    for start, _, statement in sorted(found, key=lambda one: one[:2], reverse=True):
        if isinstance(statement, Box):
            if not _DENIED.search(text[max(0, start - 20) : start]) and not is_of_another_case(text, start, start):
                return Reading(None if statement.content is None else _trimmed(statement.content), True)
            continue
        group = statement.lastgroup
        assert group
        sentence = _sentences(statement[group])[:1]
        answer = _answer_of(_REST.sub("", sentence[0]), finished=True) if sentence else None
        if answer is None or not is_asserted(
            text, statement.start(), start + len(statement[group].rstrip()) - statement[group].rstrip().endswith("?")
        ):
            continue
        if group == "words" or not isinstance(parse(answer), Words):
            return Reading(answer, True)
        in_words = in_words or answer
    if in_words:
        return Reading(in_words, True)
    last = _sentences(_BULLET.sub("", lines[-1].strip())) if lines else []
    if not last:
        return Reading(None, False)
    finished = _FINISHED.search(lines[-1].strip()) or ("=" in last[-1] and not _DANGLING.search(last[-1]))
    answer = _answer_of(last[-1], finished=bool(finished))
    # Words are an answer where they are all that the line says.
    return Reading(None if answer and len(last) > 1 and isinstance(parse(answer), Words) else answer, False)


def grade_math(text: str, gold: str) -> bool:
    """Whether an answer segment states an answer (:func:`read`) that equals the gold one (:func:`equal`)."""
    answer = parse_math(text)
    return answer is not None and equal(answer, gold)


def _on_one_line(display: re.Match[str]) -> str:
    inside = display[1] if display[1] is not None else display[2]
    return " $" + " ".join(inside.split()) + "$ " if inside.strip() else " "


def _trimmed(text: str) -> str | None:
    return text.strip().lstrip("*_`").rstrip("*_`.,").strip() or None


def _sentences(line: str) -> list[str]:
    """The sentences of a line, without marks of type setting around them."""
    parts = (_trimmed(part.strip().strip("*_`\"'")) for part in _END.split(line))
    return [part for part in parts if part and part.strip("*_`\"')]}$ ")]


def _answer_of(sentence: str, finished: bool) -> str | None:
    """The answer that a sentence is or, if it is ``finished``, holds."""
    if len(sentence) > LONGEST:
        return None
    expression = parse(sentence)
    if _is_mathematics(expression):
        return sentence
    if _UNSURE.search(sentence):
        return None
    if not re.search(r"[\d\\$]", expression.raw) and len(expression.raw.split()) <= FEW_WORDS:
        return sentence
    return _quantity(sentence) if finished and not _PART.search(sentence) else None


def _is_mathematics(expression: Expression) -> bool:
    return all(map(_is_mathematics, expression.parts)) if isinstance(expression, Sequence) else not isinstance(expression, Words)


def _quantity(sentence: str) -> str | None:
    """The one quantity in a sentence, of a sentence with an equation what stands behind its last sign of equality; None if there is none, or several.

    Names (``$x$``) are no quantities.
    """
    calculated, equals, result = sentence.rpartition("=")
    if equals and not _MATHS.search(sentence) and re.search(r"\d", calculated):
        sentence = result
    formulas: list[str] = []

    def take(maths: re.Match[str]) -> str:
        inside = (maths["round"] if maths["dollar"] is None else maths["dollar"]).strip()
        if expressions.is_words(inside):
            return maths[0]
        if not _SYMBOL.fullmatch(inside):
            formulas.append(inside)
        return " , "

    rest = _MATHS.sub(take, sentence)
    for match in _QUANTITY.finditer(rest):
        unit = _UNIT_ENDS.sub("", match["unit"])
        formulas.append(match[0][: len(match[0]) - len(match["unit"])] + unit)
    return formulas[0].strip() if len(formulas) == 1 else None


def equal(answer: str, gold: str) -> bool:
    """Whether an answer equals the gold one.

    Parameters
    ----------
    answer
        As :func:`read` reads it.
    gold
        The right answer.

    Notes
    -----
    Structure comes first (:mod:`midtrace.expressions`): tuples and intervals are equal part by part under the same brackets, sets and lists in any
    order, and none of them equals a number. A list without brackets may stand for a set or a tuple.

    Two numbers in digits are compared exactly, by the conventions of GSM8K and AIME: currency signs, thousands separators, leading zeros, a
    trailing period or comma and a unit do not count, unless both sides name a unit and these differ (``5 km``, ``5 m``). A percent sign does not
    count either (the gold 50 is met by 50%, and 0.5 by it too). ``x = 3`` is 3, but not ``y = 3``. Words are compared as texts. All else is for
    math-verify, which gets the gold one first and five seconds; a comparison that is not done by then is not equal. Never a part of an answer:
    ``18 or 19`` and ``18 million`` are not 18.
    """
    return len(answer) <= LONGEST and bool(clean(answer)) and _same(parse(gold), parse(answer))


def _same(gold: Expression, answer: Expression) -> bool:
    if isinstance(gold, Number | Formula) and isinstance(answer, Number | Formula) and gold.name and answer.name and gold.name != answer.name:
        return False
    if isinstance(gold, Number) and isinstance(answer, Number):
        return _same_number(gold, answer)
    if isinstance(gold, Sequence) and isinstance(answer, Sequence):
        return _same_sequence(gold, answer)
    if _plain(gold) == _plain(answer):
        return True
    if isinstance(gold, Words) or isinstance(answer, Words):
        return False
    if isinstance(gold, Sequence) != isinstance(answer, Sequence):
        # An interval for an inequality, a list of equations for a system: math-verify knows some of these.
        other = answer if isinstance(gold, Sequence) else gold
        if not re.search(r"[<>]|\\(?:le|ge|lt|gt|leq|geq)(?![A-Za-z])|\\(?:emptyset|varnothing|mathbb)", other.raw):
            return False
    if {type(gold), type(answer)} == {Number, Formula} and any(_PRODUCT.fullmatch(side.raw) for side in (gold, answer)):
        return False  # math-verify would take the letter for a unit
    bases = [_BASE.fullmatch(side.raw) for side in (gold, answer)]
    if any(bases):  # a numeral in another base: 1011_2
        return _same_numeral(gold, answer, *bases)
    return _by_math_verify(_for_math_verify(gold), _for_math_verify(answer))


def _same_numeral(gold: Expression, answer: Expression, gold_base: re.Match[str] | None, answer_base: re.Match[str] | None) -> bool:
    """Whether numerals of which one has its base are the same: an answer may leave out the base of the gold one, never add another."""
    if gold_base is None:
        return False
    stated = answer_base["digits"] if answer_base else answer.raw.strip()
    same_base = answer_base is None or answer_base["base"] == gold_base["base"]
    return same_base and stated.lower() == gold_base["digits"].lower()


def _same_number(gold: Number, answer: Number) -> bool:
    if gold.unit and answer.unit and gold.unit != answer.unit:
        return False
    if gold.value == answer.value:
        return True
    if gold.percent != answer.percent:
        hundredfold, other = (gold, answer) if gold.percent else (answer, gold)
        return hundredfold.value == 100 * other.value
    # A fraction may be met by its decimals.
    return gold.decimal != answer.decimal and _by_math_verify(str(gold.value), str(float(answer.value)) if answer.decimal else str(answer.value))


def _same_sequence(gold: Sequence, answer: Sequence) -> bool:
    kinds = {gold.kind, answer.kind}
    if len(kinds) > 1 and not kinds <= {"list", "set"} and kinds != {"list", "()"}:
        return False
    if len(gold.parts) != len(answer.parts):
        return False
    if gold.ordered:
        return all(map(_same, gold.parts, answer.parts))
    left = list(answer.parts)
    for part in gold.parts:
        at = next((at for at, other in enumerate(left) if _same(part, other)), None)
        if at is None:
            return False
        del left[at]
    return True


def _plain(expression: Expression) -> str:
    """The text of an expression without spaces, case and punctuation, where it is words; without spaces, where it is mathematics."""
    if isinstance(expression, Words):
        return re.sub(r"[\s.,;:!'\"()\\-]+", "", expression.raw).casefold()
    return re.sub(r"\s", "", expression.raw)


def _for_math_verify(expression: Expression) -> str:
    return expression.raw.replace(expressions.THOUSANDS, "").replace("\\$", "").replace("$", "")


@lru_cache(maxsize=4096)
def _by_math_verify(gold: str, answer: str) -> bool:
    return comparison.same(gold, answer)
