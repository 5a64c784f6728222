"""A copy of the checkout in a temporary folder, and Snakemake run in it as a user would."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import yaml

ROOT = Path(__file__).parents[2]
COPIED = ("Snakefile", "rules", "scripts", "workflow", "config", "profiles", "envs", "resources", "tests/configs")
SMALL = "tests/configs/small.yaml"
FAULTS = "tests/configs/faults.yaml"
ENGINE_RULES = {"generate_traces", "probe_cuts", "continue_cuts", "interrupt_traces", "read_controls"}
ANALYSIS = {"tabulate_outcomes", "decompose", "write_claims", "draw_figures", "write_report"}
TARGET_RULES = {"all", "items", "traces", "replay", "probe", "continuations", "interruptions", "decomposition", "figures", "report", "plan"}


@dataclass(frozen=True)
class Run:
    """A finished run: exit code and what the terminal showed."""

    code: int
    text: str

    @property
    def jobs(self) -> set[tuple[str, str]]:
        """(rule, what it is about) of every job announced, target rules left out."""
        announced = re.findall(r"^Job \d+: (\w+) ?(.*)$", self.text, re.MULTILINE)
        jobs = {(rule, about) for rule, about in announced if rule not in TARGET_RULES}
        assert Counter(rule for rule, _ in jobs) == self.counts, self.text
        return jobs

    @property
    def counts(self) -> dict[str, int]:
        """Jobs by rule, target rules left out, from the table that Snakemake prints."""
        table = re.findall(r"^(\w+) +(\d+)$", self.text, re.MULTILINE)
        return {rule: int(n) for rule, n in table if rule not in TARGET_RULES | {"total"}}

    @property
    def rules(self) -> set[str]:
        """Rules of the jobs announced."""
        return {rule for rule, _ in self.jobs}

    @property
    def errors(self) -> list[str]:
        """Lines in which midtrace says what is wrong, each once: a job says it, and Snakemake shows the log of a job that failed."""
        return list(dict.fromkeys(line for line in self.text.splitlines() if line.startswith("midtrace: ") and "error: " in line))


class Checkout:
    """A folder that holds all that Snakemake needs of the checkout, and the results of runs in it."""

    def __init__(self, folder: Path):
        self.folder = folder

    @classmethod
    def copied_to(cls, folder: Path) -> "Checkout":
        """Copy the checkout that holds this test, without results."""
        for name in COPIED:
            source, target = ROOT / name, folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, target)
        return cls(folder)

    def clone(self, folder: Path) -> "Checkout":
        """Copy this folder, results and time stamps included."""
        shutil.copytree(self.folder, folder)
        return Checkout(folder)

    def command(self, *arguments: str, config: str | None = SMALL) -> list[str]:
        """The command line."""
        # The config last: --configfile would take a target that follows it for another config.
        return [str(Path(sys.executable).parent / "snakemake"), *arguments, *(["--configfile", config] if config else [])]

    def start(self, *arguments: str, config: str | None = SMALL, environment: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
        """Start Snakemake in a process group of its own; ``environment`` is added to that of the tests."""
        outer = {key: value for key, value in os.environ.items() if not key.startswith(("SNAKEMAKE_", "PYTEST_", "PYTHONPATH"))}
        return subprocess.Popen(
            self.command(*arguments, config=config),
            cwd=self.folder,
            env={**outer, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def snakemake(self, *arguments: str, config: str | None = SMALL, check: bool = True, environment: Mapping[str, str] | None = None) -> Run:
        """Run Snakemake to its end."""
        process = self.start(*arguments, config=config, environment=environment)
        try:
            text, _ = process.communicate()
        finally:
            if process.poll() is None:  # the test was interrupted: its run ends with it
                os.killpg(process.pid, signal.SIGKILL)
        assert not check or process.returncode == 0, text
        return Run(process.returncode, text)

    def dry_run(self, *arguments: str, config: str | None = SMALL) -> Run:
        """What Snakemake would do."""
        return self.snakemake("--dry-run", *arguments, config=config)

    def edit_config(self, edit: Callable[[dict[str, Any]], Any], path: str = SMALL) -> None:
        """Change a config file; its keys are written in the order of the mapping."""
        config = yaml.safe_load((self.folder / path).read_text())
        edit(config)
        (self.folder / path).write_text(yaml.safe_dump(config, sort_keys=False))

    def append(self, path: str, text: str) -> None:
        """Add lines to a source file."""
        with (self.folder / path).open("a") as handle:
            handle.write(text)

    def tables(self) -> dict[str, Path]:
        """Parquet files of all studies, by path below results/, without what engines keep."""
        results = self.folder / "results"
        found = {str(path.relative_to(results)): path for path in sorted(results.rglob("*.parquet"))}
        return {name: path for name, path in found.items() if "/." not in name}

    def made(self) -> dict[str, bytes]:
        """What a user gets: all files of all studies, without times of jobs, by path below results/."""
        results = self.folder / "results"
        found = {str(path.relative_to(results)): path for path in sorted(results.rglob("*")) if path.is_file()}
        return {name: path.read_bytes() for name, path in found.items() if "/." not in name and "/benchmarks/" not in name}

    def paid(self) -> list[str]:
        """Digests of all requests that engines have computed, as often as each was computed, behind the folder that keeps them."""
        results = self.folder / "results"
        files = [path for path in results.rglob("*.parquet") if ".store/" in str(path.relative_to(results))]
        kept = [(str(path.parent.relative_to(results)), pl.read_parquet(path, columns=["request"])["request"]) for path in files]
        return sorted(f"{folder}: {request}" for folder, requests in kept for request in requests)

    def temporary(self) -> list[str]:
        """Half-written files that lie about in results/."""
        results = self.folder / "results"
        names = [str(path.relative_to(results)) for path in results.rglob("*") if path.name != ".snakemake_timestamp"]
        return [name for name in names if name.endswith((".tmp", ".late")) or ("/." in name and ".store" not in name)]

    def stored(self, output: str) -> list[str]:
        """Digests of the requests that the engine has paid for on the way to an output, each as often as it was paid."""
        path = self.folder / output
        kept = sorted(path.parent.glob(f".{path.name}.*.store/*/*.parquet"))
        return [request for file in kept for request in pl.read_parquet(file, columns=["request"])["request"]]
