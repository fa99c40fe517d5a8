"""An interpreter of Triton IR that executes each operation for all programs at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltest.backends.simulate.ir import Operation, Region, Rule, dense_masks, undefined_logical, unsupported_failure
from kerneltest.backends.simulate.memory import Launch, MemoryAccess
from kerneltest.core.details import Access, UndefinedCause, UndefinedSource
from kerneltest.core.dtypes import Array

# The tape: the steps that remain for each case after everything that does not depend on memory has been computed.


@dataclass(frozen=True, slots=True)
class TapeSlot:
    """A value that a step of the tape computes, by its number."""

    number: int


@dataclass(frozen=True, slots=True)
class BufferPointer:
    """Pointers into the buffer of a number, by their offsets in elements."""

    buffer: int
    offset: Array | TapeSlot


Value = Any  # Array | TapeSlot | BufferPointer

# A step reads values and their masks of undefined elements (None if all are defined), and sets its results in both.
Step = Callable[[list[Any], list[Array | None]], None]


class Tape:
    """Steps in order, on numbered values some of which are known beforehand."""

    def __init__(self) -> None:
        self._known: list[Array | None] = []
        self._steps: list[tuple[Step, Sequence[int]]] = []  # with the values that each reads
        self._last: dict[int, int] = {}  # the place of the last step that reads a value, which is then dropped

    def new_slot(self, content: Array | None = None) -> TapeSlot:
        """Returns a slot for a new value, which is known beforehand or set by a step."""
        self._known.append(content)
        return TapeSlot(len(self._known) - 1)

    def slot_of(self, value: Value) -> TapeSlot:
        """Returns the slot of a value, a new one if the value is known."""
        return value if isinstance(value, TapeSlot) else self.new_slot(value)

    def add_rule(self, rule: Rule, operands: Sequence[Value], results: int) -> tuple[TapeSlot, ...]:
        """Appends a computation, and returns the slots of its results."""
        ins = [self.slot_of(operand).number for operand in operands]
        outs = tuple(self.new_slot() for _ in range(results))

        def step(values: list[Any], masks: list[Array | None]) -> None:
            given = [values[i] for i in ins]
            computed = rule.compute(*given)
            mask = rule.undefined_mask(given, [masks[i] for i in ins])
            for out, value in zip(outs, computed if isinstance(computed, tuple) else (computed,), strict=True):
                values[out.number], masks[out.number] = value, mask

        self.add_step(step, ins)
        return outs

    def add_step(self, step: Step, reads: Sequence[int]) -> None:
        """Appends a step that reads the values of some numbers."""
        self._last.update(dict.fromkeys(reads, len(self._steps)))
        self._steps.append((step, reads))

    def run(self) -> None:
        values: list[Any] = self._known.copy()
        masks: list[Array | None] = [None] * len(values)
        with np.errstate(all="ignore"):
            for place, (step, reads) in enumerate(self._steps):
                step(values, masks)
                for number in reads:
                    if self._last[number] == place:
                        values[number] = masks[number] = None


# Carries out an access, given the mask of elements that are not readable, further operands and their masks. Returns the
# access's value and its mask of undefined elements.
Action = Callable[[MemoryAccess, Array | None, Sequence[Array], Sequence[Array | None]], tuple[Array, Array | None]]


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """An access of all programs, as an operation asks for it, with further operands `extras` of its action."""

    op: Operation
    kind: Access
    action: Action
    pointer: BufferPointer
    mask: Value | None
    extras: Sequence[Value]


def choose(condition: Array, yes: Array, no: Array) -> Array:
    """Returns `yes` for the programs for which the condition (programs,) holds, and `no` for the others."""
    return np.where(condition.reshape(-1, *(1,) * (max(yes.ndim, no.ndim) - 1)), yes, no)


_SELECT = Rule(choose, lambda values, masks: choose(values[0], *dense_masks(values[1:], masks[1:])))
_BOTH = Rule(np.logical_and, undefined_logical(determining=False))

_FIRST_SWEEP = 128  # masks of undefined elements, before those of dead values are dropped for the first time


def array_of(value: Value) -> Any:
    """Returns a value's array, that of the offsets for pointers."""
    array: Any = value.offset if isinstance(value, BufferPointer) else value
    return array


