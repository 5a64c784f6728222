"""Training documents of the embedded model: natural traces, early closes, interruptions and scripted controls.

A document is a list of token ids with one loss weight per id. No loss falls on the prompt, on an inserted string, or on the closing of a
document that was cut at a random token: with loss there, the model would learn to stop at random.
"""

import random
from dataclasses import dataclass, field
from functools import lru_cache

from tokenizers import Regex, Tokenizer, decoders, models, trainers
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

from midtrace.chains import LENGTHS, Chain, draw_chain, is_held_out
from midtrace.embedded.language import ARM_STYLES, EARLY_SUFFIX, NUMERIC_LIMITS, Trace, numeric_suffix, reason, split_words, terse

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKERS = ["<think>", "</think>"]
PRETOKEN_PATTERN = r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]|[\r\n]+|\s+"
VOCABULARY = 512

CLOSING = "\n</think>\n\n"
STEM = "Answer:"
HARD_NOTICE = "\n\nTime is up: stop thinking and answer now."
SOFT_NOTICE = "\n\nPlease hurry and answer as soon as possible.\n\n"
GUIDED = " This update is verified and must be used."
FILLER = " Let me think about this."

# What goes wrong after an interruption, planted so that the second study has something to measure.
LEAK_RATE = 0.35  # after the hard notice, with at least two steps left: the answer segment goes on calculating
PANIC_RATE = 0.25  # after the soft notice, with at least two steps left: closes at once with a random letter
DOUBT_RATE = 0.30  # after an update: doubts it and ends with the stale answer
DOUBT_RATE_GUIDED = 0.05  # the same after a guided update
SLIP_CONTINUED = 0.02  # per step, in the terse calculation after an interruption
SPLIT_RATE = 1 / 250  # share of words that are written in a non-canonical tokenisation

LABEL_WEIGHT = 3.0  # the answer letter weighs this much in the loss; every other learnt token weighs 1


@dataclass
class Document:
    """Token ids and the loss weight of each (0: not learnt)."""

    ids: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)


