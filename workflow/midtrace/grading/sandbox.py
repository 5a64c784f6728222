"""Running programs that a model wrote. They are untrusted: bubblewrap, ``prlimit`` and a seccomp filter keep them in (docs/code.md).

A run sees an empty file system with the Python interpreter and a scratch folder in memory; no network, no home, no other process, a clean
environment. It cannot start a process: the filter refuses, which also ends every fork bomb before it begins. Nothing of a run is left on
disk, since program, input and output are files in memory. When the process that started it dies, so does the run.
"""

import os
import platform
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from midtrace.errors import InputError
from midtrace.grading import harness

KINDS = ("bubblewrap", "none")
MEBIBYTE = 2**20
NOBODY = "65534"
SCRATCH = "/tmp"
# A run may sleep or wait for a busy machine so many times longer than it may compute.
WALL_FACTOR, WALL_SECONDS = 3, 5
TAIL = 4096  # bytes of the errors that are looked at


@dataclass(frozen=True)
class Limits:
    """What one run of a program may use.

    Attributes
    ----------
    seconds
        CPU seconds, all threads together. On the clock a run may take three times as long plus five seconds.
    total_seconds
        Seconds on the clock for all tests of a program.
    memory_mb
        MiB of address space.
    output_mb
        MiB of the output, and of the scratch folder.
    """

    seconds: int = 6
    total_seconds: int = 300
    memory_mb: int = 2048
    output_mb: int = 16


@dataclass(frozen=True)
class Run:
    """How a run ended: ``problem`` is None, or what stopped it in a few words that quote nothing."""

    stdout: str
    problem: str | None


# The filter. Numbers of system calls from the kernel's tables; a clone with CLONE_THREAD makes a thread, any other a process.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _REFUSE, _NO_SUCH_CALL = 0x7FFF0000, 0x80000000, 0x00050000 | 1, 0x00050000 | 38  # EPERM, ENOSYS
_CLONE_THREAD, _CLONE3, _X32 = 0x10000, 435, 0x40000000


class _Machine(NamedTuple):
    audit: int
    clone: int
    refused: tuple[int, ...]


_MACHINES = {
    "x86_64": _Machine(0xC000003E, 56, (57, 58, 272)),  # fork, vfork, unshare
    "aarch64": _Machine(0xC00000B7, 220, (97,)),  # unshare
}


def seccomp_filter(machine: str | None = None) -> bytes:
    """A BPF program that lets a process make threads but no process and no namespace.

    ``clone3`` hides its flags from a filter, so it is answered with "no such call": the C library then takes ``clone``.

    Parameters
    ----------
    machine
        ``x86_64`` or ``aarch64``; by default this one.

    Raises
    ------
    InputError
        For another machine.
    """
    machine = machine or platform.machine()
    if machine not in _MACHINES:
        raise InputError("config", "code.sandbox", f"cannot be bubblewrap on {machine!r}: no filter for it", [*_MACHINES, "sandbox: none"])
    known = _MACHINES[machine]
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, 4),  # the architecture
        (_EQUAL, 1, 0, known.audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),  # the call
    ]
    for call in known.refused:
        code += [(_EQUAL, 0, 1, call), (_RETURN, 0, 0, _REFUSE)]
    code += [
        (_AT_LEAST, 0, 1, _X32),  # the same calls under other numbers
        (_RETURN, 0, 0, _REFUSE),
        (_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _NO_SUCH_CALL),
        (_EQUAL, 0, 3, known.clone),
        (_LOAD, 0, 0, 16),  # its flags
        (_ANY_BIT, 1, 0, _CLONE_THREAD),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in code)


