"""An interpreter of Triton IR that executes each operation for all programs at once."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerneltest.backends.simulate.access_checker import MemoryAccess
from kerneltest.backends.simulate.ir import Operation, Region, Rule, any_operand, dense_masks, unsupported_failure
from kerneltest.backends.simulate.launch import Launch
from kerneltest.backends.simulate.tape import BufferPointer, Value
from kerneltest.core.details import Access
from kerneltest.core.dtypes import Array

# Carries out an access, given the mask of elements that are not readable, further operands and their masks. Returns the
# access's value and its mask of undefined elements.
Action = Callable[[MemoryAccess, Array | None, Sequence[Array], Sequence[Array | None]], tuple[Array, Array | None]]


def _choose(condition: Array, yes: Array, no: Array) -> Array:
    return np.where(condition.reshape(-1, *(1,) * (max(yes.ndim, no.ndim) - 1)), yes, no)


_SELECT = Rule(_choose, lambda values, masks: _choose(values[0], *dense_masks(values[1:], masks[1:])))
_BOTH = Rule(np.logical_and, any_operand)

_FIRST_SWEEP = 128  # masks of undefined elements, before those of dead values are dropped for the first time


def array_of(value: Value) -> Any:
    """Returns a value's array, that of the offsets for pointers."""
    array: Any = value.offset if isinstance(value, BufferPointer) else value
    return array


class IRInterpreter:
    """Runs operations whose operands are all known.

    Attributes:
      launch: the launch whose programs run.
      environment: values by number, results included.
      enabled: the programs that the control flow lets act, (programs,) bool; None for all.
    """

    def __init__(self, launch: Launch, environment: dict[int, Value], enabled: Value | None) -> None:
        self.launch = launch
        self.environment = environment
        self.enabled = enabled
        self._masks: dict[int, tuple[Array, Array]] = {}  # arrays and the masks of their undefined elements, by id
        self._most_masks = _FIRST_SWEEP

    def undefined_mask(self, value: Value) -> Array | None:
        """Returns the mask of a value's undefined elements, or None if all are defined."""
        return self._masks[id(value)][1] if id(value) in self._masks else None

    def mark_undefined(self, value: Array, mask: Array | None) -> None:
        """Sets the mask of a value's undefined elements."""
        if mask is not None:
            self._masks[id(value)] = (value, mask)

    # Regions and operations

    def enter(self, region: Region, arguments: Sequence[Value]) -> list[Value]:
        """Runs a region, and returns the values that it yields."""
        self.environment.update(zip(region.arguments, arguments, strict=True))
        for op in region.operations:
            self.run(op)
        return [self.environment[number] for number in region.yields]

    def run(self, op: Operation) -> None:
        """Runs one operation."""
        if len(self._masks) > self._most_masks:
            alive = {id(array_of(value)) for value in (*self.environment.values(), self.enabled)}
            self._masks = {key: each for key, each in self._masks.items() if key in alive}
            self._most_masks = max(_FIRST_SWEEP, 2 * len(self._masks))
        operands = [self.environment[number] for number in op.operands]
        execute = op.semantics.execute
        results = self.compute(op, operands) if execute is None else execute(self, op, operands)
        self.environment.update(zip(op.results, results, strict=True))

    def postpone_loop(self, op: Operation, carried: Sequence[Value], trips: int | None) -> Sequence[Value] | None:
        """Returns the results of a loop that is run later, or None if it is to be run now.

        Args:
          op: the loop.
          carried: the values that the first iteration starts with.
          trips: the number of iterations; None if unknown.
        """
        return None

    # Values

    def compute(self, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
        """Returns the results of an operation that has a rule, which is applied to the offsets of pointers.

        Raises:
          Failure: `unavailable`, for an operation that the simulator does not support.
        """
        rule = op.semantics.rule(op)
        buffers = {operand.buffer for operand in operands if isinstance(operand, BufferPointer)}
        if not buffers:
            return self.apply(rule, operands, len(op.results))
        if len(buffers) > 1:
            raise unsupported_failure(f"{op.name} on pointers into several buffers", op.place)
        (buffer,) = buffers
        offsets = [operand.offset if isinstance(operand, BufferPointer) else operand for operand in operands]
        return [BufferPointer(buffer, offset) for offset in self.apply(rule, offsets, len(op.results))]

    def apply(self, rule: Rule, operands: Sequence[Value], results: int = 1) -> tuple[Value, ...]:
        """Returns the results of a rule, with their undefined elements marked."""
        values = rule.compute(*operands)
        values = values if isinstance(values, tuple) else (values,)
        masks = [self.undefined_mask(operand) for operand in operands]
        if any(mask is not None for mask in masks):
            mask = rule.undefined(operands, masks)
            for value in values:
                self.mark_undefined(value, mask)
        return values

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        """Returns `yes` for the programs for which the condition (programs,) holds, and `no` for the others."""
        if yes is no:
            return yes
        if isinstance(yes, BufferPointer):
            return BufferPointer(yes.buffer, self.select(condition, yes.offset, no.offset))
        return self.apply(_SELECT, [condition, yes, no])[0]

    def both(self, a: Value | None, b: Value | None) -> Value | None:
        """Returns the conjunction of two conditions (programs,), of which None always holds."""
        if a is None or b is None:
            return b if a is None else a
        return self.apply(_BOTH, [a, b])[0]

    # Memory

    def access(
        self,
        op: Operation,
        kind: Access,
        action: Action,
        pointer: BufferPointer,
        mask: Value | None,
        extras: Sequence[Value],
    ) -> Value:
        """Checks one access of all programs, carries it out, and returns its value.

        Args:
          op: the operation.
          kind: load, store or atomic.
          action: carries it out.
          pointer, mask: the elements that it accesses.
          extras: further operands of `action`.
        """
        access = self.launch.next_access(kind, pointer.buffer, op.place, self.elements(pointer, mask))
        unread = self.launch.checker.check(access)
        value, undefined = action(access, unread, extras, list(map(self.undefined_mask, extras)))
        self.mark_undefined(value, undefined)
        return value

    def elements(self, pointer: BufferPointer, mask: Value | None) -> list[Value]:
        """Returns the operands that determine the elements of an access: offsets, followed by masks."""
        return [pointer.offset, *(part for part in (mask, self.enabled) if part is not None)]
