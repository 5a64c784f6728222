"""Full and read-only disks, damaged and foreign files, clocks that jump, two runs at once, files that come late: what the user is told, and that
what it ends with is what an undisturbed run ends with."""

import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import psutil
import pyarrow.parquet as pq
import pytest
from helpers.checkout import FAULTS, Checkout, Run

from midtrace import tables

pytestmark = pytest.mark.faults

LOW = "embedded/chains/low/r0.parquet"


@pytest.fixture
def copy(undisturbed: Checkout, tmp_path: Path) -> Checkout:
    """A copy of the finished study, to be spoilt."""
    return undisturbed.clone(tmp_path / "checkout")


def equal(checkout: Checkout, undisturbed: Checkout) -> None:
    """Assert that nothing was lost, paid for twice, or left over, and that every byte is that of the undisturbed run."""
    made, wanted = checkout.made(), undisturbed.made()
    assert made.keys() == wanted.keys()
    assert [name for name in wanted if made[name] != wanted[name]] == []
    assert checkout.paid() == undisturbed.paid()
    assert checkout.temporary() == []


def told(run: Run, *said: str) -> None:
    """Assert that a run failed, that midtrace's lines say this, and that they are all that was shown of Python."""
    assert run.code != 0 and run.errors, run.text
    for line in run.errors:
        assert line.startswith("midtrace: error: ") and any(text in line for text in said), line
    assert "Traceback" not in run.text, run.text


# Disks


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[Path, str], None]]:
    """Mount a small disk on a folder, or change one that is there: ``disk(folder, "size=64k")``."""
    mounted: list[Path] = []

    def mount(folder: Path, options: str) -> None:
        folder.mkdir(exist_ok=True)
        how = ["-o", f"remount,{options}"] if folder in mounted else ["-t", "tmpfs", "-o", options, "tmpfs"]
        done = subprocess.run(["mount", *how, str(folder)], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no small disk can be mounted here ({done.stderr.strip()}); root can, or unshare -Urm")
        mounted.append(folder)

    yield mount
    for folder in set(mounted):
        subprocess.run(["umount", str(folder)], check=True)


def stores_only(checkout: Checkout, folder: Path, but: str) -> None:
    """Copy what engines computed, but for one output, into an empty folder."""
    for path in (checkout.folder / "results").rglob(".*.store/*/*.parquet"):
        name = path.relative_to(checkout.folder / "results")
        if but not in str(name):
            (folder / name.parent).mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, folder / name)


def test_a_disk_that_fills_up_again_and_again(undisturbed: Checkout, disk: Callable[[Path, str], None], tmp_path: Path) -> None:
    checkout = Checkout.copied_to(tmp_path / "checkout")
    results = checkout.folder / "results"
    disk(results, "size=1m")
    stores_only(undisturbed, results, but="raw/traces/embedded/chains/low/")
    used = shutil.disk_usage(results).used
    failures = named = 0
    for room in (4, 60, 250, 600, 1500, 3000, 6000, 64000):
        disk(results, f"size={used + room * 1024}")
        run = checkout.snakemake(config=FAULTS, check=False)
        if run.code == 0:
            break
        if run.errors:
            named += 1
            told(run, "cannot be written (No space left on device); allowed: a disk with room", "No space left on device; allowed: a disk with room")
        else:  # the table went in, but not the record of the job's time that Snakemake writes after it
            assert "OSError: [Errno 28] No space left on device" in run.text and "Traceback" not in run.text, run.text
        failures += 1
    assert failures >= 4 and named >= 2
    equal(checkout, undisturbed)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (f"traces/{LOW}", "Write-protected output files"),  # Snakemake looks at all that would be made anew before it starts
        ("report.html", "midtrace: error: results/faults: folder: may not be written; allowed: a disk with room"),
    ],
)
def test_a_read_only_disk(copy: Checkout, undisturbed: Checkout, disk: Callable[[Path, str], None], path: str, said: str) -> None:
    results = copy.folder / "results"
    kept = results.rename(copy.folder / "kept")
    disk(results, "size=64m")
    shutil.copytree(kept, results, dirs_exist_ok=True)
    (results / "faults" / path).unlink()
    disk(results, "ro")
    run = copy.snakemake(config=FAULTS, check=False)
    assert run.code != 0 and said in run.text and "Traceback" not in run.text, run.text
    disk(results, "rw")
    copy.snakemake(f"results/faults/{path}", config=FAULTS)
    equal(copy, undisturbed)


