"""The group of drawn cases (`--kt-fuzz`): Hypothesis draws them, the same on any machine, and shrinks failing ones."""

import functools
import hashlib
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from unittest import mock

from kerneltest.core.group_names import GroupName
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.compile_ahead import prepare_ahead
from kerneltest.execute.item import Group, Item, Outcome
from kerneltest.execute.strategies import import_hypothesis, strategy_for
from kerneltest.execute.value_groups import judge_values
from kerneltest.execute.verdict_digests import digest_values
from kerneltest.plan.explicit import DRAWN_FAMILY, AnyCase, ExplicitCase, signature_pool

_MAX_SHRINKS = 400  # cases judged to shrink one; a count rather than a time, so that every machine finds the same case
_TRIES = 4  # draws for each case at most, since different draws may give equal values

JudgeCase = Callable[[AnyCase], Outcome]


@functools.lru_cache(maxsize=1)  # the backends of a pairing come one after another, with the same cases
def draw_cases(
    pairing: Pairing, pairing_id: str, dtype: str, depth: str, seed: int, count: int
) -> tuple[ExplicitCase, ...]:
    """Draws `count` cases for one dtype of a pairing. They depend only on the arguments.

    If there are fewer distinct cases, they repeat with other numbers.

    Raises:
      MissingHypothesisError: Hypothesis is not installed.
    """
    distinct: dict[str, ExplicitCase] = {}

    def is_last(case: ExplicitCase) -> bool:
        if len(distinct) < count:
            distinct.setdefault(case.id, case)
        # Hypothesis calls this again for the case at which it stops, and needs the same answer.
        return len(distinct) == count and case.id == next(reversed(distinct))

    _find_example(pairing, pairing_id, dtype, depth, seed, count, is_last)
    cases = itertools.islice(itertools.cycle(distinct.values()), count)
    return tuple(replace(case, number=number) for number, case in enumerate(cases))


class FuzzGroup(Group):
    """The group of the cases that Hypothesis draws."""

    name = GroupName.DRAWN

    def cases(self, item: Item) -> Iterator[AnyCase]:
        return iter(draw_cases(item.pairing, item.pairing_id, item.dtype, item.depth, item.seed, item.settings.fuzz))

    def families(self, item: Item) -> Mapping[str, int]:
        return {DRAWN_FAMILY.name: item.settings.fuzz}

    def ids(self, item: Item) -> Mapping[str, Sequence[str]]:
        """Returns {}, since a failing case is replaced by a smaller one during the run."""
        return {}

    def prepare(self, item: Item, planned: Sequence[AnyCase], cache: Cache) -> None:
        prepare_ahead(item, planned, cache)

    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        return judge_values(item, case, cache)

    def case_digest(self, item: Item, case: AnyCase, cache: Cache) -> str:
        return digest_values(item.pairing, case, item.backend, cache)

    def outcomes(
        self, item: Item, planned: Sequence[AnyCase], cache: Cache, judge_case: JudgeCase
    ) -> Iterator[Outcome]:
        """Yields the outcome of each case. The first finding with each verdict is that of the smallest such case.

        Only these have their arguments, since later findings with the same verdict add little.
        """
        self.prepare(item, planned, cache)
        verdicts: dict[str, Verdict] = {}
        shrunk: set[Verdict] = set()
        for case in planned:
            assert isinstance(case, ExplicitCase)
            outcome = judge_case(case)
            verdict = outcome.record.verdict
            verdicts[_content_id(case)] = verdict
            if verdict in shrunk:
                outcome = replace(outcome, arguments=None)
            elif verdict.is_finding:
                shrunk.add(verdict)
                outcome = judge_case(_shrink(item, case, verdict, verdicts, cache, judge_case))
            yield outcome


def _shrink(
    item: Item, case: ExplicitCase, verdict: Verdict, verdicts: dict[str, Verdict], cache: Cache, judge_case: JudgeCase
) -> ExplicitCase:
    """Returns the smallest case found that has a verdict; the case itself if none has it twice, as with a flaky kernel.

    Args:
      item: the item.
      case: the first case with the verdict.
      verdict: its verdict.
      verdicts: the verdicts of all cases so far, by content; this function adds to them.
      cache: the cache of the pairing.
      judge_case: judges a case.
    """
    attempts_left = [_MAX_SHRINKS]

    def has_verdict(smaller: ExplicitCase) -> bool:
        key = _content_id(smaller)
        if key not in verdicts:
            if not attempts_left[0]:
                return False
            attempts_left[0] -= 1
            verdicts[key] = judge_case(smaller).record.verdict
            cache.expectations.pop(smaller.id, None)
        return verdicts[key] == verdict

    # The same seed draws the same cases again, up to this one, at which Hypothesis now stops and shrinks.
    smallest = _find_example(
        item.pairing, item.pairing_id, item.dtype, item.depth, item.seed, item.settings.fuzz, has_verdict
    )
    if smallest is None or judge_case(smallest).record.verdict != verdict:
        return case
    return replace(smallest, number=case.number)


def _content_id(case: ExplicitCase) -> str:
    """Returns an id that is equal for draws of equal values."""
    return replace(case, number=0).id


def _find_example(
    pairing: Pairing,
    pairing_id: str,
    dtype: str,
    depth: str,
    seed: int,
    count: int,
    condition: Callable[[ExplicitCase], bool],
) -> ExplicitCase | None:
    """Draws `count` cases, and shrinks the first that fulfils a condition; returns None if none does."""
    package = import_hypothesis()
    from hypothesis.internal.conjecture.providers import HypothesisProvider

    digest = hashlib.sha256(f"{seed}|{pairing.name}|{dtype}|{depth}".encode()).digest()
    settings = package.settings(
        max_examples=_TRIES * count,
        database=None,
        derandomize=False,  # the seed below decides
        deadline=None,
        phases=[package.Phase.generate, package.Phase.shrink],
        verbosity=package.Verbosity.quiet,
        suppress_health_check=list(package.HealthCheck),
        backend="hypothesis",
    )
    # Hypothesis also draws constants from the source of all loaded modules, and these differ between workers, and
    # between a whole run and one item of it.
    without_constants = mock.patch.object(HypothesisProvider, "_maybe_draw_constant", return_value=None, create=True)
    with without_constants:
        try:
            smallest: ExplicitCase = package.find(
                strategy_for(pairing, pairing_id, signature_pool(pairing, depth, dtype)),
                condition,
                settings=settings,
                random=random.Random(int.from_bytes(digest[:8], "big")),
            )
        except package.errors.NoSuchExample:
            return None
    return smallest
