"""The report: verdicts follow their rule, text is escaped, gated text stays out, nothing is fetched from elsewhere."""

import re
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from helpers.builders import benchmark_entry, item_files
from helpers.report_study import GATED, HOSTILE, Made, make

from midtrace import items, report, tables, verdicts
from midtrace.errors import InputError
from midtrace.figures import catalogue, run
from midtrace.report import captions, checks, example, provenance
from midtrace.report import interruptions as report_interruptions
from midtrace.verdicts import Estimate, Headline

LEVEL, MARGIN = 0.95, 0.03


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    study = make(tmp_path_factory.mktemp("report"))
    run.run(study.decomposition, study.inputs["item_tables"], study.inputs["traces"], study.figures("svg"), [], study.figure_settings)
    return study


def write(made: Made, name: str = "report.html", figures: list[str] | None = None, **changes) -> str:
    output = made.folder / name
    figures = made.figures("svg") if figures is None else figures
    report.run(made.decomposition, {**made.inputs, **changes}, figures, output, "made-up", made.report_settings)
    return output.read_text()


@pytest.fixture(scope="module")
def page(made: Made) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example, "local_tokenizer", lambda _: SimpleNamespace(decode=lambda ids: f"{HOSTILE}\u202e {len(ids)} tokens"))
        return write(made)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.01, 0.2, "higher"),
        (-0.2, -0.01, "lower"),
        (-0.1, 0.1, "unclear"),
        (0.0, 0.1, "unclear"),
        (0.0, 0.0, "exact"),
        (None, 0.1, "missing"),
        (float("nan"), 1.0, "missing"),
    ],
)
def test_direction_is_read_off_the_interval(low, high, expected: str):
    assert verdicts.direction(low, high) == expected


@pytest.mark.parametrize(
    ("low", "high", "p", "expected"),
    [
        (0.01, 0.2, 0.9, "better"),
        (-0.2, -0.01, 0.9, "worse"),
        (0.001, 0.02, 0.01, "differs within margin"),
        (-0.02, 0.02, 0.049, "equivalent"),
        (-0.02, 0.02, 0.051, "undecided"),
        (-0.2, 0.2, None, "undecided"),
        (0.0, 0.0, 0.0, "equivalent"),
        (None, None, None, "missing"),
    ],
)
def test_matched_verdict(low, high, p, expected: str):
    assert verdicts.matched_verdict(verdicts.direction(low, high), p, LEVEL) == expected


def test_a_difference_must_be_shown_after_adjustment():
    estimate = Estimate(0.1, 0.02, 0.2, 30, 90, p=0.04)
    assert estimate.shown(LEVEL) == "higher"
    later = Estimate(0.1, 0.02, 0.2, 30, 90, p=0.06)
    assert later.shown(LEVEL) == "unclear"
    assert Estimate(0.1, -0.02, 0.2, 30, 90, p=0.04).shown(LEVEL) == "unclear"
    row = headline(contrast={"terminal": later}, matched=later, equivalence_p=0.5)
    text = " ".join(verdicts.sentences(row, MARGIN, LEVEL))
    assert "no clear difference in accuracy, +10.0 (2.0 to 20.0) points (adjusted p = 0.060)" in text
    assert row.matched_verdict(LEVEL) == "undecided"


def test_items_that_do_not_differ_are_exact():
    assert Estimate(0.0, None, None, 12, 12).shown(LEVEL) == "exact"
    assert Estimate(0.0, None, None, 1, 1).shown(LEVEL) == "missing"
    assert Estimate(0.2, None, None, 12, 12).shown(LEVEL) == "missing"


