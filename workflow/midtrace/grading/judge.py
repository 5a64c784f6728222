"""A judge: a model that says whether a free-form answer is the gold one. What it says is kept by request, like all that a model computes."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from midtrace import dialects, prompts
from midtrace.engines import GREEDY, Engine, GenerateRequest, Generation
from midtrace.grading.bounded import bounded
from midtrace.grading.choice import parse_choice
from midtrace.logs import batches
from midtrace.store import engine_of
from midtrace.vocabulary import load_tokenizer, require_context

SAME, DIFFERENT, UNREAD, TRUNCATED, NOT_ASKED = "same", "different", "unread", "truncated", "not_asked"
LABELS = {"A": SAME, "B": DIFFERENT}
PLACEHOLDERS = re.compile(r"\{(question|gold)\}")


class Verdict(NamedTuple):
    """What a judge says of an answer.

    ``outcome`` is ``same`` (right), ``different``, ``unread`` (no verdict in its answer, or its format is broken), ``truncated`` (it was cut off) or
    ``not_asked`` (there is no answer); only ``same`` counts as right. ``text`` is the judge's own answer segment, None if it was not asked.
    """

    outcome: str
    text: str | None = None


class Judge:
    """The judge of a benchmark.

    Parameters
    ----------
    settings
        ``model``, ``max_tokens``, ``answer_tokens``, ``template``; see :func:`midtrace.config.settings.judge_settings`.
    batch
        Answers per batch: what a killed job loses at most.
    engine
        Where verdicts come from.
    """

    def __init__(self, settings: Mapping[str, Any], batch: int, engine: Engine):
        self.settings, self.batch, self.engine = settings, batch, engine
        self.model = settings["model"]
        self.dialect, self.tokenizer = dialects.get(self.model["dialect"]), load_tokenizer(self.model)
        self.asked = 0

    @classmethod
    def read(
        cls,
        output: str,
        settings: Mapping[str, Any],
        batch: int,
        threads: int,
        machine: Mapping[str, Any],
        service: Mapping[str, Any] | None = None,
    ) -> "Judge | None":
        """The judge of a stage that grades, by the key ``judge`` of its settings; None where rules grade.

        What it says is kept beside ``output``, the graded file; the model is loaded when it is asked something that it has not said before. The
        others are those of :func:`midtrace.store.engine_of`.
        """
        if "judge" not in settings:
            return None
        model = settings["judge"]["model"]
        return cls(settings["judge"], batch, engine_of(output, model, threads, machine, service=service))

    @property
    def facts(self) -> dict[str, Any]:
        """For the metadata of the graded file: engine, version, dtype and device, and ``asked``, the number of distinct prompts."""
        return {**self.engine.facts, "asked": self.asked}

    def frame_ids(self, question: str, gold: str) -> tuple[list[int], list[int]]:
        """Ids of the prompt before and after the answer: markers of the judge's dialect around ordinary text, whatever that spells."""

        def filled(part: str) -> list[int]:
            # In one pass: a question that spells {gold} is not filled again.
            return prompts.plain_ids(PLACEHOLDERS.sub(lambda match: {"question": question, "gold": gold}[match[1]], part), tokenizer)

        tokenizer, dialect = self.tokenizer, self.dialect
        before, after = self.settings["template"].split("{answer}")
        opened, closed, begun = (tokenizer.encode(text, add_special_tokens=False) for text in (*dialect.user.split("{text}"), dialect.assistant))
        head = prompts.head_ids({"effort": self.model["effort"]}, {"date": self.model["date"]}, dialect, tokenizer)
        return [*head, *opened, *filled(before)], [*filled(after), *closed, *begun]

    def prompt_ids(self, question: str, gold: str, answer: str) -> list[int]:
        """The judge's prompt. Of the answer it holds the end: the last 20,000 characters, and of these the last ``answer_tokens`` tokens."""
        before, after = self.frame_ids(question, gold)
        return [*before, *prompts.plain_ids(bounded(answer), self.tokenizer)[-self.settings["answer_tokens"] :], *after]

    def verdicts(self, answers: Sequence[tuple[str | None, Mapping[str, Any]]]) -> list[Verdict]:
        """One verdict per answer.

        Parameters
        ----------
        answers
            Pairs of an answer segment (None: the run gave none) and its item, of which ``question`` and ``answer`` are shown.

        Raises
        ------
        InputError
            If an item's prompt, with an answer of ``answer_tokens`` and a verdict of ``max_tokens``, does not fit the judge's context.
        """
        keys = [(item["question"], item["answer"], text.strip()) if text and text.strip() else None for text, item in answers]
        requests: dict[tuple[str, str, str], GenerateRequest] = {}
        longest, of = 0, ""
        for key, (_, item) in zip(keys, answers, strict=True):
            if key and key not in requests:
                requests[key] = GenerateRequest(tuple(self.prompt_ids(*key)), self.settings["max_tokens"])
                longest, of = max((longest, of), (sum(map(len, self.frame_ids(*key[:2]))), item["item_id"]))
        if requests:
            require_context(self.model, f"judge, item {of}", longest + self.settings["answer_tokens"] + self.settings["max_tokens"])
        stops = dialects.stop_ids(self.tokenizer, self.dialect)
        said: dict[GenerateRequest, Verdict] = {}
        # Answers that differ only where they are cut are one prompt.
        for portion in batches(list(dict.fromkeys(requests.values())), self.batch, "judge", "answer"):
            done = self.engine.generate(portion, GREEDY, stops)
            said |= {request: self.verdict(generation) for request, generation in zip(portion, done, strict=True)}
        self.asked += len(said)
        return [Verdict(NOT_ASKED) if key is None else said[requests[key]] for key in keys]

    def verdict(self, generation: Generation) -> Verdict:
        """Read what the judge wrote; never a guess."""
        parts = dialects.split(generation.ids, self.tokenizer, self.dialect)
        text = self.tokenizer.decode(parts.answer_ids, skip_special_tokens=True)
        if generation.finish_reason == "length":
            return Verdict(TRUNCATED, text)
        label = parse_choice(text, list(LABELS)) if parts.status == "terminated" else None
        return Verdict(UNREAD if label is None else LABELS[label], text)
