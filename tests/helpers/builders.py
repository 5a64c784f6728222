"""Builders of small inputs: items, traces, outcomes, an engine that follows the format, and a study run by its scripts."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from midtrace import config as study_config
from midtrace import dialects, store, tables
from midtrace.config.reading import conform
from midtrace.engines.fake import FakeEngine
from midtrace.seeds import stable_hash
from midtrace.store import StoredEngine

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "resources" / "embedded"
SHARED = ROOT.parent / "shared"
PROMPT = {"template": "{question}\n{options}", "option": "{label}. {text}"}
INFERENCE = {"resamples": 200, "level": 0.95, "margin": 0.1}


def item(item_id: str = "toy/1", **values: Any) -> dict[str, Any]:
    """A choice item with four options."""
    row = {
        "item_id": item_id,
        "benchmark": "toy",
        "stratum": "all",
        "question": "Start at 1. Then plus 2. Work modulo 4.",
        "options": ["0", "1", "2", "3"],
        "answer": "D",
        "answer_kind": "choice",
        "revised_question": None,
        "update": None,
        "stale_answer": None,
    }
    return {**row, **values}


def trace(item_id: str = "toy/1", arm: str = "low", replicate: int = 0, **values: Any) -> dict[str, Any]:
    """A graded trace: opening marker, ten reasoning tokens, closing marker, answer."""
    row = {
        "trace_id": f"m/{item_id}/{arm}/r{replicate}",
        "model": "m",
        "item_id": item_id,
        "arm": arm,
        "replicate": replicate,
        "seed": 1,
        "prompt_ids": [1, 2, 3],
        "output_ids": [512, *range(20, 30), 513, 40, 2],
        "reasoning_start": 1,
        "n_reasoning": 10,
        "format_after": [],
        "status": "terminated",
        "problem": None,
        "finish_reason": "stop",
        "answer_text": "Answer: D",
        "drift_at": None,
        "token_exact": True,
        "answer": "D",
        "correct": True,
        "grade_note": None,
        "grader": "rules",
        "rules_correct": None,
        "judge_verdict": None,
        "judge_text": None,
    }
    return {**row, **values}


def outcome(item_id: str, arm: str, replicate: int = 0, complete: bool = False, correct: bool = False, **values: Any) -> dict[str, Any]:
    """A row of the outcomes table."""
    row = {
        "model": "m",
        "benchmark": "toy",
        "item_id": item_id,
        "stratum": "all",
        "arm": arm,
        "replicate": replicate,
        "horizon": 8,
        "complete": complete,
        "readout": "terminal",
        "context_arm": arm,
        "correct": correct,
        "q_gold": None,
        "brier": None,
        "log_loss": None,
        "gold_log_odds": None,
    }
    return {**row, **values}


def outcomes(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """The outcomes table of these rows."""
    return tables.frame_of(rows, tables.Outcomes)


def walker(tokenizer: Any, broken: float = 0.0) -> FakeEngine:
    """An engine without a model that follows the embedded dialect: opens, reasons for a while, closes, answers with some letter, stops.

    With probability ``broken`` (by prefix) any token may come at any place.
    """
    opening, closing = (dialects.token_id(tokenizer, text) for text in ("<think>", "</think>"))
    stop = dialects.token_id(tokenizer, "<|im_end|>")
    turn = tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)
    lead = tokenizer.encode("\n\nAnswer:", add_special_tokens=False)
    letters = [tokenizer.encode(f" {letter}", add_special_tokens=False)[0] for letter in "ABCD"]
    words = tokenizer.encode(" Now 3 plus 5 gives 1. So the result is 2", add_special_tokens=False)

    def logits(prefix: list[int]) -> np.ndarray:
        values = np.full(len(tokenizer), -30.0)
        rng = np.random.default_rng(stable_hash("walker", *prefix))
        if rng.random() < broken:
            return rng.normal(size=len(tokenizer))
        start = max(at + len(turn) for at in range(len(prefix)) if prefix[at : at + len(turn)] == turn)
        output = prefix[start:]
        if opening not in output:
            likely = {opening: 1.0}
        elif closing not in output:
            likely = {**dict.fromkeys(words, 1.0), closing: 1.0}
        else:
            answer = output[output.index(closing) + 1 :]
            spoken = len(answer)
            if spoken < len(lead) and answer == lead[:spoken]:
                likely = {lead[spoken]: 1.0}
            elif answer and answer[-1] in letters:
                likely = {stop: 1.0}
            else:
                likely = {letter: rng.random() + 0.1 for letter in letters}
        for token, weight in likely.items():
            values[token] = np.log(weight) + rng.normal() * 0.1
        return values

    return FakeEngine(len(tokenizer), logits)


def small_config(**changes: Any) -> dict[str, Any]:
    """A whole small config on the embedded model: two arms, one comparison, one replicate."""
    config = {
        "study": "unit",
        "seed": 5,
        "replicates": 1,
        "models": {
            "embedded": {
                "source": str(MODEL),
                "dialect": "embedded",
                "engine": "transformers",
                "dtype": "float64",
                "max_tokens": 64,  # enough for low; high is cut
                "sampling": {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0},
            }
        },
        "benchmarks": {"chains": {"loader": "chains", "answer_kind": "choice", "n": 8}},
        "arms": {"low": {"effort": "low"}, "medium": {"effort": "medium"}, "high": {"effort": "high"}},
        "comparisons": [{"treatment": "low", "reference": "high", "common": "medium"}],
        "horizons": [0, 16, 48],
        "availability": {"horizons": [0, 16, 48]},
        "fractions": [0.5, 1.0],
        "continuations": {"modes": ["answer", "natural", "resume"], "max_tokens": 8},
        "controls": {"items": 3, "statement": " So the result is {text}.", "horizons": [16, 48]},
        "inference": INFERENCE,
    }
    return {**config, **changes}


def benchmark_entry(loader: str, path: str | Path | None = None, answer_kind: str = "choice", **values: Any) -> dict[str, Any]:
    """The entry of a benchmark in a valid config, with its name, as the settings of stage items have it."""
    given = {"loader": loader, "answer_kind": answer_kind, "path": path and str(path), **values}
    filled = conform(small_config(benchmarks={"toy": given}), "builders")["benchmarks"]["toy"]
    return {"name": "toy", **filled}


def item_files(path: str | Path) -> list[str]:
    """What stage items writes for a benchmark: items, excluded rows, tests."""
    return [str(Path(path).with_suffix(suffix)) for suffix in (".parquet", ".excluded.parquet", ".tests.parquet")]


@dataclass(frozen=True)
class Study:
    """A study of one model, benchmark and replicate in a folder of its own."""

    folder: Path
    config: dict[str, Any]
    model: str = "embedded"
    benchmark: str = "chains"

    @cached_property
    def items(self) -> Path:
        """The items table."""
        return self.folder / "items" / f"{self.benchmark}.parquet"

    def shard(self, stage: str, arm: str) -> Path:
        """The file of a stage and arm."""
        return self.folder / stage / self.model / self.benchmark / arm / "r0.parquet"

    def settings(self, stage: str, arm: str) -> dict[str, Any]:
        """The settings of a stage and arm."""
        return getattr(study_config, f"{stage}_settings")(self.config, self.model, self.benchmark, arm, 0)

    def stage_files(self) -> dict[str, list[str]]:
        """Shards by stage, as the analysis scripts get them."""
        arms = study_config.arms(self.config)
        return {
            "item_tables": [str(self.items)],
            **{stage: [str(self.shard(stage, arm)) for arm in arms] for stage in ("traces", "cuts", "readouts", "continuations")},
            "controls": [str(self.folder / "controls" / self.model / f"{self.benchmark}.parquet")],
        }

    def engine(self, output: str | Path) -> StoredEngine:
        """The engine of the job that writes a table."""
        return store.engine_of(str(output), self.settings("traces", "high")["model"], 1, {})

    def run(self) -> None:
        """All stages, by the ``main`` functions of the scripts."""
        name, config = self.config["study"], self.config
        _main("sample_items", *item_files(self.items), name, study_config.items_settings(config, self.benchmark))
        arms = study_config.arms(config)
        for arm in arms:
            settings = self.settings("traces", arm)
            _main(
                "generate_traces", str(self.items), str(self.shard("raw/traces", arm)), name, settings, 5, self.engine(self.shard("raw/traces", arm))
            )
            _main("grade_traces", str(self.shard("raw/traces", arm)), str(self.items), str(self.shard("traces", arm)), name, settings)
        for arm in arms:
            raw, cuts = str(self.shard("raw/traces", arm)), str(self.shard("cuts", arm))
            partners = [str(self.shard("raw/traces", partner)) for partner in study_config.partners(config, arm)]
            _main("cut_traces", raw, partners, cuts, name, self.settings("replay", arm))
            readouts = str(self.shard("readouts", arm))
            engine = self.engine(readouts)
            _main("probe_cuts", str(self.items), raw, cuts, readouts, name, self.settings("probe", arm), 5, engine)
            settings, extended = self.settings("continuation", arm), str(self.shard("raw/continuations", arm))
            _main("continue_cuts", str(self.items), raw, cuts, extended, name, settings, 5, self.engine(extended))
            graded = [str(self.shard(stage, arm)) for stage in ("readouts", "continuations")]
            _main("grade_continuations", str(self.items), str(self.shard("traces", arm)), cuts, extended, *graded, name, settings)
        files = self.stage_files()
        controls = study_config.controls_settings(config, self.model, self.benchmark)
        _main(
            "read_controls",
            str(self.items),
            str(self.shard("raw/traces", "high")),
            files["controls"][0],
            name,
            controls,
            self.engine(files["controls"][0]),
        )
        _main("tabulate_outcomes", files, str(self.folder / "outcomes.parquet"), name, study_config.outcomes_settings(config))
        outputs = {table: str(self.folder / "decomposition" / f"{table}.parquet") for table in tables.DECOMPOSITION}
        _main("decompose", str(self.folder / "outcomes.parquet"), files, None, outputs, name, study_config.analysis_settings(config))


def _main(script: str, *arguments: Any) -> None:
    importlib.import_module(script).main(*arguments)


def gguf_file(path: Path, without: str = "", cut: int | None = None) -> Path:
    """A GGUF file with a Llama of one small layer; without one of its weights, or cut off."""
    import gguf

    width, words = 16, ["<unk>", "<s>", "</s>", *"abcdefghijklm"]
    writer = gguf.GGUFWriter(path, "llama")
    for add, value in (
        (writer.add_context_length, 64), (writer.add_embedding_length, width), (writer.add_block_count, 1), (writer.add_feed_forward_length, 32),
        (writer.add_head_count, 2), (writer.add_head_count_kv, 2), (writer.add_layer_norm_rms_eps, 1e-5), (writer.add_vocab_size, len(words)),
        (writer.add_rope_freq_base, 10000.0), (writer.add_tokenizer_model, "llama"), (writer.add_token_list, words),
        (writer.add_token_scores, [0.0] * len(words)), (writer.add_token_types, [2, 3, 3, *[1] * 13]), (writer.add_bos_token_id, 1),
        (writer.add_eos_token_id, 2), (writer.add_unk_token_id, 0),
    ):  # fmt: skip
        add(value)
    shapes = {"token_embd": (len(words), width), "output": (len(words), width), "output_norm": (width,), "blk.0.attn_norm": (width,)}
    shapes |= {f"blk.0.attn_{part}": (width, width) for part in ("q", "k", "v", "output")}
    shapes |= {"blk.0.ffn_norm": (width,), "blk.0.ffn_gate": (32, width), "blk.0.ffn_up": (32, width), "blk.0.ffn_down": (width, 32)}
    for name, shape in shapes.items():
        if name != without:
            writer.add_tensor(f"{name}.weight", np.full(shape, 0.5, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if cut is not None:
        path.write_bytes(path.read_bytes()[:cut])
    return path
