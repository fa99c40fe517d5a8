"""Judges the saved inputs of a finding again: `kerneltest repro`."""

import contextlib
import io
import math
import os
import re
import sys
from dataclasses import replace
from operator import attrgetter
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

import pytest

import kerneltest.execute.invariants  # noqa: F401 - registers them
from kerneltest.backends.base import Backend
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import Array, parse_dtype
from kerneltest.core.failures import RecordError, UnusableInputError, format_exception
from kerneltest.core.ids import PairingId
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.discovery import iter_pairings
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.invariant_group import INVARIANTS
from kerneltest.execute.item import Group, Item, Outcome
from kerneltest.execute.kernel_numbers import with_learned_blocks
from kerneltest.execute.planning import ALL_GROUPS
from kerneltest.execute.runner import run_single_case
from kerneltest.execute.settings import RunSettings
from kerneltest.plan import DEPTHS
from kerneltest.plan.explicit import DRAWN_FAMILY, ExplicitCase
from kerneltest.plan.families import FAMILIES, Family
from kerneltest.plan.signatures import Signature
from kerneltest.records.record_files import load_arguments, read_plan, read_records, read_reproducers
from kerneltest.records.schema import Record

# Imports a test file as pytest does: with its conftest.py, and only if pytest would collect it.

_OPTIONS = ("--collect-only", "--quiet", "--capture=no", "-p", "kerneltest")


class SuiteImportError(UnusableInputError):
    """A test file cannot be imported; the message says why, in a line."""


def import_suite(suite: Path) -> ModuleType:
    """Imports a test file in a session of pytest that collects nothing else; a SuiteImportError if that fails."""
    picker = _Picker(suite)
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(printed):
        pytest.main([*_OPTIONS, str(suite)], plugins=[picker])
    if picker.interrupt is not None:
        raise picker.interrupt
    if picker.module is None:
        said = [line for line in printed.getvalue().splitlines() if line.strip()]
        raise SuiteImportError(picker.problem or (said[-1] if said else "pytest did not collect it"))
    return picker.module


class _UnreadModule(pytest.Module):
    def collect(self) -> list[pytest.Item]:
        return []


