"""`kerneltest init`: infers the pairing of a kernel from calls of it, and writes its file."""

import sys
import types
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kerneltest.core.dtypes import is_float, parse_dtype
from kerneltest.core.failures import Failure, exception_text
from kerneltest.core.runtime import show_warnings_once
from kerneltest.declare.dims import Dim
from kerneltest.declare.kinds.array_argument import DEFAULT_FLOATS
from kerneltest.declare.pairing import ALL_PAIRINGS, Pairing
from kerneltest.plan.signatures import signatures
from kerneltest.start.declaration import Declaration
from kerneltest.start.dim_inference import infer_dims
from kerneltest.start.dim_names import name_dims
from kerneltest.start.example_calls import Example, KernelFunction, StartError
from kerneltest.start.length_inference import InferredLengths, dims_to_pin, infer_lengths
from kerneltest.start.trace_probe import Lengths, LengthSlot, Probe
from kerneltest.trace.tracing import trace, without_debugging


def write_pairing(kernel: KernelFunction, examples: Sequence[Example], folder: Path) -> tuple[Path, Declaration]:
    """Writes `test_NAME.py` for a kernel, and returns its path and content.

    Args:
      kernel: the kernel to pair.
      examples: calls of it; the first is traced, the others separate axes and add options.
      folder: the folder of the file.

    Raises:
      StartError: the file exists, or the call cannot be declared.
    """
    path = folder / f"test_{kernel.name}.py"
    if path.exists():
        raise StartError(f"{path} already exists; move it, or choose another folder with --output")
    declaration = infer_declaration(kernel, examples)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(declaration.source(), encoding="utf-8")
    return path, declaration


def infer_declaration(kernel: KernelFunction, examples: Sequence[Example]) -> Declaration:
    """Infers the declaration of a kernel from calls of it and from traces at other lengths.

    Raises:
      StartError: the call cannot be traced or declared.
    """
    first, compatible = examples[0], [each for each in examples if _are_compatible(each, examples[0])]
    probe = Probe(kernel, first)
    axes = infer_dims(probe, [_lengths(probe, each) for each in compatible[1:]])
    ranks = {path: len(leaf.shape) for path, leaf in first.leaves.items()}
    names = name_dims(kernel.function, axes.dims, ranks)
    dims = dict(zip(names, axes.dims, strict=True))
    inferred = {name: infer_lengths(probe, slots) for name, slots in dims.items()}
    declaration = Declaration(
        kernel=kernel,
        example=first,
        options={name: _distinct([each.statics[name] for each in compatible]) for name in first.statics},
        axes={slot: name for name, slots in dims.items() for slot in slots},
        dims=_dims(inferred),
        dtypes=_dtypes(compatible),
        excludes_extremes=any(is_float(leaf.dtype) for leaf in first.leaves.values()) and not probe.trace({}).exact,
        outputs=_outputs(probe, dims),
        notes=(*axes.assumptions, *_notes(inferred)),
    )
    declaration = replace(
        declaration, notes=(*declaration.notes, *_integers(declaration), *_more_dtypes(probe, declaration.dtypes))
    )
    return _exclude_rejected(declaration, probe, dims)


def _are_compatible(one: Example, other: Example) -> bool:
    """Returns whether two calls have the same arguments except for lengths and values."""
    kinds = [
        {path: ("float" if is_float(leaf.dtype) else leaf.dtype, len(leaf.shape)) for path, leaf in each.leaves.items()}
        for each in (one, other)
    ]
    return kinds[0] == kinds[1] and one.statics.keys() == other.statics.keys()


def _dims(inferred: dict[str, InferredLengths]) -> dict[str, Dim]:
    """Returns the dims; those with a program for each index get few lengths, so that arrays stay small."""
    rows = {name for name, each in inferred.items() if each.program_per_index and each.dim == Dim()}
    few = rows if len(rows) < len(inferred) else set()
    return {name: Dim(values=_FEW) if name in few else each.dim for name, each in inferred.items()}


_FEW = (1, 2, 5)


