"""Predicates: the conditions under which something fails, found by comparing failing cases with passing ones."""

import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace

from kerneltest.core.dtypes import is_float, is_integer, parse_dtype
from kerneltest.core.verdicts import GroupName, VerdictKind
from kerneltest.records.evidence import FillExtent, SpecialInput, SpecialValue
from kerneltest.records.schema import Record, StaticValue
from kerneltest.triage.symptoms import Level, Symptom


@dataclass(frozen=True, slots=True)
class Features:
    """The lengths of a signature by dim, its dtype (as "dtype") and its static arguments, which conditions refer to."""

    lengths: Mapping[str, int]
    options: Mapping[str, StaticValue]

    @property
    def numbers(self) -> Mapping[str, int]:
        """Lengths, and static arguments that are whole numbers, which lengths can be compared with."""
        return {**{name: value for name, value in self.options.items() if type(value) is int}, **self.lengths}

    def number(self, name: str) -> StaticValue:
        """Returns a length, or the value of an option."""
        return self.lengths[name] if name in self.lengths else self.options[name]


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that failing signatures, or failing cases, have in common."""

    words: str  # `n is not a multiple of 64`; "" if no condition separates failing from passing
    failing: int  # how many fail
    fulfilled: int  # how many fulfil the condition, all failing ones included
    tried: int  # how many there are

    @classmethod
    def unknown(cls, failing: Sized, passing: Sized) -> "Condition":
        """Returns that no condition separates what fails from what passes."""
        count = len(failing) + len(passing)
        return cls("", len(failing), count, count)

    @property
    def exact(self) -> bool:
        """True if only failing signatures fulfil the condition."""
        return bool(self.words) and self.failing == self.fulfilled


def join_clauses(clauses: Iterable[str | None]) -> str:
    """Returns the conjunction of some clauses, of which any may be empty."""
    stated = [clause for clause in clauses if clause]
    return (", and " if any(" or " in clause for clause in stated) else " and ").join(stated)


@dataclass(frozen=True, slots=True)
class Term:
    """A property of signatures: a relation of lengths and options to each other or to numbers."""

    relation: str  # the names and then the values are filled in: `{0} is longer than {1}`
    test: Callable[..., bool]  # whether lengths or options and the values are in it
    cost: int  # of two that fit equally well, the one of lower cost is stated; see `is_believable`
    names: tuple[str, ...]  # dims and options
    values: tuple[StaticValue, ...] = ()  # what they are compared with

    @property
    def words(self) -> str:
        return self.relation.format(*self.names, *self.values)

    def holds(self, features: Features) -> bool:
        return self.test(*map(features.number, self.names), *self.values)


CHANCE = 1 / 3
"""The largest expected number of statements that fit by chance, for one that is made."""
MOST_EXCEPTIONS = 1 / 3
"""The largest share of passing signatures among those that fulfil a condition: beyond, under two of three fail."""
WITH_EXCEPTIONS = " (some such cases pass)"
"""The end of a condition that some passing cases fulfil."""


def is_believable(cost: int, failing: int, tried: int, exceptions: int = 0) -> bool:
    """Returns whether a condition that all failing cases fulfil is unlikely to fit by chance.

    If any `failing` ones of those tried were as likely to fail, one condition would cover them with so many exceptions
    with the probability below. A cost counts bits: 2**cost conditions are as simple as this one.
    """
    chance = math.comb(failing + exceptions, failing) / math.comb(tried, failing)
    return exceptions <= MOST_EXCEPTIONS * (failing + exceptions) and 2**cost * chance <= CHANCE


def signature_condition(
    failing: Sequence[Features],
    passing: Sequence[Features],
    blocks: Mapping[str, int],
    covered: Sequence[Features] = (),
    unsure: Sequence[Features] = (),
) -> Condition:
    """Returns the simplest condition of at most two terms that all failing signatures and fewest passing ones fulfil.

    Args:
      failing, passing: signatures, each once.
      blocks: the kernel's block length by dim, in elements.
      covered: further failing ones, such as those on other backends, which must fulfil it and are not counted.
      unsure: signatures in which another failure may hide this one; of two conditions that are as good, the one that
        fewer of them fulfil is stated.
    """
    if not failing or not passing:
        return Condition.unknown(failing, passing)
    covered, unsure = (
        [each for each in more if each.lengths.keys() == failing[0].lengths.keys()]  # a proof has none
        for more in (covered, unsure)
    )
    fitting: list[tuple[int, int, int, Term, int]] = []  # exceptions, cost, unsure ones, term, exceptions as bits
    for term in terms([*failing, *passing, *covered], blocks):
        if all(map(term.holds, (*failing, *covered))):
            exceptions, hidden = matching_bits(term, passing), matching_bits(term, unsure).bit_count()
            fitting.append((exceptions.bit_count(), term.cost, hidden, term, exceptions))
    fitting.sort(key=lambda each: each[:3])
    conditions = [(*each[:3], each[3].words) for each in fitting]
    for one, other in itertools.combinations(fitting[:_MOST_TERMS], 2):
        left, cost = (one[4] & other[4]).bit_count(), one[1] + other[1] + 2
        are_negations = one[3].test is other[3].test is operator.ne  # which say little of the others
        if (cost == 2 or one[0] - left > 1) and not are_negations:  # far-fetched terms exclude any single signature
            conditions.append((left, cost, 0, f"{one[3].words} and {other[3].words}"))
    count = len(failing) + len(passing)
    for left, cost, _, words in sorted(conditions, key=lambda each: each[:3]):
        if is_believable(cost, len(failing), count, left):
            return Condition(words, len(failing), len(failing) + left, count)
    return Condition.unknown(failing, passing)


def two_conditions(
    failing: Sequence[Features], passing: Sequence[Features], blocks: Mapping[str, int]
) -> tuple[frozenset[int], frozenset[int]] | None:
    """Finds two conditions that together separate failing from passing signatures, neither of them far-fetched.

    Returns:
      The numbers of the failing signatures that fulfil either condition, the more frequent first; some may fulfil both.
      None if a single condition suffices, or if there are so few signatures that some condition always fits.
    """
    if not passing or signature_condition(failing, passing, blocks).exact:
        return None
    plain = [
        (term.cost, matching_bits(term, failing), matching_bits(term, passing))
        for term in terms([*failing, *passing], blocks)
        if term.cost <= 1
    ]
    pairs = ((a[0] + b[0] + 2, a[1] & b[1], a[2] & b[2]) for a, b in itertools.combinations(plain, 2))
    costs: dict[int, int] = {}
    for cost, bad, good in itertools.chain(plain, pairs):
        if bad and not good and is_believable(cost, bad.bit_count(), bad.bit_count() + len(passing)):
            costs[bad] = min(cost, costs.get(bad, cost))
    widest = sorted(costs, key=lambda bits: (-bits.bit_count(), costs[bits]))[:_MOST_SIDES]
    fitting = (
        (costs[a] + costs[b], -a.bit_count(), a, b)
        for a, b in itertools.combinations(widest, 2)
        if a | b == (1 << len(failing)) - 1
        and min((a & ~b).bit_count(), (b & ~a).bit_count()) > 1
        and is_believable(costs[a] + costs[b] + 2, len(failing), len(failing) + len(passing))
    )
    best = min(fitting, default=None)
    return (_numbers(best[2]), _numbers(best[3])) if best is not None else None


def matching_bits(term: Term, signatures: Sequence[Features]) -> int:
    """Returns the signatures that have a property, as the bits of their numbers."""
    return sum(1 << i for i, each in enumerate(signatures) if term.holds(each))


def _numbers(bits: int) -> frozenset[int]:
    return frozenset(i for i in range(bits.bit_length()) if bits >> i & 1)


_MOST_TERMS = 60  # terms that are tried in pairs
_MOST_SIDES = 300  # sets of failing signatures that are tried in pairs, those that cover most


# The properties that may be stated. A bug at the end of a block is likelier than one at a length of 39.


def _is_no_power(length: int) -> bool:
    return length < 1 or bool(length & (length - 1))


def _leaves(number: int, step: int, rest: int = 0) -> bool:
    return number % step == rest


def _has_rest(number: int, step: int) -> bool:
    return step > 0 and number % step > 0


def _is_tail(length: int, block: int) -> bool:
    return length > block and length % block > 0


def _blocks(length: int, block: int) -> int:
    return -(-length // block)


# Words, test and cost; those whose last item is True need experiments, since some of them fit any few signatures.
_Relations = tuple[tuple[str, Callable[..., bool], int, bool], ...]
_OF_DTYPE: _Relations = (
    ("{0} is a float", lambda dtype: is_float(parse_dtype(dtype)), 1, True),
    ("{0} is an integer", lambda dtype: is_integer(parse_dtype(dtype)), 1, True),
)
_OF_BLOCK: _Relations = (
    ("{0} is not a multiple of its block, {1}", _has_rest, 0, False),
    ("{0} is a multiple of its block, {1}", _leaves, 1, False),
    ("{0} is longer than its block, {1}", operator.gt, 0, False),
    ("{0} is longer than its block, {1}, and not a multiple of it", _is_tail, 2, False),
    ("{0} is shorter than its block, {1}", operator.lt, 1, False),
)
_OF_PAIR: _Relations = (
    ("{0} differs from {1}", operator.ne, 2, False),
    ("{0} or {1} is not a power of two", lambda n, m: _is_no_power(n) or _is_no_power(m), 3, False),
    ("{0} equals {1}", operator.eq, 2, True),
)
_OF_EITHER_ORDER: _Relations = (
    ("{0} is longer than {1}", operator.gt, 3, False),
    ("{0} is more than twice {1}", lambda n, m: n > 2 * m, 4, False),  # halves that are rotated, doubled gates
    ("{0} is at least {1}", operator.ge, 4, True),
    ("{0} is not a multiple of {1}", _has_rest, 3, True),
)
_OF_BLOCKS: _Relations = (
    ("{0} or {1} is not a multiple of its block", lambda n, m, a, b: n % a > 0 or m % b > 0, 2, False),
    ("{0} or {1} is longer than its block", lambda n, m, a, b: n > a or m > b, 2, False),
    ("{0} and {1} have different numbers of blocks", lambda n, m, a, b: _blocks(n, a) != _blocks(m, b), 3, True),
    ("{0} has more blocks than {1}", lambda n, m, a, b: _blocks(n, a) > _blocks(m, b), 4, True),
    ("{1} has more blocks than {0}", lambda n, m, a, b: _blocks(n, a) < _blocks(m, b), 4, True),
    ("{0} or {1} is longer than its block, and not a multiple of it",
     lambda n, m, a, b: _is_tail(n, a) or _is_tail(m, b), 4, True),
)  # fmt: skip
_OF_PRODUCT: _Relations = (
    ("{0} * {1} is not a multiple of {2}", lambda n, m, k: n * m % k > 0, 4, False),  # a kernel may flatten two axes
    ("{0} * {1} is over {2}", lambda n, m, k: n * m > k, 4, False),
)
_POWERS, _LARGE_POWERS = (2, 4, 8, 16, 32, 64, 128), (8, 16, 32, 64, 128, 256, 512, 1024)
_MOST_STEP = 64  # of the numbers that lengths may be multiples of, beside powers
_EVERY_REMAINDER = 8  # the greatest divisor of which each remainder is tried; of other powers of two, only 1 is


def terms(signatures: Sequence[Features], blocks: Mapping[str, int], *, thorough: bool = False) -> Iterator[Term]:
    """Yields the properties that may separate some signatures from others; the thorough ones need experiments."""
    first = signatures[0]
    for name in first.options:
        values = list(dict.fromkeys(signature.options[name] for signature in signatures))
        yield from (Term("{0} is {1}", operator.eq, 0, (name,), (value,)) for value in values)
        yield from (Term("{0} is not {1}", operator.ne, 1, (name,), (value,)) for value in values if len(values) > 2)
        pairs = itertools.combinations(values, 2) if len(values) > 3 else ()
        yield from (Term("{0} is {1} or {2}", lambda v, *either: v in either, 2, (name,), pair) for pair in pairs)

    def related(relations: _Relations, names: tuple[str, ...], *values: int) -> Iterator[Term]:
        return (Term(*each[:3], names, values) for each in relations if thorough or not each[3])

    if len({signature.options.get("dtype") for signature in signatures}) > 1:  # the only one may be `static`
        yield from related(_OF_DTYPE, ("dtype",))
    for name in first.lengths:
        lengths = sorted({signature.lengths[name] for signature in signatures})
        yield from _terms_of_length(name, lengths, blocks.get(name, 0), thorough)
    numbers = [name for name in first.numbers if all(name in signature.numbers for signature in signatures)]
    for pair in (p for p in itertools.combinations(numbers, 2) if not first.lengths.keys().isdisjoint(p)):
        yield from related(_OF_PAIR, pair)
        yield from (*related(_OF_EITHER_ORDER, pair), *related(_OF_EITHER_ORDER, pair[::-1]))
        if all(name in blocks for name in pair):
            yield from related(_OF_BLOCKS, pair, *(blocks[name] for name in pair))
        for power in (*(2, 4) * thorough, *_LARGE_POWERS) if all(name in first.lengths for name in pair) else ():
            yield from related(_OF_PRODUCT, pair, power)


def _terms_of_length(name: str, lengths: Sequence[int], block: int, thorough: bool) -> Iterator[Term]:
    def term(words: str, test: Callable[..., bool], cost: int, *values: int) -> Term:
        return Term(f"{{0}} is {words}", test, cost, (name,), values)

    yield from (Term(*each[:3], (name,), (block,)) for each in _OF_BLOCK if block > 1)
    yield term("not a power of two", _is_no_power, 2)
    for low, high in itertools.pairwise(lengths):
        limit = block if low <= block < high else low
        # The lengths between two that were tried may do either: what is said is true of the failing one.
        if limit == block or low <= 1 or high == low + 1:
            yield from (term("over {1}", operator.gt, 1, limit), term("at most {1}", operator.le, 2, limit))
        else:
            yield term("at least {1}", operator.ge, 1, high)
    yield from (term("{1}", operator.eq, 3, length) for length in lengths)
    powers = (step for step in _POWERS if step != block)
    yield from (term("not a multiple of {1}" if step > 2 else "odd", _has_rest, 3, step) for step in powers)
    for step in sorted({*range(2, min(_MOST_STEP, lengths[-1]) + 1), block} - {0, 1}) if thorough else ():
        if step == block:
            yield from (term("{2} more than a multiple of its block, {1}", _leaves, 4, step, n) for n in range(1, step))
            continue
        if step not in _POWERS:
            yield term("not a multiple of {1}", _has_rest, 4, step)
        yield term("a multiple of {1}" if step > 2 else "even", _leaves, 4, step)
        rests = range(1, step) if step <= _EVERY_REMAINDER else (1,) * (step in _POWERS)
        yield from (term("{2} more than a multiple of {1}", _leaves, 6, step, rest) for rest in rests)


# Conditions on inputs: the special values that all failing cases have, and that passing ones lack.

_LACKING = (SpecialValue.NAN, SpecialValue.POSITIVE_INFINITY, SpecialValue.NEGATIVE_INFINITY)  # whose lack is telling
_COST_OF_A_VALUE = 4  # some 16 values may be among the inputs
_PARTS = list(FillExtent)  # from the weakest claim to the strongest
_VALUES = list(SpecialValue)  # the more telling ones first


def input_condition(
    failing: Sequence[Sequence[SpecialInput]],
    passing: Sequence[Sequence[SpecialInput]],
    covered: Sequence[Sequence[SpecialInput]] = (),
) -> Condition:
    """Returns the special input that all failing cases and fewest passing ones have, and another that they all lack.

    Further failing cases, such as on other backends, are `covered`: they must fulfil it and are not counted.
    """
    bad, good, more = (
        [frozenset((*case, *(replace(each, argument="") for each in case))) for case in cases]
        for cases in (failing, passing, covered)
    )
    common = sorted(frozenset.intersection(*bad, *more), key=_preference) if bad and good else ()
    if not common:
        return Condition.unknown(failing, passing)
    best = min(common, key=lambda found: sum(found in each for each in good))
    words = best.text() if best.argument else _with_arguments(best, [*failing, *covered])
    others = [case for case in good if best in case]
    for value in _LACKING:  # a value that most of the passing cases have, and none of the failing ones
        absent = SpecialInput(best.argument, value)
        without = [case for case in others if absent not in case]
        if 2 * len(without) < len(others) and not any(absent in case for case in (*bad, *more)):
            words, others = f"{words} and no {value.plural}", without
            break
    count, left = len(failing) + len(passing), len(others)
    if not is_believable(_COST_OF_A_VALUE, len(failing), count, left):
        return Condition.unknown(failing, passing)
    return Condition(words, len(failing), len(failing) + left, count)


def _with_arguments(found: SpecialInput, cases: Sequence[Sequence[SpecialInput]]) -> str:
    # The same value in any of several arguments.
    holding = {each.argument for case in cases for each in case if replace(each, argument="") == found}
    *others, last = sorted(holding)
    return replace(found, argument=f"{', '.join(others)} or {last}" if others else last).text()


def _preference(found: SpecialInput) -> tuple[bool, int, int, str]:
    # Named arguments first, then the weaker claim.
    return not found.argument, _VALUES.index(found.value), _PARTS.index(found.part), found.argument


# The signatures that a condition is about: those that fail, and those that would pass.

Finding = tuple[Record, Symptom]
MostBasic = Mapping[tuple[str, str], int]  # the most basic level of failure (0 at best) by backend and signature


@dataclass(frozen=True, slots=True)
class PairingRecords:
    """All records of one pairing, and where it fails."""

    records: Sequence[Record]
    blocks: Mapping[str, int]  # block lengths of the kernel by dim, in elements
    most_basic: MostBasic

    def on(self, backends: Collection[str]) -> list[Record]:
        return [record for record in self.records if record.backend in backends]


VALUE_LEVELS = (Level.STRUCTURE, Level.PRECISION, Level.SPECIAL, Level.INVARIANT)


def most_basic_failures(findings: Iterable[Finding]) -> MostBasic:
    """Returns the most basic level at which each signature fails on each backend."""
    levels: dict[tuple[str, str], int] = {}
    for record, symptom in findings:
        place, order = (record.backend, record.signature), _FROM_BASIC.index(symptom.level)
        levels[place] = min(order, levels.get(place, order))
    return levels


_FROM_BASIC = (Level.BUILD, Level.BROKEN, *VALUE_LEVELS)


def signatures_tried(
    records: Sequence[Record], findings: Sequence[Record], level: Level, most_basic: MostBasic
) -> dict[str, Features]:
    """Returns the features of the failing signatures and of those that pass, by signature.

    Left out are: signatures with an empty array, in which nothing can be wrong; signatures that fail at a level at
    least as basic, since that hides whether they would pass; and signatures that were asked too little of what shows
    the failure elsewhere. The findings are those whose signatures fail, at `level`.
    """
    own = _FROM_BASIC.index(level)
    failing = {record.signature for record in findings}
    hiding = _chances_of_hiding(records, findings, failing)
    # A proof speaks of all lengths, a signature of some: they are not compared.
    are_proofs = all(record.group == GroupName.PROOFS for record in records if record.signature in failing)
    tried: dict[str, Features] = {}
    for record in records:
        if (record.group == GroupName.PROOFS) is not are_proofs:
            continue
        hidden = 0 in record.dims.values() or most_basic.get((record.backend, record.signature), own + 1) <= own
        hidden = hidden or hiding.get(record.signature, 1) > CHANCE
        if record.verdict.is_judgement and (record.signature in failing or not hidden):
            tried[record.signature] = features(record)
    return tried


def features(record: Record) -> Features:
    """Returns the features of a record's signature."""
    return Features(record.dims, {"dtype": record.dtype, **record.statics})


def _chances_of_hiding(
    records: Sequence[Record], findings: Sequence[Record], failing: Collection[str]
) -> Mapping[str, float]:
    # For each signature, the chance that its cases would pass although it has the bug. A question is a family with the
    # argument that it disturbs. It shows the bug as often as among the failing signatures. A program that does not
    # build shows so in every case.
    questions = {(record.signature, _question(record)) for record in findings}
    shown = Counter(question for _, question in questions)
    posed = Counter(
        question
        for signature, question in {(r.signature, _question(r)) for r in records if r.verdict.is_judgement}
        if signature in failing
    )
    certain = all(record.verdict.kind is VerdictKind.BUILD for record in findings)
    missed = {question: 1 - count / (posed[question] + (not certain)) for question, count in shown.items()}
    chances: dict[str, float] = {}
    for record in records:
        if record.verdict.is_judgement:
            chances[record.signature] = chances.get(record.signature, 1.0) * missed.get(_question(record), 1.0)
    return chances


def _question(record: Record) -> tuple[str, str, str]:
    return record.group, record.family, record.target
