"""How fast is inference? Each thing beside its alternative in one run, as JSON lines.

``bootstrap``: all contributions of a paper-size study (8 comparisons x 12 horizons x 4 strata x 2 readouts, 698 items) in one call, against a
loop of scipy.stats.bootstrap over estimands. ``crossed``: crossed random intercepts against statsmodels MixedLM, with both estimates.
``decomposition``: all tables of 8 comparisons from 10^4 to 10^7 readout rows, each size in a process of its own, with its peak memory.
``nine_arms``: every bootstrap on the nine-arm design (8 comparisons, 500 items x 8 replicates, 10,000 resamples), beside another checkout
(``--against``), whose seconds alternate with ours.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from scipy import stats

from midtrace import decomposition, simulation
from midtrace.inference import bootstrap as bootstrap_module
from midtrace.inference import crossed_intercepts, item_bootstrap, nested_bootstrap, two_way_bootstrap
from midtrace.outcomes import outcomes

ITEMS, REPLICATES, RESAMPLES = 698, 3, 10_000
ESTIMANDS = 8 * 12 * 4 * 2
HORIZONS = [0, 32, 64, 96, 128, 160, 192, 256, 320, 384, 448, 512]
COMPARISONS = 8
READOUTS_PER_ITEM = 2 * REPLICATES * (2 * len(HORIZONS) + len(simulation.FRACTIONS) + 2)


def bootstrap(looped: int) -> Iterator[dict]:
    """Seconds of one call for all estimands, and of scipy for ``looped`` of them."""
    rng = np.random.default_rng(0)
    stratum = rng.integers(4, size=(ITEMS, REPLICATES, ESTIMANDS))
    differences = rng.integers(-1, 2, size=stratum.shape)
    values = np.where(stratum == np.arange(ESTIMANDS) % 4, differences, 0).mean(axis=1)
    found = {}
    for method in ("percentile", "bca"):
        for count in (looped, ESTIMANDS):
            bootstrap_module._weights.cache_clear()
            start = time.perf_counter()
            ours = item_bootstrap(values[:, :count], resamples=RESAMPLES, method=method)
            found[count] = time.perf_counter() - start
        start = time.perf_counter()
        for k in range(looped):
            theirs = stats.bootstrap((values[:, k],), np.mean, n_resamples=RESAMPLES, method=method, rng=np.random.default_rng(k))
        seconds = time.perf_counter() - start
        yield {
            "benchmark": "bootstrap",
            "method": method,
            "items": ITEMS,
            "resamples": RESAMPLES,
            "ours_s": {str(count): round(value, 3) for count, value in found.items()},
            "scipy_s": {str(looped): round(seconds, 3)},
            "times_faster": round(seconds / found[looped], 1),
            "times_faster_per_estimand_of_all": round((seconds / looped) / (found[ESTIMANDS] / ESTIMANDS), 1),
            # The last looped estimand by both, in standard errors: the Monte-Carlo error of a limit is about 0.03.
            "limits_differ_by_se": round(
                float(max(abs(ours.low[looped - 1] - theirs.confidence_interval.low), abs(ours.high[looped - 1] - theirs.confidence_interval.high)))
                / float(theirs.standard_error),
                3,
            ),
        }


def crossed(sizes: list[tuple[int, int, int]]) -> Iterator[dict]:
    """Seconds and estimates of both fits on items x replicates x arms rows, with a fixed effect of the arm."""
    import pandas as pd
    import statsmodels.formula.api as smf

    for items, replicates, arms in sizes:
        rng = np.random.default_rng(items)
        values = 0.5 + rng.normal(0, 0.4, (items, 1, 1)) + rng.normal(0, 0.1, (1, replicates, 1)) + rng.normal(0, 0.5, (items, replicates, arms))
        item, replicate, arm = (index.ravel() for index in np.indices(values.shape))
        y = values.ravel() + 0.1 * arm
        design = np.column_stack([np.ones(len(y)), arm]) if arms > 1 else None
        seconds = []
        for _ in range(5):
            start = time.perf_counter()
            fit = crossed_intercepts(y, item, replicate, design)
            seconds.append(time.perf_counter() - start)
        frame = pd.DataFrame({"y": y, "item": item.astype(str), "replicate": replicate.astype(str), "arm": arm, "group": 1})
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            formula = {"item": "0 + C(item)", "replicate": "0 + C(replicate)"}
            oracle = smf.mixedlm("y ~ arm" if arms > 1 else "y ~ 1", frame, groups="group", vc_formula=formula).fit(reml=True)
        theirs = time.perf_counter() - start
        yield {
            "benchmark": "crossed",
            "rows": f"{items} x {replicates} x {arms}",
            "ours_s": round(float(np.median(seconds)), 4),
            "statsmodels_s": round(theirs, 2),
            "times_faster": round(theirs / float(np.median(seconds)), 1),
            "largest_difference_of_effects": float(np.abs(fit.estimate - oracle.fe_params.to_numpy()).max()),
            "statsmodels_converged": bool(oracle.converged),
            "our_status": fit.status,
            "log_likelihood_ours_minus_theirs": float(fit.log_likelihood - oracle.llf),
        }


def nine_arms(resamples: int) -> Iterator[dict]:
    """Seconds per estimand of every bootstrap: contrasts and both-active contrasts at 12 horizons, one call per comparison."""
    items, replicates, comparisons, horizons = 500, 8, 8, 12
    rng = np.random.default_rng(9)
    values = rng.integers(-1, 2, size=(comparisons, items, replicates, 2 * horizons)).astype(float)
    inside = np.ones(values.shape)
    inside[..., horizons:] = rng.random(inside[..., horizons:].shape) < np.linspace(0.95, 0.05, horizons)
    values *= inside
    approaches = {
        "item, percentile": lambda k: item_bootstrap(values[k].mean(1), inside[k].mean(1), resamples=resamples),
        "item, BCa": lambda k: item_bootstrap(values[k].mean(1), inside[k].mean(1), resamples=resamples, method="bca"),
        "nested": lambda k: nested_bootstrap(values[k], inside[k], resamples=resamples),
        "two-way": lambda k: two_way_bootstrap(values[k], inside[k], resamples=resamples),
    }
    for name, approach in approaches.items():
        start, cpu = time.perf_counter(), time.process_time()
        for k in range(comparisons):
            approach(k)
        count = comparisons * 2 * horizons
        seconds = {"ms_per_estimand": time.perf_counter() - start, "cpu_ms_per_estimand": time.process_time() - cpu}
        yield {"benchmark": "nine_arms", "approach": name, "resamples": resamples, **{k: round(1000 * v / count, 2) for k, v in seconds.items()}}


def side_by_side(resamples: int, against: str | None, rounds: int = 2) -> Iterator[dict]:
    """:func:`nine_arms` of this checkout and, in turns with it, of the library in the folder ``against`` (the ``workflow`` of a checkout)."""
    for number in range(rounds if against else 1):
        for checkout, folder in (("this", None), ("against", against)):
            if checkout == "against" and not against:
                continue
            environment = {**os.environ, **({"PYTHONPATH": folder} if folder else {})}
            command = [sys.executable, __file__, "--alone", "--resamples", str(resamples)]
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            yield from ({**json.loads(line), "checkout": checkout, "round": number} for line in done.stdout.splitlines())


def write_study(folder: Path, rows: int) -> dict[str, list[str]]:
    """Files of a study of about ``rows`` readout rows: one per stage and comparison (here a benchmark each)."""
    items = max(round(rows / (COMPARISONS * READOUTS_PER_ITEM)), 2)
    files: dict[str, list[str]] = {}
    for number in range(COMPARISONS):
        frames = simulation.simulate(simulation.MIXED, items, REPLICATES, HORIZONS, number, benchmark=f"b{number}")
        frames["outcomes"] = outcomes(
            *(frames[name] for name in ("item_tables", "traces", "cuts", "readouts", "continuations")), HORIZONS, simulation.CONTEXTS
        )
        for name, frame in frames.items():
            path = folder / f"{name}-{number}.parquet"
            frame.write_parquet(path)
            files.setdefault(name, []).append(str(path))
    return files


def decompose(files: dict[str, list[str]], resamples: int, sensitivity: int) -> dict:
    """All tables from files, scanned; seconds, and the peak memory of this process."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    settings = simulation.settings(HORIZONS, resamples=resamples, sensitivity_resamples=sensitivity)
    settings["benchmarks"] = [f"b{number}" for number in range(COMPARISONS)]
    frames = {name: pl.scan_parquet(paths) for name, paths in files.items()}
    rows = frames["readouts"].select(pl.len()).collect().item()
    start = time.perf_counter()
    found = decomposition.decompose(frames, settings)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "benchmark": "decomposition",
        "readout_rows": rows,
        "items_per_comparison": len(pl.read_parquet(files["item_tables"][0])),
        "resamples": resamples,
        "sensitivity_resamples": sensitivity,
        "estimates": sum(map(len, found.values())),
        "seconds": round(seconds, 1),
        "rows_per_s": round(rows / seconds),
        "peak_mib": round(peak / 1024),
        "mib_after_imports": round(before / 1024),
    }


