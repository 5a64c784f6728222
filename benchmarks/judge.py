"""How far can a judge be trusted? Its verdicts on answers whose truth is known by construction, beside the rules, as JSON lines.

From GSM8K, per item: ``right`` states the gold number, ``worked`` is the published solution, which ends with it, and ``wrong`` states the number of
another item. One line per kind and one for all: answers, verdicts (``same``, ``different``, ``unread``, ``truncated``), and how many the judge and
the rules get right (a verdict that is not read says wrong); last, the table of ``decomposition/judging`` for all answers.
"""

import argparse
import json
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl

from midtrace import grading
from midtrace.config.settings import folder_hash
from midtrace.estimands import judging
from midtrace.store import engine_of

ROOT = Path(__file__).parents[1]
# A model without thinking mode is shown by examples how its dialect ends a reasoning.
TEMPLATE = """Question: How many legs do 3 cats have?
Reference answer: 12
Given answer: Each cat has 4 legs, so there are 12 legs.
Does the given answer equal the reference answer? A. yes B. no

Reasoning: The reference answer is 12. The given answer ends with 12. They are equal.
The answer is A.

Question: What is half of 18?
Reference answer: 9
Given answer: It is 8.
Does the given answer equal the reference answer? A. yes B. no

Reasoning: The reference answer is 9. The given answer ends with 8. They are not equal.
The answer is B.

Question: {question}
Reference answer: {gold}
Given answer: {answer}
Does the given answer equal the reference answer? A. yes B. no"""


def answers(path: str | Path, n: int) -> list[tuple[str, str, dict[str, Any]]]:
    """(kind, answer, item) of the first ``n`` items."""
    rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()[: n + 1]]
    golds = [row["answer"].rpartition("####")[2].strip().replace(",", "") for row in rows]
    found = []
    for k, row in enumerate(rows[:n]):
        item = {"item_id": f"gsm8k/{k}", "question": row["question"], "options": [], "answer": golds[k], "answer_kind": "math"}
        other = golds[k + 1] if golds[k + 1] != golds[k] else f"{golds[k]}1"
        solution = re.sub(r"<<.*?>>", "", row["answer"].rpartition("####")[0]).strip()
        found += [("right", f"The answer is {golds[k]}.", item), ("worked", f"{solution}\nThe answer is {golds[k]}.", item)]
        found.append(("wrong", f"The answer is {other}.", item))
    return found


def main() -> None:
    """Ask the judge and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=str(ROOT / "models/smollm2"), help="a model folder (default: SmolLM2, made by make smollm2)")
    parser.add_argument("--dialect", default="smollm2")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--template", help="a file with {question}, {gold}, {answer} (default: one for SmolLM2)")
    parser.add_argument("--items", default=str(ROOT.parent / "shared/data/gsm8k_test.jsonl"), help="GSM8K's test.jsonl")
    parser.add_argument("--n", type=int, default=20, help="items")
    parser.add_argument("--max-tokens", type=int, default=64)
    chosen = parser.parse_args()
    missing = [path for path in (chosen.model, chosen.items) if not Path(path).exists()]
    if missing:
        print(json.dumps({"benchmark": "judge", "skipped": f"{Path(missing[0]).name} is not there"}))
        return
    model = {"source": chosen.model, "revision": None, "dialect": chosen.dialect, "effort": None, "date": None, "engine": "transformers"}
    model |= {"dtype": chosen.dtype, "context": None, "weights": folder_hash(chosen.model)}
    template = Path(chosen.template).read_text(encoding="utf-8") if chosen.template else TEMPLATE
    settings = {"model": model, "max_tokens": chosen.max_tokens, "answer_tokens": 512, "template": template}
    given = answers(chosen.items, chosen.n)
    with tempfile.TemporaryDirectory() as folder:
        judge = grading.Judge(settings, 8, engine_of(f"{folder}/graded.parquet", model, 1, {}))
        grades = grading.grade_all([(text, item) for _, text, item in given], judge=judge)
    rows = [
        {"kind": kind, "item_id": item["item_id"], "truth": kind != "wrong", **grade._asdict()}
        for (kind, _, item), grade in zip(given, grades, strict=True)
    ]
    for kind in ("right", "worked", "wrong", "all"):
        own = [row for row in rows if kind in (row["kind"], "all")]
        counts = {
            "verdicts": dict(Counter(row["judge_verdict"] for row in own)),
            "judge_right": sum(row["correct"] == row["truth"] for row in own),
            "rules_right": sum(row["rules_correct"] == row["truth"] for row in own),
        }
        print(json.dumps({"benchmark": "judge", "model": Path(chosen.model).name, "kind": kind, "answers": len(own), **counts}))
    found = judging(pl.DataFrame(rows, infer_schema_length=None), [], resamples=100, level=0.95, seed=0)
    print(json.dumps({"benchmark": "judge", **{row["estimand"]: row["estimate"] for row in found.iter_rows(named=True)}}))


if __name__ == "__main__":
    main()
