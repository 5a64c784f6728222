"""The option that an answer states."""

import re
from collections.abc import Sequence

from midtrace.grading.bounded import bounded

# Quoting that may stand before a label, and LaTeX commands around it: "(C", "**C", "\boxed{\text{(C".
# Quantifiers are possessive: an answer of a thousand spaces must not take a minute.
_MARKS = r"(?:[(\[{*_`\"'$\s]|\\(?![a-z]))*+"
_LABEL = rf"{_MARKS}(?:\\[a-z]++\s*+\{{{_MARKS}){{0,8}}+(?:(?:option|choice|letter)\b{_MARKS})?(?P<label>[A-Za-z])(?![A-Za-z0-9]|'[a-z])"
_NOUN = r"(?:answer|ans|choice|option|letter)"
_SURELY = r"(?:(?:therefore|thus|hence|then|clearly|indeed|actually|definitely|simply|most|likely|probably|still)\b[\s,]*+)*+"
_IS = rf"(?:(?:is|(?:must|should|would|will)\s+be)\b[\s,]*+{_SURELY}|[:=]|[-\u2013\u2014]\s)[\s*_`:=]*+"
_STATEMENTS = (
    re.compile(rf"\\boxed\s*\{{{_LABEL}", re.IGNORECASE),
    re.compile(rf"[\"'](?:\w+[_ ])?{_NOUN}(?:[_ ]\w+)?[\"']\s*:{_LABEL}", re.IGNORECASE),
    re.compile(rf"<(?:\w+[_ ])?answer>{_LABEL}", re.IGNORECASE),
    re.compile(rf"\b{_NOUN}\b[\s*_`]*+{_SURELY}{_IS}{_LABEL}", re.IGNORECASE),
    re.compile(rf"^[^\w\n]*+(?:(?:final|correct|the)[^\S\n]+){{0,4}}+answer[^\w\n]*+\n{_LABEL}", re.IGNORECASE | re.MULTILINE),
    re.compile(rf"答案(?:是|为|選|选)?[\s:：*\uff08]{{0,20}}+{_LABEL}"),
)
_CHOICE = re.compile(rf"\b(?:choose|pick|select|go(?:ing)?\s+with|opt\s+for)\b(?:\s+{_NOUN}\b)?{_LABEL}", re.IGNORECASE)
_MENTION = re.compile(rf"\b{_NOUN}\b{_LABEL}", re.IGNORECASE)
_PRAISED = re.compile(
    rf"(?<![\w'])(?P<label>[A-Z])[)\]}}*_`\"'$\s\\]*+is\b\s*+{_SURELY}(?:the\s+)?(?:only\s+|single\s+)?(?:correct|right|best|answer)\b"
)
# What "C is correct" may follow: "Vitamin C is the right one" says nothing of option C.
_OPENING = re.compile(r"(?:^|[.!?:;,\n]|\b(?:so|thus|therefore|hence|that|then|and|but|only|indeed|clearly)\s)[\s(\[{*_`\"'$\\]*$", re.IGNORECASE)
_ALONE = re.compile(rf"^{_LABEL}[)\]}}*_`\"'$\s\\]*+[.:,]?[*_`\s]*+$", re.IGNORECASE)
_LEADING = re.compile(rf"^{_LABEL}[\]}}*_`\"'$\s\\]*+[).:]")
_DENIED = re.compile(r"\b(?:not|cannot|no|neither|nor|wrong|incorrect|false|unlike)\b|n't", re.IGNORECASE)
# What makes a statement no assertion: before it in its clause, right before its noun, and after its label.
_UNASSERTED = re.compile(r"\b(?:if|whether|unless|suppose|assume|assuming|not|never|cannot)\b|n't", re.IGNORECASE)
_CLAUSE = re.compile(r"[.!?\n;:,]|\b(?:but|so|then)\b", re.IGNORECASE)
_DISOWNED = re.compile(r"\b(?:wrong|incorrect|false|bad|worst|initial|previous|earlier|first|tempting|other)\s+[*_`\"']*$", re.IGNORECASE)
_ASKED = re.compile(r"[)\]}*_`\"'$\\]*+\?")
_OTHER = re.compile(r"[^\w\n]*(?:\bor\b|\band\b|/|,|&)\s*[(*]*[A-J](?![A-Za-z0-9']|[^\S\n]+(?!and\b|or\b)[a-z])")
# What may follow a label on its line, where another word makes it the article "a" or the pronoun "I".
_CONNECTIVES = {"and", "as", "because", "but", "due", "for", "since", "which", "with"}
_BEFORE = 300  # characters before a match that are looked at


