"""A kernel that runs in the simulator as it is, with special values traced, or with a patch applied."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import jax
import numpy as np

from kerneltest.backends.codegen.gpu_lowering import lower_call
from kerneltest.backends.simulate.access_checker import Fault, program_index
from kerneltest.backends.simulate.backend import allocate_buffers, input_contents, output_arrays, output_dtypes
from kerneltest.backends.simulate.buffers import SimulatedBuffer
from kerneltest.backends.simulate.ir import Region, Type
from kerneltest.backends.simulate.parse import parse_body
from kerneltest.backends.simulate.simulation import Simulation
from kerneltest.backends.simulate.tape import BufferPointer
from kerneltest.core.dtypes import Array
from kerneltest.core.targets import Target
from kerneltest.localize.listing import Listing
from kerneltest.localize.special_trace import SpecialEvent, SpecialTracer
from kerneltest.trace.evaluator import evaluate
from kerneltest.trace.jax_compat.jaxpr_types import Equation, Var
from kerneltest.trace.jax_compat.source_lines import propagate_call_lines
from kerneltest.trace.partial_arrays import PartialArray
from kerneltest.trace.rewrite import rewrite_jaxpr
from kerneltest.trace.tracing import Call, Traced, kernel_device

RunCall = Callable[[Equation, list[PartialArray]], list[PartialArray]]


class MutableCall:
    """One lowered Pallas call, to be run as it is or with another body.

    Attributes:
      call: the call.
      kernel: the code that it is lowered to.
      listing: its operations.

    Raises:
      Failure: it does not lower, or the simulator does not support an operation.
    """

    def __init__(self, call: Call, target: Target, lengths: Mapping[str, int]) -> None:
        inner = rewrite_jaxpr(call.equation.params["jaxpr"], _with_location)
        equation = call.equation.replace(params={**call.equation.params, "jaxpr": inner})
        self.call = replace(call, equation=equation)
        (self.kernel,) = lower_call(self.call, target)
        inputs, outputs, _ = allocate_buffers(self.call, self.kernel)
        arguments = [Type((), buffer.data.dtype, True) for buffer in (*inputs, *outputs)]
        names = [buffer.name for buffer in (*inputs, *outputs)]
        self.listing = Listing(parse_body(self.kernel.bytecode, complete=True), arguments, names, len(inputs), lengths)

    def prepare(self, body: Region | None = None) -> "PreparedCall":
        """Returns the call, or one with another body, ready to run."""
        inputs, outputs, hints = allocate_buffers(self.call, self.kernel)
        simulation = Simulation(body or self.listing.body, self.kernel.grid, inputs, outputs, hints)
        return PreparedCall(simulation, list(zip(outputs, output_dtypes(self.call), strict=True)))

    def program(self, number: int) -> tuple[int, ...]:
        """Returns a program's index in the grid, given its linear id."""
        return program_index(self.kernel.grid, number)


def _with_location(equation: Equation) -> Sequence[Equation] | None:
    other = propagate_call_lines(equation)
    return None if other is equation else [other]


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call, as it is or mutated, ready to run.

    Attributes:
      simulation: of the call.
      outputs: the output buffers, with their dtypes in JAX.
    """

    simulation: Simulation
    outputs: list[tuple[SimulatedBuffer, np.dtype]]

    def run(self, operands: Sequence[PartialArray]) -> tuple[list[PartialArray], list[Fault]]:
        """Runs it, and returns the outputs and the wrong uses of memory."""
        self.simulation.run(input_contents(operands))
        return output_arrays(self.simulation, self.outputs), self.simulation.faults()

    def trace_specials(
        self, operands: Sequence[PartialArray], listing: Listing
    ) -> tuple[list[PartialArray], list[SpecialEvent]]:
        """Runs it, and returns the outputs and the operations at which NaN and infinities appear or are lost."""
        self.simulation.place(input_contents(operands))
        launch = self.simulation.launch
        for buffer in launch.buffers:
            buffer.reset()
        tracer = SpecialTracer(launch, listing)
        with np.errstate(all="ignore"):
            tracer.enter(listing.body, [BufferPointer(i, np.zeros(1, np.int64)) for i in range(len(launch.buffers))])
        return output_arrays(self.simulation, self.outputs), list(tracer.events.values())


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """The result of a run.

    Attributes:
      outputs: the kernel's outputs.
      undefined: a mask of the undefined elements of each, or None.
      faults: wrong uses of memory.
    """

    outputs: tuple[Array, ...]
    undefined: tuple[Array | None, ...]
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class Patch:
    """Changes of a kernel.

    Attributes:
      calls: mutated Pallas calls, by their number.
      substitutions: variables of the function around the calls, with those whose values they take instead.
    """

    calls: Mapping[int, PreparedCall] = field(default_factory=dict)
    substitutions: Mapping[Var, Var] = field(default_factory=dict)


class MutableKernel:
    """A traced kernel that runs as it is or with a patch.

    Attributes:
      traced: the kernel.
      target: the GPU that it is lowered for.
      lengths: the lengths of its dims, by name.
      calls: its Pallas calls, in order.

    Raises:
      Failure: as for `MutableCall`.
    """

    def __init__(self, traced: Traced, target: Target, lengths: Mapping[str, int]) -> None:
        self.traced, self.target, self.lengths = traced, target, lengths
        self.calls = [MutableCall(call, target, lengths) for call in traced.calls]
        self._numbers = {id(call.equation): i for i, call in enumerate(traced.calls)}
        self._unpatched: list[PreparedCall] = [call.prepare() for call in self.calls]

    def run(self, leaves: Sequence[Array], patch: Patch | None = None) -> SimulatedRun:
        """Runs the kernel on its inputs, with a patch or as it is."""
        faults: list[Fault] = []
        applied = patch or Patch()

        def run_call(equation: Equation, operands: list[PartialArray]) -> list[PartialArray]:
            number = self._numbers[id(equation)]
            outputs, found = applied.calls.get(number, self._unpatched[number]).run(operands)
            faults.extend(found)
            return outputs

        return self._run(leaves, run_call, faults, applied.substitutions)

    def trace_specials(self, leaves: Sequence[Array]) -> list[tuple[int, SpecialEvent]]:
        """Runs the kernel, and returns where NaN and infinities appear or are lost: the call's number and the event."""
        events: list[tuple[int, SpecialEvent]] = []

        def run_call(equation: Equation, operands: list[PartialArray]) -> list[PartialArray]:
            number = self._numbers[id(equation)]
            outputs, found = self._unpatched[number].trace_specials(operands, self.calls[number].listing)
            events.extend((number, event) for event in found)
            return outputs

        self._run(leaves, run_call, [], {})
        return events

    def _run(
        self, leaves: Sequence[Array], run_call: RunCall, faults: list[Fault], substitutions: Mapping[Var, Var]
    ) -> SimulatedRun:
        with jax.default_device(kernel_device("cpu")):
            outputs = evaluate(self.traced, list(map(_read_only, leaves)), run_call, substitutions)
        values = tuple(np.asarray(output.values) for output in outputs)
        return SimulatedRun(values, tuple(output.undefined for output in outputs), tuple(faults))


def _read_only(values: Array) -> Array:
    """Returns a view of the values to which a mutated kernel cannot write."""
    view = values.view()
    view.flags.writeable = False
    return view
