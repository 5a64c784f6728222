"""The GPUs of the machine at hand: how many there are, and which of them are this process's own.

Snakemake counts GPUs but hands out none. So a job takes its own, by a lock on a file per device that all jobs of a user share, whichever run they
belong to. The lock ends with the process, however that ends.
"""

import atexit
import fcntl
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from midtrace.errors import InputError

VISIBLE = "CUDA_VISIBLE_DEVICES"
# Set in a job of a scheduler (Slurm, LSF, PBS, Grid Engine, HTCondor, Flux), which has handed out devices already and may number them anew in each
# of its jobs: what runs inside one job shares locks with nobody else.
SCHEDULERS = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "SGE_TASK_ID", "_CONDOR_SLOT", "FLUX_JOB_ID")
WAIT = 1.0  # seconds between two looks for free devices
_held: dict[str, int] = {}  # device -> descriptor of its locked file


def visible() -> list[str]:
    """Ids of the NVIDIA GPUs that this process may use: those of ``CUDA_VISIBLE_DEVICES``, or all; found without importing torch."""
    if VISIBLE not in os.environ:
        return [str(number) for number in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]
    found: list[str] = []
    for name in os.environ[VISIBLE].split(","):
        if not re.fullmatch(r"\d+|(GPU|MIG)-\S+", name.strip()):  # CUDA, too, ends its list here; -1 hides what follows
            break
        found.append(name.strip())
    return list(dict.fromkeys(found))


def gpus() -> int:
    """Number of GPUs that this process may use."""
    return len(visible())


def claim(n: int, wanted: Callable[[], bool] = lambda: True) -> list[str]:
    """Take ``n`` of the visible GPUs for this process alone, as long as it lives; wait until that many are free.

    ``CUDA_VISIBLE_DEVICES`` names them afterwards, here and in children: call this before CUDA is initialised. A process that has taken some keeps
    those. A child that is forked without a new program holds the locks too, as it may the devices.

    ``wanted`` is asked while it waits; the process ends when it says no.

    Returns
    -------
    list
        Ids of the devices; empty on a machine without any. In a job of a scheduler that was given ``n``, those, without a lock.

    Raises
    ------
    InputError
        If fewer than ``n`` are visible, or the folder of the locks is not the user's own.
    """
    pool = list(_held) or visible()
    if pool and n > len(pool):
        raise InputError("machine", VISIBLE, f"shows {len(pool)} GPU(s), and the model wants {n}", "at least models.*.machine.tensor_parallel_size")
    job = next((os.environ[name] for name in SCHEDULERS if name in os.environ), None)
    if _held or not pool or (job and n == len(pool)):
        return pool
    folder, waiting = _folder(job), False
    while not (taken := _take(folder, pool, n)):
        if not waiting:
            print(f"waiting for {n} of the GPUs {','.join(pool)}, which other jobs hold", flush=True)
        waiting = True
        if not wanted():
            sys.exit("the GPUs are not wanted any more")
        time.sleep(WAIT * random.uniform(0.5, 1.5))  # jobs that wait for several must not collide for ever
    _held.update(taken)
    os.environ[VISIBLE] = ",".join(taken)
    print(f"GPU {os.environ[VISIBLE]} taken at {_now()}", flush=True)
    atexit.register(_say_given_back, os.getpid())
    return list(taken)


def _say_given_back(process: int) -> None:
    if os.getpid() == process:  # not in a fork of it
        print(f"GPU {','.join(_held)} given back at {_now()}", flush=True)


def _folder(job: str | None) -> Path:
    """Where the lock files are: one folder per user and machine, or per user and job of a scheduler."""
    folder = Path(tempfile.gettempdir(), _plain(f"midtrace-gpus-{os.getuid()}" + (f"-{job}" if job else "")))
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise InputError(folder, "owner", "is another user, or the folder a link", "a TMPDIR where nobody else has made this folder")
    return folder


def _take(folder: Path, pool: list[str], n: int) -> dict[str, int]:
    """Locks on ``n`` devices, or on none: whoever kept a part while waiting could block another who does the same."""
    taken: dict[str, int] = {}
    for device in pool:
        descriptor = os.open(folder / _plain(device), os.O_RDWR | os.O_CREAT, 0o600)  # not inherited by programs that are started
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        taken[device] = descriptor
        if len(taken) == n:
            return taken
    for descriptor in taken.values():
        os.close(descriptor)
    return {}


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text)


def _now() -> str:
    return datetime.now().isoformat(sep=" ", timespec="milliseconds")
