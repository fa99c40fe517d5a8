"""The pairings that a session collects, what is selected of them, and what is wrong with them."""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kerneltest.core.grouping import group_pairs
from kerneltest.core.source_location import parse_source

if TYPE_CHECKING:
    from kerneltest.core.details import InternalError
    from kerneltest.declare.pairing import Pairing
    from kerneltest.execute.item import Item
    from kerneltest.execute.planning import PairingPlan

PlannedPart = tuple[str, str, str]  # pairing, backend and dtype


_LEAST_SHARE = 0.01  # seconds; 0 would be no limit


@dataclass(frozen=True, slots=True, eq=False)
class CollectedPairing:
    """A pairing under a name in a test module or class."""

    pairing: Pairing
    module: str  # the name of the test module
    name: str  # of the pairing there; `norms[0]` in a list
    plan: PairingPlan
    problem: str = ""  # why it cannot be tested; "" if it can


class Collection:
    """The pairings of a session."""

    def __init__(self) -> None:
        # all that were collected, in order. One pairing may be collected under several names.
        self.pairings: list[CollectedPairing] = []
        self.modules: set[str] = set()  # the names of the modules in which pytest looked for tests
        self.selected: frozenset[PlannedPart] = frozenset()  # what the run does
        self.internal_errors: list[InternalError] = []
        self._dtypes: Counter[tuple[str, str]] = Counter()  # by pairing and backend
        self._made_before = len(pairings_of_process())

    def select(self, items: Iterable[Item]) -> None:
        self.selected = frozenset((item.pairing_id, item.backend.id, item.dtype) for item in items)
        self._dtypes = Counter((pairing, backend) for pairing, backend, _ in self.selected)

    def share_of(self, budget: float, item: Item) -> float:
        """Returns an item's share of a time budget for its pairing on its backend, less the time of planning."""
        parts = sum(count for (pairing, _), count in self._dtypes.items() if pairing == item.pairing_id)
        planning = sum(each.plan.seconds for each in self.pairings if item in each.plan.items)
        return max(budget / self._dtypes[item.pairing_id, item.backend.id] - planning / parts, _LEAST_SHARE)

    def unique_pairings(self) -> list[CollectedPairing]:
        """Returns each pairing under one name, if possible its own one in the module that made it."""
        return [
            min(names, key=lambda each: (each.module != each.pairing.module, "[" in each.name))
            for names in group_pairs((id(each.pairing), each) for each in self.pairings).values()
        ]

    def problems(self, *, whole_folders: bool) -> Iterator[str]:
        """Describes pairings that cannot be tested, and those of collected modules, or of all, not collected."""
        declared = sys.modules.get("kerneltest.declare.oracle_for")
        if declared is None:
            return
        yield from (unique_pairing.problem for unique_pairing in self.unique_pairings() if unique_pairing.problem)
        collected = {id(each.pairing) for each in self.pairings}
        modules = {each.module for each in self.pairings}
        advice = "Assign it to a name in a test module or class, or put it in a list or dict there"
        for pairing in pairings_of_process()[self._made_before :] if self.pairings else ():
            if id(pairing) not in collected and (whole_folders or pairing.module in modules):
                creator = f" in {pairing.module}" if pairing.module else ""
                yield f"{describe(pairing)} was created{creator} but never collected. {advice}"
        for begun in declared.UNAPPLIED.values():
            if begun.is_lost and begun.module in self.modules:
                yield (
                    f"oracle_for({begun.kernel}, ...) ({begun.place}) decorates no oracle. Write it above one, as "
                    f"@kt.oracle_for({begun.kernel}, ...)"
                )


class UntestedPairingWarning(UserWarning):
    """A test function made a pairing that nothing tests."""


def pairings_of_process() -> Sequence[Pairing]:
    """Returns all pairings that this process has made, in order; none if it has not imported what makes them."""
    declared = sys.modules.get("kerneltest.declare.pairing")
    return declared.ALL_PAIRINGS if declared is not None else ()


