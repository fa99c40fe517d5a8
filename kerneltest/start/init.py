"""`kerneltest init`: a pairing for a kernel, from calls of it."""

import sys
import types
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kerneltest.core.dtypes import is_float, parse_dtype
from kerneltest.core.failures import Failure
from kerneltest.declare.dims import Dim
from kerneltest.declare.kinds.array_argument import DEFAULT_FLOATS
from kerneltest.declare.pairing import ALL_PAIRINGS, Pairing
from kerneltest.plan.signatures import signatures
from kerneltest.start.axes import axes_of
from kerneltest.start.calls import Example, Kernel, StartError
from kerneltest.start.declaration import Declaration
from kerneltest.start.lengths import Taken, lengths_of, to_blame
from kerneltest.start.naming import names_of
from kerneltest.start.probe import Lengths, Probe, Slot
from kerneltest.trace.tracing import trace, without_debugging


def written(kernel: Kernel, examples: Sequence[Example], folder: Path) -> tuple[Path, Declaration]:
    """Writes `test_NAME.py` for a kernel, and returns its path and what it says.

    Args:
      kernel: to pair.
      examples: calls of it; the first is traced, the others tell axes and options apart.
      folder: where the file goes.

    Raises:
      StartError: there is such a file, or the call cannot be declared.
    """
    path = folder / f"test_{kernel.name}.py"
    if path.exists():
        raise StartError(f"{path} is there already; move it away, or name another folder by --output")
    declaration = declared(kernel, examples)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(declaration.source(), encoding="utf-8")
    return path, declaration


def declared(kernel: Kernel, examples: Sequence[Example]) -> Declaration:
    """What the calls of a kernel, and traces of it at other lengths, say.

    Raises:
      StartError: the call cannot be traced or declared.
    """
    first, alike = examples[0], [each for each in examples if _alike(each, examples[0])]
    probe = Probe(kernel, first)
    axes = axes_of(probe, [_lengths(probe, each) for each in alike[1:]])
    ranks = {path: len(leaf.shape) for path, leaf in first.leaves.items()}
    names = names_of(kernel.function, axes.dims, ranks)
    dims = dict(zip(names, axes.dims, strict=True))
    taken = {name: lengths_of(probe, slots) for name, slots in dims.items()}
    made = Declaration(
        kernel=kernel,
        example=first,
        options={name: _different([each.statics[name] for each in alike]) for name in first.statics},
        axes={slot: name for name, slots in dims.items() for slot in slots},
        dims=_dims(taken),
        dtypes=_dtypes(alike),
        reals=any(is_float(leaf.dtype) for leaf in first.leaves.values()) and not probe.trace({}).exact,
        outputs=_outputs(probe, dims),
        notes=(*axes.guesses, *_notes(taken)),
    )
    made = replace(made, notes=(*made.notes, *_integers(made), *_more_dtypes(probe, made.dtypes)))
    return _narrowed(made, probe, dims)


def _alike(one: Example, other: Example) -> bool:
    """Whether two calls have the same arguments, but for lengths and values."""
    kinds = [
        {path: ("float" if is_float(leaf.dtype) else leaf.dtype, len(leaf.shape)) for path, leaf in each.leaves.items()}
        for each in (one, other)
    ]
    return kinds[0] == kinds[1] and one.statics.keys() == other.statics.keys()


def _dims(taken: dict[str, Taken]) -> dict[str, Dim]:
    """The dims; those with a program for each index have few lengths, or else the arrays of all together are huge."""
    rows = {name for name, each in taken.items() if each.each and each.dim == Dim()}
    few = rows if len(rows) < len(taken) else set()
    return {name: Dim(values=_FEW) if name in few else each.dim for name, each in taken.items()}


_FEW = (1, 2, 5)


def _different(values: Sequence[Any]) -> list[Any]:
    """Each value once; not all of them can be hashed."""
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
    """The dtypes in which all arrays of floats were seen together; () where a call mixes them."""
    seen = [{str(leaf.dtype) for leaf in each.leaves.values() if is_float(leaf.dtype)} for each in examples]
    return () if any(len(each) != 1 for each in seen) else tuple(dict.fromkeys(name for each in seen for name in each))


def _more_dtypes(probe: Probe, seen: tuple[str, ...]) -> list[str]:
    """A note on dtypes that no call had and that the kernel takes."""
    floats = {path: leaf.dtype for path, leaf in probe.example.leaves.items() if is_float(leaf.dtype)}
    others = [name for name in DEFAULT_FLOATS if name not in seen and _takes(probe, floats, parse_dtype(name))]
    if not (others and seen):
        return []
    return [
        f"it was called in {' and '.join(seen)} and can be traced in {' and '.join(others)} too: add what it is for"
    ]


