"""Indices as integers without an end, beside those that the code computes: where they part, an index has wrapped."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltest.backends.simulate.interpreter import Action, Interpreter
from kerneltest.backends.simulate.ir import Operation
from kerneltest.backends.simulate.launch import Launch
from kerneltest.backends.simulate.operations import arithmetic
from kerneltest.backends.simulate.tape import Pointer, Value
from kerneltest.core.dtypes import Array
from kerneltest.core.verdicts import Verdict

_KEPT = 128  # values that have wrapped, beyond which those that nobody will use again are dropped

_SIGNS = {"arith.addi": "+", "arith.subi": "-", "arith.muli": "x"}


@dataclass(frozen=True, eq=False, slots=True)
class Wrapped:
    """What a value would be if integers had no end, where that is not what it is.

    Attributes:
      value: what it is; keeps it alive, since it is known by its identity.
      exact: int64, or bool for what was compared; of a shape that broadcasts with the value's.
      why: the first operation that wrapped, in words, for one of the programs that are run.
    """

    value: Array
    exact: Array
    why: Callable[[int], str]


# Operations that mean integers. Others, such as shifts, exclusive or, remainders and comparisons without a sign, may
# mean the bits, so what wraps before them is meant to; nor does arithmetic in 8 and 16 bits make offsets.
_MEANT: Mapping[str, Callable[..., Array]] = {
    "arith.addi": np.add, "arith.subi": np.subtract, "arith.muli": np.multiply,
    "arith.divsi": arithmetic.divide,
    "arith.minsi": np.minimum, "arith.maxsi": np.maximum, "arith.select": np.where,
    "arith.andi": np.logical_and, "arith.ori": np.logical_or,
    **dict.fromkeys(("arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast"), lambda x: x),
}  # fmt: skip
_WITHOUT_SIGN = (6, 7, 8, 9)
_SHAPES = frozenset({"tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans"})
_LOGICAL = frozenset({"arith.andi", "arith.ori"})


class ExactInterpreter(Interpreter):
    """An interpreter that follows what integers would be if they did not wrap around.

    Where an enabled element's offset is another one then, or its mask, there is a fault: the access is not the one
    that the kernel means.

    Args:
      launch: whose programs run.
      guessed: the numbers of buffers whose contents are not known: what depends on them is undefined, and an access
        whose element follows from that is left out.
    """

    def __init__(self, launch: Launch, guessed: Collection[int] = ()) -> None:
        super().__init__(launch, {}, None)
        self.guessed = guessed
        self._wrapped: dict[int, Wrapped] = {}
        self._most = _KEPT

    def run(self, op: Operation) -> None:
        if len(self._wrapped) > self._most:
            alive = {id(_array(value)) for value in self.environment.values()}
            self._wrapped = {key: each for key, each in self._wrapped.items() if key in alive}
            self._most = max(_KEPT, 2 * len(self._wrapped))
        operands = [self.environment[number] for number in op.operands]
        super().run(op)
        if op.name in _MEANT or op.name in _SHAPES or op.name in ("arith.cmpi", "tt.addptr"):
            self._follow(op, operands, self.environment[op.results[0]])

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        result = super().select(condition, yes, no)
        known = [self._of(each) for each in (yes, no)]
        if result is not yes and any(known):
            shape = (-1, *(1,) * (_array(result).ndim - 1))
            self._note(result, np.where(condition.reshape(shape), self._exact(yes), self._exact(no)), known)
        return result

    def touch(
        self, op: Operation, kind: str, action: Action, pointer: Pointer, mask: Value | None, extras: Sequence[Value]
    ) -> Value:
        parts = [_array(part) for part in (pointer, *self.elements(pointer, mask)[1:])]
        if any((doubt := self.undefined(part)) is not None and doubt.any() for part in parts):
            return self._left_out(pointer, mask)
        known = [self._of(pointer), None if mask is None else self._of(mask)]
        if any(known):
            offset = _array(pointer)
            enabled = np.ones((1,) * offset.ndim, bool)
            for each in self.elements(pointer, mask)[1:]:
                enabled = enabled & each.reshape(*each.shape, *(1,) * (offset.ndim - each.ndim))
            off = enabled & (self._exact(pointer) != offset)
            if mask is not None and known[1] is not None:
                off = off | (known[1].exact.astype(bool) != mask)
            self._report(op, kind, pointer, off, known)
        if kind == "atomic":
            self.launch.buffers[pointer.buffer].updated = True
        if kind == "store":
            self._note_store(pointer, mask)
        value = super().touch(op, kind, action, pointer, mask, extras)
        if pointer.buffer in self.guessed:
            self.mark(value, np.ones(value.shape, bool))
        return value

    def _left_out(self, pointer: Pointer, mask: Value | None) -> Value:
        """An access whose element is not known: a value of which nothing is defined."""
        shape = np.broadcast_shapes(*(_array(part).shape for part in (pointer, mask) if part is not None))
        value = np.zeros(shape, self.launch.buffers[pointer.buffer].data.dtype)
        self.mark(value, np.ones(shape, bool))
        return value

    def _note_store(self, pointer: Pointer, mask: Value | None) -> None:
        buffer = self.launch.buffers[pointer.buffer]
        offset = _array(pointer)
        inside = (offset >= 0) & (offset < buffer.size)
        for each in self.elements(pointer, mask)[1:]:
            inside = inside & each.reshape(*each.shape, *(1,) * (offset.ndim - each.ndim))
        shape = (self.launch.programs.size, *np.broadcast_shapes(offset.shape, inside.shape)[1:])
        buffer.stored(np.broadcast_to(offset, shape), np.broadcast_to(inside, shape))

    def _report(self, op: Operation, kind: str, pointer: Pointer, off: Array, known: Sequence[Wrapped | None]) -> None:
        if not off.any():
            return
        launch, buffer = self.launch, self.launch.buffers[pointer.buffer]
        where = tuple(int(i) for i in np.argwhere(off)[0])
        row = where[0] if off.shape[0] > 1 else 0
        offsets = (self._exact(pointer), _array(pointer))
        meant, touched = (int(np.broadcast_to(each, off.shape)[where]) for each in offsets)
        why = next(each.why for each in known if each is not None)(row)
        what = (
            f"touches offset {touched:,} and means {meant:,}"
            if meant != touched
            else "is masked otherwise than without that"
        )
        launch.watch.add(
            Verdict.OUT_OF_BOUNDS,
            buffer.name,
            f"an index wraps around: {why}, so the {kind} at {buffer.name} by "
            f"{launch.watch.program(int(launch.programs[row]))} {what}, at {op.place}; "
            f"{launch.watch.hints.get(buffer.name, 'compute it in 64 bits, or give an index for each axis')}",
        )

    def _of(self, value: Value) -> Wrapped | None:
        known = self._wrapped.get(id(_array(value)))
        return known if known is not None and known.value is _array(value) else None

    def _exact(self, value: Value) -> Array:
        known = self._of(value)
        array = _array(value)
        return known.exact if known is not None else array.astype(np.int64) if array.dtype != np.bool_ else array

    def _note(
        self, result: Value, exact: Array, known: Sequence[Wrapped | None], why: Callable[[int], str] | None = None
    ) -> None:
        array = _array(result)
        if (exact != array).any():
            reasons = [each.why for each in known if each is not None]
            self._wrapped[id(array)] = Wrapped(array, exact, reasons[0] if reasons else why or (lambda row: ""))

    def _follow(self, op: Operation, operands: Sequence[Value], result: Value) -> None:
        array = _array(result)
        known = [self._of(operand) for operand in operands]
        if op.name == "tt.addptr":
            if any(known):
                self._note(result, self._exact(operands[0]) + self._exact(operands[1]), known)
            return
        if array.dtype.kind not in "ib" or any(_array(operand).dtype.kind not in "ib" for operand in operands):
            return
        if not any(known) and (op.name not in _SIGNS or array.dtype.itemsize != 4):
            return
        if op.name == "arith.cmpi" and op.attributes["predicate"] in _WITHOUT_SIGN:
            return
        if op.name in _LOGICAL and array.dtype != np.bool_:
            return
        exact = [self._exact(operand) for operand in operands]
        if op.name == "arith.cmpi":
            self._note(result, arithmetic.compare_integers(op).compute(*exact), known)
        elif op.name in _SHAPES:
            if op.name == "tt.reshape":
                exact = [np.broadcast_to(exact[0], (exact[0].shape[0], *op.operand_types[0].shape))]
            self._note(result, op.semantics.rule(op).compute(*exact), known)
        elif op.name == "arith.extui" and _array(operands[0]).dtype == np.bool_:
            return
        else:
            self._note(result, np.asarray(_MEANT[op.name](*exact)), known, _why(op, exact, array))


def _why(op: Operation, exact: Sequence[Array], result: Array) -> Callable[[int], str]:
    """`65,536 x 40,960 is past 2^31`: what an operation made of integers without an end does not fit, in a program."""
    bits = result.dtype.itemsize * 8

    def told(row: int) -> str:
        meant = _MEANT[op.name](*exact)
        shape = np.broadcast_shapes(meant.shape, result.shape)
        off = np.broadcast_to(meant != result, shape)
        mine = off[row : row + 1] if shape[0] > row else off
        where = (row if shape[0] > row and mine.any() else 0, *np.argwhere(mine if mine.any() else off)[0][1:])
        values = [f"{int(np.broadcast_to(each, shape)[where]):,}" for each in exact]
        said = f" {_SIGNS[op.name]} ".join(values) if op.name in _SIGNS else values[0]
        return f"{said} is past 2^{bits - 1}"

    return told


def _array(value: Value) -> Any:
    return value.offset if isinstance(value, Pointer) else value
