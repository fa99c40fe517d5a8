"""The simulate tier: the lowered Triton IR of each Pallas call executed in NumPy, JAX doing what stands around it."""

import math
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

import jax
import numpy as np

from kerneltest.backends.base import Backend
from kerneltest.backends.codegen.lower import Kernel, lower_call
from kerneltest.backends.codegen.tiers import unsupported_on
from kerneltest.backends.simulate.at_scale import SimulatedAtScale
from kerneltest.backends.simulate.memory import Buffer, signless
from kerneltest.backends.simulate.operations.functions import bare
from kerneltest.backends.simulate.parse import parse
from kerneltest.backends.simulate.simulation import Simulation
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.precision import SIMULATED, XLA_CPU, Precision
from kerneltest.core.targets import Target, Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.evaluator import evaluate
from kerneltest.trace.runnable import Reference, references
from kerneltest.trace.tracing import Call, Traced, device
from kerneltest.trace.undefined import PartialArray, all_defined
from kerneltest.trace.walk import computes_around


@dataclass(frozen=True, slots=True)
class Simulate(Backend):
    """Runs what was lowered for `target`; needs neither a GPU nor the triton package.

    Attributes:
      orders: in how many random orders programs are also run one after another, to compare the results' bits.
    """

    id: str
    target: Target
    tier = Tier.SIMULATE
    scales = True
    orders: int = 0

    @property
    def platform(self) -> str:
        return self.target.platform

    def lowered_by(self) -> str:
        return f"{Tier.LOWER}:{self.target}"

    def in_orders(self, count: int) -> "Simulate":
        return replace(self, orders=count)

    def unsupported_reason(self, traced: Traced) -> str:
        if "mosaic_gpu" in traced.dialects:
            return "Mosaic GPU kernels are not lowered to Triton IR, which is what is simulated"
        return unsupported_on(traced, self.target)

    def prepare(self, traced: Traced) -> "Simulated":
        calls = tuple(_simulated(call, self.target, self.orders) for call in traced.calls)
        by_equation = {id(call.equation): each for call, each in zip(traced.calls, calls, strict=True)}
        return _kernels.setdefault((traced, calls), Simulated(traced, by_equation, precision_of(traced)))

    def at_scale(self, traced: Traced) -> SimulatedAtScale:
        return SimulatedAtScale(traced, self.target, precision_of(traced))


def precision_of(traced: Traced) -> Precision:
    """What simulating a kernel does to its numbers: XLA computes on the CPU what stands around its Pallas calls."""
    row = SIMULATED.beside(XLA_CPU) if computes_around(traced.jaxpr.jaxpr) else SIMULATED
    return traced.products_on(row)


class _SimulatedCall:
    """One Pallas call of a kernel.

    Raises:
      Failure: the simulator does not know an operation.
    """

    def __init__(self, call: Call, kernel: Kernel, orders: int) -> None:
        self.name, self.orders = call.name, orders
        given, made, hints = memory_of(call, kernel)
        self.made = list(zip(made, output_dtypes(call), strict=True))
        try:
            body = parse(kernel.bytecode)
            self.simulation = Simulation(body, kernel.grid, given, made, hints)
        except Failure as failure:
            raise Failure(failure.verdict, f"kernel {call.name} is not simulated: {failure}") from failure
        alone = self.simulation.launch.programs[: None if orders else 0]
        self.alone = [Simulation(body, kernel.grid, given, made, hints, np.array([p])) for p in alone]

    def run(self, operands: Sequence[PartialArray]) -> list[PartialArray]:
        """The outputs.

        Raises:
          Failure: what the kernel did to memory and must not.
        """
        inputs = contents(operands)
        self._compare_orders(inputs)
        self.simulation.run(inputs)
        faults = self.simulation.faults()
        if faults:
            first = max(faults, key=lambda fault: fault.verdict.severity)
            lines = (f.message if f.verdict is first.verdict else f"{f.verdict}: {f.message}" for f in faults)
            raise Failure(first.verdict, "\n".join(f"kernel {self.name}: {line}" for line in lines))
        return results(self.simulation, self.made)

    def _compare_orders(self, inputs: Sequence[tuple[Array, Array | None]]) -> None:
        """Runs the programs one after another, forwards and in random orders.

        Raises:
          Failure: `nondeterministic`, with the first element whose bits differ.
        """
        first: list[bytes] = []
        rng = np.random.Generator(np.random.PCG64(0))
        for number in range(self.orders + 1 if self.alone else 0):
            self.simulation.place(inputs)
            order = rng.permutation(len(self.alone)) if number else range(len(self.alone))
            for program in order:
                self.alone[program].execute()
            if not number:
                first = [buffer.data.tobytes() for buffer, _ in self.made]
                continue
            for before, (buffer, dtype) in zip(first, self.made, strict=True):
                was = np.frombuffer(before, f"u{dtype.itemsize}")
                differs = np.flatnonzero(was != buffer.data.view(was.dtype))
                if differs.size:
                    at = int(differs[0])
                    one, other = was[at : at + 1].view(dtype)[0], buffer.data[at : at + 1].view(dtype)[0]
                    raise Failure(
                        Verdict.NONDETERMINISTIC,
                        f"kernel {self.name}: {buffer.name}{buffer.element(at)} is {one} with programs in order "
                        f"and {other} in another order; {differs.size} elements differ",
                    )


