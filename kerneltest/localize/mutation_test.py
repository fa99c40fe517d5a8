"""A kernel to experiment with: run in the simulator as it is, watched, or with something in it changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from kerneltest.backends.codegen.lower import lower_call
from kerneltest.backends.simulate.ir import Region, Type
from kerneltest.backends.simulate.listing import Listing
from kerneltest.backends.simulate.memory import Fault, Watch
from kerneltest.backends.simulate.parse import parse
from kerneltest.backends.simulate.simulate import contents, memory_of, output_dtypes, results
from kerneltest.backends.simulate.simulation import Simulation
from kerneltest.backends.simulate.tape import Pointer
from kerneltest.core.dtypes import Array
from kerneltest.core.targets import Target
from kerneltest.localize.special_trace import Sighting, Watcher
from kerneltest.trace.evaluator import evaluate
from kerneltest.trace.jax_compat.names import placed
from kerneltest.trace.rewrite import rewritten
from kerneltest.trace.tracing import Call, Traced, device
from kerneltest.trace.undefined import PartialArray


class Specimen:
    """One Pallas call, lowered, to be run as it is or changed.

    Attributes:
      listing: its operations.

    Raises:
      Failure: it cannot be lowered, or the simulator does not know an operation.
    """

    def __init__(self, call: Call, target: Target, lengths: Mapping[str, int]) -> None:
        inner = rewritten(call.equation.params["jaxpr"], _placing)
        equation = call.equation.replace(params={**call.equation.params, "jaxpr": inner})
        self.call = replace(call, equation=equation)
        (self.kernel,) = lower_call(self.call, target)
        given, made, _ = memory_of(self.call, self.kernel)
        arguments = [Type((), buffer.data.dtype, True) for buffer in (*given, *made)]
        names = [buffer.name for buffer in (*given, *made)]
        self.listing = Listing(parse(self.kernel.bytecode, whole=True), arguments, names, len(given), lengths)

    def prepare(self, body: Region | None = None) -> "Prepared":
        """Makes it, or another body in its place, ready to run."""
        given, made, hints = memory_of(self.call, self.kernel)
        simulation = Simulation(body or self.listing.body, self.kernel.grid, given, made, hints)
        return Prepared(simulation, list(zip(made, output_dtypes(self.call), strict=True)))

    def program(self, number: int) -> str:
        """A program's id as the kernel sees it."""
        return Watch(self.kernel.grid, {}, np.arange(1)).program(number)


def _placing(equation: Any) -> Sequence[Any] | None:
    other = placed(equation)
    return None if other is equation else [other]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call, perhaps changed, ready to run."""

    simulation: Simulation
    made: list[tuple[Any, np.dtype[Any]]]

    def run(self, operands: Sequence[PartialArray]) -> tuple[list[PartialArray], list[Fault]]:
        """The outputs, and what it did to memory and must not."""
        self.simulation.run(contents(operands))
        return results(self.simulation, self.made), self.simulation.faults()

    def watch(self, operands: Sequence[PartialArray], listing: Listing) -> tuple[list[PartialArray], list[Sighting]]:
        """The outputs, and where NaN and infinities appear on the way."""
        self.simulation.place(contents(operands))
        launch = self.simulation.launch
        for buffer in launch.buffers:
            buffer.reset()
        watcher = Watcher(launch, listing)
        with np.errstate(all="ignore"):
            watcher.enter(listing.body, [Pointer(i, np.zeros(1, np.int64)) for i in range(len(launch.buffers))])
        return results(self.simulation, self.made), list(watcher.sightings.values())


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a run.

    Attributes:
      outputs: of the kernel.
      undefined: which elements of each are undefined, or None.
      faults: what was done to memory and must not be.
    """

    outputs: tuple[Array, ...]
    undefined: tuple[Array | None, ...]
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """What is other than in the kernel.

    Attributes:
      calls: Pallas calls, by their number.
      instead: variables of the function around them that are given another one's value.
    """

    calls: Mapping[int, Prepared] = field(default_factory=dict)
    instead: Mapping[Any, Any] = field(default_factory=dict)


class Experiment:
    """A traced kernel in which something can be changed.

    Attributes:
      traced: the kernel.
      specimens: its Pallas calls, in order.

    Raises:
      Failure: as `Specimen` does.
    """

    def __init__(self, traced: Traced, target: Target, lengths: Mapping[str, int]) -> None:
        self.traced, self.target, self.lengths = traced, target, lengths
        self.specimens = [Specimen(call, target, lengths) for call in traced.calls]
        self._numbers = {id(call.equation): i for i, call in enumerate(traced.calls)}
        self._plain: list[Prepared] = [specimen.prepare() for specimen in self.specimens]

    def run(self, leaves: Sequence[Array], changed: Changed | None = None) -> Run:
        """Runs it, changed or as it is."""
        faults: list[Fault] = []
        other = changed or Changed()

        def call(equation: Any, operands: list[PartialArray]) -> list[PartialArray]:
            number = self._numbers[id(equation)]
            outputs, found = other.calls.get(number, self._plain[number]).run(operands)
            faults.extend(found)
            return outputs

        return self._run(leaves, call, faults, other.instead)

    def watch(self, leaves: Sequence[Array]) -> list[tuple[int, Sighting]]:
        """Runs it; what was seen in which call."""
        sightings: list[tuple[int, Sighting]] = []

        def call(equation: Any, operands: list[PartialArray]) -> list[PartialArray]:
            number = self._numbers[id(equation)]
            outputs, seen = self._plain[number].watch(operands, self.specimens[number].listing)
            sightings.extend((number, sighting) for sighting in seen)
            return outputs

        self._run(leaves, call, [], {})
        return sightings

    def _run(self, leaves: Sequence[Array], call: Any, faults: list[Fault], instead: Mapping[Any, Any]) -> Run:
        with jax.default_device(device("cpu")):
            outputs = evaluate(self.traced, list(map(_read_only, leaves)), call, instead)
        values = tuple(np.asarray(output.values) for output in outputs)
        return Run(values, tuple(output.undefined for output in outputs), tuple(faults))


def _read_only(values: Array) -> Array:
    """The same memory, into which a changed kernel cannot write."""
    view = values.view()
    view.flags.writeable = False
    return view
