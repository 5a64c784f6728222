"""A digest of the code that defines a result, so that a comment, a figure or another engine never invalidates paid work.

Snakemake's own ``code`` trigger follows the time stamp of a script and knows nothing of the modules that it imports. Rules therefore carry
this digest as a parameter: the syntax trees, without docstrings and comments, of a script and of all midtrace modules that it reaches.
"""

import ast
import hashlib
from functools import lru_cache
from pathlib import Path

PACKAGE = Path(__file__).parent
# Change how files are stored, logged or resumed, or refuse input; never what a result is.
NEUTRAL = {"errors", "logs", "tables", "partial", "codedigest", "config"}


def digest(script: str | Path, engine: str | None = None) -> str:
    """Digest of a script and of what it reaches.

    Parameters
    ----------
    script
        A file of ``scripts/``.
    engine
        The engine that the job uses; the modules of other engines are left out.
    """
    modules: set[str] = set()
    pending = sorted(_imports(Path(script)))
    while pending:
        module = pending.pop()
        parts = module.split(".")
        if module in modules or parts[0] in NEUTRAL:
            continue
        if parts[0] == "engines" and len(parts) > 1 and parts[1] not in (engine, "sampling"):
            continue
        modules.add(module)
        pending += sorted(_imports(_path(module)))
    found = hashlib.sha256(_tree(Path(script)).encode())
    for module in sorted(modules):
        found.update(f"{module}\n{_tree(_path(module))}\n".encode())
    return found.hexdigest()[:16]


def _path(module: str) -> Path:
    folder = PACKAGE.joinpath(*module.split("."))
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


@lru_cache(maxsize=None)
def _imports(path: Path) -> frozenset[str]:
    """Modules of the package that a file imports, anywhere in it, without the package's name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "midtrace":
            base = node.module.split(".")[1:]
            for name in [".".join([*base, alias.name]) for alias in node.names] + [".".join(base)]:
                if name and _path(name).is_file():
                    found.add(name)
    return frozenset(found)


@lru_cache(maxsize=None)
def _tree(path: Path) -> str:
    """The syntax tree of a file as text, without docstrings."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)
