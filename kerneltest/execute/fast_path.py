"""Cases run without a compiler, where that gives what the backend itself gives. Only a pass counts.

What runs a kernel so is held against the backend on the first case of each signature, and against compiled code once
for a pairing and dtype. Whatever does not pass is run again by the backend, which has the last word.
"""

from collections.abc import Callable, Sequence

from kerneltest.backends.base import Backend, Evaluation, Executable, Together
from kerneltest.core.dtypes import Array, widen
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.batching import leaves_of, run_together
from kerneltest.execute.cache import REPEATED, Cache
from kerneltest.execute.item import Item, Outcome
from kerneltest.judge.compare import compare
from kerneltest.oracle.expectation import Expectation
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.journal import Phase
from kerneltest.trace.tracing import Traced

Prepare = Callable[[Traced], Executable]
Leaves = Sequence[Array]


class NotKnownError(Exception):
    """Only the backend itself can run this."""


def passed(judge: Callable[[], Outcome]) -> Outcome | None:
    """The outcome of a case that ran without a compiler, if it is a pass."""
    try:
        outcome = judge()
    except Failure as failure:
        if failure.verdict is Verdict.HANG:
            raise
        return None
    except Exception:
        return None
    return outcome if outcome.record.verdict is Verdict.PASS else None


def candidate(backend: Backend, cache: Cache, traced: Traced) -> Evaluation | None:
    """What runs a kernel without a compiler; None where nothing does."""
    key = backend.id, traced
    if key not in cache.evaluations:
        found = cache.evaluations[key] = backend.uncompiled(traced)
        if found is not None:
            cache.process.journal.counts[f"evaluated for {backend.id}"] += 1
    return cache.evaluations[key]


def varied(backend: Backend, cache: Cache, traced: Traced) -> Evaluation:
    """What runs a variation of a call without a compiler.

    Raises:
      NotKnownError: nothing does.
    """
    found = candidate(backend, cache, traced)
    if found is None:
        raise NotKnownError
    return found


def evaluation(item: Item, case: AnyCase, cache: Cache, traced: Traced, expectation: Expectation) -> Evaluation:
    """What runs a kernel without a compiler, once it has shown on a case that it may stand in for the backend.

    Raises:
      NotKnownError: nothing does.
    """
    if item.depth == "deep" or cache.alike.get(item.backend.id) is False:
        raise NotKnownError
    found = varied(item.backend, cache, traced)
    key = item.backend.id, traced
    if key not in cache.faithful:
        cache.faithful[key] = False  # unless it shows that it is
        leaves = leaves_of(item, case, cache)
        cache.turn_to_phase(Phase.RUNNING)
        cache.faithful[key] = found.is_faithful(leaves)
        if cache.faithful[key] and item.backend.id not in cache.alike:
            cache.alike[item.backend.id] = False
            cache.alike[item.backend.id] = _is_compiled_alike(item, cache, traced, found, leaves, expectation)
    if not stands_in(item.backend, cache, traced):
        raise NotKnownError
    return found


def stands_in(backend: Backend, cache: Cache, traced: Traced) -> bool:
    """Whether a kernel has shown that it runs without a compiler as it does with one."""
    return cache.faithful.get((backend.id, traced), False) and cache.alike.get(backend.id, False)


def outputs_of(item: Item, case: AnyCase, cache: Cache, found: Evaluation) -> tuple[Array, ...]:
    """The outputs for a case, which runs together with those of its signature that are still to come, if it can.

    Raises:
      NotKnownError: nothing runs it without a compiler, or not twice to the same bits.
    """
    if isinstance(found, Together):
        outputs = run_together(item, case, cache, found)
    else:
        cache.turn_to_phase(Phase.RUNNING)
        outputs = found.run(leaves_of(item, case, cache))
    if case.family.name in REPEATED:
        again = found.run(leaves_of(item, case, cache))
        if any(one.tobytes() != other.tobytes() for one, other in zip(outputs, again, strict=True)):
            raise NotKnownError
    return outputs


def _is_compiled_alike(
    item: Item, cache: Cache, traced: Traced, found: Evaluation, leaves: Leaves, expectation: Expectation
) -> bool:
    """Whether compiled code gives the same within the bounds."""
    wanted = cache.executable(item.backend, traced).run(leaves)
    cache.turn_to_phase(Phase.EXPECTING)
    bounds = expectation.all_bounds(wanted, found.precision)
    cache.turn_to_phase(Phase.RUNNING)
    pairs = zip(found.run(leaves), wanted, bounds, strict=True)
    return not any(compare(got, widen(want), bound, signed_zeros=False).wrong.any() for got, want, bound in pairs)
