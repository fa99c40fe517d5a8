"""The tape: the steps that remain for each case after everything that does not depend on memory has been computed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltest.backends.simulate.ir import Rule
from kerneltest.core.dtypes import Array


@dataclass(frozen=True, slots=True)
class TapeSlot:
    """A value that a step of the tape computes, by its number."""

    number: int


@dataclass(frozen=True, slots=True)
class BufferPointer:
    """Pointers into one buffer.

    Attributes:
      buffer: the buffer's number.
      offset: offsets in elements.
    """

    buffer: int
    offset: Array | TapeSlot


Value = Any  # Array | TapeSlot | BufferPointer

# A step reads values and their masks of undefined elements (None if all are defined), and sets its results in both.
Step = Callable[[list[Any], list[Array | None]], None]


class Tape:
    """Steps in order, on numbered values some of which are known beforehand."""

    def __init__(self) -> None:
        self._known: list[Array | None] = []
        self._steps: list[Step] = []

    def new_slot(self, content: Array | None = None) -> TapeSlot:
        """Returns a slot for a new value, which is known beforehand or set by a step."""
        self._known.append(content)
        return TapeSlot(len(self._known) - 1)

    def slot_of(self, value: Value) -> TapeSlot:
        """Returns the slot of a value, a new one if the value is known."""
        return value if isinstance(value, TapeSlot) else self.new_slot(value)

    def add(self, step: Step) -> None:
        """Appends a step."""
        self._steps.append(step)

    def add_rule(self, rule: Rule, operands: Sequence[Value], results: int) -> tuple[TapeSlot, ...]:
        """Appends a computation, and returns the slots of its results."""
        ins = [self.slot_of(operand).number for operand in operands]
        outs = tuple(self.new_slot() for _ in range(results))
        self.add(_computation(rule, ins, [out.number for out in outs]))
        return outs

    def run(self) -> None:
        """Executes all steps."""
        values: list[Any] = self._known.copy()
        masks: list[Array | None] = [None] * len(values)
        with np.errstate(all="ignore"):
            for step in self._steps:
                step(values, masks)


def _computation(rule: Rule, ins: Sequence[int], outs: Sequence[int]) -> Step:
    single = outs[0] if len(outs) == 1 else None

    def step(values: list[Any], masks: list[Array | None]) -> None:
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
