"""Predicates: the conditions under which something fails, found by comparing failing cases with passing ones."""

import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import partial

from kerneltest.core.dtypes import DType, is_float, is_integer, parse_dtype
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
        """Returns one of the `numbers`."""
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
    """A property of signatures; of two that fit equally well, the one of lower cost is reported."""

    words: str
    holds: Callable[[Features], bool]
    cost: int


def signature_condition(
    failing: Sequence[Features],
    passing: Sequence[Features],
    blocks: Mapping[str, int],
    covered: Sequence[Features] = (),
    unsure: Sequence[Features] = (),
) -> Condition:
    """Returns the simplest condition of at most two terms that all failing signatures and fewest passing ones fulfil.

    It is not stated if so few signatures might fulfil it by chance.

    Args:
      failing, passing: signatures, each once.
      blocks: the kernel's block length by dim, in elements.
      covered: further failing ones, such as those on other backends, which must fulfil it and are not counted.
      unsure: signatures in which another failure may hide this one; of two conditions that are as good, the one that
        fewer of them fulfil is stated.
    """
    if not failing or not passing:
        return Condition.unknown(failing, passing)
    fitting: list[tuple[int, int, int, str, int]] = []  # exceptions, cost, unsure ones, words, exceptions as bits
    covered, unsure = (
        [each for each in more if each.lengths.keys() == failing[0].lengths.keys()]  # a proof has none
        for more in (covered, unsure)
    )
    for term in terms([*failing, *passing, *covered], blocks):
        if all(map(term.holds, failing)) and all(map(term.holds, covered)):
            exceptions = matching_bits(term, passing)
            if exceptions.bit_count() < len(passing):
                hidden = matching_bits(term, unsure).bit_count()
                fitting.append((exceptions.bit_count(), term.cost, hidden, term.words, exceptions))
    if not fitting:
        return _product_condition(failing, passing, covered)
    fitting.sort(key=lambda each: each[:3])
    left, cost, _, words, _ = fitting[0]
    alone = left
    for one, other in itertools.combinations(fitting[:_MOST_TERMS], 2):
        both, together = (one[4] & other[4]).bit_count(), one[1] + other[1] + 2
        telling = together == 2 or alone - both > 1  # some far-fetched term excludes any single signature
        if telling and (both, together) < (left, cost):
            left, cost, words = both, together, f"{one[3]} and {other[3]}"
    count, fulfilled = len(failing) + len(passing), len(failing) + left
    is_told = left <= MOST_EXCEPTIONS * fulfilled and _is_believable(cost, len(failing), count, left)
    if (not is_told or cost > _OF_PRODUCTS) and (product := _product_condition(failing, passing, covered)).words:
        return product
    return Condition(words, len(failing), fulfilled, count) if is_told else Condition.unknown(failing, passing)


def _product_condition(
    failing: Sequence[Features], passing: Sequence[Features], covered: Sequence[Features]
) -> Condition:
    # A kernel may flatten two axes.
    count, products = len(failing) + len(passing), list(_terms_of_products(failing[0].lengths))
    by_chance = len(products) / math.comb(count, len(failing)) > _CHANCES[_OF_PRODUCTS]
    for term in () if by_chance else products:
        if all(map(term.holds, [*failing, *covered])) and not any(map(term.holds, passing)):
            return Condition(term.words, len(failing), len(failing), count)
    return Condition.unknown(failing, passing)


def two_conditions(
    failing: Sequence[Features], passing: Sequence[Features], blocks: Mapping[str, int]
) -> tuple[frozenset[int], frozenset[int]] | None:
    """Finds two conditions that together separate failing from passing signatures, neither of them far-fetched.

    Returns:
      The numbers of the failing signatures that fulfil either condition, the more frequent first; some may fulfil both.
      None if a single condition suffices, or if there are so few signatures that some condition always fits.
    """
    if len(failing) < _ENOUGH or not passing or signature_condition(failing, passing, blocks).exact:
        return None
    plain = [
        (term.cost, matching_bits(term, failing), matching_bits(term, passing))
        for term in terms([*failing, *passing], blocks)
        if term.cost <= 1
    ]
    pairs = ((a[0] + b[0] + 2, a[1] & b[1], a[2] & b[2]) for a, b in itertools.combinations(plain, 2))
    costs: dict[int, int] = {}
    for cost, bad, good in itertools.chain(plain, pairs):
        if bad and not good and _is_believable(cost, bad.bit_count(), bad.bit_count() + len(passing), 0):
            costs[bad] = min(cost, costs.get(bad, cost))
    every = (1 << len(failing)) - 1
    widest = sorted(costs, key=lambda bits: (-bits.bit_count(), costs[bits]))[:_MOST_SIDES]
    fitting = (
        (costs[a] + costs[b], -a.bit_count(), a, b)
        for a, b in itertools.combinations(widest, 2)
        if a | b == every and min((a & ~b).bit_count(), (b & ~a).bit_count()) > 1
    )
    best = min(fitting, default=None)
    return (_numbers(best[2]), _numbers(best[3])) if best is not None else None


