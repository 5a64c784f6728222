"""Benchmarks of lettered options."""

import re
from typing import Any

from midtrace.loaders.loader import ID, NUMBER, TEXT, TEXTS, Loader, Row, Settings, UnusableError, text
from midtrace.prompts import labels


def _mmlu_pro(row: Row, settings: Settings) -> dict[str, Any]:
    answer, index = text(row, "answer"), row["answer_index"]
    if index is None or not 0 <= index < len(labels(26)) or labels(26)[index] != answer:
        raise UnusableError("answer and answer_index disagree")
    return {"question": text(row, "question"), "options": row["options"], "answer": answer}


MMLU_PRO = Loader(
    name="mmlu_pro",
    answer_kinds=("choice",),
    item=_mmlu_pro,
    columns=lambda settings: {"question_id": ID, "question": TEXT, "options": TEXTS, "answer": TEXT, "answer_index": NUMBER, "category": TEXT},
    id_column=lambda settings: "question_id",
    stratum=lambda row, settings: row["category"] or "none",
    address="hf://datasets/TIGER-Lab/MMLU-Pro/data/test-00000-of-00001.parquet",
)

WRONG = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


def _gpqa(row: Row, settings: Settings) -> dict[str, Any]:
    return {"question": text(row, "Question"), "options": [text(row, column) for column in ("Correct Answer", *WRONG)], "answer": "A"}


GPQA = Loader(
    name="gpqa",
    answer_kinds=("choice",),
    item=_gpqa,
    columns=lambda settings: dict.fromkeys(("Record ID", "Question", "Correct Answer", *WRONG, "High-level domain"), TEXT),
    id_column=lambda settings: "Record ID",
    stratum=lambda row, settings: row["High-level domain"] or "none",
    address="hf://datasets/Idavidrein/gpqa/gpqa_diamond.csv",
    shuffled=True,
)


def _aqua_rat(row: Row, settings: Settings) -> dict[str, Any]:
    options = []
    for label, option in zip(labels(26), row["options"] or [], strict=False):
        match = re.fullmatch(rf"\s*(?:{label}\s*\)\s*)+(.*)", option or "", re.DOTALL)  # one item letters them twice
        if not match:
            raise UnusableError("options are not lettered in order")
        options.append(match[1])
    return {"question": text(row, "question"), "options": options, "answer": text(row, "correct")}


# Seven of its test items repeat an option, four of them the right one. They are kept, as published results have them: the letter counts.
AQUA_RAT = Loader(
    name="aqua_rat",
    answer_kinds=("choice",),
    item=_aqua_rat,
    columns=lambda settings: {"question": TEXT, "options": TEXTS, "correct": TEXT},
    address="https://github.com/google-deepmind/AQuA (test.json, renamed to .jsonl)",
    repeats=True,
)
