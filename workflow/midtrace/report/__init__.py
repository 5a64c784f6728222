"""Stage 8: the report, one self-contained page for a reader who has never seen the code."""

import base64
import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import polars as pl

from midtrace import __version__, tables, verdicts
from midtrace.figures import catalogue
from midtrace.figures.run import chance_level, read_decomposition, read_runs
from midtrace.report import captions, example, interruptions, sources
from midtrace.report.checks import (
    agreement_rows,
    control_rows,
    drift_rows,
    early_rows,
    falsifier_rows,
    falsifier_verdicts,
    judge_rows,
    method_rows,
    planted_row,
    readout_counts,
    replicate_rows,
    stay_rows,
    text_rows,
)
from midtrace.report.provenance import item_sources, judge_facts, making
from midtrace.verdicts import Headline, number, p_value, plain, points

FOLLOWED = 0.5  # a scripted statement that is followed less often is a failed control; it is said in the report
TEMPLATE = Path(__file__).with_name("page.html.j2")
VERDICTS = {
    "better": "treatment better",
    "worse": "treatment worse",
    "differs within margin": "differs, but within the margin",
    "equivalent": "equivalent",
    "undecided": "undecided",
    "missing": "not measured",
}
DIRECTIONS = {
    "higher": "treatment more accurate",
    "lower": "treatment less accurate",
    "unclear": "no clear difference",
    "exact": "no difference in any pair",
    "missing": "no interval",
}


def run(
    decomposition: Mapping[str, str | Path],
    inputs: Mapping[str, Sequence[str | Path]],
    figures: Sequence[str | Path],
    output: str | Path,
    study: str,
    settings: Mapping[str, Any],
    interrupted: Mapping[str, Any] | None = None,
) -> None:
    """Write ``report.html``.

    Parameters
    ----------
    decomposition
        Table name -> file of ``decomposition/``.
    inputs
        Shards by stage: ``item_tables``, ``traces``, ``readouts``, ``control_tables``;
        ``interruption_tables``: the estimates of interruptions, if any.
    figures
        SVG files.
    output
        The page.
    study, settings
        Name of the study; see :func:`midtrace.config.report_settings`.
    interrupted
        Where there are interruptions: :func:`midtrace.config.interruptions.interruption_analysis_settings`.
    """
    context = gather(decomposition, inputs, figures, study, settings, interrupted)
    with tables.whole(output) as temporary:
        temporary.write_text(render(context), encoding="utf-8")