def matching_bits(term: Term, signatures: Sequence[Features]) -> int:
    """Returns the signatures that have a property, as the bits of their numbers."""
    return sum(1 << i for i, each in enumerate(signatures) if term.holds(each))


def _numbers(bits: int) -> frozenset[int]:
    return frozenset(i for i in range(bits.bit_length()) if bits >> i & 1)


def _is_believable(cost: int, failing: int, tried: int, exceptions: int) -> bool:
    # Whether a condition of that cost is unlikely to hold by chance.
    chance = math.comb(failing + exceptions, failing) / math.comb(tried, failing)
    return chance <= _CHANCES[min(cost, len(_CHANCES) - 1)]


_CHANCES = (0.25, 0.2, 0.1, 0.06, 0.05)  # by cost: a bug at the end of a block is likely, one at a length of 39 is not
_OF_PRODUCTS = 4  # the cost of a condition on the product of two lengths
_ENOUGH = 8  # failing signatures, below which two conditions are not looked for
_MOST_TERMS = 60  # terms that are tried in pairs
_MOST_SIDES = 300  # sets of failing signatures that are tried in pairs, those that cover most
WITH_EXCEPTIONS = " (some such cases pass)"  # ends a condition that some passing cases fulfil
MOST_EXCEPTIONS = 0.34  # share of passing signatures among those that fulfil a condition, beyond which it says little
_POWERS = (2, 4, 8, 16, 32, 64, 128)
_MOST_STEP = 64  # of the numbers that lengths may be multiples of, beside powers
_EVERY_REMAINDER = 8  # the greatest divisor of which each remainder is tried; of other powers of two, only 1 is


def terms(signatures: Sequence[Features], blocks: Mapping[str, int], *, thorough: bool = False) -> Iterator[Term]:
    """Yields the properties that may separate some signatures from others.

    The thorough ones need experiments, since some of them fit any few signatures: multiples of any number, remainders,
    products, and further relations.
    """
    first = signatures[0]
    for name in first.options:
        values = list(dict.fromkeys(signature.options[name] for signature in signatures))
        for value in values:
            yield Term(f"{name} is {value}", partial(_has_option, name, value, True), 0)
        for value in values if len(values) > 2 else ():
            yield Term(f"{name} is not {value}", partial(_has_option, name, value, False), 1)
    for words, is_kind in (("a float", is_float), ("an integer", is_integer)) if thorough else ():
        yield Term(f"dtype is {words}", partial(_has_dtype, is_kind), 1)
    for name in first.lengths:
        lengths = sorted({signature.lengths[name] for signature in signatures})
        yield from _terms_of_length(name, lengths, blocks.get(name, 0), thorough)
    numbers = [name for name in first.numbers if all(name in signature.numbers for signature in signatures)]
    for one, other in itertools.combinations(numbers, 2):
        if one in first.lengths or other in first.lengths:
            yield from _terms_of_two(one, other, blocks, thorough)
    yield from _terms_of_products(first.lengths, (2, 4, *_LARGE_POWERS)) if thorough else ()


def _term(subject: str, names: Sequence[str], words: str, test: Callable[..., bool], cost: int) -> Term:
    return Term(subject + words, lambda features: test(*map(features.number, names)), cost)


