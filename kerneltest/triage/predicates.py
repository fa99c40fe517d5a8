"""Under which conditions something fails, found by comparing what fails with what passes; in words, with counts."""

import itertools
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

Features = Mapping[str, int | str]  # of a signature: lengths by dim, "dtype", options by static argument


@dataclass(frozen=True, slots=True)
class Condition:
    """What failing signatures, or failing cases, have in common, and how far that goes.

    Attributes:
      words: `n is no multiple of 64`; "" where nothing tells failing from passing.
      failing: how many fail.
      fulfilled: of how many the words are true; all failing ones are among them.
      tried: how many there are.
    """

    words: str
    failing: int
    fulfilled: int
    tried: int

    @property
    def exact(self) -> bool:
        """Whether the words are true of failing signatures alone."""
        return bool(self.words) and self.failing == self.fulfilled


@dataclass(frozen=True, slots=True)
class _Term:
    words: str
    holds: Callable[[Features], bool]
    cost: int


def condition(failing: Sequence[Features], passing: Sequence[Features], blocks: Mapping[str, int]) -> Condition:
    """The simplest condition of at most two terms that all failing signatures fulfil, and fewest passing ones do.

    Args:
      failing, passing: signatures, each once.
      blocks: the kernel's block length by dim, in elements.
    """
    count = len(failing) + len(passing)
    if not failing or not passing:
        return Condition("", len(failing), count, count)
    kept: list[tuple[int, int, str, int]] = []  # exceptions, cost, words, which exceptions
    for term in _terms([*failing, *passing], blocks):
        if all(map(term.holds, failing)):
            exceptions = _fulfilled(term, passing)
            if exceptions.bit_count() < len(passing):
                kept.append((exceptions.bit_count(), term.cost, term.words, exceptions))
    if not kept:
        return Condition("", len(failing), count, count)
    kept.sort(key=lambda each: each[:2])
    left, cost, words, _ = kept[0]
    for one, other in itertools.combinations(kept[:_MOST_TERMS], 2):
        both, together = (one[3] & other[3]).bit_count(), one[1] + other[1] + 2
        if (both, together) < (left, cost):
            left, cost, words = both, together, f"{one[2]} and {other[2]}"
    if left > _MOST_EXCEPTIONS * (len(failing) + left):
        return Condition("", len(failing), count, count)
    return Condition(words, len(failing), len(failing) + left, count)


def held(failing: Sequence[Sequence[str]], passing: Sequence[Sequence[str]]) -> Condition:
    """What the inputs of failing cases all hold, and those of fewest passing ones do.

    Args:
      failing, passing: of each case, the special values among its inputs, as `judge.contents` names them.
    """
    count = len(failing) + len(passing)
    kept = []
    for phrase in dict.fromkeys(phrase for each in failing for phrase in _with_general(each)):
        if all(phrase in _with_general(each) for each in failing):
            kept.append((sum(phrase in _with_general(each) for each in passing), phrase))
    if not kept:
        return Condition("", len(failing), count, count)
    left, words = min(kept, key=lambda each: each[0])
    if left > _MOST_EXCEPTIONS * (len(failing) + left):
        return Condition("", len(failing), count, count)
    return Condition(words, len(failing), len(failing) + left, count)


def _with_general(phrases: Sequence[str]) -> list[str]:
    """Phrases, and the same without saying in which argument."""
    general = (re.sub(r"^(a row of )?\S+ holds", r"\1an input holds", phrase) for phrase in phrases)
    return [*phrases, *dict.fromkeys(general)]


def two_conditions(
    failing: Sequence[Features], passing: Sequence[Features], blocks: Mapping[str, int]
) -> tuple[frozenset[int], frozenset[int]] | None:
    """Two conditions that together tell failing from passing signatures, where no single one does; else None.

    Few signatures are told apart by something or other, so that nothing is said of these.

    Returns:
      Which failing signatures fulfil either condition, by number, the more frequent first; some may fulfil both.
    """
    if len(failing) < _ENOUGH or not passing or condition(failing, passing, blocks).exact:
        return None
    terms = [
        (term.cost, _fulfilled(term, failing), _fulfilled(term, passing))
        for term in _terms([*failing, *passing], blocks)
    ]
    plain = [each for each in terms if each[0] <= 1]
    pairs = ((a[0] + b[0] + 2, a[1] & b[1], a[2] & b[2]) for a, b in itertools.combinations(plain, 2))
    costs: dict[int, int] = {}
    for cost, bad, good in itertools.chain(terms, pairs):
        if bad and not good:
            costs[bad] = min(cost, costs.get(bad, cost))
    every = (1 << len(failing)) - 1
    fitting = [
        (costs[a] + costs[b], sorted((a, b), key=int.bit_count, reverse=True))
        for a, b in itertools.combinations(costs, 2)
        if a | b == every and min((a & ~b).bit_count(), (b & ~a).bit_count()) > 1
    ]
    if not fitting:
        return None
    _, (one, other) = min(fitting, key=lambda each: each[0])
    return _numbers(one), _numbers(other)


