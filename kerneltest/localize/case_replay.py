"""Replays of cases in the simulator, of the original kernel and of patched ones, with the results compared."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

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
from kerneltest.backends.simulate.interpreter import BufferPointer, IRInterpreter
from kerneltest.backends.simulate.ir import Operation, Region, Rule, Semantics, Type, any_operand
from kerneltest.backends.simulate.memory import Fault, Launch, SimulatedBuffer, program_index
from kerneltest.backends.simulate.simulation import Simulation, parse_body
from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.failures import Failure, convert_exceptions
from kerneltest.core.targets import TARGETS, Target
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.claims import CaseContext, OutputCheck, Variation
from kerneltest.execute.invariant_group import INVARIANTS
from kerneltest.judge.compare import Comparison, compare_outputs
from kerneltest.localize.listing import Listing
from kerneltest.localize.sites import locate_equations
from kerneltest.plan.cases import Case, signature_slots
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.families import FAMILIES
from kerneltest.trace.jax_compat.jaxprs import Equation, Var
from kerneltest.trace.jax_compat.source_lines import keep_retraced_lines
from kerneltest.trace.machine import UnknownError
from kerneltest.trace.partial_arrays import PartialArray, PartialKernel
from kerneltest.trace.primitives import primitive_named
from kerneltest.trace.tracing import Call, Traced, kernel_device

# The operations at which NaN and infinities appear or are lost during a run, and repairs of these operations.

# Operations that only move elements, or load them.
_MOVES = ("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.load", "arith.constant", "scf.")


class SpecialKind(StrEnum):
    """The kinds of events."""

    NAN_APPEARS = "nan"
    INFINITY_APPEARS = "inf"
    NAN_LOST = "lost"


@dataclass(frozen=True, slots=True)
class SpecialEvent:
    """An operation in whose result NaN or an infinity appears that no operand has, or NaN is lost."""

    operation: int  # its number in the listing
    kind: SpecialKind
    program: int  # the linear id of the first program in which it occurs
    # the operands' values there; () if they do not correspond to the result's elements
    operands: tuple[np.generic, ...]
    result: np.generic  # the result's value there


class SpecialTracer(IRInterpreter):
    """An interpreter that notes the first event of each kind at each operation, in order of occurrence.

    Attributes:
      events: the events, by the operation's number and the kind.
    """

    def __init__(self, launch: Launch, listing: Listing) -> None:
        super().__init__(launch, {}, None)
        self._numbers = {id(op): i for i, op in enumerate(listing.operations)}
        self.events: dict[tuple[int, SpecialKind], SpecialEvent] = {}

    def run(self, op: Operation) -> None:
        super().run(op)
        number = self._numbers.get(id(op))
        if number is None or not op.results or op.name.startswith(_MOVES):
            return
        operands = [self.environment[n] for n in op.operands]
        result = self.environment[op.results[0]]
        if any(isinstance(value, BufferPointer) for value in (result, *operands)):
            return
        for kind in SpecialKind:
            lanes = find_events(op, kind, operands, result)
            if lanes is not None and lanes.any() and (number, kind) not in self.events:
                self.events[number, kind] = self._event(number, kind, operands, result, lanes)

    def _event(
        self, number: int, kind: SpecialKind, operands: Sequence[Array], result: Array, lanes: Array
    ) -> SpecialEvent:
        at = tuple(int(i) for i in np.argwhere(lanes)[0])
        correspond = all(operand.ndim == lanes.ndim for operand in operands)
        values = tuple(np.broadcast_to(operand, lanes.shape)[at] for operand in operands) if correspond else ()
        program = int(self.launch.programs[at[0] if lanes.shape[0] > 1 else 0])
        return SpecialEvent(number, kind, program, values, np.broadcast_to(result, lanes.shape)[at])


def find_events(op: Operation, kind: SpecialKind, operands: Sequence[Array], result: Array) -> Array | None:
    """Returns a mask of a result's elements at which an event occurs; None if that cannot be determined."""
    is_lost = kind is SpecialKind.NAN_LOST
    if not is_float(result.dtype) or (op.name == "tt.dot" and is_lost):
        return None
    before = np.zeros((1,) * result.ndim, bool)
    for operand in operands:
        if is_float(operand.dtype):
            special = ~np.isfinite(operand) if kind is SpecialKind.INFINITY_APPEARS else np.isnan(operand)
            special = _by_result(op, special, result.ndim)
            if special.ndim != result.ndim:
                return None
            before = before | special
    after = np.isinf(result) if kind is SpecialKind.INFINITY_APPEARS else np.isnan(result)
    return np.asarray(before & ~after if is_lost else after & ~before)