def test_the_adjusted_p_values_of_the_tables_are_read():
    matched = {"treatment": "a", "reference": "b", "readout": "probe", "ci_low": -0.1, "ci_high": 0.1, "n_items": 9, "n_pairs": 9}
    rows = [
        {**matched, "estimand": "matched_contrast", "estimate": 0.0, "p": 0.5, "p_holm": 1.0},
        {**matched, "estimand": "matched_equivalence_p", "estimate": 0.03, "p": 0.03, "p_holm": 0.09},
    ]
    length = {"estimand": "mean_length", "reference": None, "ci_low": 1.0, "ci_high": 9.0, "n_items": 9, "n_pairs": 9, "estimate": 8.0}
    keys = {"estimand": pl.String, "horizon": pl.Int32, "readout": pl.String, "treatment": pl.String, "reference": pl.String}
    empty = {**keys, "estimate": pl.Float64, "termination": pl.String}
    frames = {
        "lengths": pl.DataFrame([{**length, "treatment": arm} for arm in "ab"], schema_overrides={"reference": pl.String}),
        "policy": pl.DataFrame(schema=empty),
        "strata": pl.DataFrame(schema=empty),
        "matched": pl.DataFrame(rows),
    }
    row = verdicts.headline(frames, "a", "b", [8])
    assert (row.equivalence_p, row.matched.p) == (0.09, 1.0)
    assert row.matched_verdict(LEVEL) == "undecided"


def falsified(counts, gap=None) -> pl.DataFrame:
    row = {"estimand": "agreement", "estimate": 0.5, "ci_low": 0.4, "ci_high": 0.6, "n_items": 9}
    rows = [{**row, "fraction": edge, "n_pairs": count} for edge, count in counts.items()]
    if gap is not None:
        rows.append({**row, "estimand": "accuracy_gap", "fraction": max(counts), "n_pairs": counts[max(counts)]} | gap)
    return pl.DataFrame([{**row, "fraction": None, "n_pairs": sum(counts.values())}, *rows], schema_overrides={"fraction": pl.Float64})


def test_the_falsifier_decides_near_the_whole_reasoning_only():
    far = falsified({0.5: 40, 0.75: 7, 1.0: 0})
    assert verdicts.falsifier_verdict(far, LEVEL) == "not decidable"
    text = verdicts.falsifier_sentence(far, LEVEL)
    assert text.startswith("Not decidable from this study: too few prefixes hold more than 75% of the run's reasoning.")
    assert text.endswith("up to 50%: 40, up to 75%: 7, up to 100%: 0.")
    gaps = {
        "falls short": {"estimate": -0.3, "ci_low": -0.4, "ci_high": -0.2},
        "no shortfall shown": {"estimate": -0.05, "ci_low": -0.1, "ci_high": 0.01},
    }
    for verdict, gap in gaps.items():
        near = falsified({0.75: 7, 1.0: 30}, gap)
        assert verdicts.falsifier_verdict(near, LEVEL) == verdict
        assert verdicts.points(Estimate(gap["estimate"], gap["ci_low"], gap["ci_high"])) in verdicts.falsifier_sentence(near, LEVEL)
    assert verdicts.falsifier_verdict(falsified({1.0: 3}, {**gaps["falls short"], "n_items": 1}), LEVEL) == "not decidable"


@pytest.mark.parametrize(
    ("lengths", "expected"), [((27.0, 104.0), 24), ((104.0, 27.0), 24), ((20.0, 90.0), 16), ((0.0, 5.0), 0), ((500.0, 900.0), 32)]
)
def test_the_headline_horizon_follows_from_lengths_alone(lengths: tuple[float, float], expected: int):
    assert verdicts.headline_horizon(*lengths, [0, 8, 16, 24, 32]) == expected


def test_the_headline_row_adds_up(made: Made):
    found = {name: catalogue.of(pl.read_parquet(path), "tiny", "chains") for name, path in made.decomposition.items()}
    row = verdicts.headline(found, "low", "high", [0, 8, 16, 32])
    assert row is not None
    assert row.readouts == ["terminal", "symmetric"]
    for readout in row.readouts:
        assert row.finishing[readout].value + row.active[readout].value + row.rest[readout] == pytest.approx(row.contrast[readout].value, abs=1e-12)
    gap = row.contrast["terminal"].value - row.contrast["symmetric"].value
    assert row.readout_gap.value + row.context_gap.value == pytest.approx(gap, abs=1e-12)


