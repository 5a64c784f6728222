"""The sandbox, attacked in earnest. Each attack must fail, end with a reason, and leave nothing behind."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from midtrace.errors import InputError
from midtrace.grading import harness, sandbox

LIMITS = sandbox.Limits(seconds=1, memory_mb=512, output_mb=4)


def _isolates() -> str | None:
    try:
        sandbox.check("bubblewrap")
    except InputError as error:
        return str(error)
    return None


needs_bubblewrap = pytest.mark.skipif(_isolates() is not None, reason=f"no sandbox: {_isolates()}")


def run(program: str, stdin: str = "", kind: str = "bubblewrap", **kwargs) -> sandbox.Run:
    return sandbox.run(textwrap.dedent(program), stdin, LIMITS, kind, **kwargs)


def ours() -> set[int]:
    """Sandboxes of this checkout that are alive, whoever their parent is. With its sandbox a program ends too."""
    alive = psutil.process_iter(["cmdline", "status"])
    return {p.pid for p in alive if p.info["status"] != psutil.STATUS_ZOMBIE and harness.__file__ in (p.info["cmdline"] or ())}


def runs_a_program(process: psutil.Process) -> bool:
    """Whether a process is the interpreter inside a sandbox, not what sets the sandbox up."""
    with contextlib.suppress(psutil.Error):
        command = process.cmdline()
        return "/harness.py" in command and os.path.basename(command[0]).startswith("python")
    return False


def settles(condition, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


# What a program is for


@pytest.fixture(params=[pytest.param("bubblewrap", marks=needs_bubblewrap), "none"])
def kind(request) -> str:
    return request.param


def test_a_program_reads_and_writes(kind):
    assert run("print(sum(map(int, input().split())))", "20 22\n", kind) == sandbox.Run("42\n", None)


def test_an_input_may_be_larger_than_the_output(kind):
    assert run("import sys; print(len(sys.stdin.read()))", "x" * 6 * 2**20, kind) == sandbox.Run(f"{6 * 2**20}\n", None)


def test_unicode_passes_whatever_the_locale(kind):
    assert run("print(input()[::-1], 'ü')", "é漢", kind) == sandbox.Run("漢é ü\n", None)


@pytest.mark.parametrize("opened", ["0", "'/dev/stdin'"])
def test_the_input_opens_by_number_and_by_name(kind, opened):
    if kind == "none" and opened != "0":
        pytest.skip("a file in memory has no name outside of the sandbox that is sure to open")
    assert run(f"print(len(open({opened}).read()))", "abc\n", kind) == sandbox.Run("4\n", None)


def test_a_function_is_called_and_its_prints_are_no_answer(kind):
    program = """
        class Solution:
            def pair(self, numbers: List[int], name: str) -> Optional[tuple]:
                print("debugging")
                return sum(numbers), name
    """
    assert run(program, '[1, 2]\n"x"\n', kind, function="pair") == sandbox.Run('[3, "x"]', None)
    assert run("def double(x):\n    return 2 * x", "21", kind, function="double") == sandbox.Run("42", None)


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("print(1 / 0)", "crashed: ZeroDivisionError"),
        ("print(", "crashed: SyntaxError"),
        ("x = bytearray(10**10)", "memory limit of 512 MiB"),
        ("while True: print('x' * 10_000)", "more than 4 MiB of output"),
        ("while True: pass", "time limit of 1 s"),
        ("raise SystemExit(3)", "crashed with exit status 3"),
        ("import os\nos.kill(os.getpid(), 9)", "killed"),
        ("import numpy", "crashed: ModuleNotFoundError"),
        ("class Odd(Exception): pass\nraise Odd('secret text of an item')", "crashed: Odd"),
        ("import sys\nsys.exit('a whole sentence with no type in it')", "crashed with exit status 1"),
    ],
)
def test_a_failure_has_a_reason_that_quotes_nothing(kind, program, problem):
    assert run(program, kind=kind).problem == problem


@pytest.mark.parametrize("program", ["exit()", "quit(0)", "import sys\nsys.exit()"])
def test_a_program_may_end_itself(kind, program):
    assert run(f"print(1)\n{program}\nprint(2)", kind=kind) == sandbox.Run("1\n", None)


def test_what_judges_import_is_there(kind):
    program = "print(gcd(12, 18), Counter('aab')['a'], pow(2, 10, 1000), bisect_left([1, 3], 2), list(accumulate([1, 2])))"
    assert run(program, kind=kind) == sandbox.Run("6 2 24 1 [1, 3]\n", None)


def test_deep_recursion_and_threads_work(kind):
    assert run("def down(n):\n    return 0 if n == 0 else down(n - 1) + 1\nprint(down(40_000))", kind=kind).stdout == "40000\n"
    program = "import threading\nthreading.stack_size(2**26)\nt = threading.Thread(target=lambda: print(7))\nt.start()\nt.join()"
    assert run(program, kind=kind) == sandbox.Run("7\n", None)


def test_hashes_are_the_same_in_every_run(kind):
    assert len({run("print({'a', 'b', 'c', 'd', 'e'})", kind=kind).stdout for _ in range(3)}) == 1


def test_sleeping_ends_too(monkeypatch, kind):
    monkeypatch.setattr(sandbox, "WALL_FACTOR", 0)
    monkeypatch.setattr(sandbox, "WALL_SECONDS", 1)
    started = time.monotonic()
    assert run("import time\ntime.sleep(60)", kind=kind).problem == "time limit of 1 s"
    assert time.monotonic() - started < 20


# Attacks


@pytest.mark.long
@needs_bubblewrap
class TestAttacks:
    def test_network(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            program = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 2)"
            assert run(program, kind="none").problem is None, "without a sandbox it is reached"
            assert run(program).problem == "crashed: ConnectionRefusedError"
        assert run("import socket\nprint([name for _, name in socket.if_nameindex()])").stdout == "['lo']\n"
        assert run("import socket\nsocket.create_connection(('192.0.2.1', 80), 2)").problem == "crashed: OSError"

    @pytest.mark.parametrize(
        "program",
        [
            "import os\nwhile True: os.fork()",
            "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
            "import subprocess\nwhile True: subprocess.Popen(['/bin/sh', '-c', ':(){ :|:& };:'])",
            "import multiprocessing\nwhile True: multiprocessing.Process(target=print).start()",
            "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()",
            "import ctypes\nc = ctypes.CDLL(None)\nfor n in (57, 58, 56, 435, 2**30 + 57): print(c.syscall(n, 17, 0, 0, 0, 0))\nwhile True: c.fork()",
        ],
        ids=["fork", "stubborn fork", "shell", "multiprocessing", "threads", "system calls"],
    )
    def test_fork_bomb(self, program):
        before, most = ours(), 0
        with subprocess.Popen([sys.executable, "-c", _RUNNER, program], env=_environment(), stdout=subprocess.PIPE, text=True) as process:
            while process.poll() is None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    most = max(most, len(psutil.Process(process.pid).children(recursive=True)))
                time.sleep(0.02)
            assert process.stdout.read().strip() not in ("", "None")
        assert most <= 4, "bwrap, its init and the program: nothing else ever ran"
        assert settles(lambda: ours() <= before)

    def test_memory_in_pieces_and_in_files(self):
        assert run("x = []\nwhile True: x.append(bytearray(2**20))").problem == "memory limit of 512 MiB"
        assert run("with open('/tmp/x', 'wb') as f:\n    while True: f.write(bytes(2**20))").problem == "crashed: OSError"
        many = "for i in range(100):\n    with open(f'/tmp/{i}', 'wb') as f: f.write(bytes(2**20))"
        assert run(many).problem == "crashed: OSError", "the scratch folder as a whole is limited"

    def test_a_loop_that_ignores_signals(self):
        program = "import signal\nfor s in set(signal.Signals) - {9, 19}: signal.signal(s, signal.SIG_IGN)\nwhile True: pass"
        assert run(program).problem == "time limit of 1 s"

    def test_output_on_standard_error(self):
        assert run("import sys\nwhile True: sys.stderr.write('x' * 10_000)").problem is not None

    def test_reading_the_home_folder(self):
        secret = Path.home() / ".midtrace-sandbox-test"
        secret.write_text("secret")
        try:
            assert run(f"print(open({str(secret)!r}).read())", kind="none").stdout == "secret\n", "without a sandbox it is read"
            found = run(f"import os\nprint(os.environ.get('HOME'), os.path.exists({str(secret)!r}))\nopen({str(secret)!r})")
            assert (found.stdout, found.problem) == ("/tmp False\n", "crashed: FileNotFoundError")
        finally:
            secret.unlink()

    def test_reading_this_checkout_the_environment_and_passwords(self, monkeypatch):
        monkeypatch.setenv("HF_TOKEN", "secret")
        program = f"import os\nprint('HF_TOKEN' in os.environ, *map(os.path.exists, ({__file__!r}, '/etc/passwd', '/etc/shadow', '/proc/1', '/var')))"
        assert run(program) == sandbox.Run("False False False False False False\n", None)

    @pytest.mark.parametrize(
        "place", ["/x", "/usr/x", "/etc/x", "/dev/x", "/program.py", "/harness.py", "/home/x", os.path.join(sys.base_prefix, "x")]
    )
    def test_writing_outside_the_scratch_folder(self, place):
        assert run(f"open({place!r}, 'w').write('x')").problem in ("crashed: OSError", "crashed: PermissionError", "crashed: FileNotFoundError")
        assert not Path(place).exists()
        assert run("open('/tmp/x', 'w').write('x')\nprint(open('/tmp/x').read())").stdout == "x\n"
        assert run("import os\nprint(os.listdir('/tmp'))").stdout == "[]\n", "each run has its own"

    def test_killing_the_parent(self):
        program = """
            import os, signal
            for pid in (os.getppid(), 1, -1):
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError as error:
                    print(error.errno)
            os.killpg(0, signal.SIGKILL)
        """
        assert run(program).problem is not None
        assert run("print('going on')") == sandbox.Run("going on\n", None)
        assert run(f"import os\nos.kill({os.getpid()}, 9)").problem == "crashed: ProcessLookupError"

    def test_descriptors_of_the_grader(self):
        program = "import os\nfor n in range(3, 64):\n    try: os.fstat(n); print(n)\n    except OSError: pass"
        assert len(run(program).stdout.split()) == 0

    def test_more_privileges(self):
        program = "import os\nprint(os.getuid(), os.geteuid())\nos.setuid(0)"
        assert run(program) == sandbox.Run("65534 65534\n", "crashed: OSError")
        assert run("import ctypes\nprint(ctypes.CDLL(None).unshare(0x10000000))").stdout == "-1\n", "no user namespace of its own"
        assert run("import ctypes\nprint(ctypes.CDLL(None).mount(b'x', b'/tmp', b'tmpfs', 0, None))").stdout == "-1\n"
        assert run("import resource\nresource.setrlimit(resource.RLIMIT_AS, (2**40, 2**40))").problem == "crashed: ValueError"

    def test_the_death_of_the_grader_ends_its_runs(self):
        before = ours()
        program = "while True: pass"
        limits = "seconds=600, memory_mb=512, output_mb=4"
        with subprocess.Popen(
            [sys.executable, "-c", _RUNNER.replace("seconds=1, memory_mb=512, output_mb=4", limits), program], env=_environment()
        ) as process:
            # Until the program runs. Killed while it sets a sandbox up, bubblewrap can leave a process that waits for ever, and no program.
            assert settles(lambda: any(runs_a_program(p) for p in psutil.Process(process.pid).children(recursive=True)))
            process.send_signal(signal.SIGKILL)
        assert settles(lambda: ours() <= before), "the runs outlived their grader"

    def test_two_hundred_programs_in_parallel_leave_nothing(self, tmp_path, monkeypatch):
        from concurrent.futures import ThreadPoolExecutor

        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr("tempfile.tempdir", None)
        assert run("pass").problem is None
        processes, descriptors = ours(), set(os.listdir("/proc/self/fd"))
        programs = ["print(input())", "import os\nos.fork()", "raise ValueError", "open('/tmp/x', 'w').write('x')\nprint(1)"]
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda k: run(programs[k % 4], str(k)), range(200)))
        assert [one.stdout for one in found[::4]] == [f"{k}\n" for k in range(0, 200, 4)]
        assert {one.problem for one in found[1::4]} == {"crashed: PermissionError"}
        assert {one.problem for one in found[2::4]} == {"crashed: ValueError"}
        assert all(one == sandbox.Run("1\n", None) for one in found[3::4])
        assert settles(lambda: ours() <= processes)
        assert set(os.listdir("/proc/self/fd")) == descriptors
        assert not list(tmp_path.iterdir())

    @pytest.mark.skipif(os.getuid() != 0, reason="changes its user, which only root can")
    def test_a_normal_user_is_isolated_too(self):
        python = "/usr/bin/python3"
        normal = {"user": 12345, "group": 12345, "extra_groups": []}
        able = f"import sys; sys.path.insert(0, {_environment()['PYTHONPATH']!r}); assert sys.version_info >= (3, 11); from midtrace import sandbox"
        if not Path(python).exists() or subprocess.run([python, "-c", able], **normal, cwd="/", stderr=subprocess.DEVNULL).returncode:
            pytest.skip(f"{python} is missing, older than 3.11, or a normal user may not read this checkout")
        program = f"import os\nprint(os.getuid(), os.path.exists({str(Path.home())!r}))\nos.fork()"
        done = subprocess.run(
            [python, "-c", _RUNNER.replace(".problem)", ")"), program], **normal, cwd="/", env=_environment(), capture_output=True, text=True
        )
        assert done.stdout == f"{sandbox.Run(f'65534 False{chr(10)}', 'crashed: PermissionError')}\n", done.stderr


_RUNNER = """
import sys
from midtrace.grading import sandbox
print(sandbox.run(sys.argv[1], "", sandbox.Limits(seconds=1, memory_mb=512, output_mb=4)).problem)
"""


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(sandbox.__file__).parents[1])}


# Machines that cannot


def test_without_bubblewrap_it_refuses_and_says_what_to_do(monkeypatch):
    sandbox.check.cache_clear()
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == "bwrap" else f"/usr/bin/{tool}")
    with pytest.raises(InputError, match=r"code\.sandbox.*bwrap is not installed.*bubblewrap.*sandbox: none"):
        sandbox.check("bubblewrap")
    sandbox.check("none")


def test_where_namespaces_are_forbidden_it_refuses_and_says_why(monkeypatch, tmp_path):
    sandbox.check.cache_clear()
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(
        InputError, match=r"does not work here: could not start a program \(bwrap: No permissions to create new namespace\).*user namespaces"
    ):
        sandbox.check("bubblewrap")


@needs_bubblewrap
def test_a_sandbox_that_fails_is_no_wrong_answer(monkeypatch, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: Creating new namespace failed: Resource temporarily unavailable' >&2\nexit 1\n")
    fake.chmod(0o755)
    assert run("import sys\nsys.exit('bwrap: Creating new namespace failed')").problem == "crashed: bwrap", "a program that pretends it is one"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(InputError, match=r"could not start a program \(bwrap: Creating new namespace failed"):
        run("print(1)")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_lets_threads_pass_and_processes_not(machine):
    """The program is run by a small interpreter written from the kernel's documentation of classic BPF."""
    audit, calls = {"x86_64": (0xC000003E, {"fork": 57, "vfork": 58, "clone": 56, "unshare": 272, "read": 0}),
                    "aarch64": (0xC00000B7, {"clone": 220, "unshare": 97, "read": 63})}[machine]  # fmt: skip
    refuse, allow, none, kill = 0x00050001, 0x7FFF0000, 0x00050026, 0x80000000

    def verdict(call: int, flags: int = 0, architecture: int = audit) -> int:
        import struct

        data = struct.pack("=IIQQ", call, architecture, 0, flags)
        lines = list(struct.iter_unpack("=HBBI", sandbox.seccomp_filter(machine)))
        at, value = 0, 0
        while True:
            code, yes, no, operand = lines[at]
            at += 1
            if code == 0x06:
                return operand
            if code == 0x20:
                value = int.from_bytes(data[operand : operand + 4], sys.byteorder)
            else:
                holds = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[code]
                at += yes if holds else no

    assert verdict(calls["read"]) == allow
    assert verdict(calls["clone"], 0x3D0F00) == allow, "the flags of a thread of glibc"
    assert verdict(calls["clone"], 17) == verdict(calls["clone"], 0x10000000) == verdict(calls["clone"], 0x4111) == refuse
    assert verdict(435) == none
    assert {verdict(number) for name, number in calls.items() if name not in ("read", "clone")} == {refuse}
    assert verdict(0x40000000 + calls["read"]) == refuse
    assert verdict(calls["read"], architecture=0x40000003) == kill


def test_an_unknown_machine_is_refused():
    with pytest.raises(InputError, match=r"'riscv64'.*x86_64, aarch64"):
        sandbox.seccomp_filter("riscv64")