def _by_result(op: Operation, special: Array, axes: int) -> Array:
    # A mask of the result's elements that depend on special elements of an operand.
    if op.name == "tt.reduce":
        return np.asarray(special.any(axis=op.attributes["axis"] + 1))
    if op.name in ("tt.dot", "tt.scan"):
        return special.reshape(special.shape[0], -1).any(axis=1).reshape(-1, *(1,) * (axes - 1))
    return special


def repair(op: Operation, kind: SpecialKind, value: float) -> Sequence[Operation]:
    """Returns an operation that gives `value` wherever an event of this kind occurs."""
    original = op.semantics.rule(op)

    def compute(*operands: Array) -> Array | tuple[Array, ...]:
        results = original.compute(*operands)
        first, *rest = results if isinstance(results, tuple) else (results,)
        lanes = find_events(op, kind, operands, first)
        assert lanes is not None
        first = np.where(lanes, np.asarray(value).astype(first.dtype), first)
        return (first, *rest) if rest else first

    rule = Rule(compute, any_operand)
    return [replace(op, semantics=Semantics(lambda _: rule))]


def describe_event(op: Operation, primitive: str, event: SpecialEvent) -> str:
    """Returns `-inf - -inf is nan`: an operation with its operands' values, and its result."""
    values, result = [_number(value) for value in event.operands], _number(event.result)
    known = primitive_named(primitive)
    if known.sign and len(values) == 2:
        expression = f"{values[0]} {known.sign} {values[1]}"
    elif values:
        expression = f"{known.words}({', '.join(values)})"
    else:
        expression = f"{known.words} of {'NaN' if event.kind is SpecialKind.NAN_LOST else 'numbers other than NaN'}"
    if event.kind is SpecialKind.INFINITY_APPEARS and not any(float(value) == 0 for value in event.operands):
        return f"{expression} overflows {op.types[0].dtype.name} to {result}"
    return f"{expression} is {result}" + (": NaN is lost" if event.kind is SpecialKind.NAN_LOST else "")


def _number(value: np.generic) -> str:
    return f"{float(value):.6g}" if is_float(np.asarray(value).dtype) else str(value)