def test_a_benchmark_without_options_is_read_by_continuation(made: Made):
    found = {name: catalogue.of(pl.read_parquet(path), "tiny", "free") for name, path in made.decomposition.items()}
    row = verdicts.headline(found, "low", "high", [0, 8, 16, 32])
    assert row is not None
    assert row.readouts == ["terminal_continuation", "symmetric_continuation"]
    for readout in row.readouts:
        assert row.finishing[readout].value + row.active[readout].value + row.rest[readout] == pytest.approx(row.contrast[readout].value, abs=1e-12)
    assert row.matched_by == "continuation"


def test_several_rows_for_one_estimate_are_an_error():
    frame = pl.DataFrame({"estimand": ["x", "x"], "estimate": [1.0, 2.0]})
    with pytest.raises(InputError, match="matches 2"):
        verdicts.one(frame, estimand="x")


def headline(**values) -> Headline:
    defaults = {"treatment": "a", "reference": "b", "horizon": 8, "ratio": Estimate(0.5, 0.4, 0.6)}
    return Headline(**{**defaults, **values})


def test_sentences_say_what_the_intervals_say():
    row = headline(
        contrast={"terminal": Estimate(0.2, 0.1, 0.3), "symmetric": Estimate(0.0, -0.1, 0.1)},
        finishing={"terminal": Estimate(0.2, 0.1, 0.3), "symmetric": Estimate(0.0, -0.1, 0.1)},
        active={"terminal": Estimate(0.0, -0.1, 0.1), "symmetric": Estimate(0.0, -0.1, 0.1)},
        matched=Estimate(0.0, -0.01, 0.01),
        equivalence_p=0.001,
    )
    text = " ".join(verdicts.sentences(row, MARGIN, LEVEL))
    assert "it is shorter" in text
    assert "a is right more often, +20.0 (10.0 to 30.0) points" in text
    assert "runs that finish earlier under Y; neither of the two sources under Y_sym. Y and Y_sym disagree." in text
    assert "Equivalent within 3 points (equivalence test, adjusted p = 0.001): equally many tokens" in text
    gaps = verdicts.sentences(
        headline(contrast=row.contrast, readout_gap=Estimate(0.0, 0.0, 0.0), context_gap=Estimate(0.03, 0.01, 0.05)), MARGIN, LEVEL
    )
    assert "changes nothing in any pair and the context gap (own prompts instead of the shared one) is +3.0 (1.0 to 5.0) points." in " ".join(gaps)


def test_a_longer_treatment_is_not_said_to_use_its_tokens_better():
    row = headline(ratio=Estimate(1.5, 1.4, 1.6), matched=Estimate(0.1, 0.05, 0.15), equivalence_p=0.99)
    text = " ".join(verdicts.sentences(row, MARGIN, LEVEL))
    assert "it is longer" in text
    assert "a is ahead; the whole interval lies beyond the margin of 3 points" in text
    assert "most runs of b have finished by then" in text


def test_what_was_not_measured_is_said():
    assert verdicts.sentences(headline(ratio=None), MARGIN, LEVEL) == ["At equal length: not measured."]
    assert verdicts.points(None) == "not measured"


MANY, FEW, SOME = Estimate(0.4, 0.3, 0.5), Estimate(0.02, 0.0, 0.08), Estimate(0.12, 0.05, 0.19)
NOTHING = "Nothing shows that this model does better than guessing: its readouts carry little, and so do differences between arms."