def render(context: Mapping[str, Any]) -> str:
    """The page. Everything is escaped: arms, effects and model output are text, never markup."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATE.parent), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals.update(points=points, plain=plain, number=number, p_value=p_value)
    return environment.get_template(TEMPLATE.name).render(context)


def gather(
    decomposition: Mapping[str, str | Path],
    inputs: Mapping[str, Sequence[str | Path]],
    figures: Sequence[str | Path],
    study: str,
    settings: Mapping[str, Any],
    interrupted: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """All that the template shows; see :func:`run`."""
    analysis = settings["figures"]["analysis"]
    found = read_decomposition(decomposition, analysis)
    runs, chance = read_runs(inputs["traces"]), chance_level(inputs["item_tables"])
    items = {tables.read_metadata(path)["identity"]["benchmark"]["name"]: path for path in inputs["item_tables"]}
    uris = {Path(path).stem: data_uri(path) for path in figures}
    reads = readout_counts(inputs.get("readouts", ()), runs)
    sections, shown = [], None
    for model in analysis["models"]:
        for benchmark in analysis["benchmarks"]:
            section = section_of(found, runs, reads, chance, uris, settings, model, benchmark)
            sections.append(section)
            for comparison, row in zip(analysis["comparisons"], section["rows"], strict=True):
                if shown is None and row is not None and row["headline"].readouts:
                    own = catalogue.of(runs, model, benchmark)
                    shown = example.find(
                        items[benchmark],
                        _of_shards(inputs["traces"], model, benchmark),
                        _of_shards(inputs.get("readouts", ()), model, benchmark),
                        own,
                        comparison,
                        row["headline"].horizon,
                    )
    planted = None
    if catalogue.STUDY_WIDE in uris and len(found["planted"]):
        planted = {
            "uri": uris[catalogue.STUDY_WIDE],
            "caption": captions.caption("planted", _facts(settings, "All items of the study.", "probe")),
            "rows": [planted_row(row) for row in found["planted"].iter_rows(named=True)],
            "n_planted": found["planted"]["covered"].count(),
            "n_covered": int(found["planted"]["covered"].sum()),
        }
    return {
        "study": study,
        "sections": sections,
        "dominance_claim": sources.claim(found["dominance"], analysis),
        "planted": planted,
        "interruptions": interruptions.figures(uris),
        "interruption_rows": interruptions.rows(inputs.get("interruption_tables", ()), interrupted),
        "interruption_judging": interruptions.judging(inputs.get("interruption_tables", ()), interrupted),
        "example": shown,
        "item_sources": item_sources(inputs["item_tables"]),
        "making": making(inputs),
        "judge": judge_facts(analysis["judge"], inputs),
        "arms": {name: settings["arms"][name] for name in [*settings["figures"]["arms"], *settings["arms"]]},
        "comparisons": analysis["comparisons"],
        "replicates": settings["replicates"][-1],
        "repeats": " or ".join(map(str, settings["replicates"])),
        "readouts": settings["readouts"],
        "warnings": settings["warnings"],
        "continuations": settings["continuations"],
        "programs": settings["programs"],
        "inference": analysis["inference"],
        "seed": analysis["seed"],
        "level": f"{100 * analysis['inference']['level']:g}%",
        "margin": f"{100 * analysis['inference']['margin']:g}",
        "version": __version__,
        "tools": {name: importlib.metadata.version(name) for name in ("matplotlib", "numpy", "polars", "scipy", "statsmodels")},
        "questions": {kind.name: kind.question for kind in catalogue.KINDS},
    }


def data_uri(path: str | Path) -> str:
    """An SVG file as a data URI: the page asks for nothing, and ids inside one figure cannot collide with those of another."""
    return "data:image/svg+xml;base64," + base64.b64encode(Path(path).read_bytes()).decode()


def _of_shards(paths: Sequence[str | Path], model: str, benchmark: str) -> list[str | Path]:
    keys = {path: tables.TableKey.parse(path) for path in paths}
    return [path for path, key in keys.items() if (key.model, key.benchmark) == (model, benchmark)]


def _facts(settings: Mapping[str, Any], sample: str, readout: str) -> dict[str, str]:
    inference = settings["figures"]["analysis"]["inference"]
    return {"sample": sample, "readout": readout, "level": f"{100 * inference['level']:g}%", "margin": f"{100 * inference['margin']:g}"}


def section_of(
    found: Mapping[str, pl.DataFrame],
    runs: pl.DataFrame,
    reads: pl.DataFrame,
    chance: Mapping[str, float],
    uris: Mapping[str, str],
    settings: Mapping[str, Any],
    model: str,
    benchmark: str,
) -> dict[str, Any]:
    """The part of the report about one model and benchmark: headline rows, figures by name, checks, and what is not there and why."""
    analysis = settings["figures"]["analysis"]
    own = {name: catalogue.of(frame, model, benchmark) for name, frame in found.items()}
    mine = catalogue.of(runs, model, benchmark)
    choice = settings["figures"]["answer_kinds"][benchmark] == "choice"
    n_items, n_replicates = mine["item_id"].n_unique(), mine["replicate"].n_unique()
    sample = f"{n_items} items, {n_replicates} {'run' if n_replicates == 1 else 'runs'} per item and arm."
    rows = [headline_row(own, comparison, analysis) for comparison in analysis["comparisons"]]
    drawn, absent = [], []
    for kind in catalogue.KINDS:
        if kind.name == catalogue.STUDY_WIDE:
            continue
        uri = uris.get(catalogue.stem(kind.name, model, benchmark))
        if uri is None or catalogue.rows(kind, found, model, benchmark).is_empty():
            reason = "no options to probe" if kind.needs_probe and not choice else "nothing was measured for it"
            absent.append((kind.question, reason))
            continue
        said = sample
        if kind.name == "controls":
            n = int(own["controls"]["n_items"].to_numpy().max())
            said = f"{n} of the {n_items} items, one reading each."
        drawn.append(
            {
                "name": kind.name,
                "question": kind.question,
                "uri": uri,
                "alt": f"Figure: {kind.question} {model} on {benchmark}.",
                "caption": captions.caption(kind.name, _facts(settings, said, "probe" if choice else "continuation")),
            }
        )
    arms = [arm_row(own, mine, reads, arm) for arm in settings["figures"]["arms"] if arm in set(mine["arm"])]
    level = chance.get(benchmark)
    controls = control_rows(own["controls"])
    section = {
        "model": model,
        "benchmark": benchmark,
        "choice": choice,
        "sample": sample,
        "n_items": n_items,
        "n_runs": len(mine),
        "chance": level,
        "guessing": [] if level is None else guessing(own["policy"], arms, analysis, level),
        "rows": rows,
        "figures": drawn,
        "sources": source_answers(own, rows, analysis["inference"]["level"]),
        "absent": absent,
        "arms": arms,
        "controls": controls,
        "unfollowed": [row["name"] for row in controls if row["follows"] is not None and row["follows"].value < FOLLOWED],
        "drift": drift_rows(own["retokenisation"], settings["figures"]["arms"]),
        "agreement": agreement_rows(own["agreement"], settings["figures"]["arms"]),
        "stays": stay_rows(own["agreement"], settings["figures"]["arms"]),
        "judging": judge_rows(own["judging"], "reading"),
        "falsifier": falsifier_rows(own["falsifier"], analysis["comparisons"]),
        "falsified": falsifier_verdicts(own["falsifier"], analysis["comparisons"], analysis["inference"]["level"]),
        "methods": [entry for row in rows if row for entry in method_rows(own["inference"], row)],
        "early": [entry for row in rows if row and (entry := early_rows(own, row))],
        "replicates": replicate_rows(own["replicates"], settings["figures"]["arms"]),
        "text_only": text_rows(own["sensitivity"]),
    }
    told = ("methods", "early", "text_only") if settings["replicates"] == 1 else ("methods", "early", "text_only", "replicates")
    section["with_methods"] = any(section[name] for name in told)
    return section


def headline_row(own: Mapping[str, pl.DataFrame], comparison: Mapping[str, str], analysis: Mapping[str, Any]) -> dict[str, Any] | None:
    """A row of the headline table with its verdicts; None for a comparison without lengths."""
    row: Headline | None = verdicts.headline(own, comparison["treatment"], comparison["reference"], analysis["horizons"])
    if row is None:
        return None
    level, margin = analysis["inference"]["level"], analysis["inference"]["margin"]
    return {
        "headline": row,
        "common": comparison["common"],
        "names": verdicts.READOUTS,
        "policy_verdict": DIRECTIONS[row.contrast[row.readouts[0]].shown(level)] if row.readouts else "not measured",
        "matched_verdict": VERDICTS[row.matched_verdict(level)],
        "sentences": verdicts.sentences(row, margin, level),
    }


def source_answers(own: Mapping[str, pl.DataFrame], rows: Sequence[Mapping[str, Any] | None], level: float) -> list[tuple[str, list[dict[str, Any]]]]:
    """Questions of :mod:`midtrace.report.sources` with their answers by comparison at the headline's horizon; what has no answer is left out."""
    lines = [row["headline"] for row in rows if row]
    answered = [(line, sources.answers(own, line.treatment, line.reference, line.horizon, level)) for line in lines]
    found = []
    for name, question in sources.QUESTIONS.items():
        entries = [
            {"treatment": line.treatment, "reference": line.reference, "horizon": line.horizon, "text": texts[name]}
            for line, texts in answered
            if name in texts
        ]
        if entries:
            found.append((question, entries))
    return found