def restore_root(config: pytest.Config) -> None:
    """Undoes that an option of kerneltest moved pytest's root folder, which all ids are relative to.

    Without an ini-file, pytest takes the folder above everything on its command line that exists. It reads that before
    it knows which words are values of a plugin's options. The project's ini-file was not read either, so this warns.
    """
    here, words, known = config.invocation_params.dir, config.invocation_params.args, config.known_args_namespace
    if config.inipath is not None or here == config.rootpath or known.rootdir:
        return
    for option, value in itertools.pairwise(map(str, words)):
        path = (here / value).resolve()
        if option.startswith("--kt-") and "=" not in option and path.exists() and not path.is_relative_to(here):
            remark = f"{option} {value} made pytest look for its ini-file in {config.rootpath}: write {option}={value}"
            folders = (here, *here.parents)
            root = next((each for each in folders if any((each / name).exists() for name in _AT_ROOT)), here)
            if known.confcutdir == str(config.rootpath):  # by default; no conftest.py above it is read
                known.confcutdir = str(root)
            config._rootpath = root
            config.issue_config_time_warning(pytest.PytestWarning(remark), stacklevel=2)
            return


_AT_ROOT = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "setup.py")


def collects_whole_folders(config: pytest.Config) -> bool:
    """Returns whether pytest collects whole folders, without selecting files or items of them."""
    options = config.option
    partial = getattr(options, "lf", False) or options.ignore or options.ignore_glob  # there may be no cache
    return not partial and all("::" not in argument and not argument.endswith(".py") for argument in config.args)


def is_unwritten(pairing: Pairing) -> bool:
    """Returns whether the oracle only raises NotImplementedError, as `kerneltest init` generates it."""
    try:
        tree = parse_source(textwrap.dedent(inspect.getsource(pairing.oracle)))
    except (OSError, TypeError, SyntaxError):
        return False  # a ufunc, or code without a file
    match tree.body if tree is not None else ():
        case [ast.FunctionDef(body=[*rest, ast.Raise(exc=error)]) as function]:
            name = getattr(getattr(error, "func", error), "id", "")
            return name == "NotImplementedError" and len(rest) == (ast.get_docstring(function) is not None)
    return False  # part of an expression, or a written oracle


def problem_of(pairing: Pairing) -> str:
    """Returns why a pairing cannot be planned: its oracle is missing, or a mark asks for what it cannot do; or ""."""
    if is_unwritten(pairing):
        return f"{describe(pairing)}: write its oracle, which still raises NotImplementedError"
    refused = next((_REFUSED_MARKS[each.name] for each in marks_of(pairing) if each.name in _REFUSED_MARKS), "")
    return f"{describe(pairing)}: {refused}" if refused else ""


# Marks that ask pytest to call a function with arguments, which a pairing is not.
_REFUSED_MARKS = {
    "parametrize": "@pytest.mark.parametrize has no effect on a pairing. Declare what varies: kt.static for options, "
    "several dtypes in kt.array, dims=dict(n=kt.dim(values=...)) for lengths; or make several pairings in a list",
    "usefixtures": "@pytest.mark.usefixtures has no effect on a pairing. Do what it needs when the module is imported",
}


def marks_of(pairing: Pairing) -> list[pytest.Mark]:
    """Returns the marks above `oracle_for` and those below it, on the oracle."""
    marks = [*getattr(pairing, "pytestmark", ()), *getattr(pairing.oracle, "pytestmark", ())]
    return [getattr(mark, "mark", mark) for mark in marks]


def describe(pairing: Pairing) -> str:
    """Returns the name of a pairing, and where its oracle is."""
    code = getattr(pairing.oracle, "__code__", None)
    location = f" ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else ""
    return f"pairing {pairing.name!r}{location}"


def junit_properties(backend: str, dtype: str) -> list[tuple[str, object]]:
    """Returns the JUnit XML properties of an item that are known before it runs."""
    return [("backend", backend), ("dtype", dtype)]
