"""Batches of cases of one signature: the oracle's rounding is sampled for all at once, and one call runs them all."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from kerneltest.backends.base import Backend, BatchExecutable, ContradictedError, Executable, FastPath, Outputs
from kerneltest.backends.device import device_responds
from kerneltest.core.details import OF_KERNEL, Contradicted, Stated, format_index
from kerneltest.core.dtypes import Array, flush_subnormals, widen
from kerneltest.core.failures import (
    Failure,
    Origin,
    comes_from,
    format_exception,
    underlying_exception,
    warn_of_recovery,
)
from kerneltest.core.precision import Precision
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.claims import CaseContext, WrongOutputError
from kerneltest.execute.expectations import REPEATED
from kerneltest.execute.item import Outcome
from kerneltest.judge.compare import compare, first_difference, is_wrong
from kerneltest.numerics.rounding_bounds import SAMPLE_ROWS, sample_together
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.journal import Phase
from kerneltest.trace.jax_compat.source_lines import KernelFaultError
from kerneltest.trace.jax_environment import is_simplified
from kerneltest.trace.machine import UnknownError
from kerneltest.trace.tracing import Traced
from kerneltest.triage.symptoms import cause_of

_MAX_SAMPLED = 2**16  # numbers in the samples of arguments and outputs, so that they fit into a processor's cache
_OF_BATCHES = frozenset({Verdict.RESOURCE_EXCEEDED, Verdict.HANG})  # for which the size of a batch may be the cause
_MAX_RUN = 2**22  # elements in the arguments of cases that run at once


def expect_batch(item: str, pairing: Pairing, case: AnyCase, cache: Cache, traced: Traced) -> None:
    """Evaluates the oracle for a case, and for coming ones with small samples; raises what fails for the case."""
    if case.id in cache.expectations.cases or cache.process.budget is not None:
        return
    limits, formulas, room = [], [], _MAX_SAMPLED
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
        formulas.append(expectation.formula)
        arrays = (*cache.expectations.arguments(pairing, other).values(), *expectation.values)
        room -= SAMPLE_ROWS * sum(array.size for array in arrays)
        if room < 0:
            break
    if len(limits) > 1:
        cache.process.begin_case(item, case)
        cache.process.journal.counts["cases sampled together"] += len(limits)
        sample_together(limits)
        sample_together(formulas)


def run_batched(item: str, context: CaseContext, executable: BatchExecutable) -> Outputs:
    """Returns the outputs for a case, run in a batch with coming ones of its signature; raises as `Executable.run`."""
    outputs, key = context.cache.batch.outputs, (context.backend.id, context.case.id)
    if key not in outputs:
        _run_batch(item, context, executable)
    result = outputs.pop(key)
    if isinstance(result, Exception):
        raise result
    return result


def may_queue(backend: Backend, cache: Cache) -> bool:
    """Checks whether cases may be queued on a device: if they poison it, another process must run each by itself."""
    return backend.tier is Tier.DEVICE and cache.process.abort is not None


def fill_coming(item: str, context: CaseContext) -> list[AnyCase]:
    """Fills the arguments of coming cases of a case's signature, and returns those that may run in a batch with it."""
    case, cache, known = context.case, context.cache, context.cache.expectations
    ready, size = list[AnyCase](), 1 + sum(leaf.size for leaf in context.leaves)
    begun = case
    for other in itertools.islice(cache.batch.later(case), _MAX_RUN // size):
        if other.id not in known.cases and other.id not in known.filled:
            cache.process.begin_case(item, begun := other)
            try:
                known.filled[other.id] = known.arguments(context.pairing, other)
            except Failure as failure:
                if failure.verdict is Verdict.HANG:
                    raise
                continue  # reported when that case is judged
        ready.append(other)
    if begun is not case:
        cache.process.begin_case(item, case)
    return ready


def _run_batch(item: str, context: CaseContext, executable: BatchExecutable) -> None:
    pairing, case, backend, cache = context.pairing, context.case, context.backend, context.cache
    cases = [case, *fill_coming(item, context)]
    inputs = [context.leaves, *(cache.expectations.inputs(pairing, other) for other in cases[1:])]
    cache.process.enter_phase(Phase.RUNNING, others=len(cases) - 1)
    results: Sequence[Outputs | Exception]
    try:
        results = executable.run_batch(inputs)
    except Exception as error:  # any of the cases may be the cause, so each one runs separately
        warn_of_recovery(error, "running cases at once", UnknownError)
        if may_queue(backend, cache) and len(cases) > 1 and not device_responds(backend.platform):
            assert cache.process.abort is not None
            cache.process.abort(f"the device no longer responds after {len(cases)} cases ran at once")
        cache.batch.cases.pop(case.signature, None)
        results = _run_one_by_one(item, context, executable, dict(zip(cases, inputs, strict=True)), error)
    cache.process.enter_phase(Phase.RUNNING)
    for run, outputs in zip(cases, results, strict=False):
        cache.batch.outputs[backend.id, run.id] = outputs


# Runs each case of a batch that raised by itself. If none raises and the batch did not lack memory only, then that was
# a kernel's doing in one of two runs. What a case raises is kept for its turn.
def _run_one_by_one(
    item: str, context: CaseContext, executable: Executable, inputs: Mapping[AnyCase, Sequence[Array]], error: Exception
) -> list[Outputs | Exception]:
    results: list[Outputs | Exception] = []
    for case, leaves in inputs.items():
        context.cache.process.begin_case(item, case)
        context.cache.process.enter_phase(Phase.RUNNING)
        try:
            results.append(executable.run(leaves))
        except Exception as own:
            results.append(own)
    context.cache.process.begin_case(item, context.case)
    if not isinstance(error, Failure) or not error.verdict.is_finding or error.verdict in _OF_BATCHES:
        return results
    if not any(isinstance(each, Exception) for each in results):
        words = "{count} cases that ran at once ended as {verdict}: {said}; each of them then ran by itself"
        values: dict[str, int | str] = {"count": len(results), "verdict": str(error.verdict), "said": str(error)}
        raise Failure(Verdict.NONDETERMINISTIC, Stated(words, values))
    return results


# Cases run on a backend's fast path. Only passes count; every other case runs again on the prepared executable. One
# that passes there is `nondeterministic` if the kernel calls Python; else the record says what happened in NumPy.

Prepare = Callable[[Traced], Executable]


class NotCoveredError(Exception):
    """The fast path cannot run a kernel."""


_EXPECTED = (NotCoveredError, ContradictedError, WrongOutputError, UnknownError, KernelFaultError)
_FINAL = frozenset({Verdict.HANG, Verdict.ORACLE_ERROR, Verdict.NONDETERMINISTIC})  # whatever path shows them


def _allow(context: CaseContext, error: Exception) -> None:
    """Goes on after an exception on the fast path; raises it if it is the oracle's, or the case hangs or varies."""
    if isinstance(error, Failure) and error.verdict in _FINAL:
        raise error
    if context.cache.process.journal.phase is Phase.EXPECTING and comes_from(error, Origin.USER):
        raise error
    warn_of_recovery(error, "evaluating a kernel without a compiler", *_EXPECTED)


def judge_on_either(
    context: CaseContext,
    on_fast_path: Callable[[], Outcome],
    prepared: Callable[[], Outcome],
    again: Callable[[], object],
    evaluated: Callable[[], Outcome],
) -> Outcome:
    """Judges a case on the fast path and, unless it passes there, on the prepared executable.

    The fast path decides, too, if XLA's simplifier may have hidden a NaN of the kernel's. On it, `again` runs the
    kernel unchecked, and `evaluated` judges it so, with evidence. Raises as the judges do; the Failure is
    `nondeterministic` if the case was wrong on the fast path only, and calls Python.
    """
    try:
        outcome = on_fast_path()
        if outcome.record.verdict is Verdict.PASS:
            return outcome
        seen: Exception = NotCoveredError()
    except Exception as error:
        _allow(context, error)
        seen = error
    outcome = prepared()
    if outcome.record.verdict is not Verdict.PASS:
        return outcome
    said = _contradiction(context, seen, outcome.claimed, again)
    if not said:
        return outcome
    detail = Contradicted(said)
    if isinstance(seen, WrongOutputError):
        wrong = evaluated()
        if _hides_nan(context, seen, outcome.claimed):
            return wrong
        if (cause := cause_of(wrong.record.detail)) is not None and cause.what in OF_KERNEL:  # JAX is right by chance
            said = f"ends as {wrong.record.verdict}: {cause.text()}"
            detail = Contradicted(said, other="NumPy's order of the kernel's operations")
    return replace(outcome, record=replace(outcome.record, detail=detail, message=detail.text()))


# Whether compiled code has numbers for NaN, and a product of a mask may have become a select in it.
def _hides_nan(context: CaseContext, seen: WrongOutputError, claimed: Sequence[Outputs]) -> bool:
    if not (is_simplified(context.traced.jaxpr) and seen.claim < len(claimed)):
        return False
    own, compiled = (np.isnan(widen(x)) for x in (seen.comparison.actual, claimed[seen.claim][seen.output]))
    return bool((own & ~compiled & seen.comparison.wrong).any())


# What kerneltest's own evaluation did instead of passing, as a predicate; "" if it did not run.
def _contradiction(
    context: CaseContext, seen: Exception, claimed: Sequence[Outputs], again: Callable[[], object]
) -> str:
    calls_back = context.traced.calls_back()
    if isinstance(seen, WrongOutputError):
        detail = seen.differs_from(claimed)
        if calls_back:
            raise Failure(Verdict.NONDETERMINISTIC, detail)
        if any(flush_subnormals(leaf) is not leaf for leaf in context.leaves):
            return ""  # which compiled code takes for zeros, and NumPy does not
        return f"gave {detail.first} for {detail.second} in {seen.array}{format_index(detail.index)}"
    if isinstance(seen, ContradictedError):
        if calls_back and context.pairing.reproducible:
            for run, outputs in seen.runs:
                check_repeated(outputs, run(context.leaves), context.expectation.defined)
        return str(seen)
    if not calls_back or isinstance(seen, _EXPECTED) or not comes_from(seen, Origin.USER, Origin.JAX):
        return ""  # JAX passes on what callbacks raise
    said = format_exception(underlying_exception(seen) or seen)
    try:
        again()
    except Exception as error:
        if format_exception(underlying_exception(error) or error) == said:  # it is due to NumPy's arrays
            return f"raised {said}"
    raise Failure(
        Verdict.NONDETERMINISTIC, Stated("the same inputs raised {said} and then gave results", {"said": said})
    )


def check_repeated(outputs: Sequence[Array], again: Sequence[Array], defined: Sequence[Array]) -> None:
    """Raises a `nondeterministic` Failure if two runs gave different bits in elements that the oracle defines."""
    for number, (one, other, where) in enumerate(zip(outputs, again, defined, strict=True)):
        differs = (one.view(f"u{one.dtype.itemsize}") != other.view(f"u{one.dtype.itemsize}")) & where
        if differs.any():
            raise Failure(Verdict.NONDETERMINISTIC, first_difference(f"output {number}", one, other, differs))


def agree_within(bounds: Outputs, outputs: Outputs, wanted: Outputs) -> bool:
    """Returns whether two runs may both be within the bounds of one oracle, each on another side of its values."""
    return not is_wrong(
        compare(got, widen(want), 2 * bound, signed_zeros=False)
        for got, want, bound in zip(outputs, wanted, bounds, strict=True)
    )


def checked_executable(context: CaseContext) -> Executable:
    """Returns the executable on the fast path, once a case has checked it; NotCoveredError: there is none."""
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
        return agree_within(bounds, outputs, wanted)

    return _or_raise(path.prepare_checked(context.traced, inputs, agree))


def unchecked_executable(path: FastPath | None, traced: Traced) -> Executable:
    """Returns the executable of a variation of a trusted call on the fast path; NotCoveredError: there is none."""
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
        _allow(context, error)
        return None


def run_on_fast_path(item: str, context: CaseContext, executable: Executable) -> list[Outputs]:
    """Returns the outputs for a case of an item, run in one batch with the coming ones of its signature if possible.

    Those of a second run follow, if it gives other bits and the pairing says that it may; otherwise the Failure is
    `nondeterministic`. ContradictedError: the case gives other bits by itself than in a batch.
    """
    calls_back = context.traced.calls_back()  # a batch then calls in another order
    if isinstance(executable, BatchExecutable) and not calls_back:
        outputs = run_batched(item, context, executable)
    else:
        context.cache.process.enter_phase(Phase.RUNNING)
        outputs = executable.run(context.leaves)
    if context.case.family.name not in REPEATED:
        return [outputs]
    again = executable.run(context.leaves)
    if all(one.tobytes() == other.tobytes() for one, other in zip(outputs, again, strict=True)):
        return [outputs]
    if not calls_back:
        raise ContradictedError("gives other bits by itself than in a batch")
    if context.pairing.reproducible:
        check_repeated(outputs, again, context.expectation.defined)
    return [outputs, again]


def _or_raise(executable: Executable | None) -> Executable:
    if executable is None:
        raise NotCoveredError
    return executable
