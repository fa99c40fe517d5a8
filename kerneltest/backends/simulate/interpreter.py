"""Goes through the IR with all programs at once."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerneltest.backends.simulate.ir import Operation, Region, Rule, any_operand, given
from kerneltest.backends.simulate.launch import Launch
from kerneltest.backends.simulate.memory import Access
from kerneltest.backends.simulate.tape import Pointer, Value
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict

# What an access does: from it, the mask of elements that nobody wrote, further operands and their masks, to a value and
# its mask.
Action = Callable[[Access, Array | None, Sequence[Array], Sequence[Array | None]], tuple[Array, Array | None]]


def _choose(condition: Array, yes: Array, no: Array) -> Array:
    return np.where(condition.reshape(-1, *(1,) * (max(yes.ndim, no.ndim) - 1)), yes, no)


_SELECT = Rule(_choose, lambda values, masks: _choose(values[0], *given(values[1:], masks[1:])))
_BOTH = Rule(np.logical_and, any_operand)


_KEPT = 128  # values with undefined elements, beyond which those that nobody will use again are dropped


def _array(value: Any) -> Any:
    return value.offset if isinstance(value, Pointer) else value


class Interpreter:
    """Runs operations whose operands are all known.

    Args:
      launch: whose programs run.
      environment: values by number; gets the results.
      enabled: (programs,) bool: those that the control flow lets act; None for all.
    """

    def __init__(self, launch: Launch, environment: dict[int, Value], enabled: Value | None) -> None:
        self.launch = launch
        self.environment = environment
        self.enabled = enabled
        self._masks: dict[int, tuple[Array, Array]] = {}  # arrays with undefined elements and which these are, by id
        self._kept = _KEPT

    def undefined(self, value: Value) -> Array | None:
        """Which elements of a value are undefined, or None."""
        return self._masks[id(value)][1] if id(value) in self._masks else None

    def mark(self, value: Array, mask: Array | None) -> None:
        """Says which elements of a value are undefined."""
        if mask is not None:
            self._masks[id(value)] = (value, mask)

    # Regions and operations

    def enter(self, region: Region, arguments: Sequence[Value]) -> list[Value]:
        """Runs a region; what it yields."""
        self.environment.update(zip(region.arguments, arguments, strict=True))
        for op in region.operations:
            self.run(op)
        return [self.environment[number] for number in region.yields]

    def run(self, op: Operation) -> None:
        """Runs one operation."""
        if len(self._masks) > self._kept:
            alive = {id(_array(value)) for value in (*self.environment.values(), self.enabled)}
            self._masks = {key: each for key, each in self._masks.items() if key in alive}
            self._kept = max(_KEPT, 2 * len(self._masks))
        operands = [self.environment[number] for number in op.operands]
        execute = op.semantics.execute
        results = self.compute(op, operands) if execute is None else execute(self, op, operands)
        self.environment.update(zip(op.results, results, strict=True))

    def postponed(self, op: Operation, carried: Sequence[Value], turns: int | None) -> Sequence[Value] | None:
        """The results of a loop that is left for later, or None if it is to be run now.

        Args:
          op: the loop.
          carried: the values that its first turn starts with.
          turns: how many, or None where that is not known.
        """
        return None

    # Values

    def compute(self, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
        """The results of an operation that has a rule; of one on pointers, from their offsets.

        Raises:
          Failure: `unimplemented`, for an operation that the simulator does not know.
        """
        rule = op.semantics.rule(op)
        buffers = {operand.buffer for operand in operands if isinstance(operand, Pointer)}
        if not buffers:
            return self.apply(rule, operands, len(op.results))
        if len(buffers) > 1:
            raise Failure(Verdict.UNIMPLEMENTED, f"{op.name} on pointers into several buffers is not simulated")
        (buffer,) = buffers
        offsets = [operand.offset if isinstance(operand, Pointer) else operand for operand in operands]
        return [Pointer(buffer, offset) for offset in self.apply(rule, offsets, len(op.results))]

    def apply(self, rule: Rule, operands: Sequence[Value], results: int = 1) -> tuple[Value, ...]:
        """Computes something."""
        values = rule.compute(*operands)
        values = values if isinstance(values, tuple) else (values,)
        masks = [self.undefined(operand) for operand in operands]
        if any(mask is not None for mask in masks):
            mask = rule.undefined(operands, masks)
            for value in values:
                self.mark(value, mask)
        return values

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        """Per program, `yes` where the condition (programs,) holds."""
        if yes is no:
            return yes
        if isinstance(yes, Pointer):
            return Pointer(yes.buffer, self.select(condition, yes.offset, no.offset))
        return self.apply(_SELECT, [condition, yes, no])[0]

    def both(self, a: Value | None, b: Value | None) -> Value | None:
        """Of two conditions (programs,), None for one that always holds, where both hold."""
        if a is None or b is None:
            return b if a is None else a
        return self.apply(_BOTH, [a, b])[0]

    # Memory

    def touch(
        self, op: Operation, kind: str, action: Action, pointer: Pointer, mask: Value | None, extras: Sequence[Value]
    ) -> Value:
        """One access of all programs: checked, then carried out by `action`; its value.

        Args:
          op: the operation.
          kind: `load`, `store` or `atomic`.
          action: what it does.
          pointer, mask: the elements it touches.
          extras: further operands of `action`.
        """
        access = self.launch.access(kind, pointer.buffer, op.place, self.elements(pointer, mask))
        value, undefined = action(access, self.launch.watch.see(access), extras, list(map(self.undefined, extras)))
        self.mark(value, undefined)
        return value

    def elements(self, pointer: Pointer, mask: Value | None) -> list[Any]:
        """What says which elements an access touches: offsets, and masks."""
        return [pointer.offset, *(part for part in (mask, self.enabled) if part is not None)]
