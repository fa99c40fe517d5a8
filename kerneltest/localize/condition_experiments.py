"""Experiments on the conditions of a suspect: cases made to confirm or to refute each clause of its title.

A rule is a conjunction of terms that all failing signatures fulfil. Signatures are tried one after another, each chosen
since the rules that fit so far predict different results for it: a threshold is found by bisection, a remainder by its
true modulus, and a conjunction is believed only if each of its halves alone was refuted. Then a few more signatures
must fail, or pass, as predicted. Budgets count signatures, so that each run finds the same.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from kerneltest.core.failures import Failure
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.invariant_group import INVARIANTS
from kerneltest.execute.item import Item
from kerneltest.localize.trials import Trials
from kerneltest.plan.cases import Case
from kerneltest.plan.explicit import AnyCase, ExplicitCase
from kerneltest.plan.signatures import Signature, dtype_groups, signatures
from kerneltest.records.schema import ConfirmedCondition, Record
from kerneltest.shrink.smaller_cases import stretched_arguments
from kerneltest.triage.conditions import MOST_EXCEPTIONS, Features, Term, matching_bits, terms
from kerneltest.triage.symptoms import OF_ROUNDING, symptom

_MOST_TRIED = 48  # signatures
_MOST_CASES = 80  # after which an experiment is given up
_PASSING = 4  # cases that passed, most of which must pass in NumPy
_FAMILIES = 2  # whose values a signature is tried with
_DENSE = 40  # lengths up to which all are considered
_MOST_LENGTHS = 72  # of a dim
_RIVALS = 80  # rules that a trial is to tell apart
_MANY_BLOCKS = 64  # a length that is whole blocks of most kernels
_VERIFIED = 2  # further signatures that must fail, and that must pass
_MOST_TERMS = 150  # that are tried in pairs


def features_of(pairing: Pairing, signature: Signature) -> Features:
    """Returns the features of a signature."""
    return Features(dict(signature.dims), {"dtype": signature.dtype, **signature.static_values(pairing)})


# Signatures to try.


def _neighbours(pairing: Pairing, base: Signature) -> Iterator[Signature]:
    # Signatures that differ from the base in one choice.
    lengths, statics = dict(base.dims), dict(base.statics)
    groups = dtype_groups(pairing)
    chosen = {pairing.leaves[path].dtypes: dtype for path, dtype in base.dtypes}
    for name, options in pairing.options().items():
        for option in options:
            yield Signature.from_choices(pairing, lengths, {**statics, name: option}, chosen)
    for group in groups:
        for dtype in group:
            yield Signature.from_choices(pairing, lengths, statics, {**chosen, group: dtype})
    for name in lengths:
        for length in _lengths(pairing, base, name):
            yield from _resized(pairing, base, {name: length})


def _lengths(pairing: Pairing, base: Signature, name: str) -> list[int]:
    dim, own = pairing.dims[name], dict(base.dims)[name]
    marks = {1, dim.block or 1, 2 * (dim.block or 1), own, *features_of(pairing, base).numbers.values()}
    near = {n + by for mark in marks for n in (mark, 2 * mark) for by in (-2, -1, 0, 1, 2)}
    dense = range(1, _DENSE + 1)
    halving = {own >> by for by in range(own.bit_length())} | {own * 3 >> by for by in range(2, own.bit_length())}
    wanted = sorted(near | set(dense) | halving, key=lambda n: (abs(n - own) > _DENSE, n))
    steps = {dim.fit(n) for n in wanted if n > 0} if not dim.values else set(dim.values)
    return sorted(n for n in steps if n > 0 and dim.admits(n) and n <= max(2 * max(marks) + 2, _DENSE))[:_MOST_LENGTHS]


def _resized(pairing: Pairing, base: Signature, lengths: Mapping[str, int]) -> Iterator[Signature]:
    wanted, statics = {**dict(base.dims), **lengths}, dict(base.statics)
    fitted = pairing.fit_lengths(wanted, statics, list(lengths))
    if fitted is not None and pairing.admits(fitted, statics):
        yield replace(base, dims=tuple(fitted.items()))


def _distant(pairing: Pairing, base: Signature) -> Iterator[Signature]:
    # Signatures that differ in the lengths of two dims, or in a length and an option.
    near = [s for s in _neighbours(pairing, base) if s.dims == base.dims and s != base]
    few = {name: _few(pairing, base, name) for name, _ in base.dims}
    for other in near:
        for name, lengths in few.items():
            for length in lengths:
                yield from _resized(pairing, other, {name: length})
    for (one, ns), (another, ms) in itertools.combinations(few.items(), 2):
        for n, m in itertools.product(ns, ms):
            yield from _resized(pairing, base, {one: n, another: m})


def _few(pairing: Pairing, base: Signature, name: str) -> list[int]:
    dim, own = pairing.dims[name], dict(base.dims)[name]
    block = dim.block or own
    wanted = {1, 2, 3, own - 1, own + 1, block, block + 1, 2 * block, 2 * block + 1, 2 * own, 3 * own}
    return sorted({dim.fit(n) for n in wanted if n > 0} if not dim.values else set(dim.values))


def _first_trials(pairing: Pairing, base: Signature) -> Iterator[Signature]:
    # A few signatures for each choice, in whatever it matters.
    yield from (s for s in _neighbours(pairing, base) if s.dims == base.dims and s != base)
    for name, own in base.dims:
        dim = pairing.dims[name]
        for length in dict.fromkeys([dim.shortest, own - 1, own + 1, dim.block or 2 * own, 2 * (dim.block or own)]):
            if length > 0 and length != own and dim.admits(length):
                yield from _resized(pairing, base, {name: length})
    dims = {name: pairing.dims[name] for name, _ in base.dims}
    together = [{name: dim.block or dim.shortest for name, dim in dims.items()}]
    together += [dict.fromkeys(dims, length) for length in sorted({1, _MANY_BLOCKS, *dict(base.dims).values()})]
    for lengths in together if len(dims) > 1 else ():
        fitted = {name: dims[name].fit(length) for name, length in lengths.items()}
        if all(dims[name].admits(length) for name, length in fitted.items()):
            yield from _resized(pairing, base, fitted)


# Rules.


@dataclass(frozen=True, slots=True)
class _Rule:
    parts: tuple[Term, ...]
    cost: int
    bits: int  # the signatures that fulfil it

    @property
    def words(self) -> str:
        return " and ".join(part.words for part in self.parts)

    def holds(self, features: Features) -> bool:
        return all(part.holds(features) for part in self.parts)


class _Search:
    # The search for the rule that the signatures of failing and passing cases follow.

    def __init__(
        self, pairing: Pairing, signatures: Sequence[Signature], fails: Callable[[Signature], bool | None]
    ) -> None:
        self._signatures, self._fails = signatures, fails
        known = [features_of(pairing, signature) for signature in signatures]
        blocks = {name: dim.block for name, dim in pairing.dims.items() if dim.block}
        rules: dict[int, _Rule] = {}
        for term in terms(known, blocks, thorough=True):
            bits = matching_bits(term, known)
            if bits not in rules or term.cost < rules[bits].cost:
                rules[bits] = _Rule((term,), term.cost, bits)
        self._single = sorted(rules.values(), key=lambda rule: rule.cost)
        self.failing = self.passing = self._skipped = 0
        self.tried = 0

    def observe(self, number: int, *, fails: bool | None) -> None:
        self.failing |= (fails is True) << number
        self.passing |= (fails is False) << number
        self._skipped |= (fails is None) << number

    def _try(self, number: int) -> None:
        self.tried += 1
        self.observe(number, fails=self._fails(self._signatures[number]))

    def try_all(self, signatures: Iterable[Signature]) -> None:
        for number in map(self._signatures.index, signatures):
            if not (self.failing | self.passing | self._skipped) >> number & 1 and self.tried < _MOST_TRIED:
                self._try(number)

    def fitting(self) -> list[_Rule]:
        """Returns the rules without exceptions, cheapest first; conjunctions only if no single term is one."""
        holding = [rule for rule in self._single if rule.bits & self.failing == self.failing]
        for size in (1, 2, 3):
            among = holding if size < 3 else holding[: _MOST_TERMS // 4]
            found = [
                rule
                for parts in itertools.combinations(among[:_MOST_TERMS] if size > 1 else among, size)
                if not (rule := _conjunction(parts)).bits & self.passing
            ]
            if found:
                return sorted(found, key=lambda rule: rule.cost)
        return []

    def nearly_fitting(self) -> _Rule | None:
        holding = [rule for rule in self._single if rule.bits & self.failing == self.failing]
        best = min(holding, key=lambda rule: ((rule.bits & self.passing).bit_count(), rule.cost), default=None)
        if best is None:
            return None
        left = (best.bits & self.passing).bit_count()
        fulfilled = left + (best.bits & self.failing).bit_count()
        return best if left <= MOST_EXCEPTIONS * fulfilled and best.bits & self.passing != self.passing else None

    def run(self) -> _Rule | None:
        verified = 0
        while self.passing:
            rules = self.fitting()
            if not rules:
                return self.nearly_fitting()
            if self.tried >= _MOST_TRIED:
                return None  # rules that no trial has told apart are guesses
            best, rivals = rules[0], rules[1:_RIVALS]
            number = self._most_telling(best, rivals)
            if number is None:
                number = self._untried(best, verified) if verified < 2 * _VERIFIED else None
                verified += 1
            if number is None:
                return best
            self._try(number)
        return None

    def _most_telling(self, best: _Rule, rivals: Sequence[_Rule]) -> int | None:
        known = self.failing | self.passing | self._skipped
        weights: dict[int, float] = {}
        for rival in rivals:
            differ = (rival.bits ^ best.bits) & ~known
            weight = 1 / (1 + rival.cost)
            while differ:
                lowest = differ & -differ
                number = lowest.bit_length() - 1
                weights[number] = weights.get(number, 0.0) + weight
                differ ^= lowest
        if not weights:
            return None
        half = sum(1 / (1 + rival.cost) for rival in rivals) / 2
        return min(weights, key=lambda number: (abs(weights[number] - half), number))

    def _untried(self, rule: _Rule, turn: int) -> int | None:
        # One that is to fail and one that is to pass take turns: one of lengths that were not tried, if there is one.
        known = self.failing | self.passing | self._skipped
        wanted = (rule.bits if turn % 2 else ~rule.bits) & ~known
        numbers = [number for number in reversed(range(len(self._signatures))) if wanted >> number & 1]
        tried = {each.dims for number, each in enumerate(self._signatures) if known >> number & 1}
        return next((n for n in numbers if self._signatures[n].dims not in tried), next(iter(numbers), None))


def _conjunction(parts: Sequence[_Rule]) -> _Rule:
    if len(parts) == 1:
        return parts[0]
    bits = -1
    for part in parts:
        bits &= part.bits
    return _Rule(tuple(p for part in parts for p in part.parts), sum(p.cost for p in parts) + 2 * len(parts), bits)


def find_condition(
    item: Item,
    case: AnyCase,
    smallest: ExplicitCase,
    record: Record,
    cases: Sequence[AnyCase],
    findings: Set[str],
    cache: Cache,
) -> ConfirmedCondition | None:
    """Returns the condition on signatures as experiments confirm it; None if none could be made, or none confirms one.

    Args:
      item, case, record: the case of the finding that the smallest case was made from.
      smallest: the smallest case.
      cases, findings: all cases of the item's kind, and the ids of those that are findings of the suspect.
      cache: the run's cache.
    """
    if symptom(record).effect in OF_ROUNDING:  # it depends on values and dtypes more than on lengths
        return None
    pairing = item.pairing
    bad = [each for each in cases if each.id in findings]
    others = [each for each in cases if each.id not in findings]
    trials = Trials(pairing, record.family, smallest, others[:: -(-len(others) // _PASSING) or 1], cache)
    if not trials.agrees:
        return None
    asked = {(each.family.name, each.target): (each.family, each.target) for each in (case, *bad)}
    families = list(asked.values())[:_FAMILIES]

    def filled(signature: Signature) -> Iterator[ExplicitCase]:
        if record.family not in INVARIANTS or INVARIANTS[record.family].applies(pairing, signature):
            for arguments in stretched_arguments(pairing, smallest, signature):
                yield replace(smallest, signature=signature, arguments=arguments)
            for family, target in families:
                made = Case(item.pairing_id, pairing.name, signature, family, target, item.seed)
                yield replace(smallest, signature=signature, family=family, target=target, arguments=made.fill(pairing))

    def fails(signature: Signature) -> bool | None:
        try:
            return trials.fails(filled(signature)) if trials.count < _MOST_CASES else None
        except Failure:
            return None

    base = next((s for s in (smallest.signature, case.signature) if fails(s)), None)
    if base is None:
        return None
    planned = signatures(pairing, item.depth)
    longest = max(map(_number_of_steps, planned))
    first = [each for each in _first_trials(pairing, base) if _number_of_steps(each) <= longest]
    near = sorted(_neighbours(pairing, base), key=_total_length)
    known = dict.fromkeys([base, *(each.signature for each in bad)])
    every = [*first, *near, *sorted(_distant(pairing, base), key=_total_length), *planned]
    possible = list(dict.fromkeys([*known, *(each for each in every if _number_of_steps(each) <= longest)]))
    search = _Search(pairing, possible, fails)
    for signature in known:
        search.observe(possible.index(signature), fails=True)
    search.try_all(first)
    rule = search.run()
    if trials.count >= _MOST_CASES or (rule is None and search.passing):
        return None
    excluded = [str(each) for each in planned if rule is not None and not rule.holds(features_of(pairing, each))]
    return ConfirmedCondition(rule.words if rule is not None else "", trials.count, tuple(excluded))


def _number_of_steps(signature: Signature) -> int:
    # Of a kernel that multiplies all of its dims.
    return math.prod(length for _, length in signature.dims)


def _total_length(signature: Signature) -> int:
    return sum(length for _, length in signature.dims)
