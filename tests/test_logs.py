"""Logs: what goes where, in processes of their own (file descriptors are theirs to lose)."""

import subprocess
import sys
import textwrap

import pytest
from helpers.builders import ROOT

PREAMBLE = """
import os, subprocess, sys
from midtrace import logs
from midtrace.errors import InputError
"""


@pytest.fixture
def job(tmp_path):
    """Run a body inside ``to_log`` in a new process; return it and the text of its log."""

    def run(body: str) -> tuple[subprocess.CompletedProcess[str], str]:
        script = PREAMBLE + f"with logs.to_log({str(tmp_path / 'deep' / 'job.log')!r}):\n" + textwrap.indent(textwrap.dedent(body), "    ")
        environment = {"PYTHONPATH": str(ROOT / "workflow"), "PATH": "/usr/bin:/bin"}
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
        return done, (tmp_path / "deep" / "job.log").read_text()

    return run


def test_all_output_goes_to_the_log_that_of_children_too(job):
    done, log = job(
        """
        print("from print")
        print("from stderr", file=sys.stderr)
        os.write(1, b"from the descriptor\\n")
        subprocess.run([sys.executable, "-c", "import sys; print('child out'); print('child err', file=sys.stderr)"])
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for line in ("from print", "from stderr", "from the descriptor", "child out", "child err"):
        assert line in log


def test_an_input_error_is_one_line(job):
    done, log = job("raise InputError('items.csv', 'id', \"'x' occurs twice\", 'each id once')")
    message = "midtrace: error: items.csv: id: 'x' occurs twice; allowed: each id once\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", message)
    assert log == message


def test_a_full_disk_is_one_line_whatever_was_being_written(job):
    done, log = job("with open('/dev/full', 'w') as page:\n    page.write('x')")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith("midtrace: error: a file: file: No space left on device; allowed: a disk with room")
    assert log == done.stderr


def test_a_full_disk_that_holds_the_log_too_is_still_told(job):
    body = "full = os.open('/dev/full', os.O_WRONLY)\nos.dup2(full, 1)\nos.dup2(full, 2)\nraise InputError('a', 'b', 'c')"
    done, _ = job(body)
    assert done.returncode and done.stderr == "midtrace: error: a: b: c\n"


def test_progress_goes_by_a_clock_that_nobody_sets(job):
    """Hours back and forth on the clock on the wall: every step is still told, at the speed that it had."""
    body = """
    import time
    jumps = iter([0, -7200, 7200] * 1000)
    real = time.time
    time.time = lambda: real() + next(jumps)
    logs.PROGRESS_SECONDS = 0.0
    progress = logs.Progress("traces", 4, "trace")
    for _ in range(4):
        time.sleep(0.05)
        progress.add(1)
    progress.close()
    """
    done, _ = job(body)
    lines = done.stderr.splitlines()
    assert done.returncode == 0 and "4/4" in lines[-1]
    assert all("00:0" in line and ":00:0" not in line and "-" not in line.split("[")[1] for line in lines)


def test_an_internal_error_has_its_traceback_in_the_log_only(job):
    done, log = job("print('before')\nraise KeyError('lost')")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("midtrace: internal error: KeyError: 'lost' (traceback in ")
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback (most recent call last)" in log
    assert "KeyError: 'lost'" in log
    assert "before" in log


def test_an_exit_code_of_the_job_is_kept(job):
    done, _ = job("sys.exit(3)")
    assert done.returncode == 3


def test_progress_is_lines_on_the_terminal_and_in_the_log(job):
    done, log = job(
        """
        logs.PROGRESS_SECONDS = 0
        bar = logs.Progress("traces m/b", 4, "trace", 1)
        bar.add(3)
        bar.close()
        """
    )
    for text in (done.stderr, log):
        assert "\r" not in text
        assert text.splitlines()[-1].startswith("traces m/b: 100%|")
        assert "4/4" in text.splitlines()[-1]
        assert "trace/s" in text


def test_an_old_log_is_replaced(job, tmp_path):
    job("print('first')")
    _, log = job("print('second')")
    assert log == "second\n"


@pytest.mark.parametrize(("seconds", "shown"), [(0, True), (60, False)])
def test_a_bar_inside_a_batch_is_silent_where_the_batch_is_quick(job, seconds, shown):
    done, log = job(
        f"""
        logs.PROGRESS_SECONDS = {seconds}
        with logs.bar(total=2, desc="requests", unit="request", dynamic_ncols=True) as bar:
            for _ in range(2):
                bar.update()
                bar.refresh()
        """
    )
    for text in (done.stderr, log):
        assert "\r" not in text
        assert ("requests: 100%|" in text) == shown
        assert bool(text.strip()) == shown
    assert done.returncode == 0
