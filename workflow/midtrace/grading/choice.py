"""The option that an answer states."""

import re
from collections.abc import Sequence

from midtrace.expressions import FONT_COMMANDS, TEXT_COMMANDS
from midtrace.grading.bounded import bounded
from midtrace.grading.statements import ASKED, BEFORE, HEADING, IS, NOUN, SURELY, Reading, is_asserted
from midtrace.latex import Box, boxes, unwrap

# Quoting that may stand before a label, and LaTeX commands of texts around it: "(C", "**C", "\text{(C". Boxes are matched brace by brace instead.
# Quantifiers are possessive: an answer of a thousand spaces must not take a minute.
_MARKS = r"(?:[(\[{*_`\"'$\s]|\\(?![a-z]))*+"
_COMMANDS = "|".join(name for name in (*TEXT_COMMANDS, *FONT_COMMANDS) if name not in ("boxed", "fbox"))
_LABEL = rf"{_MARKS}(?:\\(?:{_COMMANDS})\s*+\{{{_MARKS}){{0,8}}+(?:(?:option|choice|letter)\b{_MARKS})?(?P<label>[A-Za-z])(?![A-Za-z0-9]|'[a-z])"
_STATEMENTS = (
    re.compile(rf"[\"'](?:\w+[_ ])?{NOUN}(?:[_ ]\w+)?[\"']\s*:{_LABEL}", re.IGNORECASE),
    re.compile(rf"<(?:\w+[_ ])?answer>{_LABEL}", re.IGNORECASE),
    re.compile(rf"\b{NOUN}\b[\s*_`]*+{SURELY}{IS}{_LABEL}", re.IGNORECASE),
    re.compile(rf"{HEADING}{_LABEL}", re.IGNORECASE | re.MULTILINE),
    re.compile(rf"答案(?:是|为|選|选)?[\s:：*\uff08]{{0,20}}+{_LABEL}"),
)
_CHOICE = re.compile(rf"\b(?:choose|pick|select|go(?:ing)?\s+with|opt\s+for)\b(?:\s+{NOUN}\b)?{_LABEL}", re.IGNORECASE)
_MENTION = re.compile(rf"\b{NOUN}\b{_LABEL}", re.IGNORECASE)
_PRAISED = re.compile(
    rf"(?<![\w'])(?P<label>[A-Z])[)\]}}*_`\"'$\s\\]*+is\b\s*+{SURELY}(?:the\s+)?(?:only\s+|single\s+)?(?:correct|right|best|answer)\b"
)
# What "C is correct" may follow: "Vitamin C is the right one" says nothing of option C.
_OPENING = re.compile(r"(?:^|[.!?:;,\n]|\b(?:so|thus|therefore|hence|that|then|and|but|only|indeed|clearly)\s)[\s(\[{*_`\"'$\\]*$", re.IGNORECASE)
_CLOSING = r"[)\]}*_`\"'$\s\\]*+"
_ALONE = re.compile(rf"^{_LABEL}{_CLOSING}[.:,]?[*_`\s]*+$", re.IGNORECASE)
_LEADING = re.compile(rf"^{_LABEL}[\]}}*_`\"'$\s\\]*+[).:]")
_DENIED = re.compile(r"\b(?:not|cannot|no|neither|nor|wrong|incorrect|false|unlike)\b|n't", re.IGNORECASE)
# A second option; not the beginning of an option's text, as in "C, E. coli", "C, B-cells", "C, E = mc^2".
_OTHER = re.compile(
    r"[^\w\n]*(?:\bor\b|\band\b|/|,|&)\s*(?:(?:perhaps|possibly|maybe|also|even|else)\s+)?[(*]*(?P<other>[A-J])"
    r"(?![A-Za-z0-9']|[^\S\n]+(?!and\b|or\b)[a-z]|-[A-Za-z]|\.[^\S\n]+[a-z]|[^\S\n]*[=^_])"
)
# What may follow a label on its line, where another word makes it the article "a" or the pronoun "I".
_CONNECTIVES = {"and", "as", "because", "but", "due", "for", "since", "which", "with"}
_AFTER_A = {"instead", "is", "not", "only", "or", "over", "rather"}  # no noun, so what stands before is no article
# Whose choice it is, if not that of the run.
_OTHERS = re.compile(r"\b(?:students?|people|others|they|someone|anyone|many|some|most|who|you)\b[^.!?\n]{0,60}$", re.IGNORECASE)
# What makes a letter a variable: an index, an operator, an argument.
_OPERATOR = (
    r"[^\S\n]*(?:[+=^<>|\u00d7\u00b7\u00f7\u00b1\u2208\u2227\u2228\u2229\u222a\u2248\u2260\u2264\u2265\u2282\u2283\u2192\u21d2]"
    r"|\\(?:c[au]p|cdot|times|div|pm|mp|leq?|geq?|lt|gt|neq?|approx|equiv|sim|in|notin|su[bp]set(?:eq)?|to|(?:long)?(?:right|left)arrow|Rightarrow"
    r"|setminus|oplus|otimes|wedge|vee|land|lor|circ|perp|parallel|propto|frac|dfrac|sqrt|mid|mathbb|left|sin|cos|log|ln)(?![A-Za-z])"
    r"|[-\u2212]\s*[B-HJ-Zb-z](?![A-Za-z])|/\s*\d)"
    r"|_(?=[A-Za-z0-9{\\])|\*(?=[A-Za-z0-9](?![A-Za-z*]))|\((?=[a-z](?:,|\)))"
)
_MATHEMATICS = re.compile(_OPERATOR)
_PHRASE = rf"(?:(?:(?:the|final|correct|best)\s+)*{NOUN}\b(?:\s+(?:is|letter|option|choice)\b)*[\s:=]*)?"
_BOXED = re.compile(rf"{_MARKS}{_PHRASE}{_MARKS}(?P<label>[A-Za-z])(?![A-Za-z0-9])(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_NOTHING_ELSE = re.compile(rf"{_CLOSING}[.,:;]?{_CLOSING}")
# "(C) the text of the option", "C. 42"; but not "(A) \cup (B)".
_ANOTHER = rf"(?:{_OPERATOR})\s*\(?[A-Z]\)?(?![A-Za-z])|[-/!]?\s*[(\\{{]*[A-Z][)}}]*\s*$"
_OPTION_TEXT = re.compile(rf"[*_`\"'$\s\\\]}}]*+(?:\)++[)\]}}*_`\"'$\s]*+(?!{_ANOTHER})\S|[.:](?=[\s\\$\d])\s*\S)", re.DOTALL)


def parse_choice(text: str, labels: Sequence[str]) -> str | None:
    """The option that an answer states; see :func:`read`.

    Parameters
    ----------
    text
        Text of the answer segment (never of the reasoning); its last 20,000 characters are searched.
    labels
        Labels that the item has.

    Returns
    -------
    str or None
        The label; None if there is none, if two are offered (``B or C``), or if it is not one of ``labels``.
    """
    return read(text, labels).answer


def read(text: str, labels: Sequence[str]) -> Reading:
    """The label of the last answer statement.

    That is ``Answer: C``, ``the correct option is C``, ``\\boxed{C}``, ``I choose C``, a JSON ``answer``, or ``<answer>C``. Without one, the option
    that is mentioned (``option C``, ``C is correct``), if it is one only and none is ruled out; without one, the label that stands alone on the
    last line, or before the only line.

    Notes
    -----
    A statement counts only where it is asserted: not under ``if``, ``whether`` or ``not`` in its clause, not as a question, not of a ``wrong`` or
    ``previous`` answer. So what follows a final answer changes nothing, unless it makes a statement of its own. A letter in a formula is no
    label: ``the answer is A + B`` and a box with mathematics in it (``\\boxed{\\frac{A}{B}}``, ``\\boxed{B^2}``, ``\\boxed{42}``) state no option. A
    box that is never closed is a statement without an answer.
    """
    text = bounded(text)
    stated: list[tuple[int, str | None]] = []  # where, and the label (None: two are offered, or it is cut off)
    for box in boxes(text):
        if (label := _of_box(box, labels)) is not None and is_asserted(text, box.start, box.end, boxed=True):
            stated.append((box.start, label or None))
    matches = [match for pattern in _STATEMENTS for match in pattern.finditer(text)]
    choices = [match for match in _CHOICE.finditer(text) if match["label"].isupper()]
    matches += [match for match in choices if not _OTHERS.search(text[max(0, match.start() - BEFORE) : match.start()])]
    for match in matches:
        if _is_label(text, match) and is_asserted(text, match.start(), match.end("label")):
            stated.append((match.start("label"), None if _offers_another(text, match.end("label"), labels) else match["label"].upper()))
    if stated:
        label = max(stated, key=lambda one: one[0])[1]
        return Reading(label if label in labels else None, True)
    label = _mentioned(text)
    return Reading(label if label in labels else None, False)


def _of_box(box: Box, labels: Sequence[str]) -> str | None:
    """The label in a box; empty if it offers two or is never closed; None if it holds no option."""
    if box.content is None:
        return ""
    content = unwrap(box.content, (*TEXT_COMMANDS, *FONT_COMMANDS)).strip()
    match = _BOXED.fullmatch(content)
    if not match or (match["label"].upper() not in labels and match["label"].upper() not in "ABCDEFGHIJ"):
        return None
    rest = match["rest"]
    if rest.startswith("'") and content.count("'") == 1:  # A' is a point or a derivative
        return None
    if _offers_another(rest, 0, labels):
        return ""
    if _NOTHING_ELSE.fullmatch(rest) or _OPTION_TEXT.match(rest):
        return match["label"].upper()
    word = re.match(r"[)\]}*_`\"'$\\]*\s+([A-Za-z]+)", rest)
    if word and match["label"].isupper() and (word[1].lower() in _CONNECTIVES | {"is"} or match["label"] not in "AI"):
        return match["label"]
    return None


def _offers_another(text: str, at: int, labels: Sequence[str]) -> bool:
    """Whether another option of the item follows: "B or C"."""
    match = _OTHER.match(text, at)
    return match is not None and match["other"] in labels


def _is_label(text: str, match: re.Match[str]) -> bool:
    """Whether the letter is a label and not a word ("a", "I") or a variable."""
    after = text[match.end("label") : match.end("label") + BEFORE]
    if _MATHEMATICS.match(after):
        return after.lstrip().startswith("</")
    word = re.match(r"[^\S\n]+([A-Za-z]+)", after)
    if not word or word[1].lower() in _CONNECTIVES or match["label"] in "BCDEFGHJKLMNOPQRSTUVWXYZ":
        return True
    if match["label"] == "A" and word[1].lower() in _AFTER_A:
        return True
    # "The answer is A trivial consequence" is no English, "Answer: A train" is.
    return match["label"] == "A" and re.search(r"\bis\W*$", text[match.start() : match.start("label")]) is not None


def _mentioned(text: str) -> str | None:
    """The only option that is mentioned, if none is ruled out; where none is mentioned, the label that stands alone."""
    mentioned = [match for match in _MENTION.finditer(text) if match["label"].isupper()]
    mentioned += [match for match in _PRAISED.finditer(text) if _OPENING.search(text[max(0, match.start() - BEFORE) : match.start()])]
    if not mentioned:
        return _alone([line for line in text.splitlines() if line.strip()])
    doubts = (ASKED, _OTHER)  # after the label
    denied = any(_DENIED.search(_sentence(text, match)) or any(doubt.match(text, match.end("label")) for doubt in doubts) for match in mentioned)
    labels = {match["label"] for match in mentioned}
    return labels.pop() if len(labels) == 1 and not denied else None


def _alone(lines: list[str]) -> str | None:
    """The label that stands alone on the last line, or before the only one."""
    match = _ALONE.match(lines[-1]) if lines else None
    if not match and len(lines) == 1:
        match = _LEADING.match(lines[0])
        if match and (match["label"].islower() or _OTHER.match(lines[0], match.end())):
            match = None
    return match["label"].upper() if match else None


def _sentence(text: str, match: re.Match[str]) -> str:
    """The sentence that holds a match (of a very long one, the part around it)."""
    before = re.split(r"[.!?\n]", text[max(0, match.start() - BEFORE) : match.start()])[-1]
    return before + re.split(r"[.!?\n]", text[match.start() : match.start() + BEFORE])[0]