def _terms_of_length(name: str, lengths: Sequence[int], block: int, thorough: bool) -> Iterator[Term]:
    term = partial(_term, f"{name} is ", [name])
    if block > 1:
        yield term(f"not a multiple of its block, {block}", lambda n: bool(n % block), 0)
        yield term(f"a multiple of its block, {block}", lambda n: not n % block, 1)
        longer = f"longer than its block, {block}"
        yield term(longer, lambda n: n > block, 0)
        yield term(f"{longer}, and not a multiple of it", lambda n: n > block and n % block > 0, 2)
        yield term(f"shorter than its block, {block}", lambda n: n < block, 1)
    yield term("not a power of two", _is_no_power, 2)
    for low, high in itertools.pairwise(lengths):
        at_block, adjacent = low <= block < high, low <= 1 or high == low + 1
        # The lengths between two that were tried may do either: what is said is true of the failing one.
        words = f"over {block if at_block else low}" if at_block or adjacent else f"at least {high}"
        yield term(words, partial(operator.lt, low), 1)
        if at_block or adjacent:
            yield term(f"at most {block if at_block else low}", partial(operator.ge, low), 2)
    for length in lengths:
        yield term(f"{length}", partial(operator.eq, length), 3)
        if length < lengths[-1]:  # the longest one is asked little
            yield term(f"not {length}", partial(operator.ne, length), 2 if length > 1 else 1)
    for step in _POWERS:
        if step != block:
            yield term(f"not a multiple of {step}" if step > 2 else "odd", partial(_has_rest, step), 3)
    for step in sorted({*range(2, min(_MOST_STEP, lengths[-1]) + 1), block} - {0, 1}) if thorough else ():
        if step not in _POWERS and step != block:
            yield term(f"not a multiple of {step}", partial(_has_rest, step), 4)
        if step != block:
            yield term(f"a multiple of {step}" if step > 2 else "even", partial(_leaves, step, 0), 4)
        remainders = range(1, step) if step == block or step <= _EVERY_REMAINDER else (1,) * (step in _POWERS)
        for rest in remainders:
            words = f"{rest} more than a multiple of {step if step != block else f'its block, {block}'}"
            yield term(words, partial(_leaves, step, rest), 4 if step == block else 6)


