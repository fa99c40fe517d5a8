"""Judges the saved inputs of a finding again: `kerneltest repro`."""

import importlib.util
import math
import os
import re
import sys
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import ModuleType

from kerneltest.backends.base import Backend
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import Array, parse_dtype
from kerneltest.core.failures import format_exception
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.discovery import iter_pairings
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.group_registry import find_group
from kerneltest.execute.item import Group, Item
from kerneltest.execute.runner import run_case
from kerneltest.execute.settings import RunSettings
from kerneltest.execute.variations import INVARIANTS
from kerneltest.plan.boundaries import DEPTHS
from kerneltest.plan.explicit import DRAWN_FAMILY, ExplicitCase
from kerneltest.plan.families import FAMILIES, Family
from kerneltest.plan.signatures import Signature
from kerneltest.records.artifacts import load_arguments
from kerneltest.records.files import RecordError
from kerneltest.records.record_files import read_plan, read_records, read_reproducers
from kerneltest.records.schema import Record

_MOST_BYTES = 2**30  # of saved inputs
_MOST_ORDERS = 1000  # each runs the kernel once more
_ROOT_HAS = ("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", ".git")


class ReproductionError(ValueError):
    """A finding that cannot be judged again; says what is missing or does not fit."""


def again(folder: Path, case: str, backend: str = "") -> Record:
    """Judges a finding's saved inputs and returns the new record.

    The suite's file is looked for in the current folder and in those above it, up to the root of the project.

    Args:
      folder: of a run, as `--kt-report` wrote it.
      case: the finding's id.
      backend: where to run it; by default where it was found.

    Raises:
      ReproductionError: no such finding, its inputs or its suite do not fit, or the backend cannot serve it.
    """
    try:
        plan = read_plan(folder)
        recorded = [*read_records(folder), *(each.record for each in read_reproducers(folder))]
        saved = [record for record in recorded if record.evidence is not None and record.evidence.file]
    except RecordError as error:
        raise ReproductionError(str(error)) from error
    findings = [record for record in saved if record.case == case]
    if not findings:
        known = sorted({record.case for record in saved if re.fullmatch("[0-9a-f]{16}", record.case)})
        raise ReproductionError(
            f"{folder} has no finding {case!r} with saved inputs; it has "
            + (", ".join(known[:8]) + ", ..." * (len(known) > 8) if known else "none at all")
        )
    record = next((each for each in findings if each.backend == backend), findings[0])
    if plan.depth not in DEPTHS or plan.orders > _MOST_ORDERS:
        raise ReproductionError(f"{folder} has a plan that no run wrote: depth {plan.depth!a}, {plan.orders} orders")
    chosen = _backend(backend or record.backend, plan.orders)
    pairing = pairing_of(record, folder).on(record.backend)
    signature = signature_of(pairing, record)
    if signature is None:
        raise ReproductionError(f"the declaration of {pairing.name} has changed: no signature {record.signature!r}")
    arguments = _arguments(folder, record, pairing, signature)
    group, family = _group_and_family(record)
    settings = RunSettings(depth=plan.depth, seed=plan.seed)
    item = Item(record.item, pairing, record.pairing, chosen, signature.dtype, group, settings)
    if not chosen.tier.gives_values:
        raise ReproductionError(f"{chosen.id} gives no values, which this finding is about")
    if reason := chosen.unavailable():
        raise ReproductionError(f"{chosen.id} unavailable: {reason}")
    cache = Cache()
    try:
        drawn = ExplicitCase(record.pairing, signature, arguments, family=family, target=record.target)
        new_record = run_case(item, drawn, cache).record
    finally:
        cache.pool.close()
    if new_record.verdict is Verdict.UNAVAILABLE:
        raise ReproductionError(f"{chosen.id} unavailable: {new_record.message}")
    return new_record


def _group_and_family(record: Record) -> tuple[Group, Family]:
    """Under what the case was recorded; only together do they say how it was judged."""
    group = find_group(record.group)
    varied = INVARIANTS.get(record.family)
    family = varied.family if varied else FAMILIES.get(record.family, DRAWN_FAMILY)
    if group is not None:
        family = group.find_family(record.family) or family
    if group is None or family.group != record.group:
        raise ReproductionError(f"{record.family!a} is no family of the group {record.group!a}")
    return group, family


