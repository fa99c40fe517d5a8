"""Experiments on the inputs of a failing case: without which values it passes, and with which a right one fails.

An argument that fails with all ordinary values is left alone with these: values that hide a wrong result, such as
zeros, say nothing about its cause. Each other one gets further values: those of every family, and ordinary ones into
which one special value is put. Trials find the rule that tells failing from passing values apart.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np

from kerneltest.core.dtypes import Array, DType, is_float, is_integer, widen
from kerneltest.declare.pairing import Pairing
from kerneltest.judge.special_values import find_special_inputs
from kerneltest.localize.rule_search import RuleSearch
from kerneltest.localize.trials import Trials
from kerneltest.plan.cases import signature_slots
from kerneltest.plan.explicit import AnyCase, ExplicitCase
from kerneltest.plan.families import FAMILIES, Family
from kerneltest.plan.signatures import Signature
from kerneltest.plan.slots import CountedAxis, Slot, counted_axes, fill_derived, last_blocks
from kerneltest.records.evidence import FillExtent, SpecialInput, SpecialValue
from kerneltest.triage.conditions import WITH_EXCEPTIONS

_MOST_TRIED = 40  # values, beside the ordinary ones
_MOST_VALUES = 250  # of an argument, to choose from
_MOST_REFUTING = 8  # planned cases, after which another rule is looked for
_MOST_BISECTED = 12  # numbers that are tried for a threshold

Arguments = Mapping[str, Array]


# Facts: what can be said about arguments, with the cost of saying it.


@dataclass(frozen=True, slots=True)
class _Fact:
    # A relation of arguments to values.
    relation: str  # the arguments and then the values are filled in: `{0} holds {1}`
    arguments: tuple[str, ...]
    values: tuple[str, ...] = ()

    def text(self) -> str:
        return self.relation.format(*self.arguments, *self.values)


@dataclass(frozen=True, slots=True)
class _Facts:
    costs: Mapping[_Fact | SpecialInput, int]  # of the facts that are true
    sizes: Mapping[tuple[str, str], float]  # by argument and measure


_PARTS = list(FillExtent)
_LESS_TELLING = {SpecialValue.NEGATIVE: 1, SpecialValue.REPEATED: 1}
_LACKED = (SpecialValue.NAN, SpecialValue.NEGATIVE_INFINITY, SpecialValue.POSITIVE_INFINITY, SpecialValue.ZERO)
_HOLDS, _HOLDS_NO, _HOLDS_IN = "{0} holds {1}", "{0} holds no {1}", "{1} of {0} holds {2}"
_HOLDS_WHERE = "{0} holds {2} where {1} is {3}"
# Elements that may be special, and the cost of saying that an array holds one; None if that is a `SpecialValue`.
_ELEMENTS: Mapping[str, tuple[Callable[[Array], Array], int | None]] = {
    "a NaN": (np.isnan, None),
    "+inf": (np.isposinf, None),
    "-inf": (np.isneginf, None),
    "a zero": (lambda wide: wide == 0, None),
    "a negative number": (lambda wide: wide < 0, None),
    "an infinity": (np.isinf, 1),
    "a NaN or an infinity": (lambda wide: ~np.isfinite(wide), 2),
    "a NaN of negative sign": (lambda wide: np.isnan(wide) & np.signbit(wide), 1),
    "an even number": (lambda wide: wide % 2 == 0, 6),
    "an odd number": (lambda wide: wide % 2 == 1, 6),
}
_OF_INTEGERS = ("an even number", "an odd number")
_MANY = ("a NaN", "+inf", "-inf", "a NaN or an infinity")  # of these, those that a mask may hide
_AT_PLACES = list(_ELEMENTS)[:5]
_OF_ROWS: Mapping[str, tuple[Callable[[Array], Array], int]] = {
    "two neighbours in {0} are equal": (lambda wide: wide[..., 1:] == wide[..., :-1], 3),
    "another number follows a zero in {0}": (lambda wide: (wide[..., 1:] != 0) & (wide[..., :-1] == 0), 3),
    "a row of {0} holds one number throughout": (
        lambda wide: (wide == wide[..., :1]).all(axis=-1) & (wide.shape[-1] > 1), 2,
    ),
    "the maximum of a row of {0} occurs twice": (
        lambda wide: (wide == wide.max(axis=-1, keepdims=True)).sum(axis=-1) > 1, 2,
    ),
}  # fmt: skip
# Of numbers: how they are measured, whether a failing one is above a limit or below, and the cost.
_OF_MAGNITUDE, _OF_WHOLE_ROWS = ("largest", "smallest"), ("row is over", "row is below")
_MEASURES: Mapping[str, tuple[Callable[[Array], float], int, int]] = {
    "greatest": (lambda wide: float(np.nanmax(wide)), 1, 2),
    "least": (lambda wide: float(np.nanmin(wide)), -1, 2),
    "largest": (lambda wide: float(np.nanmax(np.abs(wide))), 1, 3),
    "smallest": (lambda wide: float(np.nanmin(np.abs(wide))), -1, 3),
    "row is over": (lambda wide: float(np.nan_to_num(wide.min(axis=-1, initial=np.inf), nan=-np.inf).max()), 1, 4),
    "row is below": (lambda wide: float(np.nan_to_num(wide.max(axis=-1, initial=-np.inf), nan=np.inf).min()), -1, 4),
}


def _ends(dtype: DType) -> tuple[Array, Array]:
    info = jnp.iinfo(dtype)
    return np.asarray(info.min, dtype), np.asarray(info.max, dtype)


def _facts_of_later_parts(role: str, wide: Array, axis: CountedAxis | None, block: int) -> Iterator[tuple[str, int]]:
    if role == "segments":
        starts = np.nonzero(wide[..., 1:] != wide[..., :-1])[-1] + 1
    elif axis is not None and axis.role in ("partition", "offsets"):
        ends = np.cumsum(wide, axis=-1) if axis.role == "partition" else wide[..., 1:]
        starts, block = ends[..., :-1][ends[..., 1:] > ends[..., :-1]], axis.block
    else:
        return
    if starts.size:
        yield "a part of {0} after the first is not empty", 1
    if block > 1 and (starts % block == 0).any():
        yield "a part of {0} after the first starts with a block", 2


def _facts(pairing: Pairing, signature: Signature, path: str, values: Array) -> _Facts:
    block, axes = last_blocks(pairing).get(path, 0), counted_axes(pairing, signature)
    specials = find_special_inputs({path: values}, {path: block}, axes)
    held, own = {special.value for special in specials}, (path,)
    costs: dict[_Fact | SpecialInput, int] = {
        _Fact(_HOLDS, own, (each.value,)) if each == SpecialInput(path, each.value) else each: (
            _PARTS.index(each.part) + _LESS_TELLING.get(each.value, 0)
        )
        for each in specials
    }
    for value in {SpecialValue.ZERO, SpecialValue.FALSE} & held:
        if SpecialInput(path, value, FillExtent.ALL) not in costs:
            costs[_Fact("{0} holds {1}, and not only {2}", own, (value, value.plural))] = 3
    if values.dtype == bool:
        return _Facts(costs | ({_Fact(_HOLDS_NO, own, ("False",)): 2} if SpecialValue.FALSE not in held else {}), {})
    is_whole = is_integer(values.dtype)
    if not (is_float(values.dtype) or is_whole) or not values.size:
        return _Facts(costs, {})
    wide = np.asarray(widen(values), np.float64)
    costs |= {_Fact(_HOLDS_NO, own, (value.plural,)): 4 for value in _LACKED if value not in held}
    for name, (holds, cost) in _ELEMENTS.items():
        if cost is not None and (is_whole or name not in _OF_INTEGERS) and holds(wide).any():
            costs[_Fact(_HOLDS, own, (name,))] = cost
    if is_whole and path in axes and axes[path].role == "length":
        name, length = axes[path].name, axes[path].length
        partly = (wide > 0) & (wide < length)
        counts = ((name, 2, wide == length), (f"a number above 0 and below {name}", 2, partly))
        costs |= {_Fact(_HOLDS, own, (words,)): cost for words, cost, holds in counts if holds.any()}
    of_parts = _facts_of_later_parts(pairing.leaves[path].role, wide, axes.get(path), block)
    costs |= {_Fact(words, own): cost for words, cost in of_parts}
    if wide.ndim and wide.shape[-1]:
        parts = {"the first element of a row": wide[..., :1], "the last element of a row": wide[..., -1:]}
        if block and wide.shape[-1] % block:
            parts["the last, partial block"] = wide[..., -(wide.shape[-1] % block) :]
        for (part, elements), name in itertools.product(parts.items(), _AT_PLACES):
            if _ELEMENTS[name][0](elements).any():
                costs[_Fact(_HOLDS_IN, own, (part, name))] = 3
        costs |= {_Fact(words, own): cost for words, (holds, cost) in _OF_ROWS.items() if holds(wide).any()}
        ends = zip(("least", "greatest"), _ends(values.dtype), strict=True) if is_whole else ()
        rows = (name for name, end in ends if (values == end).all(axis=-1).any())
        costs |= {_Fact("a row of {0} holds nothing but the {1} integer", own, (name,)): 2 for name in rows}
    measures = _MEASURES.items() if not np.isnan(wide).all() else ()
    measured = ((name, measure) for name, (measure, _, _) in measures if wide.ndim or name not in _OF_WHOLE_ROWS)
    return _Facts(costs, {(path, name): measure(wide) for name, measure in measured})


def _facts_of_two(one: str, other: str, mine: Array, its: Array) -> Iterator[tuple[_Fact, int]]:
    # What elements of two arguments at one place have in common.
    if mine.shape != its.shape or not is_float(mine.dtype):
        return
    wide = np.asarray(widen(mine), np.float64)
    if its.dtype == bool:
        for name, truth in itertools.product(_MANY, (False, True)):
            if (_ELEMENTS[name][0](wide) & (its == truth)).any():
                yield _Fact(_HOLDS_WHERE, (one, other), (name, str(truth))), 2 + (name == _MANY[-1])
    elif one < other and is_float(its.dtype):
        wide_too = np.asarray(widen(its), np.float64)
        if mine.dtype == its.dtype and (wide == wide_too).any():
            yield _Fact("an element of {0} equals that of {1}", (one, other)), 1
        if ((wide == 0) & (wide_too == 0)).any():
            yield _Fact("{0} and {1} hold a zero at the same place", (one, other)), 2


@dataclass(frozen=True, slots=True)
class _Threshold:
    # Whether a measure of an argument is past a limit, which lies between two numbers.
    key: tuple[str, str]
    passing: float
    failing: float

    @property
    def sign(self) -> int:
        return _MEASURES[self.key[1]][1]

    def text(self) -> str:
        path, measure = self.key
        holds = f"a row of {path} holds only" if measure in _OF_WHOLE_ROWS else f"{path} holds a"
        number = "numbers" if measure in _OF_WHOLE_ROWS else "number"
        if self.passing == 0 and self.sign > 0:
            return f"{holds} {f'{number} other than 0' if measure == 'largest' else f'positive {number}'}"
        of = "magnitude " if measure in _OF_MAGNITUDE else ""
        if _length(self.failing) <= _length(self.passing):
            return f"{holds} {number} of {of}{self.failing:.6g} or {'more' if self.sign > 0 else 'less'}"
        which = "over" if self.sign > 0 else "below"
        return f"{holds} {number} {f'of {of}' if of else ''}{which} {self.passing:.6g}"


def _length(number: float) -> tuple[bool, bool, int]:
    # How hard a limit is to read; one that is rounded in words is another limit.
    words = f"{number:.6g}"
    return float(words) != number, abs(np.frexp(number)[0]) != 0.5, len(words.strip("-0."))


_Property = _Fact | SpecialInput | _Threshold


def _holds(found: _Property, facts: _Facts) -> bool:
    if isinstance(found, _Threshold):
        return found.sign * facts.sizes.get(found.key, -found.sign * np.inf) >= found.sign * found.failing
    return found in facts.costs


class _Describer:
    # States the facts about some arguments of cases.

    def __init__(self, pairing: Pairing, paths: Sequence[str]) -> None:
        self._pairing, self._paths = pairing, [path for path in pairing.leaves if path in paths]
        alike: dict[str, list[str]] = {}
        for path in self._paths:
            alike.setdefault(pairing.leaves[path].role, []).append(path)
        together = (tuple(each) for each in alike.values() if len(each) > 2)
        self._alternatives = [*itertools.combinations(self._paths, 2), *together]
        self._known: dict[tuple[str, bytes, Signature], _Facts] = {}

    def facts(self, signature: Signature, arguments: Arguments) -> _Facts:
        paths = [path for path in self._paths if path in arguments]
        costs: dict[_Fact | SpecialInput, int] = {}
        sizes: dict[tuple[str, str], float] = {}
        for path in paths:
            key = path, arguments[path].tobytes(), signature
            if key not in self._known:
                self._known[key] = _facts(self._pairing, signature, path, arguments[path])
            costs |= self._known[key].costs
            sizes |= self._known[key].sizes
        for one, other in itertools.permutations(paths, 2):
            costs |= _facts_of_two(one, other, arguments[one], arguments[other])
        held = [each for each in costs if isinstance(each, _Fact) and each.relation == _HOLDS]
        for among in self._alternatives:
            words, cost = f"{', '.join(among[:-1])} or {among[-1]}", 3 + (len(among) > 2)
            costs |= {replace(fact, arguments=(words,)): cost for fact in held if fact.arguments[0] in among}
        return _Facts(costs, sizes)


def _properties(facts: Sequence[_Facts]) -> Iterator[tuple[_Property, int, int]]:
    # What is true of the first, with the others of which it is true as bits.
    stated = dict.fromkeys(facts[0].costs, 0)
    sized: dict[tuple[str, str], dict[float, int]] = {key: {} for key in facts[0].sizes}
    for number, each in enumerate(facts):
        for fact in stated.keys() & each.costs.keys():
            stated[fact] |= 1 << number
        for key in sized.keys() & each.sizes.keys():
            sized[key][each.sizes[key]] = sized[key].get(each.sizes[key], 0) | 1 << number
    for fact, bits in stated.items():
        yield fact, facts[0].costs[fact], bits
    for key, by_size in sized.items():
        _, sign, cost = _MEASURES[key[1]]
        past = 0
        for failing, passing in itertools.pairwise(sorted(by_size, reverse=sign > 0)):
            past |= by_size[failing]
            if sign * failing <= sign * facts[0].sizes[key]:
                yield _Threshold(key, passing, failing), cost, past


# Values to try.


def _ordinary(slot: Slot) -> Iterator[Array]:
    rng = np.random.default_rng(0)
    if slot.kind.is_data:
        coded = FAMILIES["position_coded"].fill(slot, rng, targeted=True)
        sizes = 1 + np.abs(np.asarray(widen(slot.sample(rng, exact=True)), np.float64))
        values = [coded, slot.cast(sizes), slot.cast(-sizes), slot.sample(rng)]
        if not slot.is_float_data:  # samples of a narrow integer hold its whole range
            values.append(slot.cast(1 + np.arange(slot.size).reshape(slot.shape) % 7))
        # A domain may make zeros of most of the numbers, which hide what others decide.
        yield from [each for each in values if 2 * np.count_nonzero(widen(each)) > each.size] or values[-1:]
        return
    choices = slot.end - slot.least
    if slot.kind.pointwise and not slot.kind.jointly_constrained:
        if slot.kind.includes_end:
            yield slot.repair(np.full(slot.shape, slot.end))
        elif choices >= slot.size:
            yield slot.repair((slot.least + rng.permutation(choices)[: slot.size]).reshape(slot.shape))  # all different
    if (one_part := FAMILIES["first_takes_all"]).applies(slot):
        yield one_part.fill(slot, rng, targeted=True)
    yield from (slot.canonical(), slot.sample(rng), slot.sample(rng))


_SIZES = (2, 3, 8, 20, 60, 150, 400, 1000, 5000, 3e4, 1e5, 1e9, 0.5)
_NUMBERS = (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, *(s * size for size in _SIZES for s in (1, -1)))
_SPECIALS = 8  # of these


def _values_to_try(slot: Slot, own: Array, families: Iterable[Family]) -> Iterator[Array]:
    rng = np.random.default_rng(1)
    first, *_, last = _ordinary(slot)
    bases = [last] if slot.kind.is_data else [last, first]  # of few numbers, a sample may hold any
    if slot.kind.is_data and is_float(slot.dtype):
        wide = np.asarray(widen(own), np.float64)
        finite = np.where(np.isfinite(wide), wide, 1.0)
        own_kind = finite, np.abs(wide), -finite, np.where(wide == 0, 1.0, wide), np.minimum(wide, 0)
        yield from map(slot.cast, (*own_kind, np.clip(finite, -1, 1)))
        distinct = np.arange(1, slot.size + 1).reshape(slot.shape) % max(slot.exact_limit, 2)
        bases.insert(0, slot.cast(distinct))
        yield from (bases[0], slot.cast(-distinct))
    yield slot.canonical()
    for family in families:
        if family.applies(slot):
            yield family.fill(slot, rng, targeted=True)
    bases = bases if slot.size and not slot.kind.jointly_constrained else []
    for base, (number, value) in itertools.product(bases, enumerate(_elements(slot))):  # special ones fill parts
        yield from itertools.islice(_inserted(slot, base, value), None if number < _SPECIALS else 2)


def _elements(slot: Slot) -> Iterator[Array]:
    # Single elements that may be special.
    if slot.kind.is_mask:
        yield from (slot.coerce(np.asarray(value).astype(slot.dtype)) for value in slot.mask_values)
    elif not slot.kind.is_data:
        ends = {slot.least, 1, slot.end_block, slot.end // 2, slot.end}
        last = slot.end - (not slot.kind.includes_end)
        near = sorted({end + by for end in ends for by in (-1, 0, 1)})
        yield from (np.asarray(number).astype(slot.dtype) for number in near if slot.least <= number <= last)
    if slot.kind.is_data and is_integer(slot.dtype):
        yield from (end for end in _ends(slot.dtype) if slot.nearest(float(end)) == end)
    for number in _NUMBERS if slot.kind.is_data else ():
        if np.isfinite(number):
            value = slot.nearest(number)
            if float(widen(value)) == number:
                yield value
        elif is_float(slot.dtype):
            domain = slot.domain
            if domain.admits_nan if np.isnan(number) else domain.admits_infinity(int(np.sign(number))):
                yield np.asarray(number).astype(slot.dtype)


def _inserted(slot: Slot, base: Array, value: Array) -> Iterator[Array]:
    # At the start, in a row, in the middle, at the end, in the first block of a row, and in the second.
    length = slot.shape[-1] if slot.shape else 1
    block = min(slot.block, length)
    last = slot.size - length
    parts = [slice(0, 1), slice(last, last + length), slice(slot.size // 2, slot.size // 2 + 1)]
    parts += [slice(slot.size - 1, slot.size), slice(last, last + block)]
    parts += [slice(last + block, last + min(2 * block, length))]
    for part in parts:
        changed = base.copy()
        changed.reshape(-1)[part] = value
        yield slot.repair(slot.coerce(changed))


# The experiment.


@dataclass(frozen=True, slots=True)
class InputRule:
    """A condition on the inputs of a kernel.

    Attributes:
      words: `x holds a NaN`; "" if the kernel fails with any values.
      holds: whether the arguments of a signature fulfil it.
    """

    words: str
    holds: Callable[[Signature, Arguments], bool]


ANY_INPUT = InputRule("", lambda signature, arguments: True)


def find_input_rule(
    pairing: Pairing,
    cases: Iterable[ExplicitCase],
    trials: Trials,
    failing: Sequence[AnyCase],
    passing: Sequence[AnyCase],
) -> InputRule | None:
    """Returns the condition on inputs that trials confirm; None if they confirm none, or if a planned case refutes it.

    Args:
      pairing: the kernel and its oracle.
      cases: failing cases whose values are changed.
      trials: judges the cases made.
      failing: planned cases that fail, which must fulfil the condition.
      passing: other planned cases of their signatures. If one fulfils it, it must fail by another bug or show nothing.
    """
    # A second case needs fewer ordinary values: it checks the rule of the first.
    made = (_Base(pairing, case, trials, step=1 + (number > 0)) for number, case in enumerate(cases))
    bases = sorted(made, key=lambda base: not base.deciding)
    if not any(base.deciding for base in bases):
        is_refuted = any(trials.fails([each]) is False for each in passing)
        return None if is_refuted or trials.is_exhausted else ANY_INPUT
    deciding = list(dict.fromkeys(path for base in bases for path in base.deciding))
    similar = _similar(pairing, bases[0].slots, deciding)
    describer = _Describer(pairing, [*deciding, *similar])
    known = [subject for base in bases for subject in base.tried()]
    subjects = [
        *known,
        *((*subject, None) for base in bases for subject in base.to_try(deciding, similar, families=base is bases[0])),
    ]
    facts = [describer.facts(base.case.signature, {**base.case.arguments, **changed}) for base, changed, _ in subjects]
    facts += [describer.facts(each.signature, each.fill(pairing)) for each in (*failing, *passing)]
    first_planned, first_passing = len(subjects), len(subjects) + len(failing)
    kinds = [(bases.index(base), *changed) for base, changed, _ in subjects] + [()] * (len(facts) - first_planned)

    def fails(number: int) -> bool | None:
        base, changed, _ = subjects[number]
        return base.fails(changed)

    search = RuleSearch(list(_properties(facts)), kinds, fails, _MOST_TRIED)
    for number, (_, _, is_wrong) in enumerate(known):
        search.observe(number, fails=is_wrong)
    for number in range(first_planned, len(facts)):
        search.observe(number, fails=True if number < first_passing else None)
    unjudged = dict(enumerate(passing, first_passing))

    ordinary: dict[str, bool | None] = {}

    def refuting(bits: int) -> Iterator[int]:
        for number in [number for number in unjudged if bits >> number & 1]:
            other = _with_ordinary(pairing, bases[0].case, each := unjudged.pop(number), deciding)
            if other.id not in ordinary:
                ordinary[other.id] = trials.fails([other])
            if not ordinary[other.id] and trials.fails([each]) is False:
                yield number

    rule = search.run()
    while rule is not None and (found := list(itertools.islice(refuting(rule.bits), _MOST_REFUTING))):
        for number in found:
            search.observe(number, fails=False)
        rule = search.run()
    passing_bits = search.passing | sum(1 << number for number in unjudged)  # the rule says that these pass
    exceptions = (rule.bits & passing_bits).bit_count() if rule is not None else 0
    if rule is None or (exceptions and len(rule.parts) > 1) or not search.is_believable(rule, passing_bits):
        return None
    note = WITH_EXCEPTIONS if exceptions else ""
    passed = [(*subject[:2], facts[n]) for n, subject in enumerate(subjects) if search.passing >> n & 1]
    limited = [_with_limit(part, passed, note) if isinstance(part, _Threshold) else part for part in rule.parts]
    parts = [part for part in limited if part is not None]
    if len(parts) < len(limited):
        return None
    bits = sum(1 << number for number, each in enumerate(facts) if all(_holds(part, each) for part in parts))
    misses = search.failing & ~bits or search.passing & bits & ~rule.bits
    if misses or any(True for _ in refuting(bits)) or trials.is_exhausted:
        return None  # the limit found is wrong elsewhere

    def holds(signature: Signature, arguments: Arguments) -> bool:
        stated = describer.facts(signature, arguments)
        return all(_holds(part, stated) for part in parts)

    return InputRule(" and ".join(part.text() for part in parts) + note, holds)


def _with_ordinary(pairing: Pairing, like: ExplicitCase, case: AnyCase, deciding: Sequence[str]) -> ExplicitCase:
    # A case with ordinary data in the arguments that do not decide: theirs may hide that it fails, as zeros do.
    arguments, slots = case.fill(pairing), signature_slots(pairing, case.signature)
    hiding = (path for path, slot in slots.items() if path not in deciding and slot.kind.is_data and slot.size)
    free = {path: [*_ordinary(slots[path])][-1] for path in hiding if pairing.leaves[path].derivation is None}
    filled = fill_derived(pairing, case.signature, {**arguments, **free}, like.draw)
    return replace(like, signature=case.signature, arguments=filled, family=FAMILIES["normal"])


def _similar(pairing: Pairing, slots: Mapping[str, Slot], deciding: Sequence[str]) -> list[str]:
    # Further arguments like the deciding ones: any of them may fail with values that fail in one.
    kinds = {(slot.role, slot.dtype) for path, slot in slots.items() if path in deciding}
    others = (path for path in slots if path not in deciding and pairing.leaves[path].derivation is None)
    return [path for path in others if (slots[path].role, slots[path].dtype) in kinds]


class _Base:
    """A failing case, other values of which are tried.

    Attributes:
      case: the case, with ordinary values in arguments that fail with all of these.
      slots: its arguments.
      deciding: ordinary values of the other arguments, and whether it fails with them.
    """

    def __init__(self, pairing: Pairing, case: ExplicitCase, trials: Trials, step: int) -> None:
        self._pairing, self._trials, self.case = pairing, trials, case
        self.slots = signature_slots(pairing, case.signature)
        self.deciding: dict[str, list[tuple[Array, bool | None]]] = {}
        free = {p: s for p, s in self.slots.items() if pairing.leaves[p].derivation is None and s.size}
        ordinary = {path: list(_ordinary(slot))[::step] for path, slot in free.items()}
        turns = range(max(map(len, ordinary.values()), default=0))
        if len(free) > 1 and all(
            self.fails({path: values[turn % len(values)] for path, values in ordinary.items()}) for turn in turns
        ):
            return
        self.deciding = self._deciding(ordinary)
        left = {path: values[0] for path, values in ordinary.items() if path not in self.deciding}
        if not self.deciding or not left:
            return
        self.case = replace(case, arguments={**case.arguments, **left})
        if deciding := self._deciding({path: ordinary[path] for path in self.deciding}) if self.fails({}) else {}:
            self.deciding = deciding
        else:
            self.case = case  # one of the values left alone is wrong by itself

    def _deciding(self, ordinary: Mapping[str, Sequence[Array]]) -> dict[str, list[tuple[Array, bool | None]]]:
        # The arguments with some of whose values it does not fail, if it passes with any.
        tried = {path: [(each, self.fails({path: each})) for each in values] for path, values in ordinary.items()}
        decides = any(fails is False for each in tried.values() for _, fails in each)
        return {p: each for p, each in tried.items() if decides and not all(fails for _, fails in each)}

    def fails(self, changed: Arguments) -> bool | None:
        """Returns whether it fails with other values of some arguments."""
        arguments = {**self.case.arguments, **changed}
        family = self.case.family if self._is_exact(arguments) else FAMILIES["normal"]
        filled = fill_derived(self._pairing, self.case.signature, arguments, self.case.draw)
        return self._trials.fails([replace(self.case, arguments=filled, family=family)])

    def _is_exact(self, arguments: Arguments) -> bool:
        for path, slot in self.slots.items():
            if slot.is_float_data:
                wide = np.asarray(widen(arguments[path]), np.float64)
                finite = wide[np.isfinite(wide)]
                if (finite != np.rint(finite)).any() or (np.abs(finite) > slot.exact_limit).any():
                    return False
        return True

    def tried(self) -> "Iterator[tuple[_Base, Arguments, bool | None]]":
        """Yields the changes whose results are known; the first is none."""
        yield self, {}, True
        for path, tried in self.deciding.items():
            yield from ((self, {path: values}, fails) for values, fails in tried)

    def to_try(
        self, paths: Sequence[str], similar: Sequence[str], *, families: bool
    ) -> "Iterator[tuple[_Base, Arguments]]":
        """Yields further changes: of single arguments, also to the values of all families, and of two."""
        paths = [path for path in paths if path in self.slots and self.slots[path].size]
        for path in paths:
            made = _values_to_try(self.slots[path], self.case.arguments[path], FAMILIES.values() if families else ())
            values = {each.tobytes(): each for each in made}
            yield from ((self, {path: each}) for each in list(values.values())[:_MOST_VALUES])
        for one, other in itertools.combinations(paths, 2):
            mine, its = self.slots[one], self.slots[other]
            if (mine.shape, mine.dtype, mine.role) == (its.shape, its.dtype, its.role):
                yield from ((self, {one: values, other: values}) for values in _ordinary(mine))
        passing = {path: values for path, tried in self.deciding.items() for values, fails in tried if fails is False}
        for path in (path for path in similar if path in self.slots):
            for value in itertools.islice(_elements(self.slots[path]), _SPECIALS if passing else 0):
                moved = next(_inserted(self.slots[path], self.case.arguments[path], value))
                yield self, {**passing, path: moved}


def _with_limit(found: _Threshold, passed: Sequence[tuple[_Base, Arguments, _Facts]], note: str) -> _Threshold | None:
    # The same threshold with a limit found by bisection: values that pass get one number on either side of it. None if
    # it passes with that number everywhere, as the number then matters only beside others, if another base has another
    # limit, or if it has exceptions and no such trial.
    path, _ = found.key
    fitting: dict[_Base, Arguments] = {}
    for base, changed, facts in passed:
        if path in changed and not _holds(found, facts):
            fitting.setdefault(base, changed)
    if not fitting or any(base.slots[path].kind.jointly_constrained for base in fitting):
        return None if note else found
    first, *others = (_Insertion(found, base, changed) for base, changed in fitting.items())
    low, high = found.passing, found.failing
    if first.fails_everywhere(high) is False:
        return None
    if not first.fails(high):
        return None if note else found
    for _ in range(_MOST_BISECTED):
        middle = _between(low, high, whole=is_integer(first.slot.dtype))
        if middle is None or (is_wrong := first.fails(middle)) is None:
            break
        low, high = (low, middle) if is_wrong else (middle, high)
    if any(other.fails(low) or other.fails(high) is False for other in others):
        return None
    return _Threshold(found.key, low, high)


class _Insertion:
    # Values of an argument that pass, into which a number is put where a failing case has the one that decides.

    def __init__(self, found: _Threshold, base: _Base, changed: Arguments) -> None:
        self._base, self._changed, (self._path, measure) = base, changed, found.key
        self.slot, own = base.slots[self._path], np.asarray(widen(base.case.arguments[self._path]), np.float64)
        measured = np.where(np.isfinite(own), found.sign * (np.abs(own) if measure in _OF_MAGNITUDE else own), -np.inf)
        width = own.shape[-1] if measure in _OF_WHOLE_ROWS else 1
        first = width * int(np.argmax(measured.reshape(-1, width).min(axis=1)))
        self._place = slice(first, first + width)

    def fails(self, number: float) -> bool | None:
        values = self._changed[self._path].copy()
        values.reshape(-1)[self._place] = self.slot.nearest(number)
        repaired = self.slot.repair(self.slot.coerce(values))
        is_as_wanted = bool((widen(repaired.reshape(-1)[self._place]) == number).all())
        return self._base.fails({**self._changed, self._path: repaired}) if is_as_wanted else None

    def fails_everywhere(self, number: float) -> bool | None:
        filled = self.slot.repair(self.slot.coerce(np.full(self.slot.shape, self.slot.nearest(number))))
        return self._base.fails({**self._changed, self._path: filled})


def _between(low: float, high: float, *, whole: bool) -> float | None:
    # A number near the middle of two others, with as few digits as lie between them.
    middle = (low + high) / 2
    for digits in range(4):
        made = float(f"{middle:.{digits}e}")
        if min(low, high) < made < max(low, high) and (made == round(made) or not whole):
            return made
    return None
