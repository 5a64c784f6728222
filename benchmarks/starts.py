"""What sharing an engine saves: one small study in vLLM, each way in turn (``jobs.engines``), as JSON lines. Needs ``make setup-vllm``.

Seconds of a run up to the continuations, how often a model was loaded, and whether the tables are those of the first way: rows, and what was
sampled, chosen and continued.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl
import yaml

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("Snakefile", "rules", "scripts", "workflow", "config", "profiles", "envs", "resources")
WAYS = ("per_job", "per_model", "service")
COLUMNS = {"raw/traces": ["trace_id", "output_ids"], "readouts": ["trace_id", "cut_id", "choice"], "raw/continuations": ["trace_id", "output_ids"]}


def study(engines: str, replicates: int) -> dict[str, Any]:
    """Two arms of the demo in vLLM."""
    config = yaml.safe_load((ROOT / "config/studies/demo_vllm.yaml").read_text(encoding="utf-8"))
    config["benchmarks"] = {"chains": {**config["benchmarks"]["chains"], "n": 32}}
    config["comparisons"] = config["comparisons"][:1]
    config["controls"], config["planted"] = {"items": 0, "horizons": [16, 64]}, None
    config.pop("interruptions", None)
    config.pop("run", None)
    return {**config, "study": "starts", "replicates": replicates, "jobs": {"engines": engines}}


def run(folder: Path, engines: str, replicates: int) -> float:
    """Seconds of a run in a fresh copy of the checkout."""
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, folder / name)
    (folder / "study.yaml").write_text(yaml.safe_dump(study(engines, replicates), sort_keys=False))
    start = time.perf_counter()
    command = [sys.executable, "-m", "snakemake", "continuations", "--configfile", "study.yaml"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(done.stdout)
    return time.perf_counter() - start


def tables(folder: Path) -> dict[str, pl.DataFrame]:
    """What the engine has sampled, chosen and continued."""
    results = folder / "results/starts"
    return {
        str(path.relative_to(results)): pl.read_parquet(path, columns=columns)
        for stage, columns in COLUMNS.items()
        for path in sorted((results / stage).rglob("r[0-9]*.parquet"))
        if "/." not in str(path.relative_to(results))
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=2)
    arguments = parser.parse_args()
    first: dict[str, pl.DataFrame] = {}
    for way in WAYS:
        with tempfile.TemporaryDirectory() as scratch:
            checkout = Path(scratch)
            seconds = run(checkout, way, arguments.replicates)
            found = tables(checkout)
            loaded = sum("KV cache" in path.read_text(encoding="utf-8") for path in (checkout / "logs").rglob("*.log"))
            first = first or found
            same = found.keys() == first.keys() and all(found[name].equals(first[name]) for name in found)
            print(json.dumps({"engines": way, "s": round(seconds), "loaded": loaded, "tables": len(found), "same_tables": same}), flush=True)
