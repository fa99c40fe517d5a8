"""Replays of cases in the simulator, of the original kernel and of patched ones, with the results compared."""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self, TypeVar

import jax
import numpy as np

from kerneltest.backends.base import Backend
from kerneltest.backends.codegen.tiers import lower_call
from kerneltest.backends.registry import resolve
from kerneltest.backends.simulate.backend import (
    allocate_buffers,
    input_contents,
    output_arrays,
    output_dtypes,
    precision_of,
)
from kerneltest.backends.simulate.ir import Region, Type, unsupported_failure
from kerneltest.backends.simulate.memory import Fault, SimulatedBuffer
from kerneltest.backends.simulate.simulation import Simulation, parse_body
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure, convert_exceptions
from kerneltest.core.targets import TARGETS, Target
from kerneltest.core.verdicts import Verdict
from kerneltest.core.work_budget import JUDGED, LOWERED, SIMULATED, WorkBudget
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.claims import CaseContext, OutputCheck, Variation
from kerneltest.execute.invariant_group import INVARIANTS
from kerneltest.judge.compare import Comparison, compare_outputs
from kerneltest.localize.code_operators import Listing
from kerneltest.localize.sites import locate_equations
from kerneltest.plan.cases import Case, signature_slots
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.families import FAMILIES
from kerneltest.trace.cost_model import estimate_work
from kerneltest.trace.jax_compat.jaxprs import Equation, Var
from kerneltest.trace.jax_compat.source_lines import keep_retraced_lines
from kerneltest.trace.machine import UnknownError
from kerneltest.trace.partial_arrays import PartialArray, PartialKernel
from kerneltest.trace.tracing import Call, Traced, kernel_device
from kerneltest.trace.triton_kernels import is_triton_call

# A kernel that runs in the simulator as it is or with a patch applied.

# From a call's number and its operands to its outputs.
RunCall = Callable[[int, list[PartialArray]], list[PartialArray]]


