"""Experiments on the inputs of a failing case: the special value, or the numbers, without which it passes.

One argument at a time gets other values, and all others keep those of the failing case: the values of each family, for
special values, and then other numbers in place of one element, for a sign or for a threshold, which is bisected. What
some passing case holds as well, or some failing one lacks, is not a condition.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kerneltest.core.dtypes import Array, is_float, is_integer, widen
from kerneltest.core.verdicts import GroupName
from kerneltest.declare.pairing import Pairing
from kerneltest.judge.special_values import find_special_inputs
from kerneltest.localize.trials import Trials
from kerneltest.plan.cases import signature_slots
from kerneltest.plan.explicit import ExplicitCase
from kerneltest.plan.families import FAMILIES
from kerneltest.plan.slots import Slot, counted_axes, fill_derived, last_blocks
from kerneltest.records.evidence import SpecialInput, SpecialValue
from kerneltest.triage.conditions import preference

_MOST_FILLS = 30  # other values of an argument
_MOST_BISECTED = 40  # numbers that are tried for a threshold
_WITHOUT = 3  # values without a special one, with which a larger case must pass
_ENOUGH = 8  # numbers that fail, after which none is likely to pass
_PAIRS = 2  # equal and unequal values of two arguments
_NUMBERS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, 10.0, -10.0, 100.0, -100.0, 1000.0, -1000.0, 30000.0)

_GROUPS = (GroupName.STRUCTURAL, GroupName.MASKS, GroupName.SPECIAL, GroupName.NUMERIC)  # of families, in order
_INFINITIES = {SpecialValue.POSITIVE_INFINITY, SpecialValue.NEGATIVE_INFINITY}
_GENERAL = {SpecialValue.INFINITY: _INFINITIES, SpecialValue.NOT_FINITE: {*_INFINITIES, SpecialValue.NAN}}

Size = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class InputClause:
    """A condition on a case's inputs.

    Attributes:
      path: the argument that it is about.
      words: `x holds a negative number`.
      holds: whether arguments, given by path, fulfil it.
    """

    path: str
    words: str
    holds: Callable[[Mapping[str, Array]], bool]


def tested_inputs(
    pairing: Pairing, case: ExplicitCase, trials: Trials, failing: Sequence[ExplicitCase]
) -> list[InputClause]:
    """Returns the conditions on the inputs of a failing case that experiments confirm.

    Args:
      pairing, case: the kernel with its oracle, and the failing case, as small as possible.
      trials: judges further cases.
      failing: further failing cases, each of which must fulfil the conditions; the first one must pass without them.
    """
    slots = signature_slots(pairing, case.signature)
    free = [path for path in slots if pairing.leaves[path].derivation is None and case.arguments[path].size]
    experiments = [_Experiment(pairing, case, trials, path, slots[path]) for path in free]
    found = [clause for each in experiments if (clause := each.special_value() or each.number())]
    for one, other in itertools.combinations([each for each in experiments if each.passing], 2):
        if one.equality_decides(other):
            found = [one.equality(other)]
    return [
        clause
        for clause in found
        if all(clause.holds(each.arguments) for each in failing) and _decides(clause, pairing, failing[:1], trials)
    ]


def _decides(clause: InputClause, pairing: Pairing, failing: Sequence[ExplicitCase], trials: Trials) -> bool:
    # Whether larger cases pass, too, with values of the same argument that do not fulfil a condition.
    for case in failing:
        slots = signature_slots(pairing, case.signature)
        experiment = _Experiment(pairing, case, trials, clause.path, slots[clause.path])
        if clause.path in slots and not experiment.passes_without(clause):
            return False
    return True


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

    def equality(self, other: "_Experiment") -> InputClause:
        one, another = self.path, other.path
        words = f"an element of {one} equals that of {another}"
        return InputClause(one, words, lambda inputs: bool((inputs[one] == inputs[another]).any()))

    def passes_without(self, clause: InputClause) -> bool:
        """Returns whether some values of the argument do not fulfil a condition, and the case passes with each."""
        others = (each for each in self._fills() if not clause.holds({**self.case.arguments, self.path: each}))
        verdicts = [self.fails(values) for values in itertools.islice(others, _WITHOUT)]
        return False in verdicts and True not in verdicts

    def special_value(self) -> InputClause | None:
        """Returns the special value that all failing values of the argument hold, and no passing ones without NaN."""
        failing: list[frozenset[SpecialInput]] = [self.specials(self.own)]
        passing: list[frozenset[SpecialInput]] = []
        for values in self._fills():
            held, is_wrong = self.specials(values), self.fails(values)
            if is_wrong is not None:
                (failing if is_wrong else passing).append(held)
        common = sorted(frozenset.intersection(*failing), key=preference) if passing else ()
        nan = SpecialInput(self.path, SpecialValue.NAN)
        hides = not any(nan in held for held in failing)
        for special in common:
            others = [held for held in passing if special in held]
            if others and not (hides and all(nan in held for held in others)):
                continue

            def holds(inputs: Mapping[str, Array], special: SpecialInput = special, lone: bool = not others) -> bool:
                held = self.specials(inputs[self.path])
                return special in held and (lone or nan not in held)

            return InputClause(self.path, special.text() + " and no NaN" * bool(others), holds)
        return None

    def _fills(self) -> Iterator[Array]:
        # One element of the case's own replaced by an ordinary one, for how much a special value fills, and families.
        rng = np.random.default_rng(0)
        yield self.slot.kind.simplify(self.slot, self.own)
        for place in (0, -1):
            changed = self.own.copy().reshape(-1)
            changed[place] = self.slot.nearest(1)
            yield self.slot.repair(changed.reshape(self.own.shape))
        applicable = [family for family in FAMILIES.values() if family.applies(self.slot)]
        for family in sorted(applicable, key=lambda family: _GROUPS.index(family.group))[:_MOST_FILLS]:
            yield family.fill(self.slot, rng, targeted=True)

    def number(self) -> InputClause | None:
        """Returns the sign or the threshold by which an element decides."""
        is_number = is_float(self.own.dtype) or is_integer(self.own.dtype)
        if not self.passing or not is_number or not self.slot.kind.is_data or self.slot.kind.jointly_constrained:
            return None
        wide = np.asarray(widen(self.own), np.float64).ravel()
        size = np.where(np.isfinite(wide), np.abs(wide), 0.0)
        place = int(np.argmax(size))
        return self._number_at(place, float(wide[place])) if size[place] else None

    def _number_at(self, place: int, own: float) -> InputClause | None:
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
            if fails(number) and len(known) > _ENOUGH and all(known.values()):
                return None
        for of, size in (("", float), ("of magnitude ", abs)):
            by_size: dict[float, set[bool]] = {}
            for number, is_wrong in known.items():
                by_size.setdefault(size(number), set()).add(is_wrong)
            verdicts = [(number, wrong.pop()) for number, wrong in sorted(by_size.items()) if len(wrong) == 1]
            turns = [(one[0], other[0]) for one, other in itertools.pairwise(verdicts) if one[1] != other[1]]
            if len(verdicts) == len(by_size) and len(turns) == 1 + (not verdicts[0][1] and not verdicts[-1][1]):
                ends = [(low, high) if 0 in (low, high) else _bisect(low, high, fails) for low, high in turns]
                lower, upper = (None if verdicts[0][1] else ends[0]), (None if verdicts[-1][1] else ends[-1])
                if of and (lower is None or lower[0] == 0):
                    continue  # every number other than 0, or one that is small enough: zeros are special
                # The numbers themselves pass; infinities are within a range without an end.
                passing = lower[0] if lower else -math.inf, upper[1] if upper else math.inf

                def holds(
                    inputs: Mapping[str, Array], size: Size = size, passing: tuple[float, float] = passing
                ) -> bool:
                    numbers = np.asarray(widen(inputs[self.path]), np.float64).ravel().tolist()
                    low, high = passing
                    return any(low < size(n) < high or size(n) == math.inf == high for n in numbers)

                return InputClause(self.path, f"{self.path} holds a {_range(lower, upper, of)}", holds)
        return None


def _range(lower: tuple[float, float] | None, upper: tuple[float, float] | None, of: str) -> str:
    # In words, the numbers above the first two ones, of which the second fails, and below the last two.
    if lower and upper:
        return f"number {of or 'from '}{_shorter(*lower):.6g} to {_shorter(*upper):.6g}"
    (low, high), is_above = (lower, True) if lower else (upper or (0.0, 0.0), False)
    passing, failing = (low, high) if is_above else (high, low)
    if passing == 0:
        return f"{'positive' if is_above else 'negative'} number"
    if _shorter(low, high) == failing:
        return f"number {of or 'of '}{failing:.6g} or {'more' if is_above else 'less'}"
    return f"number {of}{'over' if is_above else 'below'} {passing:.6g}"


def _shorter(one: float, other: float) -> float:
    return min(one, other, key=lambda number: len(f"{number:.6g}"))


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
