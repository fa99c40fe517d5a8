"""The relation of a suspect's wrong elements to the expected ones, as several of its cases confirm it."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from kerneltest.core.details import Mismatch
from kerneltest.core.verdicts import Verdict
from kerneltest.core.work_budget import COMPILED, WorkBudget
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item, Outcome
from kerneltest.execute.runner import run_case
from kerneltest.judge.mismatch_evidence import output_axes
from kerneltest.judge.relations import (
    BudgetSpentError,
    MismatchContext,
    fit_relation,
    relations_of_arguments,
    relations_of_order,
    relations_of_output,
    relations_of_sums,
)
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.evidence import ValueRelation
from kerneltest.records.schema import ConfirmedRelation

_MOST_CASES = 6  # that are run again
_MOST_ELEMENTS = 1 << 16  # of an output that is looked at

_OF_OUTPUTS = (relations_of_output,)
_ALL: tuple[Callable[[MismatchContext], Iterator[ValueRelation]], ...] = (
    relations_of_sums,
    relations_of_output,
    relations_of_arguments,
    relations_of_order,
)


def find_relation(
    item: Item,
    smallest: AnyCase,
    outcome: Outcome,
    cases: Sequence[AnyCase],
    wrong: Mapping[str, int],
    cache: Cache,
    budget: WorkBudget,
) -> ConfirmedRelation | None:
    """Returns the relation that explains all wrong elements of the smallest case and of some others.

    At least one case has enough different values to show it, and the wrong elements of all others follow it. Those that
    do have several lengths along its axis if the cases have: at one length, many relations fit by chance.

    Args:
      item: of the finding that the smallest case was made from.
      smallest, outcome: the smallest case, and the outcome of judging it.
      cases: all cases of the item's kind.
      wrong: the number of wrong elements of those that are findings of the suspect, by id.
      cache: the run's cache.
      budget: the search ends with what it has once this is spent.
    """
    own = _context(item, smallest, outcome, budget)
    if own is None:
        return None
    branch, contexts = cache.branch(), []
    for case in _chosen([case for case in cases if case.id in wrong], wrong):
        if budget.is_over():
            break
        budget.spend(COMPILED)
        other = _context(item, case, run_case(item, case, branch), budget)
        if other is not None and other.output == own.output:
            contexts.append(other)
    detail = outcome.record.detail
    is_plain = isinstance(detail, Mismatch) and not detail.gradient_of and not detail.call
    sources = _ALL if is_plain else _OF_OUTPUTS
    confirmed: list[ConfirmedRelation] = []
    with suppress(BudgetSpentError):
        for context in contexts:
            for relation in itertools.chain.from_iterable(each(context) for each in sources):
                fit = fit_relation(context, relation)
                if fit is None or not fit.shown:
                    continue
                fits = [fit_relation(each, relation) for each in (own, *contexts)]
                known = [each for each in fits if each is not None]
                following = [
                    c for c, f in zip((own, *contexts), fits, strict=True) if f is not None and f.explained > 0
                ]
                is_general = _has_several_lengths(following, relation) or not _has_several_lengths(cases, relation)
                if len(known) == len(fits) and len(following) > 1 and is_general:
                    confirmed.append(ConfirmedRelation(relation, len(following), sum(each.shown for each in known)))
                    if all(each.is_complete for each in known):
                        return confirmed[-1]
    return confirmed[0] if confirmed else None


def _has_several_lengths(cases: Iterable[AnyCase | MismatchContext], relation: ValueRelation) -> bool:
    # Along the relation's axis; one element has no other place.
    return len({dict(case.signature.dims).get(relation.axis) for case in cases} - {1}) > 1


# Cases of different signatures and families: structural ones first, whose values are exact, and of these the ones with
# most wrong elements.
def _chosen(failing: Sequence[AnyCase], wrong: Mapping[str, int]) -> list[AnyCase]:
    in_order = sorted(failing, key=lambda case: (not case.family.structural, -wrong[case.id], case.signature.volume))
    small = [case for case in in_order if case.signature.volume <= _MOST_ELEMENTS]
    chosen: list[AnyCase] = []
    for is_new in (all, any):  # both the signature and the family, or one of them
        for case in small:
            new = [(case.signature != each.signature, case.family.name != each.family.name) for each in chosen]
            if len(chosen) < _MOST_CASES and all(map(is_new, new)):
                chosen.append(case)
    return chosen


def _context(item: Item, case: AnyCase, outcome: Outcome, budget: WorkBudget) -> MismatchContext | None:
    comparison, detail, arguments = outcome.comparison, outcome.record.detail, outcome.arguments
    if outcome.record.verdict not in (Verdict.MISMATCH, Verdict.SPECIAL_MISMATCH) or comparison is None:
        return None
    if arguments is None or not isinstance(detail, Mismatch) or comparison.actual.size > _MOST_ELEMENTS:
        return None
    shape, depth = comparison.actual.shape, item.depth
    axes = output_axes(item.pairing, detail.output, detail.gradient_of, shape, depth)
    return MismatchContext(item.pairing, case.signature, arguments, detail.output, comparison, axes, budget)
