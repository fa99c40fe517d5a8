"""Fingerprints of code: a digest of modules and of all user modules that they import."""

import ast
import functools
import hashlib
import site
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from kerneltest.core.syntax import parse_source

_HOMES = tuple(
    str(Path(home).resolve())
    for home in {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *(site.getsitepackages() if hasattr(site, "getsitepackages") else ()),
        site.getusersitepackages(),
    }
)


class Fingerprint:
    """Digests of the user's modules as they are now. Each file is read once."""

    def __init__(self) -> None:
        self._digests: dict[tuple[tuple[str, ...], tuple[ModuleType, ...]], str] = {}
        # By name; by path for modules that share a name.
        self._modules: dict[str, tuple[str, tuple[str, ...]]] = {}

    def digest(self, names: tuple[str, ...], loaded: tuple[ModuleType, ...] = ()) -> str:
        """Returns a digest of modules and of the user modules that they import, directly or not.

        Comments, docstrings and layout do not count. Neither do installed packages; `installed_versions` covers them.

        Args:
          names: module names, as imported.
          loaded: modules whose name others may share, such as `conftest`.

        Returns:
          Hexadecimal digits; "" if one of `names` has no file.
        """
        if (names, loaded) not in self._digests:
            self._digests[names, loaded] = self._digest(names, loaded)
        return self._digests[names, loaded]

    def _digest(self, names: tuple[str, ...], loaded: tuple[ModuleType, ...]) -> str:
        todo = [parent for name in names for parent in _with_parents(name)]
        if not all(_origin(name) for name in names):
            return ""
        found: dict[str, str] = {}
        for module in loaded:
            if path := getattr(module, "__file__", None):
                found[path], imported = self._read(path, module.__name__, Path(path).resolve())
                todo += [*imported, *_with_parents(module.__name__.rpartition(".")[0])]
        while todo:
            name = todo.pop()
            if name not in found:
                found[name], imported = self._read(name, name, _origin(name))
                todo += imported
        lines = sorted(f"{name} {digest}" for name, digest in found.items() if digest)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    def _read(self, key: str, name: str, path: Path | None) -> tuple[str, tuple[str, ...]]:
        """Returns the digest of a module ("" if it is not the user's) and the modules that it imports."""
        if key not in self._modules:
            mine = path is not None and not str(path).startswith(_HOMES) and name.partition(".")[0] != "kerneltest"
            self._modules[key] = _digest_file(path, name) if path is not None and mine else ("", ())
        return self._modules[key]


@functools.cache
def installed_versions() -> str:
    """Returns a digest of the names and versions of installed packages, and of kerneltest's own code."""
    versions = sorted(f"{each.metadata['Name']} {each.version}" for each in metadata.distributions())
    digest = hashlib.sha256("\n".join(versions).encode())
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _digest_file(path: Path, name: str) -> tuple[str, tuple[str, ...]]:
    """Returns the digest of a file's code, and the modules that it imports under that module name."""
    try:
        source = path.read_bytes()
    except OSError:
        return "unreadable", ()
    tree = parse_source(source)
    if tree is None:
        return hashlib.sha256(source).hexdigest()[:16], ()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    imported = tuple(dict.fromkeys(each for found in _imports(tree, package) for each in _with_parents(found)))
    _drop_docstrings(tree)
    with suppress(RecursionError):  # of a long sum, or a chain of `elif`
        source = ast.dump(tree, annotate_fields=False).encode()
    return hashlib.sha256(source).hexdigest()[:16], imported


def _origin(name: str) -> Path | None:
    """Returns the file of a module; None if it has none."""
    origin = getattr(sys.modules.get(name), "__file__", None)
    if origin is None and (spec := _find_spec(name)):
        origin = spec.origin
    return Path(origin).resolve() if origin and origin.endswith(".py") else None


def _find_spec(name: str) -> ModuleSpec | None:
    """Returns the spec of a module without importing the packages around it, which `importlib.util.find_spec` does."""
    loaded: ModuleSpec | None = getattr(sys.modules.get(name), "__spec__", None)
    if loaded is not None:
        return loaded
    parent = name.rpartition(".")[0]
    around = _find_spec(parent) if parent else None
    if parent and (around is None or around.submodule_search_locations is None):
        return None
    folders = list(around.submodule_search_locations or ()) if around else None
    for finder in list(sys.meta_path):
        with suppress(Exception):  # a finder of the user's may raise anything
            if spec := finder.find_spec(name, folders, None):
                return spec
    return None


def _with_parents(name: str) -> Iterator[str]:
    """Yields a module and the packages around it."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def _imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Yields the modules that code imports, with relative imports resolved; an imported name may be a module too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            home = ".".join(filter(None, [base, node.module or ""]))
            yield home
            yield from (f"{home}.{alias.name}" for alias in node.names if home)


def _drop_docstrings(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
                node.body = node.body[1:]
