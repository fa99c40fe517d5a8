"""Functions that reach a Pallas call, compared with the kernels of pairings."""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import math
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from kerneltest.core.grouping import group_pairs
from kerneltest.core.media import for_terminal
from kerneltest.core.source_location import SourceError, relative_path
from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.audit.call_graph import Program, QualifiedName
from kerneltest.pytest_plugin.pytest_run import RUN
from kerneltest.report.text.lines import terminal_table
from kerneltest.start.command_progress import CommandProgress


@dataclass(frozen=True, slots=True)
class AuditedFunction:
    """A function that reaches a Pallas call."""

    place: str  # FILE:LINE of its definition
    name: str  # its name in its module
    through: str  # the function that calls it and represents it; "" if it represents itself
    paired: bool  # whether it, or the function that represents it, is the kernel of a pairing

    @property
    def status(self) -> str:
        state = "paired" if self.paired else "not paired"
        return f"reached through {self.through}, which is {state}" if self.through else state

    @property
    def is_unpaired(self) -> bool:
        """True if it needs a pairing: it has none, and no other function represents it."""
        return not (self.paired or self.through)


_TESTS = ("test_*.py", "*_test.py", "conftest.py")
_TEST_FOLDERS = ("test", "tests", "testing")


def audit_functions(program: Program, pairings: Sequence[Pairing], root: Path) -> list[AuditedFunction]:
    """Returns functions below `root` that reach a Pallas call, in order; private ones if no public one reaches them."""
    paired = {place for pairing in pairings for place in kernels_of(pairing, program)}
    kernels = [
        place
        for place in program.kernels
        if not _is_test(place.path, root) and (place in paired or _may_be_paired(program, place))
    ]
    reached = {place: program.reached_from(place) for place in {*kernels, *paired}}
    callers_of = group_pairs(
        (place, caller) for caller in kernels if _is_public(caller) for place in reached[caller] if place != caller
    )
    found = []
    for place in sorted(kernels, key=lambda each: (str(each.path), program.definition(each).line)):
        callers = callers_of.get(place, [])
        if not place.path.is_relative_to(root.resolve()) or (not _is_public(place) and callers):
            continue
        callers = [each for each in callers if each not in reached[place]]
        representative = min((top for top in paired if place in reached[top]), key=lambda each: each.name, default=None)
        top = representative or min(callers, key=lambda each: each.name, default=None)
        through = top.name if top is not None and place not in paired else ""
        where = f"{relative_path(str(place.path))}:{program.definition(place).def_line}"
        found.append(AuditedFunction(where, place.name, through, place in paired or representative is not None))
    return found


def _is_test(path: Path, root: Path) -> bool:
    folders = path.relative_to(root.resolve()).parts[:-1] if path.is_relative_to(root.resolve()) else ()
    return any(fnmatchcase(path.name, each) for each in _TESTS) or any(folder in _TEST_FOLDERS for folder in folders)


def _may_be_paired(program: Program, place: QualifiedName) -> bool:
    """Returns False for code that only uses kernels: a method that calls functions with a Pallas call, or `main`."""
    definition = program.definition(place)
    if definition.enters:
        return True
    if definition.in_class:
        return all(program.definition(each).in_class for each in program.reached_from(place) & program.kernels)
    return definition.takes_arguments and place.name != "main"


def format_audit(
    found: Sequence[AuditedFunction], broken: Sequence[str], unread: Mapping[Path, SourceError], files_left: int
) -> list[str]:
    """Formats the audited functions, and the test files and sources that could not be read, with the reasons."""
    rows = [(each.place, each.name, each.status) for each in found]
    table = terminal_table(("", "", ""), rows)[1:] if rows else []
    lacking = sum(each.is_unpaired for each in found)
    total = f"{len(found)} function{' reaches' if len(found) == 1 else 's reach'} a Pallas call"
    unpaired = f"{lacking or 'none'} {'are' if lacking > 1 else 'is'} unpaired"
    missing = [f"not collected: {line}" for line in broken]
    for path, error in unread.items():
        missing.append(f"not read: {relative_path(str(path))}{f':{error.line}' if error.line else ''}: {error}")
    if files_left:
        missing.append(f"not read: {files_left} files, since the time was over; raise --limit, or audit fewer files")
    return [*table, *map(for_terminal, missing), f"{total}; {unpaired}"]


