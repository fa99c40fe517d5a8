"""Batches of cases of one signature: the oracle's rounding is sampled for all at once, and one call runs them all."""

from kerneltest.backends.base import BatchExecutable, Outputs
from kerneltest.backends.device import device_responds
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.guard import warn_of_recovery
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.numerics.rounding_bounds import SAMPLE_ROWS, sample_together
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.journal import Phase
from kerneltest.trace.scalars import UnknownError
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
