"""Where NaN and infinities appear in a run, or are lost, and what becomes of the run without that."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kerneltest.backends.simulate.interpreter import Interpreter
from kerneltest.backends.simulate.ir import Operation, Rule, Semantics, any_operand
from kerneltest.backends.simulate.launch import Launch
from kerneltest.backends.simulate.listing import Listing
from kerneltest.backends.simulate.tape import Pointer, Value
from kerneltest.core.dtypes import Array, is_float

# Operations that only move elements, or take them from memory.
_MOVES = ("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.load", "arith.constant", "scf.")


@dataclass(frozen=True, slots=True)
class Sighting:
    """An operation in whose result NaN or an infinity appears, or NaN is lost.

    Attributes:
      operation: its number in the listing.
      kind: `nan`, `inf` or `lost`.
      program: the linear id of the first program in which it does.
      operands: their values there.
      result: the result's value there.
    """

    operation: int
    kind: str
    program: int
    operands: tuple[Any, ...]
    result: Any


class Watcher(Interpreter):
    """An interpreter that notes the first time that each operation does so, in the order in which they do."""

    def __init__(self, launch: Launch, listing: Listing) -> None:
        super().__init__(launch, {}, None)
        self.numbers = {id(op): i for i, op in enumerate(listing.operations)}
        self.sightings: dict[tuple[int, str], Sighting] = {}

    def run(self, op: Operation) -> None:
        super().run(op)
        number = self.numbers.get(id(op))
        if number is None or not op.results or op.name.startswith(_MOVES):
            return
        operands = [self.environment[n] for n in op.operands]
        result = self.environment[op.results[0]]
        if isinstance(result, Pointer) or any(isinstance(operand, Pointer) for operand in operands):
            return
        for kind in ("nan", "inf", "lost"):
            lanes = appearing(op, kind, operands, result)
            if lanes is not None and lanes.any() and (number, kind) not in self.sightings:
                at = tuple(int(i) for i in np.argwhere(lanes)[0])
                self.sightings[number, kind] = self._sighting(number, kind, at, operands, result, lanes)

    def _sighting(
        self, number: int, kind: str, at: tuple[int, ...], operands: Sequence[Value], result: Array, lanes: Array
    ) -> Sighting:
        alike = all(operand.ndim == lanes.ndim for operand in operands)
        values = tuple(np.broadcast_to(operand, lanes.shape)[at] for operand in operands) if alike else ()
        program = int(self.launch.programs[at[0] if lanes.shape[0] > 1 else 0])
        return Sighting(number, kind, program, values, np.broadcast_to(result, lanes.shape)[at])


def appearing(op: Operation, kind: str, operands: Sequence[Any], result: Any) -> Array | None:
    """In which elements of a result NaN (an infinity) appears that no operand has, or a NaN of an operand is lost.

    None where that is not to be told.
    """
    if not is_float(result.dtype) or (op.name == "tt.dot" and kind == "lost"):
        return None
    before = np.zeros((1,) * result.ndim, bool)
    for operand in operands:
        if is_float(operand.dtype):
            has = _joined(op, ~np.isfinite(operand) if kind == "inf" else np.isnan(operand), result.ndim)
            if has.ndim != result.ndim:
                return None
            before = before | has
    there = np.isinf(result) if kind == "inf" else np.isnan(result)
    return np.asarray(before & ~there if kind == "lost" else there & ~before)


def _joined(op: Operation, has: Array, axes: int) -> Array:
    """What elements of an operand have, as the elements of the result that depend on them have it."""
    if op.name == "tt.reduce":
        return np.asarray(has.any(axis=op.attributes["axis"] + 1))
    if op.name in ("tt.dot", "tt.scan"):
        return has.reshape(has.shape[0], -1).any(axis=1).reshape(-1, *(1,) * (axes - 1))
    return has


def healed(op: Operation, kind: str, value: float) -> Sequence[Operation]:
    """The operation with `value` where NaN or an infinity appears in its result; for `lost`, with NaN."""
    original = op.semantics.rule(op)

    def compute(*operands: Any) -> Any:
        results = original.compute(*operands)
        first, *rest = results if isinstance(results, tuple) else (results,)
        lanes = appearing(op, kind, operands, first)
        assert lanes is not None
        first = np.where(lanes, np.asarray(np.nan if kind == "lost" else value).astype(first.dtype), first)
        return (first, *rest) if rest else first

    rule = Rule(compute, any_operand)
    return [replace(op, semantics=Semantics(lambda _: rule))]


_SIGNS = {"sub": "-", "add": "+", "mul": "*", "div": "/"}
_NAMES = {"convert_element_type": "a cast", "select_n": "where", "reduce_sum": "a sum", "reduce_max": "a maximum"}


def arithmetic(op: Operation, primitive: str, sighting: Sighting) -> str:
    """`-inf - -inf is nan`: what an operation did, with its operands' values."""
    values, result = [_number(value) for value in sighting.operands], _number(sighting.result)
    name = _NAMES.get(primitive, primitive)
    if primitive in _SIGNS and len(values) == 2:
        said = f"{values[0]} {_SIGNS[primitive]} {values[1]}"
    elif values:
        said = f"{name}({', '.join(values)})"
    else:
        said = f"{name} of {'NaN' if sighting.kind == 'lost' else 'numbers other than NaN'}"
    if sighting.kind == "inf" and not any(float(value) == 0 for value in sighting.operands):
        return f"{said} overflows {op.types[0].dtype.name} to {result}"
    return f"{said} is {result}: NaN is lost" if sighting.kind == "lost" else f"{said} is {result}"


def _number(value: Any) -> str:
    return f"{float(value):.6g}" if is_float(np.asarray(value).dtype) else str(value)