def _is_public(place: QualifiedName) -> bool:
    """Returns whether users may call a definition; `__call__` is called by its object."""
    return not any(part.startswith("_") and not part.endswith("__") for part in place.name.split("."))


def kernels_of(pairing: Pairing, program: Program) -> Iterator[QualifiedName]:
    """Yields the definitions of a pairing's kernel in the source: under all its names, and those that it wraps."""
    kernel: object = pairing.kernel
    seen: set[int] = set()
    while kernel is not None and id(kernel) not in seen:
        seen.add(id(kernel))
        yield from _names_of(kernel, program)
        code = getattr(kernel, "__code__", None)
        if code is not None:
            path = Path(code.co_filename).resolve()
            place = program.around(path, code.co_firstlineno)
            if place is not None:
                yield place
                in_test = path.name == place.path.name and any(fnmatchcase(path.name, pattern) for pattern in _TESTS)
                if in_test:  # a wrapper in a test file represents the functions that it calls
                    yield from program.named_by.get(place, ())
        # The function inside a partial, a method or a decorated function; None for a plain function.
        inside = "func" if isinstance(kernel, functools.partial) else "__func__" if inspect.ismethod(kernel) else ""
        kernel = getattr(kernel, inside or "__wrapped__", None)


def _names_of(kernel: object, program: Program) -> Iterator[QualifiedName]:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        path = Path(file or "").resolve()
        if path in program.modules:
            for name in program.modules[path].definitions:
                if vars(module).get(name) is kernel:
                    yield QualifiedName(path, name)


# The pairings that pytest collects below some folders, without running them.


class _LimitedModule(pytest.Module):
    """A test file whose import is interrupted when the command's time is over."""

    progress: CommandProgress

    def collect(self) -> Sequence[pytest.Item | pytest.Collector]:
        self.progress.show(f"importing {relative_path(str(self.path))}")
        with self.progress.interrupt():
            return list(super().collect())


class _PairingCollector:
    """A pytest plugin that imports some test files, and keeps their pairings and what they raise."""

    def __init__(self, wanted: Collection[Path], progress: CommandProgress) -> None:
        self.pairings: list[Pairing] = []
        self.errors: list[str] = []
        self._folders = {folder for path in wanted for folder in path.parents}
        self._wanted = wanted
        self._progress = progress
        self._syntax_errors: dict[str, SyntaxError] = {}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        path = collection_path.resolve()
        return None if path in self._wanted or path in self._folders else True

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Module:
        module: _LimitedModule = _LimitedModule.from_parent(parent, path=module_path)
        module.progress = self._progress
        return module

    def pytest_exception_interact(self, node: pytest.Collector, call: pytest.CallInfo[Any]) -> None:
        cause = call.excinfo.value.__cause__ if call.excinfo is not None else None
        if isinstance(cause, SyntaxError):
            self._syntax_errors[node.nodeid] = cause

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.failed:
            return
        error = self._syntax_errors.get(report.nodeid)
        if error is None:
            reason = report.longreprtext.strip().splitlines()[-1]
        else:
            reason = f"{relative_path(error.filename or '')}:{error.lineno}: {error.msg}"
        self.errors.append(f"{report.nodeid}: {reason}")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        collection = session.config.stash[RUN].collection
        self.pairings = [pairing.pairing for pairing in collection.unique_pairings()]


def gather(
    paths: Sequence[Path], wanted: Collection[Path], progress: CommandProgress
) -> tuple[list[Pairing], list[str]]:
    """Returns the pairings of the `wanted` test files (absolute paths) below some folders, and errors of imports."""
    collector = _PairingCollector(wanted, progress)
    options = ["--collect-only", "-q", "-p", "kerneltest", "-p", "no:cacheprovider", "--kt-backends", "interpret"]
    options.append(f"--kt-timeout={math.ceil(progress.seconds)}")  # pytest plans what it collects
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        pytest.main([*options, "--continue-on-collection-errors", *map(str, paths)], plugins=[collector])
    return collector.pairings, collector.errors
