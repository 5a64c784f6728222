"""vLLM in process and vLLM served, on the CPU: each on its own, both against Transformers, and the pipeline on top (``make test-vllm``)."""

import os
import re
import shutil
import signal
import subprocess
import time

import numpy as np
import polars as pl
import psutil
import pytest
import yaml
from helpers.builders import MODEL, Study, small_config
from helpers.checkout import Checkout

from midtrace import config as study_config
from midtrace import continuation, dialects, engines, generation, probe, prompts, tables
from midtrace.dialects import EMBEDDED
from midtrace.engines import GREEDY, GenerateRequest, Generation, Sampling, ScoreRequest
from midtrace.errors import InputError
from midtrace.store import StoredEngine

pytestmark = pytest.mark.vllm
HOT = Sampling(temperature=1.8)
FILTERED = Sampling(temperature=1.3, top_p=0.95, top_k=40, min_p=0.002)
TOLERANCE = 1e-4


@pytest.fixture(scope="session", params=["vllm", "server"])
def scheduled(request):
    """Both ways to vLLM in turn."""
    return request.getfixturevalue(f"{request.param}_engine")


@pytest.fixture(scope="session")
def transformers():
    """The embedded model in Transformers, in float32 as vLLM runs it."""
    return engines.load({"engine": "transformers", "source": str(MODEL), "dtype": "float32"}, threads=1)


@pytest.fixture(scope="session")
def stops(tokenizer):
    return dialects.stop_ids(tokenizer, EMBEDDED)


@pytest.fixture(scope="session")
def traces(study: Study) -> pl.DataFrame:
    """Sixteen stored traces, of both arms."""
    return pl.concat([tables.read(study.shard("raw/traces", arm), tables.RawTraces) for arm in ("low", "high")])


@pytest.fixture(scope="session")
def prompted(traces) -> list[GenerateRequest]:
    """Their prompts, with limits that end some long before others."""
    return [GenerateRequest(row["prompt_ids"], 5 + 9 * (k % 5), row["seed"] + k) for k, row in enumerate(traces.iter_rows(named=True))]


@pytest.fixture(scope="session")
def nested(traces, tokenizer) -> list[ScoreRequest]:
    """Every trace cut at its start, twice at one place, out of order, and at its end."""
    suffix = prompts.closing_ids(EMBEDDED, "Answer:", tokenizer)
    requests = []
    for row in traces.iter_rows(named=True):
        trunk, base = [*row["prompt_ids"], *row["output_ids"]], len(row["prompt_ids"])
        requests.append(ScoreRequest(trunk, [base, base + 9, base + 9, len(trunk), base + 4, base + 21], suffix))
    return requests


# One engine


def test_facts_and_context(scheduled):
    assert scheduled.facts["engine"] in ("vllm", "server")
    assert re.fullmatch(r"(vllm )?0\.3\d\.\d+", scheduled.facts["engine_version"])
    assert scheduled.facts["dtype"] == "float32" and set(scheduled.facts) == {"engine", "engine_version", "dtype", "device"}
    assert scheduled.context == 2048


@pytest.mark.parametrize("sampling", [HOT, FILTERED, GREEDY], ids=["free", "filtered", "greedy"])
def test_a_request_gives_the_same_tokens_in_any_batch(scheduled, prompted, stops, sampling):
    together = scheduled.generate(prompted, sampling, stops)
    assert scheduled.generate(prompted[::-1], sampling, stops) == together[::-1]
    order = [11, 3, 8]
    assert scheduled.generate([prompted[k] for k in order], sampling, stops) == [together[k] for k in order]
    assert scheduled.generate(prompted[5:6], sampling, stops) == together[5:6]


def test_more_prompts_than_a_step_takes(scheduled, prompted, stops):
    """Prefilling a prompt in chunks would end vLLM on a CPU, where its generator cannot be turned back."""
    long = [GenerateRequest([*request.prompt_ids] * 12, 3, request.seed) for request in prompted] * 2
    assert sum(len(request.prompt_ids) for request in long) > 12_000
    found = scheduled.generate(long, HOT, stops)
    assert found[:16] == found[16:] == scheduled.generate(long[:16], HOT, stops)


def test_seeds_decide_and_greedy_has_none(scheduled, prompted, stops):
    def with_seed(seed, sampling):
        return scheduled.generate([GenerateRequest(prompted[1].prompt_ids, 30, seed)], sampling, [])[0].ids

    assert with_seed(2**63 - 1, HOT) == with_seed(2**63 - 1, HOT) != with_seed(2**63 - 2, HOT)
    assert with_seed(1, GREEDY) == with_seed(2, GREEDY)


