"""Judges the saved inputs of a finding again: `kerneltest repro`."""

import re
import sys
from importlib import import_module
from pathlib import Path, PurePosixPath
from zipfile import BadZipFile

from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import Array
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.drawn import DRAWN, DrawnCase, pool
from kerneltest.plan.families import FAMILIES
from kerneltest.plan.signatures import Signature, dtypes_of, signatures
from kerneltest.records.arrays import load_arguments
from kerneltest.records.io import RecordError, read_plan, read_records
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
        plan, records = (
            read_plan(folder),
            [r for r in read_records(folder) if r.evidence is not None and r.evidence.file],
        )
        (chosen,) = resolve([backend]) if backend else (None,)
    except RecordError as error:
        raise ReproductionError(str(error)) from error
    except ValueError as error:
        raise ReproductionError(f"choose one backend, not {backend!r}: {error}") from error
    found = [record for record in records if record.case == case]
    if not found:
        known = sorted({record.case for record in records if re.fullmatch("[0-9a-f]{16}", record.case)})
        raise ReproductionError(
            f"{folder} has no finding {case!r} with saved inputs; it has "
            + (", ".join(known[:8]) + ", ..." * (len(known) > 8) if known else "none at all")
        )
    record = next((r for r in found if r.backend == backend), found[0])
    chosen = chosen or resolve([record.backend])[0]
    pairing = pairing_of(record)
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
        found_again = judged(item, drawn, cache).record
    finally:
        cache.pool.shutdown()
    if found_again.verdict is Verdict.UNAVAILABLE:
        raise ReproductionError(f"{chosen.id} unavailable: {found_again.message}")
    return found_again


def pairing_of(record: Record) -> Pairing:
    """The pairing that a record is about, imported from the suite below the current folder.

    Raises:
      ReproductionError: there is none under that name.
    """
    file, *names = record.pairing.split("::")
    path = PurePosixPath(file)
    # Names in records come from outside: what is imported must lie below the current folder.
    inside = (Path.cwd() / path).resolve().is_relative_to(Path.cwd()) and not path.is_absolute()
    if not (inside and path.suffix == ".py" and names and all(map(str.isidentifier, [*path.with_suffix("").parts]))):
        raise ReproductionError(f"{record.pairing!r} names no pairing below the current folder")
    if not Path(path).is_file():
        raise ReproductionError(f"no file {file} here: run this in the folder in which pytest ran")
    root = Path.cwd() / path.parent
    while (root / "__init__.py").exists() and root != Path.cwd():
        root = root.parent  # as pytest does: a package is imported from the folder that holds it
    sys.path[:0] = [str(root), str(Path.cwd())]
    module = ".".join((Path.cwd() / path).with_suffix("").relative_to(root).parts)
    try:
        found: object = import_module(module)
        for name in names:
            found = getattr(found, name)
    except Exception as error:
        raise ReproductionError(f"cannot import {record.pairing}: {type(error).__name__}: {error}") from error
    if not isinstance(found, Pairing):
        raise ReproductionError(f"{record.pairing} is no pairing")
    return found


def signature_of(pairing: Pairing, plan: Plan, record: Record) -> Signature:
    """The signature of a record, planned or drawn.

    Raises:
      ReproductionError: the pairing's declaration no longer has it.
    """
    found = find_signature(pairing, plan.depth, record.signature)
    if found is None:
        raise ReproductionError(f"the declaration of {pairing.name} has changed: no signature {record.signature!r}")
    return found


def find_signature(pairing: Pairing, depth: str, text: str) -> Signature | None:
    """The signature that reads so in records."""
    drawn = [s for kind in dtypes_of(pairing, depth) for s in pool(pairing, depth, kind)]
    return next((s for s in [*signatures(pairing, depth), *drawn] if str(s) == text), None)


def _arguments(folder: Path, record: Record, pairing: Pairing, signature: Signature) -> dict[str, Array]:
    assert record.evidence is not None
    if not re.fullmatch(r"cases/\w+-\w+\.npz", record.evidence.file, re.ASCII):
        raise ReproductionError(f"{record.evidence.file!r} is no file of saved inputs")
    try:
        arguments = load_arguments(folder / record.evidence.file)
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise ReproductionError(f"{record.evidence.file}: no readable inputs: {error}") from error
    kinds = dict(signature.dtypes)
    wanted = {path: (kinds[path], signature.shape(leaf)) for path, leaf in pairing.leaves.items()}
    if {path: (value.dtype.name, value.shape) for path, value in arguments.items()} != wanted:
        raise ReproductionError(f"{record.evidence.file}: the inputs do not fit the signature {signature}")
    return {path: arguments[path] for path in pairing.leaves}