def test_accuracies_are_held_against_chance():
    assert [verdicts.against_chance(estimate, 0.1) for estimate in (MANY, FEW, SOME, Estimate(0.1), None)] == [
        "above",
        "below",
        "unclear",
        "missing",
        "missing",
    ]
    near = verdicts.chance_sentences({"low": SOME, "high": FEW}, {"low": SOME, "high": None}, 0.1, 96)
    assert near == [
        "Own answers, % right where chance is 10.0: below chance: high 2.0 (0.0 to 8.0); not distinguishable from chance: low 12.0 (5.0 to 19.0).",
        "The probe at 96 tokens, % right where chance is 10.0: not distinguishable from chance: low 12.0 (5.0 to 19.0).",
        NOTHING,
    ]
    assert NOTHING not in verdicts.chance_sentences({"low": SOME}, {"low": MANY}, 0.1, 96)
    assert verdicts.chance_sentences({"low": None}, {}, 0.1, 96) == []


def test_a_study_near_chance_says_so(made: Made, page: str):
    """The same tables under a chance level that no interval lies above."""
    assert "<b>Against chance.</b>" in page and "above chance: " in page and NOTHING not in page
    policy = catalogue.of(pl.read_parquet(made.decomposition["policy"]), "tiny", "chains")
    arms, analysis = [{"arm": "low", "accuracy": SOME}], made.report_settings["figures"]["analysis"]
    assert report.guessing(policy, arms, analysis, 1.0)[-1] == NOTHING
    sentences = report.guessing(policy, arms, analysis, 0.0)
    assert NOTHING not in sentences and sum("above chance: " in sentence for sentence in sentences) == 2, "own answers, and the probe"


@pytest.mark.parametrize(("value", "text"), [(0.05, "+5.0"), (-0.05, "\N{MINUS SIGN}5.0"), (-0.0001, "0.0"), (0.0, "0.0")])
def test_points_have_a_true_minus_and_no_negative_zero(value: float, text: str):
    assert verdicts.points(Estimate(value), False) == text


def test_model_output_and_names_are_escaped(page: str):
    assert "<script" not in page.lower()
    assert "&lt;script&gt;alert" in page
    assert "\u202e" not in page


def test_gated_text_never_appears(made: Made, page: str):
    (exam,) = (path for path in made.inputs["item_tables"] if path.endswith("exam.parquet"))
    assert GATED in pl.read_parquet(exam)["question"][0], "the study has such a benchmark"
    assert "exam" in page and "GATED" not in page


def test_figures_of_interruptions_are_shown_with_their_captions():
    stems = ["interruptions_m_b_a", "interruptions_errors_m_b_a", "interruptions_leakage_m_b_a"]
    parts = report_interruptions.figures({**dict.fromkeys(stems, "data:image/svg+xml;base64,"), "policy_m_b": "other"})
    captions = [part["caption"].drawn.split()[0] for part in parts]
    assert captions == ["Accuracy", "Runs", "Share"]
    page = report.render({**_minimal(), "study": "x", "interruptions": parts})
    assert [page.count(f'id="figure-{stem}"') for stem in stems] == [1, 1, 1]
    assert "In numbers" not in page
    assert 'href="#interruptions"' in page and 'href="#interruptions"' not in report.render({**_minimal(), "study": "x"})


def test_programs_that_ran_without_a_sandbox_are_owned_up_to():
    limits = {"seconds": 6, "total_seconds": 300, "memory_mb": 2048, "output_mb": 16}
    said = {kind: report.render({**_minimal(), "study": "x", "programs": {**limits, "sandbox": kind}}) for kind in ("bubblewrap", "none")}
    assert "<strong>without a sandbox</strong>" in said["none"] and "bubblewrap" in said["bubblewrap"]
    assert "without a sandbox" not in said["bubblewrap"] + report.render({**_minimal(), "study": "x"})


