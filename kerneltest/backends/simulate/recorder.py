"""An interpreter that computes whatever does not depend on memory at once, and records the rest on a tape."""

from collections.abc import Sequence
from typing import Any

from kerneltest.backends.simulate.access_checker import MemoryAccess
from kerneltest.backends.simulate.ir import Operation, Rule
from kerneltest.backends.simulate.ir_interpreter import Action, IRInterpreter
from kerneltest.backends.simulate.launch import Launch
from kerneltest.backends.simulate.tape import BufferPointer, Tape, TapeSlot, Value
from kerneltest.core.details import Access, UndefinedCause, UndefinedSource
from kerneltest.core.dtypes import Array

# Longer loops are interpreted when the tape reaches them: recorded, each iteration would hold an index array.
_MOST_UNROLLED = 128


class Recorder(IRInterpreter):
    """An interpreter for which loaded values are slots of a tape.

    Loads and stores whose elements are known are checked now, once for all cases. Loops that depend on loaded values
    are run by an interpreter of their own when the tape reaches them.
    """

    def __init__(self, launch: Launch, tape: Tape) -> None:
        super().__init__(launch, {}, None)
        self.tape = tape

    def apply(self, rule: Rule, operands: Sequence[Value], results: int = 1) -> tuple[Value, ...]:
        """Computes a rule now, or records it if an operand is not known yet."""
        if any(isinstance(operand, TapeSlot) for operand in operands):
            return self.tape.add_rule(rule, operands, results)
        values = rule.compute(*operands)
        return values if isinstance(values, tuple) else (values,)

    def access(
        self,
        op: Operation,
        kind: Access,
        action: Action,
        pointer: BufferPointer,
        mask: Value | None,
        extras: Sequence[Value],
    ) -> Value:
        """Checks an access now if its elements are known, and records it."""
        launch = self.launch
        if kind is Access.LOAD and mask is not None and not extras:
            launch.checker.sources[UndefinedSource(UndefinedCause.MASKED, op.place)] = None
        where = self.elements(pointer, mask)
        known: MemoryAccess | None = None
        undefined: Array | None = None
        if any(isinstance(part, TapeSlot) for part in where):
            launch.dynamic = True
        else:
            known = launch.next_access(kind, pointer.buffer, op.place, where)
            undefined = launch.checker.check(known)
        ins = [self.tape.slot_of(part).number for part in where]
        more = [self.tape.slot_of(extra).number for extra in extras]
        out = self.tape.new_slot()

        def step(values: list[Any], masks: list[Array | None]) -> None:
            access, unread = known, undefined
            if access is None:
                access = launch.next_access(kind, pointer.buffer, op.place, [values[i] for i in ins])
                launch.checker.check_address(access, [masks[i] for i in ins])
            if launch.dynamic:
                unread = launch.checker.check(access)
            values[out.number], masks[out.number] = action(
                access, unread, [values[i] for i in more], [masks[i] for i in more]
            )

        self.tape.add(step)
        return out

    def postpone_loop(self, op: Operation, carried: Sequence[Value], trips: int | None) -> Sequence[Value] | None:
        """Returns slots for the results of a loop whose trip count is unknown or too large to unroll; else None."""
        if trips is not None and trips <= _MOST_UNROLLED:
            return None
        launch, tape = self.launch, self.tape
        launch.dynamic = True
        captured = {number: self.environment[number] for number in op.uses() if number in self.environment}
        ins = {number: tape.slot_of(_offset(value)).number for number, value in captured.items()}
        enabled = None if self.enabled is None else tape.slot_of(self.enabled).number
        outs = [tape.new_slot() for _ in op.results]

        def step(values: list[Any], masks: list[Array | None]) -> None:
            inner = IRInterpreter(launch, {}, None if enabled is None else values[enabled])
            for number, slot in ins.items():
                inner.mark_undefined(values[slot], masks[slot])
                inner.environment[number] = _with_offset(captured[number], values[slot])
            inner.run(op)
            for out, number in zip(outs, op.results, strict=True):
                value = _offset(inner.environment[number])
                values[out.number], masks[out.number] = value, inner.undefined_mask(value)

        tape.add(step)
        if len(carried) != len(outs):
            return outs
        return [_with_offset(before, out) for before, out in zip(carried, outs, strict=True)]


def _offset(value: Value) -> Array | TapeSlot:
    return value.offset if isinstance(value, BufferPointer) else value


def _with_offset(value: Value, offset: Array | TapeSlot) -> Value:
    """Returns `offset`, as a pointer into the buffer of `value` if that is a pointer."""
    return BufferPointer(value.buffer, offset) if isinstance(value, BufferPointer) else offset
