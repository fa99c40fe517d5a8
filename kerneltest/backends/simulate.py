"""The simulate tier: the lowered Triton IR of each Pallas call executed in NumPy, JAX doing what stands around it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from kerneltest.backends.base import BackendError
from kerneltest.backends.lowered import refusal
from kerneltest.dtypes import TF32, Array
from kerneltest.lower import LoweringError, lower_call
from kerneltest.simulate.memory import Buffer, describe_undefined
from kerneltest.simulate.parse import UnknownOperationError, parse
from kerneltest.simulate.run import Simulation
from kerneltest.targets import Target
from kerneltest.tolerance import Precision
from kerneltest.trace import Call, Held, Traced, evaluate, references
from kerneltest.verdicts import SEVERITY


@dataclass(frozen=True, slots=True)
class Simulate:
    """Runs what was lowered for `target`; needs neither a GPU nor the triton package."""

    target: Target
    tier: str = "simulate"

    @property
    def id(self) -> str:
        return f"simulate:{self.target}"

    def unavailable(self) -> str:
        return ""

    def refuses(self, traced: Traced) -> str:
        if "mosaic_gpu" in traced.dialects:
            return "Mosaic GPU kernels are not lowered to Triton IR, which is what is simulated"
        return refusal(traced, self.target)

    def prepare(self, traced: Traced) -> "Simulated":
        calls = {id(call.equation): _Simulation(call, self.target) for call in traced.calls}
        return Simulated(traced, calls, Precision(dot_input=TF32 if traced.reduced_dots else None))

    def environment(self) -> dict[str, Any]:
        return {}


class _Simulation:
    """One Pallas call of a kernel.

    Raises:
      BackendError: it cannot be lowered, or the simulator does not know an operation.
    """

    def __init__(self, call: Call, target: Target) -> None:
        self.call = call
        try:
            (kernel,) = lower_call(call, target)
            inputs, outputs = references(call)
            given = [Buffer(r.name, r.shape, np.zeros(math.prod(r.shape), r.dtype), output=False) for r in inputs]
            made = [
                given[kernel.aliases[i]]
                if i in kernel.aliases
                else Buffer(r.name, r.shape, np.zeros(math.prod(r.shape), r.dtype), output=True)
                for i, r in enumerate(outputs)
            ]
            hints = {r.name: r.hint for r in (*inputs, *outputs) if r.hint}
            self.given, self.made = given, made
            self.simulation = Simulation(parse(kernel.bytecode), kernel.grid, [*given, *made], hints)
        except LoweringError as error:
            raise BackendError(error.verdict, str(error)) from error
        except UnknownOperationError as error:
            raise BackendError("unimplemented", f"kernel {call.name} is not simulated: {error}") from error

    def run(self, operands: Sequence[Held]) -> list[Held]:
        """The outputs.

        Raises:
          BackendError: what the kernel did to memory and must not.
        """
        self.simulation.run([(np.asarray(held.values), held.undefined) for held in operands])
        faults = self.simulation.faults()
        if faults:
            first = max(faults, key=lambda fault: SEVERITY[fault.verdict])
            told = "\n".join(f"{fault.verdict}: {fault.message}" for fault in faults)
            raise BackendError(first.verdict, f"kernel {self.call.name}: {told}")
        found = []
        for buffer in self.made:
            undefined = self.simulation.undefined(buffer)
            mask = None if undefined is None else undefined.reshape(buffer.shape)
            found.append(Held(buffer.data.reshape(buffer.shape), mask, tuple(self.simulation.watch.sources)))
        return found


@dataclass(frozen=True, slots=True)
class Simulated:
    """A kernel whose Pallas calls are simulated."""

    traced: Traced
    calls: dict[int, _Simulation]
    precision: Precision

    def run(self, leaves: Sequence[Array]) -> tuple[Array, ...]:
        try:
            with jax.default_device(jax.devices("cpu")[0]):
                outputs = evaluate(self.traced, leaves, lambda equation, held: self.calls[id(equation)].run(held))
        except BackendError:
            raise
        except UnknownOperationError as error:
            raise BackendError("unimplemented", f"not simulated: {error}") from error
        except Exception as error:
            raise BackendError("runtime_error", f"the simulation raised {type(error).__name__}: {error}") from error
        for number, held in enumerate(outputs):
            if held.undefined is not None and held.undefined.any():
                values = np.asarray(held.values)
                buffer = Buffer(f"output {number}", values.shape, values.reshape(-1), output=False)
                verdict, message = describe_undefined(buffer, held.undefined.reshape(-1))
                because = f"; {'; '.join(held.sources)}" if held.sources and verdict == "uninitialised" else ""
                raise BackendError(verdict, message + because)
        return tuple(np.asarray(held.values) for held in outputs)
