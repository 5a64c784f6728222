"""Shared fixtures: the embedded model, real vocabularies where they are present, and one small study whose scripts ran in process."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from helpers.builders import MODEL, SHARED, Study, small_config
from helpers.checkout import FAULTS, Checkout
from hypothesis import settings

from midtrace import config as study_config

settings.register_profile("midtrace", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("midtrace")


# Tests that start other programs, fill disks or kill: they run where -m names their mark, and never because it says something else.
ON_REQUEST = ("faults", "vllm", "slurm", "importing")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    named = set(re.findall(r"\w+", config.getoption("markexpr")))
    unwanted = [item for item in items if any(item.get_closest_marker(mark) for mark in ON_REQUEST if mark not in named)]
    if unwanted:
        config.hook.pytest_deselected(items=unwanted)
        left_out = set(unwanted)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session", autouse=True)
def no_gpu_is_held() -> Iterator[None]:
    """Models of the test session itself lie beside those of jobs that it starts and waits for: it must not hold a GPU that they want."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("midtrace.devices.claim", lambda n: [])
        yield


@pytest.fixture(scope="session")
def tokenizer():
    """The tokenizer of the embedded model."""
    from midtrace.vocabulary import load_tokenizer

    return load_tokenizer({"name": "embedded", "source": str(MODEL)})


@pytest.fixture(scope="session")
def engine():
    """The embedded model in float64."""
    from midtrace.engines import load

    return load({"engine": "transformers", "source": str(MODEL), "dtype": "float64"}, threads=1)


@pytest.fixture(scope="session")
def vllm_engine():
    """The embedded model in vLLM, in float32; it starts once."""
    from midtrace.engines import load

    return load({"engine": "vllm", "source": str(MODEL), "dtype": "float32"}, threads=1, machine={"memory_fraction": 0.1, "enforce_eager": True})


@pytest.fixture(scope="session")
def server_engine(tmp_path_factory):
    """The embedded model served by vLLM, in float32; the server starts once and is stopped."""
    from helpers.served import vllm_server

    from midtrace.engines import load

    with vllm_server(MODEL, tmp_path_factory.mktemp("server") / "server.log") as url:
        yield load({"engine": "server", "source": str(MODEL), "dtype": "float32"}, machine={"url": url, "served_model_name": MODEL.name})


@pytest.fixture(scope="session", params=["qwen3", "gptoss"])
def real_tokenizer(request):
    """The vocabulary of a real model."""
    return _real(request.param)


@pytest.fixture(scope="session")
def qwen3():
    """Qwen3's vocabulary and chat template."""
    return _real("qwen3")


@pytest.fixture(scope="session")
def vocabulary():
    """A function from a name (``embedded``, ``qwen3``, ``gptoss``) to its real tokenizer, loaded once."""

    @cache
    def load(name: str):
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(MODEL) if name == "embedded" else _real(name)

    return load


def _real(name: str):
    folder = SHARED / "tokenizers" / name
    if not folder.is_dir():
        pytest.skip(f"the {name} vocabulary is not on this machine (shared/tokenizers/{name})")
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="session")
def study(tmp_path_factory) -> Study:
    """A small study on the embedded model, from items to decomposition, by the scripts' own ``main`` functions."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "small.yaml").write_text(yaml.safe_dump(small_config()))
    found = Study(folder, study_config.load(folder / "small.yaml"))
    found.run()
    return found


@pytest.fixture
def repository(monkeypatch) -> Iterator[Path]:
    """Run in the root of the repository, against which relative paths of a config count."""
    root = Path(__file__).resolve().parents[1]
    monkeypatch.chdir(root)
    yield root


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout in which the small study has run to its end."""
    checkout = Checkout.copied_to(tmp_path_factory.mktemp("finished") / "checkout")
    checkout.snakemake()
    return checkout


@pytest.fixture
def copy(finished: Checkout, tmp_path: Path) -> Checkout:
    """A copy of the finished checkout that a test may spoil."""
    return finished.clone(tmp_path / "checkout")


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout without results, for dry runs."""
    return Checkout.copied_to(tmp_path_factory.mktemp("fresh") / "checkout")


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout in which the study of the fault tests has run to its end, and nothing happened to it."""
    checkout = Checkout.copied_to(tmp_path_factory.mktemp("undisturbed") / "checkout")
    checkout.snakemake(config=FAULTS)
    return checkout


@pytest.fixture(scope="session")
def seconds(undisturbed: Checkout) -> dict[str, float]:
    """How long the shortest job of each rule took in the undisturbed run."""
    records = [json.loads(path.read_text()) for path in (undisturbed.folder / ".snakemake/metadata").iterdir()]
    took: dict[str, float] = {}
    for record in records:
        seconds = record["endtime"] - record["starttime"]
        took[record["rule"]] = min(seconds, took.get(record["rule"], seconds))
    return took
