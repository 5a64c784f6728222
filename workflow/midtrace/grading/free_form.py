"""Free-form mathematical answers: what a text states, and whether it equals the gold one."""

import re
from fractions import Fraction
from functools import lru_cache

from midtrace.grading.bounded import bounded
from midtrace.grading.comparison import Comparer
from midtrace.latex import boxed

LONGEST = 1000  # characters of an answer; more is no answer
_EMPTY = re.compile(r"\W*(?:(?:final\s+)?answer)?\W*", re.IGNORECASE)
_STATED = re.compile(r"(?:\banswer\b[\s*_`]*+(?:is\b|[:=])[\s*_`:=]*+|^\s*####[^\S\n]*)(.+)", re.IGNORECASE | re.MULTILINE)
# Where the answer of a sentence ends.
_REST = re.compile(r"\.(?=\s|$)|,?\s+(?:because|since|which|as|so|where)\b.*", re.IGNORECASE)
_CURRENCY = re.compile(r"\\?\$|[€£¥₹]|\b(?:USD|EUR|GBP)\b")
_SEPARATOR = re.compile(r"(?<=\d)(?:,|\{,\}|\\,|\\!|\\:|\\;|[ \u00a0\u2009\u202f])(?=\d{3}(?!\d))")
_NUMBER = re.compile(r"(?P<sign>[+-]?)\s*(?P<digits>\d+(?:\.\d*)?|\.\d+)(?P<percent>\s*\\?%)?(?P<unit>(?:[\s-]+[A-Za-z]{2,})*)")
# Words behind a number that change it, so they are no unit.
_WORDS = re.compile(
    r"\b(?:(?:hundred|thousand|million|billion|trillion|dozen)s?|hal(?:f|ves)|(?:third|quarter|fourth|fifth|sixth|seventh|eighth|ninth|tenth)s?"
    r"|squared|cubed|factorial|plus|minus|times|over|mod|divided|and|or|to|pi|sqrt|sin|cos|tan|log|ln|exp|less|more|but|not)\b",
    re.IGNORECASE,
)
_comparer = Comparer()


def parse_math(text: str) -> str | None:
    """The free-form answer that a text states.

    It is the last ``\\boxed{}``, else what follows the last ``answer is``, ``Answer:`` or ``####`` on its line, up to the end of the sentence or
    to its reason (``because ...``), else the last line. A text whose last ``\\boxed{`` is never closed states none.
    The last 20,000 characters are searched.
    """
    text = bounded(text)
    boxes = boxed(text)
    if not boxes and re.search(r"\\boxed\s*\{", text):
        return None
    stated = [_REST.split(found, maxsplit=1)[0] for found in _STATED.findall(text)]
    lines = [line for line in text.splitlines() if not _EMPTY.fullmatch(line)]
    for candidates in (boxes, stated, lines):
        if candidates:
            return candidates[-1].strip().lstrip("*_`").rstrip("*_`.,").strip() or None
    return None


def grade_math(text: str, gold: str) -> bool:
    """Whether an answer segment states an answer (:func:`parse_math`) that equals the gold one (:func:`equal`)."""
    answer = parse_math(text)
    return answer is not None and equal(answer, gold)


def equal(answer: str, gold: str) -> bool:
    """Whether an answer equals the gold one.

    Parameters
    ----------
    answer
        As :func:`parse_math` reads it.
    gold
        The right answer.

    Notes
    -----
    Two plain numbers are compared exactly, by the conventions of GSM8K and AIME: currency signs, thousands separators, leading zeros, a
    trailing period or comma and a unit in words do not count, and neither does a percent sign (the gold 50 is met by 50%). All else is for
    math-verify, which gets the gold one first and five seconds; a comparison that is not done by then is not equal. Never a part of an answer:
    ``18 or 19`` and ``18 million`` are not 18.
    """
    wanted, found = tidy(gold), tidy(answer)
    if not found or len(found) > LONGEST:
        return False
    number, other = plain_number(wanted), plain_number(found)
    if number is not None and other is not None:
        if number[0] == other[0]:
            return True
        if not (number[1] or other[1]):
            return False
    return _equal(wanted, found)


@lru_cache(maxsize=4096)
def _equal(gold: str, answer: str) -> bool:
    return _comparer.equal(gold, answer)


def tidy(text: str) -> str:
    """An answer without currency signs, thousands separators, marks of mathematics around it, and punctuation after it."""
    text = text.strip().replace("\u2212", "-").replace("\\left", "").replace("\\right", "")
    text = re.sub(r"^\\[(\[]|\\[)\]]$", "", text).strip("*`")
    text = _SEPARATOR.sub("", _CURRENCY.sub("", text))
    text = re.sub(r"\\(?:text|mathrm|textbf)\s*\{([^{}]*)\}", r" \1", text) if re.match(r"\s*[+-]?[\d.]", text) else text
    return text.strip().rstrip(".,").strip()


def plain_number(text: str) -> tuple[Fraction, bool] | None:
    """The value of a number in digits, with or without a unit in words, and whether it is one of percent; None for anything else."""
    match = _NUMBER.fullmatch(text)
    if not match or _WORDS.search(match["unit"]):
        return None
    value = Fraction(match["digits"] if match["digits"] != "." else "0")
    percent = bool(match["percent"]) or bool(re.search(r"\bpercent\b", match["unit"], re.IGNORECASE))
    return (-value if match["sign"] == "-" else value), percent
