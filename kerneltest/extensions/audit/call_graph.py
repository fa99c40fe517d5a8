"""The call graph of Python sources: which definitions name which others, and which reach a Pallas call.

It is built from syntax trees; nothing is imported.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from kerneltest.core.grouping import group_pairs, reach
from kerneltest.core.source_location import SourceError, read_source
from kerneltest.pytest_plugin.run_folder import MARKER
from kerneltest.start.command_progress import CommandProgress

# One Python source as a syntax tree: its imports, and the names that each of its definitions contains.

_CONSTRUCTORS = ("__new__", "__init__", "__post_init__", "setup")
_EXCLUDED = ("node_modules", "site-packages", "__pycache__")
_ENTRIES = frozenset({"pallas_call", "core_map", "mpmd_map"})


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition in a module."""

    # line, last: its first and last line, with decorators
    line: int
    last: int
    def_line: int  # the line of its `def`
    names: frozenset[str]  # the dotted names that it contains, as written
    enters: bool  # whether it names a Pallas call itself
    in_class: bool  # whether it is a method, or an attribute that a constructor sets
    takes_arguments: bool  # False for a function without parameters


@dataclass(eq=False)
class SourceModule:
    """One file."""

    path: Path  # the path of the file
    # the dotted name that each imported name refers to; relative imports are resolved
    imports: dict[str, str] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)  # modules from which all names are imported
    definitions: dict[str, Definition] = field(default_factory=dict)  # by name
    problem: SourceError | None = None  # why it could not be read, or None

    @property
    def imported(self) -> set[str]:
        return {*self.imports.values(), *self.stars}

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
                top = alias.name.partition(".")[0]
                module.imports[alias.asname or top] = alias.name if alias.asname else top
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
                names = {each for one in given for each in _names(one)}
                _add_names(module, prefix + name, names)  # f.defvjp(forward, ...)
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
    arguments = node.args if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
    takes_arguments = arguments is None or any(isinstance(each, ast.arg) for each in ast.walk(arguments))
    module.definitions[name] = Definition(
        first, node.end_lineno or first, node.lineno, frozenset(names), enters, bool(prefix), takes_arguments
    )


def _add_names(module: SourceModule, name: str, names: set[str]) -> None:
    known = module.definitions.get(name)
    if known is not None:
        module.definitions[name] = replace(known, names=known.names | names)


def _names(node: ast.AST) -> Iterator[str]:
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


@dataclass(frozen=True, slots=True)
class QualifiedName:
    """The name of a function, a method or a variable of a module."""

    path: Path  # the path of the file
    name: str  # in the module: `softmax`, `Layer.apply`


