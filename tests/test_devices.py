"""GPUs of one's own: who holds which, in processes of their own (a lock lives as long as its process)."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import combinations
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

import pytest
from helpers.builders import ROOT
from helpers.checkout import Checkout

from midtrace import devices
from midtrace.devices import claim  # the session's fixture replaces it in the module
from midtrace.errors import InputError

CLAIM = """
import os, sys
from midtrace import devices
print("has", *devices.claim({n}), os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen]]:
    """Start a process that claims ``n`` of the devices of ``visible`` and holds them until its input ends."""
    started = []

    def start(n: int, visible: str = "0,1", **environment: str) -> subprocess.Popen:
        inherited = {key: value for key, value in os.environ.items() if key not in devices.SCHEDULERS}
        given = {**inherited, "PYTHONPATH": str(ROOT / "workflow"), "TMPDIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": visible, **environment}
        command = [sys.executable, "-c", CLAIM.format(n=n)]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=given))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def has(process: subprocess.Popen) -> list[str]:
    """What a process says it was given, and its CUDA_VISIBLE_DEVICES; waits for it."""
    lines = iter(process.stdout.readline, "")
    return next(line for line in lines if line.startswith("has")).split()[1:]


@pytest.mark.parametrize(
    ("value", "expected"),
    [("0,1", ["0", "1"]), ("3", ["3"]), ("", []), ("-1", []), ("0,-1,2", ["0"]), ("GPU-8f2a, MIG-1c", ["GPU-8f2a", "MIG-1c"]), ("none", [])],
)
def test_the_visible_devices_are_those_that_cuda_would_see(monkeypatch, value, expected):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert devices.visible() == expected and devices.gpus() == len(expected)


def test_two_processes_have_different_devices_and_a_third_waits_for_one(start):
    first, second = start(1), start(1)
    held = [has(first), has(second)]
    assert sorted(held) == [["0", "0"], ["1", "1"]]
    third = start(1)
    assert third.stdout.readline() == "waiting for 1 of the GPUs 0,1, which other jobs hold\n"
    second.kill()  # SIGKILL: nothing is given back by hand
    second.wait()
    assert has(third) == held[1]


def test_several_devices_are_taken_together_or_not_at_all(start):
    one = start(1)
    assert has(one) == ["0", "0"]
    both = start(2)
    assert both.stdout.readline().startswith("waiting for 2 of the GPUs 0,1")
    other = start(1)
    assert has(other) == ["1", "1"], "who waits keeps nothing"
    for process in (one, other):
        process.kill()
        process.wait()
    assert has(both) == ["0", "1", "0,1"]


def test_many_at_once_never_share(start):
    said: Queue[tuple[str, subprocess.Popen]] = Queue()
    for _ in range(6):
        process = start(1, "0,1,2")
        Thread(target=lambda process=process: said.put((has(process)[0], process)), daemon=True).start()
    for _ in range(2):
        holding = [said.get(timeout=60) for _ in range(3)]
        assert sorted(device for device, _ in holding) == ["0", "1", "2"]
        with pytest.raises(Empty):
            said.get(timeout=2 * devices.WAIT)
        for _, process in holding:
            process.kill()
            process.wait()


def test_a_program_that_a_job_starts_keeps_no_device_after_it(start, tmp_path):
    child = "import subprocess, sys; subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)"
    code = f"from midtrace import devices; devices.claim(1); {child}"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow"), "TMPDIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": "0"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.DEVNULL)
    assert has(start(1, "0")) == ["0", "0"]


def test_a_scheduler_has_handed_out_devices_already(start):
    assert has(start(1, "0")) == ["0", "0"]
    assert has(start(1, "0", SLURM_JOB_ID="7")) == ["0", "0"], "device 0 of a job is not that of the machine"
    # Two jobs of a run inside one allocation of two devices.
    assert sorted(has(start(1, "0,1", SLURM_JOB_ID="8")) for _ in range(2)) == [["0", "0"], ["1", "1"]]


def test_a_machine_without_gpus_claims_nothing(start, tmp_path):
    assert has(start(1, "")) == [] and has(start(4, "-1")) == ["-1"]
    assert not list(tmp_path.iterdir())


def test_more_than_there_are_is_an_error(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(InputError, match=r"CUDA_VISIBLE_DEVICES: shows 2 GPU\(s\), and the model wants 4; allowed: at least .*tensor_parallel_size"):
        claim(4)


def test_a_folder_of_somebody_else_is_refused(monkeypatch, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"midtrace-gpus-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(devices.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(InputError, match="owner: is another user"):
        claim(1)
    assert not list((tmp_path / "elsewhere").iterdir())


# The workstation profile, with two GPUs that are not there

TRACES = "results/small/raw/traces/embedded"


@pytest.mark.slow
def test_a_workstation_runs_as_many_model_jobs_as_it_has_gpus_each_on_its_own(tmp_path, monkeypatch):
    checkout = Checkout.copied_to(tmp_path / "checkout")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    checkout.snakemake(*(f"{TRACES}/{shard}/r0.parquet" for shard in ("chains/low", "chains/high", "free/low", "free/high")), "--cores", "4")
    held = _held(checkout)
    assert len(held) == 4
    assert {device for device, _, _ in held} == {"0", "1"}
    together = [(one, other) for one, other in combinations(held, 2) if one[1] < other[2] and other[1] < one[2]]
    assert together, "no two model jobs ran at once"
    assert all(one[0] != other[0] for one, other in together), f"two jobs on one GPU: {together}"
    # There are cores for four; the third and fourth wait for a GPU in Snakemake, not in the job.
    assert not any("waiting for" in log.read_text() for log in checkout.folder.glob("logs/**/*.log"))


@pytest.mark.slow
def test_more_jobs_than_gpus_wait_for_one(tmp_path, monkeypatch):
    checkout = Checkout.copied_to(tmp_path / "checkout")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    checkout.snakemake(*(f"{TRACES}/free/{arm}/r0.parquet" for arm in ("low", "high")), "--cores", "2", "--resources", "gpu=2")
    (first, second) = sorted(_held(checkout), key=lambda held: held[1])
    assert first[0] == second[0] == "5" and first[2] <= second[1]
    assert sum("waiting for 1 of the GPUs 5" in log.read_text() for log in checkout.folder.glob("logs/**/*.log")) == 1


def _held(checkout: Checkout) -> list[tuple[str, datetime, datetime]]:
    """Device of every model job, and when the job held it, as its log says."""
    found = []
    for log in checkout.folder.glob("logs/small/generate_traces/**/*.log"):
        said = re.findall(r"^GPU (\S+) (?:taken|given back) at (.+)$", log.read_text(), re.MULTILINE)
        (device, start), (same, end) = said
        assert device == same
        found.append((device, datetime.fromisoformat(start), datetime.fromisoformat(end)))
    return found
