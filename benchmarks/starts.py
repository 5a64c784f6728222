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


def study(engines: str, replicates: int, model: dict[str, Any]) -> dict[str, Any]:
    """Two arms of the demo in vLLM, of the embedded model or of what ``model`` puts in its place."""
    config = yaml.safe_load((ROOT / "config/studies/demo_vllm.yaml").read_text(encoding="utf-8"))
    config["models"]["embedded"] |= model
    config["benchmarks"] = {"chains": {**config["benchmarks"]["chains"], "n": 32}}
    config["comparisons"] = config["comparisons"][-1:]  # arms that any dialect has
    config["horizons"], config["availability"] = [0, 16, 32, 48], {"horizons": [0, 16, 32]}
    config["controls"], config["planted"] = {"items": 0, "horizons": [16, 64]}, None
    config.pop("interruptions", None)
    config.pop("run", None)
    return {**config, "study": "starts", "replicates": replicates, "jobs": {"engines": engines}}


def run(folder: Path, engines: str, replicates: int, model: dict[str, Any]) -> float:
    """Seconds of a run in a fresh copy of the checkout."""
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, folder / name)
    (folder / "study.yaml").write_text(yaml.safe_dump(study(engines, replicates, model), sort_keys=False), encoding="utf-8")
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
    parser.add_argument("--model", type=Path, help="a model folder in place of the embedded model")
    parser.add_argument("--dialect", default="smollm2", help="its dialect")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--max-tokens", type=int, default=48)
    arguments = parser.parse_args()
    model: dict[str, Any] = {}
    if arguments.model:
        model = {"source": str(arguments.model.resolve()), "dialect": arguments.dialect, "dtype": arguments.dtype, "max_tokens": arguments.max_tokens}
    first: dict[str, pl.DataFrame] = {}
    for way in WAYS:
        with tempfile.TemporaryDirectory() as scratch:
            checkout = Path(scratch)
            seconds = run(checkout, way, arguments.replicates, model)
            found = tables(checkout)
            loaded = sum("KV cache" in path.read_text(encoding="utf-8") for path in (checkout / "logs").rglob("*.log"))
            first = first or found
            same = found.keys() == first.keys() and all(found[name].equals(first[name]) for name in found)
            print(json.dumps({"engines": way, "s": round(seconds), "loaded": loaded, "tables": len(found), "same_tables": same}), flush=True)
