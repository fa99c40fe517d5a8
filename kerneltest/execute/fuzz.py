"""Drawn cases of a run (`--kt-fuzz`): the same for the same seed on any machine, the failing ones shrunk."""

import functools
import hashlib
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Group, Item, Outcome
from kerneltest.execute.strategies import from_pool, hypothesis
from kerneltest.execute.values import judge_values, prepare_ahead
from kerneltest.plan.explicit import DRAWN_FAMILY, FUZZ, AnyCase, ExplicitCase, signature_pool

_MOST_SHRINKS = 400  # cases judged to make one smaller; a count and not a time, so that any machine ends at the same
_TRIES = 4  # draws a case at most, on average: different draws may come to the same values

Judged = Callable[[AnyCase], Outcome]


@functools.lru_cache(maxsize=1)  # a pairing's backends come one after another and take the same cases
def draws(pairing: Pairing, pairing_id: str, dtype: str, depth: str, seed: int, count: int) -> tuple[ExplicitCase, ...]:
    """`count` cases for one dtype of a pairing; they depend on the arguments alone.

    Raises:
      MissingHypothesisError: Hypothesis is not installed.
    """
    distinct: dict[str, ExplicitCase] = {}

    def keep(case: ExplicitCase) -> bool:
        if len(distinct) < count:
            distinct.setdefault(case.id, case)
        # Hypothesis stops at the case that made the number full, and wants the same answer when it asks again.
        return len(distinct) == count and case.id == next(reversed(distinct))

    _find(pairing, pairing_id, dtype, depth, seed, count, keep)
    cases = itertools.islice(itertools.cycle(distinct.values()), count)  # again from the first, if there are too few
    return tuple(replace(case, number=number) for number, case in enumerate(cases))


class FuzzGroup(Group):
    """Cases that Hypothesis draws."""

    name = FUZZ

    def cases(self, item: Item) -> Iterator[AnyCase]:
        return iter(draws(item.pairing, item.pairing_id, item.dtype, item.depth, item.seed, item.settings.fuzz))

    def families(self, item: Item) -> Mapping[str, int]:
        return {DRAWN_FAMILY.name: item.settings.fuzz}

    def ids(self, item: Item) -> Mapping[str, Sequence[str]]:
        """None: a failing case makes way for the smallest that fails too."""
        return {}

    def prepare(self, item: Item, planned: Sequence[AnyCase], cache: Cache) -> None:
        prepare_ahead(item, planned, cache)

    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        return judge_values(item, case, cache)

    def outcomes(self, item: Item, planned: Sequence[AnyCase], cache: Cache, judge_case: Judged) -> Iterator[Outcome]:
        """The first case with each verdict is replaced by the smallest that has it too.

        Only these carry their arguments: the others tell nothing new.
        """
        self.prepare(item, planned, cache)
        verdicts: dict[str, Verdict] = {}
        shrunk: set[Verdict] = set()
        for case in planned:
            assert isinstance(case, ExplicitCase)
            outcome = judge_case(case)
            verdict = outcome.record.verdict
            verdicts[_content(case)] = verdict
            if verdict in shrunk:
                outcome = replace(outcome, arguments=None)
            elif verdict.is_finding:
                shrunk.add(verdict)
                outcome = judge_case(_shrunk(item, case, verdict, verdicts, cache, judge_case))
            yield outcome


def _shrunk(
    item: Item, case: ExplicitCase, verdict: Verdict, verdicts: dict[str, Verdict], cache: Cache, judged: Judged
) -> ExplicitCase:
    """The smallest case found that has the same verdict; the case itself where none does, as with a flaky kernel."""
    budget = [_MOST_SHRINKS]

    def same(smaller: ExplicitCase) -> bool:
        key = _content(smaller)
        if key not in verdicts:
            if not budget[0]:
                return False
            budget[0] -= 1
            verdicts[key] = judged(smaller).record.verdict
            cache.expectations.pop(smaller.id, None)
        return verdicts[key] == verdict

    # The same seed draws the same cases again, up to this one, where Hypothesis now stops and shrinks.
    smallest = _find(item.pairing, item.pairing_id, item.dtype, item.depth, item.seed, item.settings.fuzz, same)
    if smallest is None or judged(smallest).record.verdict != verdict:
        return case
    return replace(smallest, number=case.number)


def _content(case: ExplicitCase) -> str:
    return replace(case, number=0).id


def _find(
    pairing: Pairing,
    pairing_id: str,
    dtype: str,
    depth: str,
    seed: int,
    count: int,
    wanted: Callable[[ExplicitCase], bool],
) -> ExplicitCase | None:
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
            smallest: ExplicitCase = package.find(
                from_pool(pairing, pairing_id, signature_pool(pairing, depth, dtype)),
                wanted,
                settings=settings,
                random=random.Random(int.from_bytes(digest[:8], "big")),
            )
        except package.errors.NoSuchExample:
            return None
    return smallest
