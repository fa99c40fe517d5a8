"""Which program it is, and pointers into its buffers."""

from collections.abc import Sequence

import numpy as np

from kerneltest.backends.simulate.interpreter import Interpreter
from kerneltest.backends.simulate.ir import Operation, Rule, any_operand
from kerneltest.backends.simulate.tape import Pointer, Value

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