def _terms_of_two(one: str, other: str, blocks: Mapping[str, int], thorough: bool) -> Iterator[Term]:
    term = partial(_term, "", [one, other])
    yield term(f"{one} differs from {other}", operator.ne, 2)
    yield term(f"{one} or {other} is not a power of two", lambda n, m: _is_no_power(n) or _is_no_power(m), 3)
    yield term(f"{one} is longer than {other}", operator.gt, 3)
    yield term(f"{other} is longer than {one}", operator.lt, 3)
    yield term(f"{one} is more than twice {other}", lambda n, m: n > 2 * m, 4)  # halves that are rotated, doubled gates
    yield term(f"{other} is more than twice {one}", lambda n, m: m > 2 * n, 4)
    if one in blocks and other in blocks:
        a, b = blocks[one], blocks[other]
        yield term(f"{one} or {other} is not a multiple of its block", lambda n, m: n % a > 0 or m % b > 0, 2)
        yield term(f"{one} or {other} is longer than its block", lambda n, m: n > a or m > b, 2)
        if thorough:
            yield term(f"{one} and {other} have different numbers of blocks", lambda n, m: -(-n // a) != -(-m // b), 3)
            yield term(f"{one} has more blocks than {other}", lambda n, m: -(-n // a) > -(-m // b), 4)
            yield term(f"{other} has more blocks than {one}", lambda n, m: -(-n // a) < -(-m // b), 4)
            either = f"{one} or {other} is longer than its block, and not a multiple of it"
            yield term(either, lambda n, m: (n > a and n % a > 0) or (m > b and m % b > 0), 4)
    if thorough:
        yield term(f"{one} equals {other}", operator.eq, 2)
        yield term(f"{one} is at least {other}", operator.ge, 4)
        yield term(f"{other} is at least {one}", operator.le, 4)
        yield term(f"{one} is not a multiple of {other}", lambda n, m: m > 0 and n % m > 0, 3)
        yield term(f"{other} is not a multiple of {one}", lambda n, m: n > 0 and m % n > 0, 3)


_LARGE_POWERS = (8, 16, 32, 64, 128, 256, 512, 1024)


def _terms_of_products(names: Iterable[str], powers: Sequence[int] = _LARGE_POWERS) -> Iterator[Term]:
    for one, other in itertools.combinations(names, 2):
        term = partial(_term, f"{one} * {other} is ", [one, other])
        for power in powers:
            yield term(f"not a multiple of {power}", partial(_has_rest, power), _OF_PRODUCTS)
            yield term(f"over {power}", lambda n, m, most=power: n * m > most, _OF_PRODUCTS)


def _has_option(name: str, value: StaticValue, wanted: bool, features: Features) -> bool:
    return (features.options[name] == value) is wanted


def _has_dtype(is_kind: Callable[[DType], bool], features: Features) -> bool:
    return is_kind(parse_dtype(str(features.options["dtype"])))


def _is_no_power(length: int) -> bool:
    return length < 1 or bool(length & (length - 1))


def _leaves(step: int, rest: int, length: int) -> bool:
    return length % step == rest


def _has_rest(step: int, *lengths: int) -> bool:
    return math.prod(lengths) % step > 0


# Conditions on inputs: the special values that all failing cases have, and that passing ones lack.

_CHANCE_OF_A_VALUE = 0.02  # probability that as many cases share a special value by chance, up to which it is believed
_ABSENT = (SpecialValue.NAN, SpecialValue.POSITIVE_INFINITY, SpecialValue.NEGATIVE_INFINITY)  # their lack is telling
_PARTS = list(FillExtent)  # from the weakest claim to the strongest
_VALUES = list(SpecialValue)  # the more telling ones first


def input_condition(
    failing: Sequence[Sequence[SpecialInput]],
    passing: Sequence[Sequence[SpecialInput]],
    covered: Sequence[Sequence[SpecialInput]] = (),
) -> Condition:
    """Returns the special input that all failing cases and fewest passing ones have, and another that they all lack.

    Args:
      failing, passing: the special values among each case's inputs.
      covered: those of further failing cases, such as on other backends, which must fulfil it and are not counted.
    """
    bad, good, more = (
        [frozenset((*case, *(replace(each, argument="") for each in case))) for case in cases]
        for cases in (failing, passing, covered)
    )
    common = sorted(frozenset.intersection(*bad, *more), key=_preference) if bad and good else ()
    if not common:
        return Condition.unknown(failing, passing)
    best = min(common, key=lambda found: sum(found in each for each in good))
    others: Sequence[frozenset[SpecialInput]] = [each for each in good if best in each]
    words = best.text() if best.argument else _with_arguments(best, [*failing, *covered])
    lacking, without = _lacked(best, [*bad, *more], others)
    if lacking is not None:
        words, others = f"{words} and no {lacking.value.plural}", without
    count, fulfilled = len(failing) + len(passing), len(failing) + len(others)
    if len(others) > MOST_EXCEPTIONS * fulfilled or (fulfilled / count) ** len(failing) > _CHANCE_OF_A_VALUE:
        return Condition.unknown(failing, passing)
    return Condition(words, len(failing), fulfilled, count)


def _lacked(
    best: SpecialInput, failing: Sequence[frozenset[SpecialInput]], others: Sequence[frozenset[SpecialInput]]
) -> tuple[SpecialInput | None, Sequence[frozenset[SpecialInput]]]:
    # A special input that most passing cases and no failing one have, and the passing cases without it.
    known = sorted({each for case in others for each in case if each.value in _ABSENT}, key=_preference)
    absent = [
        each
        for each in known
        if each.part is FillExtent.SOME and each.argument == best.argument and not any(each in case for case in failing)
    ]
    if not absent:
        return None, others
    lacking = max(absent, key=lambda each: sum(each in case for case in others))
    left = [case for case in others if lacking not in case]
    return (lacking, left) if len(others) - len(left) > len(others) / 2 else (None, others)


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
        hidden = hidden or hiding.get(record.signature, 1) > _MOST_HIDING
        if record.verdict.is_judgement and (record.signature in failing or not hidden):
            tried[record.signature] = features(record)
    return tried


def features(record: Record) -> Features:
    """Returns the features of a record's signature."""
    return Features(record.dims, {"dtype": record.dtype, **record.statics})


_MOST_HIDING = 0.35  # chance that a signature fails and its cases do not show it, above which it is not said to pass


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
