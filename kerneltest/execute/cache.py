"""The cache of a process: traces, expectations and executables that the cases of a pairing share."""

import functools
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar, TypeVarTuple

from kerneltest.backends.base import Artifact, Backend, Executable, FastPath
from kerneltest.core.dtypes import Array, widen
from kerneltest.core.failures import Failure, Guard, convert_exceptions
from kerneltest.core.fingerprint import Fingerprint
from kerneltest.core.processes import available_processors
from kerneltest.core.targets import TPUS
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.bounded_store import BoundedStore
from kerneltest.execute.formula import FormulaStore
from kerneltest.execute.time_budget import TimeBudget
from kerneltest.judge.special_values import find_magnitudes, find_special_inputs
from kerneltest.oracle.evaluation import check_all_masked, evaluate_oracle, expect
from kerneltest.oracle.expectation import Expectation, oracle_noise
from kerneltest.plan.explicit import DRAWN_FAMILY, AnyCase
from kerneltest.plan.signatures import Signature
from kerneltest.plan.slots import CountedAxis, counted_axes, data_paths, is_exact, last_blocks
from kerneltest.records.evidence import Magnitudes, SpecialInput
from kerneltest.records.journal import Journal, Phase
from kerneltest.records.schema import Record
from kerneltest.trace.tracing import Traced, trace, trace_in_float64, without_debugging

# The expectation of a case with its arguments, and of its gradients, computed once for all backends.

