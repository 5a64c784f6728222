"""Item shards and engines for whole models: the same tables whatever the jobs were, and nothing that is paid for twice."""

import json
from collections import Counter
from pathlib import Path

import pytest
from helpers.builders import Study, walker
from helpers.checkout import Checkout
from hypothesis import given
from hypothesis import strategies as st

from midtrace import generation, shards, store
from midtrace.errors import InputError
from midtrace.shard import WHOLE, Shard
from midtrace.store import StoredEngine

CONFIG = "tests/configs/two_arms.yaml"
STAGES = ("continuations", "interruptions")
PAID = ("raw/traces", "readouts", "raw/continuations", "raw/interruptions")


@given(st.lists(st.integers(), min_size=1), st.data())
def test_shards_part_the_rows_and_keep_their_order(rows, data):
    count = data.draw(st.integers(1, len(rows)))
    parts = [Shard(index, count).of(list(enumerate(rows))) for index in range(count)]
    assert all(parts) and sorted(row for part in parts for row in part) == list(enumerate(rows))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert all(part == sorted(part) for part in parts)


def test_more_shards_than_rows_are_refused():
    with pytest.raises(InputError, match=r"jobs.shards: is 3, but there are only 2 items to share; allowed: at most 2"):
        Shard(0, 3).of(["a", "b"])
    assert WHOLE.of([]) == [] and str(WHOLE) == "" and str(Shard(1, 4)) == " (shard 2 of 4)"


class Counting:
    """Counts the requests that an engine gets."""

    def __init__(self, engine):
        self.engine, self.facts, self.asked = engine, engine.facts, 0

    def generate(self, requests, *rest):
        self.asked += len(requests)
        return self.engine.generate(requests, *rest)


def work(study: Study, folder: Path, engine: Counting, shard: Shard, monkeypatch) -> Path:
    """Have an engine do a shard of the traces of both arms."""
    monkeypatch.setattr("midtrace.engines.load", lambda *_: engine)
    jobs = [({"items": str(study.items)}, str(folder / f"{arm}.parquet"), study.settings("traces", arm)) for arm in ("low", "high")]
    receipt = folder / "receipts" / f"{shard.index}.json"
    shards.work("traces", jobs, {output: f"as asked of {output}" for _, output, _ in jobs}, receipt, shard, 2, 1, {})
    return receipt


def table(study: Study, folder: Path, receipts: list[Path]) -> bytes:
    settings, output = study.settings("traces", "low"), folder / "low.parquet"
    engine = store.engine_of(str(output), settings["model"], 1, {}, [str(path) for path in receipts])
    generation.run(study.items, output, "unit", settings, 3, engine)
    return output.read_bytes()


def test_a_table_of_shards_is_the_table_of_one_job(study: Study, tokenizer, tmp_path, monkeypatch):
    settings, alone = study.settings("traces", "low"), tmp_path / "alone" / "low.parquet"
    generation.run(study.items, alone, "unit", settings, 8, StoredEngine(alone, settings["model"], lambda *_: walker(tokenizer)))
    engine = Counting(walker(tokenizer))
    receipts = [work(study, tmp_path, engine, Shard(index, 3), monkeypatch) for index in range(3)]
    assert engine.asked == 2 * 8
    assert table(study, tmp_path, receipts) == alone.read_bytes()
    assert engine.asked == 2 * 8
    said = json.loads(receipts[1].read_text())
    assert (said["stage"], said["shard"], said["shards"], list(said["tables"])) == (
        "traces",
        1,
        3,
        [str(tmp_path / f"{arm}.parquet") for arm in ("low", "high")],
    )
    # Another number of shards finds all there.
    for index in range(5):
        work(study, tmp_path, engine, Shard(index, 5), monkeypatch)
    assert engine.asked == 2 * 8


def test_a_deleted_store_withdraws_the_receipts(study: Study, tokenizer, tmp_path, monkeypatch):
    receipts = [work(study, tmp_path, Counting(walker(tokenizer)), Shard(index, 2), monkeypatch) for index in range(2)]
    for path in next(tmp_path.glob(".low.parquet.*.store")).rglob("*.parquet"):
        path.unlink()
    with pytest.raises(InputError, match="3 that item shards had done are not there any more; allowed: run again"):
        table(study, tmp_path, receipts)
    assert not any(path.exists() for path in receipts)


# In Snakemake


def configured(checkout: Checkout, **jobs) -> None:
    checkout.edit_config(lambda config: config.update(jobs=jobs), CONFIG)


