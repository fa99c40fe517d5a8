"""The call graph of Python sources: which definitions name which others, and which reach a Pallas call.

It is built from syntax trees; nothing is imported.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kerneltest.core.syntax import parse_file

_ENTRIES = frozenset({"pallas_call", "core_map", "mpmd_map"})


@dataclass(frozen=True, slots=True)
class QualifiedName:
    """The name of a function, a method or a variable of a module.

    Attributes:
      path: of the file.
      name: in the module: `softmax`, `Layer.apply`.
    """

    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition in a module.

    Attributes:
      line, last: its first and last line, with decorators.
      def_line: the line of its `def`.
      names: the dotted names that it contains, as written.
      enters: whether it names a Pallas call itself.
    """

    line: int
    last: int
    def_line: int
    names: frozenset[str]
    enters: bool


@dataclass(eq=False)
class SourceModule:
    """One file.

    Attributes:
      path: of the file.
      imports: the dotted name that each imported name refers to; relative imports are resolved.
      stars: modules from which all names are imported.
      definitions: by name.
      is_read: False if the file is not valid Python, or nested too deeply for its parser.
    """

    path: Path
    imports: dict[str, str] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    definitions: dict[str, Definition] = field(default_factory=dict)
    is_read: bool = True

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
    tree = parse_file(path)
    module = SourceModule(path, is_read=tree is not None)
    if tree is None:
        return module
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


def _add(module: SourceModule, name: str, node: ast.stmt, prefix: str) -> None:
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
    names = set(_names(node)) - _local_names(node)
    if prefix:
        names |= {f"{prefix}{each[5:]}" for each in names if each.startswith("self.")}
    enters = any(_calls_pallas(module, each) for each in names)
    module.definitions[name] = Definition(first, node.end_lineno or first, node.lineno, frozenset(names), enters)


def _add_names(module: SourceModule, name: str, names: set[str]) -> None:
    known = module.definitions.get(name)
    if known is not None:
        module.definitions[name] = Definition(known.line, known.last, known.def_line, known.names | names, known.enters)


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


@dataclass(eq=False)
class Program:
    """The modules below some folders.

    Attributes:
      modules: by path.
    """

    modules: Mapping[Path, SourceModule]

    @property
    def unread(self) -> list[Path]:
        """The files that could not be read."""
        return [path for path, module in self.modules.items() if not module.is_read]

    @cached_property
    def _by_name(self) -> dict[str, list[SourceModule]]:
        found: dict[str, list[SourceModule]] = {}
        for module in self.modules.values():
            found.setdefault(module.dotted.rpartition(".")[2], []).append(module)
        return found

    def find_module(self, dotted: str) -> SourceModule | None:
        """Returns the module with a dotted name, or one whose name has it as its end, as in a src layout; or None."""
        candidates = self._by_name.get(dotted.rpartition(".")[2], [])
        exact = [each for each in candidates if each.dotted == dotted]
        ends = [(f".{dotted}", f".{each.dotted}", each) for each in candidates]
        loose = [each for wanted, own, each in ends if wanted.endswith(own) or own.endswith(wanted)]
        return next(iter([*exact, *loose]), None)

    def resolve(
        self, module: SourceModule, name: str, seen: frozenset[tuple[Path, str]] = frozenset()
    ) -> QualifiedName | None:
        """Returns the definition that a dotted name refers to, through imports and re-exports; or None.

        Args:
          module: in which the name occurs.
          name: dotted.
          seen: paths and names that are being resolved already, to end cycles of imports.
        """
        if (module.path, name) in seen:
            return None
        seen |= {(module.path, name)}
        parts = name.split(".")
        for size in range(len(parts), 0, -1):  # `Layer.apply.__wrapped__` is about `Layer.apply`
            if (own := ".".join(parts[:size])) in module.definitions:
                return QualifiedName(module.path, own)
        if parts[0] in module.imports:
            return self._resolve_absolute(".".join([module.imports[parts[0]], *parts[1:]]), seen)
        for star in module.stars:
            other = self.find_module(star)
            if other is not None and (found := self.resolve(other, name, seen)):
                return found
        return None

    def _resolve_absolute(self, dotted: str, seen: frozenset[tuple[Path, str]]) -> QualifiedName | None:
        parts = dotted.split(".")
        for size in range(len(parts) - 1, 0, -1):
            module = self.find_module(".".join(parts[:size]))
            if module is not None and (found := self.resolve(module, ".".join(parts[size:]), seen)):
                return found
        return None

    @cached_property
    def named_by(self) -> dict[QualifiedName, frozenset[QualifiedName]]:
        """The definitions that each definition names."""
        return {
            QualifiedName(module.path, name): frozenset(
                place
                for each in made.names
                if (place := self.resolve(module, each)) and place != QualifiedName(module.path, name)
            )
            for module in self.modules.values()
            for name, made in module.definitions.items()
        }

    def reached_from(self, place: QualifiedName) -> frozenset[QualifiedName]:
        """Returns all definitions that a definition names, directly or through others."""
        found: set[QualifiedName] = set()
        waiting = [place]
        while waiting:
            for each in self.named_by.get(waiting.pop(), ()):
                if each not in found:
                    found.add(each)
                    waiting.append(each)
        return frozenset(found)

    @cached_property
    def kernels(self) -> frozenset[QualifiedName]:
        """The definitions that reach a Pallas call."""
        reaching = {
            QualifiedName(m.path, name) for m in self.modules.values() for name, d in m.definitions.items() if d.enters
        }
        while more := {place for place, named in self.named_by.items() if named & reaching} - reaching:
            reaching |= more
        return frozenset(reaching)

    def definition(self, place: QualifiedName) -> Definition:
        """Returns the definition of a name."""
        return self.modules[place.path].definitions[place.name]

    def around(self, path: Path, line: int) -> QualifiedName | None:
        """Returns the innermost definition that contains a line, or None."""
        module = self.modules.get(path)
        found = (
            [(d.last - d.line, name) for name, d in module.definitions.items() if d.line <= line <= d.last]
            if module
            else []
        )
        return QualifiedName(path, min(found)[1]) if found else None


def read_program(roots: Sequence[Path]) -> Program:
    """Reads Python files, and all those below folders."""
    paths: dict[Path, None] = {}
    for root in roots:
        found = sorted(root.rglob("*.py")) if root.is_dir() else [root]
        for path in found:
            inside = path.relative_to(root).parts if root.is_dir() else ()
            if not any(
                part.startswith(".") or part in ("node_modules", "site-packages", "__pycache__") for part in inside[:-1]
            ):
                paths[path.resolve()] = None
    return Program({path: read_module(path) for path in paths})
