"""Dialects: how a model family marks its reasoning, closes it, and starts its answer. One record each.

Outputs are split by token ids. The words of a marker spelled with ordinary tokens are not a marker (but see ``spelled``). Output that is not
as it should be is flagged: never guessed, never dropped.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any

from midtrace.errors import InputError

CALL = "<|call|>"  # ends a message to a tool, never an answer
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
        Tokens that end the output. The first must be in the vocabulary; of the others those count that are.
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
    stop=("<|im_end|>", "<|endoftext|>"),
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
    stop=("<|return|>", CALL, "<|endoftext|>"),  # not <|end|>: it ends each message
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
    """An output split by ids: reasoning begins at ``output_ids[start]`` and is ``n_reasoning`` tokens long.

    Between its tokens may stand format (``channels``: headers between several messages of reasoning). ``format_after`` has, for each token of
    format, the number of reasoning tokens before it. Without any, the reasoning is ``output_ids[start : start + n_reasoning]``.
    """

    start: int
    n_reasoning: int
    status: str
    answer_ids: list[int] = field(default_factory=list)
    problem: str | None = None
    format_after: list[int] = field(default_factory=list)


def token_id(tokenizer: Any, text: str) -> int:
    """The id of a marker that must be one token."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    if len(ids) != 1:
        raise InputError(
            "tokenizer", f"marker {text!r}", f"is {len(ids)} tokens in this vocabulary", "exactly 1 token: choose the model's own dialect"
        )
    return ids[0]


def stop_ids(tokenizer: Any, dialect: Dialect) -> list[int]:
    """Ids at which an engine stops: those of the dialect, the vocabulary's own end, and what the model's generation settings list."""
    return list(_stop_ids(tokenizer, dialect))


@lru_cache(maxsize=16)
def _stop_ids(tokenizer: Any, dialect: Dialect) -> tuple[int, ...]:
    first, *others = dialect.stop
    known = [ids[0] for text in others if len(ids := tokenizer.encode(text, add_special_tokens=False)) == 1]
    own = [tokenizer.eos_token_id, *getattr(tokenizer, "generation_ends", ())]
    return tuple(dict.fromkeys([token_id(tokenizer, first), *known, *(i for i in own if i is not None)]))


@lru_cache(maxsize=16)
def ending_ids(tokenizer: Any, dialect: Dialect) -> frozenset[int]:
    """Ids that end a turn of the model: those at which an engine stops, and the control tokens of the turn templates, which begin another."""
    stops = {*_stop_ids(tokenizer, dialect)}
    if dialect.channels:  # one turn is several messages: their markers are told apart by the grammar
        return frozenset(stops)
    templates = dialect.preamble + dialect.system + dialect.user + dialect.assistant
    markers = {i for text in (dialect.opening, dialect.closing_marker) for i in tokenizer.encode(text, add_special_tokens=False)}
    control = {i for i in tokenizer.encode(templates, add_special_tokens=False) if i in tokenizer.added_tokens_decoder}
    return frozenset(stops | (control - markers))


def answer_part(ids: Sequence[int], tokenizer: Any, dialect: Dialect) -> list[int]:
    """What of an output that begins inside the answer is the answer: all before the first token that ends the turn or begins another."""
    ends = {*ending_ids(tokenizer, dialect)}
    if dialect.channels:
        ends |= {token for text in (dialect.opening, dialect.closing) for token in _control(tokenizer.encode(text, add_special_tokens=False))}
    return list(ids[: _first(ids, ends)])


def _control(header: list[int]) -> set[int]:
    """The markers of a header of a message; the names between them are words."""
    return {header[0], header[-1], header[-3], *([header[1]] if len(header) > 3 else [])}


def _first(ids: Sequence[int], tokens: set[int] | frozenset[int], start: int = 0) -> int:
    """Index of the first of some tokens from ``start`` on; the length where there is none."""
    return next((at for at in range(start, len(ids)) if ids[at] in tokens), len(ids))


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
        ``malformed`` (with the problem named) if it has any other shape. The answer ids exclude the closing marker; those of a malformed output
        are everything after its first closing, for reading only. The output ends before the first token that ends the turn or begins another
        (:func:`ending_ids`): what follows it belongs to nothing.
    """
    dialect = get(dialect) if isinstance(dialect, str) else dialect
    end = _first(output_ids, ending_ids(tokenizer, dialect))
    return (_split_channels if dialect.channels else _split_block)(list(output_ids[:end]), tokenizer, dialect, list(output_ids[end : end + 1]))


def _split_block(ids: list[int], tokenizer: Any, dialect: Dialect, ended: list[int]) -> Reasoning:
    """One block between an opening and a closing marker, then the answer; ``ended`` holds the token that ended the output, if one did."""
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
    if not closed and ended:
        problem = problem or "the output stopped inside the reasoning"
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


def _split_channels(body: list[int], tokenizer: Any, dialect: Dialect, ended: list[int]) -> Reasoning:
    """Messages ``<|channel|>NAME<|message|>...<|end|><|start|>assistant<|channel|>...``; well-formed are analysis messages, then one final.

    The reasoning is the content of all analysis messages; what stands between them is format: headers, in a malformed output other messages too.
    """
    opening, closing = (tokenizer.encode(text, add_special_tokens=False) for text in (dialect.opening, dialect.closing))
    channel, message, end, start = opening[0], opening[-1], closing[0], closing[1]
    again = [*closing[: -len(opening)], *opening]  # from inside of one analysis message to inside of the next
    stop = tokenizer.decode(ended)
    if body[: len(opening)] == opening:
        control = {channel, message, end, start}
        first = _first(body, control, len(opening))
        n_reasoning, format_after = first - len(opening), []
        while body[first : first + len(again)] == again:
            format_after += [n_reasoning] * len(again)
            begin = first + len(again)
            first = _first(body, control, begin)
            n_reasoning += first - begin
        rest = body[first:]
        answer = rest[len(closing) :]
        if rest[: len(closing)] == closing and not control & set(answer) and stop != CALL:
            return Reasoning(len(opening), n_reasoning, "terminated", answer, None, format_after)
        if not stop and len(rest) < len(closing) and rest in (closing[: len(rest)], again[: len(rest)]):
            return Reasoning(len(opening), n_reasoning, "truncated", [], None, format_after)
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
    problem = f"the messages are: {', '.join(names) or 'none'}" + (f"; ended by {stop}" if stop not in ("", dialect.stop[0]) else "")
    n_reasoning, format_after = 0, []
    for at, (first, after) in enumerate(analyses):
        if at:
            format_after += [n_reasoning] * (first - analyses[at - 1][1])
        n_reasoning += after - first
    begin = analyses[0][0] if analyses else 0
    return Reasoning(begin, n_reasoning, "malformed", body[finals[0] :] if finals else [], problem, format_after)


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
