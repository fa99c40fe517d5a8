"""Pallas calls at sizes that nobody can hold: some of their programs are run, on memory that is not there."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from kerneltest.backends.base import Content, Samples
from kerneltest.backends.codegen.lower import Kernel, lower_call
from kerneltest.backends.simulate.launch import Launch
from kerneltest.backends.simulate.memory import Fault, Watch, signless
from kerneltest.backends.simulate.overflow_shadow import ExactInterpreter
from kerneltest.backends.simulate.paging import PagedBuffer
from kerneltest.backends.simulate.parse import parse
from kerneltest.backends.simulate.tape import Pointer
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.precision import Precision
from kerneltest.core.targets import Target
from kerneltest.core.verdicts import Verdict
from kerneltest.plan.production import sample
from kerneltest.trace.cost_model import work_of
from kerneltest.trace.evaluator import evaluate
from kerneltest.trace.runnable import Reference, references
from kerneltest.trace.tracing import Call, Traced, device
from kerneltest.trace.undefined import PartialArray
from kerneltest.trace.virtual import Virtual, unflat

_MOST_PROGRAMS, _LEAST_PROGRAMS = 96, 4
_COMPUTED = 2**26  # elements, in all programs that are run
_SAMPLED = 48  # elements of an output
_HELD = 2**28  # elements, in one program
_STEPS = 2**19  # operations one after another, in one program


@dataclass(frozen=True, eq=False, slots=True)
class SimulatedAtScale:
    """A kernel, of whose programs some are simulated.

    Attributes:
      traced: for sizes that may be too large to hold.
      target: what it is lowered for.
      precision: what simulating it does to its numbers.
    """

    traced: Traced
    target: Target
    precision: Precision

    def run(self, leaves: Sequence[Content]) -> tuple[Samples, ...]:
        """Elements of each output that the programs have written.

        Args:
          leaves: of contents: shape, dtype, and `at(indices)`.

        Raises:
          Failure: what a program did to memory and must not, or `unavailable` where a part of the kernel cannot be
            simulated so.
        """
        calls = {id(call.equation): call for call in self.traced.calls}
        with jax.default_device(device("cpu")):
            outputs = evaluate(
                self.traced,
                [_virtual(leaf) for leaf in leaves],
                lambda equation, operands: self._call(calls[id(equation)], operands),
            )
        return tuple(_samples(output.values) for output in outputs)

    def _call(self, call: Call, operands: Sequence[PartialArray]) -> list[PartialArray]:
        (kernel,) = lower_call(call, self.target)
        values = [each.values for each in operands]
        launch, results = run_programs(call, kernel, values, programs_of(call, kernel))
        faults = launch.watch.faults.values()
        if faults:
            first = max(faults, key=lambda fault: fault.verdict.severity)
            lines = (f.message if f.verdict is first.verdict else f"{f.verdict}: {f.message}" for f in faults)
            raise Failure(first.verdict, "\n".join(f"kernel {call.name}: {line}" for line in lines))
        # What another call left is known where its programs ran, and taken for zeros elsewhere.
        guessed = any(map(_is_guessed, values))
        made = zip(results, references(call)[1], strict=True)
        return [
            PartialArray(_written(buffer, reference, launch, known=not (guessed or buffer.updated)))
            for buffer, reference in made
        ]


def run_programs(
    call: Call, kernel: Kernel, operands: Sequence[Any], programs: Array
) -> tuple[Launch, list[PagedBuffer]]:
    """Runs some programs of a call on memory that is not there.

    Args:
      call, kernel: the call, and what it is lowered to.
      operands: arrays, or `Virtual` ones.
      programs: the linear ids of those to run, ascending.

    Returns:
      The launch, whose `watch` has seen what they did to memory, and the outputs.
    """
    given, made = references(call)
    buffers = [_given(reference, operand) for reference, operand in zip(given, operands, strict=True)]
    results = []
    for number, reference in enumerate(made):
        if number in kernel.aliases:
            shared = buffers[kernel.aliases[number]]
            shared.writable = True
            results.append(shared)
        else:
            results.append(_buffer(reference, None))
    every = [*buffers, *results]
    for buffer in every:
        buffer.reset()
    hints = {reference.name: reference.hint for reference in (*given, *made) if reference.hint}
    launch = Launch(kernel.grid, programs, every, Watch(kernel.grid, hints, programs))
    guessed = frozenset(number for number, operand in enumerate(operands) if _is_guessed(operand))
    with np.errstate(all="ignore"):
        body = parse(kernel.bytecode)
        if programs.size:
            ExactInterpreter(launch, guessed).enter(
                body, [Pointer(i, np.zeros(1, np.int64)) for i in range(len(every))]
            )
    return launch, results


def faults_on_zeros(call: Call, kernel: Kernel, programs: Array) -> list[Fault]:
    """What some programs of a call do to memory and must not, where all inputs are zeros, whatever their size."""
    zeros = [np.broadcast_to(np.zeros((), each.dtype), each.shape) for each in references(call)[0]]
    return list(run_programs(call, kernel, zeros, programs)[0].watch.faults.values())


def programs_of(call: Call, kernel: Kernel) -> Array:
    """The linear ids of the programs to run: of both ends, where an index reaches a power of two, and others.

    Raises:
      Failure: `unavailable`, since one program takes too long.
    """
    x, y, z = kernel.grid
    count = x * y * z
    if not count:
        return np.zeros(0, np.int64)
    each = work_of(call.equation)
    if each.steps > _STEPS:
        raise Failure(Verdict.UNAVAILABLE, f"kernel {call.name}: one program takes {each.steps:,.0f} operations one "
                      "after another, too many to simulate")  # fmt: skip
    if each.computed / count > _HELD:
        raise Failure(Verdict.UNAVAILABLE, f"kernel {call.name}: one program computes {each.computed / count:,.0f} "
                      "elements, too many to simulate")  # fmt: skip
    most = int(np.clip(_COMPUTED * count / max(each.computed, 1), _LEAST_PROGRAMS, _MOST_PROGRAMS))
    return sample(count, most, [math.prod(v.aval.shape) for v in (*call.equation.invars, *call.equation.outvars)])


def _virtual(leaf: Content) -> Virtual:
    shape: tuple[int, ...] = leaf.shape

    def read(at: Array) -> Array:
        return np.asarray(np.broadcast_to(leaf.at(unflat(at, shape)), at.shape))

    return Virtual(shape, leaf.dtype, read)


def _given(reference: Reference, values: Any) -> PagedBuffer:
    if isinstance(values, Virtual):
        return _buffer(reference, lambda at: signless(values.read(at)))
    held = np.asarray(values)
    return _buffer(reference, lambda at: signless(held[tuple(unflat(at, held.shape))]))


def _buffer(reference: Reference, read: Any) -> PagedBuffer:
    data = signless(np.zeros(0, reference.dtype))
    made = PagedBuffer(reference.name, reference.shape, data, output=read is None, writable=read is None)
    made.length, made.read = math.prod(reference.shape), read
    return made


def _is_guessed(operand: Any) -> bool:
    """Whether only some elements of an operand are known, since another call left it."""
    return isinstance(operand, Virtual) and operand.places is not None


def _written(buffer: PagedBuffer, reference: Reference, launch: Launch, *, known: bool) -> Virtual:
    """What the programs of a call left in an output, and zeros where they left nothing."""
    written = buffer.written_offsets()

    def read(at: Array) -> Array:
        places = buffer.places(at)
        if not written.size:
            return np.zeros(at.shape, reference.dtype)
        found = written[np.minimum(np.searchsorted(written, at), written.size - 1)] == at
        return np.where(found, buffer.data[places].view(reference.dtype), np.zeros((), reference.dtype))

    places = written if known else np.zeros(0, np.int64)
    undefined = np.zeros(places.size, bool) if buffer.undefined is None else buffer.undefined[buffer.places(places)]
    unwritten = buffer.beyond(launch.grid, launch.programs) if known and buffer.read is None else places[:0]
    return Virtual(reference.shape, reference.dtype, read, places, undefined, unwritten)


def _samples(output: Any) -> Samples:
    """Elements of an output that are known: at both ends, where its offset reaches a power of two, and others."""
    if not isinstance(output, Virtual):
        held = np.asarray(output)
        output = Virtual(held.shape, held.dtype, lambda at: held.reshape(-1)[at])
    known = np.arange(0) if output.places is None else output.places
    count = math.prod(output.shape)
    chosen = sample(count, _SAMPLED, [count])
    if output.places is not None:
        at = np.unique(np.minimum(np.searchsorted(known, chosen), max(known.size - 1, 0)))[: known.size]
        chosen = known[at]
        undefined = output.undefined[at] if output.undefined is not None else np.zeros(at.size, bool)
    else:
        undefined = np.zeros(chosen.size, bool)
    return Samples(output.shape, output.dtype, chosen, output.read(chosen), undefined, output.unwritten)