def parse_choice(text: str, labels: Sequence[str]) -> str | None:
    """The option that an answer states.

    Parameters
    ----------
    text
        Text of the answer segment (never of the reasoning); its last 20,000 characters are searched.
    labels
        Labels that the item has.

    Returns
    -------
    str or None
        The label of the last explicit statement (``Answer: C``, ``the correct option is C``, ``\\boxed{C}``, ``I choose C``, a JSON ``answer``,
        ``<answer>C``); without one, the option that is mentioned (``option C``, ``C is correct``), if it is one only and none is ruled out;
        without one, the label that stands alone on the last line, or before the only line. None if there is none, if two are offered
        (``B or C``), or if it is not one of ``labels``.

    Notes
    -----
    A statement counts only where it is asserted: not under ``if``, ``whether`` or ``not`` in its clause, not as a question, not of a ``wrong`` or
    ``previous`` answer. So what follows a final answer changes nothing, unless it makes a statement of its own.
    """
    text = bounded(text)
    stated = [match for pattern in _STATEMENTS for match in pattern.finditer(text)]
    stated += [match for match in _CHOICE.finditer(text) if match["label"].isupper()]
    stated = [match for match in stated if _is_label(text, match) and _is_asserted(text, match)]
    if stated:
        last = max(stated, key=lambda match: match.start("label"))
        label = None if _OTHER.match(text, last.end("label")) else last["label"].upper()
        return label if label in labels else None
    mentioned = [match for match in _MENTION.finditer(text) if match["label"].isupper()]
    mentioned += [match for match in _PRAISED.finditer(text) if _OPENING.search(text[max(0, match.start() - _BEFORE) : match.start()])]
    if mentioned:
        doubts = (_ASKED, _OTHER)  # after the label
        denied = any(_DENIED.search(_sentence(text, match)) or any(one.match(text, match.end("label")) for one in doubts) for match in mentioned)
        found = {match["label"] for match in mentioned}
        label = found.pop() if len(found) == 1 and not denied else None
        return label if label in labels else None
    lines = [line for line in text.splitlines() if line.strip()]
    alone = _ALONE.match(lines[-1]) if lines else None
    if not alone and len(lines) == 1:
        alone = _LEADING.match(lines[0])
        if alone and (alone["label"].islower() or _OTHER.match(lines[0], alone.end())):
            alone = None
    label = alone["label"].upper() if alone else None
    return label if label in labels else None


def _is_label(text: str, match: re.Match[str]) -> bool:
    """Whether the letter is a label and not a word ("a", "I") or a variable."""
    after = text[match.end("label") : match.end("label") + _BEFORE]
    if re.match(r"[^\S\n]*[+=^<>](?!/)", after):
        return after.lstrip().startswith("</")
    word = re.match(r"[^\S\n]+([A-Za-z]+)", after)
    if not word or word[1].lower() in _CONNECTIVES or match["label"] in "BCDEFGHJKLMNOPQRSTUVWXYZ":
        return True
    # "The answer is A trivial consequence" is no English, "Answer: A train" is.
    return match["label"] == "A" and re.search(r"\bis\W*$", text[match.start() : match.start("label")]) is not None


def _is_asserted(text: str, match: re.Match[str]) -> bool:
    """Whether a statement says that its option is the answer, rather than asks, supposes or denies it."""
    before = text[max(0, match.start() - _BEFORE) : match.start()]
    clause = _CLAUSE.split(before)[-1]
    return not (_UNASSERTED.search(clause) or _DISOWNED.search(before) or _ASKED.match(text, match.end("label")))


def _sentence(text: str, match: re.Match[str]) -> str:
    """The sentence that holds a match (of a very long one, the part around it)."""
    before = re.split(r"[.!?\n]", text[max(0, match.start() - _BEFORE) : match.start()])[-1]
    return before + re.split(r"[.!?\n]", text[match.start() : match.start() + _BEFORE])[0]