def test_interruptions_are_told_in_numbers(tmp_path: Path):
    keys = {
        "model": "m",
        "benchmark": "b",
        "treatment": "a",
        "cut": "fraction",
        "fraction": None,
        "ci_low": 0.0,
        "ci_high": 1.0,
        "n_items": 3,
        "n_pairs": 3,
    }
    rows = [
        {**keys, "intervention": "hard", "estimand": "accuracy", "estimate": 0.4321},
        {**keys, "intervention": "hard", "estimand": "panic", "estimate": None},
        {**keys, "intervention": "soft", "estimand": "panic", "estimate": 0.1234},
        {**keys, "fraction": 0.5, "intervention": "soft", "estimand": "panic", "estimate": 0.9999},
    ]
    tables.write(
        pl.DataFrame(rows, infer_schema_length=None), tmp_path / "interruptions.parquet", None, tables.metadata("decomposition", "x", {"seed": 1})
    )
    with pytest.raises(InputError, match="seed: the file was made with 1, the config says 2"):
        report_interruptions.rows([tmp_path / "interruptions.parquet"], {"seed": 2})
    found = report_interruptions.rows([tmp_path / "interruptions.parquet"], {"seed": 1})
    assert [(row["intervention"], row["accuracy"] and row["accuracy"].value, row["panic"] and row["panic"].value) for row in found] == [
        ("hard", 0.4321, None),
        ("soft", None, 0.1234),
    ]
    figure = report_interruptions.figures({"interruptions_m_b_a": "data:image/svg+xml;base64,"})
    page = report.render({**_minimal(), "study": "x", "interruptions": figure, "interruption_rows": found})
    assert "43.2" in page and "12.3" in page and "99.99" not in page
    assert report_interruptions.rows([], None) == []


def test_methods_and_falsifier_stand_in_the_page(made: Made, page: str):
    shown = page[page.index('<h2 id="methods">') : page.index('id="example"')]
    inference = pl.read_parquet(made.decomposition["inference"])
    row = inference.filter(
        pl.col("benchmark") == "chains", pl.col("treatment") == "low", pl.col("estimand") == "matched_contrast", pl.col("readout") == "probe"
    )
    p = row.filter(pl.col("approach") == "t_test")["p_holm"].item()
    assert verdicts.p_value(p) in shown.replace("&lt;", "<").replace("&gt;", ">")
    assert row.filter(pl.col("approach") == "crossed_intercepts")["status"].item() in shown
    availability = pl.read_parquet(made.decomposition["availability"]).filter(
        pl.col("benchmark") == "chains", pl.col("treatment") == "low", pl.col("estimand") == "auc_contrast"
    )
    assert verdicts.number(availability["estimate"].item(), 2) in shown
    trust = page[page.index('<h2 id="trust">') : page.index('<h2 id="methods">')]
    falsifier = pl.read_parquet(made.decomposition["falsifier"]).filter(
        pl.col("benchmark") == "chains",
        pl.col("treatment") == "low",
        pl.col("context") == "common",
        pl.col("estimand") == "kappa",
        pl.col("fraction").is_null(),
    )
    assert verdicts.number(falsifier["estimate"].item(), 2) in trust


def test_a_file_benchmark_gives_no_example(made: Made):
    gated = next(path for path in made.inputs["item_tables"] if path.endswith("exam.parquet"))
    generated = next(path for path in made.inputs["item_tables"] if path.endswith("chains.parquet"))
    assert example.may_show(generated)
    assert not example.may_show(gated)
    runs = catalogue.of(run.read_runs(made.inputs["traces"]), "tiny", "exam")
    comparison = made.config["comparisons"][0]
    assert example.find(gated, made.inputs["traces"], made.inputs["readouts"], runs, comparison, 8) is None
    assert GATED in pl.read_parquet(gated)["question"][0]


def test_the_example_shows_the_cut_and_the_distribution(page: str):
    shown = page[page.index('id="example"') : page.index('id="making"')]
    assert shown.count('class="trace"') == 2
    shares = [float(share) for share in re.findall(r'width: ([\d.]+)%"', shown)]
    assert sum(shares) == pytest.approx(200, abs=1)


def test_without_a_vocabulary_there_is_no_example(made: Made, monkeypatch: pytest.MonkeyPatch):
    def absent(_: object) -> None:
        raise OSError("no tokenizer here")

    monkeypatch.setattr(example, "local_tokenizer", absent)
    assert 'id="example"' not in write(made, "without.html")


