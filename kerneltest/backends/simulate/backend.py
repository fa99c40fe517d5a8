"""The simulate tier: executes the lowered code of each Pallas call in NumPy, and JAX the code around the calls."""

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from weakref import WeakValueDictionary

import jax
import numpy as np

from kerneltest.backends.base import Backend, Executable
from kerneltest.backends.codegen.tiers import LoweredKernel, check_mosaic_gpu, lower, lower_call, unsupported_on
from kerneltest.backends.simulate.at_scale import SimulatedAtScale
from kerneltest.backends.simulate.ir import naming_kernel, unsupported_failure
from kerneltest.backends.simulate.memory import SimulatedBuffer, check_same, memory_failure, signless
from kerneltest.backends.simulate.mosaic_gpu.backend import SimulatedKernel, prepare_calls
from kerneltest.backends.simulate.operations import plain_name
from kerneltest.backends.simulate.simulation import Simulation, parse_body
from kerneltest.backends.simulate.simulation import allocate_buffers as allocate_buffers
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import convert_exceptions
from kerneltest.core.precision import SIMULATED, XLA_CPU, Precision
from kerneltest.core.targets import Target, Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.partial_arrays import PartialArray, PartialKernel, require_defined
from kerneltest.trace.runnable import call_arrays
from kerneltest.trace.tracing import Call, Traced, kernel_device


@dataclass(frozen=True, slots=True)
class Simulate(Backend):
    """Runs the code lowered for a GPU; needs neither a GPU nor the triton package."""

    id: str
    target: Target
    tier = Tier.SIMULATE
    supports_scale = True
    device_platform = "cpu"  # XLA computes what surrounds the Pallas calls
    # the number of random orders in which programs are also run one after another, to compare the results
    orders: int = 0

    @property
    def platform(self) -> str:
        return self.target.platform

    def lowering_backend(self) -> str:
        return f"{Tier.LOWER}:{self.target}"

    def with_program_orders(self, count: int) -> "Simulate":
        return replace(self, orders=count)

    def unsupported_reason(self, traced: Traced) -> str:
        if "mosaic_gpu" in traced.dialects and jax.__version_info__ < (0, 11):
            return f"JAX {jax.__version__} lowers Mosaic GPU kernels without the dialect that is simulated"
        return unsupported_on(traced, self.target)

    def prepare(self, traced: Traced) -> Executable:
        if "mosaic_gpu" in traced.dialects:
            check_mosaic_gpu(traced, self.target)
            mosaic = prepare_calls(traced, self.target, lambda: lower(traced, self.target), self.orders)
            return Simulated(traced, mosaic, precision_of(traced))
        calls = tuple(_prepare_call(call, self.target, self.orders) for call in traced.calls)
        by_equation = {id(call.equation): each for call, each in zip(traced.calls, calls, strict=True)}
        return _kernels.setdefault((traced, calls), Simulated(traced, by_equation, precision_of(traced)))

    def prepare_at_scale(self, traced: Traced) -> SimulatedAtScale:
        if "mosaic_gpu" in traced.dialects:
            raise unsupported_failure("production sizes of Mosaic GPU kernels")
        return SimulatedAtScale(traced, self.target, precision_of(traced))


def precision_of(traced: Traced) -> Precision:
    """Returns the precision of a simulated kernel: XLA computes the code around its Pallas calls on the CPU."""
    return traced.adapt_precision(SIMULATED, XLA_CPU)