class _Picker:
    def __init__(self, suite: Path) -> None:
        self.module: ModuleType | None = None
        self.problem = ""
        self.interrupt: KeyboardInterrupt | None = None
        self._suite = suite

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
        if module_path == self._suite:
            patterns: list[str] = parent.config.getini("python_files")
            if any(module_path.match(pattern) for pattern in patterns):
                return None
            self.problem = f"pytest does not collect it as a test file: its name matches none of {', '.join(patterns)}"
        module: pytest.Module = _UnreadModule.from_parent(parent, path=module_path)
        return module

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self, collector: pytest.Collector, name: str, obj: object) -> list[pytest.Item]:
        module = collector.getparent(pytest.Module)
        self.module = module.obj if module is not None else None
        return []

    def pytest_exception_interact(self, call: pytest.CallInfo[Any]) -> None:
        assert call.excinfo is not None
        self._note(call.excinfo.value)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.problem = str(report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        if isinstance(excinfo.value, pytest.Session.Interrupted):
            return  # by the error that was noted
        if isinstance(excinfo.value, KeyboardInterrupt):
            self.interrupt = excinfo.value
        self._note(excinfo.value)

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
        self._note(excinfo.value)
        return True

    # Notes an error; of pytest's own, which quote a traceback, the last line.
    def _note(self, error: BaseException) -> None:
        words = format_exception(error)
        self.problem = words.strip().splitlines()[-1].removeprefix("E ").strip() if "\n" in words else words


_MOST_BYTES = 2**30  # of saved inputs
_MOST_ORDERS = 1000  # orders of programs; each executes the kernel once more
_ROOT_HAS = ("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", ".git")


class ReproductionError(UnusableInputError):
    """A finding cannot be judged again. The message says what is missing or does not fit."""


def judge_again(folder: Path, case: str, backend: str = "", timeout: int = 0) -> Record:
    """Judges the saved inputs of a finding of a run again, on its own backend or another, and returns the new record.

    A step of the case may take `timeout` seconds; 0 for no limit. The suite is searched for in the current folder and
    its parents, up to the root of the project. Raises a ReproductionError if the finding does not exist, its inputs or
    suite do not fit, or the backend is unavailable.
    """
    try:
        plan = read_plan(folder)
        recorded = [*read_records(folder), *(reproducer.record for reproducer in read_reproducers(folder))]
        saved = [record for record in recorded if record.evidence is not None and record.evidence.file]
    except RecordError as error:
        raise ReproductionError(str(error)) from error
    findings = [record for record in saved if record.case == case]
    if not findings:
        known = sorted({record.case for record in saved if re.fullmatch("[0-9a-f]{16}", record.case)})
        raise ReproductionError(
            f"{folder} has no finding {case!r} with saved inputs; it has "
            + (", ".join(known[:8]) + ", ..." * (len(known) > 8) if known else "no saved inputs")
        )
    record = next((record for record in findings if record.backend == backend), findings[0])
    if plan.depth not in DEPTHS or plan.orders > _MOST_ORDERS:
        raise ReproductionError(f"{folder} has an invalid plan: depth {plan.depth!a}, {plan.orders} orders")
    name = backend or record.backend
    try:
        (chosen,) = resolve([name], plan.orders)
    except ValueError as error:
        raise ReproductionError(f"{name!r} must name one backend: {error}") from error
    pairing = with_learned_blocks(import_pairing(record, folder)).on(record.backend)
    if not pairing.reproducible:
        chosen = chosen.with_program_orders(0)
    return run_saved_case(
        folder, record, pairing, chosen, RunSettings(depth=plan.depth, seed=plan.seed, timeout=timeout)
    ).record


def run_saved_case(folder: Path, record: Record, pairing: Pairing, backend: Backend, settings: RunSettings) -> Outcome:
    """Runs and judges a finding's saved inputs; a ReproductionError if they do not fit, or the backend cannot."""
    signature = record_signature(pairing, record)
    if signature is None:
        raise ReproductionError(f"the declaration of {pairing.name} changed: it has no signature {record.signature!r}")
    arguments = _arguments(folder, record, pairing, signature)
    group, family = _group_and_family(record)
    item = Item(record.item, pairing, record.pairing, backend, signature.dtype, group, settings)
    if not backend.tier.gives_values:
        raise ReproductionError(f"{backend.id} computes no values, but this finding is about values")
    if reason := backend.unavailable():
        raise ReproductionError(f"{backend.id} unavailable: {reason}")
    cache = Cache()
    try:
        drawn = ExplicitCase(record.pairing, signature, arguments, family=family, target=record.target)
        outcome = run_single_case(item, drawn, cache)
    finally:
        cache.process.pool.close()
    if outcome.record.verdict is Verdict.UNAVAILABLE:
        raise ReproductionError(f"{backend.id} unavailable: {outcome.record.message}")
    return outcome


def _group_and_family(record: Record) -> tuple[Group, Family]:
    group = ALL_GROUPS.get(record.group)
    varied = INVARIANTS.get(record.family)
    family = varied.family if varied else FAMILIES.get(record.family, DRAWN_FAMILY)
    if group is not None:
        family = group.find_family(record.family) or family
    if group is None or family.group != record.group:
        raise ReproductionError(f"the group {record.group!a} has no family {record.family!a}")
    return group, family


def import_pairing(record: Record, report: Path) -> Pairing:
    """Imports the pairing of a record from its suite, whose path is relative to the folder in which pytest ran.

    Records and the files next to them are untrusted: the suite must be inside the project, outside of the report's
    folder, and a file that pytest collects. Raises a ReproductionError if the suite or the pairing does not exist, or
    must not be imported.
    """
    node = PairingId.parse(record.pairing)
    root = _find_root(node.file, report) if node.name else None
    if root is None:
        raise ReproductionError(f"{record.pairing!a} is not a pairing in the current project")
    try:
        sys.path.insert(0, str(root))
        found = attrgetter(".".join([*node.classes, node.variable]))(import_suite(root / node.file))
        pairing = dict(iter_pairings(node.variable, found)).get(node.own_name)
    except SuiteImportError as error:
        raise ReproductionError(f"cannot import {record.pairing}: {error}") from error
    except AttributeError as error:
        raise ReproductionError(f"cannot import {record.pairing}: {format_exception(error)}") from error
    if pairing is None:
        raise ReproductionError(f"{record.pairing} is not a pairing")
    return pairing


# Returns the folder in which pytest ran, relative to which a suite's path is.
def _find_root(file: str, report: Path) -> Path | None:
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts or path.suffix != ".py" or "\0" in file:
        return None
    here, written = Path.cwd().resolve(), report.resolve()
    # Up to the root of the project; folders above may be writable by others.
    folders = [here, *here.parents]
    ends = [number for number, each in enumerate(folders) if any((each / name).exists() for name in _ROOT_HAS)]
    project = folders[: ends[0] + 1 if ends else 1]
    # `Path.is_file` raises if the name is too long.
    root = next((folder for folder in project if os.path.isfile(folder / path)), None)  # noqa: PTH113
    if root is None:
        raise ReproductionError(f"no file {file} in {here} or its project: run this command where pytest ran")
    suite = (root / path).resolve()
    if suite.is_relative_to(written):
        raise ReproductionError(f"{file} is in {report}: nothing is imported from a report's own folder")
    return root if suite.is_relative_to(root) else None


def record_signature(pairing: Pairing, record: Record) -> Signature | None:
    """Returns the signature of a record, planned or not; None if the pairing's declaration does not admit it."""
    dims, dtypes = dict(record.dims), dict(record.dtypes)
    options = pairing.options()
    statics = {name: str(value) for name, value in record.statics.items()}
    known = (
        dims.keys() == pairing.dims.keys()
        and statics.keys() == options.keys()
        and all(dtype in pairing.leaves[path].dtypes for path, dtype in dtypes.items() if path in pairing.leaves)
        and all(option in options[name] for name, option in statics.items())
        and pairing.admits(dims, statics)
    )
    if not known:
        return None
    chosen = {pairing.leaves[path].dtypes: dtype for path, dtype in dtypes.items() if path in pairing.leaves}
    signature = Signature.from_choices(pairing, dims, {name: statics[name] for name in options}, chosen)
    return replace(signature, dtype=record.dtype) if dict(signature.dtypes) == dtypes else None


def _arguments(folder: Path, record: Record, pairing: Pairing, signature: Signature) -> dict[str, Array]:
    assert record.evidence is not None
    if not re.fullmatch(r"cases/\w+-\w+\.npz", record.evidence.file, re.ASCII):
        raise ReproductionError(f"{record.evidence.file!r} is not a file of saved inputs")
    dtypes = dict(signature.dtypes)
    expected = {path: (dtypes[path], signature.shape(leaf)) for path, leaf in signature.leaves(pairing).items()}
    most = min(_MOST_BYTES, sum(parse_dtype(dtype).itemsize * math.prod(shape) for dtype, shape in expected.values()))
    try:
        arguments = load_arguments(folder, record.evidence.file, most)
    except RecordError as error:
        raise ReproductionError(str(error)) from error
    if {path: (value.dtype.name, value.shape) for path, value in arguments.items()} != expected:
        raise ReproductionError(f"{record.evidence.file}: the inputs do not fit the signature {signature}")
    return {path: arguments[path] for path, _ in signature.dtypes}