def test_the_page_asks_for_nothing(page: str):
    assert "http:" not in page
    assert "https:" not in page
    assert "<link" not in page
    for source in re.findall(r'(?:src|href)="([^"]*)"', page):
        assert source.startswith(("data:image/svg+xml;base64,", "#"))
    assert "url(" not in page
    assert "default-src 'none'" in page


def test_the_page_says_what_is_not_there(page: str):
    assert "Not drawn for tiny on free" in page
    assert "no options to probe" in page
    assert page.count("<img ") == 11 + 11 + 9 + 1


def test_the_page_says_how_it_was_made(page: str):
    for fact in ("owner/tiny", "0" * 40, "transformers 1.2.3", "float64", "temperature 1", "v" * 16):
        assert fact in page


def test_a_broken_promise_is_shown(page: str):
    assert "broken" in page[page.index('id="planted"') : page.index('id="trust"')]


def test_the_page_repeats(made: Made):
    assert write(made, "one.html") == write(made, "two.html")


def test_missing_figures_are_left_out(made: Made):
    assert "<img " not in write(made, "bare.html", figures=[])


def test_links_lead_somewhere(page: str):
    targets = re.findall(r'id="([^"]+)"', page)
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(targets)


def test_every_kind_has_a_caption():
    facts = {"sample": "8 items.", "level": "95%", "readout": "probe", "margin": "3"}
    for kind in catalogue.KINDS:
        said = captions.caption(kind.name, facts)
        assert "8 items." in said.drawn
        assert said.may
        assert said.may_not


def test_counts_by_arm(made: Made):
    runs = run.read_runs(made.inputs["traces"])
    counts = checks.readout_counts(made.inputs["readouts"], runs)
    read = sum(len(pl.read_parquet(path)) for path in made.inputs["readouts"])
    assert counts["readouts"].sum() == read
    assert checks.readout_counts([], runs).is_empty()


def test_the_first_telling_pair_is_chosen():
    rows = [("i1", "t", 9, "terminated"), ("i1", "r", 9, "terminated"), ("i2", "t", 4, "terminated"), ("i2", "r", 9, "terminated")]
    runs = pl.DataFrame([{"item_id": i, "arm": a, "n_reasoning": n, "status": s, "replicate": 0} for i, a, n, s in rows])
    assert example.choose_pair(runs, "t", "r", 8) == ("i2", 0)
    assert example.choose_pair(runs, "t", "r", 2) == ("i1", 0)
    assert example.choose_pair(runs, "t", "absent", 2) is None


def test_a_local_folder_is_named_without_its_place(made: Made, tmp_path: Path):
    frame = pl.read_parquet(made.inputs["traces"][0])
    meta = tables.read_metadata(made.inputs["traces"][0])
    meta["identity"]["model"]["source"] = "/somewhere/private/weights"
    tables.write(frame, tmp_path / "t.parquet", tables.Traces, meta)
    facts = dict(provenance.making({"traces": [tmp_path / "t.parquet"]})[0]["facts"])
    assert facts["model"] == "weights"


def test_rows_that_are_left_out_are_counted_with_their_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{k},{GATED},x | y,{'A' if k else 'Z'}" for k in range(4)]
    Path("exam.csv").write_text("\n".join(["id,question,options,answer", *rows, f"9,{GATED},x,A", f"10,{GATED},y,A"]), encoding="utf-8")
    settings = {"seed": 0, "benchmark": benchmark_entry("file", "exam.csv", n=2, strata="equal")}
    items.run(*item_files("items/toy.parquet"), "made-up", settings)
    found = provenance.item_sources(["items/toy.parquet"])
    reasons = [("1 option, where 2 to 10 are allowed", 2), ("its answer is none of its options", 1)]
    counts = {"rows": 6, "usable": 3, "drawn": 2, "excluded": reasons}
    assert found == [{"benchmark": "toy", "source": "loader file, exam.csv", "revision": None, "strata": "equal", **counts}]
    page = report.render({**_minimal(), "study": "s", "item_sources": found})
    assert "Left out of toy: 2 rows (1 option, where 2 to 10 are allowed); 1 row (its answer is none of its options)." in page
    assert GATED not in page


