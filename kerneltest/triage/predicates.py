"""Predicates: the conditions under which something fails, found by comparing failing cases with passing ones."""

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from kerneltest.records.schema import StaticValue


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a signature that conditions can refer to.

    Attributes:
      lengths: by dim.
      options: the dtype, under "dtype", and the value of each static argument.
    """

    lengths: Mapping[str, int]
    options: Mapping[str, StaticValue]

    @property
    def numbers(self) -> Mapping[str, int]:
        """Lengths, and static arguments that are whole numbers, which lengths can be compared with."""
        return {**{name: value for name, value in self.options.items() if type(value) is int}, **self.lengths}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that failing signatures, or failing cases, have in common.

    Attributes:
      words: `n is not a multiple of 64`; "" if no condition separates failing from passing.
      failing: how many fail.
      fulfilled: how many fulfil the condition, all failing ones included.
      tried: how many there are.
    """

    words: str
    failing: int
    fulfilled: int
    tried: int

    @property
    def exact(self) -> bool:
        """True if only failing signatures fulfil the condition."""
        return bool(self.words) and self.failing == self.fulfilled


@dataclass(frozen=True, slots=True)
class _Term:
    """One condition, and how far-fetched it is: of two that fit equally well, the one of lower cost is reported."""

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
    count = len(failing) + len(passing)
    if not failing or not passing:
        return Condition("", len(failing), count, count)
    fitting: list[tuple[int, int, int, str, int]] = []  # exceptions, cost, unsure ones, words, exceptions as bits
    covered, unsure = (
        [each for each in more if each.lengths.keys() == failing[0].lengths.keys()]  # a proof has none
        for more in (covered, unsure)
    )
    for term in _terms([*failing, *passing, *covered], blocks):
        if all(map(term.holds, failing)) and all(map(term.holds, covered)):
            exceptions = _matching_bits(term, passing)
            if exceptions.bit_count() < len(passing):
                hidden = _matching_bits(term, unsure).bit_count()
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
    is_told = left <= MOST_EXCEPTIONS * (len(failing) + left) and _is_believable(cost, len(failing), count, left)
    if (not is_told or cost > _OF_PRODUCTS) and (product := _product_condition(failing, passing, covered)).words:
        return product
    return Condition(words if is_told else "", len(failing), len(failing) + left if is_told else count, count)


def _product_condition(
    failing: Sequence[Features], passing: Sequence[Features], covered: Sequence[Features]
) -> Condition:
    """Returns a condition on the product of two lengths, which a kernel may flatten, if one holds without exception."""
    count, terms = len(failing) + len(passing), list(_terms_of_products(failing[0].lengths))
    if len(terms) / math.comb(count, len(failing)) > _CHANCES[_OF_PRODUCTS]:
        return Condition("", len(failing), count, count)  # one of so many might hold by chance
    for term in terms:
        if all(map(term.holds, [*failing, *covered])) and not any(map(term.holds, passing)):
            return Condition(term.words, len(failing), len(failing), count)
    return Condition("", len(failing), count, count)


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
        (term.cost, _matching_bits(term, failing), _matching_bits(term, passing))
        for term in _terms([*failing, *passing], blocks)
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


def _matching_bits(term: _Term, signatures: Sequence[Features]) -> int:
    """Returns the signatures that fulfil a term as bits."""
    return sum(1 << i for i, each in enumerate(signatures) if term.holds(each))


def _numbers(bits: int) -> frozenset[int]:
    return frozenset(i for i in range(bits.bit_length()) if bits >> i & 1)


def _is_believable(cost: int, failing: int, tried: int, exceptions: int) -> bool:
    """Returns whether a condition of that cost is unlikely to hold by chance for all that fail, and few exceptions."""
    chance = math.comb(failing + exceptions, failing) / math.comb(tried, failing)
    return chance <= _CHANCES[min(cost, len(_CHANCES) - 1)]


