"""Judges the saved inputs of a finding again: `kerneltest repro`."""

import re
import sys
from importlib import import_module
from pathlib import Path, PurePosixPath
from zipfile import BadZipFile

from kerneltest.backends.base import Backend
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import Array
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.drawn import DRAWN, DrawnCase, pool
from kerneltest.plan.families import FAMILIES
from kerneltest.plan.signatures import Signature, dtypes_of, signatures
from kerneltest.records.io import RecordError, load_arguments, read_plan, read_records
from kerneltest.records.schema import Plan, Record
from kerneltest.run.cache import Cache
from kerneltest.run.item import Item
from kerneltest.run.planning import group_called
from kerneltest.run.runner import judged
from kerneltest.run.variations import INVARIANTS


class ReproductionError(ValueError):
    """A finding that cannot be judged again; says what is missing or does not fit."""


def again(folder: Path, case: str, backend: str = "") -> Record:
    """Judges a finding's saved inputs and returns the new record.

    The suite is imported from the current folder, which is to be the one that pytest ran in.

    Args:
      folder: of a run, as `--kt-report` wrote it.
      case: the finding's id.
      backend: where to run it; by default where it was found.

    Raises:
      ReproductionError: no such finding, its inputs or its suite do not fit, or the backend cannot serve it.
    """
    try:
        plan = read_plan(folder)
        saved = [record for record in read_records(folder) if record.evidence is not None and record.evidence.file]
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
    chosen = _backend(backend or record.backend, plan.orders)
    pairing = pairing_of(record, folder)
    signature = signature_of(pairing, plan, record)
    arguments = _arguments(folder, record, pairing, signature)
    group = group_called(record.group)
    item = Item(record.item, pairing, record.pairing, chosen, record.dtype, group, plan.depth, plan.seed)
    varied = INVARIANTS.get(record.family)
    family = varied.family if varied else FAMILIES.get(record.family, DRAWN)
    if not chosen.tier.gives_values:
        raise ReproductionError(f"{chosen.id} gives no values, which this finding is about")
    if reason := chosen.unavailable():
        raise ReproductionError(f"{chosen.id} unavailable: {reason}")
    cache = Cache()
    try:
        drawn = DrawnCase(record.pairing, signature, arguments, family=family, target=record.target)
        new_record = judged(item, drawn, cache).record
    finally:
        cache.pool.close()
    if new_record.verdict is Verdict.UNAVAILABLE:
        raise ReproductionError(f"{chosen.id} unavailable: {new_record.message}")
    return new_record


def _backend(name: str, orders: int) -> Backend:
    try:
        (chosen,) = resolve([name], orders)
    except ValueError as error:
        raise ReproductionError(f"choose one backend, not {name!r}: {error}") from error
    return chosen


def pairing_of(record: Record, report: Path) -> Pairing:
    """The pairing that a record is about, imported from the suite below the current folder.

    Names in records come from outside, and so may the files beside them: what is imported must lie below the current
    folder, and not in the report's.

    Args:
      record: that names the pairing.
      report: the folder of the run that the record is from.

    Raises:
      ReproductionError: there is none under that name, or it is not to be imported.
    """
    file, *names = record.pairing.split("::")
    path = PurePosixPath(file)
    here, suite = Path.cwd().resolve(), (Path.cwd() / path).resolve()
    inside = suite.is_relative_to(here) and not path.is_absolute()
    if not (inside and path.suffix == ".py" and names and all(map(str.isidentifier, path.with_suffix("").parts))):
        raise ReproductionError(f"{record.pairing!r} names no pairing below the current folder")
    if not suite.is_file():
        raise ReproductionError(f"no file {file} here: run this in the folder in which pytest ran")
    if any(folder.samefile(report) for folder in suite.parents):
        raise ReproductionError(f"{file} lies in {report}: nothing in a report's own folder is imported")
    root = here / path.parent
    while (root / "__init__.py").exists() and root != here:
        root = root.parent  # as pytest does: a package is imported from the folder that holds it
    sys.path[:0] = [str(root), str(here)]
    module = ".".join((here / path).with_suffix("").relative_to(root).parts)
    try:
        pairing: object = import_module(module)
        for name in names:
            pairing = getattr(pairing, name)
    except Exception as error:
        raise ReproductionError(f"cannot import {record.pairing}: {type(error).__name__}: {error}") from error
    if not isinstance(pairing, Pairing):
        raise ReproductionError(f"{record.pairing} is no pairing")
    return pairing


def signature_of(pairing: Pairing, plan: Plan, record: Record) -> Signature:
    """The signature of a record, planned or drawn.

    Raises:
      ReproductionError: the pairing's declaration no longer has it.
    """
    signature = find_signature(pairing, plan.depth, record.signature)
    if signature is None:
        raise ReproductionError(f"the declaration of {pairing.name} has changed: no signature {record.signature!r}")
    return signature


def find_signature(pairing: Pairing, depth: str, text: str) -> Signature | None:
    """The signature that reads so in records."""
    drawn = [each for dtype in dtypes_of(pairing, depth) for each in pool(pairing, depth, dtype)]
    return next((each for each in [*signatures(pairing, depth), *drawn] if str(each) == text), None)


def _arguments(folder: Path, record: Record, pairing: Pairing, signature: Signature) -> dict[str, Array]:
    assert record.evidence is not None
    if not re.fullmatch(r"cases/\w+-\w+\.npz", record.evidence.file, re.ASCII):
        raise ReproductionError(f"{record.evidence.file!r} is no file of saved inputs")
    try:
        arguments = load_arguments(folder / record.evidence.file)
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise ReproductionError(f"{record.evidence.file}: no readable inputs: {error}") from error
    dtypes = dict(signature.dtypes)
    wanted = {path: (dtypes[path], signature.shape(leaf)) for path, leaf in pairing.leaves.items()}
    if {path: (value.dtype.name, value.shape) for path, value in arguments.items()} != wanted:
        raise ReproductionError(f"{record.evidence.file}: the inputs do not fit the signature {signature}")
    return {path: arguments[path] for path in pairing.leaves}
