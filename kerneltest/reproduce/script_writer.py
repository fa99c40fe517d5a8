"""Writes scripts that reproduce findings, without kerneltest if possible.

A script is the text of `standalone.py` or `rejudge.py` with the constants between its two comments filled in. They are
literals, so that names from records and suites never become code.
"""

import inspect
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import jax

from kerneltest.core.details import WrongDtype
from kerneltest.core.dtypes import Array
from kerneltest.core.files import open_inside
from kerneltest.core.fingerprint import find_object
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.arguments import Argument, ArrayArgument, DimSize, Optional, Static, Tree
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.invariant_group import InvariantGroup
from kerneltest.execute.item import Item
from kerneltest.plan.signatures import Signature
from kerneltest.records.files import slug
from kerneltest.records.record_files import save_arguments
from kerneltest.records.schema import Record
from kerneltest.reproduce.rerun import record_signature
from kerneltest.trace.jax_environment import AS_WRITTEN, PORTABLE_OPTIONS
from kerneltest.trace.jaxpr_source import NoSourceError, literal

_SHOWN_BY_VALUES = (Verdict.MISMATCH, Verdict.SPECIAL_MISMATCH, Verdict.RUNTIME_ERROR)
_BEFORE = "# The finding. Names are imported; nothing here is code.\n"
_AFTER = "# Reproduction.\n"

Description = tuple[object, ...]
"""The description of a value, from which `standalone.value` builds it."""


def save_reproduction(
    folder: Path, record: Record, item: Item, arguments: Mapping[str, Array], run_folder: Path | None = None
) -> Record:
    """Saves a finding's inputs, and a script to run in `run_folder` (or `folder`); returns the record with both."""
    assert record.evidence is not None
    file = save_arguments(folder, f"{record.case}-{slug(record.backend)}", arguments)
    record = replace(record, evidence=replace(record.evidence, file=file))
    assert record.evidence is not None
    path = Path(file).with_name(f"reproduce_{Path(file).stem}.py")
    with open_inside(folder, path.as_posix(), "wb") as script:
        script.write(_text((run_folder or folder) / path, record, item).encode())
    return replace(record, evidence=replace(record.evidence, script=path.as_posix()))


def _text(path: Path, record: Record, item: Item) -> str:
    signature = record_signature(item.pairing, record)
    # An invariant does not call the kernel plainly.
    shown_by_values = not isinstance(item.group, InvariantGroup) and record.verdict in _SHOWN_BY_VALUES
    shown_by_values &= not isinstance(record.detail, WrongDtype) and item.pairing.unordered is None
    if shown_by_values and item.backend.runs_jaxpr and signature is not None:
        try:
            return fill_script("standalone.py", _constants(path, record, item, signature))
        except _NotImportableError:
            pass
    return fill_script("rejudge.py", {"CASE": record.case, "BACKEND": record.backend})


# A script cannot import the kernel: neither it nor its pairing has an importable name.
class _NotImportableError(Exception):
    pass


def fill_script(script: str, constants: Mapping[str, object]) -> str:
    """Returns the text of a script of this folder with its constants filled in, which must be plain values."""
    text = files("kerneltest.reproduce").joinpath(script).read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEFORE)
    _, _, after = rest.partition(_AFTER)
    lines = [f"{name} = {literal(value)}\n" for name, value in constants.items()]
    return "".join([before, _BEFORE, *lines, _AFTER, after])


def _constants(path: Path, record: Record, item: Item, signature: Signature) -> dict[str, object]:
    pairing, evidence, imports = item.pairing, record.evidence, _Imports(path.parent)
    assert evidence is not None
    interpreted = item.backend.tier is Tier.INTERPRET
    kernel = imports.of_object(pairing.kernel) or imports.of_pairing(pairing, "kernel")
    positional, keywords = _call(pairing, signature, imports)
    needs = "NumPy, JAX (with its ml_dtypes) and the kernel's module"
    if imports.uses_pairing:
        needs += ". Also kerneltest: the kernel or an option has no name, so its pairing is imported"
    return {
        "FOUND": f"{record.verdict}: {record.message}",
        "NEEDS": needs,
        "KERNEL": kernel,
        "POSITIONAL": positional,
        "KEYWORDS": keywords,
        "INPUTS": Path(evidence.file).name,
        "FOLDERS": imports.folders,
        "PLATFORM": "cpu" if interpreted else item.backend.id,
        "INTERPRET": interpreted,
        "COMPILER_OPTIONS": {**PORTABLE_OPTIONS, **AS_WRITTEN} if interpreted else {},
        "X64": bool(jax.config.read("jax_enable_x64")),
        "OUTPUT": evidence.output,
        "INDEX": evidence.index if evidence.actual is not None else None,
        "EXPECTED": evidence.expected,
        "BOUND": evidence.bound,
        "SIGNED_ZEROS": pairing.signed_zeros,
    }