# A kernel that runs in the simulator as it is, with special values traced, or with a patch applied.

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
        inner = locate_equations(call.equation.params["jaxpr"])
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


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call, as it is or mutated, ready to run."""

    simulation: Simulation
    outputs: list[tuple[SimulatedBuffer, np.dtype]]  # the output buffers, with their dtypes in JAX

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
    """The result of a run."""

    outputs: tuple[Array, ...]
    undefined: tuple[Array | None, ...]  # a mask of the undefined elements of each, or None
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class Patch:
    """Changes of a kernel."""

    calls: Mapping[int, PreparedCall] = field(default_factory=dict)  # mutated Pallas calls, by their number
    # variables of the function around the calls, with those whose values they take instead
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
            outputs = PartialKernel(self.traced, run_call, substitutions)(list(map(_read_only, leaves)))
        values = tuple(np.asarray(output.values) for output in outputs)
        return SimulatedRun(values, tuple(output.undefined for output in outputs), tuple(faults))


def _read_only(values: Array) -> Array:
    # A mutated kernel may not write to its inputs.
    view = values.view()
    view.flags.writeable = False
    return view


K = TypeVar("K")
R = TypeVar("R")
_DISTINCTIVE = ("position_coded", "normal")  # families with hardly two equal values
_MOST_ELEMENTS = 2**20  # in the inputs and outputs of a case that is replayed
_SIGNATURES = 4  # to which cases of these families are added; each is a compilation


class CaseReplay:
    """A call of a kernel with known results.

    Attributes:
      case: the case that the values belong to.
      kernel: the kernel that is called.
      leaves: its inputs.
      original: the run of the original kernel.
      comparisons: of the outputs of the original kernel.
    """

    def __init__(self, case: AnyCase, variation: Variation, kernel: MutableKernel, signed_zeros: bool) -> None:
        self.case = case
        self.kernel, self.leaves = kernel, variation.leaves
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

    def is_right(self, run: SimulatedRun) -> bool:
        """Tells whether no element is wrong or undefined, and memory was used correctly."""
        undefined = any(mask is not None and mask.any() for mask in run.undefined)
        return not run.faults and not undefined and not any(c.wrong.any() for c in self.compare(run))

    @property
    def is_wrong(self) -> bool:
        """True if the original kernel fails."""
        return not self.is_right(self.original)

    @property
    def is_special(self) -> bool:
        """True if every wrong element is so by a NaN or an infinity (see `wrongly_special`, `lost_nans`)."""
        rest = (c.wrong & ~wrongly_special(c) & ~lost_nans(c) for c in self.comparisons)
        return not self.original.faults and not any(each.any() for each in rest)

    def attempt(self, patch: Patch) -> SimulatedRun | None:
        """Runs the kernel with a patch; returns None if the patched kernel raises."""
        try:
            return self.kernel.run(self.leaves, patch)
        except Exception:
            return None


def wrongly_special(comparison: Comparison) -> Array:
    """Returns a mask of the elements that are NaN and should not be, or infinite and should be finite."""
    if not is_float(comparison.actual.dtype):
        return np.zeros(comparison.wrong.shape, bool)
    actual, expected = comparison.actual.astype(np.float64), comparison.expected
    nan = np.isnan(actual) & ~np.isnan(expected)
    infinite = np.isinf(actual) & np.isfinite(expected)
    return np.asarray(comparison.wrong & (nan | infinite))


def lost_nans(comparison: Comparison) -> Array:
    """Returns a mask of the elements that should be NaN and are not."""
    if not is_float(comparison.actual.dtype):
        return np.zeros(comparison.wrong.shape, bool)
    actual = comparison.actual.astype(np.float64)
    return np.asarray(comparison.wrong & np.isnan(comparison.expected) & ~np.isnan(actual))


def replay_cases(pairing: Pairing, cases: Sequence[AnyCase], family: str, target: str) -> list[CaseReplay]:
    """Replays cases, and further ones for the same lengths; see `replays`.

    Returns:
      The replays of all cases that can be simulated, the first case's first; none if that one cannot be.
    """
    found: list[CaseReplay] = []
    for replay in _simulated(pairing, [*cases, *distinctive_cases(pairing, cases)], family, target):
        if replay is None and not found:
            return []
        found += [replay] if replay is not None else []
    return found


def replay_until(
    pairing: Pairing, cases: Sequence[AnyCase], family: str, target: str, deadline: float
) -> Iterator[CaseReplay]:
    """Replays as many cases as there is time for. The deadline is a time of `time.monotonic`."""
    for replay in _simulated(pairing, cases, family, target):
        if replay is not None:
            yield replay
        if time.monotonic() > deadline:
            return


def _simulated(pairing: Pairing, cases: Sequence[AnyCase], family: str, target: str) -> Iterator[CaseReplay | None]:
    def make(case: AnyCase, variation: Variation, cache: Cache, kernels: dict[int, MutableKernel]) -> CaseReplay:
        key = id(variation.traced)
        if key not in kernels:
            kernels[key] = MutableKernel(variation.traced, TARGETS[target], dict(case.signature.dims))
        with convert_exceptions("the simulation", Verdict.RUNTIME_ERROR):
            return CaseReplay(case, variation, kernels[key], pairing.signed_zeros)

    (backend,) = resolve([f"simulate:{target}"])
    return replays(pairing, cases, family, backend, make)


def replays(
    pairing: Pairing,
    cases: Sequence[AnyCase],
    family: str,
    backend: Backend,
    make: Callable[[AnyCase, Variation, Cache, dict[int, K]], R],
    deadline: float = math.inf,
) -> Iterator[R | None]:
    """Yields replays of the calls of cases, and None for a case that cannot be replayed.

    Args:
      pairing: the kernel and its oracle.
      cases: the cases.
      family: the family that the first one was recorded under: an invariant's name stands for the calls that it makes.
      backend: the backend for which the kernel is traced.
      make: makes the replay of a call. The kernels that it makes are kept, by the id of their trace.
      deadline: when to stop, as a time of `time.monotonic`.
    """
    cache = Cache()
    kernels: dict[int, K] = {}
    try:
        for case in cases:
            if time.monotonic() > deadline:
                return
            try:
                for variation in _variations(pairing, case, family, backend, cache):
                    yield make(case, variation, cache, kernels)
            except (Failure, UnknownError):
                yield None
    finally:
        cache.process.pool.close()


def _variations(pairing: Pairing, case: AnyCase, family: str, backend: Backend, cache: Cache) -> Iterator[Variation]:
    # The calls of an invariant, or one that is compared with the oracle.
    traced = cache.traces.of(pairing, case.signature, backend)
    if reason := backend.unsupported_reason(traced):
        raise Failure(Verdict.UNAVAILABLE, reason)
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


def distinctive_cases(pairing: Pairing, cases: Sequence[AnyCase]) -> Iterator[Case]:
    """Yields extra cases with distinctive values, so that a mutant cannot pass by coincidence."""
    for signature in list(dict.fromkeys(case.signature for case in cases))[:_SIGNATURES]:
        slots = signature_slots(pairing, signature).values()
        for family in map(FAMILIES.__getitem__, _DISTINCTIVE):
            if any(family.applies(slot) for slot in slots):
                yield Case(cases[0].pairing_id, pairing.name, signature, family, "", 0)
