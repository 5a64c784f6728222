"""Dialects: how a model family marks its reasoning, closes it, and starts its answer. One record each.

Outputs are split by token ids. The words of a marker spelled with ordinary tokens are not a marker (but see ``spelled``). Output that is not
as it should be is flagged: never guessed, never dropped.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from midtrace.errors import InputError

EARLY_STOP = "\n\nTime is up: stop thinking and answer now."


@dataclass(frozen=True)
class Dialect:
    """The strings of a dialect; each is tokenised once, on its own.

    Attributes
    ----------
    opening, closing_marker
        Markers of the reasoning block.
    closing
        What closes the reasoning at a cut, from inside of it, up to where the answer starts.
    stop
        Tokens that end the output.
    user, assistant
        Turn templates; ``assistant`` opens the turn that the model fills, with the opening marker where the prompt already holds it
        (``opening_in_prompt``; then ``reasoning_start`` is 0).
    turn_end
        What ends the assistant's turn, from inside of the reasoning, so that a user turn may follow.
    system
        Template of the message that carries an arm's instructions, sent where there are any.
    early_stop
        What the model is told, from inside the reasoning and in its own voice, when it has to answer now.
    preamble
        What every prompt begins with; ``{effort}`` and ``{date}`` are filled (the date's line is left out where no date is pinned).
    standing
        The dialect's own text at the head of the system message, which is then always sent.
    efforts, effort_system
        Trained effort levels (empty: the dialect has none) and the system line that sets one, unless the preamble does.
    channels
        Whether the output is a row of messages with named channels instead of one marked block.
    spelled
        Whether the markers are spelled with ordinary tokens: a model without thinking mode has none of its own.
    """

    name: str
    opening: str
    closing_marker: str
    closing: str
    stop: tuple[str, ...]
    user: str
    assistant: str
    turn_end: str
    system: str
    early_stop: str = EARLY_STOP
    opening_in_prompt: bool = False
    preamble: str = ""
    standing: str = ""
    efforts: tuple[str, ...] = ()
    effort_system: str = ""
    channels: bool = False
    spelled: bool = False

    @property
    def needs_effort(self) -> bool:
        """Whether an arm must name its effort: nothing is silently medium."""
        return "{effort}" in self.preamble

    @property
    def takes_date(self) -> bool:
        """Whether a date can be pinned in the prompt."""
        return "{date}" in self.preamble


QWEN3 = Dialect(
    name="qwen3",
    opening="<think>",
    closing_marker="</think>",
    closing="\n</think>\n\n",
    stop=("<|im_end|>",),
    system="<|im_start|>system\n{text}<|im_end|>\n",
    user="<|im_start|>user\n{text}<|im_end|>\n",
    assistant="<|im_start|>assistant\n",
    turn_end="\n</think>\n\n<|im_end|>\n",
    early_stop="\n\nConsidering the limited time by the user, I have to give the solution based on the thinking directly now.",
)
QWEN3_2507 = replace(QWEN3, name="qwen3_2507", assistant="<|im_start|>assistant\n<think>\n", opening_in_prompt=True)
EMBEDDED = replace(QWEN3, name="embedded", early_stop=EARLY_STOP, efforts=("low", "medium", "high"), effort_system="Reasoning: {effort}")
PREFILL = replace(QWEN3_2507, name="prefill", early_stop=EARLY_STOP, spelled=True)
# Such a model ends its reasoning with a phrase, if it is shown how: the benchmark's template has to hold an example in these words.
SMOLLM2 = replace(
    PREFILL,
    name="smollm2",
    opening="Reasoning:",
    closing_marker="The answer is",
    closing="\nThe answer is",
    standing="You are a helpful AI assistant named SmolLM, trained by Hugging Face",
    assistant="<|im_start|>assistant\nReasoning:",
    turn_end="\nThe answer is open.<|im_end|>\n",
)
# The model must be told to think: its system message is always sent.
NEMOTRON3 = replace(QWEN3_2507, name="nemotron3", early_stop=EARLY_STOP, standing="/think")
DEEPSEEK_R1 = Dialect(
    name="deepseek_r1",
    opening="<think>",
    closing_marker="</think>",
    closing="\n</think>\n\n",
    stop=("<｜end▁of▁sentence｜>",),
    preamble="<｜begin▁of▁sentence｜>",
    system="{text}",
    user="<｜User｜>{text}",
    assistant="<｜Assistant｜><think>\n",
    turn_end="\n</think>\n\n<｜end▁of▁sentence｜>",
    opening_in_prompt=True,
)
MAGISTRAL = Dialect(
    name="magistral",
    opening="[THINK]",
    closing_marker="[/THINK]",
    closing="[/THINK]",
    stop=("</s>",),
    preamble="<s>",
    system="[SYSTEM_PROMPT]{text}[/SYSTEM_PROMPT]",
    # The model card's: without it the model does not think.
    standing=(
        "First draft your thinking process (inner monologue) until you arrive at a response. Format your response using Markdown, and use LaTeX "
        "for any mathematical equations. Write both your thoughts and the response in the same language as the input.\n\n"
        "Your thinking process must follow the template below:[THINK]Your thoughts or/and draft, like working through an exercise on scratch "
        "paper. Be as casual and as long as you want until you are confident to generate the response. Use the same language as the input."
        "[/THINK]Here, provide a self-contained response."
    ),
    user="[INST]{text}[/INST]",
    assistant="",
    turn_end="[/THINK]</s>",
)
GPT_OSS = Dialect(
    name="gpt_oss",
    opening="<|channel|>analysis<|message|>",
    closing_marker="<|end|>",
    closing="<|end|><|start|>assistant<|channel|>final<|message|>",
    stop=("<|return|>", "<|call|>"),  # not <|end|>: it ends each message
    preamble=(
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06{date}\n\n"
        "Reasoning: {effort}\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>"
    ),
    system="<|start|>developer<|message|># Instructions\n\n{text}<|end|>",
    user="<|start|>user<|message|>{text}<|end|>",
    assistant="<|start|>assistant",
    turn_end="<|end|>",
    efforts=("low", "medium", "high"),
    channels=True,
)

DIALECTS = {d.name: d for d in (QWEN3, EMBEDDED, QWEN3_2507, GPT_OSS, DEEPSEEK_R1, MAGISTRAL, NEMOTRON3, PREFILL, SMOLLM2)}


def get(name: str) -> Dialect:
    """The record of a dialect.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    if name not in DIALECTS:
        raise InputError("config", "dialect", f"{name!r} is unknown", DIALECTS)
    return DIALECTS[name]


@dataclass(frozen=True)
class Reasoning:
    """An output split by ids: ``output_ids[start : start + n_reasoning]`` is the reasoning."""

    start: int
    n_reasoning: int
    status: str
    answer_ids: list[int] = field(default_factory=list)
    problem: str | None = None


def token_id(tokenizer: Any, text: str) -> int:
    """The id of a marker that must be one token."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    if len(ids) != 1:
        raise InputError(
            "tokenizer", f"marker {text!r}", f"is {len(ids)} tokens in this vocabulary", "exactly 1 token: choose the model's own dialect"
        )
    return ids[0]


def stop_ids(tokenizer: Any, dialect: Dialect) -> list[int]:
    """Ids that end the output."""
    return [token_id(tokenizer, text) for text in dialect.stop]


def opening_ids(tokenizer: Any, dialect: Dialect) -> list[int]:
    """Ids that the output itself begins with before any reasoning; none where the prompt holds the opening marker."""
    return [] if dialect.opening_in_prompt else tokenizer.encode(dialect.opening, add_special_tokens=False)


def split(output_ids: Sequence[int], tokenizer: Any, dialect: Dialect | str) -> Reasoning:
    """Split output ids into reasoning and answer.

    Parameters
    ----------
    output_ids
        Ids as sampled.
    tokenizer
        A Transformers tokenizer.
    dialect
        A record or its name.

    Returns
    -------
    Reasoning
        ``terminated`` if the reasoning was closed (with channels: and the final message begun), ``truncated`` if the output ended before,
        ``malformed`` (with the problem named) if it has any other shape. The answer ids exclude the closing marker and the stop token; those
        of a malformed output are everything after its first closing, for reading only.
    """
    dialect = get(dialect) if isinstance(dialect, str) else dialect
    stops = set(stop_ids(tokenizer, dialect))
    return (_split_channels if dialect.channels else _split_block)(list(output_ids), tokenizer, dialect, stops)


def _split_block(ids: list[int], tokenizer: Any, dialect: Dialect, stops: set[int]) -> Reasoning:
    """One block between an opening and a closing marker, then the answer."""
    start, problem = 0, None
    opened = _find(ids, dialect.opening, tokenizer, dialect)
    if opened and opened[0] == 0:
        start = opened[1]
        problem = "the opening marker stands in the prompt and again in the output" if dialect.opening_in_prompt else None
    elif not dialect.opening_in_prompt:
        problem = "the output does not begin with the opening marker"
    body = ids[start:]
    closed = _find(body, dialect.closing_marker, tokenizer, dialect)
    n_reasoning, answer = (closed[0], body[closed[1] :]) if closed else (len(body), [])
    if not closed and body and body[-1] in stops:
        n_reasoning -= 1
        problem = problem or "the output stopped inside the reasoning"
    if answer and answer[-1] in stops:
        answer = answer[:-1]
    if closed and dialect.spelled and not tokenizer.decode(body[: closed[1]]).rstrip().endswith(dialect.closing_marker):
        problem = problem or "the closing marker shares a token with the answer"
    if problem is None and _find(body, dialect.opening, tokenizer, dialect):
        problem = "a second opening marker"
    if problem is None and _find(answer, dialect.closing_marker, tokenizer, dialect):
        problem = "a second closing marker"
    status = "malformed" if problem else "terminated" if closed else "truncated"
    return Reasoning(start, n_reasoning, status, answer, problem)


def _find(ids: list[int], marker: str, tokenizer: Any, dialect: Dialect) -> tuple[int, int] | None:
    """Where the first marker stands in ``ids``, as (first index, index after); None if it does not.

    A spelled marker takes every token that holds a character of it.
    """
    if not dialect.spelled:
        token = token_id(tokenizer, marker)
        return (ids.index(token), ids.index(token) + 1) if token in ids else None
    # Half of a character decodes to a mark of its own, so only the marker, which is ASCII, may be looked for in the pieces.
    pieces = tokenizer.batch_decode([[i] for i in ids])
    at = "".join(pieces).find(marker)
    if at < 0:
        return None
    ends = list(accumulate(map(len, pieces)))
    return bisect_right(ends, at), bisect_right(ends, at + len(marker) - 1) + 1


def _split_channels(ids: list[int], tokenizer: Any, dialect: Dialect, stops: set[int]) -> Reasoning:
    """Messages ``<|channel|>NAME<|message|>...<|end|><|start|>assistant<|channel|>...``; well-formed is one analysis, then one final message.

    The reasoning of a malformed output reaches from its first analysis message to the end of its last one.
    """
    opening, closing = (tokenizer.encode(text, add_special_tokens=False) for text in (dialect.opening, dialect.closing))
    channel, message, end, start = opening[0], opening[-1], closing[0], closing[1]
    stop = tokenizer.decode(ids[-1:]) if ids and ids[-1] in stops else ""
    body = ids[:-1] if stop else ids
    if body[: len(opening)] == opening:
        control = {channel, message, end, start}
        first = next((k for k in range(len(opening), len(body)) if body[k] in control), len(body))
        n_reasoning, rest = first - len(opening), body[first:]
        answer = rest[len(closing) :]
        if rest[: len(closing)] == closing and not control & set(answer) and stop in ("", dialect.stop[0]):
            return Reasoning(len(opening), n_reasoning, "terminated", answer)
        if rest == closing[: len(rest)] and len(rest) < len(closing) and not stop:
            return Reasoning(len(opening), n_reasoning, "truncated")
    names, analyses, finals = [], [], []
    for header, first, after in _messages(body, message, end, start):
        if header is None:
            names.append("one without <|message|>")
            continue
        names.append(tokenizer.decode(header[header.index(channel) + 1 :]).strip() if channel in header else "one without a channel")
        if header[-2:] == opening[:-1]:
            analyses.append((first, after))
        elif header[-2:] == closing[-3:-1]:
            finals.append(first)
    problem = f"the messages are: {', '.join(names) or 'none'}" + (f"; ended by {stop}" if stop != dialect.stop[0] and stop else "")
    begin, until = (analyses[0][0], analyses[-1][1]) if analyses else (0, 0)
    return Reasoning(begin, until - begin, "malformed", body[finals[0] :] if finals else [], problem)


def _messages(body: list[int], message: int, end: int, start: int) -> Iterator[tuple[list[int] | None, int, int]]:
    """Header ids (None: it never ends), first index and index after the content, of each message."""
    begin = 0
    for at, token in enumerate([*body, end]):
        if token == end or (token == start and at > begin):
            chunk = body[begin:at]
            if chunk:
                header = chunk[: chunk.index(message)] if message in chunk else None
                yield header, begin + len(header or []) + 1, at
            begin = at + 1 if token == end else at
