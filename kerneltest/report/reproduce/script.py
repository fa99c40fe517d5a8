"""Writes a finding as a script that shows it again, without kerneltest where that is possible."""

import inspect
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

import jax

from kerneltest.backends.interpret import OPTIONS
from kerneltest.core.tiers import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.arguments import Argument, ArrayArgument, DimSize, Static, Tree
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.signatures import Signature
from kerneltest.records.schema import Record
from kerneltest.report.reproduce.again import find_signature
from kerneltest.run.item import Item
from kerneltest.run.variations import Varied

_BODY = Path(__file__).with_name("script_body.py.txt")
_SHOWN_BY_VALUES = (Verdict.MISMATCH, Verdict.SPECIAL_MISMATCH, Verdict.RUNTIME_ERROR)

_AGAIN = '''"""Judges a finding of kerneltest again; needs kerneltest, and its suite below the current folder.

Exits with 1 while it is found, with 0 once it is not.
"""

import sys
from pathlib import Path
from string import Template

from kerneltest.cli import main

sys.exit(main(["repro", str(Path(__file__).parent.parent), {case}, "--backend", {backend}]))
'''


def save_script(folder: Path, record: Record, item: Item) -> Path:
    """Writes `cases/reproduce_CASE-BACKEND.py` beside a finding's saved inputs; returns its path."""
    assert record.evidence is not None
    inputs = Path(record.evidence.file)
    path = folder / inputs.with_name(f"reproduce_{inputs.stem}.py")
    path.write_text(_text(path, record, item), encoding="utf-8")
    return path


def _text(path: Path, record: Record, item: Item) -> str:
    signature = find_signature(item.pairing, item.depth, record.signature)
    # An invariant calls the kernel in ways of its own.
    plain = not isinstance(item.group, Varied) and record.verdict in _SHOWN_BY_VALUES
    alone = plain and item.backend.runs_jaxpr
    if alone and signature is not None:
        try:
            return _standalone(path, record, item, signature)
        except _NotImportableError:
            pass
    return _AGAIN.format(case=ascii(record.case), backend=ascii(record.backend))


class _NotImportableError(Exception):
    """Neither the kernel nor its pairing has a name under which a script could import it."""


def _standalone(path: Path, record: Record, item: Item, signature: Signature) -> str:
    pairing, evidence, folders = item.pairing, record.evidence, _Folders(path.parent)
    assert evidence is not None
    interpreted = item.backend.tier is Tier.INTERPRET
    options: Mapping[str, Any] = OPTIONS if interpreted else {}
    call = _call(pairing, signature, folders)
    kernel = folders.of_object(pairing.kernel) or f"{folders.of_pairing(pairing)}.kernel"
    needs = "NumPy, JAX (with its ml_dtypes) and the kernel's module"
    if folders.uses_pairing:
        needs += ".\nAlso kerneltest: its pairing is imported, since the kernel or an option has no name of its own"
    constants = {
        "FOUND": f"{record.verdict}: {record.message}",
        "INPUTS": Path(evidence.file).name,
        "FOLDERS": folders.seen,
        "PLATFORM": "cpu" if interpreted else item.backend.id,
        "INTERPRET": interpreted,
        "OPTIONS": dict(options),
        "X64": bool(jax.config.read("jax_enable_x64")),
        "OUTPUT": evidence.output,
        "INDEX": evidence.index if evidence.actual is not None else None,
        "EXPECTED": evidence.expected,
        "BOUND": evidence.bound,
        "SIGNED_ZEROS": pairing.signed_zeros,
    }
    lines = "\n".join(f"{name} = {_literal(value)}" for name, value in constants.items())
    return Template(_BODY.read_text(encoding="utf-8")).substitute(
        constants=lines, needs=needs, kernel=kernel, call=call
    )


class _Folders:
    """What a script imports, and the folders in which that lies, relative to the script's own."""

    def __init__(self, here: Path) -> None:
        self.here = here.resolve()
        self.seen: list[str] = []
        self.uses_pairing = False

    def of_object(self, value: Any) -> str | None:
        """An expression that imports a function or a class, or None where it has no importable name."""
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if not isinstance(module, str) or not isinstance(name, str):
            return None
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        return self._expression(module, name) if found is value and module != "__main__" else None

    def of_pairing(self, pairing: Pairing) -> str:
        """An expression that imports a pairing from its suite."""
        self.uses_pairing = True
        for name, value in vars(sys.modules.get(pairing.module, object)).items():
            if value is pairing:
                return self._expression(pairing.module, name)
        raise _NotImportableError

    def _expression(self, module: str, name: str) -> str:
        file = Path(getattr(sys.modules[module], "__file__", None) or ".").resolve()
        if not file.is_relative_to(sys.prefix) and file.is_file():
            root = file.parents[module.count(".") + (file.name == "__init__.py")]
            relative = Path(os.path.relpath(root, self.here)).as_posix()
            if relative not in self.seen:
                self.seen.append(relative)
        return f"imported({_literal(module)}, {_literal(name)})"


def _call(pairing: Pairing, signature: Signature, folders: _Folders) -> str:
    """The kernel's arguments: by position as far as its signature goes, as `Pairing.call_kernel` passes them."""
    left = {name: _argument(name, each, pairing, signature, folders) for name, each in pairing.arguments.items()}
    written = []
    for name, parameter in inspect.signature(pairing.kernel).parameters.items():
        if name not in left or parameter.kind is parameter.KEYWORD_ONLY:
            break
        written.append(left.pop(name))
    return ", ".join([*written, *(f"{name}={text}" for name, text in left.items())])


def _argument(name: str, argument: Argument, pairing: Pairing, signature: Signature, folders: _Folders) -> str:
    match argument:
        case ArrayArgument():
            return f"x[{_literal(name)}]"
        case DimSize():
            return str(dict(signature.dims)[argument.dim])
        case Tree():
            return _tree(name, argument.branches)
        case Static():
            option = dict(signature.statics)[name]
            value = argument.value(option)
            try:
                return folders.of_object(value) or _literal(value)
            except TypeError:
                return f"{folders.of_pairing(pairing)}.arguments[{_literal(name)}].value({_literal(option)})"


def _tree(path: str, branches: Any) -> str:
    if isinstance(branches, Mapping):
        inner = [f"{_literal(key)}: {_tree(f'{path}.{key}', branch)}" for key, branch in branches.items()]
        return "{" + ", ".join(inner) + "}"
    if isinstance(branches, (list, tuple)):
        inner = [_tree(f"{path}.{i}", branch) for i, branch in enumerate(branches)]
        return f"[{', '.join(inner)}]" if isinstance(branches, list) else f"({''.join(i + ',' for i in inner)})"
    return f"x[{_literal(path)}]"


def _literal(value: Any) -> str:
    """Python source of a plain value, ASCII alone, so that nothing in a record can become code.

    Raises:
      TypeError: it is not one.
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(k)}: {_literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' * (len(value) == 1)})"
    if type(value) is float:
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    if value is None or type(value) in (bool, int, str):
        return ascii(value)
    raise TypeError(f"{type(value).__name__} is no literal")