@contextmanager
def _in_memory(content: bytes = b"") -> Iterator[int]:
    """A file in memory, at its beginning."""
    descriptor = os.memfd_create("midtrace")
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _limited(limits: Limits, given: int) -> list[str]:
    """``given``: bytes of what the run gets, which bubblewrap writes under the same limit."""
    return [
        "setpriv", "--pdeathsig", "KILL",  # from its first moment; bwrap asks for the same later
        "prlimit", "--core=0", "--nofile=64", f"--cpu={limits.seconds}:{limits.seconds + 1}", f"--as={limits.memory_mb * MEBIBYTE}",
        f"--fsize={max(limits.output_mb * MEBIBYTE, given)}", "--",
    ]  # fmt: skip


def _system() -> Iterator[str]:
    """What of this machine a run sees, read-only: the system's libraries and the interpreter."""
    yield from ("--ro-bind", "/usr", "/usr")
    for name in ("/lib", "/lib32", "/lib64", "/bin"):
        path = Path(name)
        if path.is_symlink():
            yield from ("--symlink", os.readlink(path), name)
        elif path.is_dir():
            yield from ("--ro-bind", name, name)
    yield from ("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache")
    if not Path(sys.base_prefix).is_relative_to("/usr"):
        yield from ("--ro-bind", sys.base_prefix, sys.base_prefix)


def _isolated(limits: Limits, program: int, stdin: int, rules: int, status: int, *, grader: int | None = None) -> list[str]:
    return [
        "bwrap", "--unshare-all", "--unshare-user", "--uid", NOBODY, "--gid", NOBODY, "--cap-drop", "ALL",
        "--die-with-parent", "--new-session", "--seccomp", str(rules), "--json-status-fd", str(status),
        "--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--setenv", "HOME", SCRATCH, "--setenv", "PYTHONHASHSEED", "0",
        *(["--setenv", harness.GRADER, str(grader)] if grader is not None else []),
        *_system(),
        "--dev-bind", "/dev/null", "/dev/null",
        "--ro-bind-data", str(stdin), "/dev/stdin",  # a popular way to open it; there is no /proc that it could lead to
        "--ro-bind", harness.__file__, "/harness.py",
        "--ro-bind-data", str(program), "/program.py",
        "--size", str(limits.output_mb * MEBIBYTE), "--tmpfs", SCRATCH, "--chdir", SCRATCH,
        "--remount-ro", "/",
    ]  # fmt: skip


