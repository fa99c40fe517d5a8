"""Pallas calls at sizes too large to allocate: some of their programs run, on buffers of which only pages exist."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from kerneltest.backends.base import OutputSamples
from kerneltest.backends.codegen.tiers import LoweredKernel, lower_call
from kerneltest.backends.simulate.memory import Fault, Launch, PagedBuffer, memory_failure, signless
from kerneltest.backends.simulate.overflow_shadow import OverflowInterpreter
from kerneltest.backends.simulate.simulation import allocate_buffers, new_launch, parse_body
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.precision import Precision
from kerneltest.core.targets import TARGETS, Target
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.production_sizes import PositionCodedArray, sample_positions
from kerneltest.plan.signatures import signatures
from kerneltest.trace.cost_model import estimate_call_work
from kerneltest.trace.partial_arrays import PartialArray, PartialKernel, VirtualArray, axis_indices
from kerneltest.trace.runnable import CallArray, call_arrays
from kerneltest.trace.tracing import Call, Traced, kernel_device, trace

_MOST_PROGRAMS, _LEAST_PROGRAMS = 96, 4
_MOST_COMPUTED = 2**26  # elements, in all programs that run
_MOST_PER_PROGRAM = 2**28  # elements
_MOST_STEPS = 2**19  # sequential operations of one program
_SAMPLED = 48  # elements of an output


@dataclass(frozen=True, eq=False, slots=True)
class SimulatedAtScale:
    """A kernel, at sizes that may be too large to allocate, of which some programs are simulated."""

    traced: Traced
    target: Target
    precision: Precision

    def run(self, leaves: Sequence[PositionCodedArray]) -> tuple[OutputSamples, ...]:
        """Returns samples of what the programs have written. Failure: wrong uses of memory, or `unavailable`."""
        calls = {id(call.equation): call for call in self.traced.calls}
        with jax.default_device(kernel_device("cpu")):
            kernel = PartialKernel(self.traced, lambda e, operands: self._call(calls[id(e)], operands))
            outputs = kernel([_computed(leaf.shape, leaf.dtype, leaf.at) for leaf in leaves])
        return tuple(_samples(output.values) for output in outputs)

    def _call(self, call: Call, operands: Sequence[PartialArray]) -> list[PartialArray]:
        (kernel,) = lower_call(call, self.target)
        values = [operand.values for operand in operands]
        launch, outputs = run_programs(call, kernel, values, select_programs(call, kernel))
        if faults := list(launch.checker.faults.values()):
            raise memory_failure(call.name, faults)
        # The output of another call is known only for the programs of it that ran; the rest is taken to be zeros.
        guessed = any(map(_is_guessed, values))
        pairs = zip(outputs, call_arrays(call)[1], strict=True)
        return [
            PartialArray(_output_array(buffer, reference, launch, known=not (guessed or buffer.atomically_updated)))
            for buffer, reference in pairs
        ]


def run_programs(
    call: Call, kernel: LoweredKernel, operands: Sequence[Any], programs: Array
) -> tuple[Launch, list[PagedBuffer]]:
    """Runs programs by ascending linear id on paged buffers; the launch's `checker` has checked the accesses."""
    inputs, outputs, hints = allocate_buffers(
        call, kernel, lambda array, number: _buffer(array, None if number is None else _virtual_array(operands[number]))
    )
    launch, pointers = new_launch(kernel.grid, inputs, outputs, hints, programs, kernel.arguments)
    guessed = frozenset(number for number, operand in enumerate(operands) if _is_guessed(operand))
    with np.errstate(all="ignore"):
        body = parse_body(kernel.bytecode)
        if programs.size:
            OverflowInterpreter(launch, guessed).enter(body, pointers)
    return launch, outputs


def faults_on_zeros(call: Call, kernel: LoweredKernel, programs: Array) -> list[Fault]:
    """Returns the faults of some programs of a call whose inputs are all zeros, whatever their size."""
    zeros = [np.broadcast_to(np.zeros((), array.dtype), array.shape) for array in call_arrays(call)[0]]
    return list(run_programs(call, kernel, zeros, programs)[0].checker.faults.values())


def select_programs(call: Call, kernel: LoweredKernel) -> Array:
    """Returns the linear ids of programs to run: at both ends, where an index reaches a power of two, and others."""
    x, y, z = kernel.grid
    count = x * y * z
    if not count:
        return np.zeros(0, np.int64)
    work = estimate_call_work(call.equation)
    if work.steps > _MOST_STEPS:
        raise _too_large(call, f"takes {work.steps:,.0f} sequential operations")
    if work.computed / count > _MOST_PER_PROGRAM:
        raise _too_large(call, f"computes {work.computed / count:,.0f} elements")
    most = int(np.clip(_MOST_COMPUTED * count / max(work.computed, 1), _LEAST_PROGRAMS, _MOST_PROGRAMS))
    return sample_positions(
        count, most, [math.prod(v.aval.shape) for v in (*call.equation.invars, *call.equation.outvars)]
    )


