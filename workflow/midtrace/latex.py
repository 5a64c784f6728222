"""What is read of LaTeX, in gold answers as in those of models. Braces are matched, to any depth, in one pass over the text."""

import re
from collections.abc import Sequence
from typing import NamedTuple

# A box, with braces or (as old solutions have it) without; another command or escaped sign; a brace.
_TOKEN = re.compile(r"\\+(?:boxed|fbox)(?:\s*(?P<opens>\{)|[^\S\n]+(?P<bare>[^\s{}$\\.,]+))|\\.|(?P<brace>[{}])", re.DOTALL)
_BRACKET = re.compile(r"\\[{}]|\\(?:langle|rangle|lbrace|rbrace|lfloor|rfloor|lceil|rceil)(?![A-Za-z])|\\.|[()\[\]{}]|(?P<other>.)", re.DOTALL)
_OPENING = {"(", "[", "{", r"\{", r"\langle", r"\lbrace", r"\lfloor", r"\lceil"}
_CLOSING = {")", "]", "}", r"\}", r"\rangle", r"\rbrace", r"\rfloor", r"\rceil"}


class Box(NamedTuple):
    """A ``\\boxed{}``: where its command begins, where it ends, and what it holds; ``content`` is None for one that is never closed."""

    start: int
    end: int
    content: str | None


def boxes(text: str) -> list[Box]:
    """All boxes of a text that are in no closed box, in their order. Escaped braces (``\\{``) are text; a closing brace too many is ignored."""
    found: list[Box] = []
    open_: list[tuple[int, int] | None] = []  # where an open box and its content begin; None for another brace
    for token in _TOKEN.finditer(text):
        if token["bare"]:
            found.append(Box(token.start(), token.end(), token["bare"]))
        elif token["opens"]:
            open_.append((token.start(), token.end()))
        elif token["brace"] == "{":
            open_.append(None)
        elif token["brace"] and open_ and (box := open_.pop()):
            while found and found[-1].start > box[0]:
                found.pop()  # a box in this one
            found.append(Box(box[0], token.end(), text[box[1] : token.start()]))
    unclosed = [Box(box[0], len(text), None) for box in open_ if box]
    return sorted([*found, *unclosed])


def group_end(text: str, start: int) -> int | None:
    """Where the group that the brace at ``start`` opens ends (behind its brace); None if it does not."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        if token["opens"] or token["brace"] == "{":
            depth += 1
        elif token["brace"]:
            depth -= 1
        if depth == 0 and token["brace"]:
            return token.end()
    return None


def unwrap(text: str, commands: Sequence[str]) -> str:
    """A text with ``\\command{content}`` replaced by the content, for these commands, inside of each other too."""
    pattern = re.compile(rf"\\+(?:{'|'.join(commands)})\s*(?=\{{)")
    at = 0
    while match := pattern.search(text, at):
        end = group_end(text, match.end())
        if end is None:
            at = match.end()
        else:
            text, at = text[: match.start()] + text[match.end() + 1 : end - 1] + text[end:], match.start()
    return text


def split(text: str, separator: re.Pattern[str]) -> list[str]:
    """The parts of a text between separators that are in no bracket of any kind; ``[0, 1)`` is closed, whatever its brackets."""
    parts, begin, depth, at = [], 0, 0, 0
    while at < len(text):
        if depth == 0 and (match := separator.match(text, at)) and match.end() > at:
            parts.append(text[begin:at])
            begin = at = match.end()
            continue
        token = _BRACKET.match(text, at)
        assert token
        depth += (token[0] in _OPENING) - (token[0] in _CLOSING)
        depth, at = max(depth, 0), token.end()
    return [*parts, text[begin:]]


def enclosed(text: str) -> tuple[str, str, str] | None:
    """The opening bracket, the content and the closing bracket of a text that is in brackets as a whole; None for any other."""
    first = _BRACKET.match(text)
    if not first or first[0] not in _OPENING:
        return None
    depth = 0
    for token in _BRACKET.finditer(text):
        depth += (token[0] in _OPENING) - (token[0] in _CLOSING)
        if depth == 0:
            return (first[0], text[first.end() : token.start()], token[0]) if token.end() == len(text) else None
    return None