def _fulfilled(term: _Term, signatures: Sequence[Features]) -> int:
    """Which signatures fulfil a term, a bit for each."""
    return sum(1 << i for i, each in enumerate(signatures) if term.holds(each))


def _numbers(bits: int) -> frozenset[int]:
    return frozenset(i for i in range(bits.bit_length()) if bits >> i & 1)


_ENOUGH = 8  # failing signatures
_MOST_TERMS = 60  # that are tried in pairs
_MOST_EXCEPTIONS = 0.34  # of the signatures that fulfil a condition; beyond it, it says little


def _terms(signatures: Sequence[Features], blocks: Mapping[str, int]) -> Iterator[_Term]:
    """All that may be said of a signature, the plainest first."""
    names = list(signatures[0])
    numbers = [name for name in names if all(isinstance(each[name], int) for each in signatures)]
    for name in names:
        if name not in numbers:
            yield from _of_choice(name, list(dict.fromkeys(each[name] for each in signatures)))
    for name in numbers:
        yield from _of_length(name, sorted({int(each[name]) for each in signatures}), blocks.get(name, 0))
    for one, other in itertools.combinations(numbers, 2):
        yield from _of_two(one, other, blocks)


def _of_choice(name: str, values: Sequence[int | str]) -> Iterator[_Term]:
    for value in values:
        yield _Term(f"{name} is {value}", partial(_is, name, value), 0)
    for value in values if len(values) > 2 else ():
        yield _Term(f"{name} is not {value}", partial(_is_not, name, value), 1)


def _of_length(name: str, lengths: Sequence[int], block: int) -> Iterator[_Term]:
    def term(words: str, test: Callable[[int], bool], cost: int) -> _Term:
        return _Term(f"{name} is {words}", partial(_length, name, test), cost)

    if block > 1:
        yield term(f"no multiple of its block, {block}", lambda n: bool(n % block), 0)
        yield term(f"a multiple of its block, {block}", lambda n: not n % block, 1)
        yield term(f"longer than its block, {block}", lambda n: n > block, 0)
        yield term(f"longer than its block, {block}, and no multiple of it", lambda n: n > block and n % block > 0, 2)
        yield term(f"shorter than its block, {block}", lambda n: n < block, 1)
    yield term("no power of two", lambda n: n < 1 or bool(n & (n - 1)), 2)
    for low, high in itertools.pairwise(lengths):
        yield term(f"over {block if low <= block < high else low}", partial(operator.lt, low), 1)
        yield term(f"at most {low}", partial(operator.ge, low), 2)
    for length in lengths:
        yield term(f"{length}", partial(operator.eq, length), 3)
        yield term(f"not {length}", partial(operator.ne, length), 2 if length > 1 else 1)
    for step in (2, 4, 8, 16, 32, 64, 128):
        if step != block:
            yield term(f"no multiple of {step}" if step > 2 else "odd", partial(_has_rest, step), 3)


def _of_two(one: str, other: str, blocks: Mapping[str, int]) -> Iterator[_Term]:
    def term(words: str, test: Callable[[int, int], bool], cost: int) -> _Term:
        return _Term(words, lambda s: test(int(s[one]), int(s[other])), cost)

    yield term(f"{one} differs from {other}", operator.ne, 2)
    yield term(f"{one} is longer than {other}", operator.gt, 3)
    yield term(f"{other} is longer than {one}", operator.lt, 3)
    if one in blocks and other in blocks:
        a, b = blocks[one], blocks[other]
        yield term(f"{one} or {other} is no multiple of its block", lambda n, m: n % a > 0 or m % b > 0, 2)
        yield term(f"{one} or {other} is longer than its block", lambda n, m: n > a or m > b, 2)


def _is(name: str, value: int | str, features: Features) -> bool:
    return features[name] == value


def _is_not(name: str, value: int | str, features: Features) -> bool:
    return features[name] != value


def _length(name: str, test: Callable[[int], bool], features: Features) -> bool:
    return test(int(features[name]))


def _has_rest(step: int, length: int) -> bool:
    return length % step > 0
