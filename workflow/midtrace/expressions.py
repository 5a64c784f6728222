"""The structure of a mathematical answer: numbers, lists, tuples, sets and intervals are told apart before anything is normalised.

A comma means three things: in ``1,234`` it is part of a number, in ``(3,100)`` it separates coordinates, in ``3, 100`` the members of a list. So
the structure is read first, and what is left, single expressions, is for whoever compares them (:mod:`midtrace.grading.free_form`).
"""

import re
from dataclasses import dataclass, replace
from fractions import Fraction

from midtrace.latex import enclosed, split, unwrap

TEXT_COMMANDS = ("text", "textbf", "textit", "textrm", "textsf", "texttt", "textnormal", "emph", "underline", "mbox", "hbox")
FONT_COMMANDS = ("mathrm", "mathbf", "mathit", "mathsf", "mathtt", "bf", "rm", "boldsymbol", "bm", "operatorname", "boxed", "fbox")
_SIGNS = str.maketrans(
    {
        **{"\u2212": "-", "\u2013": "-", "\u00d7": r"\times ", "\u00b7": r"\cdot ", "\u22c5": r"\cdot ", "\u00f7": "/", "\u2044": "/"},
        **{"\u03c0": r"\pi ", "\u221e": r"\infty ", "\u2264": r"\le ", "\u2265": r"\ge ", "\u222a": r"\cup ", "\u00b1": r"\pm ", "\u2208": r"\in "},
        **{"\u00b0": r"^\circ ", "\u00b2": "^2", "\u00b3": "^3", "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2032": "'"},
    }
)
THOUSANDS = "\ue000"  # a separator that is certainly one, such as {,}
# A comma before 000 or 050 is one too: no coordinate is written like that.
_THIN = re.compile(r"(?<=\d)(?:\{,\}|\\,|\\:|\\;|\\ )(?=\d{3}(?!\d))|(?<=[1-9])(?<!\d{4}),(?=0\d\d(?!\d))|(?<=\d0),(?=0\d\d(?!\d))")
_SPACE = re.compile(r"(?<!\\)\\(?:[,;: ]|q?quad(?![A-Za-z]))|~")
_NOTHING = re.compile(r"(?<!\\)\\!|\\(?:left|right|[bB]igg?[lrm]?|displaystyle|limits|strut|phantom\{\})(?![A-Za-z])\.?")
_MATH_MARKS = re.compile(r"(?<!\\)\\[()\[\]]|\$\$")
_CURRENCIES = {"$": "dollar", "\u20ac": "euro", "\u00a3": "pound", "\u00a5": "yen", "\u20b9": "rupee", "USD": "dollar", "EUR": "euro", "GBP": "pound"}
_CURRENCY = r"(?P<currency>\\?\$|[\u20ac\u00a3\u00a5\u20b9]|(?:USD|EUR|GBP|US)(?=[\s$\d\\])\s*(?:\\?\$)?)"
_DIGITS = rf"(?:\d{{1,3}}(?:[,{THOUSANDS}]\d{{3}})+(?!\d)|\d{{1,3}}(?:\ \d{{3}})+(?!\d)|\d+)(?:\.\d*)?|\.\d+"
_FRACTION = r"\\frac\s*(?:\{\s*(?P<top>-?\d+)\s*\}|(?P<top1>\d))\s*(?:\{\s*(?P<bottom>\d+)\s*\}|(?P<bottom1>\d))"
_NUMBER = re.compile(
    rf"(?P<sign>[+-]?)\s*{_CURRENCY}?\s*(?P<sign2>-?)\s*"
    rf"(?:(?P<whole>\d+)\s*{_FRACTION}|(?P<whole2>\d+)\s+(?P<over>\d+)\s*/\s*(?P<under>\d+)"
    rf"|{_FRACTION.replace('top', 'head').replace('bottom', 'foot')}|(?P<quotient>\d+)\s*/\s*(?P<divisor>\d+)|(?P<digits>{_DIGITS}))"
    r"(?P<rest>(?![\d.]).*)",
    re.DOTALL,
)
_PERCENT = re.compile(r"\s*(?:\\?%|\b(?:percent|per\s+cent|percentage\s+points)\b)", re.IGNORECASE)
_DEGREE = re.compile(r"\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))\s*")
_MULTIPLIERS = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
_MULTIPLIER = re.compile(rf"\s*[\s-]({'|'.join(_MULTIPLIERS)})s?\b", re.IGNORECASE)
# Words behind a number that change it, so they are no unit.
CHANGING = re.compile(
    r"\b(?:hal(?:f|ves)|(?:third|quarter|fourth|fifth|sixth|seventh|eighth|ninth|tenth)s?"
    r"|squared|cubed|factorial|plus|minus|times|over|mod|divided|and|or|to|pi|sqrt|sin|cos|tan|log|ln|exp|less|more|but|not|base|is|are)\b",
    re.IGNORECASE,
)
_UNIT = re.compile(
    r"(?:\s+[mghsLNJWVK](?![A-Za-z])|[\s-]*(?:per\b|[A-Za-z]{2,}\.?|/\s*[A-Za-z]+)(?:\s*\^\s*\{?-?\d\}?)?|\s+[A-Za-z]\^\{?\d\}?)*\s*", re.DOTALL
)
# A single letter is a unit where it is set as a text: 5\text{ m}, but not 5m.
_SINGLE = re.compile(r"\\(?:text|mathrm|rm|textrm|textbf|mbox)\s*\{\s*([A-Za-z])(?:\s*/\s*([A-Za-z]+))?\s*\}")
_ASIDE = re.compile(r"\s*(?:,\s*(?!and\b|or\b|not\b)[A-Za-z][A-Za-z\s,'-]*|\([A-Za-z\s]{3,}\))$")
_TRAILING = re.compile(
    r"(?:\s*\\(?:text|mathrm|mbox)\s*\{(?P<set>[A-Za-z\s.]+)\}|(?<=[\s}\d])(?P<words>(?:(?:square|cubic)\s+)?[A-Za-z]{2,}))(?P<power>\^\{?\d\}?)?$"
)
# Units that are told apart where both sides name one; words that are none of these do not count.
_UNITS = {
    **dict.fromkeys(("mm", "millimeter", "millimetre"), "mm"),
    **dict.fromkeys(("cm", "centimeter", "centimetre"), "cm"),
    **dict.fromkeys(("m", "meter", "metre"), "m"),
    **dict.fromkeys(("km", "kilometer", "kilometre"), "km"),
    **dict.fromkeys(("in", "inch", "inche"), "inch"),
    **dict.fromkeys(("ft", "foot", "feet"), "foot"),
    **dict.fromkeys(("yd", "yard"), "yard"),
    **dict.fromkeys(("mi", "mile"), "mile"),
    **dict.fromkeys(("g", "gram"), "g"),
    **dict.fromkeys(("kg", "kilogram"), "kg"),
    **dict.fromkeys(("lb", "pound"), "pound"),
    **dict.fromkeys(("oz", "ounce"), "ounce"),
    **dict.fromkeys(("s", "sec", "second"), "second"),
    **dict.fromkeys(("min", "minute"), "minute"),
    **dict.fromkeys(("h", "hr", "hour"), "hour"),
    **{name: name for name in ("day", "week", "month", "year", "dollar", "cent", "euro", "yen", "rupee", "degree", "radian")},
}
_NAME = r"(?:[A-Za-z]|\\(?!frac|sqrt)[A-Za-z]+)(?:_\{?\w+\}?)?'?"
_LEFT = re.compile(rf"\s*(?:{_NAME}\s*(?:\(\s*[A-Za-z0-9]\s*\))?|(?:{_NAME}){{2,3}}|\(\s*{_NAME}(?:\s*,\s*{_NAME})+\s*\)|[A-Za-z]{{3,}})\s*")
_EQUALS = re.compile(r"=")
_MEMBER = re.compile(r"\s*\\in(?![A-Za-z])\s*")
_UNION = re.compile(r"\s*(?:\\cup(?![A-Za-z])|\bU\b)\s*")
_LIST = re.compile(r"\s*(?:,\s*(?:and|or)\b|;|,(?=\s)|,(?!\d{3}(?!\d))|(?<!\d),|(?:(?<=[\s\d)\]}])|^)\b(?:and|or)\b)\s*")
_IN_BRACKETS = re.compile(r"\s*[,;]\s*")
_PLUS_MINUS = re.compile(r"\\(?:pm|mp)(?![A-Za-z])")
_FUNCTIONS = {
    *("sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "log", "ln", "lg", "exp", "sqrt", "max", "min"),
    *("gcd", "lcm", "mod", "det", "deg", "dim", "lim", "sup", "inf", "floor", "ceil", "abs", "pi", "infty"),
}
_COMMAND = re.compile(r"\\(?:begin|end)\s*\{[a-z*]+\}|\\[A-Za-z]+")
_SMALL = {"is", "so", "it", "we", "of", "or", "if", "to", "in", "be", "as", "at", "by", "no", "on", "the", "and", "for", "all", "not", "are", "yes"}


@dataclass(frozen=True)
class Number:
    """A number in digits: an integer, a decimal, a fraction, a mixed number. ``unit``: None, or its unit; of an unknown one, ``""``."""

    value: Fraction
    percent: bool
    unit: str | None
    decimal: bool
    raw: str
    name: str | None = None


@dataclass(frozen=True)
class Sequence:
    """Several expressions. ``kind``: ``list`` (no brackets), ``set``, ``union``, or the two brackets, such as ``()`` or ``[)``."""

    kind: str
    parts: tuple["Expression", ...]
    raw: str

    @property
    def ordered(self) -> bool:
        """Whether the order of the parts matters."""
        return self.kind not in ("list", "set", "union")


@dataclass(frozen=True)
class Formula:
    """Any other single expression; ``name``: what it is said to be equal to, as in ``x = ...``."""

    raw: str
    name: str | None = None


@dataclass(frozen=True)
class Words:
    """A text that is no mathematics."""

    raw: str


Expression = Number | Sequence | Formula | Words


def clean(text: str) -> str:
    """A text without marks of mathematics and of type setting; separators of thousands that can be nothing else are marked."""
    text = text.strip().translate(_SIGNS)
    text = _THIN.sub(THOUSANDS, _NOTHING.sub("", text).replace("{,}", THOUSANDS))
    text = re.sub(r"\\[dtc]frac(?![A-Za-z])", r"\\frac", text)
    text = _MATH_MARKS.sub(" ", _SPACE.sub(" ", text))
    text = re.sub(r"(?<!\\)\$(?!\s*-?[\d.])|(?<!\\)\$(?=[^$]*(?<!\\)\$)", " ", text)  # a dollar sign before a number is money, if it has no partner
    text = re.sub(r"(?<![\\A-Za-z])sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"(?<![\\A-Za-z])(pi|infty|infinity)(?![A-Za-z])", lambda word: "\\pi" if word[1] == "pi" else "\\infty", text)
    return text.strip().strip("*`").strip().removeprefix("=").strip(" \t\n;:").removesuffix(r"\\").rstrip(" .,;:").strip()


def number(text: str) -> Number | None:
    """The number that a text is, with or without a unit; None if it is anything else. ``18 or 19`` and ``2 thirds`` are no numbers."""
    return _number(clean(text))


def _number(text: str) -> Number | None:
    match = _NUMBER.fullmatch(text)
    if not match or (match["sign"] and match["sign2"]):
        return None
    value = _value(match)
    if value is None:
        return None
    if "-" in (match["sign"], match["sign2"]):
        value = -value
    rest = _ASIDE.sub("", match["rest"])
    percent = _PERCENT.match(rest)
    degree = _DEGREE.match(rest)
    if percent or degree:
        rest = rest[(percent or degree).end() :]  # type: ignore[union-attr]
    many = _MULTIPLIER.match(rest)
    if many:
        value, rest = value * _MULTIPLIERS[many[1].lower()], rest[many.end() :]
    tight = re.match(r"[A-Za-z]", rest)  # 5x is a product, 5cm a length
    rest = _SINGLE.sub(lambda single: f" unit{single[1]}" + (f" per unit{single[2]}" if single[2] else ""), rest)
    rest = unwrap(re.sub(r"\\(?=text|mathrm)", r" \\", rest), (*TEXT_COMMANDS, "mathrm", "rm"))
    if not _UNIT.fullmatch(rest) or CHANGING.search(rest):
        return None
    unit = _unit(rest) if rest.strip() else None
    if tight and (unit in (None, "") and rest.split()[0].lower() not in ("km/h", "mph", "pm", "am")):
        return None
    if match["currency"]:
        unit = _CURRENCIES.get(match["currency"].strip("\\ $") or "$", "dollar")
    if degree:
        unit = "degree"
    return Number(value, bool(percent), unit, bool(match["digits"]) and "." in match["digits"], text)


def _value(match: re.Match[str]) -> Fraction | None:
    part = match.groupdict()

    def ratio(top: str | None, bottom: str | None) -> Fraction | None:
        return Fraction(int(top), int(bottom)) if top and bottom and int(bottom) else None

    if part["whole"]:
        fraction = ratio(part["top"] or part["top1"], part["bottom"] or part["bottom1"])
        return None if fraction is None or fraction < 0 else int(part["whole"]) + fraction
    if part["whole2"]:
        fraction = ratio(part["over"], part["under"])
        return None if fraction is None else int(part["whole2"]) + fraction
    if part["quotient"]:
        return ratio(part["quotient"], part["divisor"])
    if part["digits"]:
        digits = re.sub(rf"[,\s{THOUSANDS}]", "", part["digits"])
        return Fraction(digits if digits != "." else "0")
    return ratio(part["head"] or part["head1"], part["foot"] or part["foot1"])


def _unit(words: str) -> str:
    """What a unit is called here; empty for one that is not known, or a compound."""
    found = re.findall(r"[A-Za-z]+", words.lower())
    power = re.search(r"\^\s*\{?(\d)", words)
    square = "square" in found or "sq" in found or (power is not None and power[1] == "2")
    cubic = "cubic" in found or (power is not None and power[1] == "3")
    found = [word for word in found if word not in ("square", "sq", "cubic", "us")]
    if len(found) != 1 or "/" in words or (power is not None and power[1] not in "23"):
        return ""
    word = found[0].removeprefix("unit") or found[0]
    name = _UNITS.get(word) or _UNITS.get(word.removesuffix("s")) or ""
    return name + ("^2" if square else "^3" if cubic else "") if name else ""


def _without_unit(text: str) -> str:
    """An expression without the unit behind it: ``3\\sqrt{2}\\text{ cm}``. Only known units of expressions that hold a number are taken away."""
    match = _TRAILING.search(text)
    if not match or not re.search(r"\d|\\pi", text[: match.start()]) or text[: match.start()].rstrip().endswith(tuple("=<>+-*/(,")):
        return text
    words = (match["set"] or match["words"]) + (match["power"] or "")
    known = _unit(f" {words} ") or re.fullmatch(r"(?:square |cubic )?units?", words.strip())
    return text[: match.start()].strip() if known else text


def is_words(text: str) -> bool:
    """Whether a text holds words, so that it must not be read as a product of letters."""
    plain = _COMMAND.sub(" ", unwrap(text, ("text", "mathrm")) if "\\" in text else text)
    runs = [run for run in re.findall(r"[A-Za-z]+", plain) if run.lower() not in _FUNCTIONS]
    if any(len(run) >= 4 for run in runs) or any(run.lower() in _SMALL for run in runs):
        return True
    return sum(len(run) >= 2 for run in re.findall(r"(?<!\S)[A-Za-z]{2,}(?!\S)", plain) if run.lower() not in _FUNCTIONS) >= 2


def parse(text: str) -> Expression:
    """The structure of an answer."""
    return _parse(clean(text))


def _parse(text: str, bracketed: bool = False) -> Expression:
    if (whole := _number(text)) is not None:
        return whole
    text = _without_unit(re.sub(r"\s+", " ", unwrap(text, FONT_COMMANDS)).strip())
    plain = unwrap(re.sub(r"\\text(?=\s*\{)", r" \\text", text), TEXT_COMMANDS).strip().rstrip(".,;").strip()
    if plain != text and (whole := _number(plain)) is not None:
        return whole
    text = plain
    if brackets := enclosed(text):
        return _enclosed(*brackets, text)
    sides = split(text, _EQUALS)
    if len(sides) > 1 and all(side.strip() for side in sides) and not re.search(r"[<>!]\s*=|\\neq?\b", text):
        members = split(text, _LIST)
        if len(members) == 1:
            return _equation([side.strip() for side in sides], text)
    members = split(text, _MEMBER)
    if len(members) == 2 and _LEFT.fullmatch(members[0]):
        return _parse(members[1].strip())
    if "\\cup" in text or enclosed(text.split("U")[0].strip()):
        parts = split(text, _UNION)
        if len(parts) > 1:
            return Sequence("union", tuple(_parse(part.strip()) for part in parts), text)
    parts = [part.strip() for part in split(text, _LIST)]
    parts = parts if bracketed or not re.search(r"\\begin", text) else [text]
    if len(parts) > 1 and all(parts) and not any(isinstance(_shallow(part), Words) for part in parts):
        return Sequence("list", tuple(_parse(part) for part in parts), text)
    if len(_PLUS_MINUS.findall(text)) == 1:
        both = [_PLUS_MINUS.sub(sign, text).strip().removeprefix("+").strip() for sign in "+-"]
        return Sequence("list", tuple(_parse(side) for side in both), text)
    return _shallow(text)


def _shallow(text: str) -> Expression:
    return _number(text) or (Words(text) if is_words(text) else Formula(text))


def _enclosed(first: str, content: str, last: str, text: str) -> Expression:
    inside = [part.strip() for part in split(content, _IN_BRACKETS)]
    if first in (r"\{", r"\lbrace", "{"):
        if re.search(r"\\mid|(?<!\|)\|(?!\|)|:", content):  # a condition, not a list of members
            return _shallow(text)
        return Sequence("set", tuple(_parse(part, True) for part in inside if part), text) if first != "{" or len(inside) > 1 else _parse(content)
    if len(inside) == 1:
        return _parse(content.strip()) if (first, last) == ("(", ")") and content.strip() else _shallow(text)
    if not all(inside):
        return _shallow(text)
    return Sequence({r"\langle": "<"}.get(first, first) + {r"\rangle": ">"}.get(last, last), tuple(_parse(part, True) for part in inside), text)


def _equation(sides: list[str], text: str) -> Expression:
    """``x = 3`` and ``6 x 7 = 42`` are what stands last, with the name that it is given; any other equation is a formula as a whole."""
    *left, right = sides
    names = [side for side in left if _LEFT.fullmatch(side)]
    arithmetic = all(_LEFT.fullmatch(side) or not re.search(r"[A-Za-wyzA-Z]", _COMMAND.sub("", side)) for side in left)
    value = _parse(right)
    if not arithmetic or (isinstance(value, Words) and not names):
        return _shallow(text)
    name = re.sub(r"\s", "", names[0]) if names else None
    return replace(value, name=name) if isinstance(value, Formula | Number) else value
