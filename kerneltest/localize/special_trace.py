"""The operations at which NaN and infinities appear or are lost during a run, and repairs of these operations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from kerneltest.backends.simulate.ir import Operation, Rule, Semantics, any_operand
from kerneltest.backends.simulate.ir_interpreter import IRInterpreter
from kerneltest.backends.simulate.launch import Launch
from kerneltest.backends.simulate.tape import BufferPointer
from kerneltest.core.dtypes import Array, is_float
from kerneltest.localize.listing import Listing

# Operations that only move elements, or load them.
_MOVES = ("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.load", "arith.constant", "scf.")


class SpecialKind(StrEnum):
    """The kinds of events."""

    NAN_APPEARS = "nan"
    INFINITY_APPEARS = "inf"
    NAN_LOST = "lost"


@dataclass(frozen=True, slots=True)
class SpecialEvent:
    """An operation in whose result NaN or an infinity appears that no operand has, or NaN is lost.

    Attributes:
      operation: its number in the listing.
      kind: the event.
      program: the linear id of the first program in which it occurs.
      operands: the operands' values there; () if they do not correspond to the result's elements.
      result: the result's value there.
    """

    operation: int
    kind: SpecialKind
    program: int
    operands: tuple[np.generic, ...]
    result: np.generic


class SpecialTracer(IRInterpreter):
    """An interpreter that notes the first event of each kind at each operation, in order of occurrence.

    Attributes:
      events: the events, by the operation's number and the kind.
    """

    def __init__(self, launch: Launch, listing: Listing) -> None:
        super().__init__(launch, {}, None)
        self._numbers = {id(op): i for i, op in enumerate(listing.operations)}
        self.events: dict[tuple[int, SpecialKind], SpecialEvent] = {}

    def run(self, op: Operation) -> None:
        super().run(op)
        number = self._numbers.get(id(op))
        if number is None or not op.results or op.name.startswith(_MOVES):
            return
        operands = [self.environment[n] for n in op.operands]
        result = self.environment[op.results[0]]
        if any(isinstance(value, BufferPointer) for value in (result, *operands)):
            return
        for kind in SpecialKind:
            lanes = find_events(op, kind, operands, result)
            if lanes is not None and lanes.any() and (number, kind) not in self.events:
                self.events[number, kind] = self._event(number, kind, operands, result, lanes)

    def _event(
        self, number: int, kind: SpecialKind, operands: Sequence[Array], result: Array, lanes: Array
    ) -> SpecialEvent:
        at = tuple(int(i) for i in np.argwhere(lanes)[0])
        correspond = all(operand.ndim == lanes.ndim for operand in operands)
        values = tuple(np.broadcast_to(operand, lanes.shape)[at] for operand in operands) if correspond else ()
        program = int(self.launch.programs[at[0] if lanes.shape[0] > 1 else 0])
        return SpecialEvent(number, kind, program, values, np.broadcast_to(result, lanes.shape)[at])


def find_events(op: Operation, kind: SpecialKind, operands: Sequence[Array], result: Array) -> Array | None:
    """Returns a mask of a result's elements at which an event occurs; None if that cannot be determined."""
    is_lost = kind is SpecialKind.NAN_LOST
    if not is_float(result.dtype) or (op.name == "tt.dot" and is_lost):
        return None
    before = np.zeros((1,) * result.ndim, bool)
    for operand in operands:
        if is_float(operand.dtype):
            special = ~np.isfinite(operand) if kind is SpecialKind.INFINITY_APPEARS else np.isnan(operand)
            special = _by_result(op, special, result.ndim)
            if special.ndim != result.ndim:
                return None
            before = before | special
    after = np.isinf(result) if kind is SpecialKind.INFINITY_APPEARS else np.isnan(result)
    return np.asarray(before & ~after if is_lost else after & ~before)


def _by_result(op: Operation, special: Array, axes: int) -> Array:
    """Returns a mask of the result's elements that depend on special elements of an operand."""
    if op.name == "tt.reduce":
        return np.asarray(special.any(axis=op.attributes["axis"] + 1))
    if op.name in ("tt.dot", "tt.scan"):
        return special.reshape(special.shape[0], -1).any(axis=1).reshape(-1, *(1,) * (axes - 1))
    return special


def repair(op: Operation, kind: SpecialKind, value: float) -> Sequence[Operation]:
    """Returns an operation that gives `value` wherever an event of this kind occurs."""
    original = op.semantics.rule(op)

    def compute(*operands: Array) -> Array | tuple[Array, ...]:
        results = original.compute(*operands)
        first, *rest = results if isinstance(results, tuple) else (results,)
        lanes = find_events(op, kind, operands, first)
        assert lanes is not None
        first = np.where(lanes, np.asarray(value).astype(first.dtype), first)
        return (first, *rest) if rest else first

    rule = Rule(compute, any_operand)
    return [replace(op, semantics=Semantics(lambda _: rule))]


_SIGNS = {"sub": "-", "add": "+", "mul": "*", "div": "/"}
_NAMES = {"convert_element_type": "a cast", "select_n": "where", "reduce_sum": "a sum", "reduce_max": "a maximum"}


def describe_event(op: Operation, primitive: str, event: SpecialEvent) -> str:
    """Returns `-inf - -inf is nan`: an operation with its operands' values, and its result."""
    values, result = [_number(value) for value in event.operands], _number(event.result)
    name = _NAMES.get(primitive, primitive)
    if primitive in _SIGNS and len(values) == 2:
        expression = f"{values[0]} {_SIGNS[primitive]} {values[1]}"
    elif values:
        expression = f"{name}({', '.join(values)})"
    else:
        expression = f"{name} of {'NaN' if event.kind is SpecialKind.NAN_LOST else 'numbers other than NaN'}"
    if event.kind is SpecialKind.INFINITY_APPEARS and not any(float(value) == 0 for value in event.operands):
        return f"{expression} overflows {op.types[0].dtype.name} to {result}"
    return f"{expression} is {result}" + (": NaN is lost" if event.kind is SpecialKind.NAN_LOST else "")


def _number(value: np.generic) -> str:
    return f"{float(value):.6g}" if is_float(np.asarray(value).dtype) else str(value)