# Damage


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    """Turn one bit of the rows, at the end of the longest column, where a reader without checksums sees nothing."""
    group = pq.read_metadata(path).row_group(0)
    column = max((group.column(k) for k in range(group.num_columns)), key=lambda column: column.total_compressed_size)
    start = column.dictionary_page_offset or column.data_page_offset
    content = bytearray(path.read_bytes())
    content[start + column.total_compressed_size - 1] ^= 1
    path.write_bytes(content)


def replace(path: Path) -> None:
    """Put the same rows there as another study would have them."""
    metadata = tables.read_metadata(path)
    metadata["identity"]["seed"] = 1234
    tables.write(pl.read_parquet(path), path, None, metadata)


DAMAGE: dict[str, Callable[[Path], None]] = {
    "items/chains.parquet": flip,
    f"raw/traces/{LOW}": flip,
    "raw/traces/embedded/chains/high/r0.parquet": replace,
    f"traces/{LOW}": cut,
    f"cuts/{LOW}": replace,
    f"readouts/{LOW}": flip,
    "readouts/embedded/chains/high/r0.parquet": empty,
    f"raw/continuations/{LOW}": replace,
    f"continuations/{LOW}": flip,
    "controls/embedded/chains.parquet": replace,
    "raw/interruptions/embedded/chains_update/low/r0/hard.parquet": flip,
    "interruptions/embedded/chains_update/low/r0/hard.parquet": empty,
    "outcomes.parquet": cut,
    "decomposition/policy.parquet": flip,
    "decomposition/lengths.parquet": replace,
    "decomposition/interruptions.parquet": flip,
}


def test_damaged_and_foreign_files_are_named_and_doing_what_is_said_repairs_them(copy: Checkout, undisturbed: Checkout) -> None:
    """Deletes the files that the messages name, and no other, until the run goes through."""
    results = copy.folder / "results/faults"
    later = time.time() + 2
    for path, harm in DAMAGE.items():
        harm(results / path)
        os.utime(results / path, (later, later))
    named: set[str] = set()
    for _ in range(len(DAMAGE)):
        run = copy.snakemake("--keep-going", config=FAULTS, check=False)
        if run.code == 0:
            break
        told(run, "delete a damaged one and run again", "delete it, or rerun its stage")
        blamed = {match[1] for line in run.errors if (match := re.match(r"midtrace: error: results/faults/([\w./]+\.parquet): ", line))}
        assert blamed and blamed <= set(DAMAGE) - named, run.errors
        named |= blamed
        for path in blamed:
            (results / path).unlink()
    equal(copy, undisturbed)
    assert named, "nothing was noticed"


def test_damage_to_what_the_engine_has_kept_is_computed_again(copy: Checkout, undisturbed: Checkout) -> None:
    harms = {
        f"raw/traces/{LOW}": cut,
        "raw/traces/embedded/chains/high/r0.parquet": empty,
        f"readouts/{LOW}": flip,
        f"raw/continuations/{LOW}": replace,
    }
    for name, harm in harms.items():
        target = copy.folder / "results/faults" / name
        (path,) = target.parent.glob(f".{target.name}.*.store/*/*.parquet")
        harm(path)
        target.unlink()
    copy.snakemake(*(f"results/faults/{name}" for name in harms), config=FAULTS)
    equal(copy, undisturbed)


# Clocks


def set_times(checkout: Checkout, hours: Callable[[], float]) -> None:
    """Date all results so many hours from now."""
    now = time.time()
    for path in (checkout.folder / "results").rglob("*"):
        moment = now + hours() * 3600
        os.utime(path, (moment, moment))


def test_clocks_that_jumped_cost_nothing(copy: Checkout, undisturbed: Checkout) -> None:
    jumps = random.Random(4)
    set_times(copy, lambda: jumps.choice([-9, -2, -0.1, 0, 0.1, 2, 9]))
    copy.snakemake(config=FAULTS)
    equal(copy, undisturbed)


