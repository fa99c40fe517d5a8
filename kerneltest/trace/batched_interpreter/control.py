"""Control flow, and which program runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.trace.batched_interpreter.machine import Machine
from kerneltest.trace.batched_interpreter.values import (
    Memory,
    Step,
    UnknownError,
    Value,
    dtype_of,
    is_uniform,
    parted,
    rows_of,
    unwritten,
)
from kerneltest.trace.jax_compat.jaxpr_types import ClosedJaxpr
from kerneltest.trace.walk import scan_counts

_CALLS = (
    "jit pjit closed_call core_call custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr checkpoint remat "
    "custom_vmap_call eval_jaxpr"
)


def _called(machine: Machine, equation: Any) -> Step:
    inner = next((value for value in equation.params.values() if isinstance(value, ClosedJaxpr)), None)
    if inner is None:
        raise UnknownError("a call of what is not known")
    return machine.block(inner)


def _program_id(machine: Machine, equation: Any) -> Step:
    axis = equation.params["axis"]
    return lambda operands: (machine.program[axis],)


def _num_programs(machine: Machine, equation: Any) -> Step:
    axis = equation.params["axis"]
    return lambda operands: (np.array([machine.grid[axis]], np.int32),)


def _cond(machine: Machine, equation: Any) -> Step:
    branches = [machine.block(branch) for branch in equation.params["branches"]]

    def step(operands: Sequence[Value]) -> Sequence[Value]:
        index, *rest = operands
        keys = np.clip(index.astype(np.int64), 0, len(branches) - 1)
        if len(keys) == 1:
            return branches[int(keys[0])](rest)
        return parted(keys, rest, lambda key, part: branches[int(key)](part))

    return step


def _while(machine: Machine, equation: Any) -> Step:
    params = equation.params
    tested, moved = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    test, body = machine.block(params["cond_jaxpr"]), machine.block(params["body_jaxpr"])

    def step(operands: Sequence[Value]) -> Sequence[Value]:
        carried = list(operands[moved:])
        while True:
            (going,) = test([*operands[:tested], *carried])
            if len(going) > 1 and going.any() and not going.all():
                whole = [*operands[:moved], *carried]
                return parted(going, whole, lambda on, part: step(part) if on else part[moved:])
            if not going.any():
                return carried
            carried = body([*operands[tested:moved], *carried])

    return step


def _scan(machine: Machine, equation: Any) -> Step:
    params = equation.params
    body, length = machine.block(params["jaxpr"]), params["length"]
    fixed, carry = scan_counts(params)
    order = range(length)[::-1] if params["reverse"] else range(length)
    avals = [v.aval for v in equation.outvars[carry:]]

    def step(operands: Sequence[Value]) -> Sequence[Value]:
        consts, carried, given = operands[:fixed], list(operands[fixed : fixed + carry]), operands[fixed + carry :]
        made: list[list[Array]] = []
        for i in order:
            results = body([*consts, *carried, *(x[:, i] for x in given)])
            carried = results[:carry]
            made.append(results[carry:])
        if params["reverse"]:
            made.reverse()
        return [*carried, *(_stacked([turn[k] for turn in made], aval) for k, aval in enumerate(avals))]

    return step


def _stacked(turns: list[Array], aval: Any) -> Array:
    if not turns:
        return np.zeros((1, *aval.shape), dtype_of(aval))
    rows = rows_of(turns)
    return np.stack([np.broadcast_to(x, (rows, *x.shape[1:])) for x in turns], axis=1)


def _run_scoped(machine: Machine, equation: Any) -> Step:
    inner = equation.params["jaxpr"]
    body = machine.block(inner, given=True)
    fresh = [(tuple(v.aval.shape), dtype_of(v.aval)) for v in inner.invars]
    if equation.params.get("collective_axes"):
        raise UnknownError("memory that programs share")

    def step(operands: Sequence[Value]) -> Sequence[Value]:
        rows = rows_of(operands)
        scoped = [Memory(unwritten((rows, *shape), dtype)) for shape, dtype in fresh]
        return body([*operands, *scoped])

    return step


def called_back(equation: Any) -> Step:
    """A call of Python's, with a single row: an interpreter's, which changes its state."""
    callback, dtypes = equation.params["callback"], [dtype_of(v.aval) for v in equation.outvars]

    def step(operands: Sequence[Value]) -> Sequence[Value]:
        if not is_uniform(operands):
            raise UnknownError("many rows that are called back")
        results = callback(*(x[0].copy() for x in operands))  # it may keep what it is given, and write to it
        return [np.array(result, dtype)[None] for result, dtype in zip(results, dtypes, strict=True)]

    return step


CONTROL: Mapping[str, Callable[[Machine, Any], Step]] = {
    "program_id": _program_id,
    "num_programs": _num_programs,
    "cond": _cond,
    "while": _while,
    "scan": _scan,
    "run_scoped": _run_scoped,
    **dict.fromkeys(_CALLS.split(), _called),
}
