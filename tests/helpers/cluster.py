"""A Slurm cluster of one node on this machine, for as long as a test session needs it. It touches no Slurm that is installed here."""

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.served import free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "sinfo", "scancel", "scontrol")
START = 60.0  # seconds
USER = "root" if os.getuid() == 0 else os.environ.get("USER", str(os.getuid()))
# Cores and memory are what the node claims to have, not what this machine has. GPUs are devices that are everywhere.
SLURM_CONF = """
ClusterName=midtrace
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/jobs.log
SchedulerParameters=batch_sched_delay=1
SlurmdParameters=config_overrides
MinJobAge=3600
KillWait=5
ReturnToService=2
MpiDefault=none
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=64000 Gres=gpu:3 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
GRES_CONF = "".join(f"Name=gpu File=/dev/{device}\n" for device in ("null", "zero", "full"))


@dataclass(frozen=True)
class Cluster:
    """A running cluster; its commands are first on PATH."""

    folder: Path

    def jobs(self) -> dict[str, dict[str, str]]:
        """Slurm's own log of finished jobs: fields by job id, as of the last time that each ran."""
        log = self.folder / "jobs.log"
        lines = log.read_text().splitlines() if log.exists() else []
        fields = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in lines]
        return {job["JobId"]: job for job in fields}

    def running(self) -> list[str]:
        """Ids of jobs that run or wait."""
        return output("squeue", "--noheader", "--format=%i").split()

    def wait_until_idle(self) -> None:
        """Cancel what is left of earlier runs and wait until it is gone."""
        if left := self.running():
            output("scancel", *left)
        _until(lambda: not self.running(), "jobs do not end", self.folder)


@contextmanager
def slurm_cluster() -> Iterator[Cluster]:
    """Start munge, the controller and a node, in a folder of their own; stop them, and jobs that are left, with the block."""
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
    missing = [program for program in PROGRAMS if not shutil.which(program, path=path)]
    if missing:
        pytest.fail(f"Slurm is not on this machine ({', '.join(missing)}): apt-get install slurm-wlm munge", pytrace=False)
    # Not below pytest's folders: the path of a socket is short.
    with tempfile.TemporaryDirectory(prefix="slurm", dir="/tmp", ignore_cleanup_errors=True) as name, ExitStack() as stack:
        folder, patch = Path(name), stack.enter_context(pytest.MonkeyPatch.context())
        for part in ("state", "spool", "bin"):
            (folder / part).mkdir()
        host = socket.gethostname().partition(".")[0]
        ports = {"controller_port": free_port(), "node_port": free_port()}
        conf = folder / "slurm.conf"
        conf.write_text(SLURM_CONF.format(host=host, folder=folder, user=USER, **ports))
        (folder / "gres.conf").write_text(GRES_CONF)
        # The executor takes every SLURM_ variable from the environment of its inner srun, SLURM_CONF with it.
        (folder / "bin/srun").write_text(f'#!/bin/sh\nSLURM_CONF={conf} exec {shutil.which("srun", path=path)} "$@"\n')
        (folder / "bin/srun").chmod(0o755)
        patch.setenv("PATH", f"{folder}/bin{os.pathsep}{path}")
        patch.setenv("SLURM_CONF", str(conf))
        cluster = Cluster(folder)
        munged = _start(stack, folder, *_munged(folder))
        _until((folder / "munge.socket").exists, "munge does not start", folder, munged)
        daemons = [_start(stack, folder, name, "-D", "-c", "-f", str(conf)) for name in ("slurmctld", "slurmd")]
        idle = ("sinfo", "--noheader", "--format=%T")
        _until(lambda: output(*idle, check=False).strip() == "idle", "the node does not come up", folder, *daemons)
        stack.callback(cluster.wait_until_idle)
        yield cluster


def _munged(folder: Path) -> list[str]:
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o600)
    files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid", "log-file": "munged.own.log", "seed-file": "munged.seed"}
    return ["munged", "--foreground", "--force", *(f"--{option}={folder / name}" for option, name in files.items())]


def _start(stack: ExitStack, folder: Path, *command: str) -> subprocess.Popen:
    """A daemon that ends with the stack."""
    with (folder / f"{command[0]}.out.log").open("w") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    stack.callback(_stop, process)
    return process


def _stop(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def output(*command: str, check: bool = True) -> str:
    """What a command of Slurm prints."""
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=check, timeout=60).stdout


def _until(done: Callable[[], bool], problem: str, folder: Path, *daemons: subprocess.Popen) -> None:
    end = time.monotonic() + START
    while not done():
        if time.monotonic() > end or any(daemon.poll() is not None for daemon in daemons):
            raise RuntimeError("\n".join([problem, *(f"{log}:\n{log.read_text()[-2000:]}" for log in sorted(folder.glob("*.log")))]))
        time.sleep(0.2)
