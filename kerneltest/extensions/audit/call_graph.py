"""The call graph of Python sources: which definitions name which others, and which reach a Pallas call.

It is built from syntax trees; nothing is imported.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kerneltest.core.syntax import SourceError
from kerneltest.extensions.audit.source_module import Definition, SourceModule, read_module
from kerneltest.start.command_progress import CommandProgress


@dataclass(frozen=True, slots=True)
class QualifiedName:
    """The name of a function, a method or a variable of a module.

    Attributes:
      path: the path of the file.
      name: in the module: `softmax`, `Layer.apply`.
    """

    path: Path
    name: str


@dataclass(eq=False)
class Program:
    """The modules below some folders.

    Attributes:
      modules: by path.
      files_left: the number of files that were not read, for lack of time.
    """

    modules: Mapping[Path, SourceModule]
    files_left: int = 0

    @property
    def unread(self) -> Mapping[Path, SourceError]:
        """The files that could not be read, with the reason."""
        return {path: module.problem for path, module in self.modules.items() if module.problem is not None}

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
        self, module: SourceModule, name: str, seen: set[tuple[Path, str]] | None = None
    ) -> QualifiedName | None:
        """Returns the definition that a dotted name refers to, through imports and re-exports; or None.

        Args:
          module: the module in which the name occurs.
          name: dotted.
          seen: the paths and first names that were looked up already. A module that seems to import a name from itself
            would otherwise make the name longer without end.
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
            return self._resolve_absolute([*module.imports[parts[0]].split("."), *parts[1:]], seen)
        for star in module.stars:
            other = self.find_module(star)
            if other is not None and (found := self.resolve(other, name, seen)):
                return found
        return None

    def _resolve_absolute(self, parts: Sequence[str], seen: set[tuple[Path, str]]) -> QualifiedName | None:
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
        return _closure(self.named_by.get(place, ()), self.named_by)

    @cached_property
    def kernels(self) -> frozenset[QualifiedName]:
        """The definitions that reach a Pallas call."""
        reaching = {
            QualifiedName(m.path, name) for m in self.modules.values() for name, d in m.definitions.items() if d.enters
        }
        return _closure(reaching, self._naming)

    @cached_property
    def _naming(self) -> Mapping[QualifiedName, Collection[QualifiedName]]:
        """The definitions that name each definition."""
        naming: dict[QualifiedName, set[QualifiedName]] = {}
        for place, named in self.named_by.items():
            for each in named:
                naming.setdefault(each, set()).add(place)
        return naming

    def does_import(self, path: Path, wanted: str) -> bool:
        """Returns whether a file imports a package, itself or through other files of the program."""
        found, waiting = {path}, [path]
        while waiting:
            module = self.modules[waiting.pop()]
            for dotted in {*module.imports.values(), *module.stars}:
                if dotted.partition(".")[0] == wanted:
                    return True
                for name in (dotted, dotted.rpartition(".")[0]):
                    other = self.find_module(name) if name else None
                    if other is not None and other.path not in found:
                        found.add(other.path)
                        waiting.append(other.path)
        return False

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


def _closure(
    start: Collection[QualifiedName], edges: Mapping[QualifiedName, Collection[QualifiedName]]
) -> frozenset[QualifiedName]:
    """Returns the definitions of a set, with all that they lead to."""
    found, waiting = set(start), list(start)
    while waiting:
        for each in edges.get(waiting.pop(), ()):
            if each not in found:
                found.add(each)
                waiting.append(each)
    return frozenset(found)


def read_program(roots: Sequence[Path], progress: CommandProgress) -> Program:
    """Reads Python files, and all those below folders, until the time is over."""
    paths: dict[Path, None] = {}
    for root in roots:
        found = sorted(root.rglob("*.py")) if root.is_dir() else [root]
        for path in found:
            inside = path.relative_to(root).parts if root.is_dir() else ()
            if not any(
                part.startswith(".") or part in ("node_modules", "site-packages", "__pycache__") for part in inside[:-1]
            ):
                paths[path.resolve()] = None
    modules: dict[Path, SourceModule] = {}
    for number, path in enumerate(paths):
        if progress.is_over:
            return Program(modules, files_left=len(paths) - number)
        progress.show(f"reading {number + 1} of {len(paths)} files: {path}")
        modules[path] = read_module(path)
    return Program(modules)
