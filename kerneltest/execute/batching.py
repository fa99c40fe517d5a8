"""Cases of one signature that are done together: the oracle is followed for all at once, and all run at once."""

from kerneltest.backends.base import Together
from kerneltest.backends.device import answers
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.rounding import ROWS, follow_together
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.journal import Phase
from kerneltest.trace.tracing import Traced

_FOLLOWED = 2**16  # numbers in the samples of their arguments and outputs: what a processor keeps near itself
_RUN = 2**22  # elements of the arguments of cases that run at once


def expect_together(item: Item, case: AnyCase, cache: Cache, traced: Traced) -> None:
    """Asks the oracle about a case, and about those of its signature that come after it, as many as are small enough.

    Args:
      item: in hand.
      case: of it.
      cache: gets what is expected of each.
      traced: the kernel, for the signature.

    Raises:
      Failure: the oracle failed for the case; that it failed for another is told in the other's turn.
    """
    if case.id in cache.expectations or cache.process.budget is not None:
        return
    limits, room = [], _FOLLOWED
    for each in (case, *cache.after(case)):
        if each is not case:
            cache.turn_to_case(item.name, each)
        try:
            expectation, _ = cache.expected(item.pairing, each, traced)
        except Failure:
            if each is case:
                raise
            continue
        limits.append(expectation.bounds)
        arrays = (*cache.arguments(item.pairing, each).values(), *expectation.values)
        room -= ROWS * sum(array.size for array in arrays)
        if room < 0:
            break
    if len(limits) > 1:
        cache.turn_to_case(item.name, case)
        cache.process.journal.counts["cases followed at once"] += len(limits)
        follow_together(limits)


def leaves_of(item: Item, case: AnyCase, cache: Cache) -> list[Array]:
    """A case's inputs, as a kernel gets them."""
    arguments = cache.arguments(item.pairing, case)
    return [arguments[path] for path, _ in case.signature.dtypes]


def run_together(item: Item, case: AnyCase, cache: Cache, found: Together) -> tuple[Array, ...]:
    """The outputs for a case, which runs together with those of its signature that come after it.

    Raises:
      Failure: as `Executable.run` does for the case alone.
    """
    key = item.backend.id, case.id
    if key not in cache.evaluated:
        _run(item, case, cache, found)
    return cache.evaluated.pop(key)


def is_queued(item: Item, cache: Cache) -> bool:
    """Whether cases wait in a device's queue together: if they take the device along, another process runs each alone,
    which tells whose fault it was.
    """
    return item.backend.tier is Tier.DEVICE and cache.process.abort is not None


def _run(item: Item, case: AnyCase, cache: Cache, found: Together) -> None:
    cases, inputs, room = [case], [leaves_of(item, case, cache)], _RUN
    for other in cache.after(case):
        room -= sum(leaf.size for leaf in inputs[0]) + 1
        if room < 0:
            break
        cache.turn_to_case(item.name, other)
        try:
            cache.filled[other.id] = cache.arguments(item.pairing, other)
        except Failure as failure:
            if failure.verdict is Verdict.HANG:
                raise
            continue  # told in its turn
        cases.append(other)
        inputs.append(leaves_of(item, other, cache))
    cache.turn_to_case(item.name, case)
    cache.turn_to_phase(Phase.RUNNING, others=len(cases) - 1)
    try:
        results = found.run_all(inputs)
    except Exception:  # one of them may be the reason, so that each runs alone
        if is_queued(item, cache) and len(cases) > 1 and not answers(item.backend.id):
            assert cache.process.abort is not None
            cache.process.abort(f"the device no longer responds after {len(cases)} cases ran at once")
        cache.coming.pop(case.signature, None)
        results = [found.run(inputs[0])]
    cache.turn_to_phase(Phase.RUNNING)
    for each, outputs in zip(cases, results, strict=False):
        cache.evaluated[item.backend.id, each.id] = outputs
