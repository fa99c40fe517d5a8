"""Compilations that are started before a case needs them."""

import itertools
from collections.abc import Sequence
from contextlib import suppress

from kerneltest.core.failures import Failure
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.xfails import quarantine_reason
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import Signature
from kerneltest.records.journal import Phase


def prepare_ahead(item: Item, planned: Sequence[AnyCase], cache: Cache) -> None:
    """Starts concurrent compilations of the first signature, and of every other one that needs a compiler."""
    cache.batch.cases.clear()
    for case in planned:
        cache.batch.cases.setdefault(case.signature, []).append(case)
    begun: set[Signature] = set()
    fast_path = cache.executables.fast_path
    for case in planned if cache.process.compiles_ahead else ():
        if case.signature in begun or quarantine_reason(item, case):
            continue
        begun.add(case.signature)
        cache.process.begin_case(item.name, case)
        with suppress(Failure):  # reported when the case is judged
            traced = cache.traces.of(item.pairing, case.signature, item.backend)
            cache.process.enter_phase(Phase.COMPILING)
            first = case.signature == planned[0].signature
            if first or item.depth == "deep" or not ((path := fast_path(item.backend)) and path.covers(traced)):
                cache.executables.prepare(item.backend, traced)
        if (budget := cache.process.budget) is not None and not budget.note_prepared(case.signature):
            break


def prepare_next(item: Item, case: AnyCase, cache: Cache) -> None:
    """Starts to compile the signature after that of a wrong case, which is probably wrong, too."""
    if not cache.process.compiles_ahead or cache.process.budget is not None:
        return
    if case not in cache.batch.cases.get(case.signature, ()):  # drawn, not planned
        return
    left = itertools.islice(itertools.dropwhile(case.signature.__ne__, cache.batch.cases), 1, None)
    later = next((cache.batch.cases[each][0] for each in left), None)
    if later is None or quarantine_reason(item, later):
        return
    cache.process.begin_case(item.name, later)
    with suppress(Exception):  # raised again when the case is judged
        traced = cache.traces.of(item.pairing, later.signature, item.backend)
        cache.process.enter_phase(Phase.COMPILING)
        cache.executables.prepare(item.backend, traced)
    cache.process.begin_case(item.name, case)
