"""Figures: which there are, that none crashes on missing parts, that bytes repeat; tables for readers."""

import errno
import os
from pathlib import Path

import polars as pl
import pytest
from helpers.report_study import HOSTILE_ARM, Made, make

from midtrace import tables
from midtrace.decomposition import shape
from midtrace.errors import InputError
from midtrace.figures import catalogue, panels, run, style
from midtrace.figures.parts import Parts
from midtrace.figures.text_tables import latex_escape, latex_number, write_csv, write_tex

KINDS = [kind.name for kind in catalogue.KINDS]
EMPTY = {name: shape(pl.DataFrame(), name) for name in tables.DECOMPOSITION}
NO_RUNS = pl.DataFrame(schema={"arm": pl.String, "n_reasoning": pl.Int32, "status": pl.String})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("made"))


def parts(made: Made, benchmark: str, **changes) -> Parts:
    found = run.read_decomposition(made.decomposition, made.figure_settings["analysis"])
    found.update(changes)
    runs, chance = run.read_runs(made.inputs["traces"]), run.chance_level(made.inputs["item_tables"])
    return run.parts_of(found, runs, chance, made.figure_settings, "tiny", benchmark)


def test_a_config_says_which_figures_there_are(made: Made):
    stems = catalogue.stems(made.figure_settings)
    assert "decomposition_tiny_chains" in stems
    assert "planted" in stems
    # Free-form answers are not probed: their continuations stand in.
    unprobed = ("decomposition", "split", "bounds", "policy", "matched", "lengths", "validity", "falsifier", "methods")
    assert {stem for stem in stems if stem.endswith("_free")} == {f"{kind}_tiny_free" for kind in unprobed}
    without = {**made.figure_settings, "asked": {"controls": False}, "analysis": {**made.figure_settings["analysis"], "planted": None}}
    assert not [stem for stem in catalogue.stems(without) if stem.startswith(("controls", "planted"))]


def test_two_figures_of_one_name_are_refused(made: Made):
    analysis = {**made.figure_settings["analysis"], "models": ["a_b", "a"], "benchmarks": ["c", "b_c"]}
    settings = {**made.figure_settings, "analysis": analysis, "answer_kinds": {"c": "choice", "b_c": "choice"}}
    with pytest.raises(InputError, match="a_b_c"):
        catalogue.stems(settings)


@pytest.mark.parametrize("kind", KINDS)
def test_no_rows_give_a_note_and_no_crash(kind: str):
    figure = panels.draw(kind, Parts(EMPTY, NO_RUNS, [("low", "high")], None, 0.03))
    assert "Nothing to draw" in figure.texts[0].get_text()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("benchmark", ["chains", "free"])
def test_what_is_drawn_is_what_the_catalogue_says(made: Made, kind: str, benchmark: str):
    own = parts(made, benchmark)
    wanted = next(k for k in catalogue.KINDS if k.name == kind)
    figure = panels.draw(kind, own)
    empty = catalogue.rows(wanted, own.tables, "tiny", benchmark).is_empty()
    assert bool(figure.axes) is not empty


@pytest.mark.parametrize("kind", ["policy", "decomposition", "matched", "validity", "falsifier", "planted"])
def test_parts_without_intervals_or_with_one_side_only_are_drawn(made: Made, kind: str):
    found = run.read_decomposition(made.decomposition, made.figure_settings["analysis"])
    bare = {name: frame.with_columns(ci_low=pl.lit(None, pl.Float64), ci_high=pl.lit(None, pl.Float64)) for name, frame in found.items()}
    bare["lengths"] = EMPTY["lengths"]
    bare["policy"] = bare["policy"].filter(pl.col("estimand") != "accuracy_reference")
    bare["validity"] = bare["validity"].filter(pl.col("estimand") == "probe_continuation")
    bare["matched"] = bare["matched"].filter(pl.col("readout") == "continuation")
    figure = panels.draw(kind, parts(made, "chains", **bare))
    assert figure.axes
    figure.canvas.draw()


def test_names_are_text_and_not_mathematics(made: Made, tmp_path: Path):
    found = run.read_decomposition(made.decomposition, made.figure_settings["analysis"])
    hostile = {
        name: frame.with_columns(pl.col("treatment").replace("low", HOSTILE_ARM)) for name, frame in found.items() if name != catalogue.STUDY_WIDE
    }
    own = parts(made, "chains", **hostile)
    own = Parts(own.tables, own.runs, [(HOSTILE_ARM, "high")], own.chance, own.margin)
    for kind in ("policy", "decomposition", "matched"):
        style.save(panels.draw(kind, own), [tmp_path / f"{kind}.svg"])
        assert "<x>" not in (tmp_path / f"{kind}.svg").read_text()


def test_the_stack_adds_up_to_the_marker(made: Made):
    own = parts(made, "chains")
    axes = panels.draw("decomposition", own).axes[0]
    frame = own.select("strata", treatment="low", reference="high", readout="terminal")
    total = own.select("policy", treatment="low", reference="high", readout="terminal", estimand="contrast").sort("horizon")
    horizons = sorted(set(frame["horizon"]))
    drawn = [0.0] * len(horizons)
    for bar in axes.patches:
        drawn[round(bar.get_x() + bar.get_width() / 2)] += bar.get_height()
    assert drawn == pytest.approx((100 * total["estimate"]).to_list(), abs=1e-9)


def test_horizons_far_apart_get_a_logarithmic_axis_without_collisions():
    figure = style.new(2)
    axes = figure.subplots()
    style.horizon_axis(axes, [0, 64, 128, 256, 512, 1024, 2048, 4096])
    assert axes.get_xscale() == "symlog"
    style.horizon_axis(figure.add_subplot(), [0, 1, 2, 3, 30])
    assert [tick.get_text() for tick in figure.axes[1].get_xticklabels()] == ["0", "3", "30"]


