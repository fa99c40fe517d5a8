"""Experiments on the inputs of a failing case: the special value, or the numbers, without which it passes.

One argument at a time gets other values, and all others keep those of the failing case: the values of each family, for
special values, and then other numbers in place of one element, for a sign or for a threshold, which is bisected. What
some passing case holds as well, or some failing one lacks, is not a condition.
"""

from collections.abc import Callable, Iterator, Mapping
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
from kerneltest.records.evidence import SpecialInput
from kerneltest.triage.conditions import preference

_MOST_FILLS = 24  # other values of an argument
_MOST_ELEMENTS = 2  # whose numbers are replaced
_MOST_BISECTED = 40  # numbers that are tried for a threshold
_NUMBERS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, 10.0, -10.0, 100.0, -100.0, 1000.0, -1000.0, 30000.0)


def tested_inputs(pairing: Pairing, case: ExplicitCase, trials: Trials) -> str:
    """Returns the condition on the inputs of a failing case in words; "" if none is confirmed."""
    for path, slot in signature_slots(pairing, case.signature).items():
        if pairing.leaves[path].derivation is None and case.arguments[path].size:
            experiment = _Experiment(pairing, case, trials, path, slot)
            if words := experiment.special_value() or experiment.number():
                return words
    return ""


@dataclass(slots=True)
class _Experiment:
    # On one argument.
    pairing: Pairing
    case: ExplicitCase
    trials: Trials
    path: str
    slot: Slot

    @property
    def own(self) -> Array:
        return self.case.arguments[self.path]

    def fails(self, values: Array) -> bool | None:
        arguments = {**self.case.arguments, self.path: values}
        filled = fill_derived(self.pairing, self.case.signature, arguments, self.case.draw)
        return self.trials.fails([replace(self.case, arguments=filled)])

    def specials(self, values: Array) -> frozenset[SpecialInput]:
        counted = counted_axes(self.pairing, self.case.signature)
        return frozenset(find_special_inputs({self.path: values}, last_blocks(self.pairing), counted))

    def special_value(self) -> str:
        left, passed = set(self.specials(self.own)), False
        suspected: list[frozenset[SpecialInput]] = []
        for values in self._fills() if left else ():
            held = self.specials(values)
            is_wrong = self.fails(values)
            if is_wrong:
                left &= held
                if not left:
                    return ""
            elif is_wrong is False:
                passed = True
                suspected.append(held)
        found = [special for special in left if not any(special in held for held in suspected)]
        return min(found, key=preference).text() if found and passed else ""

    def _fills(self) -> Iterator[Array]:
        rng = np.random.default_rng(0)
        yield self.slot.kind.simplify(self.slot, self.own)
        applicable = [family for family in FAMILIES.values() if family.applies(self.slot)]
        for family in applicable[:: -(-len(applicable) // _MOST_FILLS) or 1]:
            yield family.fill(self.slot, rng, targeted=True)

    def number(self) -> str:
        if not self.slot.kind.is_data or self.slot.kind.jointly_constrained:
            return ""
        wide = np.asarray(widen(self.own), np.float64).ravel()
        if not (is_float(self.own.dtype) or is_integer(self.own.dtype)) or not np.isfinite(wide).all():
            return ""
        for place in np.argsort(-np.abs(wide), kind="stable")[:_MOST_ELEMENTS].tolist():
            if wide[place] and (words := self._number_at(place, float(wide[place]))):
                return f"{self.path} holds a number {words}"
        return ""

    def _number_at(self, place: int, own: float) -> str:
        known: dict[float, bool] = {own: True}

        def fails(number: float) -> bool | None:
            value = self.slot.nearest(number)
            if float(widen(value)) != number:
                return None
            if number not in known:
                changed = self.own.copy().reshape(-1)
                changed[place] = value
                is_wrong = self.fails(changed.reshape(self.own.shape))
                if is_wrong is None:
                    return None
                known[number] = is_wrong
            return known[number]

        for number in (*_NUMBERS, -own, 2 * own, own / 2):
            fails(number)
        if all(known.values()):
            return ""
        for size, below, above in ((abs, "of magnitude below", "of magnitude over"), (float, "below", "over")):
            numbers = sorted({size(number): wrong for number, wrong in known.items()}.items())
            if any(known[a] != known[b] for a in known for b in known if size(a) == size(b)):
                continue
            turns = [i for i in range(1, len(numbers)) if numbers[i][1] != numbers[i - 1][1]]
            if len(turns) == 1:
                (low, _), (high, grows) = numbers[turns[0] - 1], numbers[turns[0]]
                if low == 0 and size is abs:
                    return "other than 0" if grows else ""
                return f"{above if grows else below} {_threshold(low, high, fails)}"
        return ""


def _threshold(low: float, high: float, fails: Callable[[float], bool | None]) -> str:
    # The number between one that passes and one that fails, or the other way round, with as few digits as show it.
    first = fails(low)
    for _ in range(_MOST_BISECTED):
        for digits in (1, 2, 3):
            middle = float(f"{(low + high) / 2:.{digits}g}")
            if low < middle < high and (found := fails(middle)) is not None:
                low, high = (middle, high) if found == first else (low, middle)
                break
        else:
            break
    return f"{low if not first else high:.4g}"