class _Imports:
    def __init__(self, here: Path) -> None:
        self._here = here.resolve()
        self.folders: list[str] = []
        self.uses_pairing = False

    def of_object(self, wanted: object) -> Description | None:
        module, name = getattr(wanted, "__module__", None), getattr(wanted, "__qualname__", None)
        if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
            return None
        return self._describe(module, name) if find_object(module, name) is wanted else None

    def of_pairing(self, pairing: Pairing, attribute: str) -> Description:
        module, name = self._suite(pairing)
        return self._describe(module, f"{name}.{attribute}")

    def of_argument(self, pairing: Pairing, argument: str) -> tuple[str, ...]:
        module, name = self._suite(pairing)
        _, *named = self._describe(module, name)
        return (*named, argument)

    def _suite(self, pairing: Pairing) -> tuple[str, str]:
        self.uses_pairing = True
        for name, value in vars(sys.modules.get(pairing.module, object)).items():
            if getattr(value, "arguments", None) is pairing.arguments:  # or is what it is on a backend
                return pairing.module, name
        raise _NotImportableError

    def _describe(self, module: str, name: str) -> tuple[str, str, str]:
        file = Path(getattr(sys.modules[module], "__file__", None) or ".").resolve()
        if not file.is_relative_to(sys.prefix) and file.is_file():
            root = file.parents[module.count(".") + (file.name == "__init__.py")]
            folder = Path(os.path.relpath(root, self._here)).as_posix()
            if folder not in self.folders:
                self.folders.append(folder)
        return "import", module, name


def _call(
    pairing: Pairing, signature: Signature, imports: _Imports
) -> tuple[list[Description], dict[str, Description]]:
    parameters, present = inspect.signature(pairing.kernel).parameters, {path for path, _ in signature.dtypes}
    left: dict[str, Description] = {}
    for name, argument in pairing.arguments.items():
        absent = isinstance(argument, Optional) and not present & {*pairing.optionals[name]}
        if not absent or parameters[name].default is inspect.Parameter.empty:
            left[name] = ("literal", None) if absent else _argument(name, argument, pairing, signature, imports)
    positional = []
    for name, parameter in parameters.items():
        if name not in left or parameter.kind is parameter.KEYWORD_ONLY:
            break
        positional.append(left.pop(name))
    return positional, left


def _argument(name: str, argument: Argument, pairing: Pairing, signature: Signature, imports: _Imports) -> Description:
    match argument:
        case ArrayArgument():
            return ("key" if argument.kind.is_key_object else "array"), name
        case Optional():
            return _argument(name, argument.argument, pairing, signature, imports)
        case DimSize():
            return "literal", dict(signature.dims)[argument.dim]
        case Tree():
            if _is_plain(argument.branches):
                return _tree(name, argument.branches)
            return ("tree", *imports.of_argument(pairing, name))
        case Static():
            option = dict(signature.statics)[name]
            value = argument.value(option)
            if described := imports.of_object(value):
                return described
            try:
                literal(value)
            except NoSourceError:
                return ("option", *imports.of_argument(pairing, name), option)
            return "literal", value


def _is_plain(branches: Any) -> bool:
    if type(branches) in (dict, list, tuple):
        return all(map(_is_plain, branches.values() if type(branches) is dict else branches))
    return isinstance(branches, ArrayArgument) and not branches.kind.is_key_object


def _tree(path: str, branches: object) -> Description:
    if isinstance(branches, dict):
        return "dict", {key: _tree(f"{path}.{key}", branch) for key, branch in branches.items()}
    if isinstance(branches, (list, tuple)):
        inner = [_tree(f"{path}.{i}", branch) for i, branch in enumerate(branches)]
        return ("list" if isinstance(branches, list) else "tuple"), inner
    return "array", path
