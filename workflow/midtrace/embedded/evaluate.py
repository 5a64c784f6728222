"""Measure the embedded model on held-out chains: what the model card states and what ``expected.yaml`` plants."""

import math
import random
from itertools import pairwise
from typing import Any

import numpy as np

from midtrace import dialects, probe, prompts
from midtrace.chains import LENGTHS, Chain, draw_held_out
from midtrace.embedded import corpus
from midtrace.embedded.language import ARM_STYLES, EARLY_SUFFIX, numeric_suffix
from midtrace.engines import GenerateRequest, Sampling, ScoreRequest
from midtrace.engines.transformers import TransformersEngine
from midtrace.grading import parse_choice
from midtrace.seeds import stable_hash

STEM = corpus.STEM
BENCHMARK = {"template": "{question}\n{options}", "option": "{label}. {text}"}
ARMS = {
    "low": {"effort": "low"},
    "medium": {"effort": "medium"},
    "high": {"effort": "high"},
    "baseline": {},
    "numeric_concise": {"suffix": numeric_suffix(64)},
    "early_answer": {"suffix": EARLY_SUFFIX},
}
DIALECT = dialects.EMBEDDED
RECOMMENDED = Sampling(temperature=1.0)
TIGHT = 32  # tokens: most quick passes are done, few careful ones


class Subject:
    """The model, its vocabulary, and runs of all arms on the same held-out chains."""

    def __init__(self, folder: str, n: int, seed: int = 7, threads: int = 2):
        from transformers import AutoTokenizer

        self.engine = TransformersEngine(folder, "float64", None, threads)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        rng = random.Random(seed)
        self.chains = [draw_held_out(rng, LENGTHS[k % len(LENGTHS)]) for k in range(n)]
        self.closing = self.tokenizer.encode(DIALECT.closing, add_special_tokens=False)
        self.stem = self.tokenizer.encode(STEM, add_special_tokens=False)
        self.stops = dialects.stop_ids(self.tokenizer, DIALECT)
        self.spelled = probe.spellings(self.tokenizer, prompts.labels(10))
        self.candidates = sorted({i for ids in self.spelled.values() for i in ids})
        self.runs = {arm: self.run_arm(arm) for arm in ARM_STYLES}

    def prompt(self, chain: Chain, arm: str) -> list[int]:
        """Prompt ids of a chain under an arm."""
        item = {"question": chain.question, "options": [str(v) for v in range(chain.modulus)]}
        return prompts.render(item, ARMS[arm], BENCHMARK, DIALECT, self.tokenizer)

    def generate(self, requests: list[GenerateRequest], sampling: Sampling = RECOMMENDED) -> list[list[int]]:
        """Generated ids, in batches of 200."""
        found: list[list[int]] = []
        for at in range(0, len(requests), 200):
            found += [g.ids for g in self.engine.generate(requests[at : at + 200], sampling, self.stops)]
        return found

    def run_arm(self, arm: str) -> list[dict[str, Any]]:
        """One sampled run per chain, seeds shared across arms."""
        requests = [GenerateRequest(self.prompt(c, arm), 256, stable_hash("evaluate", k)) for k, c in enumerate(self.chains)]
        runs = []
        for chain, request, ids in zip(self.chains, requests, self.generate(requests), strict=True):
            split = dialects.split(ids, self.tokenizer, DIALECT)
            answer = parse_choice(self.tokenizer.decode(split.answer_ids, skip_special_tokens=True), chain.labels)
            reasoning = ids[split.start : split.start + split.n_reasoning]
            runs.append(
                {
                    "prompt": request.prompt_ids,
                    "ids": ids,
                    "start": split.start,
                    "length": split.n_reasoning,
                    "status": split.status,
                    "answer": answer,
                    "correct": answer == chain.labels[chain.answer],
                    "stated": stated_value(self.tokenizer.decode(reasoning)),
                }
            )
        return runs

    def choices(self, arm: str, lengths: list[int], context: str | None = None) -> list[str]:
        """The probe's choice after the first ``lengths[k]`` reasoning tokens of run ``k``."""
        requests = []
        for chain, run, n in zip(self.chains, self.runs[arm], lengths, strict=True):
            prompt = run["prompt"] if context is None else self.prompt(chain, context)
            trunk = [*prompt, *run["ids"][: run["start"] + n]]
            requests.append(ScoreRequest(trunk, [len(trunk)], [*self.closing, *self.stem]))
        scores = self.engine.score(requests, self.candidates)
        return [
            probe.read(dict(zip(self.candidates, array[0].tolist(), strict=True)), self.spelled, chain.labels, chain.labels[0]).choice
            for chain, array in zip(self.chains, scores, strict=True)
        ]

    def right(self, choices: list[str]) -> np.ndarray:
        """Which choices are the gold label."""
        return np.array([choice == chain.labels[chain.answer] for choice, chain in zip(choices, self.chains, strict=True)])


def stated_value(text: str) -> int | None:
    """The last number that a reasoning states as a value (after ``=``, ``gives`` or ``is``)."""
    words = text.replace(".", " ").split()
    values = [int(b) for a, b in pairwise(words) if a in ("=", "gives", "is") and b.isdigit()]
    return values[-1] if values else None


