"""The layers of the library: every module imports downwards, and nothing in a circle."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from helpers.checkout import ROOT

PACKAGE = ROOT / "workflow" / "midtrace"
# From the ground up; CONTRIBUTING.md says what each is for. A module goes by the longest name here that it begins with.
LAYERS = {
    "ground": "errors seeds logs latex expressions tables shard planted simulation inference",
    "a model and its language": "chains dialects wording vocabulary prompts gguf devices memory environment engines codedigest serving store",
    "config": "loaders config",
    "stages": "items generation replay probe continuation controls grading interruptions shards outcomes",
    "numbers": "estimands verdicts decomposition interruptions.estimates claims",
    "what is shown": "figures report",
    "commands": "plan external show_prompt embedded __main__",
}
HEIGHT = {name: height for height, names in enumerate(LAYERS.values()) for name in names.split()}


@cache
def modules() -> dict[str, Path]:
    """The modules of the library by dotted name, without the package's."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(module: str, at_import: bool = False) -> set[str]:
    """Modules that a module imports: anywhere in it, or (``at_import``) only when it is imported itself, which leaves out functions."""
    found: set[str] = set()
    pending: list[ast.AST] = [ast.parse(modules()[module].read_text())]
    while pending:
        node = pending.pop()
        if at_import and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "midtrace":
            origin = (node.module or "").removeprefix("midtrace").lstrip(".")
            names = [f"{origin}.{alias.name}".lstrip(".") for alias in node.names]
            found.update(name if name in modules() else origin for name in names)
        elif isinstance(node, ast.Import):
            found.update(alias.name.removeprefix("midtrace").lstrip(".") for alias in node.names if alias.name.startswith("midtrace"))
        pending += ast.iter_child_nodes(node)
    return found - {"", module}


def height(module: str) -> int:
    """The layer of a module, counted from the ground."""
    while module not in HEIGHT:
        module, dot, _ = module.rpartition(".")
        assert dot, "in no layer: name it in LAYERS"
    return HEIGHT[module]


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Names that depend on each other in a circle; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_every_module_has_a_layer_and_every_layer_its_modules():
    unplaced = {name.split(".")[0] for name in modules()} - {name.split(".")[0] for name in HEIGHT} - {""}
    assert not unplaced, "name them in LAYERS"
    assert len(HEIGHT) == sum(len(names.split()) for names in LAYERS.values()), "a module stands in two layers"


@pytest.mark.parametrize("module", [name for name in modules() if name])
def test_no_module_imports_a_layer_above_it(module):
    above = {other for other in imports(module) if height(other) > height(module)}
    assert not above


def test_packages_and_modules_import_nothing_in_a_circle():
    packages: dict[str, set[str]] = {}
    for module in modules():
        own = module.split(".")[0]
        packages.setdefault(own, set()).update({other.split(".")[0] for other in imports(module)} - {own})
    assert cycle(packages) == []
    assert cycle({module: imports(module, at_import=True) for module in modules()}) == []


def test_a_circle_is_noticed():
    assert set(cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"} and cycle({"a": {"b"}, "b": {"c"}}) == []


def test_the_library_never_imports_snakemake():
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names] if isinstance(node, ast.Import) else []
            assert not any((name or "").split(".")[0] == "snakemake" for name in names), module
