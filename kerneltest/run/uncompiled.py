"""Cases run without a compiler, where that gives what the backend itself gives. Only a pass counts.

What runs a kernel so is held against the backend on the first case of each signature, and against compiled code once
for a pairing and dtype. Whatever does not pass is run again by the backend, which has the last word.
"""

from collections.abc import Callable, Sequence

from kerneltest.backends.base import Backend, Evaluation, Executable
from kerneltest.core.dtypes import Array, widen
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.jaxprs.trace import Traced
from kerneltest.judge.compare import compare
from kerneltest.oracle.expectation import Expectation
from kerneltest.plan.drawn import AnyCase
from kerneltest.records.journal import Phase
from kerneltest.run.cache import REPEATED, Cache
from kerneltest.run.item import Item, Outcome

Prepare = Callable[[Traced], Executable]
Leaves = Sequence[Array]

_MOST = 2**22  # elements of the cases that run at once


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
            cache.journal.counts[f"evaluated for {backend.id}"] += 1
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
    """The outputs for a case, which runs together with those of its signature that are still to come.

    Raises:
      NotKnownError: nothing runs it without a compiler, or not twice to the same bits.
    """
    key = item.backend.id, case.id
    if key not in cache.evaluated:
        _run_ahead(item, case, cache, found)
    outputs = cache.evaluated.pop(key)
    if case.family.name in REPEATED:
        again = found.run(leaves_of(item, case, cache))
        if any(one.tobytes() != other.tobytes() for one, other in zip(outputs, again, strict=True)):
            raise NotKnownError
    return outputs


def leaves_of(item: Item, case: AnyCase, cache: Cache) -> list[Array]:
    """A case's inputs, as a kernel gets them."""
    arguments = cache.arguments(item.pairing, case)
    return [arguments[path] for path, _ in case.signature.dtypes]


def _run_ahead(item: Item, case: AnyCase, cache: Cache, found: Evaluation) -> None:
    """Runs a case, and with it those of its signature that come after it."""
    cases, inputs, room = [case], [leaves_of(item, case, cache)], _MOST
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
        cache.coming.pop(case.signature, None)
        results = [found.run(inputs[0])]
    cache.turn_to_phase(Phase.RUNNING)
    for each, outputs in zip(cases, results, strict=False):
        cache.evaluated[item.backend.id, each.id] = outputs


def _is_compiled_alike(
    item: Item, cache: Cache, traced: Traced, found: Evaluation, leaves: Leaves, expectation: Expectation
) -> bool:
    """Whether compiled code gives the same within the bounds."""
    wanted = cache.executable(item.backend, traced).run(leaves)
    bounds = expectation.all_bounds(wanted, found.precision)
    pairs = zip(found.run(leaves), wanted, bounds, strict=True)
    return not any(compare(got, widen(want), bound, signed_zeros=False).wrong.any() for got, want, bound in pairs)