def _takes(probe: Probe, floats: dict[str, np.dtype[Any]], dtype: np.dtype[Any]) -> bool:
    try:
        probe.trace({}, dict.fromkeys(floats, dtype))
    except Failure:
        return False
    return True


def _outputs(probe: Probe, dims: dict[str, tuple[Slot, ...]]) -> tuple[str, ...]:
    """The shape of each output, spelled in dims: what changes with which dim, and by how much."""
    here = probe.look({})
    assert here is not None
    grown = {}
    for name, slots in dims.items():
        length = probe.lengths[slots[0]]
        for other in (2 * length, 3 * length, length + 1, length // 2):
            look = probe.look(dict.fromkeys(slots, other)) if other else None
            if look is not None:
                grown[name] = (length, other, look.outputs)
                break
    spelled = []
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
        spelled.append(f"({', '.join(axes)})")
    return tuple(spelled)


def _formula(length: int, parts: list[tuple[str, float, int]]) -> str:
    """A length in terms of dims, each with its slope and its length."""
    match parts:
        case []:
            return str(length)
        case [(name, slope, own)] if slope == int(slope):
            rest = length - int(slope) * own
            times = "" if slope == 1 else f"{int(slope)} * "
            return f"{times}{name}{f' + {rest}' if rest > 0 else f' - {-rest}' if rest else ''}"
    return f"{length} where {' and '.join(f'{name} is {own}' for name, _, own in parts)}"


def _notes(taken: dict[str, Taken]) -> list[str]:
    notes = []
    for name, each in taken.items():
        if each.whole and each.dim.multiple_of % each.whole:
            who = (
                f"the grid has {name} // {each.whole} programs"
                if each.programs
                else f"the kernel has {name} // {each.whole} of something"
            )
            notes.append(
                f"{name}: {who}, and a tail may get none; if the kernel is for multiples of {each.whole} alone, say "
                f"kt.dim(multiple_of={each.whole})"
            )
        for lengths, does in ((each.refused, "raises"), (each.unlowered, "does not lower")):
            if lengths:
                shown = ", ".join(map(str, lengths[:6])) + (", ..." if len(lengths) > 6 else "")
                notes.append(f"{name}: the kernel {does} at lengths such as {shown}, so they are left out")
    return notes


def _integers(made: Declaration) -> list[str]:
    """Of arrays that may point somewhere, what to declare instead."""
    notes = []
    for path in made.example.leaves:
        if made.points(path):
            shape = " ".join(made.shape(path))
            dim = next(iter(reversed(list(made.dims))), "n")
            known = made.example.ranges.get(path)
            seen = f" (in the example they go from {known[0]} to {known[1]})" if known else ""
            notes.append(
                f'{path} holds integers{seen}: if they are positions, say kt.indices("{shape}", into="{dim}"); if '
                f'they count elements, kt.lengths("{shape}", up_to="{dim}"); else which values they take, as domain='
            )
    return notes


def _narrowed(made: Declaration, probe: Probe, dims: dict[str, tuple[Slot, ...]]) -> Declaration:
    """The declaration without combinations of lengths that the kernel refuses, as the plan would try them."""
    for _ in dims:
        refused = _refused(made)
        if not refused:
            break
        pinned = {name: Dim(values=(probe.lengths[dims[name][0]],)) for name in to_blame(probe, dims, refused)}
        at = ", ".join(f"{name}={length}" for name, length in refused[0].items())
        kept = " and ".join(pinned)
        note = f"{kept}: kept at the example's length, since the kernel raises at {at}; say which lengths go together"
        made = replace(made, dims={**made.dims, **pinned}, notes=(*made.notes, note))
    return made


def _refused(made: Declaration) -> list[dict[str, int]]:
    pairing = pairing_of(made)
    refused = []
    for signature in signatures(pairing, "standard"):
        with without_debugging():
            try:
                trace(pairing, signature)
            except Failure:
                refused.append(dict(signature.dims))
    return refused


def pairing_of(made: Declaration) -> Pairing:
    """The pairing that the file of a declaration makes.

    Raises:
      StartError: it makes none.
    """
    module = types.ModuleType(f"test_{made.kernel.name}")
    known = len(ALL_PAIRINGS)
    source = made.source()
    try:
        sys.modules[module.__name__] = module
        exec(compile(source, f"{module.__name__}.py", "exec"), module.__dict__)
    except Exception as error:
        raise StartError(f"{made.kernel.name}: the call cannot be declared: {error}\n{source}") from error
    finally:
        sys.modules.pop(module.__name__, None)
        del ALL_PAIRINGS[known:]
    pairing: Pairing = getattr(module, made.oracle)
    return pairing