def test_stop_and_length(scheduled, prompted):
    prompt = prompted[1].prompt_ids
    (free,) = scheduled.generate([GenerateRequest(prompt, 20, 3)], HOT, [])
    assert (len(free.ids), free.finish_reason) == (20, "length")
    (stopped,) = scheduled.generate([GenerateRequest(prompt, 20, 3)], HOT, [free.ids[5]])
    assert stopped == Generation(free.ids[: free.ids.index(free.ids[5]) + 1], "stop")
    nothing = GenerateRequest(prompt, 0)
    assert scheduled.generate([nothing, GenerateRequest(prompt, 20, 3), nothing], HOT, []) == [
        Generation([], "length"),
        free,
        Generation([], "length"),
    ]
    assert scheduled.generate([], HOT, []) == []


def test_the_end_of_text_stops_only_where_the_dialect_says_so(scheduled, prompted, tokenizer):
    """Neither vLLM nor the model's generation_config adds stop ids of its own."""
    (going,) = scheduled.generate([GenerateRequest(prompted[0].prompt_ids, 120, 1)], GREEDY, [])
    assert tokenizer.eos_token_id in going.ids[:-1] and len(going.ids) == 120


def test_scores_are_those_of_the_whole_vocabulary_in_the_order_asked_for(scheduled, nested):
    every = scheduled.score(nested[:2], range(514))  # more than vLLM takes in one request
    for scores, request in zip(every, nested, strict=False):
        assert scores.shape == (len(request.cuts), 514)
        np.testing.assert_allclose(np.exp(scores).sum(-1), 1, atol=1e-5)
        np.testing.assert_allclose(scores[1], scores[2], atol=1e-5)
    chosen = [400, 9, 7, 31]
    for scores, some in zip(every, scheduled.score(nested[:2], chosen), strict=True):
        np.testing.assert_allclose(some, scores[:, chosen], atol=1e-5)


def test_what_exceeds_the_context_is_refused(scheduled):
    with pytest.raises(InputError, match=r"2048 tokens and 1 more exceed .*; allowed: together at most 2048 tokens"):
        scheduled.score([ScoreRequest([5] * 2047, [2047], [5])], [5])


@pytest.mark.parametrize(("entry", "said"), [({"dtype": "float64"}, "float64"), ({"dtype": "float32", "context": 4096}, "4096")])
def test_what_vllm_cannot_run_is_one_clear_error(entry, said):
    with pytest.raises(InputError, match=rf"engine vllm: .*{said}.*; allowed: "):
        engines.load({"engine": "vllm", "source": str(MODEL), **entry}, machine={"memory_fraction": 0.1, "enforce_eager": True})


# Engines against each other


def separate(engine, request: ScoreRequest) -> np.ndarray:
    """Transformers, every prefix in a forward of its own."""
    import torch

    with torch.inference_mode():
        return np.stack([engine.model(torch.tensor([prefix])).logits[0, -1].log_softmax(-1).numpy() for prefix in request.prefixes()])


def test_four_ways_to_score_agree(transformers, vllm_engine, server_engine, nested):
    expected = np.concatenate([separate(transformers, request) for request in nested])
    assert expected.min() < -10, "not only easy tokens are compared"
    for engine in (transformers, vllm_engine, server_engine):
        found = np.concatenate(engine.score(nested, range(514)))
        np.testing.assert_allclose(found, expected, atol=TOLERANCE, rtol=0, err_msg=engine.facts["engine"])


def test_greedy_continuations_agree_token_by_token(transformers, vllm_engine, server_engine, prompted, nested, stops):
    closed = [GenerateRequest(prefix, 16) for request in nested for prefix in request.prefixes()]
    asked = [*(GenerateRequest(request.prompt_ids, 150) for request in prompted), *closed]
    expected = transformers.generate(asked, GREEDY, stops)
    assert max(len(generation.ids) for generation in expected) > 60
    assert vllm_engine.generate(asked, GREEDY, stops) == expected
    assert server_engine.generate(asked, GREEDY, stops) == expected


def test_readouts_of_the_same_traces_are_the_same(transformers, vllm_engine, server_engine, study: Study, tmp_path):
    frames = []
    for engine in (transformers, vllm_engine, server_engine):
        output, settings = tmp_path / f"{engine.facts['engine']}.parquet", study.settings("probe", "high")
        probe.run(study.items, study.shard("raw/traces", "high"), study.shard("cuts", "high"), output, "unit", settings, 3, engine)
        frames.append(tables.read(output, tables.Readouts, settings))
        assert tables.read_metadata(output)["engine"] == engine.facts["engine"]
    first, *others = frames
    exact = ["trace_id", "cut_id", "n_tokens", "context", "context_arm", "choice", "tie", "low_mass", "correct"]
    for other in others:
        assert other.select(exact).equals(first.select(exact))
        for column in ("q_gold", "brier", "candidate_mass"):
            np.testing.assert_allclose(other[column], first[column], atol=TOLERANCE)
        np.testing.assert_allclose(other["option_logprob"].explode(), first["option_logprob"].explode(), atol=TOLERANCE)