class MutableCall:
    """One lowered Pallas call, to be run as it is or with another body; `listing` has its operations.

    Failure: it does not lower, or the simulator does not support an operation.
    """

    def __init__(self, call: Call, target: Target, lengths: Mapping[str, int]) -> None:
        self.call = call
        if not is_triton_call(call.equation):
            inner = locate_equations(call.equation.params["jaxpr"])
            equation = call.equation.replace(params={**call.equation.params, "jaxpr": inner})
            self.call = replace(call, equation=equation)
        (self.kernel,) = lower_call(self.call, target)
        inputs, outputs, _ = allocate_buffers(self.call, self.kernel)
        buffers = [*inputs, *outputs]
        given = range(len(buffers)) if self.kernel.arguments is None else self.kernel.arguments
        types = [
            Type((), buffers[a].data.dtype, True) if isinstance(a, int) else Type((), a.dtype, False) for a in given
        ]
        names = [buffers[a].name if isinstance(a, int) else f"the argument {a}" for a in given]
        written = [i for i, a in enumerate(given) if isinstance(a, int) and a >= len(inputs)]
        self.listing = Listing(parse_body(self.kernel.bytecode, complete=True), types, names, written, lengths)

    def prepare(self, body: Region | None = None) -> "PreparedCall":
        inputs, outputs, hints = allocate_buffers(self.call, self.kernel)
        simulation = Simulation(
            body or self.listing.body, self.kernel.grid, inputs, outputs, hints, None, self.kernel.arguments
        )
        return PreparedCall(simulation, list(zip(outputs, output_dtypes(self.call), strict=True)))


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call, as it is or with another body, ready to run."""

    simulation: Simulation
    outputs: list[tuple[SimulatedBuffer, np.dtype]]  # the output buffers, with their dtypes in JAX

    def results(self) -> list[PartialArray]:
        return output_arrays(self.simulation, self.outputs)


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """The result of a run."""

    outputs: tuple[Array, ...]
    undefined: tuple[Array | None, ...]  # a mask of the undefined elements of each, or None
    faults: tuple[Fault, ...]

    @property
    def is_defined(self) -> bool:
        return not self.faults and not any(mask is not None and mask.any() for mask in self.undefined)


@dataclass(frozen=True, slots=True)
class Patch:
    """Changes of a kernel."""

    calls: Mapping[int, PreparedCall] = field(default_factory=dict)  # other Pallas calls, by their number
    # variables of the function around the calls, with those whose values they take instead
    substitutions: Mapping[Var, Var] = field(default_factory=dict)


class MutableKernel:
    """A traced kernel, lowered for a GPU, that runs as it is or with a patch; raises as `MutableCall`.

    `lengths` has those of its dims by name, `prepared` its Pallas calls, ready to run, and `work` that of a run.
    """

    def __init__(self, traced: Traced, target: Target, lengths: Mapping[str, int]) -> None:
        if "mosaic_gpu" in traced.dialects:
            raise unsupported_failure("changed Mosaic GPU kernels")
        self.traced, self.target, self.lengths = traced, target, lengths
        self.calls = [MutableCall(call, target, lengths) for call in traced.calls]
        self._numbers = {id(call.equation): i for i, call in enumerate(traced.calls)}
        self.prepared = [call.prepare() for call in self.calls]
        self.work = estimate_work(traced).seconds

    def run(self, leaves: Sequence[Array], patch: Patch | None = None) -> SimulatedRun:
        faults: list[Fault] = []
        applied = patch or Patch()

        def run_call(number: int, operands: list[PartialArray]) -> list[PartialArray]:
            call = applied.calls.get(number, self.prepared[number])
            call.simulation.run(input_contents(operands))
            faults.extend(call.simulation.faults())
            return call.results()

        outputs = self.evaluate(leaves, run_call, applied.substitutions)
        values = tuple(np.asarray(output.values) for output in outputs)
        return SimulatedRun(values, tuple(output.undefined for output in outputs), tuple(faults))

    def evaluate(
        self, leaves: Sequence[Array], run_call: RunCall, substitutions: Mapping[Var, Var] = MappingProxyType({})
    ) -> Sequence[PartialArray]:
        """Evaluates the function around the calls, which `run_call` runs."""
        inputs = [leaf.view() for leaf in leaves]
        for leaf in inputs:
            leaf.flags.writeable = False  # a patched kernel may not write to its inputs

        def run_equation(equation: Equation, operands: list[PartialArray]) -> list[PartialArray]:
            return run_call(self._numbers[id(equation)], operands)

        with jax.default_device(kernel_device("cpu")):
            return PartialKernel(self.traced, run_equation, substitutions)(inputs)


K = TypeVar("K")
_DISTINCTIVE = ("position_coded", "normal")  # families with hardly two equal values
_MOST_ELEMENTS = 2**20  # in the inputs and outputs of a case that is replayed
_SIGNATURES = 4  # to which cases of these families are added; each is a compilation


class CaseReplay:
    """A call of a kernel with known results; `original` is the run of the original kernel on its `leaves`.

    Attributes:
      together: the number of repairs that are best tried at once.
      most_edits: the number of repairs after which a search is given up.
      making: the work of making the replay.
    """

    together, most_edits = 1, 2**10
    _of_values: bool | None = None  # whether only values are judged, or only the use of memory; None for both

    def __init__(self, case: AnyCase, variation: Variation, kernel: MutableKernel, signed_zeros: bool) -> None:
        self.case = case
        self.kernel, self.leaves, self.making = kernel, variation.leaves, JUDGED + kernel.work
        self.original = kernel.run(self.leaves)
        self._checks = variation.checks
        precision = precision_of(variation.traced)
        self._expected = [check.wanted(check.take(self.original.outputs), precision) for check in self._checks]
        self._signed_zeros = signed_zeros
        self.comparisons = self.compare(self.original)

    def compare(self, run: SimulatedRun) -> list[Comparison]:
        """Compares every output with the expected one."""
        found: list[Comparison] = []
        for check, expected in zip(self._checks, self._expected, strict=True):
            signed_zeros = expected.bitwise or self._signed_zeros
            found += compare_outputs(check.take(run.outputs), expected, signed_zeros=signed_zeros)
        return found

    def part(self, *, of_values: bool) -> Self:
        """Returns the same call, of which only the values of defined elements are judged, or only the use of memory."""
        made = copy.copy(self)
        made._of_values = of_values
        return made

    def is_right(self, run: SimulatedRun) -> bool:
        """Tells whether no element is wrong or undefined, and memory was used correctly."""
        if not self._of_values and not run.is_defined:
            return False
        found = self.compare(run)
        if self._of_values is None:
            return not any(comparison.wrong.any() for comparison in found)
        for new, old, undefined in zip(found, self.comparisons, self.original.undefined, strict=True):
            wrong = new.wrong if self._of_values else new.wrong & ~old.wrong
            if (wrong if undefined is None else wrong & ~undefined).any():
                return False
        return True

    @property
    def is_wrong(self) -> bool:
        return not self.is_right(self.original)

    def work(self, patches: int) -> float:
        """The work of judging the kernel with some patches."""
        return patches * (SIMULATED + self.kernel.work)

    def are_right(self, patches: Sequence[Patch]) -> list[bool]:
        """Tells for each patch whether the kernel is right with it."""
        return [run is not None and self.is_right(run) for run in map(self.attempt, patches)]

    def attempt(self, patch: Patch) -> SimulatedRun | None:
        """Runs the kernel with a patch; returns None if the patched kernel raises."""
        try:
            return self.kernel.run(self.leaves, patch)
        except Exception:
            return None


def case_replays(
    pairing: Pairing, cases: Iterable[AnyCase], family: str, target: str, **options: Any
) -> Iterator[CaseReplay]:
    """Yields replays of the cases that can be simulated; the options are those of `replays`."""

    def make(case: AnyCase, variation: Variation, cache: Cache, kernels: dict[int, MutableKernel]) -> CaseReplay:
        key = id(variation.traced)
        if key not in kernels:
            if reason := backend.unsupported_reason(variation.traced):
                raise Failure(Verdict.UNAVAILABLE, reason)
            kernels[key] = MutableKernel(variation.traced, TARGETS[target], dict(case.signature.dims))
        with convert_exceptions("the simulation", Verdict.RUNTIME_ERROR):
            return CaseReplay(case, variation, kernels[key], pairing.signed_zeros)

    (backend,) = resolve([f"simulate:{target}"])
    return replays(pairing, cases, family, backend, make, **options)


def replays(
    pairing: Pairing,
    cases: Iterable[AnyCase],
    family: str,
    backend: Backend,
    make: Callable[[AnyCase, Variation, Cache, dict[int, K]], Any],
    *,
    distinctive: bool = False,
    budget: WorkBudget | None = None,
    cache: Cache | None = None,
    kernels: dict[int, K] | None = None,
) -> Iterator[Any]:
    """Yields replays of the calls of cases, without those that cannot be replayed.

    The kernels that `make` makes are kept, by the id of their trace.

    Args:
      family: the family that the first one was recorded under: an invariant's name stands for the calls that it makes.
      backend: the backend for which the kernel is traced.
      distinctive: whether cases with distinctive values are added for the same lengths.
      budget: the work of making them is counted; the first one is made even if nothing is left.
      cache, kernels: a cache and the kernels made so far, for further cases; new ones if they are None.
    """
    shared, kernels, budget = cache or Cache(), {} if kernels is None else kernels, budget or WorkBudget()
    if distinctive:
        cases = list(cases)
        cases += _distinctive_cases(pairing, cases)
    try:
        for number, case in enumerate(cases):
            if number and budget.is_over():
                return
            with suppress(Failure, UnknownError):
                for variation in _variations(pairing, case, family, backend, shared):
                    before = len(kernels)
                    made = make(case, variation, shared, kernels)
                    budget.spend(made.making + LOWERED * (len(kernels) - before))
                    yield made
    finally:
        if cache is None:
            shared.process.pool.close()


def _variations(pairing: Pairing, case: AnyCase, family: str, backend: Backend, cache: Cache) -> Iterator[Variation]:
    # The calls of an invariant, or one that is compared with the oracle.
    traced = cache.traces.of(pairing, case.signature, backend)
    if sum(math.prod(array.shape) for array in (*traced.inputs, *traced.outputs)) > _MOST_ELEMENTS:
        raise Failure(Verdict.UNAVAILABLE, "too large to be replayed")
    expectation, _ = cache.expectations.of(pairing, case, traced)
    context = CaseContext(
        pairing, case, backend, traced, cache.expectations.arguments(pairing, case), expectation, cache
    )
    if family in INVARIANTS:
        with keep_retraced_lines():
            calls = list(INVARIANTS[family].vary(context))
        yield from calls
    else:
        yield Variation(traced, context.leaves, (OutputCheck("", context.by_oracle()),))


def _distinctive_cases(pairing: Pairing, cases: Sequence[AnyCase]) -> Iterator[Case]:
    # So that a repair cannot pass by coincidence: also with the first case's lengths more than doubled, one at a time.
    own = cases[0].signature
    longer = ((own, {n: pairing.dims[n].fit(2 * k + 1)}) for n, k in own.dims)
    resized = (own.resized(pairing, to) for own, to in longer if all(pairing.dims[n].admits(k) for n, k in to.items()))
    known = list(dict.fromkeys(case.signature for case in cases))[:_SIGNATURES]
    for signature in filter(None, (*known, *resized)):
        slots = signature_slots(pairing, signature).values()
        for family in map(FAMILIES.__getitem__, _DISTINCTIVE):
            if any(family.applies(slot) for slot in slots):
                yield Case(cases[0].pairing_id, pairing.name, signature, family, "", 0)
