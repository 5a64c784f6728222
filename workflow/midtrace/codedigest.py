"""A digest of the code that defines a result, so that a comment, a figure or another engine never invalidates paid work.

Snakemake's own ``code`` trigger follows the time stamp of a script and knows nothing of the modules that it imports. Rules therefore carry
this digest as a parameter: the syntax trees, without docstrings and comments, of a script and of all midtrace modules that it reaches.
"""

import ast
import hashlib
from functools import cache
from pathlib import Path

from midtrace.engines import ENGINES

PACKAGE = Path(__file__).parent
# Change where and how a job runs, how files are stored, logged or resumed, or refuse input; never what a result is.
NEUTRAL = {
    *("errors", "logs", "tables", "store", "shard", "shards", "serving"),
    *("devices", "memory", "codedigest", "config"),
}


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
        if parts[0] == "engines" and len(parts) > 1 and parts[1] in ENGINES and parts[1] != engine:
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


@cache
def _imports(path: Path) -> frozenset[str]:
    """Modules of the package that a file imports, anywhere in it, without the package's name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        inner = [name.removeprefix("midtrace.") for name in names if name.startswith("midtrace.")]
        found.update(name for name in inner if _path(name).is_file())
    return frozenset(found)


@cache
def _tree(path: Path) -> str:
    """The syntax tree of a file as text, without docstrings (those of attributes included)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [entry for entry in node.body if not _is_text(entry)]
    return _text(tree)


def _text(node: object) -> str:
    """A node as text. Not :func:`ast.dump`, whose output differs between versions of Python: empty fields come and go."""
    if isinstance(node, ast.AST):
        fields = ",".join(f"{name}={_text(value)}" for name, value in ast.iter_fields(node) if value is not None and value != [])
        return f"{type(node).__name__}({fields})"
    return f"[{','.join(map(_text, node))}]" if isinstance(node, list) else repr(node)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
