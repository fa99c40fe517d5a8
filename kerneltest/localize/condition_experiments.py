"""Experiments on the conditions of a suspect: cases made to confirm or to refute each clause of its title.

The condition on inputs is found at one signature, and the one on signatures with inputs that fulfil it.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from operator import attrgetter

from kerneltest.core.failures import DeclarationError, Failure
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.invariant_group import INVARIANTS
from kerneltest.execute.item import Item
from kerneltest.localize.input_experiments import ANY_INPUT, InputRule, find_input_rule
from kerneltest.localize.rule_search import RuleSearch
from kerneltest.localize.trials import Trials, find_trials
from kerneltest.plan.cases import Case
from kerneltest.plan.explicit import AnyCase, ExplicitCase
from kerneltest.plan.signatures import Signature, dtype_groups, signatures
from kerneltest.records.schema import ConfirmedCondition, Record
from kerneltest.shrink.shrinker import stretched_arguments
from kerneltest.triage.conditions import WITH_EXCEPTIONS, Features, Term, matching_bits, terms
from kerneltest.triage.symptoms import OF_ROUNDING, symptom

_MOST_CASES = 200  # after which an experiment is given up
_MOST_FOR_INPUTS = 120  # of these
_BASES = 2  # signatures at which a condition on inputs is looked for
_MOST_PLANNED = 12  # planned signatures that are tried if no other one passes
_MOST_ELSEWHERE = 12  # findings in other items that do not fulfil a condition
_SETTLING = 4  # signatures, all of which fail, that leave little to ask
_PASSING = 4  # cases that passed, most of which must pass in NumPy
_FAMILIES = 2  # whose values a signature is tried with
_DENSE = 40  # lengths up to which all are considered
_MOST_LENGTHS = 72  # of a dim
_MANY_BLOCKS = 64  # a length that is whole blocks of most kernels


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
    yield from filter(None, [base.resized(pairing, lengths)])


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
    # Of a dim, in the order in which they matter.
    dim, own = pairing.dims[name], dict(base.dims)[name]
    block = dim.block or 2 * own
    near = (dim.shortest, own - 1, own + 1, block, 2 * block, block + 1)
    wanted = dim.values or [dim.fit(n) for n in near if n > 0]
    return [n for n in dict.fromkeys(wanted) if n > 0 and n != own and dim.admits(n)]


def _first_trials(pairing: Pairing, base: Signature) -> Iterator[Signature]:
    # A few signatures for each choice, in whatever it matters.
    yield from (s for s in _neighbours(pairing, base) if s.dims == base.dims and s != base)
    for name, _ in base.dims:
        for length in _few(pairing, base, name)[:5]:
            yield from _resized(pairing, base, {name: length})


def _of_equal_lengths(pairing: Pairing, base: Signature) -> Iterator[Signature]:
    # Signatures that plans seldom have.
    dims = {name: pairing.dims[name] for name, _ in base.dims}
    together = [{name: dim.block or dim.shortest for name, dim in dims.items()}]
    together += [dict.fromkeys(dims, length) for length in sorted({1, _MANY_BLOCKS, *dict(base.dims).values()})]
    for lengths in together if len(dims) > 1 else ():
        fitted = {name: dims[name].fit(length) for name, length in lengths.items()}
        if all(dims[name].admits(length) for name, length in fitted.items()):
            yield from _resized(pairing, base, fitted)


def find_condition(
    item: Item,
    case: AnyCase,
    smallest: ExplicitCase,
    record: Record,
    cases: Sequence[AnyCase],
    findings: Set[str],
    cache: Cache,
    elsewhere: Sequence[AnyCase] = (),
) -> ConfirmedCondition | None:
    """Returns the condition as experiments confirm it; None if none could be made, or none confirms one.

    Findings of the suspect that do not fulfil it have another cause: they pass in the experiment. `case` is the one
    that the smallest case was made from, `cases` are all of the item's kind, and `findings` the ids of those that are
    findings of the suspect; it has others `elsewhere`, such as of another dtype.
    """
    if symptom(record).effect in OF_ROUNDING:  # it depends on values and dtypes more than on lengths
        return None
    bad = [each for each in cases if each.id in findings]
    others = [each for each in cases if each.id not in findings]
    trials = find_trials(item, record, smallest, others[:: -(-len(others) // _PASSING) or 1], cache)
    if trials is None:
        return None
    experiment = _Experiment(item, case, smallest, record, bad, trials)
    known = {each.signature for each in bad}
    inputs = experiment.find_inputs([each for each in others if each.signature in known])
    families, dtypes = ({each.family.name for each in bad}, {each.signature.dtype for each in (*bad, *elsewhere)})
    is_everywhere = (
        len(known) >= _SETTLING
        and {each.signature for each in cases if each.family.name in families} <= known
        and {each.dtype for each in experiment.planned} <= dtypes
    )
    words, excluded = experiment.find_signatures(inputs or ANY_INPUT, is_everywhere)
    if inputs is None:
        is_confirmed = words is not None and not _is_refuted(excluded, elsewhere, trials)
        return ConfirmedCondition(words, trials.count, excluded) if is_confirmed else None
    fulfilling = {each.id for each in others if _fulfils(item.pairing, each, inputs)}
    if words is not None and not inputs.words.endswith(WITH_EXCEPTIONS):
        further = [each for each in others if each.id in fulfilling and each.signature not in known]
        stated = (each for each in further if str(each.signature) not in excluded)
        if any(trials.fails([each]) is False for each in stated) or trials.is_exhausted:
            return None
    excluded += tuple(each.id for each in others if each.id not in fulfilling)
    excluded += tuple(each.id for each in elsewhere if not _fulfils(item.pairing, each, inputs))
    if _is_refuted(excluded, elsewhere, trials):
        return None
    return ConfirmedCondition(words, trials.count, excluded, inputs.words)


def _is_refuted(excluded: Sequence[str], elsewhere: Sequence[AnyCase], trials: Trials) -> bool:
    # Whether a finding that does not fulfil a condition fails in the experiment, or none of them can be tried.
    missing = {*excluded}
    left = [case for case in elsewhere if not missing.isdisjoint((case.id, str(case.signature)))]
    trials.most = trials.count + _MOST_ELSEWHERE
    results = [trials.fails([case]) for case in left[:: -(-len(left) // _MOST_ELSEWHERE) or 1]]
    return bool(left) and (True in results or False not in results)


def _fulfils(pairing: Pairing, case: AnyCase, inputs: InputRule) -> bool:
    try:
        return inputs.holds(case.signature, case.fill(pairing))
    except (Failure, DeclarationError):  # it has no inputs
        return False


class _Experiment:
    # An experiment on the condition of a suspect.

    def __init__(
        self, item: Item, case: AnyCase, smallest: ExplicitCase, record: Record, bad: Sequence[AnyCase], trials: Trials
    ) -> None:
        self._item, self._pairing, self._smallest, self._record = item, item.pairing, smallest, record
        self._case, self._bad, self._trials = case, bad, trials
        asked = {(each.family.name, each.target): (each.family, each.target) for each in (case, *bad)}
        self._families = list(asked.values())[:_FAMILIES]
        self.planned = signatures(item.pairing, item.depth)
        self._longest = max(each.volume for each in self.planned)

    def _filled(self, signature: Signature) -> Iterator[ExplicitCase]:
        # Cases of a signature like those that fail.
        name = self._record.family
        if name not in INVARIANTS or INVARIANTS[name].applies(self._pairing, signature):
            for arguments in stretched_arguments(self._pairing, self._smallest, signature):
                yield replace(self._smallest, signature=signature, arguments=arguments)
            for family, target in self._families:
                made = Case(self._item.pairing_id, self._pairing.name, signature, family, target, self._item.seed)
                arguments = made.fill(self._pairing)
                yield replace(self._smallest, signature=signature, family=family, target=target, arguments=arguments)

    def find_inputs(self, passing: Sequence[AnyCase]) -> InputRule | None:
        """Returns the condition on inputs; None if trials confirm none, or if a passing case refutes it."""
        if not self._trials.tries_values:
            return None
        self._trials.most = self._trials.count + _MOST_FOR_INPUTS
        try:
            bases = itertools.islice(self._bases(), _BASES)
            return find_input_rule(self._pairing, bases, self._trials, self._bad, passing)
        except (Failure, DeclarationError):  # values that the kernel does not take
            return None
        finally:
            self._trials.most += _MOST_CASES - _MOST_FOR_INPUTS

    def _bases(self) -> Iterator[ExplicitCase]:
        # Failing cases: of the longest signature, in which most properties of inputs differ from each other, and of a
        # longer one, so that a limit that follows from lengths is not taken for a number, nor a block for a row.
        bad = {each.signature for each in self._bad if each.signature.volume <= self._longest}
        longest = max(bad, key=lambda each: (each.volume, str(each)), default=None)
        dims = self._pairing.dims
        past = {n: dims[n].fit(max(k, dims[n].block or 1) + 1) for n, k in longest.dims} if longest else {}
        longer = {n: k for n, k in past.items() if dims[n].admits(k)}
        for signature in (longest, longest.resized(self._pairing, longer)) if longest else ():
            filled = self._filled(signature) if signature is not None else ()
            yield from itertools.islice((case for case in filled if self._trials.fails([case])), 1)
        yield self._smallest

    def find_signatures(self, inputs: InputRule, is_everywhere: bool) -> tuple[str | None, tuple[str, ...]]:
        """Returns the condition on signatures among cases whose inputs fulfil one, and planned signatures without it.

        The condition is None if trials confirm none, and "" if every signature fails. If all planned ones do
        (`is_everywhere`), only those that plans seldom have are tried.
        """
        pairing, trials = self._pairing, self._trials

        def fails(signature: Signature) -> bool | None:
            try:
                made = (each for each in self._filled(signature) if inputs.holds(signature, each.arguments))
                return trials.fails(made)
            except Failure:
                return None

        base = self._smallest.signature
        if not inputs.holds(base, self._smallest.arguments) and not fails(base := self._case.signature):
            return None, ()
        first = [*([] if is_everywhere else _first_trials(pairing, base)), *_of_equal_lengths(pairing, base)]
        first = [each for each in first if each.volume <= self._longest]
        near = sorted(_neighbours(pairing, base), key=attrgetter("total_length"))
        known = dict.fromkeys([base, *(each.signature for each in self._bad)])
        every = [*first, *near, *sorted(_distant(pairing, base), key=attrgetter("total_length")), *self.planned]
        possible = list(dict.fromkeys([*known, *(each for each in every if each.volume <= self._longest)]))
        kinds = [signature.dims for signature in possible]
        properties = _properties(pairing, possible)
        search = RuleSearch(
            properties, kinds, lambda n: fails(possible[n]), trials.most_signatures, pairs_have_exceptions=True
        )
        for number in range(len(known)):
            search.observe(number, fails=True)
        search.try_all(map(possible.index, first))
        if not search.passing and not is_everywhere:  # what passed in the run is likelier to pass than its neighbours
            planned = (each for each in self.planned if each in possible and each not in known)
            search.try_all(map(possible.index, itertools.islice(planned, _MOST_PLANNED)))
        rule = search.run()
        if trials.is_exhausted or (rule is None and search.passing):
            return None, ()
        parts = rule.parts if rule is not None else ()
        excluded = (s for s in self.planned if not all(part.holds(features_of(pairing, s)) for part in parts))
        note = WITH_EXCEPTIONS if rule is not None and rule.bits & search.passing else ""
        return " and ".join(part.words for part in parts) + note, tuple(map(str, excluded))


def _properties(pairing: Pairing, signatures: Sequence[Signature]) -> Iterator[tuple[Term, int, int]]:
    # What is true of the first, with the others of which it is true as bits.
    features = [features_of(pairing, signature) for signature in signatures]
    blocks = {name: dim.block for name, dim in pairing.dims.items() if dim.block}
    for term in terms(features, blocks, thorough=True):
        if term.holds(features[0]):
            yield term, term.cost, matching_bits(term, features)
