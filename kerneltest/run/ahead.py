"""Cases of one signature that the oracle is asked about one after another, so that it is followed for all at once."""

from kerneltest.core.failures import Failure
from kerneltest.declare.rounding import ROWS, follow_together
from kerneltest.jaxprs.trace import Traced
from kerneltest.plan.drawn import AnyCase
from kerneltest.run.cache import Cache
from kerneltest.run.item import Item

_MOST = 2**18  # numbers in the samples of their arguments and outputs, beyond which there is nothing to gain


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
    if case.id in cache.expectations or cache.budget is not None:
        return
    limits, room = [], _MOST
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
        cache.journal.counts["cases followed at once"] += len(limits)
        follow_together(limits)
