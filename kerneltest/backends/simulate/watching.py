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
_JOINING = frozenset({"tt.reduce", "tt.scan", "tt.dot"})


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
        return Sighting(
            number, kind, program, values, result[tuple(min(i, n - 1) for i, n in zip(at, result.shape, strict=True))]
        )


def appearing(op: Operation, kind: str, operands: Sequence[Any], result: Any) -> Array | None:
    """In which elements of a result NaN (an infinity) appears that no operand has, or a NaN of an operand is lost."""
    if op.name in ("tt.dot",) and kind == "lost":
        return None
    test = np.isinf if kind == "inf" else np.isnan
    if not is_float(result.dtype):
        return None
    there = test(result)
    before = np.zeros((1,) * result.ndim, bool)
    for operand in operands:
        if not is_float(operand.dtype):
            continue
        has = test(operand) if kind != "inf" else ~np.isfinite(operand)
        if op.name in _JOINING:
            axis = op.attributes["axis"] + 1 if op.name == "tt.reduce" else None
            has = has.any(axis=axis) if axis is not None else has.any(axis=tuple(range(1, has.ndim)))
            has = has.reshape(has.shape[0], *(1,) * (result.ndim - 1)) if axis is None else has
        if has.ndim != result.ndim:
            return None
        before = before | has
    return np.asarray(before & ~there if kind == "lost" else there & ~before)


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


def arithmetic(op: Operation, sighting: Sighting) -> str:
    """`-inf - -inf is nan`: what an operation did, with its operands' values."""
    sign = _SIGNS.get(op.name)
    values = [_number(v) for v in sighting.operands]
    result = _number(sighting.result)
    if sign and len(values) == 2:
        said = f"{values[0]} {sign} {values[1]}"
    elif values:
        said = f"{_name(op)}({', '.join(values)})"
    else:
        said = f"{_name(op)} of numbers that are all finite" if sighting.kind != "lost" else f"{_name(op)} of a NaN"
    return f"{said} is {result}" if sighting.kind != "inf" else f"{said} overflows {op.types[0].dtype.name} to {result}"


_SIGNS = {"arith.subf": "-", "arith.addf": "+", "arith.mulf": "*", "arith.divf": "/"}


def _name(op: Operation) -> str:
    if op.name == "tt.extern_elementwise":
        return (
            str(op.attributes["symbol"])
            .removeprefix("__nv_")
            .removeprefix("__ocml_")
            .removesuffix("_f32")
            .removesuffix("f")
        )
    short = op.name.partition(".")[2]
    return {"maxnumf": "maximum", "minnumf": "minimum", "truncf": "a cast", "fp_to_fp": "a cast"}.get(short, short)


def _number(value: Any) -> str:
    return f"{float(value):.6g}" if is_float(np.asarray(value).dtype) else str(value)