def _backend(name: str, orders: int) -> Backend:
    try:
        (chosen,) = resolve([name], orders)
    except ValueError as error:
        raise ReproductionError(f"choose one backend, not {name!r}: {error}") from error
    return chosen


def pairing_of(record: Record, report: Path) -> Pairing:
    """The pairing that a record is about, imported from its suite, whose path is relative to where pytest ran.

    Names in records come from outside, and so may the files beside them: what is imported must lie below the folder
    that it is looked for in, and not in the report's.

    Args:
      record: that names the pairing.
      report: the folder of the run that the record is from.

    Raises:
      ReproductionError: there is none under that name, or it is not to be imported.
    """
    file, *names = record.pairing.split("::")
    root = _root_of(file, report) if names else None
    if root is None:
        raise ReproductionError(f"{record.pairing!a} names no pairing below the current project")
    try:
        found: object = _imported(root, root / file)
        *outer, last = names
        for name in outer:
            found = getattr(found, name)
        pairing = dict(iter_pairings(last.partition("[")[0], getattr(found, last.partition("[")[0]))).get(last)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module that skips itself or exits raises no Exception
        raise ReproductionError(f"cannot import {record.pairing}: {format_exception(error)}") from error
    if pairing is None:
        raise ReproductionError(f"{record.pairing} is no pairing")
    return pairing


def _root_of(file: str, report: Path) -> Path | None:
    """The folder that pytest ran in, which holds a suite's file; None where that is no relative path of a module.

    Raises:
      ReproductionError: there is no such file, or it is not to be imported.
    """
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts or path.suffix != ".py" or "\0" in file:
        return None
    here, written = Path.cwd().resolve(), report.resolve()
    # A path's own `is_file` raises where the name is too long.
    root = next((each for each in _project(here) if os.path.isfile(each / path)), None)  # noqa: PTH113
    if root is None:
        raise ReproductionError(f"no file {file} in {here} or its project: run this in the folder in which pytest ran")
    suite = (root / path).resolve()
    if suite.is_relative_to(written):
        raise ReproductionError(f"{file} lies in {report}: nothing in a report's own folder is imported")
    return root if suite.is_relative_to(root) else None


def _project(here: Path) -> list[Path]:
    """A folder, and those above it up to the root of its project; nothing beyond, where anybody may write."""
    folders = [here, *here.parents]
    ends = [number for number, each in enumerate(folders) if any((each / name).exists() for name in _ROOT_HAS)]
    return folders[: ends[0] + 1 if ends else 1]


def _imported(root: Path, suite: Path) -> ModuleType:
    """A suite's module, by its path, so that its folders may be called as they like; named as pytest names it."""
    home = suite.parent
    while (home / "__init__.py").exists() and home != root:
        home = home.parent  # as pytest does: a package is imported from the folder that holds it
    sys.path[:0] = [str(home), str(root)]
    name = ".".join(suite.relative_to(home).with_suffix("").parts)
    spec = importlib.util.spec_from_file_location(name, suite)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def signature_of(pairing: Pairing, record: Record) -> Signature | None:
    """The signature of a record, planned or not; None where the pairing's declaration does not have it."""
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
    made = Signature.from_choices(pairing, dims, {name: statics[name] for name in options}, chosen)
    return replace(made, dtype=record.dtype) if dict(made.dtypes) == dtypes else None


def _arguments(folder: Path, record: Record, pairing: Pairing, signature: Signature) -> dict[str, Array]:
    assert record.evidence is not None
    if not re.fullmatch(r"cases/\w+-\w+\.npz", record.evidence.file, re.ASCII):
        raise ReproductionError(f"{record.evidence.file!r} is no file of saved inputs")
    dtypes = dict(signature.dtypes)
    wanted = {path: (dtypes[path], signature.shape(leaf)) for path, leaf in signature.leaves(pairing).items()}
    most = min(_MOST_BYTES, sum(parse_dtype(dtype).itemsize * math.prod(shape) for dtype, shape in wanted.values()))
    try:
        arguments = load_arguments(folder, record.evidence.file, most)
    except RecordError as error:
        raise ReproductionError(str(error)) from error
    if {path: (value.dtype.name, value.shape) for path, value in arguments.items()} != wanted:
        raise ReproductionError(f"{record.evidence.file}: the inputs do not fit the signature {signature}")
    return {path: arguments[path] for path, _ in signature.dtypes}