class _SimulatedCall:
    def __init__(self, call: Call, kernel: LoweredKernel, orders: int) -> None:
        self.name, self.orders = call.name, orders
        inputs, outputs, hints = allocate_buffers(call, kernel)
        self.outputs = list(zip(outputs, output_dtypes(call), strict=True))
        with naming_kernel(call.name):
            body = parse_body(kernel.bytecode)
            self.simulation = Simulation(body, kernel.grid, inputs, outputs, hints, None, kernel.arguments)
        programs = self.simulation.launch.programs[: None if orders else 0]
        self.by_program = [
            Simulation(body, kernel.grid, inputs, outputs, hints, np.array([program]), kernel.arguments)
            for program in programs
        ]

    def run(self, operands: Sequence[PartialArray]) -> list[PartialArray]:
        inputs = input_contents(operands)
        self._compare_orders(inputs)
        self.simulation.run(inputs)
        faults = self.simulation.faults()
        if faults:
            raise memory_failure(self.name, faults)
        return output_arrays(self.simulation, self.outputs)

    def _compare_orders(self, inputs: Sequence[tuple[Array, Array | None]]) -> None:
        first: list[Array] = []
        rng = np.random.Generator(np.random.PCG64(0))
        for number in range(self.orders + 1 if self.by_program else 0):
            self.simulation.place(inputs)
            order = rng.permutation(len(self.by_program)) if number else range(len(self.by_program))
            for program in order:
                self.by_program[program].execute()
            results = [buffer.data.view(dtype) for buffer, dtype in self.outputs]
            first = first or results
            for before, after, (buffer, _) in zip(first, results, self.outputs, strict=True):
                how = "with programs in order", "in another order"
                check_same(buffer.name, buffer.shape, before, after, how, self.name)


# Calls and kernels that are in use. The code for two targets often differs only in the names of functions.
_calls: "WeakValueDictionary[Hashable, _SimulatedCall]" = WeakValueDictionary()
_kernels: "WeakValueDictionary[Hashable, Simulated]" = WeakValueDictionary()
_SYMBOL = re.compile(r'symbol = "(\w+)"')


def _prepare_call(call: Call, target: Target, orders: int) -> _SimulatedCall:
    # Returns a call ready to be simulated, the same object for all targets whose code computes the same.
    (kernel,) = lower_call(call, target)
    code = _SYMBOL.sub(lambda symbol: f'symbol = "{plain_name(symbol[1])}"', kernel.text)
    key = call, code, kernel.grid, tuple(kernel.aliases.items()), orders
    known = _calls.get(key)
    return _calls.setdefault(key, _SimulatedCall(call, kernel, orders)) if known is None else known


def output_dtypes(call: Call) -> list[np.dtype]:
    """Returns the dtypes of a call's outputs in JAX, which the IR's integers do not tell."""
    return [reference.dtype for reference in call_arrays(call)[1]]


def input_contents(operands: Sequence[PartialArray]) -> list[tuple[Array, Array | None]]:
    """Returns the contents of a call's inputs, as `Simulation.run` takes them."""
    return [(signless(np.asarray(operand.values)), operand.undefined) for operand in operands]


def output_arrays(simulation: Simulation, outputs: Sequence[tuple[SimulatedBuffer, np.dtype]]) -> list[PartialArray]:
    """Returns the contents of the outputs after a run, with their undefined elements."""
    sources = tuple(simulation.launch.checker.sources)
    arrays = []
    for buffer, dtype in outputs:
        undefined = simulation.undefined_codes(buffer)
        mask = None if undefined is None else undefined.reshape(buffer.shape)
        arrays.append(PartialArray(buffer.data.view(dtype).reshape(buffer.shape), mask, sources))
    return arrays


@dataclass(frozen=True, eq=False)
class Simulated:
    """A kernel whose Pallas calls are simulated; one object for all targets whose code computes the same."""

    traced: Traced
    calls: Mapping[int, "_SimulatedCall | SimulatedKernel"]
    precision: Precision

    @cached_property
    def _kernel(self) -> PartialKernel:
        calls = self.calls  # not this object, which is dropped when it is not in use
        return PartialKernel(self.traced, lambda equation, operands: calls[id(equation)].run(operands))

    def run(self, leaves: Sequence[Array]) -> tuple[Array, ...]:
        with convert_exceptions("the simulation", Verdict.RUNTIME_ERROR), jax.default_device(kernel_device("cpu")):
            outputs = self._kernel(leaves)
        return require_defined(outputs)