_CHANCES = (0.25, 0.2, 0.1, 0.06, 0.05)  # by cost: a bug at the end of a block is likely, one at a length of 39 is not
_OF_PRODUCTS = 4  # the cost of a condition on the product of two lengths
_ENOUGH = 8  # failing signatures, below which two conditions are not looked for
_MOST_TERMS = 60  # terms that are tried in pairs
_MOST_SIDES = 300  # sets of failing signatures that are tried in pairs, those that cover most
MOST_EXCEPTIONS = 0.34  # share of passing signatures among those that fulfil a condition, beyond which it says little


def _terms(signatures: Sequence[Features], blocks: Mapping[str, int]) -> Iterator[_Term]:
    """Yields all conditions that may be stated of a signature, the simplest first."""
    first = signatures[0]
    for name in first.options:
        yield from _terms_of_option(name, list(dict.fromkeys(each.options[name] for each in signatures)))
    for name in first.lengths:
        lengths = sorted({each.lengths[name] for each in signatures})
        yield from _terms_of_length(name, lengths, blocks.get(name, 0))
    numbers = [name for name in first.numbers if all(name in each.numbers for each in signatures)]
    for one, other in itertools.combinations(numbers, 2):
        if one in first.lengths or other in first.lengths:
            yield from _terms_of_two(one, other, blocks)


def _terms_of_option(name: str, values: Sequence[StaticValue]) -> Iterator[_Term]:
    for value in values:
        yield _Term(f"{name} is {value}", partial(_has_option, name, value), 0)
    for value in values if len(values) > 2 else ():
        yield _Term(f"{name} is not {value}", partial(_lacks_option, name, value), 1)


def _terms_of_length(name: str, lengths: Sequence[int], block: int) -> Iterator[_Term]:
    def term(words: str, test: Callable[[int], bool], cost: int) -> _Term:
        return _Term(f"{name} is {words}", partial(_length, name, test), cost)

    if block > 1:
        yield term(f"not a multiple of its block, {block}", lambda n: bool(n % block), 0)
        yield term(f"a multiple of its block, {block}", lambda n: not n % block, 1)
        yield term(f"longer than its block, {block}", lambda n: n > block, 0)
        yield term(
            f"longer than its block, {block}, and not a multiple of it", lambda n: n > block and n % block > 0, 2
        )
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
    for step in (2, 4, 8, 16, 32, 64, 128):
        if step != block:
            yield term(f"not a multiple of {step}" if step > 2 else "odd", partial(_has_rest, step), 3)


def _terms_of_two(one: str, other: str, blocks: Mapping[str, int]) -> Iterator[_Term]:
    def term(words: str, test: Callable[[int, int], bool], cost: int) -> _Term:
        return _Term(words, lambda features: test(features.numbers[one], features.numbers[other]), cost)

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


def _terms_of_products(names: Iterable[str]) -> Iterator[_Term]:
    def term(one: str, other: str, words: str, test: Callable[[int], bool]) -> _Term:
        return _Term(
            f"{one} * {other} is {words}", lambda each: test(each.lengths[one] * each.lengths[other]), _OF_PRODUCTS
        )

    for one, other in itertools.combinations(names, 2):
        for power in (8, 16, 32, 64, 128, 256, 512, 1024):
            yield term(one, other, f"not a multiple of {power}", partial(_has_rest, power))
            yield term(one, other, f"over {power}", partial(operator.lt, power))


def _has_option(name: str, value: StaticValue, features: Features) -> bool:
    return features.options[name] == value


def _lacks_option(name: str, value: StaticValue, features: Features) -> bool:
    return features.options[name] != value


def _length(name: str, test: Callable[[int], bool], features: Features) -> bool:
    return test(features.lengths[name])


def _is_no_power(length: int) -> bool:
    return length < 1 or bool(length & (length - 1))


def _has_rest(step: int, length: int) -> bool:
    return length % step > 0
