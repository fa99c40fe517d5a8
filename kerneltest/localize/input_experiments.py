"""Experiments on the inputs of a failing case: the special value, or the numbers, without which it passes.

One argument at a time gets other values, and all others keep those of the failing case: the values of each family, for
special values, and then other numbers in place of one element, for a sign or for a threshold, which is bisected. What
some passing case holds as well, or some failing one lacks, is not a condition.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kerneltest.core.dtypes import Array, is_float, is_integer, widen
from kerneltest.declare.pairing import Pairing
from kerneltest.judge.special_values import find_special_inputs
from kerneltest.localize.trials import Trials
from kerneltest.plan.cases import signature_slots
from kerneltest.plan.explicit import ExplicitCase
from kerneltest.plan.families import FAMILIES
from kerneltest.plan.slots import Slot, counted_axes, fill_derived, last_blocks
from kerneltest.records.evidence import SpecialInput, SpecialValue
from kerneltest.triage.conditions import preference

_MOST_FILLS = 24  # other values of an argument
_MOST_ELEMENTS = 2  # whose numbers are replaced
_MOST_BISECTED = 40  # numbers that are tried for a threshold
_PAIRS = 2  # equal and unequal values of two arguments
_NUMBERS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, 10.0, -10.0, 100.0, -100.0, 1000.0, -1000.0, 30000.0)


@dataclass(frozen=True, slots=True)
class _Clause:
    words: str
    holds: Callable[[Array], bool]  # for the values of the argument


_INFINITIES = {SpecialValue.POSITIVE_INFINITY, SpecialValue.NEGATIVE_INFINITY}
_GENERAL = {SpecialValue.INFINITY: _INFINITIES, SpecialValue.NOT_FINITE: {*_INFINITIES, SpecialValue.NAN}}


def tested_inputs(pairing: Pairing, case: ExplicitCase, trials: Trials, failing: Sequence[Mapping[str, Array]]) -> str:
    """Returns the condition on the inputs of a failing case in words; "" if none is confirmed.

    Args:
      pairing, case: the kernel with its oracle, and the failing case, as small as possible.
      trials: judges further cases.
      failing: the arguments of further failing cases, each of which must fulfil the condition.
    """
    slots = signature_slots(pairing, case.signature)
    free = {p: s for p, s in slots.items() if pairing.leaves[p].derivation is None and case.arguments[p].size}
    experiments = [_Experiment(pairing, case, trials, path, slot) for path, slot in free.items()]
    clauses = {each.path: each.special_value() or each.number() for each in experiments}
    deciding = [each for each in experiments if each.passing]
    for one, other in itertools.combinations(deciding, 2):
        if one.equality_decides(other) and all((_equal(inputs, one.path, other.path)) for inputs in failing):
            return f"an element of {one.path} equals that of {other.path}"
    confirmed = (
        clause.words
        for path, clause in clauses.items()
        if clause is not None and all(clause.holds(inputs[path]) for inputs in failing if path in inputs)
    )
    return " and ".join(confirmed)


def _equal(inputs: Mapping[str, Array], one: str, other: str) -> bool:
    return one not in inputs or other not in inputs or bool((inputs[one] == inputs[other]).any())


@dataclass(slots=True)
class _Experiment:
    # On one argument.
    pairing: Pairing
    case: ExplicitCase
    trials: Trials
    path: str
    slot: Slot
    passing: bool = False  # whether the case passes with some other values of it

    @property
    def own(self) -> Array:
        return self.case.arguments[self.path]

    def fails(self, values: Array) -> bool | None:
        arguments = {**self.case.arguments, self.path: values}
        is_wrong = self._judge(arguments)
        self.passing |= is_wrong is False
        return is_wrong

    def _judge(self, arguments: Mapping[str, Array]) -> bool | None:
        filled = fill_derived(self.pairing, self.case.signature, arguments, self.case.draw)
        return self.trials.fails([replace(self.case, arguments=filled)])

    def equality_decides(self, other: "_Experiment") -> bool:
        """Returns whether the case fails whenever two arguments are equal, and passes if no two elements are."""
        mine, its = self.slot, other.slot
        if (mine.shape, mine.dtype) != (its.shape, its.dtype) or not mine.is_float_data or not its.is_float_data:
            return False
        rng = np.random.default_rng(0)
        for _ in range(_PAIRS):
            one, another = (FAMILIES["normal"].fill(slot, rng, targeted=True) for slot in (mine, its))
            for values, fails in ((one, True), (another, False)):
                if self._judge({**self.case.arguments, self.path: one, other.path: values}) is not fails:
                    return False
        return True

    def specials(self, values: Array) -> frozenset[SpecialInput]:
        counted = counted_axes(self.pairing, self.case.signature)
        found = find_special_inputs({self.path: values}, last_blocks(self.pairing), counted)
        present = {special.value for special in found}
        general = (value for value, special in _GENERAL.items() if present & special)
        return frozenset([*found, *(SpecialInput(self.path, value) for value in general)])

    def special_value(self) -> _Clause | None:
        """Returns the special value that all failing values of the argument hold and no passing ones."""
        left, without = set(self.specials(self.own)), []
        for values in self._fills():
            held, is_wrong = self.specials(values), self.fails(values)
            if is_wrong:
                left &= held
            elif is_wrong is False:
                without.append(held)
        found = [special for special in left if without and not any(special in held for held in without)]
        if not found:
            return None
        best = min(found, key=preference)
        return _Clause(best.text(), lambda values: best in self.specials(values))

    def _fills(self) -> Iterator[Array]:
        rng = np.random.default_rng(0)
        yield self.slot.kind.simplify(self.slot, self.own)
        applicable = [family for family in FAMILIES.values() if family.applies(self.slot)]
        for family in applicable[:: -(-len(applicable) // _MOST_FILLS) or 1]:
            yield family.fill(self.slot, rng, targeted=True)

    def number(self) -> _Clause | None:
        """Returns the sign or the threshold by which an element decides."""
        is_number = is_float(self.own.dtype) or is_integer(self.own.dtype)
        if not self.passing or not is_number or not self.slot.kind.is_data or self.slot.kind.jointly_constrained:
            return None
        wide = np.asarray(widen(self.own), np.float64).ravel()
        size = np.where(np.isfinite(wide), np.abs(wide), 0.0)
        places = np.argsort(-size, kind="stable")[:_MOST_ELEMENTS].tolist()
        return next(filter(None, (self._number_at(place, float(wide[place])) for place in places if size[place])), None)

    def _number_at(self, place: int, own: float) -> _Clause | None:
        known: dict[float, bool] = {own: True}

        def fails(number: float) -> bool | None:
            value = self.slot.nearest(number)
            if float(widen(value)) == number and number not in known:
                changed = self.own.copy().reshape(-1)
                changed[place] = value
                if (is_wrong := self.fails(changed.reshape(self.own.shape))) is not None:
                    known[number] = is_wrong
            return known.get(number)

        for number in (*_NUMBERS, -own, 2 * own, own / 2):
            fails(number)
        for of, size in (("", float), ("of magnitude ", abs)):
            by_size: dict[float, set[bool]] = {}
            for number, is_wrong in known.items():
                by_size.setdefault(size(number), set()).add(is_wrong)
            verdicts = [(number, wrong.pop()) for number, wrong in sorted(by_size.items()) if len(wrong) == 1]
            turns = [pair for pair in itertools.pairwise(verdicts) if pair[0][1] != pair[1][1]]
            if len(verdicts) == len(by_size) and len(turns) == 1:
                ((low, _), (high, is_above)) = turns[0]
                if 0 not in (low, high):
                    low, high = _bisect(low, high, fails)
                elif low == 0 and size is abs and not is_above:
                    continue  # a zero
                return _Clause(
                    f"{self.path} holds {_range_words(low, high, of, is_above)}", _has(size, low, high, is_above)
                )
        return None


def _has(size: Callable[[float], float], low: float, high: float, is_above: bool) -> Callable[[Array], bool]:
    def holds(values: Array) -> bool:
        numbers = map(size, np.asarray(widen(values), np.float64).ravel().tolist())
        return any(number > low if is_above else number < high for number in numbers)

    return holds


def _range_words(low: float, high: float, of: str, is_above: bool) -> str:
    if low == 0 and is_above:
        return "a number other than 0" if of else "a positive number"
    if high == 0 and not is_above:
        return "a negative number"
    failing, passing = (high, low) if is_above else (low, high)
    if len(f"{failing:.6g}") < len(f"{passing:.6g}"):
        return f"a number of {of}{failing:.6g} or {'more' if is_above else 'less'}".replace("of of", "of")
    return f"a number {of}{'over' if is_above else 'below'} {passing:.6g}"


def _bisect(low: float, high: float, fails: Callable[[float], bool | None]) -> tuple[float, float]:
    # Two close numbers, one of which fails, with as few digits as show it.
    first = fails(low)
    for _ in range(_MOST_BISECTED):
        for digits in (1, 2, 3):
            middle = float(f"{(low + high) / 2:.{digits}g}")
            if low < middle < high and (found := fails(middle)) is not None:
                low, high = (middle, high) if found == first else (low, middle)
                break
        else:
            break
    return low, high
