"""Notes for the author, in the file of a pairing, on what tracing cannot determine."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from kerneltest.core.dtypes import is_float, parse_dtype
from kerneltest.core.failures import Failure
from kerneltest.declare.kinds.array_argument import DEFAULT_FLOATS
from kerneltest.start.command_progress import TimeLimitError
from kerneltest.start.declaration import Declaration
from kerneltest.start.integer_roles import may_point
from kerneltest.start.length_inference import InferredLengths
from kerneltest.start.trace_probe import Probe


def length_notes(inferred: Mapping[str, InferredLengths]) -> list[str]:
    """Returns notes on the lengths of dims."""
    notes = []
    for name, each in inferred.items():
        if not each.is_complete:
            notes.append(f"{name}: these lengths were tried before the time was over; give a larger --limit")
            continue
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


def backend_notes(target: str) -> list[str]:
    """Returns a note on the backends of a kernel that names no language."""
    if not target:
        return []
    others = {"gpu": "TPUs", "tpu": "GPUs"}[target]
    return [f"the kernel names no language, and does not lower for {others} here; remove backends= if it should"]


def integer_notes(declaration: Declaration) -> list[str]:
    """Returns notes on integer arrays that may hold positions or counts, with the declarations for these."""
    notes = []
    for path in declaration.example.leaves:
        if not may_point(declaration.example, path):
            continue
        if declaration.role(path):
            notes.append(f"{path}: the role of its integers is inferred only from its name")
            continue
        shape = " ".join(declaration.shape(path))
        dim = next(iter(reversed(list(declaration.dims))), "n")
        known = declaration.example.ranges.get(path)
        seen = f" (in the example, from {known[0]} to {known[1]})" if known else ""
        notes.append(
            f'{path} holds integers{seen}: declare positions as kt.indices("{shape}", into="{dim}"), counts of '
            f'elements as kt.lengths("{shape}", up_to="{dim}"), and the range of other values by domain='
        )
    return notes


def dtype_notes(probe: Probe, seen: tuple[str, ...]) -> list[str]:
    """Returns a note on dtypes that the kernel accepts but no call has."""
    floats = {path: leaf.dtype for path, leaf in probe.example.leaves.items() if is_float(leaf.dtype)}
    others = [name for name in DEFAULT_FLOATS if name not in seen and _accepts(probe, floats, parse_dtype(name))]
    if not (others and seen):
        return []
    return [
        f"the example is in {' and '.join(seen)}, and the kernel can also be traced in {' and '.join(others)}: "
        "add the dtypes that it supports"
    ]


def _accepts(probe: Probe, floats: dict[str, np.dtype[Any]], dtype: np.dtype[Any]) -> bool:
    try:
        probe.trace({}, dict.fromkeys(floats, dtype))
    except (Failure, TimeLimitError):
        return False
    return True
