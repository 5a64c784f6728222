"""What a model takes, what its jobs ask for, and what is refused before any job."""

import numpy as np
import pytest
from helpers.builders import MODEL
from helpers.checkout import SMALL, Checkout
from safetensors.numpy import save_file
from test_errors_end_to_end import refused

from midtrace import memory
from midtrace.engines import load
from midtrace.errors import InputError


def entry(machine=None, **model):
    return {"source": "owner/name", "engine": "vllm", "dtype": "bfloat16", "machine": machine or {}, **model}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (entry({"parameters": 14.8e9}), 29_600_000_000),
        (entry({"parameters": 1e9}, dtype="float64"), 8_000_000_000),
        (entry({"parameters": 116.8e9, "weights_gb": 65.3}), 65_300_000_000),  # quantised: not parameters times dtype
        (entry(), None),
    ],
)
def test_the_size_of_the_weights_is_what_the_entry_says(model, expected):
    assert memory.weights(model) == expected


def test_a_folder_says_how_large_its_weights_are_in_the_dtype_of_the_entry(tmp_path, engine):
    parameters = sum(tensor.numel() for tensor in engine.model.parameters())
    for dtype, size in memory.BYTES.items():
        assert memory.weights(entry(source=str(MODEL), dtype=dtype)) == parameters * size
    save_file({"packed": np.zeros((4, 3), np.uint8), "scale": np.ones(5, np.float16)}, tmp_path / "model.safetensors")
    assert memory.weights(entry(source=str(tmp_path), dtype="float32")) == 12 + 5 * 4
    assert memory.weights(entry(source=str(tmp_path / "nothing"))) is None


def test_a_job_asks_for_the_weights_and_for_more_room_with_every_attempt():
    big = entry({"parameters": 14.8e9})
    assert [memory.request_mb(big, attempt) for attempt in (1, 2, 3)] == [40_560, 48_560, 56_560]
    assert memory.request_mb(big) * 1e6 > memory.weights(big), "what is asked for by default always holds the model"
    assert [memory.request_mb(entry(), attempt) for attempt in (1, 2)] == [32_000, 64_000]
    assert memory.request_mb(entry(engine="server", source=str(MODEL))) == 4_000


@pytest.mark.parametrize(
    ("machine", "resources", "threads", "said"),
    [
        ({}, {"mem_mb": 29_599}, 1, "probe_cuts.mem_mb: is 29599, and the weights of models.m take 29600 MB; allowed: at least 29600, .*"),
        ({}, {"mem_mb_per_cpu": 7_000, "mem_mb": 64_000}, 4, "probe_cuts.mem_mb_per_cpu: is 7000 for each of 4 .*; allowed: at least 7400, .*"),
        ({"tensor_parallel_size": 2}, {"mem_mb": 64_000, "gpu": 1}, 1, "probe_cuts.gpu: is 1, and .*tensor_parallel_size 2; allowed: at least 2, .*"),
    ],
)
def test_what_does_not_hold_the_model_is_refused(machine, resources, threads, said):
    with pytest.raises(InputError, match=f"^resources: {said}"):
        memory.check_job("probe_cuts", "models.m", entry({"parameters": 14.8e9, **machine}), resources, threads)


@pytest.mark.parametrize(
    ("model", "resources"),
    [
        (entry({"parameters": 14.8e9}), {"mem_mb": 29_600, "gpu": 1}),
        (entry({"parameters": 14.8e9}), {"mem_mb_per_cpu": 7_400}),
        (entry({"parameters": 14.8e9}), {"mem_mb": "<TBD>"}),
        (entry({"tensor_parallel_size": 2}), {"mem_mb": 1, "gpu": 0}),  # nobody says how large it is, and it runs on a CPU
        (entry(engine="server"), {"mem_mb": 1}),
    ],
)
def test_what_holds_the_model_or_cannot_be_judged_passes(model, resources):
    memory.check_job("probe_cuts", "models.m", model, resources, 4)


def test_the_weights_are_shared_among_gpus():
    whole = {"parameters": 14.8e9, "gpu_memory_gb": 24}
    memory.check_gpu("models.m", entry({**whole, "tensor_parallel_size": 2}), "study.yaml")
    with pytest.raises(InputError, match=r"of which the engine takes 50%, for 14.8 GB of weights on each of 2 GPU.*; allowed: at least 29.6, or"):
        memory.check_gpu("models.m", entry({**whole, "tensor_parallel_size": 2, "memory_fraction": 0.5}), "study.yaml")
    memory.check_gpu("models.m", entry({"gpu_memory_gb": 1}), "study.yaml")


