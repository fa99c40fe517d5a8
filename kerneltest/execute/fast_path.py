"""Cases run on a backend's fast path. Only passes count; every other case runs again on the prepared executable."""

import functools
from collections.abc import Callable, Sequence

from kerneltest.backends.base import Backend, BatchExecutable, Executable, FastPath, Outputs
from kerneltest.core.dtypes import Array, widen
from kerneltest.core.failures import Failure
from kerneltest.core.guard import warn_of_recovery
from kerneltest.core.precision import Precision
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.batching import kernel_inputs, run_batched
from kerneltest.execute.cache import REPEATED, Cache
from kerneltest.execute.item import Item, Outcome
from kerneltest.execute.output_comparison import WrongOutputError
from kerneltest.judge.compare import compare
from kerneltest.oracle.expectation import Expectation
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.journal import Phase
from kerneltest.trace.jax_compat.interpreter_errors import KernelFaultError
from kerneltest.trace.scalars import UnknownError
from kerneltest.trace.tracing import Traced

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
