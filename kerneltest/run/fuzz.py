"""Drawn cases of a run (`--kt-fuzz`): the same for the same seed on any machine, the failing ones shrunk."""

import functools
import hashlib
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

from kerneltest.plan.drawn import DrawnCase, pool
from kerneltest.run.item import Item, Outcome
from kerneltest.run.cache import Memory
from kerneltest.declare.pairing import Pairing
from kerneltest.run.runner import judged
from kerneltest.run.strategies import from_pool, hypothesis
from kerneltest.core.verdicts import NO_FINDING

_MOST_SHRINKS = 400  # cases judged to make one smaller; a count and not a time, so that any machine ends at the same
_TRIES = 4  # draws a case at most, on average: different draws may come to the same values


@functools.lru_cache(maxsize=1)  # a pairing's backends come one after another and take the same cases
def draws(pairing: Pairing, dtype: str, depth: str, seed: int, count: int) -> tuple[DrawnCase, ...]:
    """`count` cases for one dtype of a pairing; they depend on the arguments alone.

    Raises:
      MissingHypothesisError: Hypothesis is not installed.
    """
    distinct: dict[str, DrawnCase] = {}

    def keep(case: DrawnCase) -> bool:
        if len(distinct) < count:
            distinct.setdefault(case.id, case)
        # Hypothesis stops at the case that made the number full, and wants the same answer when it asks again.
        return len(distinct) == count and case.id == next(reversed(distinct))

    _find(pairing, dtype, depth, seed, count, keep)
    found = itertools.islice(itertools.cycle(distinct.values()), count)  # again from the first, if there are too few
    return tuple(replace(case, number=number) for number, case in enumerate(found))


def judge_all(item: Item, drawn: Sequence[DrawnCase], memory: Memory) -> Iterator[Outcome]:
    """An outcome for each drawn case; the first with each verdict is replaced by the smallest that has it too.

    Only these carry their arguments: the others tell nothing new.
    """
    verdicts: dict[str, str] = {}
    told: set[str] = set()
    for case in drawn:
        outcome = judged(item, case, memory)
        verdict = outcome.record.verdict
        verdicts[_content(case)] = verdict
        if verdict in told:
            outcome = replace(outcome, arguments=None)
        elif verdict not in NO_FINDING:
            told.add(verdict)
            outcome = judged(item, _shrunk(item, case, verdict, verdicts, memory), memory)
        yield outcome


def _shrunk(item: Item, case: DrawnCase, verdict: str, verdicts: dict[str, str], memory: Memory) -> DrawnCase:
    """The smallest case found that has the same verdict; the case itself where none does, as with a flaky kernel."""
    budget = [_MOST_SHRINKS]

    def same(smaller: DrawnCase) -> bool:
        key = _content(smaller)
        if key not in verdicts:
            if not budget[0]:
                return False
            budget[0] -= 1
            verdicts[key] = judged(item, smaller, memory).record.verdict
            memory.expectations.pop(smaller.id, None)
        return verdicts[key] == verdict

    # The same seed draws the same cases again, up to this one, where Hypothesis now stops and shrinks.
    smallest = _find(item.pairing, item.dtype, item.depth, item.seed, item.fuzz, same)
    if smallest is None or judged(item, smallest, memory).record.verdict != verdict:
        return case
    return replace(smallest, number=case.number)


def _content(case: DrawnCase) -> str:
    return replace(case, number=0).id


def _find(
    pairing: Pairing, dtype: str, depth: str, seed: int, count: int, wanted: Callable[[DrawnCase], bool]
) -> DrawnCase | None:
    """The smallest case that is wanted, among `count` drawn ones and what they shrink to, or None."""
    package = hypothesis()
    from hypothesis.internal.conjecture.providers import HypothesisProvider

    digest = hashlib.sha256(f"{seed}|{pairing.name}|{dtype}|{depth}".encode()).digest()
    settings = package.settings(
        max_examples=_TRIES * count,
        database=None,
        derandomize=False,  # what is drawn comes from the seed below
        deadline=None,
        phases=[package.Phase.generate, package.Phase.shrink],
        verbosity=package.Verbosity.quiet,
        suppress_health_check=list(package.HealthCheck),
        backend="hypothesis",
    )
    # Hypothesis also draws constants that it reads in the source of whatever modules are loaded, which differ
    # between workers and between a whole run and a single item of it.
    plain: Any = mock.patch.object(HypothesisProvider, "_maybe_draw_constant", return_value=None, create=True)
    with plain:
        try:
            found: DrawnCase = package.find(
                from_pool(pairing, pool(pairing, depth, dtype)),
                wanted,
                settings=settings,
                random=random.Random(int.from_bytes(digest[:8], "big")),
            )
        except package.errors.NoSuchExample:
            return None
    return found
