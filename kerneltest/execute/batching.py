"""Batches of cases of one signature: the oracle's rounding is sampled for all at once, and one call runs them all."""

import functools
from collections.abc import Callable, Sequence

from kerneltest.backends.base import Backend, BatchExecutable, Executable, FastPath, Outputs
from kerneltest.backends.device import device_responds
from kerneltest.core.dtypes import Array, widen
from kerneltest.core.failures import Failure, warn_of_recovery
from kerneltest.core.precision import Precision
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.cache import REPEATED, Cache
from kerneltest.execute.item import Item, Outcome
from kerneltest.execute.output_comparison import WrongOutputError
from kerneltest.judge.compare import compare
from kerneltest.numerics.rounding_bounds import SAMPLE_ROWS, sample_together
from kerneltest.oracle.expectation import Expectation
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.journal import Phase
from kerneltest.trace.jax_compat.source_lines import KernelFaultError
from kerneltest.trace.machine import UnknownError
from kerneltest.trace.tracing import Traced

_MAX_SAMPLED = 2**16  # numbers in the samples of arguments and outputs, so that they fit into a processor's cache
_MAX_RUN = 2**22  # elements in the arguments of cases that run at once


def expect_batch(item: Item, case: AnyCase, cache: Cache, traced: Traced) -> None:
    """Evaluates the oracle for a case and for coming cases of its signature, as long as their samples are small.

    Args:
      item: the current item.
      case: one of its cases.
      cache: stores the expectation of each case.
      traced: the kernel, traced for the signature.

    Raises:
      Failure: the oracle failed for this case. If it fails for another one, that one reports it when it is judged.
    """
    if case.id in cache.expectations or cache.process.budget is not None:
        return
    limits, room = [], _MAX_SAMPLED
    for each in (case, *cache.later_cases(case)):
        if each is not case:
            cache.begin_case(item.name, each)
        try:
            expectation, _ = cache.expect(item.pairing, each, traced)
        except Failure:
            if each is case:
                raise
            continue
        limits.append(expectation.bounds)
        arrays = (*cache.arguments(item.pairing, each).values(), *expectation.values)
        room -= SAMPLE_ROWS * sum(array.size for array in arrays)
        if room < 0:
            break
    if len(limits) > 1:
        cache.begin_case(item.name, case)
        cache.process.journal.counts["cases sampled together"] += len(limits)
        sample_together(limits)


def kernel_inputs(item: Item, case: AnyCase, cache: Cache) -> list[Array]:
    """Returns a case's inputs in the order in which the kernel takes them."""
    arguments = cache.arguments(item.pairing, case)
    return [arguments[path] for path, _ in case.signature.dtypes]


def run_batched(item: Item, case: AnyCase, cache: Cache, executable: BatchExecutable) -> Outputs:
    """Returns the outputs for a case, run in one batch with coming cases of its signature.

    Raises:
      Failure: as `Executable.run` does for this case.
    """
    key = item.backend.id, case.id
    if key not in cache.batch_outputs:
        _run_batch(item, case, cache, executable)
    return cache.batch_outputs.pop(key)


def may_queue(item: Item, cache: Cache) -> bool:
    """Checks whether cases may be queued on a device together.

    If they poison the device, another process must run each one separately to find the case at fault.
    """
    return item.backend.tier is Tier.DEVICE and cache.process.abort is not None


def _run_batch(item: Item, case: AnyCase, cache: Cache, executable: BatchExecutable) -> None:
    cases, inputs, room = [case], [kernel_inputs(item, case, cache)], _MAX_RUN
    for other in cache.later_cases(case):
        room -= sum(leaf.size for leaf in inputs[0]) + 1
        if room < 0:
            break
        cache.begin_case(item.name, other)
        try:
            cache.batch_inputs[other.id] = cache.arguments(item.pairing, other)
        except Failure as failure:
            if failure.verdict is Verdict.HANG:
                raise
            continue  # reported when that case is judged
        cases.append(other)
        inputs.append(kernel_inputs(item, other, cache))
    cache.begin_case(item.name, case)
    cache.enter_phase(Phase.RUNNING, others=len(cases) - 1)
    try:
        results = executable.run_batch(inputs)
    except Exception as error:  # any of the cases may be the cause, so each one runs separately
        warn_of_recovery(error, "running cases at once", UnknownError)
        if may_queue(item, cache) and len(cases) > 1 and not device_responds(item.backend.platform):
            assert cache.process.abort is not None
            cache.process.abort(f"the device no longer responds after {len(cases)} cases ran at once")
        cache.group_cases.pop(case.signature, None)
        results = [executable.run(inputs[0])]
    cache.enter_phase(Phase.RUNNING)
    for each, outputs in zip(cases, results, strict=False):
        cache.batch_outputs[item.backend.id, each.id] = outputs


# Cases run on a backend's fast path. Only passes count; every other case runs again on the prepared executable.

