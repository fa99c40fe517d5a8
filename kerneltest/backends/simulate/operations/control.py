"""Control flow: every program goes through every branch and turn that any of them takes, and acts where it should."""

from collections.abc import Sequence

import numpy as np

from kerneltest.backends.simulate.interpreter import Interpreter
from kerneltest.backends.simulate.ir import Operation, Rule, any_operand
from kerneltest.backends.simulate.tape import Pointer, Slot, Value
from kerneltest.core.dtypes import Array

_NOT = Rule(np.logical_not, any_operand)


def loop(interpreter: Interpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """`scf.for`, as often as the program that turns most often."""
    lower, upper, step, *carried = operands
    (region,) = op.regions
    known = not any(isinstance(bound, Slot) for bound in (lower, upper, step))
    trips = np.maximum(-(-(upper.astype(np.int64) - lower) // step), 0) if known else None
    turns = None if trips is None else int(trips.max(initial=0))
    if (postponed := interpreter.postponed(op, carried, turns)) is not None:
        return postponed
    assert trips is not None
    assert turns is not None
    outer = interpreter.enabled
    for turn in range(turns):
        active = trips > turn
        all_active = bool(active.all())
        interpreter.enabled = outer if all_active else interpreter.both(outer, active)
        after = interpreter.enter(region, [(lower + turn * step).astype(lower.dtype), *carried])
        carried = after if all_active else _select(interpreter, active, after, carried)
    interpreter.enabled = outer
    return carried


def branch(interpreter: Interpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """`scf.if`: one region where all programs agree, both where they do not or where it is not known yet."""
    (condition,) = operands
    then, otherwise = op.regions
    if not isinstance(condition, Slot) and (condition.all() or not condition.any()):
        return interpreter.enter(then if condition.all() else otherwise, [])
    outer = interpreter.enabled
    interpreter.enabled = interpreter.both(outer, condition)
    yes = interpreter.enter(then, [])
    interpreter.enabled = interpreter.both(outer, interpreter.apply(_NOT, [condition])[0])
    no = interpreter.enter(otherwise, [])
    interpreter.enabled = outer
    return _select(interpreter, condition, yes, no)


def repeat(interpreter: Interpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """`scf.while`, until no program goes on."""
    if (postponed := interpreter.postponed(op, operands, None)) is not None:
        return postponed
    before, after = op.regions
    outer, carried = interpreter.enabled, list(operands)
    going: Array | None = None
    results: Sequence[Value] = []
    while True:
        interpreter.enabled = interpreter.both(outer, going)
        condition, *passed = interpreter.enter(before, carried)
        results = passed if going is None else _select(interpreter, going, passed, results)
        going = condition if going is None else going & condition
        acting = going if interpreter.enabled is None else going & interpreter.enabled
        if not acting.any():
            interpreter.enabled = outer
            return results
        interpreter.enabled = interpreter.both(outer, going)
        carried = _select(interpreter, going, interpreter.enter(after, passed), carried)


def _select(interpreter: Interpreter, condition: Value, yes: Sequence[Value], no: Sequence[Value]) -> list[Value]:
    return [interpreter.select(condition, a, b) for a, b in zip(yes, no, strict=True)]


_MOVED = Rule(lambda offset, delta: offset + delta.astype(np.int64), any_operand)


def program_id(interpreter: Interpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """`tt.get_program_id`, along the attribute `axis`."""
    axis, launch = op.attributes["axis"], interpreter.launch
    x, y, _ = launch.grid
    programs = launch.programs
    ids = (programs % x, programs // x % y, programs // (x * y))[axis].astype(np.int32)
    return [ids[:1] if launch.grid[axis] == 1 else ids]


def num_programs(interpreter: Interpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """`tt.get_num_programs`, along the attribute `axis`."""
    return [np.full(1, interpreter.launch.grid[op.attributes["axis"]], np.int32)]


def advance(interpreter: Interpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """`tt.addptr`: a pointer some elements on."""
    pointer, delta = operands
    return [Pointer(pointer.buffer, interpreter.apply(_MOVED, [pointer.offset, delta])[0])]


def bitcast(interpreter: Interpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """`tt.bitcast` of numbers, or of pointers, which stay where they are."""
    return operands if isinstance(operands[0], Pointer) else interpreter.compute(op, operands)


def nothing(interpreter: Interpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """What only prints, checks or waits."""
    return []