def test_no_engine_sees_what_is_said_of_memory():
    found = load({"engine": "transformers", "source": str(MODEL), "dtype": "float64"}, machine={"parameters": 1e6, "gpu_memory_gb": 80})
    assert found.facts["engine"] == "transformers"


# From Snakemake, before any job


@pytest.mark.slow
def test_a_model_that_does_not_fit_ends_the_run_before_it_starts(tmp_path):
    checkout = Checkout.copied_to(tmp_path / "checkout")
    checkout.edit_config(lambda config: config["models"]["embedded"].update(machine={"parameters": 1e9}))
    for way in (["--dry-run"], [], ["--dry-run", "--workflow-profile", "profiles/slurm"]):
        run = checkout.snakemake(*way, "--set-resources", "read_controls:mem_mb=attempt * 4000", check=False)
        refused(run, "resources: read_controls.mem_mb: is 4000, and the weights of models.embedded take 8000 MB; allowed: at least 8000, .*")
    refused(checkout.snakemake("--resources", "mem_mb=4000", check=False), "resources: generate_traces.mem_mb: is 4000, .*")
    checkout.edit_config(lambda config: config["models"]["embedded"]["machine"].update(gpu_memory_gb=6))
    refused(
        checkout.snakemake("--dry-run", check=False),
        f"{SMALL}: models.embedded.machine.gpu_memory_gb: is 6, for 8.0 GB of weights on each of 1 GPU.*",
    )
    assert not (checkout.folder / "results").exists()


# At the end of the Snakefile: what jobs ask for, after the profile and the command line.
SHOW = """
for name in MODELS:
    for rule in ("generate_traces", "cut_traces", "decompose"):
        for attempt in (1, 2):
            asked = workflow.get_rule(rule).expand_resources(Wildcards(fromdict={"model": name}), InputFiles(), attempt)
            print("asked", name, rule, attempt, *(asked.get(key) for key in ("gpu", "mem_mb", "runtime")))
"""


@pytest.mark.slow
def test_the_slurm_profile_asks_for_what_the_model_needs_and_an_override_takes_its_place(tmp_path):
    checkout = Checkout.copied_to(tmp_path / "checkout")
    checkout.append("Snakefile", SHOW)
    (checkout.folder / "two.yaml").write_text("models: {gpt_oss_120b: {machine: {tensor_parallel_size: 2}}}\n")

    def asked(*arguments):
        study = ["--configfile", "config/studies/matched_horizon_gpt_oss.yaml", "two.yaml"]
        run = checkout.dry_run("--workflow-profile", "profiles/slurm", *arguments, *study, config=None)
        return {tuple(words[1:4]): " ".join(words[4:]) for line in run.text.splitlines() if (words := line.split()) and words[0] == "asked"}

    small, large, light = (("gpt_oss_20b", "generate_traces"), ("gpt_oss_120b", "generate_traces"), ("gpt_oss_20b", "cut_traces"))
    found = asked()
    assert [found[*small, attempt] for attempt in "12"] == ["1 23180 720", "1 31180 1440"], "gpu, mem_mb, runtime"
    assert [found[*large, attempt] for attempt in "12"] == ["2 79830 720", "2 87830 1440"]
    assert [found[*light, attempt] for attempt in "12"] == ["None 4000 30", "None 8000 60"]
    assert found["gpt_oss_20b", "decompose", "2"] == "None 32000 480"
    found = asked("--set-resources", "generate_traces:mem_mb=90000", "generate_traces:runtime=60 * attempt", "generate_traces:gpu=4")
    assert [found[*large, attempt] for attempt in "12"] == ["4 90000 60", "4 90000 120"]


@pytest.mark.parametrize("content", [b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\n", b"abc", b""])
def test_a_weight_file_that_is_none_is_one_line(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=r"model.safetensors: weights: is no safetensors file, or not whole; allowed: the whole file"):
        memory.weights({"source": str(tmp_path), "dtype": "float32", "machine": {}})


def test_weights_that_lie_there_twice_count_once(tmp_path):
    for name in ("model-1.safetensors", "consolidated.safetensors"):
        (tmp_path / name).write_bytes((MODEL / "model.safetensors").read_bytes())
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-1.safetensors", "b": "model-1.safetensors"}}')
    entry = {"dtype": "float32", "machine": {}}
    assert memory.weights({"source": str(tmp_path), **entry}) == memory.weights({"source": str(MODEL), **entry})
