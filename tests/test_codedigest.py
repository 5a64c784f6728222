"""The digest of code: what changes it and what must not."""

import shutil

import pytest
from helpers.builders import ROOT

from midtrace import codedigest

ROOT_PACKAGE = ROOT / "workflow" / "midtrace"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the package and of the scripts, to be edited."""
    shutil.copytree(ROOT_PACKAGE, tmp_path / "midtrace", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(codedigest, "PACKAGE", tmp_path / "midtrace")
    return tmp_path


def digest(package, script="generate_traces", engine="transformers") -> str:
    codedigest._imports.cache_clear()
    codedigest._tree.cache_clear()
    return codedigest.digest(package / "scripts" / f"{script}.py", engine)


def edit(package, module: str, text: str) -> None:
    path = package / "midtrace" / module
    path.write_text(path.read_text() + text)


CODE = "\n\nEDITED = 1\n"


def test_a_copy_has_the_same_digest(package):
    assert digest(package) == digest(package)
    copied = digest(package)
    codedigest.PACKAGE = ROOT_PACKAGE
    assert codedigest.digest(ROOT / "scripts" / "generate_traces.py", "transformers") == copied


@pytest.mark.parametrize(
    "module",
    [
        "generation.py",
        "dialects.py",
        "prompts.py",
        "seeds.py",
        "vocabulary.py",
        "engines/__init__.py",
        "engines/sampling.py",
        "engines/scoring.py",
        "engines/transformers.py",
    ],
)
def test_code_that_makes_traces_changes_their_digest(package, module):
    before = digest(package)
    edit(package, module, CODE)
    assert digest(package) != before


@pytest.mark.parametrize(
    "module",
    [
        "grading/choice.py",
        "grading/answers.py",
        "estimands/contrasts.py",
        "decomposition/__init__.py",
        "inference/bootstrap.py",
        "items.py",
        "probe.py",
        "tables/schemas.py",
        "store.py",
        "logs.py",
        "errors.py",
        "config/settings.py",
        "engines/fake.py",
    ],
)
def test_other_code_does_not(package, module):
    before = digest(package)
    edit(package, module, CODE)
    assert digest(package) == before


def test_figures_and_report_touch_nothing_paid(package):
    before = {script: digest(package, script) for script in ("generate_traces", "probe_cuts", "continue_cuts", "read_controls")}
    for path in [*package.glob("midtrace/figures*"), *package.glob("midtrace/report*")]:
        for file in [path] if path.is_file() else path.rglob("*.py"):
            file.write_text(file.read_text() + CODE)
    assert {script: digest(package, script) for script in before} == before


def test_the_engine_decides_which_engine_counts(package):
    paid, free = digest(package), digest(package, engine="fake")
    edit(package, "engines/transformers.py", CODE)
    assert digest(package) != paid
    assert digest(package, engine="fake") == free


@pytest.mark.parametrize("engine", ["transformers", "vllm", "server"])
def test_what_an_engine_has_computed_belongs_to_the_code_of_the_engine_alone(package, engine):
    """Whatever moves or changes outside ``engines/``, the stores of studies that were begun before stay valid."""

    def of_engine() -> str:
        codedigest._imports.cache_clear()
        codedigest._tree.cache_clear()
        return codedigest.digest(package / "midtrace" / "engines" / f"{engine}.py", engine)

    before = of_engine()
    for path in (package / "midtrace").rglob("*.py"):
        if path.parent.name != "engines":
            path.write_text(path.read_text() + CODE)
    assert of_engine() == before
    edit(package, f"engines/{engine}.py", CODE)
    assert of_engine() != before


@pytest.mark.parametrize("module", ["grading/choice.py", "grading/code.py", "grading/sandbox.py", "grading/harness.py"])
def test_a_better_parser_repeats_only_the_grading(package, module):
    scripts = ("sample_items", "generate_traces", "continue_cuts", "probe_cuts", "cut_traces", "grade_traces", "grade_continuations")
    before = {script: digest(package, script) for script in scripts}
    edit(package, module, CODE)
    changed = {script for script, value in before.items() if digest(package, script) != value}
    assert changed == {"grade_traces", "grade_continuations"}


def test_the_script_itself_counts(package):
    before = digest(package)
    path = package / "scripts" / "generate_traces.py"
    path.write_text(path.read_text() + CODE)
    assert digest(package) != before


# A package small enough to see every line of


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Write a tiny package from module texts and return the digest of its script."""
    monkeypatch.setattr(codedigest, "PACKAGE", tmp_path / "midtrace")

    def write(script: str, **modules: str) -> str:
        for name, text in {"__init__": "", **modules}.items():
            path = tmp_path / "midtrace" / f"{name.replace('__in__', '/')}.py"
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text(text)
        (tmp_path / "scripts").mkdir(exist_ok=True)
        (tmp_path / "scripts" / "run.py").write_text(script)
        return digest(tmp_path, "run", None)

    return write


SCRIPT = "from midtrace import one\n\n\ndef main():\n    one.f()\n"
ONE = "from midtrace.two import g\n\n\ndef f():\n    return g()\n"
TWO = "def g():\n    return 1\n"


@pytest.mark.parametrize(
    "edited",
    [
        "# a comment\n" + TWO,
        '"""A docstring."""\n' + TWO,
        'def g():\n    """Say it."""\n\n    # why\n    return   (1)\n',
        "\n\n" + TWO,
    ],
)
def test_comments_docstrings_and_layout_do_not_count(tiny, edited):
    assert tiny(SCRIPT, one=ONE, two=TWO) == tiny(SCRIPT, one=ONE, two=edited)


def test_docstrings_of_classes_attributes_and_coroutines_do_not_count(tiny):
    bare = "class K:\n    x: int\n\n\nasync def h():\n    pass\n"
    told = '"""M."""\n\n\nclass K:\n    """K."""\n\n    x: int\n    """The x."""\n\n\nasync def h():\n    """H."""\n    pass\n'
    assert tiny(SCRIPT, one=ONE, two=bare) == tiny(SCRIPT, one=ONE, two=told)


def test_code_counts_transitively(tiny):
    before = tiny(SCRIPT, one=ONE, two=TWO)
    assert tiny(SCRIPT, one=ONE, two="def g():\n    return 2\n") != before
    assert tiny(SCRIPT, one=ONE.replace("g()", "-g()"), two=TWO) != before
    assert tiny(SCRIPT, one=ONE, two=TWO) == before


@pytest.mark.parametrize("imported", ["import midtrace.two", "import midtrace.two as t", "from midtrace import two", "from midtrace.two import g"])
@pytest.mark.parametrize("where", ["{}\n", "def f():\n    {}\n"])
def test_every_way_to_import_counts(tiny, imported, where):
    one = where.format(imported)
    assert tiny(SCRIPT, one=one, two=TWO) != tiny(SCRIPT, one=one, two=TWO.replace("1", "2"))


def test_modules_that_import_each_other_end(tiny):
    assert tiny(SCRIPT, one=ONE, two="from midtrace import one\n" + TWO) != tiny(SCRIPT, one=ONE, two=TWO)


def test_the_digest_of_the_same_code_is_what_it_always_was(tiny):
    """As commit febd33d made it: it names the folders of results that engines have been paid for."""
    assert tiny(SCRIPT, one=ONE, two=TWO) == "83b7d75f268e1d89"


def test_a_module_that_is_not_reached_does_not_count(tiny):
    assert tiny(SCRIPT, one=ONE, two=TWO, three="x = 1") == tiny(SCRIPT, one=ONE, two=TWO, three="x = 2")
