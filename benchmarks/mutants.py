"""Mutants: small faults put into the library one at a time, and the test that finds each. One line per mutant as JSON; exit status 1 if one survives.

``python benchmarks/mutants.py [--jobs 1] [--table docs/mutants.md] [WORD ...]`` runs the mutants whose file holds one of the words (default: all).
A mutant is made in a copy of the checkout in a temporary folder, and only the test files that should find it are run, up to the first failure.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = "workflow/midtrace"
COPIED = ("workflow", "scripts", "tests", "config", "resources", "benchmarks", "rules", "Snakefile", "pyproject.toml", "profiles", "envs", "docs")
LIMIT = 180  # seconds: a mutant may loop for ever

ORACLE = ("test_oracle.py",)
ESTIMANDS = ("test_estimands.py", *ORACLE)
AGREEMENT = ("test_estimands_agreement.py", *ORACLE)
SCORES = ("test_estimands_scores.py", *ORACLE)
SURVIVAL = ("test_survival.py",)
BOOTSTRAP = ("test_inference_bootstrap.py", "test_inference.py")
TESTS = ("test_inference_hypotheses.py",)
ESTIMATES = ("test_inference_estimates.py", "test_inference.py")
RESAMPLING = ("test_inference_resampling.py",)
MIXED = ("test_inference_mixed.py",)
PROBE = ("test_probe.py",)
REPLAY = ("test_replay.py",)
CHOICE = ("test_grading_choice.py",)
MATHS = ("test_grading_math.py",)
DIALECTS = ("test_dialects.py",)
OUTCOMES = ("test_outcomes.py", *ORACLE)


@dataclass(frozen=True)
class Mutant:
    """A fault: ``old`` stands once in ``file`` (below workflow/midtrace) and becomes ``new``; ``tests`` should find it."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS = [
    # Terms
    Mutant("estimands/terms.py", 'numerator=pl.col("_value").mean()', 'numerator=pl.col("_value").sum()', ESTIMANDS),
    Mutant("estimands/terms.py", 'denominator=pl.col("_within").mean()', 'denominator=pl.col("_within").max()', ESTIMANDS),
    Mutant("estimands/terms.py", 'pl.col("numerator").sum() / total', 'pl.col("numerator").mean()', ESTIMANDS),
    # Contrasts
    Mutant("estimands/contrasts.py", 'pl.col("readout").is_in(COMMON) | (', 'pl.col("readout").is_in(COMMON) & (', ESTIMANDS),
    Mutant("estimands/contrasts.py", '(pl.col("context_arm") == common)\n\n', '(pl.col("context_arm") != common)\n\n', ESTIMANDS),
    Mutant(
        "estimands/contrasts.py",
        'joined.with_columns(difference=pl.col("correct_t") - pl.col("correct_r"), term',
        'joined.with_columns(difference=pl.col("correct_r") - pl.col("correct_t"), term',
        ESTIMANDS,
    ),
    Mutant("estimands/contrasts.py", "correct, ~complete)", "correct, complete)", ESTIMANDS),
    Mutant("estimands/contrasts.py", "correct & complete)", "correct | complete)", ESTIMANDS),
    Mutant("estimands/contrasts.py", '.when("complete_t")\n', '.when("complete_r")\n', ESTIMANDS),
    Mutant("estimands/contrasts.py", '"context_gap": ("symmetric_own", "symmetric")', '"context_gap": ("terminal", "symmetric")', ESTIMANDS),
    Mutant("estimands/contrasts.py", 'pl.col("difference") * inside.cast', "1.0 * inside.cast", ESTIMANDS),
    Mutant("estimands/contrasts.py", '(pl.col("context_arm") == common))', "pl.lit(True))", ESTIMANDS),
    Mutant("estimands/contrasts.py", 'pl.col("horizon") == 0)', 'pl.col("horizon") >= 0)', (*ESTIMANDS, "test_inference_hypotheses.py")),
    # Agreement
    Mutant("estimands/agreement.py", "room = 1 - chance", "room = 1 + chance", AGREEMENT),
    Mutant("estimands/agreement.py", "ratio(agreement - chance,", "ratio(agreement,", AGREEMENT),
    Mutant("estimands/agreement.py", '~pl.col("complete"),\n', 'pl.col("complete"),\n', AGREEMENT),
    Mutant("estimands/agreement.py", 'pl.col("context_arm") == context_arm', 'pl.col("context_arm") != context_arm', AGREEMENT),
    Mutant("estimands/agreement.py", 'pl.col("arm") == reference, pl.col("status") == "terminated"', 'pl.col("arm") == reference', AGREEMENT),
    Mutant("estimands/agreement.py", 'pl.col("prefix_fraction") <= edge', 'pl.col("prefix_fraction") < edge', AGREEMENT),
    Mutant("estimands/agreement.py", "(horizon, horizon + k)", "(horizon, k)", AGREEMENT),
    # Availability, dominance, lengths
    Mutant("estimands/availability.py", "(log_odds[:, 1:] + log_odds[:, :-1]) / 2", "log_odds[:, :-1]", ESTIMANDS),
    Mutant("estimands/availability.py", 'sort_by("horizon").last()', 'sort_by("horizon").first()', ("test_inference_hypotheses.py", *ESTIMANDS)),
    Mutant("estimands/availability.py", 'pl.col("area") - pl.col("area_r")', 'pl.col("area") + pl.col("area_r")', ESTIMANDS),
    Mutant("estimands/dominance.py", "finishing - active, divided", "finishing + active, divided", ESTIMANDS),
    Mutant("estimands/dominance.py", "float(np.max(p))", "float(np.min(p))", ("test_estimands.py", "test_inference_hypotheses.py", *ORACLE)),
    Mutant(
        "estimands/dominance.py", "stats.t.sf(mean / error, df)", "2 * stats.t.sf(mean / error, df)", ("test_inference_hypotheses.py", *ESTIMANDS)
    ),
    Mutant("estimands/lengths.py", 'pl.col("length_t") / pl.col("length_r")', 'pl.col("length_r") / pl.col("length_t")', ESTIMANDS),
    Mutant("estimands/lengths.py", 'pl.col("status") != "malformed"', 'pl.col("status") != "truncated"', ESTIMANDS),
    Mutant("estimands/lengths.py", "(reached < half, reached <= half)", "(reached < half, reached < half)", ESTIMANDS),
    # Bounds, scores, split, survivors, survival
    Mutant("estimands/readout_bounds.py", "any_right=pl.max_horizontal(present)", "any_right=pl.min_horizontal(present)", ESTIMANDS),
    Mutant("estimands/readout_bounds.py", "np.where(contrast >= 0, lowering, raising)", "np.where(contrast <= 0, lowering, raising)", ESTIMANDS),
    Mutant("estimands/readout_bounds.py", '.then(pl.col(name) - pl.col("correct_r"))', '.then(pl.col("correct_r") - pl.col(name))', ESTIMANDS),
    Mutant("estimands/scores.py", 'pl.col("q_gold") < limit', 'pl.col("q_gold") > limit', SCORES),
    Mutant("estimands/scores.py", 'ends[0]["value"] - ends[1]["value"]', 'ends[1]["value"] - ends[0]["value"]', SCORES),
    Mutant("estimands/split.py", '.then("at_length").otherwise("correct_r")', '.then("correct_r").otherwise("at_length")', ESTIMANDS),
    Mutant("estimands/survivors.py", "active.min(axis=-1", "active.max(axis=-1", ESTIMANDS),
    Mutant("estimands/survivors.py", 'side="left"', 'side="right"', ESTIMANDS),
    Mutant("estimands/survival.py", 'side="right")]', 'side="left")]', (*SURVIVAL, *ORACLE)),
    Mutant("estimands/survival.py", "np.cumprod(1 - hazard", "np.cumsum(1 - hazard", SURVIVAL),
    # Inference
    Mutant("inference/bootstrap.py", "tail = (1 - level) / 2", "tail = 1 - level", BOOTSTRAP),
    Mutant("inference/bootstrap.py", "probabilities * (defined - 1)", "probabilities * defined", BOOTSTRAP),
    Mutant("inference/bootstrap.py", "(2 * defined)", "defined", BOOTSTRAP),
    Mutant("inference/bootstrap.py", "6 * spread", "3 * spread", BOOTSTRAP),
    Mutant("inference/bootstrap.py", "finite.sum(0) - finite", "finite.sum(0) + finite", BOOTSTRAP),
    Mutant("inference/alike.py", "estimate in (0.0, 1.0)", "estimate in (0.0,)", ESTIMATES),
    Mutant("inference/alike.py", "alpha=1 - level", "alpha=level", ESTIMATES),
    Mutant("inference/intervals.py", '(pl.col("denominator") > 0).sum()', "pl.len()", (*ESTIMATES, *ORACLE)),
    Mutant("inference/hypotheses.py", "max(stats.t.sf((mean + margin)", "min(stats.t.sf((mean + margin)", TESTS),
    Mutant("inference/hypotheses.py", "2 * stats.t.sf(abs(mean)", "stats.t.sf(abs(mean)", TESTS),
    Mutant("inference/hypotheses.py", 'method="holm"', 'method="bonferroni"', TESTS),
    Mutant("inference/hypotheses.py", "var(ddof=1)", "var(ddof=0)", TESTS),
    Mutant("inference/hypotheses.py", "(top - ratio * bottom)", "(top + ratio * bottom)", TESTS),
    Mutant("inference/resampling.py", ".max(axis=1), level) * error", ".min(axis=1), level) * error", RESAMPLING),
    Mutant("inference/resampling.py", "estimate - width, estimate + width", "estimate + width, estimate - width", RESAMPLING),
    Mutant("inference/mixed.py", "free * (1 + np.log(2 * np.pi * scale))", "free * (2 + np.log(2 * np.pi * scale))", MIXED),
    Mutant("inference/mixed.py", "float(yy - xy @ beta), 1e-300) / free", "float(yy - xy @ beta), 1e-300) / self.rows", MIXED),
    Mutant("inference/replicates.py", 'pl.col("n_replicates") - pl.col("_distinct")', 'pl.col("_distinct")', TESTS),
    # Probe, replay, outcomes
    Mutant("probe.py", "np.logaddexp.reduce([float(logprobs[i])", "np.max([float(logprobs[i])", PROBE),
    Mutant("probe.py", "math.exp(total) < low_mass", "math.exp(total) <= low_mass", PROBE),
    Mutant("probe.py", "float(-log_q[at])", "float(-option[at])", PROBE),
    Mutant("probe.py", "option[at] - np.logaddexp.reduce(others)", "option[at] - np.logaddexp.reduce(option)", PROBE),
    Mutant("probe.py", 'best[stable_hash("tie", key, *best) % len(best)]', "best[0]", PROBE),
    Mutant("probe.py", 'commons[cut["partner_arm"]]', "sorted(commons.values())[0]", PROBE),
    Mutant("probe.py", "stripped.strip(QUOTING)", "stripped", PROBE),
    Mutant("replay.py", 'status == "terminated" and n_reasoning <= horizon', 'status == "terminated" and n_reasoning < horizon', REPLAY),
    Mutant("replay.py", 'status == "terminated" and n_reasoning <= horizon', "n_reasoning <= horizon", REPLAY),
    Mutant("replay.py", "sum(at < n for at in format_after)", "sum(at <= n for at in format_after)", REPLAY),
    Mutant("replay.py", "math.ceil(round(fraction * length, 9))", "math.ceil(fraction * length)", REPLAY),
    Mutant("replay.py", "drift_at < end", "drift_at <= end", REPLAY),
    Mutant("replay.py", 'entry["role"] == "reference" else own', 'entry["role"] == "treatment" else own', REPLAY),
    Mutant("outcomes.py", '.then("natural").otherwise("correct")', '.then("correct").otherwise("natural")', OUTCOMES),
    Mutant("outcomes.py", '"complete").then(None).otherwise(score)', '"complete").then(score).otherwise(score)', OUTCOMES),
    Mutant("outcomes.py", 'pl.col("mode") == "answer"', 'pl.col("mode") != "answer"', OUTCOMES),
    # Grading and dialects
    Mutant("grading/choice.py", "max(stated, key=", "min(stated, key=", CHOICE),
    Mutant("grading/choice.py", "len(labels) == 1 and not denied", "len(labels) == 1", CHOICE),
    Mutant("grading/choice.py", "len(lines) == 1:", "len(lines) >= 1:", CHOICE),
    Mutant("grading/choice.py", "lines[-1]) if lines", "lines[0]) if lines", CHOICE),
    Mutant("grading/free_form.py", "hundredfold.value == 100 * other.value", "hundredfold.value == other.value", MATHS),
    Mutant("grading/free_form.py", "len(formulas) == 1 else None", "formulas else None", MATHS),
    Mutant("grading/free_form.py", "key=lambda one: one[:2], reverse=True", "key=lambda one: one[:2]", MATHS),
    Mutant("grading/free_form.py", "if gold.unit and answer.unit and gold.unit != answer.unit", "if gold.unit != answer.unit", MATHS),
    Mutant("grading/free_form.py", "if gold.ordered:", "if not gold.ordered:", MATHS),
    Mutant("dialects.py", "list(output_ids[:end])", "list(output_ids)", DIALECTS),
    Mutant("dialects.py", '"terminated" if closed else "truncated"', '"truncated" if closed else "terminated"', DIALECTS),
    Mutant("dialects.py", "if opened and opened[0] == 0:", "if opened:", DIALECTS),
    Mutant("dialects.py", "body[closed[1] :]) if closed", "body[closed[0] :]) if closed", DIALECTS),
    Mutant("dialects.py", "if not closed and ended:", "if ended:", DIALECTS),
]