_BYTES_PER_ELEMENT = 16  # its value in the kernel's dtype and in float64, or its value and its bound
_GRADIENT_BYTES = 64  # for each number: its value, and two spreads with what they are made of
_MAX_GRADIENTS = 2**27  # bytes
_MAX_EXPECTATIONS = 3 * 2**27
_MAX_EVALUATIONS = 2**28


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The arguments of a case with the oracle's values for them, before its expectation is needed.

    Attributes:
      arguments: array arguments by path.
      outputs: the oracle's outputs, and where each is defined.
    """

    arguments: Mapping[str, Array]
    outputs: tuple[tuple[Array, ...], tuple[Array, ...]]


@dataclass(frozen=True)
class CachedExpectation:
    """The arguments of a case with the expectation for them.

    Attributes:
      arguments: array arguments by path.
      expectation: the oracle's values and bounds, or its failure.
      bitwise: whether outputs must equal it bit for bit.
      blocks: by path, the block length along the last axis of arguments that have one.
      counted: by path, the axes that integers count or divide.
      data: the paths of the arguments that are data.
    """

    arguments: Mapping[str, Array]
    expectation: Expectation | Failure
    bitwise: bool
    blocks: Mapping[str, int]
    counted: Mapping[str, CountedAxis]
    data: frozenset[str]

    @functools.cached_property
    def bytes(self) -> int:
        """Approximate size in bytes."""
        values = () if isinstance(self.expectation, Failure) else self.expectation.values
        return _size(self.arguments, values)

    @functools.cached_property
    def noise(self) -> float:
        """The absolute error that float64 rounding in the oracle may leave in a zero."""
        return oracle_noise(self.arguments)

    @functools.cached_property
    def special_inputs(self) -> tuple[SpecialInput, ...]:
        """The special values among the arguments."""
        return find_special_inputs(self.arguments, self.blocks, self.counted)

    @functools.cached_property
    def magnitudes(self) -> tuple[Magnitudes, ...]:
        """The binades of the numbers in arguments of data."""
        return find_magnitudes({path: value for path, value in self.arguments.items() if path in self.data})


def keep(
    pairing: Pairing,
    signature: Signature,
    arguments: Mapping[str, Array],
    expectation: Expectation | Failure,
    bitwise: bool,
) -> CachedExpectation:
    """Returns the expectation of a case, with its arguments and the axes that records describe them by."""
    axes = last_blocks(pairing), counted_axes(pairing, signature), data_paths(pairing)
    return CachedExpectation(arguments, expectation, bitwise, *axes)


def expectation_store() -> BoundedStore[str, CachedExpectation]:
    """Returns an empty store of expectations, by case."""
    return BoundedStore(_MAX_EXPECTATIONS, lambda expected: expected.bytes)


def evaluation_store() -> BoundedStore[str, Evaluation]:
    """Returns an empty store of evaluations, by case."""
    return BoundedStore(_MAX_EVALUATIONS, lambda known: _size(known.arguments, known.outputs[0]))


def _size(arguments: Mapping[str, Array], values: Sequence[Array]) -> int:
    """Returns the approximate size of a case in bytes."""
    return _BYTES_PER_ELEMENT * sum(each.size for each in (*arguments.values(), *values))


def gradient_store() -> BoundedStore[tuple[str, str], Expectation]:
    """Returns an empty store of expected gradients, by case and label of the check."""
    return BoundedStore(_MAX_GRADIENTS, _gradient_bytes)


def _gradient_bytes(expected: Expectation) -> int:
    return _GRADIENT_BYTES * sum(each.size for each in expected.values)


# The traces that cases run. A mutation test puts a tracer of mutants in the place of this one.


class Tracer:
    """Traces the kernel of a pairing as it is."""

    def trace(self, pairing: Pairing, signature: Signature, platform: str) -> Traced:
        """Returns the kernel traced for a signature.

        Raises:
          Failure: as `trace` does.
        """
        return trace(pairing, signature, platform)

    def trace_wide(self, pairing: Pairing, signature: Signature, own: Traced, platform: str) -> Traced | None:
        """Returns the kernel traced in float64, or None, as `trace_in_float64` does.

        Args:
          pairing: the kernel's.
          signature: of its arguments.
          own: the kernel traced in its own dtypes.
          platform: as `trace` takes it.
        """
        return trace_in_float64(pairing, signature, own, platform)

    def trace_variation(self, plain: Traced, make: Callable[[], Traced]) -> Traced:
        """Returns the traced function of an invariant.

        Args:
          plain: the kernel that it varies.
          make: traces the function.
        """
        return make()


# The state of a process that runs items.


@dataclass(slots=True)
class ProcessState:
    """The state of a process that runs items, apart from what their cases share.

    Attributes:
      journal: in which this process notes what it is doing.
      planned: pairing, backend and dtype of everything that the run does, so that one failure is reported once.
      compiles_ahead: whether to compile ahead of the cases. If not, kernels compile one at a time, so that a crash has
        a single possible cause.
      budget: time budget of the current item; None for no limit.
      abort: ends this process with a message so that its supervisor can restart it; None if it has no supervisor.
      internal_failures: exceptions of kerneltest outside of a verdict, such as in the evidence of a finding.
      device_lost: since when, or why, the device no longer responds; "" while it does.
    """

    journal: Journal = field(default_factory=Journal)
    planned: Collection[tuple[str, str, str]] = ()
    compiles_ahead: bool = True
    budget: TimeBudget | None = None
    abort: Callable[[str], None] | None = None
    internal_failures: list[Failure] = field(default_factory=list)
    device_lost: str = ""

    def take_internal_failures(self) -> list[Failure]:
        """Returns the internal failures so far, one for each line that raised, and forgets them."""
        distinct = {failure.detail.essence: failure for failure in self.internal_failures}
        self.internal_failures.clear()
        return list(distinct.values())


# A pool of daemon threads for compilations.

_T = TypeVar("_T")
_Arguments = TypeVarTuple("_Arguments")


def compiler_threads() -> int:
    """Returns the number of concurrent compilations: xdist workers share the processors equally."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max(1, available_processors() // workers)


class CompilePool:
    """A thread pool whose threads do not keep the process alive, unlike those of `concurrent.futures`.

    A compilation that never returns therefore cannot prevent the process from exiting.

    Attributes:
      pending: number of calls that have not ended.
    """

    def __init__(self, threads: int) -> None:
        """Makes a pool that runs at most `threads` calls at a time."""
        self._slots = threading.Semaphore(threads)
        self._closed = False
        self._counting = threading.Lock()
        self.pending = 0

    def submit(self, function: Callable[[*_Arguments], _T], *arguments: *_Arguments) -> "Future[_T]":
        """Calls a function in a thread of its own, as soon as there is a free slot."""
        future: Future[_T] = Future()
        self._count(1)
        future.add_done_callback(lambda _: self._count(-1))
        call = functools.partial(function, *arguments)
        threading.Thread(target=self._run, args=(future, call), daemon=True).start()
        return future

    def abandon(self) -> None:
        """Frees the slot of a call that does not end."""
        self._slots.release()

    def close(self) -> None:
        """Cancels the calls that wait for a slot."""
        self._closed = True

    def _count(self, more: int) -> None:
        with self._counting:
            self.pending += more

    def _run(self, future: "Future[_T]", call: Callable[[], _T]) -> None:
        with self._slots:
            if self._closed or not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)