def guessing(policy: pl.DataFrame, arms: Sequence[Mapping[str, Any]], analysis: Mapping[str, Any], chance: float) -> list[str]:
    """How own answers and the probe compare with chance, in words; ``arms`` as from :func:`arm_row`."""
    last = max(analysis["horizons"])
    at = policy.filter(pl.col("horizon") == last, pl.col("readout") == "symmetric")
    probed = {
        comparison[side]: verdicts.one(at, **{role: comparison[role] for role in ("treatment", "reference")}, estimand=f"accuracy_{side}")
        for comparison in analysis["comparisons"]
        for side in ("treatment", "reference")
    }
    return verdicts.chance_sentences({row["arm"]: row["accuracy"] for row in arms}, probed, chance, last)


def arm_row(own: Mapping[str, pl.DataFrame], runs: pl.DataFrame, reads: pl.DataFrame, arm: str) -> dict[str, Any]:
    """Lengths, natural accuracy and what went wrong, of one arm; ``reads`` as from :func:`readout_counts`."""
    per_arm = own["lengths"].filter(pl.col("treatment") == arm, pl.col("reference").is_null())
    mine = runs.filter(pl.col("arm") == arm)
    counted = reads.join(mine.select("model", "benchmark", "arm").unique(), on=["model", "benchmark", "arm"], how="semi")
    status = mine["status"]
    return {
        "arm": arm,
        "length": verdicts.one(per_arm, estimand="mean_length"),
        "accuracy": verdicts.one(per_arm, estimand="natural_accuracy"),
        "accuracy_terminated": verdicts.one(per_arm, estimand="natural_accuracy_terminated"),
        "runs": len(mine),
        "truncated": int((status == "truncated").sum()),
        "malformed": int((status == "malformed").sum()),
        "unparsed": int(((status == "terminated") & mine["answer"].is_null()).sum()),
        "unstated": int((mine["grade_note"] == tables.UNSTATED).sum()),
        "readouts": int(counted["readouts"].sum()),
        "low_mass": int(counted["low_mass"].sum()),
        "ties": int(counted["ties"].sum()),
        "infinite": int(counted["infinite"].sum()),
    }