def scaling(sizes: list[int], resamples: int, sensitivity: int) -> Iterator[dict]:
    """Each size in a process of its own, so that its peak memory is its own."""
    for rows in sizes:
        with tempfile.TemporaryDirectory() as folder:
            script = f"import json, benchmark; print(json.dumps(benchmark.decompose(json.load(open('files.json')), {resamples}, {sensitivity})))"
            # Writing takes memory too: a process of its own again.
            write = f"import json, pathlib, benchmark; json.dump(benchmark.write_study(pathlib.Path('.'), {rows}), open('files.json', 'w'))"
            Path(folder, "benchmark.py").write_text(Path(__file__).read_text(encoding="utf-8"), encoding="utf-8")
            subprocess.run([sys.executable, "-c", write], cwd=folder, check=True)
            done = subprocess.run([sys.executable, "-c", script], cwd=folder, check=True, capture_output=True, text=True)
            yield json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["bootstrap", "crossed", "nine_arms", "decomposition"], help="one of the four")
    parser.add_argument("--against", help="the workflow folder of another checkout, for nine_arms")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--looped", type=int, default=ESTIMANDS, help="estimands that scipy is looped over")
    parser.add_argument("--crossed", type=int, nargs="+", default=[100, 250, 500], help="items of the crossed fits (x 3 replicates x 2 arms)")
    parser.add_argument("--rows", type=float, nargs="+", default=[1e4, 1e5, 1e6, 1e7], help="readout rows of the decompositions")
    parser.add_argument("--resamples", type=int, default=RESAMPLES)
    parser.add_argument("--sensitivity-resamples", type=int, default=2_000)
    chosen = parser.parse_args()
    parts = {
        "nine_arms": lambda: nine_arms(chosen.resamples) if chosen.alone else side_by_side(chosen.resamples, chosen.against),
        "bootstrap": lambda: bootstrap(chosen.looped),
        "crossed": lambda: crossed([(items, 3, 2) for items in chosen.crossed]),
        "decomposition": lambda: scaling([int(rows) for rows in chosen.rows], chosen.resamples, chosen.sensitivity_resamples),
    }
    for name, part in parts.items():
        if name == "nine_arms" if chosen.alone else chosen.only in (None, name):
            for line in part():
                print(json.dumps(line), flush=True)