def test_files_repeat_byte_for_byte(made: Made):
    paths = [path for path in made.figures(*catalogue.FORMATS) if "decomposition_tiny_chains" in path or "planted" in path]
    text = [str(made.folder / f"tables/{name}.{end}") for name in (*tables.DECOMPOSITION, *catalogue.PAPER_TABLES) for end in ("csv", "tex")]
    read = []
    for _ in range(2):
        run.run(made.decomposition, made.inputs["item_tables"], made.inputs["traces"], paths, text, made.figure_settings)
        read.append([Path(path).read_bytes() for path in [*paths, *text]])
        for path in [*paths, *text]:
            Path(path).unlink()
    assert read[0] == read[1]
    assert all(read[0])


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten bytes go in, no more."""

    def full(path: Path, content: bytes | str, **_: str) -> None:
        with path.open("wb") as handle:
            handle.write(content[:10].encode() if isinstance(content, str) else content[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(Path, "write_text", full)


@pytest.mark.parametrize("name", ["one.svg", "one.pdf", "one.png", "one.csv", "one.tex"])
@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_is_named_and_leaves_no_half_a_file(tmp_path: Path, name: str):
    write = {"csv": write_csv, "tex": write_tex}.get(name[-3:])
    with pytest.raises(InputError, match=rf"{name}: file: cannot be written \(No space left on device\)"):
        if write:
            write(pl.DataFrame({"estimate": [0.5], "method": ["m"]}), tmp_path / name)
        else:
            style.save(style.nothing(), [tmp_path / name])
    assert not list(tmp_path.iterdir())


def test_a_figure_that_the_config_does_not_ask_for_is_refused(made: Made, tmp_path: Path):
    with pytest.raises(InputError, match=r"other\.svg"):
        run.run(made.decomposition, made.inputs["item_tables"], made.inputs["traces"], [str(tmp_path / "other.svg")], [], made.figure_settings)


def test_tables_of_another_config_are_refused(made: Made):
    analysis = {**made.figure_settings["analysis"], "seed": 999}
    with pytest.raises(InputError, match="seed"):
        run.read_decomposition(made.decomposition, analysis)


def test_latex_escapes_every_special_character():
    assert latex_escape(r"a_b & 5% $x$ #1 {y} ~^ \z") == r"a\_b \& 5\% \$x\$ \#1 \{y\} \textasciitilde{}\textasciicircum{} \textbackslash{}z"
    assert latex_escape("<script>\nx|y") == r"\textless{}script\textgreater{} x\textbar{}y"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "yes"),
        (150, "150"),
        (0.0, "0"),
        (0.12345, "0.123"),
        (-0.5, "$-0.500$"),
        (1234.56, "1234.6"),
        (4e-5, r"$4.0\times 10^{-5}$"),
        (float("inf"), r"$\infty$"),
    ],
)
def test_latex_numbers(value, text: str):
    assert latex_number(value) == text


def test_tables_for_readers_are_full_in_csv_and_rounded_in_tex(made: Made, tmp_path: Path):
    frame = pl.read_parquet(made.decomposition["planted"])
    write_csv(frame, tmp_path / "planted.csv")
    write_tex(frame, tmp_path / "planted.tex")
    assert pl.read_csv(tmp_path / "planted.csv")["estimate"].to_list() == frame["estimate"].to_list()
    text = (tmp_path / "planted.tex").read_text()
    assert r"\toprule" in text
    assert r"\textless{}script\textgreater{}" in text
    body = text[text.index(r"\midrule") : text.index(r"\end{longtable}")]
    columns = text.splitlines()[3].count(" & ")
    assert all(line.count(" & ") == columns for line in body.splitlines() if line.endswith(r"\\"))


def test_an_empty_table_has_its_header(tmp_path: Path):
    write_csv(EMPTY["controls"], tmp_path / "controls.csv")
    write_tex(EMPTY["controls"], tmp_path / "controls.tex")
    assert (tmp_path / "controls.csv").read_text().startswith("model,benchmark")
    assert "no rows" in (tmp_path / "controls.tex").read_text()


def test_every_method_of_inference_is_drawn_at_the_headline(made: Made):
    figure = panels.draw("methods", parts(made, "chains"))
    labels = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert labels == [
        *("items, percentile", "items, BCa", "nested: items, replicates", "two-way: items x replicates", "crossed intercepts"),
        *("replicate 0 alone", "replicate 1 alone"),
    ]
    assert len(figure.axes) == 2 * 3  # two comparisons; Y, Y_sym, equal length


def test_methods_are_not_drawn_where_the_config_asks_for_none(made: Made):
    settings = made.figure_settings
    assert "methods_tiny_chains" in catalogue.stems(settings)
    assert "methods_tiny_chains" not in catalogue.stems({**settings, "asked": {**settings["asked"], "methods": False}})


def test_the_falsifier_leaves_out_shares_with_a_single_item(made: Made):
    own = parts(made, "chains")
    table = own.tables["falsifier"]
    assert panels.draw("falsifier", own).axes
    alone = table.with_columns(n_items=pl.lit(1, pl.Int64))
    assert not panels.draw("falsifier", Parts({**own.tables, "falsifier": alone}, own.runs, own.comparisons, own.chance, own.margin)).axes


def test_methods_need_the_lengths_that_choose_their_horizon(made: Made):
    own = parts(made, "chains", lengths=EMPTY["lengths"])
    assert not panels.draw("methods", own).axes