def paid(checkout: Checkout) -> dict[str, Counter]:
    """The requests that were paid for, by table: each with how often."""
    names = [name.split("/", 1)[1] for name in checkout.tables() if name.split("/", 1)[1].startswith(PAID)]
    return {name: Counter(checkout.stored(f"results/two_arms/{name}")) for name in names}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Checkout:
    """A checkout in which every job did all of its table."""
    checkout = Checkout.copied_to(tmp_path_factory.mktemp("whole") / "checkout")
    checkout.snakemake(*STAGES, config=CONFIG)
    return checkout


@pytest.fixture(scope="module")
def sharded(tmp_path_factory) -> Checkout:
    """A checkout in which two jobs and engines worked for all tables of the model."""
    checkout = Checkout.copied_to(tmp_path_factory.mktemp("sharded") / "checkout")
    configured(checkout, shards=2, engines="per_model")
    run = checkout.snakemake(*STAGES, config=CONFIG)
    assert {rule: n for rule, n in run.counts.items() if rule.endswith("_shard")} == {
        "traces_shard": 2, "probe_shard": 2, "continuations_shard": 2, "interruptions_shard": 2,
    }  # fmt: skip
    return checkout


@pytest.mark.slow
def test_jobs_decide_no_byte(whole: Checkout, sharded: Checkout):
    first, second = whole.tables(), sharded.tables()
    assert first.keys() == second.keys()
    for name in first:
        assert first[name].read_bytes() == second[name].read_bytes(), name
    assert paid(whole) == paid(sharded)
    assert all(n == 1 for requests in paid(sharded).values() for n in requests.values())
    logs = {path for path in (sharded.folder / "logs").rglob("*.log") if "Loading weights" in path.read_text()}
    assert {path.relative_to(sharded.folder / "logs/two_arms").parts[0] for path in logs} == {
        "traces_shard", "probe_shard", "continuations_shard", "interruptions_shard",
    }  # fmt: skip
    assert len(logs) == 4 * 2, "one engine for each stage and shard"


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [{}, {"shards": 3}, {"shards": 5, "engines": "per_model"}], ids=str)
def test_other_jobs_have_nothing_to_do(sharded: Checkout, tmp_path, jobs):
    copy = sharded.clone(tmp_path / "checkout")
    configured(copy, **jobs)
    assert "Nothing to be done" in copy.dry_run(*STAGES, config=CONFIG).text


@pytest.mark.slow
def test_growth_in_other_shards_pays_for_what_is_new(whole: Checkout, sharded: Checkout, tmp_path):
    copy = sharded.clone(tmp_path / "checkout")
    before = paid(copy)
    configured(copy, shards=3)
    copy.edit_config(lambda config: (config["benchmarks"]["chains"].update(n=9), config["arms"].update(medium={"effort": "medium"})), CONFIG)
    copy.edit_config(lambda config: config["comparisons"].append({"treatment": "medium", "reference": "high", "common": "high"}), CONFIG)
    run = copy.snakemake("traces", config=CONFIG)
    after = paid(copy)
    for arm, new in (("low", 2), ("high", 2), ("medium", 9)):
        name = f"raw/traces/embedded/chains/{arm}/r0.parquet"
        assert after[name].total() - before.get(name, Counter()).total() == new and max(after[name].values()) == 1
    assert run.counts["traces_shard"] == 3 * 3


@pytest.mark.slow
def test_an_arm_of_a_model_is_done_again_alone(sharded: Checkout, tmp_path):
    copy = sharded.clone(tmp_path / "checkout")
    copy.edit_config(lambda config: config["arms"]["low"].update(suffix="Be brief."), CONFIG)
    run = copy.dry_run("traces", config=CONFIG)
    assert run.counts == {"traces_shard": 2, "generate_traces": 1, "grade_traces": 1}
    assert {about for rule, about in run.jobs if rule == "generate_traces"} == {"embedded/chains/low/r0"}


@pytest.mark.slow
def test_shards_without_items_end_with_one_line(sharded: Checkout, tmp_path):
    copy = Checkout.copied_to(tmp_path / "checkout")
    configured(copy, shards=8)
    run = copy.snakemake("--dry-run", "traces", config=CONFIG, check=False)
    assert run.code and "Traceback" not in run.text
    assert run.errors == [f"midtrace: error: {CONFIG}: jobs.shards: is 8, but benchmark 'chains' has 7 items to share; allowed: at most 7"]
