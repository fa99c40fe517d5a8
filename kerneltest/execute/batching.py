"""Batches of cases of one signature: the oracle's rounding is sampled for all at once, and one call runs them all."""

from collections.abc import Callable, Sequence

from kerneltest.backends.base import Backend, BatchExecutable, Executable, FastPath, Outputs
from kerneltest.backends.device import device_responds
from kerneltest.core.dtypes import Array, widen
from kerneltest.core.failures import Failure, warn_of_recovery
from kerneltest.core.precision import Precision
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.claims import CaseContext, WrongOutputError
from kerneltest.execute.expectations import REPEATED
from kerneltest.execute.item import Outcome
from kerneltest.judge.compare import compare, is_wrong
from kerneltest.numerics.rounding_bounds import SAMPLE_ROWS, sample_together
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.journal import Phase
from kerneltest.trace.jax_compat.source_lines import KernelFaultError
from kerneltest.trace.machine import UnknownError
from kerneltest.trace.tracing import Traced

_MAX_SAMPLED = 2**16  # numbers in the samples of arguments and outputs, so that they fit into a processor's cache
_MAX_RUN = 2**22  # elements in the arguments of cases that run at once


def expect_batch(item: str, pairing: Pairing, case: AnyCase, cache: Cache, traced: Traced) -> None:
    """Evaluates the oracle for a case of an item and for coming ones of its signature, if their samples are small.

    Raises:
      Failure: the oracle failed for this case. If it fails for another one, that one reports it when it is judged.
    """
    if case.id in cache.expectations.cases or cache.process.budget is not None:
        return
    limits, room = [], _MAX_SAMPLED
    for other in (case, *cache.batch.later(case)):
        if other is not case:
            cache.process.begin_case(item, other)
        try:
            expectation, _ = cache.expectations.of(pairing, other, traced)
        except Failure:
            if other is case:
                raise
            continue
        limits.append(expectation.bounds)
        arrays = (*cache.expectations.arguments(pairing, other).values(), *expectation.values)
        room -= SAMPLE_ROWS * sum(array.size for array in arrays)
        if room < 0:
            break
    if len(limits) > 1:
        cache.process.begin_case(item, case)
        cache.process.journal.counts["cases sampled together"] += len(limits)
        sample_together(limits)


def run_batched(item: str, context: CaseContext, executable: BatchExecutable) -> Outputs:
    """Returns the outputs for a case of an item, run in one batch with coming cases of its signature.

    Raises:
      Failure: as `Executable.run` does for this case.
    """
    outputs, key = context.cache.batch.outputs, (context.backend.id, context.case.id)
    if key not in outputs:
        _run_batch(item, context, executable)
    return outputs.pop(key)


def may_queue(backend: Backend, cache: Cache) -> bool:
    """Checks whether cases may be queued on a device: if they poison it, another process must run each by itself."""
    return backend.tier is Tier.DEVICE and cache.process.abort is not None


def _run_batch(item: str, context: CaseContext, executable: BatchExecutable) -> None:
    pairing, case, backend, cache = context.pairing, context.case, context.backend, context.cache
    cases, inputs, room = [case], [context.leaves], _MAX_RUN
    for other in cache.batch.later(case):
        room -= sum(leaf.size for leaf in inputs[0]) + 1
        if room < 0:
            break
        cache.process.begin_case(item, other)
        try:
            cache.expectations.filled[other.id] = cache.expectations.arguments(pairing, other)
        except Failure as failure:
            if failure.verdict is Verdict.HANG:
                raise
            continue  # reported when that case is judged
        cases.append(other)
        inputs.append(cache.expectations.inputs(pairing, other))
    cache.process.begin_case(item, case)
    cache.process.enter_phase(Phase.RUNNING, others=len(cases) - 1)
    try:
        results = executable.run_batch(inputs)
    except Exception as error:  # any of the cases may be the cause, so each one runs separately
        warn_of_recovery(error, "running cases at once", UnknownError)
        if may_queue(backend, cache) and len(cases) > 1 and not device_responds(backend.platform):
            assert cache.process.abort is not None
            cache.process.abort(f"the device no longer responds after {len(cases)} cases ran at once")
        cache.batch.cases.pop(case.signature, None)
        results = [executable.run(inputs[0])]
    cache.process.enter_phase(Phase.RUNNING)
    for run, outputs in zip(cases, results, strict=False):
        cache.batch.outputs[backend.id, run.id] = outputs


