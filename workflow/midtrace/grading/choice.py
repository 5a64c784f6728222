"""The option that an answer states."""

import re
from collections.abc import Sequence

# Quoting that may stand before a label, and LaTeX commands around it: "(C", "**C", "\boxed{\text{(C".
# Quantifiers are possessive: an answer of a thousand spaces must not take a minute.
_MARKS = r"(?:[(\[{*_`\"'$\s]|\\(?![a-z]))*+"
_LABEL = rf"{_MARKS}(?:\\[a-z]++\s*+\{{{_MARKS})*+(?:(?:option|choice|letter)\b{_MARKS})?(?P<label>[A-Za-z])(?![A-Za-z0-9]|'[a-z])"
_STATEMENTS = (
    re.compile(rf"\\boxed\s*\{{{_LABEL}", re.IGNORECASE),
    re.compile(rf"[\"'](?:final[_ ])?(?:answer|choice|option)[\"']\s*:{_LABEL}", re.IGNORECASE),
    re.compile(rf"\b(?:answer|choice|option)\b[\s*_`]*+(?:is\b|[:=])[\s*_`:=]*+{_LABEL}", re.IGNORECASE),
)
_MENTION = re.compile(rf"\b(?:option|choice)\b{_LABEL}", re.IGNORECASE)
_ALONE = re.compile(rf"^{_LABEL}[)\]}}*_`\"'$\s\\]*+[.:,]?[*_`\s]*+$", re.IGNORECASE)
_DENIED = re.compile(r"\b(?:not|cannot|no|neither|nor|wrong|incorrect|false|unlike)\b|n't", re.IGNORECASE)
_OTHER = re.compile(r"[^\w\n]*(?:\bor\b|\band\b|/)\s*[(*]*[A-J](?![A-Za-z0-9']|[^\S\n]+[a-z])")
# What may follow a label on its line, where another word makes it the article "a" or the pronoun "I".
_CONNECTIVES = {"and", "as", "because", "but", "due", "for", "since", "which", "with"}


def parse_choice(text: str, labels: Sequence[str]) -> str | None:
    """The option that an answer states.

    Parameters
    ----------
    text
        Text of the answer segment (never of the reasoning).
    labels
        Labels that the item has.

    Returns
    -------
    str or None
        The label of the last explicit statement (``Answer: C``, ``the correct option is C``, ``\\boxed{C}``, a JSON ``answer``); without
        one, the option that is mentioned (``I choose option C``), if it is one only and none is ruled out; without one, the label that
        stands alone on the last line. None if there is none, if two are offered (``B or C``), or if it is not one of ``labels``.
    """
    stated = [match for pattern in _STATEMENTS for match in pattern.finditer(text) if _is_label(text, match)]
    if stated:
        last = max(stated, key=lambda match: match.start("label"))
        label = None if _OTHER.match(text, last.end()) else last["label"].upper()
        return label if label in labels else None
    mentioned = [match for match in _MENTION.finditer(text) if match["label"].isupper()]
    if mentioned:
        denied = any(_DENIED.search(_sentence(text, match)) or _OTHER.match(text, match.end()) for match in mentioned)
        found = {match["label"] for match in mentioned}
        label = found.pop() if len(found) == 1 and not denied else None
        return label if label in labels else None
    lines = [line for line in text.splitlines() if line.strip()]
    alone = _ALONE.match(lines[-1]) if lines else None
    label = alone["label"].upper() if alone else None
    return label if label in labels else None


def _is_label(text: str, match: re.Match[str]) -> bool:
    """Whether the letter is a label and not a word ("a", "I") or a variable."""
    after = text[match.end() :]
    if re.match(r"[^\S\n]*[+=^<>]", after):
        return False
    word = re.match(r"[^\S\n]+([A-Za-z]+)", after)
    if not word or word[1].lower() in _CONNECTIVES or match["label"] in "BCDEFGHJKLMNOPQRSTUVWXYZ":
        return True
    # "The answer is A trivial consequence" is no English, "Answer: A train" is.
    return match["label"] == "A" and re.search(r"\bis\W*$", text[match.start() : match.start("label")]) is not None


def _sentence(text: str, match: re.Match[str]) -> str:
    """The sentence that holds a match (of a very long one, the part around it)."""
    before = re.split(r"[.!?\n]", text[max(0, match.start() - 300) : match.start()])[-1]
    return before + re.split(r"[.!?\n]", text[match.start() : match.start() + 300])[0]
