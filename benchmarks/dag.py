"""How long Snakemake takes to know what there is to do, as JSON lines: the biggest study (nine arms, eight replicates, two benchmarks, three
models), by how its jobs are cut. ``build``: nothing is there and a dry run counts all jobs. ``nothing``: all is there, and a run finds that.

Seconds by the clock and of CPU, and the largest memory. Files are empty and stand in a temporary folder: only names and times count here.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
CUTS = [{}, {"shards": 2}, {"shards": 4}, {"shards": 4, "engines": "per_model"}]


def study(jobs: dict[str, Any]) -> dict[str, Any]:
    """The nine-arm study, three times as many models and twice as many benchmarks; the model and the items stand for larger ones."""
    config = yaml.safe_load((ROOT / "config/studies/nine_arms_qwen3.yaml").read_text(encoding="utf-8"))
    (model,) = config["models"].values()
    model |= {"source": str(ROOT / "resources/embedded"), "revision": None, "dialect": "embedded", "engine": "transformers", "dtype": "float32"}
    model |= {"max_tokens": 128, "machine": {}}
    config["models"] = {f"model_{number}": model for number in range(3)}
    config["benchmarks"] = {f"items_{number}": {"loader": "chains", "answer_kind": "choice", "n": 500} for number in range(2)}
    return {**config, "study": "biggest", "jobs": jobs}


def snakemake(folder: Path, *arguments: str) -> tuple[str, dict[str, float]]:
    """What a run in a folder says, and what it took."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder)]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen(
        [*command, *arguments, "--configfile", str(folder / "study.yaml")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(said)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return said, {"s": round(time.perf_counter() - start, 1), "cpu_s": round(cpu, 1), "mb": round(usage.ru_maxrss / 1e3)}


def measure(jobs: dict[str, Any]) -> dict[str, Any]:
    """One way to cut the jobs."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "study.yaml").write_text(yaml.safe_dump(study(jobs), sort_keys=False))
        said, build = snakemake(folder, "--dry-run", "--quiet", "rules")
        total = int(re.findall(r"^total +(\d+)$", said, re.MULTILINE)[0])
        summary, _ = snakemake(folder, "--summary")
        files = [line.split("\t")[0] for line in summary.splitlines() if line.startswith("results/")]
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
        snakemake(folder, "--touch", "--cores", "1")  # as if they had been made: Snakemake's own record of each
        said, nothing = snakemake(folder)
        assert "Nothing to be done" in said, said
        return {"jobs": jobs, "total": total, "files": len(files), "build": build, "nothing": nothing}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    for cut in CUTS:
        print(json.dumps(measure(cut)), flush=True)