def try_mutant(mutant: Mutant, checkout: Path) -> dict[str, str | None]:
    """The mutant with ``killed_by``: the first test that fails; None if all pass. The checkout is as before afterwards."""
    path = checkout / LIBRARY / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise SystemExit(f"error: {mutant.file}: {mutant.old!r} stands there {text.count(mutant.old)} times; expected: once")
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    killed_by = None
    try:
        for test in mutant.tests:
            command = ["nice", sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", f"tests/{test}"]
            try:
                done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=LIMIT)
            except subprocess.TimeoutExpired:
                killed_by = f"tests/{test} (time limit)"
                break
            if done.returncode:
                failed = re.search(r"^(?:FAILED|ERROR) (\S+?)(?:\[| |$)", done.stdout, re.MULTILINE)
                killed_by = failed[1] if failed else f"tests/{test}: exit status {done.returncode}"
                break
    finally:
        path.write_text(text, encoding="utf-8")
    return {"file": mutant.file, "old": mutant.old.strip(), "new": mutant.new.strip(), "killed_by": killed_by}


def run(mutants: list[Mutant], jobs: int) -> Iterator[dict[str, str | None]]:
    """Results in the order of the mutants; each of ``jobs`` threads has a copy of the checkout."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        checkouts: SimpleQueue[Path] = SimpleQueue()
        for job in range(jobs):
            copy = Path(folder) / f"checkout{job}"
            for name in COPIED:
                source = ROOT / name
                if source.is_dir():
                    shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    copy.mkdir(exist_ok=True)
                    shutil.copy(source, copy / name)
            checkouts.put(copy)

        def task(mutant: Mutant) -> dict[str, str | None]:
            checkout = checkouts.get()
            try:
                return try_mutant(mutant, checkout)
            finally:
                checkouts.put(checkout)

        yield from pool.map(task, mutants)


def table(results: list[dict[str, str | None]]) -> str:
    """The results as a page."""

    def code(text: str | None) -> str:
        return "`" + " ".join((text or "").split()).replace("|", "\\|") + "`"

    killed = sum(result["killed_by"] is not None for result in results)
    lines = [
        "# Mutants",
        "",
        f"Small faults put into the library one at a time, and the first test that finds each: {killed} of {len(results)} are found. This page is",
        "written by `python benchmarks/mutants.py --table docs/mutants.md`; a new estimand, readout or rule of grading brings mutants of its own.",
        "",
        "| File | Code | Mutant | Found by |",
        "|---|---|---|---|",
    ]
    for result in results:
        found_by = code(result["killed_by"].removeprefix("tests/")) if result["killed_by"] else "none"
        lines.append(f"| `{result['file']}` | {code(result['old'])} | {code(result['new'])} | {found_by} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--table", type=Path)
    arguments = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if not arguments.words or any(word in mutant.file for word in arguments.words)]
    results = []
    for result in run(chosen, arguments.jobs):
        results.append(result)
        print(json.dumps(result, ensure_ascii=False), flush=True)
    if arguments.table:
        arguments.table.write_text(table(results), encoding="utf-8")
    sys.exit(any(result["killed_by"] is None for result in results))


if __name__ == "__main__":
    main()