def _distinct(values: Sequence[Any]) -> list[Any]:
    """Returns distinct values, which need not be hashable."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _lengths(probe: Probe, example: Example) -> Lengths:
    return {
        slot: example.statics[slot.path] if slot.axis is None else example.leaves[slot.path].shape[slot.axis]
        for slot in probe.lengths
    }


def _dtypes(examples: Sequence[Example]) -> tuple[str, ...]:
    """Returns the dtypes that the float arrays were observed in; () if a call mixes several."""
    seen = [{str(leaf.dtype) for leaf in each.leaves.values() if is_float(leaf.dtype)} for each in examples]
    return () if any(len(each) != 1 for each in seen) else tuple(dict.fromkeys(name for each in seen for name in each))


def _more_dtypes(probe: Probe, seen: tuple[str, ...]) -> list[str]:
    """Returns a note on dtypes that the kernel accepts but no call has."""
    floats = {path: leaf.dtype for path, leaf in probe.example.leaves.items() if is_float(leaf.dtype)}
    others = [name for name in DEFAULT_FLOATS if name not in seen and _accepts(probe, floats, parse_dtype(name))]
    if not (others and seen):
        return []
    return [
        f"it was called in {' and '.join(seen)} and can be traced in {' and '.join(others)} too: add those it supports"
    ]


def _accepts(probe: Probe, floats: dict[str, np.dtype[Any]], dtype: np.dtype[Any]) -> bool:
    try:
        probe.trace({}, dict.fromkeys(floats, dtype))
    except Failure:
        return False
    return True


def _outputs(probe: Probe, dims: dict[str, tuple[LengthSlot, ...]]) -> tuple[str, ...]:
    """Returns the shape of each output as formulas of dims, from how it changes with the length of each dim."""
    here = probe.trace_lengths({})
    assert here is not None
    grown = {}
    for name, slots in dims.items():
        length = probe.lengths[slots[0]]
        for other in (2 * length, 3 * length, length + 1, length // 2):
            look = probe.trace_lengths(dict.fromkeys(slots, other)) if other else None
            if look is not None:
                grown[name] = (length, other, look.outputs)
                break
    shapes = []
    for number, shape in enumerate(here.outputs):
        axes = []
        for axis, length in enumerate(shape):
            parts = [
                (name, (there[number][axis] - length) / (new - old), old)
                for name, (old, new, there) in grown.items()
                if len(there) == len(here.outputs)
                and len(there[number]) == len(shape)
                and there[number][axis] != length
            ]
            axes.append(_formula(length, parts))
        shapes.append(f"({', '.join(axes)})")
    return tuple(shapes)


def _formula(length: int, parts: list[tuple[str, float, int]]) -> str:
    """Returns a length as a formula of dims.

    Args:
      length: the length in the example.
      parts: the dims that it depends on: name, slope, and the dim's length in the example.
    """
    match parts:
        case []:
            return str(length)
        case [(name, slope, own)] if slope == int(slope):
            rest = length - int(slope) * own
            times = "" if slope == 1 else f"{int(slope)} * "
            return f"{times}{name}{f' + {rest}' if rest > 0 else f' - {-rest}' if rest else ''}"
    return f"{length} where {' and '.join(f'{name} is {own}' for name, _, own in parts)}"


def _notes(inferred: dict[str, InferredLengths]) -> list[str]:
    notes = []
    for name, each in inferred.items():
        if each.whole_block and each.dim.multiple_of % each.whole_block:
            who = (
                f"the grid has {name} // {each.whole_block} programs"
                if each.counted_by_grid
                else f"a length in the kernel is {name} // {each.whole_block}"
            )
            notes.append(
                f"{name}: {who}, so a tail may be skipped; if only multiples of {each.whole_block} are valid, declare "
                f"kt.dim(multiple_of={each.whole_block})"
            )
        for lengths, does in ((each.rejected, "raises"), (each.unlowered, "does not lower")):
            if lengths:
                shown = ", ".join(map(str, lengths[:6])) + (", ..." if len(lengths) > 6 else "")
                notes.append(f"{name}: the kernel {does} at lengths such as {shown}, so they are excluded")
    return notes


def _integers(declaration: Declaration) -> list[str]:
    """Returns notes on integer arrays that may hold positions or counts, with the declarations for these."""
    notes = []
    for path in declaration.example.leaves:
        if declaration.may_point(path):
            shape = " ".join(declaration.shape(path))
            dim = next(iter(reversed(list(declaration.dims))), "n")
            known = declaration.example.ranges.get(path)
            seen = f" (in the example, from {known[0]} to {known[1]})" if known else ""
            notes.append(
                f'{path} holds integers{seen}: declare positions as kt.indices("{shape}", into="{dim}"), counts of '
                f'elements as kt.lengths("{shape}", up_to="{dim}"), and the range of other values by domain='
            )
    return notes


def _exclude_rejected(declaration: Declaration, probe: Probe, dims: dict[str, tuple[LengthSlot, ...]]) -> Declaration:
    """Restricts a declaration so that its plan has no combination of lengths at which the kernel raises."""
    for _ in dims:
        rejected = _rejected_lengths(declaration)
        if not rejected:
            break
        pinned = {name: Dim(values=(probe.lengths[dims[name][0]],)) for name in dims_to_pin(probe, dims, rejected)}
        at = ", ".join(f"{name}={length}" for name, length in rejected[0].items())
        names = " and ".join(pinned)
        note = f"{names}: fixed to the example's length, since the kernel raises at {at}; declare valid combinations"
        declaration = replace(declaration, dims={**declaration.dims, **pinned}, notes=(*declaration.notes, note))
    return declaration


def _rejected_lengths(declaration: Declaration) -> list[dict[str, int]]:
    pairing = execute_declaration(declaration)
    rejected = []
    for signature in signatures(pairing, "standard"):
        with without_debugging(), show_warnings_once():
            try:
                trace(pairing, signature)
            except Failure:
                rejected.append(dict(signature.dims))
    return rejected


def execute_declaration(declaration: Declaration) -> Pairing:
    """Executes the file of a declaration, and returns its pairing.

    Raises:
      StartError: the file raises.
    """
    module = types.ModuleType(f"test_{declaration.kernel.name}")
    known = len(ALL_PAIRINGS)
    source = declaration.source()
    try:
        sys.modules[module.__name__] = module
        exec(compile(source, f"{module.__name__}.py", "exec"), module.__dict__)
    except Exception as error:
        raise StartError(
            f"{declaration.kernel.name}: the call cannot be declared: {exception_text(error)}\n{source}"
        ) from error
    finally:
        sys.modules.pop(module.__name__, None)
        del ALL_PAIRINGS[known:]
    pairing: Pairing = getattr(module, declaration.oracle)
    return pairing
