"""`kerneltest audit`: which functions reach a Pallas call and have no pairing."""

import functools
import inspect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from kerneltest.core.source_location import shown
from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.audit.sources import Place, Program
from kerneltest.report.text.tables import for_terminal, terminal_table


@dataclass(frozen=True, slots=True)
class Audited:
    """A function that reaches a Pallas call.

    Attributes:
      place: FILE:LINE of its definition.
      name: in its module.
      through: the function that reaches it and stands for it; "" where it stands for itself.
      paired: whether it, or the function that stands for it, is the kernel of a pairing.
    """

    place: str
    name: str
    through: str
    paired: bool

    @property
    def status(self) -> str:
        state = "paired" if self.paired else "not paired"
        return f"reached through {self.through}, which is {state}" if self.through else state

    @property
    def is_unpaired(self) -> bool:
        """Whether it needs a pairing of its own, as what nothing else stands for."""
        return not (self.paired or self.through)


_TESTS = ("test_*.py", "*_test.py", "conftest.py")


def audited(program: Program, pairings: Sequence[Pairing], root: Path) -> list[Audited]:
    """Each function that reaches a Pallas call, in the order of files and lines; private ones if nothing names them.

    Args:
      program: the sources, those of the pairings included.
      pairings: that were collected.
      root: the folder or file to tell of.
    """
    paired = {place for pairing in pairings for place in kernels_of(pairing, program)}
    below = [place for place in program.kernels if place.path.is_relative_to(root.resolve())]
    kernels = [place for place in below if not any(fnmatchcase(place.path.name, pattern) for pattern in _TESTS)]
    reached = {place: program.reached_from(place) for place in {*kernels, *paired}}
    found = []
    for place in sorted(kernels, key=lambda each: (str(each.path), program.definition(each).line)):
        above = [each for each in kernels if each != place and place in reached[each] and _is_public(each)]
        if not _is_public(place) and above:
            continue
        above = [each for each in above if each not in reached[place]]
        stands = min((each for each in paired if place in reached[each]), key=lambda each: each.name, default=None)
        top = stands or min(above, key=lambda each: each.name, default=None)
        through = top.name if top is not None and place not in paired else ""
        line = program.definition(place).shown
        found.append(
            Audited(f"{shown(str(place.path))}:{line}", place.name, through, place in paired or stands is not None)
        )
    return found


def lines(found: Sequence[Audited], broken: Sequence[str]) -> list[str]:
    """What to print: a line for each function, the test files that could not be imported, and what it comes to."""
    rows = [(each.place, each.name, each.status) for each in found]
    table = terminal_table(("", "", ""), rows)[1:] if rows else []
    lacking = sum(each.is_unpaired for each in found)
    total = f"{len(found)} function{' reaches' if len(found) == 1 else 's reach'} a Pallas call"
    unpaired = f"{lacking or 'none'} {'are' if lacking > 1 else 'is'} unpaired"
    return [*table, *(for_terminal(f"not collected: {line}") for line in broken), f"{total}; {unpaired}"]


def _is_public(place: Place) -> bool:
    return not any(part.startswith("_") for part in place.name.split("."))


def kernels_of(pairing: Pairing, program: Program) -> Iterator[Place]:
    """What a pairing's kernel is in the source: itself, under whatever name, and what it wraps."""
    kernel: Any = pairing.kernel
    while kernel is not None:
        yield from _held(kernel, program)
        code = getattr(kernel, "__code__", None)
        if code is not None:
            path = Path(code.co_filename).resolve()
            place = program.around(path, code.co_firstlineno)
            if place is not None:
                yield place
                own = path.name == place.path.name and any(fnmatchcase(path.name, pattern) for pattern in _TESTS)
                if own:  # a function of the test's own, which stands for what it calls
                    yield from program.named_by.get(place, ())
        kernel = _inside(kernel)


def _inside(kernel: Any) -> Any:
    """What a partial, a method or a decorated function was made of; None of a plain function."""
    if isinstance(kernel, functools.partial):
        return kernel.func
    if inspect.ismethod(kernel):
        return kernel.__func__
    return getattr(kernel, "__wrapped__", None)


def _held(kernel: Any, program: Program) -> Iterator[Place]:
    """The names under which the program's own modules hold an object."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        path = Path(file or "").resolve()
        if path in program.modules:
            for name in program.modules[path].definitions:
                if vars(module).get(name) is kernel:
                    yield Place(path, name)
