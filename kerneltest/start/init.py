"""`kerneltest init`: infers the pairing of a kernel from calls of it, and writes its file."""

import sys
import types
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kerneltest.core.dtypes import is_float
from kerneltest.core.failures import Failure, exception_text
from kerneltest.core.processes import show_warnings_once
from kerneltest.declare.dims import Dim
from kerneltest.declare.pairing import ALL_PAIRINGS, Pairing
from kerneltest.plan.signatures import signatures
from kerneltest.start.command_progress import CommandProgress, TimeLimitError
from kerneltest.start.declaration import Declaration, backend_notes, dtype_notes, integer_notes, length_notes, name_dims
from kerneltest.start.example_calls import Example, KernelFunction, StartError
from kerneltest.start.inference import BACKENDS, InferredLengths, dims_to_pin, infer_dims, infer_lengths, infer_target
from kerneltest.start.trace_probe import Lengths, LengthSlot, Probe, output_shapes
from kerneltest.trace.tracing import trace, without_debugging


def write_pairing(
    kernel: KernelFunction, examples: Sequence[Example], folder: Path, progress: CommandProgress
) -> tuple[Path, Declaration]:
    """Writes `test_NAME.py` for a kernel from calls of it, the first of which is traced; returns path and content."""
    path = folder / f"test_{kernel.name}.py"
    if path.exists():
        raise StartError(f"{path} already exists; move it, or choose another folder with --output")
    declaration = infer_declaration(kernel, examples, progress)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(declaration.source(), encoding="utf-8")
    return path, declaration


def infer_declaration(
    kernel: KernelFunction, examples: Sequence[Example], progress: CommandProgress | None = None
) -> Declaration:
    """Infers the declaration of a kernel from calls of it and from traces at other lengths, until the time is over."""
    first, compatible = examples[0], [example for example in examples if _are_compatible(example, examples[0])]
    probe = Probe(kernel, first, progress or CommandProgress())
    slots_of_dims, assumptions = infer_dims(probe, [_lengths(probe, each) for each in compatible[1:]])
    ranks = {path: len(leaf.shape) for path, leaf in first.leaves.items()}
    names = name_dims(kernel.function, slots_of_dims, ranks)
    dims = dict(zip(names, slots_of_dims, strict=True))
    target = infer_target(probe, dims)
    inferred = {name: infer_lengths(probe, slots, BACKENDS.get(target, "")) for name, slots in dims.items()}
    declaration = Declaration(
        kernel=kernel,
        example=first,
        options={name: _distinct([each.statics[name] for each in compatible]) for name in first.statics},
        axes={slot: name for name, slots in dims.items() for slot in slots},
        dims=_dims(inferred),
        dtypes=_dtypes(compatible),
        excludes_extremes=any(is_float(leaf.dtype) for leaf in first.leaves.values()) and not probe.traced.exact,
        outputs=output_shapes(probe, dims),
        backends=("interpret", target) if target else (),
        notes=(*assumptions, *length_notes(inferred), *backend_notes(target)),
    )
    more = (*integer_notes(declaration), *dtype_notes(probe, declaration.dtypes))
    declaration = replace(declaration, notes=(*declaration.notes, *more))
    try:
        return _exclude_rejected(declaration, probe, dims)
    except TimeLimitError:
        note = "not all lengths were tried together before the time was over; give a larger --limit"
        return replace(declaration, notes=(*declaration.notes, note))


def _are_compatible(one: Example, other: Example) -> bool:
    kinds = [
        {path: ("float" if is_float(leaf.dtype) else leaf.dtype, len(leaf.shape)) for path, leaf in each.leaves.items()}
        for each in (one, other)
    ]
    return kinds[0] == kinds[1] and one.statics.keys() == other.statics.keys()


def _dims(inferred: dict[str, InferredLengths]) -> dict[str, Dim]:
    # Dims with a program for each index get few lengths, so that arrays stay small.
    rows = {name for name, each in inferred.items() if each.program_per_index and each.dim == Dim()}
    few = rows if len(rows) < len(inferred) else set()
    return {name: Dim(values=_FEW) if name in few else each.dim for name, each in inferred.items()}


_FEW = (1, 2, 5)


def _distinct(values: Sequence[Any]) -> list[Any]:
    return [value for number, value in enumerate(values) if value not in values[:number]]  # they may not be hashable


def _lengths(probe: Probe, example: Example) -> Lengths:
    return {
        slot: example.statics[slot.path] if slot.axis is None else example.leaves[slot.path].shape[slot.axis]
        for slot in probe.lengths
    }


def _dtypes(examples: Sequence[Example]) -> tuple[str, ...]:
    seen = [{str(leaf.dtype) for leaf in example.leaves.values() if is_float(leaf.dtype)} for example in examples]
    return () if any(len(each) != 1 for each in seen) else tuple(dict.fromkeys(name for each in seen for name in each))


def _exclude_rejected(declaration: Declaration, probe: Probe, dims: dict[str, tuple[LengthSlot, ...]]) -> Declaration:
    for _ in dims:
        rejected = _rejected_lengths(declaration, probe.progress)
        if not rejected:
            break
        pinned = {name: Dim(values=(probe.lengths[dims[name][0]],)) for name in dims_to_pin(probe, dims, rejected)}
        at = ", ".join(f"{name}={length}" for name, length in rejected[0].items())
        names = " and ".join(pinned)
        note = f"{names}: fixed to the example's length, since the kernel raises at {at}; declare valid combinations"
        declaration = replace(declaration, dims={**declaration.dims, **pinned}, notes=(*declaration.notes, note))
    return declaration


def _rejected_lengths(declaration: Declaration, progress: CommandProgress) -> list[dict[str, int]]:
    pairing = execute_declaration(declaration)
    rejected = []
    for signature in signatures(pairing, "standard"):
        progress.show(f"tracing the kernel at {signature}")
        try:
            with progress.interrupt(), without_debugging(), show_warnings_once():
                trace(pairing, signature)
        except Failure:
            rejected.append(dict(signature.dims))
    return rejected


def execute_declaration(declaration: Declaration) -> Pairing:
    """Executes the file of a declaration, and returns its pairing."""
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