class IRInterpreter:
    """Runs operations whose operands are all known."""

    def __init__(self, launch: Launch, environment: dict[int, Value], enabled: Value | None) -> None:
        self.launch = launch
        self.environment = environment  # values by number, results included
        self.enabled = enabled  # the programs that the control flow lets act, (programs,) bool; None for all
        self._masks: dict[int, tuple[Array, Array]] = {}  # arrays and the masks of their undefined elements, by id
        self._most_masks = _FIRST_SWEEP

    def undefined_mask(self, value: Value) -> Array | None:
        """Returns the mask of a value's undefined elements, or None if all are defined."""
        return self._masks[id(value)][1] if id(value) in self._masks else None

    def mark_undefined(self, value: Array, mask: Array | None) -> None:
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
        if len(self._masks) > self._most_masks:
            alive = {id(array_of(value)) for value in (*self.environment.values(), self.enabled)}
            self._masks = {key: each for key, each in self._masks.items() if key in alive}
            self._most_masks = max(_FIRST_SWEEP, 2 * len(self._masks))
        operands = [self.environment[number] for number in op.operands]
        execute = op.semantics.execute
        results = self.compute(op, operands) if execute is None else execute(self, op, operands)
        self.environment.update(zip(op.results, results, strict=True))

    def postpone_loop(self, op: Operation, carried: Sequence[Value], trips: int | None) -> Sequence[Value] | None:
        """Returns the results of a loop that runs later, or None to run it now; `trips` is None if unknown."""
        return None

    # Values

    def compute(self, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
        """Returns the results of an operation that has a rule, which is applied to the offsets of pointers."""
        rule = op.semantics.rule(op)
        buffers = {operand.buffer for operand in operands if isinstance(operand, BufferPointer)}
        if not buffers:
            return self.apply(rule, operands, len(op.results))
        if len(buffers) > 1:
            raise unsupported_failure(f"{op.name} on pointers into several buffers", op.place)
        (buffer,) = buffers
        offsets = self.apply(rule, list(map(array_of, operands)), len(op.results))
        return [BufferPointer(buffer, offset) for offset in offsets]

    def apply(self, rule: Rule, operands: Sequence[Value], results: int = 1) -> tuple[Value, ...]:
        """Returns the results of a rule, with their undefined elements marked."""
        values = rule.compute(*operands)
        values = values if isinstance(values, tuple) else (values,)
        mask = rule.undefined_mask(operands, [self.undefined_mask(operand) for operand in operands])
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

    def access(self, request: AccessRequest) -> Value:
        """Checks one access, carries it out, and returns its value."""
        where = self.elements(request)
        access = self.launch.next_access(request.kind, request.pointer.buffer, request.op.place, where)
        self.launch.checker.check_address(access, where, list(map(self.undefined_mask, where)))
        unread = self.launch.checker.check(access)
        extras = request.extras
        value, undefined = request.action(access, unread, extras, list(map(self.undefined_mask, extras)))
        self.mark_undefined(value, undefined)
        return value

    def elements(self, request: AccessRequest) -> list[Value]:
        """Returns the operands that determine the elements of an access: offsets, followed by masks."""
        found = [request.pointer.offset, *(part for part in (request.mask, self.enabled) if part is not None)]
        if request.kind is Access.ATOMIC:  # each lane counts, even if all of them have the same offset
            found.append(np.ones((1, *request.op.types[0].shape), bool))
        return found


# An interpreter that computes whatever does not depend on memory at once, and records the rest on a tape.

# Longer loops are interpreted when the tape reaches them: recorded, each iteration would hold an index array.
_MOST_UNROLLED = 128


class Recorder(IRInterpreter):
    """An interpreter that records a tape: known accesses are checked now, and loops that depend on loads run later."""

    def __init__(self, launch: Launch, tape: Tape) -> None:
        super().__init__(launch, {}, None)
        self.tape = tape

    def apply(self, rule: Rule, operands: Sequence[Value], results: int = 1) -> tuple[Value, ...]:
        """Computes a rule now, or records it if an operand is not known yet."""
        if any(isinstance(operand, TapeSlot) for operand in operands):
            return self.tape.add_rule(rule, operands, results)
        return super().apply(rule, operands, results)

    def access(self, request: AccessRequest) -> Value:
        """Checks an access now if its elements are known, and records it."""
        launch, kind, buffer, place = self.launch, request.kind, request.pointer.buffer, request.op.place
        if kind is Access.LOAD and request.mask is not None and not request.extras:
            launch.checker.sources[UndefinedSource(UndefinedCause.MASKED, place)] = None
        where = self.elements(request)
        known: MemoryAccess | None = None
        undefined: Array | None = None
        if any(isinstance(part, TapeSlot) for part in where):
            launch.dynamic = True
        else:
            known = launch.next_access(kind, buffer, place, where)
            undefined = launch.checker.check(known)
        ins = [self.tape.slot_of(part).number for part in where]
        more = [self.tape.slot_of(extra).number for extra in request.extras]
        out = self.tape.new_slot()

        def step(values: list[Any], masks: list[Array | None]) -> None:
            access, unread = known, undefined
            if access is None:
                found = [values[i] for i in ins]
                access = launch.next_access(kind, buffer, place, found)
                launch.checker.check_address(access, found, [masks[i] for i in ins])
            if launch.dynamic:
                unread = launch.checker.check(access)
            extras, undefined_extras = [values[i] for i in more], [masks[i] for i in more]
            values[out.number], masks[out.number] = request.action(access, unread, extras, undefined_extras)

        self.tape.add_step(step, [*ins, *more])
        return out

    def postpone_loop(self, op: Operation, carried: Sequence[Value], trips: int | None) -> Sequence[Value] | None:
        """Returns slots for the results of a loop whose trip count is unknown or too large to unroll; else None."""
        if trips is not None and trips <= _MOST_UNROLLED:
            return None
        launch, tape = self.launch, self.tape
        launch.dynamic = True
        captured = {number: self.environment[number] for number in op.uses() if number in self.environment}
        ins = {number: tape.slot_of(array_of(value)).number for number, value in captured.items()}
        enabled = None if self.enabled is None else tape.slot_of(self.enabled).number
        outs = [tape.new_slot() for _ in op.results]

        def step(values: list[Any], masks: list[Array | None]) -> None:
            inner = IRInterpreter(launch, {}, None if enabled is None else values[enabled])
            for number, slot in ins.items():
                inner.mark_undefined(values[slot], masks[slot])
                inner.environment[number] = _with_offset(captured[number], values[slot])
            inner.run(op)
            for out, number in zip(outs, op.results, strict=True):
                value = array_of(inner.environment[number])
                values[out.number], masks[out.number] = value, inner.undefined_mask(value)

        tape.add_step(step, [*ins.values(), *([] if enabled is None else [enabled])])
        if len(carried) != len(outs):
            return outs
        return [_with_offset(before, out) for before, out in zip(carried, outs, strict=True)]


def _with_offset(value: Value, offset: Array | TapeSlot) -> Value:
    return BufferPointer(value.buffer, offset) if isinstance(value, BufferPointer) else offset