# Cases run on a backend's fast path. Only passes count; every other case runs again on the prepared executable.

Prepare = Callable[[Traced], Executable]


class NotCoveredError(Exception):
    """The fast path cannot run a kernel."""


_EXPECTED = (NotCoveredError, WrongOutputError, UnknownError, KernelFaultError)


def _allow(error: Exception) -> None:
    """Goes on after an exception on the fast path.

    Raises:
      Failure: the case hangs.
    """
    if isinstance(error, Failure) and error.verdict is Verdict.HANG:
        raise error
    warn_of_recovery(error, "evaluating a kernel without a compiler", *_EXPECTED)


def outcome_if_pass(judge: Callable[[], Outcome]) -> Outcome | None:
    """Returns the outcome of a case on the fast path if it is a pass.

    Raises:
      Failure: the case hangs.
    """
    try:
        outcome = judge()
    except Exception as error:
        _allow(error)
        return None
    return outcome if outcome.record.verdict is Verdict.PASS else None


def checked_executable(context: CaseContext) -> Executable:
    """Returns a kernel's executable on the fast path, once the first case of its signature has checked it.

    Raises:
      NotCoveredError: there is no fast path for the kernel, or it failed its checks.
    """
    cache = context.cache
    path = cache.executables.fast_path(context.backend)
    if context.depth == "deep" or path is None:
        raise NotCoveredError

    def inputs() -> Sequence[Array]:
        cache.process.enter_phase(Phase.RUNNING)
        return context.leaves

    def agree(outputs: Outputs, wanted: Outputs, precision: Precision) -> bool:
        cache.process.enter_phase(Phase.EXPECTING)
        bounds = context.expectation.all_bounds(wanted, precision)
        cache.process.enter_phase(Phase.RUNNING)
        return not is_wrong(
            compare(got, widen(want), bound, signed_zeros=False)
            for got, want, bound in zip(outputs, wanted, bounds, strict=True)
        )

    return _or_raise(path.prepare_checked(context.traced, inputs, agree))


def unchecked_executable(path: FastPath | None, traced: Traced) -> Executable:
    """Returns the executable of a variation of a call on the fast path; its plain call must be trusted.

    Raises:
      NotCoveredError: there is no fast path for it.
    """
    return _or_raise(None if path is None else path.prepare_unchecked(traced))


def evaluate_apart(context: CaseContext) -> Outputs | None:
    """Returns what NumPy computes where compiled code was seen to differ; None elsewhere, or if NumPy cannot."""
    path = context.cache.executables.fast_path(context.backend)
    if path is None or not path.is_contradicted(context.traced):
        return None
    try:
        executable = path.prepare_unchecked(context.traced)
        context.cache.process.enter_phase(Phase.RUNNING)
        return None if executable is None else executable.run(context.leaves)
    except Exception as error:
        _allow(error)
        return None


def run_on_fast_path(item: str, context: CaseContext, executable: Executable) -> Outputs:
    """Returns the outputs for a case of an item, run in one batch with the coming ones of its signature if possible.

    Raises:
      NotCoveredError: the kernel gives other bits the second time.
    """
    if isinstance(executable, BatchExecutable):
        outputs = run_batched(item, context, executable)
    else:
        context.cache.process.enter_phase(Phase.RUNNING)
        outputs = executable.run(context.leaves)
    if context.case.family.name in REPEATED:
        again = executable.run(context.leaves)
        if any(one.tobytes() != other.tobytes() for one, other in zip(outputs, again, strict=True)):
            raise NotCoveredError
    return outputs


def _or_raise(executable: Executable | None) -> Executable:
    if executable is None:
        raise NotCoveredError
    return executable