def train_tokenizer(seed: int) -> Tokenizer:
    """Train the byte-level BPE tokenizer on text of the embedded language."""
    rng = random.Random(seed)
    texts = []
    for index in range(4000):
        chain = draw_chain(rng, rng.choice(list(LENGTHS)))
        style = ARM_STYLES[index % len(ARM_STYLES)]
        texts += [chain.question, chain.update, user_text(chain, style, rng, index % 2 == 0), "".join(reason(chain, style, rng).words)]
        texts += [CLOSING.replace("</think>", ""), STEM + " " + chain.labels[-1], HARD_NOTICE, SOFT_NOTICE, GUIDED, FILLER, system_text("medium")]
        texts += ["Continuing: Go: Noted. That update may be wrong, ignore it. Reasoning: low high"]
        texts += [f"system\nuser\nassistant\n{label}. {label} " for label in "ABCDEFGHIJ"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = Sequence([Split(Regex(PRETOKEN_PATTERN), behavior="isolated"), ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIALS, initial_alphabet=ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens(MARKERS)  # added but not special, as in Qwen3
    return tokenizer


def system_text(effort: str) -> str:
    """The system message of an effort level."""
    return f"Reasoning: {effort}"


def user_text(chain: Chain, style: str, rng: random.Random, choice: bool) -> str:
    """The user message: question, options for the choice version, and the instruction of the arm."""
    parts = [chain.question]
    if choice:
        parts += [f"{label}. {value}" for value, label in enumerate(chain.labels)]
    if style == "numeric_concise":
        parts.append(numeric_suffix(rng.choice(NUMERIC_LIMITS)))
    if style == "early_answer":
        parts.append(EARLY_SUFFIX)
    return "\n".join(parts)


class Writer:
    """Writes documents as token ids, word by word."""

    def __init__(self, tokenizer: Tokenizer, seed: int):
        self.tokenizer = tokenizer
        self.rng = random.Random(seed)
        self.encode_word = lru_cache(maxsize=None)(lambda word: tokenizer.encode(word, add_special_tokens=False).ids)
        self.ids: dict[str, int] = {text: tokenizer.token_to_id(text) or 0 for text in SPECIALS + MARKERS}

    def encode(self, text: str, split: bool = False) -> list[int]:
        """Token ids of a string; with ``split`` some words get a non-canonical tokenisation, as sampled text sometimes has."""
        ids: list[int] = []
        for word in split_words(text):
            if split and len(word) > 3 and word.strip().isalpha() and self.rng.random() < SPLIT_RATE:
                cut = self.rng.randrange(2, len(word))
                ids += self.encode_word(word[:cut]) + self.encode_word(word[cut:])
            else:
                ids += self.encode_word(word)
        return ids

    def insert(self, document: Document, text: str, weight: float = 0.0) -> None:
        """Append a string that may hold markers."""
        rest = text
        while rest:
            marker = min((m for m in self.ids if m in rest), key=rest.index, default=None)
            head, rest = rest.split(marker, 1) if marker else (rest, "")
            ids = self.encode(head)
            if marker:
                ids = [*ids, self.ids[marker]]
            document.ids += ids
            document.weights += [weight] * len(ids)

    def prompt(self, chain: Chain, style: str, choice: bool) -> Document:
        """The chat prompt of an arm, up to the assistant's turn."""
        document = Document()
        if style in ("low", "medium", "high"):
            self.insert(document, f"<|im_start|>system\n{system_text(style)}<|im_end|>\n")
        self.insert(document, f"<|im_start|>user\n{user_text(chain, style, self.rng, choice)}<|im_end|>\n<|im_start|>assistant\n")
        return document

    def reasoning(self, document: Document, trace: Trace, stop: float | None = None) -> tuple[int, int]:
        """Append ``<think>`` and the trace, cut at a random token if ``stop`` (a share in [0, 1]) is given; return the progress there."""
        self.insert(document, "<think>", 1.0)
        ids: list[int] = []
        progress: list[tuple[int, int]] = []
        for word, state in zip(trace.words, trace.progress, strict=True):
            pieces = self.encode(word, split=True)
            ids += pieces
            progress += [progress[-1] if progress else (0, -1)] * (len(pieces) - 1) + [state]
        n = len(ids) if stop is None else round(stop * len(ids))
        document.ids += ids[:n]
        document.weights += [1.0] * n
        return progress[n - 1] if n else trace.progress[0]

    def answer(self, document: Document, chain: Chain, value: int, choice: bool, stem_weight: float = 1.0) -> None:
        """Append ``Answer: D`` and the end of the turn."""
        self.insert(document, STEM, stem_weight)
        self.insert(document, f" {chain.labels[value]}" if choice else f" {value}", LABEL_WEIGHT)
        self.insert(document, "<|im_end|>", 1.0)

    def natural(self, chain: Chain, style: str, choice: bool) -> Document:
        """A run that finishes by itself."""
        document = self.prompt(chain, style, choice)
        trace = reason(chain, style, self.rng)
        self.reasoning(document, trace)
        self.insert(document, "</think>\n\n", 1.0)
        self.answer(document, chain, trace.value, choice)
        return document

    def early_close(self, chain: Chain, style: str, choice: bool) -> Document:
        """A run cut at a random token and closed; the answer is the one that the run would have ended with."""
        document = self.prompt(chain, style, choice)
        trace = reason(chain, style, self.rng)
        self.reasoning(document, trace, stop=self._share())
        self.insert(document, CLOSING)
        self.answer(document, chain, trace.value, choice, stem_weight=0.0)
        return document

    def scripted(self, chain: Chain, style: str, choice: bool) -> Document:
        """Filler with a stated result that has nothing to do with the question: the answer must follow what is stated."""
        document = self.prompt(chain, style, choice)
        self.insert(document, "<think>\n")
        stated = self.rng.random() < 0.7
        self.insert(document, FILLER * self.rng.randrange(0, 20))
        value = self.rng.randrange(chain.modulus)
        if stated:
            self.insert(document, f" So the result is {value}.")
            self.insert(document, FILLER * self.rng.randrange(0, 20))
        self.insert(document, CLOSING)
        self.answer(document, chain, value, choice, stem_weight=0.0)
        return document

    def hard(self, chain: Chain, style: str, choice: bool) -> Document:
        """Told to stop: answers at once, or leaks further calculation into the answer."""
        document = self.prompt(chain, style, choice)
        trace = reason(chain, style, self.rng)
        done, value = self.reasoning(document, trace, stop=self._share())
        self.insert(document, HARD_NOTICE + CLOSING)
        if len(chain.steps) - done >= 2 and self.rng.random() < LEAK_RATE:
            leak = Trace()
            leak.say("Continuing:")
            final = terse(leak, self.rng, chain, 0.0, done, value, count=False)
            self.insert(document, "".join(leak.words) + ".\n", 1.0)
            self.answer(document, chain, final, choice)
        else:
            self.answer(document, chain, trace.value, choice)
        return document

    def soft(self, chain: Chain, style: str, choice: bool, new_turn: bool) -> Document:
        """Told to hurry: finishes tersely, or panics and closes at once with a random answer."""
        document = self.prompt(chain, style, choice)
        trace = reason(chain, style, self.rng)
        done, value = self.reasoning(document, trace, stop=self._share())
        self._notice(document, SOFT_NOTICE, new_turn)
        if len(chain.steps) - done >= 2 and self.rng.random() < PANIC_RATE:
            self.insert(document, "</think>\n\n", 1.0)
            self.answer(document, chain, self.rng.randrange(chain.modulus), choice)
        else:
            self._finish(document, chain, done, value, choice, lead="Go:")
        return document

    def update(self, chain: Chain, style: str, choice: bool, guided: bool, new_turn: bool) -> Document:
        """Told of one more step: uses it, or doubts it and ends with the stale answer. The question is the revised one."""
        revised = chain.revised
        document = self.prompt(revised, style, choice)
        trace = reason(revised, style, self.rng)
        done, value = self.reasoning(document, trace, stop=self._share())
        self._notice(document, f"\n\n{chain.update}{GUIDED if guided else ''}\n\n", new_turn)
        if self.rng.random() < (DOUBT_RATE_GUIDED if guided else DOUBT_RATE):
            self._finish(document, revised, done, value, choice, lead="That update may be wrong, ignore it. Go:")
        else:
            self._finish(document, chain, done, value, choice, lead="Noted. Go:")
        return document

    def _notice(self, document: Document, notice: str, new_turn: bool) -> None:
        if new_turn:
            self.insert(document, f"{CLOSING}<|im_end|>\n<|im_start|>user\n{notice.strip()}<|im_end|>\n<|im_start|>assistant\n")
            self.insert(document, "<think>\n", 1.0)
        else:
            self.insert(document, notice)

    def _finish(self, document: Document, chain: Chain, done: int, value: int, choice: bool, lead: str) -> None:
        rest = Trace()
        rest.say(lead)
        final = terse(rest, self.rng, chain, SLIP_CONTINUED, done, value, count=False)
        self.insert(document, "".join(rest.words) + "\n</think>\n\n", 1.0)
        self.answer(document, chain, final, choice)

    def _share(self) -> float:
        """A cut position; the two ends are drawn more often, so that they are learnt too."""
        draw = self.rng.random()
        return 0.0 if draw < 0.05 else 1.0 if draw < 0.2 else self.rng.random()

    def draw(self) -> Document:
        """Draw one document of the training mixture; held-out chains never occur."""
        while True:
            chain = draw_chain(self.rng, self.rng.choice(list(LENGTHS)))
            # An update item shows its revised chain first, so that one must not be a held-out question either.
            if not is_held_out(chain) and not is_held_out(chain.revised):
                break
        style = self.rng.choice(ARM_STYLES)
        choice = self.rng.random() < 0.8
        kind = self.rng.random()
        if kind < 0.44:
            return self.natural(chain, style, choice)
        if kind < 0.66:
            return self.early_close(chain, style, choice)
        if kind < 0.70:
            return self.scripted(chain, style, choice)
        if kind < 0.75:
            return self.hard(chain, style, choice)
        if kind < 0.85:
            return self.soft(chain, style, choice, new_turn=self.rng.random() < 0.2)
        return self.update(chain, style, choice, guided=self.rng.random() < 0.5, new_turn=self.rng.random() < 0.2)