# Families whose cases are evaluated and run twice: in each group, those most sensitive to the order of operations. The
# choice depends only on the case, so it is the same in every process.
REPEATED = frozenset({"small_integers", "normal", "one_inf", "extreme_integers", "random_mask", DRAWN_FAMILY.name})

_ANY = "any"  # the platform of a kernel whose trace is the same on all of them
_MORE = 1.5  # an error budget costs as much as several bounds

_EVIDENCE_SECONDS = 20.0  # for the findings of a pairing in one dtype
_MOST_EVIDENCE_SECONDS = 1.0  # for one finding
_INTERRUPTIBLE = 0.5  # seconds: Python cannot raise into a thread that waits for a lock

_Answer = TypeVar("_Answer", Traced, Expectation)


@dataclass(slots=True)
class Cache:
    """The traces, expectations and executables of the current pairing and dtype; the next ones replace them.

    Compilation and the oracle dominate the cost of a run, so neither is repeated for another backend or case.

    Attributes:
      expectations: of the cases, with their arguments.
      evaluations: the oracle's values for cases whose expectation has not been needed yet.
      gradients: the oracle's gradients, by case and label of the check.
      fast_paths: by backend, its own way to run cases without compiling each signature; None if it has none.
      batch_outputs: outputs of cases that ran in a batch, ahead of their turn.
      batch_inputs: inputs of cases that are to run in a batch.
      group_cases: the cases of the current group, by signature.
      passes: the executable and the record of cases that passed, by the executable's identity and the case.
      function_fingerprints: those of traced functions whose verdicts may be reused.
      case_fingerprints: those of the inputs and the expectations of such cases, with or without bounds.
      largest_fraction: the largest error / bound so far, by backend and family.
      evidence_seconds: time left for evidence of findings.
      formulas: what is known of the kernels without rounding.
      tracer: traces kernels.
      pool: compiles in threads.
      process: the state of the process that runs the cases.
    """

    owner: tuple[int, int, str] | None = None
    traces: dict[tuple[Signature, str], Traced | Failure] = field(default_factory=dict)
    prepared: dict[tuple[str, Traced], "Future[Executable | Artifact]"] = field(default_factory=dict)
    expectations: BoundedStore[str, CachedExpectation] = field(default_factory=expectation_store)
    evaluations: BoundedStore[str, Evaluation] = field(default_factory=evaluation_store)
    variation_traces: dict[tuple[Signature, str], Traced] = field(default_factory=dict)
    gradients: BoundedStore[tuple[str, str], Expectation] = field(default_factory=gradient_store)
    fast_paths: dict[str, FastPath | None] = field(default_factory=dict)
    batch_outputs: dict[tuple[str, str], tuple[Array, ...]] = field(default_factory=dict)
    group_cases: dict[Signature, list[AnyCase]] = field(default_factory=dict)
    batch_inputs: dict[str, Mapping[str, Array]] = field(default_factory=dict)
    passes: dict[tuple[int, str], tuple[Executable, Record]] = field(default_factory=dict)
    function_fingerprints: dict[Traced, Fingerprint] = field(default_factory=dict)
    case_fingerprints: dict[tuple[str, bool], Fingerprint] = field(default_factory=dict)
    largest_fraction: dict[tuple[str, str], float] = field(default_factory=dict)
    evidence_seconds: float = _EVIDENCE_SECONDS
    formulas: FormulaStore = field(default_factory=FormulaStore)
    tracer: Tracer = field(default_factory=Tracer)
    pool: CompilePool = field(default_factory=lambda: CompilePool(compiler_threads()))
    process: ProcessState = field(default_factory=ProcessState)

    def switch_to(self, pairing: Pairing, dtype: str) -> None:
        """Clears everything that belongs to another pairing or dtype."""
        owner = id(pairing.kernel), id(pairing.oracle), dtype  # the same on all backends
        if self.owner != owner:
            self.owner = owner
            for store in (self.traces, self.prepared, self.variation_traces, self.largest_fraction):
                store.clear()
            for answers in (self.expectations, self.evaluations, self.gradients, self.function_fingerprints):
                answers.clear()
            self.evidence_seconds = _EVIDENCE_SECONDS
            for other in (self.fast_paths, self.batch_outputs, self.batch_inputs, self.passes, self.case_fingerprints):
                other.clear()
            self.formulas = FormulaStore()

    def trace_for(self, pairing: Pairing, signature: Signature, backend: Backend) -> Traced:
        """Returns the kernel traced for a signature, in its form for a backend's platform.

        Raises:
          Failure: as `trace` does.
        """
        # A trace for a TPU depends on its generation.
        shared = None if backend.platform in TPUS else self.traces.get((signature, _ANY))
        known = shared or self.traces.get((signature, backend.platform))
        if known is None:
            self.enter_phase(Phase.TRACING)
            self.process.journal.counts["traces"] += 1
            try:
                known = self.tracer.trace(pairing, signature, backend.platform)
            except Failure as failure:
                known = failure
            own = isinstance(known, Failure) or known.by_platform or backend.platform in TPUS
            self.traces[signature, backend.platform if own else _ANY] = known
        return _or_raise(known)

    def prepare(self, backend: Backend, traced: Traced) -> "Future[Executable | Artifact]":
        """Returns the future of an executable or artifact; starts its preparation on first use."""
        key = (backend.id, traced)
        if key not in self.prepared:
            self.process.journal.counts[f"prepared for {backend.id}"] += 1
            self.prepared[key] = self.pool.submit(_prepare, backend, traced)
        return self.prepared[key]

    def cancel_waiting(self) -> None:
        """Cancels preparations that no thread has begun."""
        self.prepared = {key: future for key, future in self.prepared.items() if not future.cancel()}

    def executable(self, backend: Backend, traced: Traced) -> Executable:
        """Returns the executable of a kernel on a backend that computes values.

        Raises:
          Failure: as `Backend.prepare` does, or `unavailable` if the backend does not support this signature.
        """
        executable = self.wait_prepared(backend, traced)
        assert not isinstance(executable, Artifact)
        self.enter_phase(Phase.RUNNING)
        return executable

    def wait_prepared(self, backend: Backend, traced: Traced) -> Executable | Artifact:
        """Waits for the executable or artifact of a kernel, and returns it.

        Raises:
          Failure: as `executable` does.
        """
        if (backend.id, traced) not in self.prepared:
            self.enter_phase(Phase.COMPILING)  # before it begins, since it may crash the process at once
        future = self.prepare(backend, traced)
        self.enter_phase(Phase.COMPILING, is_waiting=not future.done())
        try:
            while not future.done():
                wait([future], timeout=_INTERRUPTIBLE)
        except Failure as hang:  # the watchdog raised it into this thread
            given_up: Future[Executable | Artifact] = Future()
            given_up.set_exception(hang)
            self.prepared[backend.id, traced] = given_up
            self.pool.abandon()
            raise
        return future.result()

    def expect(self, pairing: Pairing, case: AnyCase, traced: Traced) -> tuple[Expectation, bool]:
        """Returns the expectation of a case, and whether it holds bit for bit.

        Raises:
          Failure: the oracle failed.
        """
        arguments = self.arguments(pairing, case)
        bitwise = case.family.structural and traced.exact and is_exact(pairing, case.signature, arguments)
        known = self.expectations.get(case.id)
        if known is None or known.bitwise != bitwise:  # the kernel may be exact on one platform only
            self.batch_inputs.pop(case.id, None)
            self.enter_phase(Phase.EXPECTING)
            self.process.journal.counts["oracle evaluations"] += 1
            evaluated = self.evaluations.pop(case.id, None)
            expectation: Expectation | Failure
            try:
                expectation = expect(
                    pairing,
                    case.signature,
                    arguments,
                    traced.outputs,
                    bitwise=bitwise,
                    repeat=case.family.name in REPEATED,
                    known=None if evaluated is None else evaluated.outputs,
                )
                if case.family.name == "all_masked_array":
                    check_all_masked(pairing, case.target, expectation)
            except Failure as failure:
                expectation = failure
            self.expectations[case.id] = keep(pairing, case.signature, arguments, expectation, bitwise)
        expected = self.expectations[case.id]
        return _or_raise(expected.expectation), expected.bitwise

    def evaluate(self, pairing: Pairing, case: AnyCase, traced: Traced, arguments: Mapping[str, Array]) -> Evaluation:
        """Evaluates the oracle on a case's arguments, once for its digest and its expectation.

        Raises:
          Exception: anything that the oracle raises.
        """
        expected = self.expectations.get(case.id)
        if expected is not None and isinstance(known := expected.expectation, Expectation):
            return Evaluation(expected.arguments, (known.values, known.defined))
        if case.id not in self.evaluations:
            self.enter_phase(Phase.EXPECTING)
            wide = {path: widen(value) for path, value in arguments.items()}
            answer = evaluate_oracle(pairing, case.signature, wide, traced.outputs)
            self.evaluations[case.id] = Evaluation(arguments, answer)
        return self.evaluations[case.id]

    def known(self, case: AnyCase) -> CachedExpectation | None:
        """Returns the arguments of a case with their expectation; None if they are no longer cached."""
        return self.expectations.get(case.id)

    def noise(self, case: AnyCase, arguments: Mapping[str, Array]) -> float:
        """Returns the absolute error that float64 rounding in the oracle may leave in a zero."""
        expected = self.expectations.get(case.id)
        if expected is not None and expected.arguments is arguments:
            return expected.noise
        return oracle_noise(arguments)

    def exceeds_earlier_use(self, backend: Backend, family: str, fraction: float) -> bool:
        """Returns whether a case uses 1.5 times as much of its bound as any earlier one of its family on a backend.

        If so, later cases are compared with it.
        """
        more = fraction > _MORE * self.largest_fraction.get((backend.id, family), 0.0)
        if more:
            self.largest_fraction[backend.id, family] = fraction
        return more

    @contextmanager
    def guard_evidence(self) -> Iterator[Guard]:
        """Returns the guard for the evidence of one finding, which has a share of the time that is left for all."""
        started = time.monotonic()
        try:
            yield Guard(self.process.internal_failures, min(_MOST_EVIDENCE_SECONDS, self.evidence_seconds))
        finally:
            self.evidence_seconds -= time.monotonic() - started

    def later_cases(self, case: AnyCase) -> Sequence[AnyCase]:
        """Returns the later cases of the same signature that may run in one batch with a case."""
        coming = self.group_cases.get(case.signature, [])
        return coming[coming.index(case) + 1 :] if self.process.compiles_ahead and case in coming else ()

    def begin_case(self, item: str, case: AnyCase) -> None:
        """Notes in the journal that a case begins."""
        self.process.journal.start(item, case.id, case.family.name, str(case.signature), self.pool.pending)

    def enter_phase(self, phase: Phase, *, is_waiting: bool = False, others: int = 0) -> None:
        """Notes in the journal that the case enters its next phase.

        Args:
          phase: that begins.
          is_waiting: whether the case itself waits for a compilation.
          others: number of other cases in the same phase.
        """
        self.process.journal.enter_phase(phase, self.pool.pending - is_waiting + others)

    def arguments(self, pairing: Pairing, case: AnyCase) -> Mapping[str, Array]:
        """Returns a case's array arguments by path.

        Raises:
          Failure: the case's family raised, which says nothing about the kernel.
        """
        if (expected := self.expectations.get(case.id)) is not None:
            return expected.arguments
        if (evaluated := self.evaluations.get(case.id)) is not None:
            return evaluated.arguments
        if (filled := self.batch_inputs.get(case.id)) is not None:
            return filled
        self.enter_phase(Phase.FILLING)
        with convert_exceptions(f"family {case.family.name}", Verdict.ORACLE_ERROR, with_source=True):
            return case.fill(pairing)


@without_debugging()  # in each thread of the pool
def _prepare(backend: Backend, traced: Traced) -> Executable | Artifact:
    reason = backend.unsupported_reason(traced) or backend.unavailable_for(traced)
    if reason:
        raise Failure(Verdict.UNAVAILABLE, reason)
    return backend.prepare(traced)


def _or_raise(answer: _Answer | Failure) -> _Answer:
    if isinstance(answer, Failure):
        raise answer.with_traceback(None)
    return answer
