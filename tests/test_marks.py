"""What runs without being named: nothing that starts Slurm or vLLM, fills disks or kills."""

import subprocess
import sys

import pytest
from helpers.checkout import ROOT

FILES = ("tests/test_faults.py", "tests/test_slurm.py", "tests/test_vllm.py", "tests/test_importing_real.py")


pytestmark = pytest.mark.long


@pytest.mark.parametrize("expression", ["not slow"])
def test_marks_that_are_not_named_stay_out(expression):
    asked = ["-m", expression]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *asked, *FILES], cwd=ROOT, capture_output=True, text=True
    )
    assert "::" not in done.stdout, done.stdout
    assert done.returncode == 5, "no test is left"


def test_marks_that_are_named_run():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", "-m", "slurm", *FILES], cwd=ROOT, capture_output=True, text=True
    )
    assert "test_slurm.py::" in done.stdout and "test_faults.py::" not in done.stdout