def _interpreter() -> str:
    """The Python that this process runs on, outside of its virtual environment."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = Path(sys.base_prefix) / "bin" / version
    return str(found if found.exists() else Path(sys.executable).resolve())


def _python(harness_path: str, program_path: str, function: str | None) -> list[str]:
    """The standard library only (-S, -s, -P), no byte code (-B). Not -I: it would ignore PYTHONHASHSEED, and sets would change their order."""
    return [_interpreter(), "-S", "-s", "-P", "-B", "-X", "utf8", harness_path, program_path, *([function] if function else [])]


def run(program: str, stdin: str, limits: Limits, kind: str = "bubblewrap", function: str | None = None) -> Run:
    """Run a Python program once.

    Parameters
    ----------
    program
        Its source.
    stdin
        What it reads; for a function, its arguments as JSON, one a line.
    limits
        What it may use.
    kind
        ``bubblewrap``, or ``none``: the limits alone, for programs that are trusted.
    function
        A function of the program, or a method of its class ``Solution``, to call instead of running the program as a script. The output is
        then its value as JSON.

    Returns
    -------
    Run
        The output and what stopped the run, if anything did. Nothing is raised for what a program does.

    Raises
    ------
    InputError
        If bubblewrap cannot start a program: that is no wrong answer.
    """
    source, given = program.encode("utf-8", "surrogatepass"), stdin.encode("utf-8", "surrogatepass")
    with ExitStack() as stack:

        def file(content: bytes = b"") -> int:
            return stack.enter_context(_in_memory(content))

        output, errors, passed, grader_end = file(), file(), [], []
        if kind == "bubblewrap":
            passed = [file(source), file(given), file(seccomp_filter()), file()]
            # Were the grader dead before anything asked to die with it, the harness finds this pipe closed.
            grader, held = os.pipe()
            stack.callback(os.close, grader)
            stack.callback(os.close, held)
            grader_end = [grader]
            folder, inner = None, [*_isolated(limits, *passed, grader=grader), "--", *_python("/harness.py", "/program.py", function)]
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="midtrace-"))
            path = Path(folder) / "program.py"
            path.write_bytes(source)
            inner = ["env", "-i", "PYTHONHASHSEED=0", f"HOME={folder}", *_python(harness.__file__, str(path), function)]
        started, late = time.monotonic(), False
        process = subprocess.Popen(
            [*_limited(limits, max(len(source), len(given))), *inner],
            stdin=file(given),
            stdout=output,
            stderr=errors,
            pass_fds=[*passed, *grader_end],
            cwd=folder,
            start_new_session=True,
        )
        try:
            code = process.wait(WALL_FACTOR * limits.seconds + WALL_SECONDS)
        except subprocess.TimeoutExpired:
            code, late = -signal.SIGXCPU, True
        finally:
            # The end of the first process ends its namespace; without one, whatever it left behind is in its process group.
            if kind == "none" or process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        seconds = time.monotonic() - started
        text, tail = _content(output, limits.output_mb * MEBIBYTE), _content(errors, TAIL, tail=True).decode("utf-8", "replace")
        # bwrap reports the exit of a program that it started: without a report it is the machine that failed, not the program.
        if passed and not late and b'"exit-code"' not in _content(passed[-1], TAIL):
            problem = f"could not start a program ({' '.join(tail.split()[-30:])})"
            raise InputError("sandbox", "bwrap", problem, "a machine with memory and processes to spare")
        return Run(text.decode("utf-8", "replace"), _problem(code, len(text), tail, limits, seconds))


def _content(descriptor: int, size: int, tail: bool = False) -> bytes:
    length = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, max(0, length - size) if tail else 0)


def _problem(code: int, written: int, errors: str, limits: Limits, seconds: float) -> str | None:
    if written >= limits.output_mb * MEBIBYTE:
        return f"more than {limits.output_mb} MiB of output"
    ended = -code if code < 0 else code - 128
    if ended in (signal.SIGXCPU, signal.SIGKILL):
        return f"time limit of {limits.seconds} s" if ended == signal.SIGXCPU or seconds >= limits.seconds else "killed"
    if code == 0:
        return None
    lines = [line for line in errors.split("\n") if line.strip()]
    kind = re.match(r"[A-Za-z_][A-Za-z0-9_.]{0,60}(?=:|$)", lines[-1]) if lines else None
    if kind and kind[0] == "MemoryError":
        return f"memory limit of {limits.memory_mb} MiB"
    return f"crashed: {kind[0]}" if kind else f"crashed with exit status {code}"


@cache
def check(kind: str) -> None:
    """Refuse to grade code on a machine that cannot isolate it; once a process.

    Raises
    ------
    InputError
        If bubblewrap or ``prlimit`` is missing, or bubblewrap may not make namespaces here. The message says what to do.
    """
    needed = ("setpriv", "prlimit", "bwrap") if kind == "bubblewrap" else ("setpriv", "prlimit")
    remedy = "Debian's packages bubblewrap and util-linux, or code.sandbox: none if the programs can be trusted"
    for tool in needed:
        if shutil.which(tool) is None:
            raise InputError("config", "code.sandbox", f"is {kind}, but {tool} is not installed here", remedy)
    if kind == "bubblewrap":
        seccomp_filter()  # refuses a machine that it does not know
        try:
            problem = run("", "", Limits()).problem
        except InputError as error:
            problem = error.problem
        if problem:
            remedy = "a machine that permits unprivileged user namespaces (in a container: its runtime must), or code.sandbox: none"
            raise InputError("config", "code.sandbox", f"is bubblewrap, which does not work here: {problem}", remedy)
