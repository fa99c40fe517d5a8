"""Control flow: all programs run every branch and iteration that any of them takes, with those that do not disabled."""

from collections.abc import Sequence

import numpy as np

from kerneltest.backends.simulate.ir import Operation, Rule, any_operand
from kerneltest.backends.simulate.ir_interpreter import IRInterpreter
from kerneltest.backends.simulate.tape import BufferPointer, TapeSlot, Value
from kerneltest.core.dtypes import Array

_NOT = Rule(np.logical_not, any_operand)


def loop(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Runs `scf.for`, with as many iterations as the program that has most of them."""
    lower, upper, step, *carried = operands
    (region,) = op.regions
    known = not any(isinstance(bound, TapeSlot) for bound in (lower, upper, step))
    trips = np.maximum(-(-(upper.astype(np.int64) - lower) // step), 0) if known else None
    most = None if trips is None else int(trips.max(initial=0))
    if (postponed := interpreter.postpone_loop(op, carried, most)) is not None:
        return postponed
    assert trips is not None
    assert most is not None
    outer = interpreter.enabled
    for iteration in range(most):
        active = trips > iteration
        all_active = bool(active.all())
        interpreter.enabled = outer if all_active else interpreter.both(outer, active)
        after = interpreter.enter(region, [(lower + iteration * step).astype(lower.dtype), *carried])
        carried = after if all_active else _select(interpreter, active, after, carried)
    interpreter.enabled = outer
    return carried


def branch(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Runs `scf.if`: one region if all programs agree, both if they do not or the condition is not known yet."""
    (condition,) = operands
    then, otherwise = op.regions
    if not isinstance(condition, TapeSlot) and (condition.all() or not condition.any()):
        return interpreter.enter(then if condition.all() else otherwise, [])
    outer = interpreter.enabled
    interpreter.enabled = interpreter.both(outer, condition)
    yes = interpreter.enter(then, [])
    interpreter.enabled = interpreter.both(outer, interpreter.apply(_NOT, [condition])[0])
    no = interpreter.enter(otherwise, [])
    interpreter.enabled = outer
    return _select(interpreter, condition, yes, no)


def repeat(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Runs `scf.while` until no program continues."""
    if (postponed := interpreter.postpone_loop(op, operands, None)) is not None:
        return postponed
    before, after = op.regions
    outer, carried = interpreter.enabled, list(operands)
    running: Array | None = None
    results: Sequence[Value] = []
    while True:
        interpreter.enabled = interpreter.both(outer, running)
        condition, *passed = interpreter.enter(before, carried)
        results = passed if running is None else _select(interpreter, running, passed, results)
        running = condition if running is None else running & condition
        acting = running if interpreter.enabled is None else running & interpreter.enabled
        if not acting.any():
            interpreter.enabled = outer
            return results
        interpreter.enabled = interpreter.both(outer, running)
        carried = _select(interpreter, running, interpreter.enter(after, passed), carried)


def _select(interpreter: IRInterpreter, condition: Value, yes: Sequence[Value], no: Sequence[Value]) -> list[Value]:
    return [interpreter.select(condition, a, b) for a, b in zip(yes, no, strict=True)]


_MOVE = Rule(lambda offset, delta: offset + delta.astype(np.int64), any_operand)


def program_id(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Returns `tt.get_program_id` along the attribute `axis`."""
    axis, launch = op.attributes["axis"], interpreter.launch
    x, y, _ = launch.grid
    programs = launch.programs
    ids = (programs % x, programs // x % y, programs // (x * y))[axis].astype(np.int32)
    return [ids[:1] if launch.grid[axis] == 1 else ids]


def num_programs(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Returns `tt.get_num_programs` along the attribute `axis`."""
    return [np.full(1, interpreter.launch.grid[op.attributes["axis"]], np.int32)]


def advance(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Returns `tt.addptr`: a pointer moved by a number of elements."""
    pointer, delta = operands
    return [BufferPointer(pointer.buffer, interpreter.apply(_MOVE, [pointer.offset, delta])[0])]


def bitcast(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Returns `tt.bitcast` of numbers, or of pointers, which it leaves as they are."""
    return operands if isinstance(operands[0], BufferPointer) else interpreter.compute(op, operands)


def no_operation(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Stands for operations that only print, check or wait."""
    return []
