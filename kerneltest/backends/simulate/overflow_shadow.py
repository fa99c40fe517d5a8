"""Shadow execution of index arithmetic without overflow: an index whose exact value differs has wrapped around."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kerneltest.backends.simulate.interpreter import AccessRequest, Action, IRInterpreter, Value, array_of, choose
from kerneltest.backends.simulate.ir import Operation
from kerneltest.backends.simulate.memory import Launch, MemoryAccess, PagedBuffer, depends_on_undefined, intersect_masks
from kerneltest.core.details import Access, IndexOverflow, MemoryFault
from kerneltest.core.dtypes import Array
from kerneltest.core.verdicts import Verdict

_FIRST_SWEEP = 128  # shadow values, before those of dead values are dropped for the first time
_REMEDY = "compute it in 64 bits, or give an index for each axis"

_SIGNS = {"arith.addi": "+", "arith.subi": "-", "arith.muli": "x"}

# Returns the operation that overflowed for the program in a row of the launch's programs: `65,536 x 40,960`, and the
# power of two that its result passes.
Overflow = Callable[[int], tuple[str, int]]


@dataclass(frozen=True, eq=False, slots=True)
class ShadowValue:
    """The exact value of an array, kept alive, whose computation overflowed, and the first operation that did."""

    value: Array
    exact: Array
    cause: Overflow


# Operations on numbers, whose rules are exact in 64 bits, and casts, which keep a number. Others, such as shifts,
# exclusive or, remainders and unsigned comparisons, may work on bits, so that wrapping before them is intended; nor is
# arithmetic in 8 and 16 bits used for offsets.
_CASTS = frozenset({"arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast"})
_SHAPES = frozenset({"tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans"})
_FOLLOWED = _CASTS | _SHAPES | {
    "arith.addi", "arith.subi", "arith.muli", "arith.divsi", "arith.minsi", "arith.maxsi", "arith.select",
    "arith.andi", "arith.ori", "arith.cmpi", "tt.addptr",
}  # fmt: skip
_UNSIGNED_PREDICATES = (6, 7, 8, 9)
_LOGICAL = frozenset({"arith.andi", "arith.ori"})


class OverflowInterpreter(IRInterpreter):
    """An interpreter that also follows the exact values of integers.

    An access whose offset or mask differs from the exact one for an enabled element is a fault: it is not the access
    that the kernel means. `guessed` are the numbers of buffers with unknown contents: values that depend on them are
    undefined, and an access whose elements do is skipped.
    """

    def __init__(self, launch: Launch, guessed: Collection[int] = ()) -> None:
        super().__init__(launch, {}, None)
        self.guessed = guessed
        self._shadows: dict[int, ShadowValue] = {}
        self._most_shadows = _FIRST_SWEEP

    def run(self, op: Operation) -> None:
        if len(self._shadows) > self._most_shadows:
            alive = {id(array_of(value)) for value in self.environment.values()}
            self._shadows = {key: each for key, each in self._shadows.items() if key in alive}
            self._most_shadows = max(_FIRST_SWEEP, 2 * len(self._shadows))
        operands = [self.environment[number] for number in op.operands]
        super().run(op)
        if op.name in _FOLLOWED:
            self._follow(op, operands, self.environment[op.results[0]])

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        result = super().select(condition, yes, no)
        shadows = [self._shadow(each) for each in (yes, no)]
        if result is not yes and any(shadows):
            self._note(result, choose(condition, self._exact(yes), self._exact(no)), shadows)
        return result

    def access(self, request: AccessRequest) -> Value:
        pointer, mask = request.pointer, request.mask
        offset, *masks = where = self.elements(request)
        if depends_on_undefined(where, list(map(self.undefined_mask, where))):
            shape = np.broadcast_shapes(*(array_of(part).shape for part in (pointer, mask) if part is not None))
            value = np.zeros(shape, self.launch.buffers[pointer.buffer].data.dtype)
            self.mark_undefined(value, np.ones(shape, bool))
            return value
        shadows = [self._shadow(pointer), None if mask is None else self._shadow(mask)]
        if any(shadows):
            diverges = intersect_masks(masks, offset.ndim) & (self._exact(pointer) != offset)
            if mask is not None and shadows[1] is not None:
                diverges = diverges | (shadows[1].exact.astype(bool) != mask)
            self._add_fault(request, diverges, shadows)
        if request.kind is Access.ATOMIC:
            self.launch.buffers[pointer.buffer].atomically_updated = True
        if request.kind is Access.STORE:
            request = replace(request, action=_noting_range(request.action))
        value = super().access(request)
        if pointer.buffer in self.guessed:
            self.mark_undefined(value, np.ones(value.shape, bool))
        return value

    def _add_fault(self, request: AccessRequest, diverges: Array, shadows: Sequence[ShadowValue | None]) -> None:
        if not diverges.any():
            return
        pointer = request.pointer
        launch, buffer = self.launch, self.launch.buffers[pointer.buffer]
        where = tuple(int(i) for i in np.argwhere(diverges)[0])
        row = where[0] if diverges.shape[0] > 1 else 0
        offsets = (self._exact(pointer), array_of(pointer))
        intended, accessed = (int(np.broadcast_to(offset, diverges.shape)[where]) for offset in offsets)
        expression, bits = next(shadow.cause for shadow in shadows if shadow is not None)(row)
        detail = MemoryFault(
            kernel="",
            visit=launch.checker.visit(request.kind, int(launch.programs[row]), request.op.place),
            buffer=buffer.name,
            hint=launch.checker.hints.get(buffer.name, _REMEDY),
            overflow=IndexOverflow(expression, bits, accessed, intended),
        )
        launch.checker.add(Verdict.OUT_OF_BOUNDS, detail)

    def _shadow(self, value: Value) -> ShadowValue | None:
        shadow = self._shadows.get(id(array_of(value)))
        return shadow if shadow is not None and shadow.value is array_of(value) else None

    def _exact(self, value: Value) -> Array:
        shadow = self._shadow(value)
        array = array_of(value)
        return shadow.exact if shadow is not None else array.astype(np.int64) if array.dtype != np.bool_ else array

    def _note(
        self, result: Value, exact: Array, shadows: Sequence[ShadowValue | None], cause: Overflow = lambda row: ("", 0)
    ) -> None:
        array = array_of(result)
        if (exact != array).any():
            causes = [shadow.cause for shadow in shadows if shadow is not None]
            self._shadows[id(array)] = ShadowValue(array, exact, causes[0] if causes else cause)

    def _follow(self, op: Operation, operands: Sequence[Value], result: Value) -> None:
        # Computes the exact result of an operation, if its operands' exact values differ or it may overflow.
        array = array_of(result)
        shadows = [self._shadow(operand) for operand in operands]
        if op.name == "tt.addptr":
            if any(shadows):
                self._note(result, self._exact(operands[0]) + self._exact(operands[1]), shadows)
            return
        if array.dtype.kind not in "ib" or any(array_of(operand).dtype.kind not in "ib" for operand in operands):
            return
        if not any(shadows) and (op.name not in _SIGNS or array.dtype.itemsize != 4):
            return
        if op.name == "arith.cmpi" and op.attributes["predicate"] in _UNSIGNED_PREDICATES:
            return
        if op.name in _LOGICAL and array.dtype != np.bool_:
            return
        exact = [self._exact(operand) for operand in operands]
        if op.name != "arith.extui" or array_of(operands[0]).dtype != np.bool_:
            self._note(result, _compute(op, exact), shadows, _overflow(op, exact, array))


def _compute(op: Operation, exact: Sequence[Array]) -> Array:
    return exact[0] if op.name in _CASTS else np.asarray(op.semantics.rule(op).compute(*exact))


def _noting_range(action: Action) -> Action:
    def act(access: MemoryAccess, *arguments: Any) -> Any:
        assert isinstance(access.buffer, PagedBuffer)
        access.buffer.note_stored_range(access.offset, access.inside)
        return action(access, *arguments)

    return act


def _overflow(op: Operation, operands: Sequence[Array], result: Array) -> Overflow:
    bits = result.dtype.itemsize * 8 - 1

    def describe(row: int) -> tuple[str, int]:
        exact = _compute(op, operands)
        shape = np.broadcast_shapes(exact.shape, result.shape)
        wrapped = np.broadcast_to(exact != result, shape)
        mine = wrapped[row : row + 1] if shape[0] > row else wrapped
        where = (row if shape[0] > row and mine.any() else 0, *np.argwhere(mine if mine.any() else wrapped)[0][1:])
        values = [f"{int(np.broadcast_to(operand, shape)[where]):,}" for operand in operands]
        return f" {_SIGNS[op.name]} ".join(values) if op.name in _SIGNS else values[0], bits

    return describe