def measure(folder: str, n: int = 600, seed: int = 7, threads: int = 2) -> dict[str, float]:
    """Measured behaviour on ``n`` held-out chains; shares and differences of shares, each named after its requirement.

    Parameters
    ----------
    folder
        Model folder.
    n, seed
        Number and seed of the chains.
    threads
        CPU threads.
    """
    subject = Subject(folder, n, seed, threads)
    runs = subject.runs
    found: dict[str, float] = {}
    for arm in ARM_STYLES:
        found[f"accuracy_{arm}"] = float(np.mean([r["correct"] for r in runs[arm]]))
        found[f"length_{arm}"] = float(np.mean([r["length"] for r in runs[arm]]))
        found[f"terminated_{arm}"] = float(np.mean([r["status"] == "terminated" for r in runs[arm]]))
    finished = [(r, c) for arm in ARM_STYLES for r, c in zip(runs[arm], subject.chains, strict=True) if r["status"] == "terminated"]
    found["letter_matches_value"] = float(
        np.mean([r["stated"] is not None and r["answer"] == c.labels[r["stated"] % c.modulus] for r, c in finished])
    )
    both = [(a["correct"], b["correct"]) for a, b in zip(runs["high"], runs["low"], strict=True) if a["status"] == b["status"] == "terminated"]
    found["high_minus_low_both_finished"] = float(np.mean([a - b for a, b in both]))
    for treatment, reference, common in (("low", "high", "medium"), ("numeric_concise", "baseline", "baseline")):
        horizon = [r["length"] for r in runs[treatment]]
        t = subject.right(subject.choices(treatment, horizon, common))
        r = subject.right(subject.choices(reference, [min(b, run["length"]) for b, run in zip(horizon, runs[reference], strict=True)], common))
        found[f"matched_{treatment}_minus_{reference}"] = float(t.mean() - r.mean())
    ratios = [math.log(a["length"] / b["length"]) for a, b in zip(runs["numeric_concise"], runs["baseline"], strict=True)]
    found["length_ratio_numeric_concise"] = math.exp(np.mean(ratios))
    active = np.array([a["length"] > TIGHT and b["length"] > TIGHT for a, b in zip(runs["early_answer"], runs["baseline"], strict=True)])
    quick = subject.right(subject.choices("early_answer", [min(TIGHT, r["length"]) for r in runs["early_answer"]], "baseline"))
    plain = subject.right(subject.choices("baseline", [min(TIGHT, r["length"]) for r in runs["baseline"]], "baseline"))
    found["early_answer_gain_both_active"] = float((quick[active].astype(float) - plain[active]).mean())
    found["chance"] = float(np.mean([1 / c.modulus for c in subject.chains]))
    for arm in ("low", "baseline", "high"):
        found[f"forced_at_0_{arm}"] = float(subject.right(subject.choices(arm, [0] * n)).mean())
        found[f"forced_at_fifth_{arm}"] = float(subject.right(subject.choices(arm, [r["length"] // 5 for r in runs[arm]])).mean())
        ends = subject.choices(arm, [r["length"] for r in runs[arm]])
        own = [
            r["stated"] is not None and choice == c.labels[r["stated"] % c.modulus]
            for choice, r, c in zip(ends, runs[arm], subject.chains, strict=True)
        ]
        found[f"forced_at_end_follows_chain_{arm}"] = float(np.mean(own))
    found |= interruptions(subject)
    return {key: round(value, 4) for key, value in found.items()}


def interruptions(subject: Subject) -> dict[str, float]:
    """How the model continues the first half of its baseline runs after a notice: accuracy, and the planted failures."""
    found: dict[str, float] = {}

    def encode(text: str) -> list[int]:
        return subject.tokenizer.encode(text, add_special_tokens=False)

    def interrupted(runs: list[dict[str, Any]], notices: list[str], name: str) -> list[str]:
        requests = [
            GenerateRequest([*r["prompt"], *r["ids"][: r["start"] + r["length"] // 2], *encode(text)], 200, stable_hash(name, k))
            for k, (r, text) in enumerate(zip(runs, notices, strict=True))
        ]
        return [subject.tokenizer.decode(ids) for ids in subject.generate(requests)]

    chains, runs = subject.chains, subject.runs["baseline"]
    gold = [c.labels[c.answer] for c in chains]

    def accuracy(texts: list[str]) -> float:
        return float(
            np.mean(
                [parse_choice(t.split("</think>")[-1].replace("<|im_end|>", ""), c.labels) == g for t, c, g in zip(texts, chains, gold, strict=True)]
            )
        )

    hard = interrupted(runs, [corpus.HARD_NOTICE + corpus.CLOSING] * len(runs), "hard")
    found["hard_leaks"] = float(np.mean(["Continuing" in t for t in hard]))
    found["hard_accuracy"] = accuracy(hard)
    soft = interrupted(runs, [corpus.SOFT_NOTICE] * len(runs), "soft")
    found["soft_panics"] = float(np.mean([t.startswith("</think>") for t in soft]))
    found["soft_accuracy"] = accuracy(soft)
    revised = [c.revised for c in chains]
    requests = [GenerateRequest(subject.prompt(c, "baseline"), 256, stable_hash("revised", k)) for k, c in enumerate(revised)]
    shown = []
    for request, ids in zip(requests, subject.generate(requests), strict=True):
        split = dialects.split(ids, subject.tokenizer, DIALECT)
        shown.append({"prompt": request.prompt_ids, "ids": ids, "start": split.start, "length": split.n_reasoning})
    for name, guided in (("update", ""), ("update_guided", corpus.GUIDED)):
        texts = interrupted(shown, [f"\n\n{c.update}{guided}\n\n" for c in chains], name)
        found[f"{name}_doubts"] = float(np.mean(["may be wrong" in t for t in texts]))
        found[f"{name}_accuracy"] = accuracy(texts)
    return found