@pytest.mark.parametrize("hours", [-30, 30])
def test_a_study_goes_on_after_a_jump(copy: Checkout, undisturbed: Checkout, hours: float) -> None:
    """What is there stems from a time when the clock stood elsewhere. From the future, Snakemake wants it dated anew."""
    set_times(copy, lambda: hours)
    for path in (f"cuts/{LOW}", f"readouts/{LOW}", "outcomes.parquet"):
        (copy.folder / "results/faults" / path).unlink()
    run = copy.snakemake("decomposition", config=FAULTS, check=False)
    if hours > 0:
        assert run.code != 0 and "has older modification time" in run.text, run.text
        set_times(copy, lambda: 0)
        run = copy.snakemake("decomposition", config=FAULTS)
    assert run.code == 0, run.text
    equal(copy, undisturbed)


# Two runs


def wait_for(found: Callable[[], object], process: subprocess.Popen) -> None:
    """Wait until something is there, while a run goes on."""
    deadline = time.monotonic() + 120
    while not found():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)


def test_a_second_run_in_the_same_folder_is_refused(undisturbed: Checkout, tmp_path: Path) -> None:
    checkout = Checkout.copied_to(tmp_path / "checkout")
    target = f"results/faults/raw/traces/{LOW}"
    first = checkout.start(target, "--set-resources", "generate_traces:batch=1", config=FAULTS)
    wait_for(lambda: psutil.Process(first.pid).children(), first)
    second = checkout.snakemake(target, config=FAULTS, check=False)
    text, _ = first.communicate()
    assert second.code != 0 and "Directory cannot be locked" in second.text, second.text
    assert first.returncode == 0, text
    assert checkout.made()[f"faults/raw/traces/{LOW}"] == undisturbed.made()[f"faults/raw/traces/{LOW}"]


def test_two_runs_that_are_forced_together_spoil_nothing(undisturbed: Checkout, tmp_path: Path) -> None:
    """One may stumble over files that the other is about to make anew. What both leave is whole, and the next run ends it."""
    checkout = Checkout.copied_to(tmp_path / "checkout")
    targets = [f"results/faults/{stage}/{LOW}" for stage in ("continuations", "traces")]
    runs = [checkout.start(*targets, "--nolock", config=FAULTS) for _ in range(2)]
    for run in runs:
        run.communicate()
    wanted = undisturbed.made()
    for name, content in checkout.made().items():
        assert content == wanted[name], name
    checkout.snakemake(*targets, config=FAULTS)
    made = checkout.made()
    assert all(target.removeprefix("results/") in made for target in targets)
    assert all(content == wanted[name] for name, content in made.items())
    assert set(checkout.paid()) <= set(undisturbed.paid()) and checkout.temporary() == []


# Files that come late

LATE = '''
"""Tables reach their place some seconds after the job that wrote them has ended, as on a network file system."""
import os, subprocess

def late(source, target, real=os.replace):
    if not str(target).endswith(".parquet") or ".store" in str(target):
        return real(source, target)
    hidden = f"{target}.late"
    real(source, hidden)
    subprocess.Popen(["sh", "-c", 'sleep "$0"; mv "$1" "$2"', os.environ["LATE"], hidden, str(target)], start_new_session=True)

os.replace = late
'''


def test_tables_that_come_late(copy: Checkout, undisturbed: Checkout, tmp_path: Path) -> None:
    (tmp_path / "late").mkdir()
    (tmp_path / "late/sitecustomize.py").write_text(LATE)
    results, target = copy.folder / "results/faults", f"results/faults/traces/{LOW}"
    for stage in ("raw/traces", "traces"):
        (results / stage / LOW).unlink()

    def run(*arguments: str, late: float, check: bool) -> Run:
        environment = {"PYTHONPATH": str(tmp_path / "late"), "LATE": str(late)}
        return copy.snakemake(target, *arguments, config=FAULTS, environment=environment, check=check)

    early = run("--latency-wait", "1", late=6, check=False)
    assert early.code != 0 and "--latency-wait" in early.text and str(results.relative_to(copy.folder) / "raw/traces" / LOW) in early.text
    time.sleep(6)  # it arrives when nobody waits any more
    run("--latency-wait", "30", late=3, check=True)
    copy.snakemake(config=FAULTS)
    equal(copy, undisturbed)
