"""Stored results: nothing is paid for twice, nothing is taken for what it is not, and what is broken is computed again."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midtrace import store
from midtrace.engines import GREEDY, GenerateRequest, Generation, Sampling, ScoreRequest
from midtrace.engines.fake import FakeEngine
from midtrace.store import StoredEngine

MODEL = {"name": "m", "source": "s", "revision": None, "weights": "w", "dtype": "float64", "engine": "transformers", "context": None}
SAMPLING = Sampling(temperature=1.0)
REQUESTS = [GenerateRequest((k, k + 1), 5, seed=k) for k in range(7)]
SCORES = [ScoreRequest([k, 3, 5, 7, 9], [1, 3, 5], [2, 4]) for k in range(4)]
CANDIDATES = [1, 8, 30]


class Counting(FakeEngine):
    """Counts what it computes, and dies in its ``dies``-th call."""

    def __init__(self, dies: int = 99, version: str = "1"):
        super().__init__()
        self.generated, self.scored, self.calls, self.dies = 0, 0, 0, dies
        self.facts = {**self.facts, "engine_version": version}

    def _call(self):
        self.calls += 1
        if self.calls == self.dies:
            raise KeyboardInterrupt

    def generate(self, requests, *rest):
        self._call()
        self.generated += len(requests)
        return super().generate(requests, *rest)

    def score(self, requests, candidates):
        self._call()
        self.scored += sum(len(request.cuts) for request in requests)
        return super().score(requests, candidates)


def stored(tmp_path, computes, **model) -> StoredEngine:
    return StoredEngine(tmp_path / "out.parquet", {**MODEL, **model}, lambda folder, missing: computes)


def scores(engine, requests=SCORES, candidates=CANDIDATES) -> list:
    return [array.tolist() for array in engine.score(requests, candidates)]


def test_results_are_the_engines_own(tmp_path):
    for _ in ("computed", "found"):
        engine = stored(tmp_path, Counting())
        assert engine.generate(REQUESTS, SAMPLING, [3]) == FakeEngine().generate(REQUESTS, SAMPLING, [3])
        assert scores(engine) == scores(FakeEngine())
        assert [array.shape for array in engine.score(SCORES, CANDIDATES)] == [(3, 3)] * 4


def test_nothing_is_computed_twice(tmp_path):
    first, second = Counting(), Counting()
    one = stored(tmp_path, first)
    one.generate(REQUESTS[:4], SAMPLING, [])
    one.generate(REQUESTS[2:], SAMPLING, [])
    assert first.generated == 7
    other = stored(tmp_path, second)
    other.generate(REQUESTS[::-1], SAMPLING, [])
    assert second.generated == 0
    one.score(SCORES[:2], CANDIDATES)
    more = [ScoreRequest(request.trunk, [1, 2, 3, 5], request.suffix) for request in SCORES[:3]]
    assert scores(stored(tmp_path, second), more) == scores(FakeEngine(), more)
    assert second.scored == 2 * 1 + 4, "one new cut of two traces, and a new trace"


def test_the_same_request_twice_in_one_call_is_computed_once(tmp_path):
    engine = Counting()
    assert len(stored(tmp_path, engine).generate([REQUESTS[0]] * 3, SAMPLING, [])) == 3
    assert engine.generated == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda engine: engine.generate([GenerateRequest((0, 1), 5, seed=1)], SAMPLING, [3]),
        lambda engine: engine.generate([GenerateRequest((0, 1), 6, seed=0)], SAMPLING, [3]),
        lambda engine: engine.generate([GenerateRequest((0, 1, 2), 5, seed=0)], SAMPLING, [3]),
        lambda engine: engine.generate(REQUESTS[:1], GREEDY, [3]),
        lambda engine: engine.generate(REQUESTS[:1], SAMPLING, [3, 4]),
        lambda engine: engine.score([ScoreRequest([0, 3, 5, 7, 9], [2], [2, 4])], CANDIDATES),
        lambda engine: engine.score([ScoreRequest([0, 3, 5, 7, 9], [1], [2, 5])], CANDIDATES),
        lambda engine: engine.score([ScoreRequest([1, 3, 5, 7, 9], [4], [2, 4])], CANDIDATES),
        lambda engine: engine.score(SCORES[:1], [1, 8, 31]),
    ],
)
def test_whatever_decides_a_result_tells_requests_apart(tmp_path, change):
    before, after = Counting(), Counting()
    engine = stored(tmp_path, before)
    engine.generate(REQUESTS, SAMPLING, [3])
    engine.score(SCORES, CANDIDATES)
    change(stored(tmp_path, after))
    assert after.generated + after.scored > 0


@pytest.mark.parametrize(("key", "value"), [("weights", "x"), ("dtype", "float32"), ("revision", "r"), ("engine", "vllm"), ("context", 64)])
def test_another_model_finds_nothing(tmp_path, key, value):
    stored(tmp_path, Counting()).generate(REQUESTS, SAMPLING, [])
    other = Counting()
    engine = stored(tmp_path, other, **{key: value})
    engine.generate(REQUESTS, SAMPLING, [])
    assert other.generated == 7
    assert len(list(tmp_path.iterdir())) == 2, "the first model's results are still there"


@pytest.mark.parametrize(("key", "value"), [("name", "n"), ("dialect", "qwen3"), ("max_tokens", 9)])
def test_what_does_not_decide_a_result_changes_nothing(tmp_path, key, value):
    stored(tmp_path, Counting()).generate(REQUESTS, SAMPLING, [])
    other = Counting()
    stored(tmp_path, other, **{key: value}).generate(REQUESTS, SAMPLING, [])
    assert other.generated == 0


def test_other_code_of_the_engine_finds_nothing(tmp_path, monkeypatch):
    stored(tmp_path, Counting()).generate(REQUESTS, SAMPLING, [])
    monkeypatch.setattr(store.codedigest, "digest", lambda *_: "edited")
    other = Counting()
    stored(tmp_path, other).generate(REQUESTS, SAMPLING, [])
    assert other.generated == 7


def test_a_killed_job_loses_the_call_that_was_running(tmp_path):
    engine = stored(tmp_path, Counting(dies=3))
    with pytest.raises(KeyboardInterrupt):
        for k in range(7):
            engine.generate(REQUESTS[k : k + 1], SAMPLING, [])
    rest = Counting()
    assert stored(tmp_path, rest).generate(REQUESTS, SAMPLING, []) == FakeEngine().generate(REQUESTS, SAMPLING, [])
    assert rest.generated == 5


@pytest.mark.parametrize("harm", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"x" * len(data)])
def test_a_broken_file_is_computed_again_and_no_other(tmp_path, harm):
    engine = stored(tmp_path, Counting())
    for k in range(3):
        engine.generate(REQUESTS[2 * k : 2 * k + 2], SAMPLING, [])
    path = sorted(engine.folder.rglob("*.parquet"))[1]
    path.write_bytes(harm(path.read_bytes()))
    (path.parent / ".half.tmp").write_bytes(b"half")
    rest = Counting()
    assert stored(tmp_path, rest).generate(REQUESTS[:6], SAMPLING, []) == FakeEngine().generate(REQUESTS[:6], SAMPLING, [])
    assert rest.generated == 2


def test_no_model_is_loaded_where_nothing_is_missing(tmp_path, monkeypatch):
    engine = StoredEngine(tmp_path / "out.parquet", MODEL, lambda *_: pytest.fail("a model was loaded"))
    assert engine.generate([GenerateRequest((1,), 0)], SAMPLING, []) == [Generation([], "length")]
    assert engine.generate([], SAMPLING, []) == engine.score([], CANDIDATES) == []
    assert engine.facts == {"engine": "transformers"}
    stored(tmp_path, Counting()).generate(REQUESTS, SAMPLING, [])
    again = stored(tmp_path, None)
    again.generate(REQUESTS, SAMPLING, [])
    assert again.facts == FakeEngine().facts


def test_facts_tell_when_versions_are_mixed(tmp_path):
    stored(tmp_path, Counting(version="1")).generate(REQUESTS[:3], SAMPLING, [])
    engine = stored(tmp_path, Counting(version="2"))
    engine.generate(REQUESTS, SAMPLING, [])
    assert engine.facts["engine_version"] == "1; 2"


def test_infinite_log_probabilities_survive(tmp_path):
    engine = FakeEngine(logits=lambda prefix: np.where(np.arange(64) == 8, -np.inf, 0.0))
    for one in (engine, None):
        (array, *_) = stored(tmp_path, one).score(SCORES[:1], CANDIDATES)
        assert array[0].tolist() == [-np.log(63), -np.inf, -np.log(63)] or np.allclose(array[0][[0, 2]], -np.log(63))
        assert array[0][1] == -np.inf


@given(st.lists(st.lists(st.integers(0, 6), max_size=8), min_size=1, max_size=5))
def test_any_split_into_calls_gives_the_same(tmp_path_factory, calls):
    engine = stored(tmp_path_factory.mktemp("split"), Counting())
    found = [one for call in calls for one in engine.generate([REQUESTS[k] for k in call], SAMPLING, [])]
    assert found == FakeEngine().generate([REQUESTS[k] for call in calls for k in call], SAMPLING, [])


# What studies that were begun with an earlier midtrace have paid for


def test_requests_and_folders_are_named_as_they_always_were(tmp_path, monkeypatch):
    """Digests as commit febd33d made them: other ones would have every study that was begun before pay for all of its requests again."""
    monkeypatch.setattr("midtrace.codedigest.digest", lambda *_: "0123456789abcdef")
    engine = stored(tmp_path, Counting())
    assert engine.folder.name == ".out.parquet.f40264d795d8.store"
    engine.generate(REQUESTS[:1], Sampling(temperature=0.6, top_p=0.95, top_k=20, min_p=0.0), [3, 1])
    engine.generate(REQUESTS[1:2], GREEDY, [])
    engine.score(SCORES[:1], CANDIDATES)
    names = {path.parent.name + ":" + name for path in engine.folder.rglob("*.parquet") for name in pl.read_parquet(path)["request"]}
    assert names == {
        "generations:a0787b192f9a23f28f3c34d0c576691f",
        "generations:50e0f543d8a65683f89f30872ca1cb82",
        "scores:1be44788a0527e335baac449bb78b5d1",
        "scores:c486449076eacc1adad568439c82d32c",
        "scores:2029ead126540eddb40eb9993a0c4776",
    }
