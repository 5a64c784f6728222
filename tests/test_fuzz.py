"""Mutated inputs are read right or refused in one line: a part of benchmarks/fuzz.py, which tries 2,000 of each."""

import sys
from pathlib import Path

import pytest
from helpers.builders import ROOT, small_config

from midtrace import config as study_config
from midtrace.errors import InputError

sys.path.append(str(ROOT / "benchmarks"))
import fuzz


@pytest.mark.parametrize("name", fuzz.INPUTS)
def test_mutated_inputs_leave_no_traceback(tmp_path: Path, name: str) -> None:
    found = fuzz.run(fuzz.INPUTS[name], 60, 1, tmp_path)
    assert found["tracebacks"] == {} and found["tried"] == 60
    assert found.get("read", 0) + found.get("refused", 0) == 60 and found["refused"] > 0


def test_what_is_no_refusal_is_found(tmp_path: Path) -> None:
    def read(path: Path) -> None:
        raise KeyError("lost")

    found = fuzz.run(fuzz.Input("any", ".txt", lambda folder: [b"text"], read), 3, 0, tmp_path)
    assert sum(found["tracebacks"].values()) == 3 and len(found["files"]) == 3


def test_mutations_are_the_same_for_a_seed(tmp_path: Path) -> None:
    seen: list[bytes] = []
    kind = fuzz.Input("any", ".jsonl", lambda folder: [b'{"a": [1, 2], "b": "c"}\n'], lambda path: seen.append(path.read_bytes()))
    for _ in range(2):
        fuzz.run(kind, 20, 0, tmp_path)
    assert seen[:20] == seen[20:] and len(set(seen)) > 10


def test_a_list_where_true_or_false_should_be_is_refused() -> None:
    with pytest.raises(InputError, match=r"inference\.strata: is \[\]; allowed: true or false"):
        study_config.validate(small_config(inference={"strata": []}), "study.yaml")