def _too_large(call: Call, amount: str) -> Failure:
    return Failure(Verdict.UNAVAILABLE, f"kernel {call.name}: one program {amount}, too many to simulate")


def _virtual_array(values: Any) -> VirtualArray:
    if isinstance(values, VirtualArray):
        return values
    array = np.asarray(values)
    return _computed(array.shape, array.dtype, lambda indices: array[tuple(indices)])


def _computed(shape: tuple[int, ...], dtype: np.dtype, at: Callable[[Sequence[Array]], Any]) -> VirtualArray:
    # An array whose elements a function computes from an index along each axis.
    return VirtualArray(
        shape, dtype, lambda offset: np.asarray(np.broadcast_to(at(axis_indices(offset, shape)), offset.shape))
    )


def _buffer(array: CallArray, content: VirtualArray | None) -> PagedBuffer:
    data, is_output = signless(np.zeros(0, array.dtype)), content is None
    read = None if content is None else lambda at: signless(content.read(at))
    length = math.prod(array.shape)
    return PagedBuffer(array.name, array.shape, data, is_output, is_output, length=length, read=read)


def _is_guessed(operand: Any) -> bool:
    # Tells whether only some elements of an operand are known, since it is the output of another call.
    return isinstance(operand, VirtualArray) and operand.known_offsets is not None


def _output_array(buffer: PagedBuffer, reference: CallArray, launch: Launch, *, known: bool) -> VirtualArray:
    # Returns an output: the elements that programs of a call have written, and zeros elsewhere.
    written = buffer.written_offsets()

    def read(at: Array) -> Array:
        positions = buffer.positions(at)
        if not written.size:
            return np.zeros(at.shape, reference.dtype)
        found = written[np.minimum(np.searchsorted(written, at), written.size - 1)] == at
        return np.where(found, buffer.data[positions].view(reference.dtype), np.zeros((), reference.dtype))

    places = written if known else np.zeros(0, np.int64)
    undefined = np.zeros(places.size, bool) if buffer.undefined is None else buffer.undefined[buffer.positions(places)]
    unwritten = buffer.unwritten_ends(launch.grid, launch.programs) if known and buffer.read is None else places[:0]
    return VirtualArray(reference.shape, reference.dtype, read, places, undefined, unwritten)


def _samples(output: Any) -> OutputSamples:
    # Returns known elements of an output: at both ends, where its offset reaches a power of two, and others.
    output = _virtual_array(output)
    count = math.prod(output.shape)
    chosen = sample_positions(count, _SAMPLED, [count])
    undefined = np.zeros(chosen.size, bool)
    if (known := output.known_offsets) is not None:
        at = np.unique(np.minimum(np.searchsorted(known, chosen), max(known.size - 1, 0)))[: known.size]
        chosen = known[at]
        undefined = output.undefined[at] if output.undefined is not None else np.zeros(at.size, bool)
    return OutputSamples(output.shape, output.dtype, chosen, output.read(chosen), undefined, output.unwritten)


# A check of a kernel's addresses at sizes too large to run: 32-bit index arithmetic overflows from 2^31 elements on.
#
# Nothing is allocated: the kernel is traced and lowered for shapes only. The simulator runs a few of its programs
# without data, and compares their addresses with the arrays' lengths.


def check_addresses(pairing: Pairing, *, target: str = "sm_90", **lengths: int) -> tuple[Fault, ...]:
    """Finds out-of-bounds accesses of a kernel at given lengths, in its first, its last and some other programs.

    Every load returns zeros, so addresses and masks that depend on loaded values are not checked.

    Args:
      pairing: the pairing, whose first dtypes and static options are used.
      target: a GPU, as in backend ids.
      lengths: lengths of dims by name. Other dims have their first planned length.

    Returns:
      The first fault on each array, with program, array and source line.

    Raises:
      ValueError: the target or a dim is unknown; the message lists the known ones.
      Failure: the kernel does not trace or lower, as the tiers `lower` and `simulate` report it.
    """
    if target not in TARGETS:
        raise ValueError(f"unknown target {target!r}; known are {', '.join(TARGETS)}")
    for name in lengths:
        if name not in pairing.dims:
            raise ValueError(f"{pairing.name} has no dim {name!r}; it has {', '.join(pairing.dims)}")
    planned = signatures(pairing, "quick")[0]
    signature = replace(planned, dims=tuple((name, lengths.get(name, length)) for name, length in planned.dims))
    faults: list[Fault] = []
    for call in trace(pairing, signature, TARGETS[target].platform).calls:
        (kernel,) = lower_call(call, TARGETS[target])
        faults += faults_on_zeros(call, kernel, select_programs(call, kernel))
    return tuple(faults)
