"""One Python source as a syntax tree: its imports, and the names that each of its definitions contains."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from kerneltest.core.syntax import SourceError, read_source

_CONSTRUCTORS = ("__new__", "__init__", "__post_init__", "setup")
_ENTRIES = frozenset({"pallas_call", "core_map", "mpmd_map"})


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition in a module.

    Attributes:
      line, last: its first and last line, with decorators.
      def_line: the line of its `def`.
      names: the dotted names that it contains, as written.
      enters: whether it names a Pallas call itself.
      in_class: whether it is a method, or an attribute that a constructor sets.
      takes_arguments: False for a function without parameters.
    """

    line: int
    last: int
    def_line: int
    names: frozenset[str]
    enters: bool
    in_class: bool
    takes_arguments: bool


@dataclass(eq=False)
class SourceModule:
    """One file.

    Attributes:
      path: the path of the file.
      imports: the dotted name that each imported name refers to; relative imports are resolved.
      stars: modules from which all names are imported.
      definitions: by name.
      problem: why it could not be read, or None.
    """

    path: Path
    imports: dict[str, str] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    definitions: dict[str, Definition] = field(default_factory=dict)
    problem: SourceError | None = None

    @cached_property
    def dotted(self) -> str:
        """The module's dotted name, from the outermost package."""
        parts, folder = ([] if self.path.stem == "__init__" else [self.path.stem]), self.path.parent
        while (folder / "__init__.py").exists():
            parts.insert(0, folder.name)
            folder = folder.parent
        return ".".join(parts)


def read_module(path: Path) -> SourceModule:
    """Reads one file."""
    try:
        tree = read_source(path)
    except SourceError as error:
        return SourceModule(path, problem=error)
    module = SourceModule(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                module.imports[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            base = _import_source(module, node)
            for alias in node.names:
                if alias.name == "*":
                    module.stars.append(base)
                else:
                    module.imports[alias.asname or alias.name] = f"{base}.{alias.name}".lstrip(".")
    _define(module, tree.body, "")
    return module


def _import_source(module: SourceModule, node: ast.ImportFrom) -> str:
    """Returns the module that an import takes names from, without leading dots."""
    if not node.level:
        return node.module or ""
    package = module.dotted.split(".") if module.path.stem == "__init__" else module.dotted.split(".")[:-1]
    kept = package[: len(package) - (node.level - 1)]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _define(module: SourceModule, body: Sequence[ast.stmt], prefix: str) -> None:
    waiting = list(reversed(body))  # not a recursion, since each `elif` is nested in the one before it
    while waiting:
        match node := waiting.pop():
            case ast.FunctionDef(name=name) if prefix and name in _CONSTRUCTORS:
                _define_attributes(module, node, prefix)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                _add(module, prefix + name, node, prefix)
                for decorator in node.decorator_list:  # `@f.defvjp` adds the function below it to f
                    target = decorator.func if isinstance(decorator, ast.Call) else decorator
                    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                        _add_names(module, prefix + target.value.id, {prefix + name})
            case ast.ClassDef(name=name):
                _define(module, node.body, f"{prefix}{name}.")
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                if isinstance(value, (ast.Call, ast.Lambda, ast.Name, ast.Attribute)):
                    _add(module, prefix + name, node, prefix)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)), args=given)):
                _add_names(
                    module, prefix + name, {each for one in given for each in _names(one)}
                )  # f.defvjp(forward, ...)
            case ast.If(body=first, orelse=second) | ast.Try(body=first, orelse=second):
                waiting += reversed([*first, *second])


def _define_attributes(module: SourceModule, constructor: ast.FunctionDef, prefix: str) -> None:
    """Defines the attributes that a constructor sets. It is not a kernel itself, but they may be."""
    for node in ast.walk(constructor):
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)]) if (
                prefix + name not in module.definitions
            ):
                _add(module, prefix + name, node, prefix)


def _add(module: SourceModule, name: str, node: ast.stmt, prefix: str) -> None:
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
    names = set(_names(node)) - _local_names(node)
    if prefix:
        names |= {f"{prefix}{each[5:]}" for each in names if each.startswith("self.")}
    enters = any(_calls_pallas(module, each) for each in names)
    parameters = (
        [each for each in ast.walk(node.args) if isinstance(each, ast.arg)]
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        else [node]
    )
    module.definitions[name] = Definition(
        first, node.end_lineno or first, node.lineno, frozenset(names), enters, bool(prefix), bool(parameters)
    )


def _add_names(module: SourceModule, name: str, names: set[str]) -> None:
    known = module.definitions.get(name)
    if known is not None:
        module.definitions[name] = replace(known, names=known.names | names)


def _names(node: ast.AST) -> Iterator[str]:
    """Yields the dotted names that a piece of source reads, each with its prefixes."""
    for each in ast.walk(node):
        parts: list[str] = []
        while isinstance(each, ast.Attribute):
            parts.insert(0, each.attr)
            each = each.value
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
            yield ".".join([each.id, *parts])


def _local_names(node: ast.AST) -> set[str]:
    """Returns the local names of a function: its parameters and the names that it assigns."""
    arguments = {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
    stored = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    return arguments | (stored if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else set())


def _calls_pallas(module: SourceModule, name: str) -> bool:
    """Returns whether a name calls Pallas. `kernel` is a common name, so it must be imported from Pallas."""
    first, _, rest = name.partition(".")
    whole = f"{module.imports.get(first, first)}.{rest}".rstrip(".")
    last = whole.rpartition(".")[2]
    return last in _ENTRIES or (last == "kernel" and "pallas" in whole)