def test_the_page_says_what_a_judge_graded_and_how_far_the_rules_agree(made: Made, page: str):
    assert page.count("Answers are graded by a judge, the model owner/judge.") == 1, "of three benchmarks one is judged"
    traces = pl.concat([pl.read_parquet(path).filter(pl.col("judge_verdict").is_not_null()) for path in made.inputs["traces"]])
    judging = pl.read_parquet(made.decomposition["judging"])
    assert set(judging["benchmark"]) == {"free"} and set(judging["reading"]) == {"natural", "answer"}
    rows = {row["arm"]: row for row in checks.judge_rows(judging.filter(pl.col("reading") == "natural"), "reading")}
    assert set(rows) == set(traces["arm"])
    for arm, row in rows.items():
        own = traces.filter(pl.col("arm") == arm)
        assert row["answers"] == len(own) == row["agreement"].n_pairs + row["unread"] + row["not_asked"]
        assert (row["unread"], row["not_asked"]) == tuple(int((own["judge_verdict"] == outcome).sum()) for outcome in ("unread", "not_asked"))
        assert row["agreement"].value == row["kappa"].value == 1 and row["only_judge"] == row["only_rules"] == 0
    unread = int((traces["judge_verdict"] == "unread").sum())
    assert unread > 0 and f"the verdict on {unread} could not be read or was cut off" in " ".join(page.split())
    assert '<tr><th scope="row">engine</th><td>transformers 4.5.6</td></tr>' in page
    assert "said whether an answer is the right one, for free." in page


def _minimal() -> dict:
    inference = {"resamples": 10, "level": 0.95, "margin": 0.03}
    return {
        "sections": [],
        "planted": None,
        "interruptions": [],
        "interruption_rows": [],
        "interruption_judging": [],
        "judge": None,
        "example": None,
        "item_sources": [],
        "making": [],
        "arms": {},
        "comparisons": [],
        "replicates": 1,
        "repeats": "1",
        "warnings": [],
        "readouts": {"low_mass": 0.5},
        "continuations": {"max_tokens": 8},
        "programs": None,
        "inference": inference,
        "seed": 1,
        "level": "95%",
        "margin": "3",
        "version": "0",
        "tools": {},
        "questions": {},
    }


def test_doubts_about_the_config_come_first():
    page = report.render({**_minimal(), "study": "s", "warnings": ["horizons: 256 beyond <max_tokens>"]})
    assert page.index("horizons: 256 beyond &lt;max_tokens&gt;") < page.index('id="answer"')
    assert 'id="warnings"' not in report.render({**_minimal(), "study": "s"})


def test_free_form_answers_have_all_that_choices_have_by_continuation(made: Made, page: str):
    tables_of_free = {name: catalogue.of(pl.read_parquet(path), "tiny", "free") for name, path in made.decomposition.items()}
    readouts = {"terminal_continuation", "symmetric_own_continuation", "symmetric_continuation"}
    for name, estimand in (("policy", "contrast"), ("policy", "both_active_contrast"), ("strata", "contribution")):
        frame = tables_of_free[name].filter(pl.col("estimand") == estimand)
        assert set(frame.filter(pl.col("estimate").is_not_null())["readout"]) == readouts, estimand
    assert {"readout_gap", "context_gap"} <= set(tables_of_free["policy"]["estimand"])
    assert set(tables_of_free["falsifier"]["readout"]) == {"continuation"} and set(tables_of_free["falsifier"]["context"]) == {"common", "policy"}
    whole = tables_of_free["agreement"].filter(pl.col("reading") == "continuation_natural_complete")
    assert set(whole["context"]) == {"common", "policy"} and set(whole["treatment"]) == {"low", "high", "terse"}
    free = page.partition("Can the readings be trusted?")[2].partition("tiny on free")[2]
    assert "Continuation and own answer, whole block" in free
    assert "both right or both wrong" in free
