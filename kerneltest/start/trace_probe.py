"""Traces a kernel at chosen lengths and dtypes, and summarises what depends on the lengths."""

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.failures import Failure
from kerneltest.core.processes import show_warnings_once
from kerneltest.start.command_progress import CommandProgress, TimeLimitError
from kerneltest.start.example_calls import Example, KernelFunction, StartError
from kerneltest.trace.cost_model import step_counts
from kerneltest.trace.primitives import Kind, kind_of
from kerneltest.trace.tracing import Traced, trace_kernel, without_debugging
from kerneltest.trace.walk import equations_in, primitive_name, unconditional_equations


@dataclass(frozen=True, order=True, slots=True)
class LengthSlot:
    """A length in a call: of an axis of an array, or the value of an integer static argument (`axis` is None)."""

    path: str
    axis: int | None

    def __str__(self) -> str:
        return self.path if self.axis is None else f"axis {self.axis} of {self.path}"

    def length_in(self, example: Example) -> int:
        found: int = example.statics[self.path] if self.axis is None else example.leaves[self.path].shape[self.axis]
        return found


Lengths = Mapping[LengthSlot, int]

_BACKENDS = {"triton": "lower:sm_90", "mosaic_gpu": "lower:sm_90", "mosaic_tpu": "lower:tpu-v5e"}


@dataclass(frozen=True, slots=True)
class TraceLengths:
    """The lengths in a trace."""

    outputs: tuple[tuple[int, ...], ...]  # the shapes of the outputs
    # the operations in the Pallas calls. If it is equal for two traces, their numbers correspond
    skeleton: tuple[str, ...]
    numbers: tuple[int, ...]  # grids, shapes of values and literals inside the calls, in the order of the skeleton
    grid_count: int  # the count of leading numbers that are grid dimensions