# The pipeline


def test_stages_do_not_depend_on_batches(vllm_engine, study: Study, tmp_path):
    settings = study.settings("traces", "high")
    shards = study.shard("raw/traces", "high"), study.shard("cuts", "high")
    for batch in (100, 3):
        folder = tmp_path / str(batch)
        generation.run(study.items, folder / "traces.parquet", "unit", settings, batch, vllm_engine)
        continuation.run(study.items, *shards, folder / "more.parquet", "unit", study.settings("continuation", "high"), batch, vllm_engine)
    for name in ("traces", "more"):
        assert pl.read_parquet(tmp_path / "100" / f"{name}.parquet").equals(pl.read_parquet(tmp_path / "3" / f"{name}.parquet"))


def test_a_killed_job_goes_on_with_the_same_tokens(vllm_engine, study: Study, tmp_path):
    class Dying:
        """Dies in its second batch."""

        facts, calls = vllm_engine.facts, 0

        def generate(self, *arguments):
            self.calls += 1
            if self.calls == 2:
                raise KeyboardInterrupt
            return vllm_engine.generate(*arguments)

    settings, dying, output = study.settings("traces", "low"), Dying(), tmp_path / "a.parquet"
    stored = StoredEngine(output, settings["model"], lambda *_: dying)
    with pytest.raises(KeyboardInterrupt):
        generation.run(study.items, output, "unit", settings, 5, stored)
    generation.run(study.items, output, "unit", settings, 5, StoredEngine(output, settings["model"], lambda *_: dying))
    generation.run(study.items, tmp_path / "b.parquet", "unit", settings, 5, vllm_engine)
    assert dying.calls == 3
    assert pl.read_parquet(tmp_path / "a.parquet").equals(pl.read_parquet(tmp_path / "b.parquet"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Checkout:
    """A checkout in which the small study of the unit tests has run in Snakemake, up to its report, in vLLM."""
    checkout = Checkout.copied_to(tmp_path_factory.mktemp("vllm") / "checkout")
    config = small_config()
    machine = {"memory_fraction": 0.1, "enforce_eager": True}
    config["models"]["embedded"] |= {"source": "resources/embedded", "engine": "vllm", "dtype": "float32", "machine": machine}
    config["controls"]["items"] = 0
    (checkout.folder / "vllm.yaml").write_text(yaml.safe_dump(config))
    run = checkout.snakemake(config="vllm.yaml")
    shutil.rmtree(checkout.folder / ".snakemake" / "log", ignore_errors=True)
    (checkout.folder / "terminal.txt").write_text(run.text)
    return checkout


def test_a_study_in_vllm_has_the_items_and_prompts_of_one_in_transformers(finished: Checkout, study: Study):
    results = finished.folder / "results" / "unit"
    assert pl.read_parquet(results / "items/chains.parquet").equals(pl.read_parquet(study.items))
    for arm in ("low", "high"):
        ours = pl.read_parquet(results / f"raw/traces/embedded/chains/{arm}/r0.parquet")
        theirs = pl.read_parquet(study.shard("raw/traces", arm))
        same = ["trace_id", "item_id", "seed", "prompt_ids"]
        assert ours.select(same).equals(theirs.select(same))
        assert ours["status"].is_in(["terminated", "truncated"]).all()
        horizons = [
            frame.filter(cut="horizon").select("trace_id", "cut_id", "horizon")
            for frame in (pl.read_parquet(results / f"cuts/embedded/chains/{arm}/r0.parquet"), pl.read_parquet(study.shard("cuts", arm)))
        ]
        assert horizons[0].equals(horizons[1])
    assert tables.read_metadata(results / "readouts/embedded/chains/low/r0.parquet")["engine"] == "vllm"
    assert "vllm 0.3" in re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", (results / "report.html").read_text()))


def test_the_noise_of_vllm_goes_to_the_log_of_its_job(finished: Checkout):
    shown = (finished.folder / "terminal.txt").read_text()
    assert "traces embedded/chains/low/r0: 100%" in shown
    assert not re.search(r"INFO|WARNING|Loading safetensors", shown)
    log = (finished.folder / "logs/unit/generate_traces/embedded/chains/low/r0.log").read_text()
    assert re.search(r"INFO .*KV cache", log)


def test_another_machine_reruns_nothing(finished: Checkout):
    assert not finished.dry_run(config="vllm.yaml").jobs
    finished.edit_config(lambda config: config["models"]["embedded"]["machine"].update(memory_fraction=0.2, enforce_eager=False), "vllm.yaml")
    assert not finished.dry_run(config="vllm.yaml").jobs
    finished.edit_config(lambda config: config["models"]["embedded"].update(context=1024), "vllm.yaml")
    assert "generate_traces" in finished.dry_run(config="vllm.yaml").rules


def _servers(checkout: Checkout) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if _serves(process, str(checkout.folder))]


def _serves(process: psutil.Process, folder: str) -> bool:
    try:
        return process.cwd() == folder and any(name in " ".join(process.cmdline()) for name in ("midtrace.serving", "openai.api_server"))
    except psutil.Error:
        return False


@pytest.mark.parametrize("jobs", [{"engines": "per_model", "shards": 2}, {"engines": "service"}], ids=lambda jobs: jobs["engines"])
def test_engines_for_many_jobs_give_the_same_tables(finished: Checkout, jobs, tmp_path):
    """Equal up to what batches do to float32: on this model and machine, every token and choice."""
    copy = Checkout.copied_to(tmp_path / "checkout")
    config = yaml.safe_load((finished.folder / "vllm.yaml").read_text()) | {"jobs": jobs}
    config["models"]["embedded"]["context"] = None
    (copy.folder / "vllm.yaml").write_text(yaml.safe_dump(config))
    copy.snakemake("continuations", config="vllm.yaml")
    starts = [path for path in (copy.folder / "logs").rglob("*.log") if "KV cache" in path.read_text()]
    assert len(starts) == (1 if jobs["engines"] == "service" else 3 * 2), "one server, or one engine for each stage and shard"
    for name, exact in TABLES.items():
        for arm in ("low", "high"):
            ours, theirs = (pl.read_parquet(one.folder / f"results/unit/{name}/embedded/chains/{arm}/r0.parquet") for one in (copy, finished))
            assert ours.select(exact).equals(theirs.select(exact)), (name, arm)
    time.sleep(5)
    assert not _servers(copy), "the server outlives the run"


TABLES = {
    "raw/traces": ["trace_id", "prompt_ids", "output_ids", "finish_reason"],
    "readouts": ["trace_id", "cut_id", "context", "context_arm", "choice", "correct"],
    "raw/continuations": ["trace_id", "cut_id", "context", "mode", "output_ids"],
}


def test_a_server_ends_with_a_run_that_is_killed(tmp_path):
    copy = Checkout.copied_to(tmp_path / "checkout")
    config = small_config(jobs={"engines": "service"})
    machine = {"memory_fraction": 0.1, "enforce_eager": True}
    config["models"]["embedded"] |= {"source": "resources/embedded", "engine": "vllm", "dtype": "float32", "machine": machine}
    (copy.folder / "vllm.yaml").write_text(yaml.safe_dump(config))
    run = subprocess.Popen(copy.command("traces", config="vllm.yaml"), cwd=copy.folder, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        end = time.monotonic() + 240
        while len(_servers(copy)) < 2:
            assert time.monotonic() < end and run.poll() is None
            time.sleep(0.5)
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    end = time.monotonic() + 60
    while _servers(copy) and time.monotonic() < end:
        time.sleep(0.5)
    assert not _servers(copy)


def test_a_served_study_reads_the_settings_of_its_server(server_engine, finished: Checkout):
    """The url is where the machine is told, so the same study can move to another server."""

    def serve(config):
        machine = {"url": server_engine.url, "served_model_name": MODEL.name}
        config["models"]["embedded"].update(source=str(MODEL), engine="server", machine=machine)
        config["study"] = "served"

    finished.edit_config(serve, "vllm.yaml")
    run = finished.snakemake("probe", config="vllm.yaml")
    assert run.code == 0
    readouts = finished.folder / "results/served/readouts/embedded/chains/high/r0.parquet"
    assert tables.read_metadata(readouts)["engine_version"].startswith("vllm 0.3")
    assert len(pl.read_parquet(readouts)) > 8
    moved = study_config.load(finished.folder / "vllm.yaml")
    assert "url" in moved["models"]["embedded"]["machine"]
    finished.edit_config(lambda config: config["models"]["embedded"]["machine"].update(url="http://127.0.0.1:1"), "vllm.yaml")
    assert not finished.dry_run("probe", config="vllm.yaml").jobs
