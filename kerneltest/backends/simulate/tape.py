"""What is left to do for each case once all that depends on no memory is done."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltest.backends.simulate.ir import Rule
from kerneltest.core.dtypes import Array


@dataclass(frozen=True, slots=True)
class Slot:
    """A value that the tape will give."""

    number: int


@dataclass(frozen=True, slots=True)
class Pointer:
    """Pointers into one buffer.

    Attributes:
      buffer: its number.
      offset: in elements.
    """

    buffer: int
    offset: Array | Slot


Value = Any  # Array | Slot | Pointer

# Takes the values and their masks of undefined elements (None where all are defined), and sets its results in both.
Step = Callable[[list[Any], list[Any]], None]


class Tape:
    """Steps to take one after another, on numbered values of which some are known beforehand."""

    def __init__(self) -> None:
        self._known: list[Any] = []
        self._steps: list[Step] = []

    def slot(self, content: Any = None) -> Slot:
        """A new value, known beforehand or given by a step."""
        self._known.append(content)
        return Slot(len(self._known) - 1)

    def slot_of(self, value: Value) -> Slot:
        """A slot for a value that may be known."""
        return value if isinstance(value, Slot) else self.slot(value)

    def add(self, step: Step) -> None:
        """Adds a step at the end."""
        self._steps.append(step)

    def add_rule(self, rule: Rule, operands: Sequence[Value], results: int) -> tuple[Slot, ...]:
        """Adds a computation; its results."""
        ins = [self.slot_of(operand).number for operand in operands]
        outs = tuple(self.slot() for _ in range(results))
        self.add(_computation(rule, ins, [out.number for out in outs]))
        return outs

    def run(self) -> None:
        """Takes all steps."""
        values = self._known.copy()
        masks: list[Any] = [None] * len(values)
        with np.errstate(all="ignore"):
            for step in self._steps:
                step(values, masks)


def _computation(rule: Rule, ins: Sequence[int], outs: Sequence[int]) -> Step:
    single = outs[0] if len(outs) == 1 else None

    def step(values: list[Any], masks: list[Any]) -> None:
        operands = [values[i] for i in ins]
        results = rule.compute(*operands)
        undefined = [masks[i] for i in ins]
        mask = rule.undefined(operands, undefined) if any(m is not None for m in undefined) else None
        if single is not None:
            values[single] = results[0] if isinstance(results, tuple) else results
            masks[single] = mask
            return
        for out, value in zip(outs, results, strict=True):
            values[out], masks[out] = value, mask

    return step