Prepare = Callable[[Traced], Executable]


class NotCoveredError(Exception):
    """The fast path cannot run a kernel."""


_DOING = "evaluating a kernel without a compiler"
_EXPECTED = (NotCoveredError, WrongOutputError, UnknownError, KernelFaultError)


def outcome_if_pass(judge: Callable[[], Outcome]) -> Outcome | None:
    """Returns the outcome of a case on the fast path if it is a pass.

    Raises:
      Failure: the case hangs.
    """
    try:
        outcome = judge()
    except Failure as failure:
        if failure.verdict is Verdict.HANG:
            raise
        warn_of_recovery(failure, _DOING, *_EXPECTED)
        return None
    except Exception as error:
        warn_of_recovery(error, _DOING, *_EXPECTED)
        return None
    return outcome if outcome.record.verdict is Verdict.PASS else None


def covers(backend: Backend, cache: Cache, traced: Traced) -> bool:
    """Checks whether a fast path may run a kernel, so that nothing needs to be compiled ahead."""
    path = _fast_path(backend, cache)
    return path is not None and path.covers(traced)


def is_trusted(backend: Backend, cache: Cache, traced: Traced) -> bool:
    """Checks whether the fast path runs a kernel as the backend does, as far as cases so far have shown."""
    path = _fast_path(backend, cache)
    return path is not None and path.is_trusted(traced)


def checked_executable(item: Item, case: AnyCase, cache: Cache, traced: Traced, expectation: Expectation) -> Executable:
    """Returns a kernel's executable on the fast path, once the first case of its signature has checked it.

    Raises:
      NotCoveredError: there is no fast path for the kernel, or it failed its checks.
    """
    path = _fast_path(item.backend, cache)
    if item.depth == "deep" or path is None:
        raise NotCoveredError

    def inputs() -> Sequence[Array]:
        leaves = kernel_inputs(item, case, cache)
        cache.enter_phase(Phase.RUNNING)
        return leaves

    def agree(outputs: Outputs, wanted: Outputs, precision: Precision) -> bool:
        cache.enter_phase(Phase.EXPECTING)
        bounds = expectation.all_bounds(wanted, precision)
        cache.enter_phase(Phase.RUNNING)
        pairs = zip(outputs, wanted, bounds, strict=True)
        return not any(compare(got, widen(want), bound, signed_zeros=False).wrong.any() for got, want, bound in pairs)

    return _or_raise(path.prepare_checked(traced, inputs, agree))


def unchecked_executable(backend: Backend, cache: Cache, traced: Traced) -> Executable:
    """Returns the executable of a variation of a call on the fast path; its plain call must be trusted.

    Raises:
      NotCoveredError: there is no fast path for it.
    """
    path = _fast_path(backend, cache)
    return _or_raise(None if path is None else path.prepare_unchecked(traced))


def evaluate_apart(item: Item, case: AnyCase, cache: Cache, traced: Traced) -> Outputs | None:
    """Returns what NumPy computes where compiled code was seen to differ; None elsewhere, or if NumPy cannot."""
    path = _fast_path(item.backend, cache)
    if path is None or not path.is_contradicted(traced):
        return None
    try:
        executable = path.prepare_unchecked(traced)
        leaves = kernel_inputs(item, case, cache)
        cache.enter_phase(Phase.RUNNING)
        return None if executable is None else executable.run(leaves)
    except Exception as error:
        if isinstance(error, Failure) and error.verdict is Verdict.HANG:
            raise
        warn_of_recovery(error, _DOING, *_EXPECTED)
        return None


def run_on_fast_path(item: Item, case: AnyCase, cache: Cache, executable: Executable) -> Outputs:
    """Returns the outputs for a case, run in one batch with the coming cases of its signature if possible.

    Raises:
      NotCoveredError: the kernel gives other bits the second time.
    """
    if isinstance(executable, BatchExecutable):
        outputs = run_batched(item, case, cache, executable)
    else:
        cache.enter_phase(Phase.RUNNING)
        outputs = executable.run(kernel_inputs(item, case, cache))
    if case.family.name in REPEATED:
        again = executable.run(kernel_inputs(item, case, cache))
        if any(one.tobytes() != other.tobytes() for one, other in zip(outputs, again, strict=True)):
            raise NotCoveredError
    return outputs


def _fast_path(backend: Backend, cache: Cache) -> FastPath | None:
    if backend.id not in cache.fast_paths:
        compiled = functools.partial(cache.executable, backend)
        cache.fast_paths[backend.id] = backend.fast_path(compiled, functools.partial(_count, backend, cache))
    return cache.fast_paths[backend.id]


def _count(backend: Backend, cache: Cache) -> None:
    cache.process.journal.counts[f"evaluated for {backend.id}"] += 1


def _or_raise(executable: Executable | None) -> Executable:
    if executable is None:
        raise NotCoveredError
    return executable
