"""Computes what depends on no memory at once, and puts the rest on a tape for each case."""

from collections.abc import Sequence
from typing import Any

from kerneltest.backends.simulate.interpreter import Action, Interpreter
from kerneltest.backends.simulate.ir import Operation, Rule
from kerneltest.backends.simulate.launch import Launch
from kerneltest.backends.simulate.memory import Access
from kerneltest.backends.simulate.tape import Pointer, Slot, Tape, Value
from kerneltest.core.dtypes import Array

# Loops of more turns are run as they come: their tape would hold an index array for each.
_UNROLLED = 128


class Recorder(Interpreter):
    """An interpreter for which loaded values are slots of a tape.

    Loads and stores whose elements are known are checked now, once for all cases. Loops that depend on loaded values
    are run by an interpreter of their own when the tape gets there.
    """

    def __init__(self, launch: Launch, tape: Tape) -> None:
        super().__init__(launch, {}, None)
        self.tape = tape

    def apply(self, rule: Rule, operands: Sequence[Value], results: int = 1) -> tuple[Value, ...]:
        """Computes something now, or puts it on the tape."""
        if any(isinstance(operand, Slot) for operand in operands):
            return self.tape.add_rule(rule, operands, results)
        values = rule.compute(*operands)
        return values if isinstance(values, tuple) else (values,)

    def touch(
        self, op: Operation, kind: str, action: Action, pointer: Pointer, mask: Value | None, extras: Sequence[Value]
    ) -> Value:
        """Checks an access now, where its elements are known, and puts it on the tape."""
        launch = self.launch
        if kind == "load" and mask is not None and not extras:
            launch.watch.sources[f"a masked load without `other` at {op.place}"] = None
        where = self.elements(pointer, mask)
        fixed: Access | None = None
        unread: Array | None = None
        if any(isinstance(part, Slot) for part in where):
            launch.dynamic = True
        else:
            fixed = launch.access(kind, pointer.buffer, op.place, where)
            unread = launch.watch.see(fixed)
            if kind == "store":
                launch.stores.append(fixed)
        ins = [self.tape.slot_of(part).number for part in where]
        more = [self.tape.slot_of(extra).number for extra in extras]
        out = self.tape.slot()

        def step(values: list[Any], masks: list[Any]) -> None:
            access, missing = fixed, unread
            if access is None:
                access = launch.access(kind, pointer.buffer, op.place, [values[i] for i in ins])
                launch.watch.see_address(access, [masks[i] for i in ins])
            if launch.dynamic:
                missing = launch.watch.see(access)
            values[out.number], masks[out.number] = action(
                access, missing, [values[i] for i in more], [masks[i] for i in more]
            )

        self.tape.add(step)
        return out

    def postponed(self, op: Operation, carried: Sequence[Value], turns: int | None) -> Sequence[Value] | None:
        """Slots for the results of a loop whose turns are not known, or too many to be put on the tape."""
        if turns is not None and turns <= _UNROLLED:
            return None
        launch, tape = self.launch, self.tape
        launch.dynamic = True
        captured = {number: self.environment[number] for number in op.uses() if number in self.environment}
        ins = {number: tape.slot_of(_offset(value)).number for number, value in captured.items()}
        enabled = None if self.enabled is None else tape.slot_of(self.enabled).number
        outs = [tape.slot() for _ in op.results]

        def step(values: list[Any], masks: list[Any]) -> None:
            inner = Interpreter(launch, {}, None if enabled is None else values[enabled])
            for number, slot in ins.items():
                inner.mark(values[slot], masks[slot])
                inner.environment[number] = _like(captured[number], values[slot])
            inner.run(op)
            for out, number in zip(outs, op.results, strict=True):
                value = _offset(inner.environment[number])
                values[out.number], masks[out.number] = value, inner.undefined(value)

        tape.add(step)
        if len(carried) != len(outs):
            return outs
        return [_like(before, out) for before, out in zip(carried, outs, strict=True)]


def _offset(value: Value) -> Array | Slot:
    return value.offset if isinstance(value, Pointer) else value


def _like(value: Value, offset: Array | Slot) -> Value:
    """`offset`, as a pointer into the buffer that `value` points into, if that is one."""
    return Pointer(value.buffer, offset) if isinstance(value, Pointer) else offset