# What is simulated, while anybody holds it. The code for two targets often differs in the names of functions alone.
_calls: "WeakValueDictionary[Hashable, _SimulatedCall]" = WeakValueDictionary()
_kernels: "WeakValueDictionary[Hashable, Simulated]" = WeakValueDictionary()
_SYMBOL = re.compile(r'symbol = "(\w+)"')


def _simulated(call: Call, target: Target, orders: int) -> _SimulatedCall:
    """A call as it is simulated, the same for all targets whose code computes the same.

    Raises:
      Failure: it cannot be lowered, or the simulator does not know an operation.
    """
    (kernel,) = lower_call(call, target)
    code = _SYMBOL.sub(lambda symbol: f'symbol = "{bare(symbol[1])}"', kernel.text)
    key = call, code, kernel.grid, tuple(kernel.aliases.items()), orders
    known = _calls.get(key)
    return _calls.setdefault(key, _SimulatedCall(call, kernel, orders)) if known is None else known


def memory_of(call: Call, kernel: Kernel) -> tuple[list[Buffer], list[Buffer], dict[str, str]]:
    """The buffers that a lowered call reads, those that it makes, and hints for `Watch`."""
    inputs, outputs = references(call)
    given = [_buffer(reference, output=False) for reference in inputs]
    made = [
        given[kernel.aliases[i]] if i in kernel.aliases else _buffer(reference, output=True)
        for i, reference in enumerate(outputs)
    ]
    return given, made, {r.name: r.hint for r in (*inputs, *outputs) if r.hint}


def output_dtypes(call: Call) -> list[np.dtype[Any]]:
    """The dtypes of a call's outputs, as JAX knows them."""
    return [reference.dtype for reference in references(call)[1]]


def contents(operands: Sequence[PartialArray]) -> list[tuple[Array, Array | None]]:
    """What stands in a call's inputs, for `Simulation.run`."""
    return [(signless(np.asarray(operand.values)), operand.undefined) for operand in operands]


def results(simulation: Simulation, made: Sequence[tuple[Buffer, np.dtype[Any]]]) -> list[PartialArray]:
    """What a run left in the outputs, with what is undefined there."""
    sources = tuple(simulation.launch.watch.sources)
    outputs = []
    for buffer, dtype in made:
        undefined = simulation.undefined(buffer)
        mask = None if undefined is None else undefined.reshape(buffer.shape)
        outputs.append(PartialArray(buffer.data.view(dtype).reshape(buffer.shape), mask, sources))
    return outputs


def _buffer(reference: Reference, *, output: bool) -> Buffer:
    data = signless(np.zeros(math.prod(reference.shape), reference.dtype))
    return Buffer(reference.name, reference.shape, data, output)


@dataclass(frozen=True, eq=False)
class Simulated:
    """A kernel whose Pallas calls are simulated; one object for all targets whose code computes the same."""

    traced: Traced
    calls: dict[int, _SimulatedCall]
    precision: Precision

    def run(self, leaves: Sequence[Array]) -> tuple[Array, ...]:
        try:
            with jax.default_device(device("cpu")):
                outputs = evaluate(self.traced, leaves, lambda equation, args: self.calls[id(equation)].run(args))
        except Failure:
            raise
        except Exception as error:
            raise Failure(Verdict.RUNTIME_ERROR, f"the simulation raised {type(error).__name__}: {error}") from error
        return all_defined(outputs)