@dataclass(eq=False)
class Program:
    """The modules below some folders."""

    modules: Mapping[Path, SourceModule]  # by path
    files_left: int = 0  # the number of files that were not read, for lack of time

    @property
    def unread(self) -> Mapping[Path, SourceError]:
        return {path: module.problem for path, module in self.modules.items() if module.problem is not None}

    @cached_property
    def _by_name(self) -> dict[str, list[SourceModule]]:
        return group_pairs((module.dotted.rpartition(".")[2], module) for module in self.modules.values())

    def find_module(self, dotted: str) -> SourceModule | None:
        """Returns the module with a dotted name, or one whose name has it as its end, as in a src layout; or None."""
        candidates = self._by_name.get(dotted.rpartition(".")[2], [])
        exact = [candidate for candidate in candidates if candidate.dotted == dotted]
        ends = [(f".{dotted}", f".{candidate.dotted}", candidate) for candidate in candidates]
        loose = [each for wanted, own, each in ends if wanted.endswith(own) or own.endswith(wanted)]
        return next(iter([*exact, *loose]), None)

    def resolve(
        self, module: SourceModule, name: str, seen: set[tuple[Path, str]] | None = None
    ) -> QualifiedName | None:
        """Returns the definition that a dotted name refers to, through imports and re-exports; or None.

        `seen` are the paths and first names that were looked up already. A module that seems to import a name from
        itself would otherwise make the name longer without end.
        """
        seen = set() if seen is None else seen
        parts = name.split(".")
        if (module.path, parts[0]) in seen:
            return None
        seen.add((module.path, parts[0]))
        for size in range(len(parts), 0, -1):  # `Layer.apply.__wrapped__` is about `Layer.apply`
            if (own := ".".join(parts[:size])) in module.definitions:
                return QualifiedName(module.path, own)
        if parts[0] in module.imports:
            whole = [*module.imports[parts[0]].split("."), *parts[1:]]
            for size in range(len(whole) - 1, 0, -1):
                other = self.find_module(".".join(whole[:size]))
                if other is not None and (found := self.resolve(other, ".".join(whole[size:]), seen)):
                    return found
            return None
        for star in module.stars:
            other = self.find_module(star)
            if other is not None and (found := self.resolve(other, name, seen)):
                return found
        return None

    @cached_property
    def named_by(self) -> dict[QualifiedName, frozenset[QualifiedName]]:
        return {
            QualifiedName(module.path, name): frozenset(
                place
                for each in made.names
                if (place := self.resolve(module, each)) and place != QualifiedName(module.path, name)
            )
            for module in self.modules.values()
            for name, made in module.definitions.items()
        }

    def reached_from(self, place: QualifiedName) -> set[QualifiedName]:
        """Returns all definitions that a definition names, directly or through others."""
        return set(reach(self.named_by.get(place, ()), lambda each: self.named_by.get(each, ())))

    @cached_property
    def kernels(self) -> set[QualifiedName]:
        """The definitions that reach a Pallas call."""
        reaching = {
            QualifiedName(m.path, name) for m in self.modules.values() for name, d in m.definitions.items() if d.enters
        }
        naming = group_pairs((each, place) for place, named in self.named_by.items() for each in named)
        return set(reach(reaching, lambda place: naming.get(place, ())))

    def imports_kerneltest(self, path: Path) -> bool:
        """Returns whether a file imports kerneltest, itself or through other files of the program."""

        def imported(path: Path) -> Iterator[Path]:
            for dotted in self.modules[path].imported:
                modules = (self.find_module(name) for name in (dotted, dotted.rpartition(".")[0]) if name)
                yield from (module.path for module in modules if module is not None)

        names = (dotted for each in reach([path], imported) for dotted in self.modules[each].imported)
        return any(dotted.partition(".")[0] == "kerneltest" for dotted in names)

    def definition(self, place: QualifiedName) -> Definition:
        return self.modules[place.path].definitions[place.name]

    def around(self, path: Path, line: int) -> QualifiedName | None:
        """Returns the innermost definition that contains a line, or None."""
        definitions = self.modules[path].definitions if path in self.modules else {}
        found = [(d.last - d.line, name) for name, d in definitions.items() if d.line <= line <= d.last]
        return QualifiedName(path, min(found)[1]) if found else None


def read_program(roots: Sequence[Path], progress: CommandProgress) -> Program:
    """Reads Python files, and all those below folders but in reports, until the time is over."""
    paths: dict[Path, None] = {}
    for root in roots:
        found = sorted(root.rglob("*.py")) if root.is_dir() else [root]
        reports = {marker.parent for marker in root.rglob(MARKER)}
        for path in found:
            inside = path.relative_to(root).parts if root.is_dir() else ()
            is_excluded = any(part.startswith(".") or part in _EXCLUDED for part in inside[:-1])
            if not is_excluded and reports.isdisjoint(path.parents):
                paths[path.resolve()] = None
    modules: dict[Path, SourceModule] = {}
    for number, path in enumerate(paths):
        if progress.is_over:
            return Program(modules, files_left=len(paths) - number)
        progress.show(f"reading {number + 1} of {len(paths)} files: {path}")
        modules[path] = read_module(path)
    return Program(modules)