class Probe:
    """A kernel and a call of it, to be traced with other lengths; `traced` and `own` are of the call itself."""

    def __init__(self, kernel: KernelFunction, example: Example, progress: CommandProgress) -> None:
        self.kernel, self.example, self.progress = kernel, example, progress
        self._traces = 0
        self._looks: dict[tuple[int, ...], TraceLengths | None] = {}
        arrays = ((path, axis) for path in example.leaves for axis in range(len(example.leaves[path].shape)))
        slots = [LengthSlot(path, axis) for path, axis in arrays if path not in example.keys]
        slots += [LengthSlot(name, None) for name, n in example.statics.items() if type(n) is int and n > 0]
        self.lengths: Lengths = {slot: slot.length_in(example) for slot in slots}
        try:
            self.traced = traced = self.trace({})
        except Failure as error:
            raise StartError(str(error)) from error
        if not traced.calls:
            raise StartError(f"{self.kernel.name} reaches no Pallas call in this example; name a function that does")
        self._looks[tuple(self.lengths.values())] = self.own = _summarize(traced)

    def trace_lengths(self, changed: Lengths) -> TraceLengths | None:
        """Summarises the trace with some lengths changed; None if the kernel raises. Raises a TimeLimitError."""
        lengths = {**self.lengths, **changed}
        key = tuple(lengths[slot] for slot in self.lengths)
        if key not in self._looks:
            try:
                self._looks[key] = _summarize(self.trace(changed))
            except Failure:
                self._looks[key] = None
        return self._looks[key]

    def trace_longer(self, slots: Sequence[LengthSlot]) -> tuple[int, TraceLengths] | None:
        """Traces with another length of some slots; None if none works. Length 1 is not tried, as it broadcasts."""
        length = self.lengths[slots[0]]
        for other in (2 * length, 3 * length, length + 1, length // 2):
            if other > 1 and (look := self.trace_lengths(dict.fromkeys(slots, other))) is not None:
                return other, look
        return None

    def trace(self, changed: Lengths, dtypes: Mapping[str, np.dtype[Any]] | None = None) -> Traced:
        """Traces the kernel with some lengths and dtypes changed; raises a Failure or a TimeLimitError."""
        self._traces += 1
        changes = [f"with {slot} = {length}" for slot, length in list(changed.items())[:3]]
        self.progress.show(f"trace {self._traces} of {self.kernel.name} {', '.join(changes)}")
        lengths = {**self.lengths, **changed}
        inputs = tuple(
            ShapeDtype(
                tuple(lengths.get(LengthSlot(path, axis), n) for axis, n in enumerate(leaf.shape)),
                (dtypes or {}).get(path, leaf.dtype),
            )
            for path, leaf in self.example.leaves.items()
        )
        statics = {n: lengths.get(LengthSlot(n, None), value) for n, value in self.example.statics.items()}

        def flat(*arrays: Any) -> list[Any]:
            by_path = dict(zip(self.example.leaves, arrays, strict=True))
            for path, raw in self.example.keys.items():
                by_path[path] = by_path[path] if raw else jax.random.wrap_key_data(by_path[path])
            filled = {n: jax.tree_util.tree_map(by_path.__getitem__, tree) for n, tree in self.example.trees.items()}
            given = {**filled, **statics}
            bound = inspect.signature(self.kernel.function).bind_partial()
            bound.arguments = {name: given[name] for name in bound.signature.parameters if name in given}
            return jax.tree_util.tree_leaves(self.kernel.function(*bound.args, **bound.kwargs))

        shown = ", ".join(
            f"{path}: {each.dtype}{list(each.shape)}" for path, each in zip(self.example.leaves, inputs, strict=True)
        )
        purpose = f"for {shown}" if shown else "without arrays"
        with self.progress.interrupt(), without_debugging(), show_warnings_once():
            return trace_kernel(self.kernel.function, flat, inputs, purpose)

    def lowers(self, changed: Lengths, target: str = "") -> bool:
        """Returns whether the kernel lowers for its dialect, or else for `target`; True if it has none or several."""
        try:
            dialects = self.trace(changed).dialects
        except Failure:
            return False
        backend = (_BACKENDS.get(next(iter(dialects))) or target) if len(dialects) == 1 else ""
        return not backend or self.lowers_on(backend, changed)

    def lowers_on(self, backend: str, changed: Lengths) -> bool:
        """Returns whether the kernel lowers for a backend, by its id; raises a TimeLimitError."""
        try:
            traced = self.trace(changed)
            with self.progress.interrupt():
                resolve([backend])[0].prepare(traced)
        except Failure:
            return False
        return True

    def block_formulas(self) -> dict[LengthSlot, str]:
        """Returns the Pallas call, the formula of the grid index and the block size of each axis with a block spec."""
        found: dict[LengthSlot, str] = {}
        jaxpr = self.traced.jaxpr.jaxpr
        paths = list(self.example.leaves)
        numbered = {variable: number for number, variable in enumerate(jaxpr.invars)}
        for place, (equation, operands) in enumerate(unconditional_equations(jaxpr, numbered)):
            grid = equation.params.get("grid_mapping") if kind_of(equation) is Kind.KERNEL else None
            if grid is None:
                continue
            start = grid.num_index_operands
            for operand, mapping in zip(operands[start:], grid.block_mappings, strict=False):
                shape = mapping.array_aval.shape
                if operand is None or len(self.example.leaves[paths[operand]].shape) != len(shape):
                    continue
                index = getattr(mapping.index_map_jaxpr, "jaxpr", mapping.index_map_jaxpr)
                named = {v: f"g{i}" for i, v in enumerate(index.invars)}
                for axis, (out, size, length) in enumerate(zip(index.outvars, mapping.block_shape, shape, strict=True)):
                    formula = str(out.val) if hasattr(out, "val") else named.get(out)
                    whole = getattr(size, "block_size", 1) == length
                    if formula is not None:
                        found[LengthSlot(paths[operand], axis)] = f"{place} {formula} {'whole' if whole else size}"
        return found


def _summarize(traced: Traced) -> TraceLengths:
    grids = [length for call in traced.calls for length in call.grid]
    words: list[str] = [f"{len(call.grid)}" for call in traced.calls]
    numbers = list(grids)
    for equation, _ in (pair for call in traced.calls for pair in equations_in(call.equation)):
        found = [*step_counts(equation)]
        for variable in equation.outvars:
            if type(variable.aval).__name__ == "ShapedArray":  # not the shapes of refs
                found += [n for n in variable.aval.shape if isinstance(n, int)]
        words.append(f"{primitive_name(equation)} {len(found)}")
        numbers += found
    outputs = tuple(tuple(output.shape) for output in traced.outputs)
    return TraceLengths(outputs, tuple(words), tuple(numbers), len(grids))


# The shapes of a kernel's outputs as formulas of dims, from how they change with the length of each dim.


def output_shapes(probe: Probe, dims: dict[str, tuple[LengthSlot, ...]]) -> tuple[str, ...]:
    """Returns the shape of each output as formulas of dims, from how it changes with the length of each dim."""
    grown = {}
    for name, slots in dims.items():
        with suppress(TimeLimitError):
            if (found := probe.trace_longer(slots)) is not None:
                grown[name] = (probe.lengths[slots[0]], found[0], found[1].outputs)
    shapes = []
    for number, shape in enumerate(probe.own.outputs):
        axes = []
        for axis, length in enumerate(shape):
            parts = [
                (name, (there[number][axis] - length) / (new - old), old)
                for name, (old, new, there) in grown.items()
                if len(there) == len(probe.own.outputs)
                and len(there[number]) == len(shape)
                and there[number][axis] != length
            ]
            axes.append(_formula(length, parts))
        shapes.append(f"({', '.join(axes)})")
    return tuple(shapes)


def _formula(length: int, parts: list[tuple[str, float, int]]) -> str:
    # A part is the name of a dim, its slope, and its length in the example.
    match parts:
        case []:
            return str(length)
        case [(name, slope, own)] if slope == int(slope):
            rest = length - int(slope) * own
            times = "" if slope == 1 else f"{int(slope)} * "
            return f"{times}{name}{f' + {rest}' if rest > 0 else f' - {-rest}' if rest else ''}"
    return f"{length} where {' and '.join(f'{name} is {own}' for name, _, own in parts)}"
