"""Logs made by the real lm-evaluation-harness and the real Inspect, with the embedded model and no network.

``python -m helpers.foreign_logs lm-eval|inspect FOLDER``, with ``tests`` in PYTHONPATH, in the environment of ``make test-importing``. Each makes
a task of choices, one of mathematics and a group of two tasks whose documents bear the same numbers. The texts of the items are those of
:func:`documents`.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import yaml

from helpers.builders import MODEL
from midtrace.loaders.generated import chain_items

TASKS = {"likely": "choice", "sums": "math", "law": "choice", "arts": "choice"}  # law and arts make the group exam
N = 4
MAX_TOKENS = 96
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "INSPECT_DISPLAY": "none",
}


def documents(task: str) -> list[dict[str, Any]]:
    """What a task asks: ``question``, ``options``, ``answer`` (a label, or a number)."""
    rows = chain_items({"loader": "chains", "n": N, "answer_kind": TASKS[task], "name": task}, list(TASKS).index(task))
    return [{key: row[key] for key in ("question", "options", "answer")} for row in rows]


def run_lm_eval(folder: Path) -> None:
    """Writes ``samples_{task}_{date}.jsonl`` below the folder ``logs``; generated tasks have two filters, and sums two repeats."""
    lettered = "{{question}}\n{% for option in options %}{{'ABCDEFGHIJ'[loop.index0]}}. {{option}}\n{% endfor %}"
    generated = {
        "output_type": "generate_until",
        "generation_kwargs": {"until": ["<|im_end|>"], "max_gen_toks": MAX_TOKENS, "do_sample": True, "temperature": 1.0},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
        "filter_list": [
            {"name": "strict-match", "filter": [{"function": "regex", "regex_pattern": r"Answer: (\S+)"}, {"function": "take_first"}]},
            {
                "name": "flexible-extract",
                "filter": [{"function": "regex", "group_select": -1, "regex_pattern": r"(\S+)"}, {"function": "take_first"}],
            },
        ],
    }
    judged = {
        "output_type": "multiple_choice",
        "doc_to_choice": "options",
        "doc_to_target": "{{'ABCDEFGHIJ'.index(answer)}}",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }
    for task, kind in TASKS.items():
        source = folder / f"{task}.jsonl"
        source.write_text("".join(json.dumps(document) + "\n" for document in documents(task)))
        entry = {
            "task": task,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(source)}},
            "test_split": "test",
            "doc_to_text": "{{question}}" if kind == "math" else lettered,
            "doc_to_target": "answer",
            **(judged if task == "likely" else generated),
            **({"repeats": 2} if task == "sums" else {}),
        }
        (folder / f"{task}.yaml").write_text(yaml.safe_dump(entry))
    metric = {"metric": "exact_match", "weight_by_size": True, "filter_list": ["strict-match"]}
    (folder / "exam.yaml").write_text(yaml.safe_dump({"group": "exam", "task": ["law", "arts"], "aggregate_metric_list": [metric]}))
    from lm_eval.__main__ import cli_evaluate

    model = f"pretrained={MODEL},dtype=float32"
    chosen = ["--tasks", "likely,sums,exam", "--include_path", str(folder), "--device", "cpu", "--batch_size", "8", "--apply_chat_template"]
    sys.argv = ["lm_eval", "run", "--model", "hf", "--model_args", model, *chosen, "--log_samples", "--output_path", str(folder / "logs")]
    cli_evaluate()


def run_inspect(folder: Path) -> None:
    """Writes ``logs/*_{task}_*.eval`` and, of sums, a ``.json`` too.

    One sample of law fails; one of sums has no target; questions of sums have two parts; sums has two epochs.
    """
    from inspect_ai import Task, eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ChatMessageUser, ContentText, GenerateConfig, get_model
    from inspect_ai.scorer import choice, match
    from inspect_ai.solver import generate, multiple_choice, solver

    @solver
    def fail_where_told() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            if state.sample_id == "bad":
                raise RuntimeError("this sample was made to fail")
            return state

        return solve

    def choices(task: str) -> Any:
        samples = [
            Sample(input=row["question"], choices=row["options"], target=row["answer"], id=str(number)) for number, row in enumerate(documents(task))
        ]
        samples += [Sample(input="This one fails.", choices=["x", "y"], target="A", id="bad")] if task == "law" else []
        return Task(name=task, dataset=MemoryDataset(samples), solver=[fail_where_told(), multiple_choice()], scorer=choice())

    def sums() -> Any:
        def parts(question: str) -> list[Any]:
            start, end = question[:8], question[8:]
            return [ChatMessageUser(content=[ContentText(text=start), ContentText(text=end)])]

        samples = [Sample(input=parts(row["question"]), target=[row["answer"]], id=number) for number, row in enumerate(documents("sums"))]
        samples.append(Sample(input="This one has no target.", target=[], id=N))
        return Task(name="sums", dataset=MemoryDataset(samples), solver=generate(), scorer=match(), epochs=2)

    config = GenerateConfig(max_tokens=MAX_TOKENS, temperature=1.0, max_connections=16)
    model = get_model("hf/embedded", model_path=str(MODEL), device="cpu", config=config)
    logs = {"log_dir": str(folder / "logs"), "fail_on_error": False, "model": model}
    eval([*(choices(task) for task in TASKS if task != "sums"), sums()], log_format="eval", max_tasks=4, **logs)
    eval(sums(), log_format="json", **logs)


if __name__ == "__main__":
    os.environ |= {**OFFLINE, "HF_DATASETS_CACHE": str(Path(sys.argv[2]) / "cache")}
    {"lm-eval": run_lm_eval, "inspect": run_inspect}[sys.argv[1]](Path(sys.argv[2]))
