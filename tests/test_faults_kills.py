"""SIGKILL at random moments, of jobs and of whole runs: nothing finished is lost, nothing half-written is taken for a result.

One run has its jobs killed, each rule's in turn, and is killed as a whole now and then. What it ends with is what an undisturbed run ends with.
"""

import os
import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from helpers.checkout import FAULTS, Checkout

pytestmark = pytest.mark.faults

SEED = 20
WHOLE_RUNS = 7
OF_EACH_RULE = 4
AT_LEAST = 50
# Small batches: more moments between two writes of what was paid.
BATCHES = ("--set-resources", *(f"{rule}:batch=2" for rule in ("generate_traces", "probe_cuts", "continue_cuts", "interrupt_traces")))


def jobs_of(run: psutil.Process) -> list[tuple[psutil.Process, str]]:
    """Jobs that run now, each with its rule."""
    found = []
    with suppress(psutil.Error):
        for process in run.children(recursive=True):
            with suppress(psutil.Error):
                match = re.search(r"/\.snakemake/scripts/\w+\.(\w+)\.py", " ".join(process.cmdline()))
                if match:
                    found.append((process, match[1]))
    return found


def job_seen(run: subprocess.Popen) -> str | None:
    """Wait until a run has a job; its rule, or None where the run has come to its end."""
    deadline = time.monotonic() + 120
    while run.poll() is None:
        assert time.monotonic() < deadline
        if found := jobs_of(psutil.Process(run.pid)):
            return found[0][1]
        time.sleep(0.1)
    return None


class Hunter(threading.Thread):
    """Kills jobs of a run, each at a random moment of its life, until every rule has had its share.

    Attributes
    ----------
    quota
        Kills that are still to come, by rule.
    killed
        Kills that hit a living job, by rule.
    """

    def __init__(self, run: subprocess.Popen, quota: Counter[str], seconds: dict[str, float], moments: random.Random):
        super().__init__()
        self.run_, self.quota, self.seconds, self.moments = psutil.Process(run.pid), quota, seconds, moments
        self.killed: Counter[str] = Counter()

    def run(self) -> None:
        doomed: dict[int, float] = {}
        while self.run_.is_running() and self.run_.status() != psutil.STATUS_ZOMBIE:
            for job, rule in jobs_of(self.run_):
                # Early ones more often: a job whose requests are paid already is over sooner.
                moment = doomed.setdefault(job.pid, time.monotonic() + self.moments.random() ** 2 * self.seconds[rule])
                if self.quota[rule] > 0 and time.monotonic() >= moment:
                    with suppress(psutil.Error):
                        if job.status() != psutil.STATUS_ZOMBIE:
                            job.kill()
                            self.quota[rule] -= 1
                            self.killed[rule] += 1
                            doomed[job.pid] = float("inf")
            time.sleep(0.1)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout.copied_to(tmp_path / "checkout")


def hunted(checkout: Checkout, *arguments: str, quota: Counter[str], seconds: dict[str, float], moments: random.Random) -> Counter[str]:
    """Run to the end while jobs are killed; what was killed, by rule."""
    run = checkout.start(*arguments, "--retries", "9", "--keep-going", *BATCHES, config=FAULTS)
    hunter = Hunter(run, quota, seconds, moments)
    hunter.start()
    try:
        text, _ = run.communicate()
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
        hunter.join()
    assert run.returncode == 0, text
    return hunter.killed


def test_fifty_kills_at_random_moments_change_nothing(undisturbed: Checkout, seconds: dict[str, float], checkout: Checkout) -> None:
    moments = random.Random(SEED)
    killed: Counter[str] = Counter()
    paid: set[str] = set()
    runs = 0
    while runs < WHOLE_RUNS:
        run = checkout.start(*BATCHES, config=FAULTS)
        rule = job_seen(run)
        if rule is None:  # on a quick machine all is done before the last of them
            break
        # Within about one job's time: then a run gets few jobs further.
        time.sleep(moments.random() * seconds[rule])
        runs += run.poll() is None
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.communicate()
        kept = checkout.paid()
        assert len(kept) == len(set(kept)) and paid <= set(kept), "what was finished is lost, or was computed twice"
        paid = set(kept)
        checkout.snakemake("--unlock", config=FAULTS)

    quota = Counter(dict.fromkeys(seconds, OF_EACH_RULE))
    killed += hunted(checkout, quota=quota, seconds=seconds, moments=moments)
    for again in range(1, 6):  # jobs that were too quick: sooner, each time
        short = [rule for rule in seconds if not killed[rule]]
        if not short and runs + sum(killed.values()) >= AT_LEAST:
            break
        sooner = {rule: taken / 2**again for rule, taken in seconds.items()}
        killed += hunted(checkout, "--forcerun", *(short or seconds), quota=quota, seconds=sooner, moments=moments)
    print(f"killed: {runs} whole runs and, by rule, {dict(killed)}")
    assert runs >= 3
    assert set(killed) == set(seconds), "a rule was never hit"
    assert runs + sum(killed.values()) >= AT_LEAST

    assert "Nothing to be done" in checkout.snakemake(config=FAULTS).text
    assert checkout.made() == undisturbed.made()
    assert checkout.paid() == undisturbed.paid(), "a finished request was lost, or paid for twice"
    assert checkout.temporary() == []
    assert not [process for process in psutil.process_iter(["cmdline"]) if str(checkout.folder) in " ".join(process.info["cmdline"] or [])]


@pytest.mark.parametrize(("number", "group", "said"), [(signal.SIGINT, True, "Terminating"), (signal.SIGTERM, False, "Will exit after finishing")])
def test_a_run_that_is_asked_to_stop_leaves_no_lock(undisturbed: Checkout, checkout: Checkout, number: int, group: bool, said: str) -> None:
    target = "results/faults/raw/traces/embedded/chains/low/r0.parquet"
    run = checkout.start(target, "--set-resources", "generate_traces:batch=1", config=FAULTS)
    deadline = time.monotonic() + 120
    while not checkout.stored(target):
        assert time.monotonic() < deadline and run.poll() is None
        time.sleep(0.05)
    (os.killpg if group else os.kill)(run.pid, number)
    text, _ = run.communicate(timeout=120)
    assert said in text, text
    checkout.snakemake(target, config=FAULTS)
    name = target.removeprefix("results/")
    assert checkout.made()[name] == undisturbed.made()[name]
    paid = checkout.stored(target)
    assert sorted(paid) == sorted(undisturbed.stored(target))
