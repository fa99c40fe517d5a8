"""Rules for control flow, for calls, and for the number of the current program."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.trace.batched_interpreter.batched_evaluator import BatchedEvaluator
from kerneltest.trace.batched_interpreter.batched_values import (
    EquationFunction,
    UnknownError,
    Value,
    dtype_of,
    is_uniform,
    rows_of,
    run_by_group,
    scoped_memory,
)
from kerneltest.trace.jax_compat.interpreter_errors import call_back
from kerneltest.trace.jax_compat.jaxpr_types import AbstractValue, ClosedJaxpr, Equation
from kerneltest.trace.walk import scan_counts

_CALLS = (
    "jit pjit closed_call core_call custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr checkpoint remat "
    "custom_vmap_call eval_jaxpr"
)


def _call(evaluator: BatchedEvaluator, equation: Equation) -> EquationFunction:
    inner = next((value for value in equation.params.values() if isinstance(value, ClosedJaxpr)), None)
    if inner is None:
        raise UnknownError("a call without a jaxpr")
    return evaluator.compile(inner)


def _program_id(evaluator: BatchedEvaluator, equation: Equation) -> EquationFunction:
    axis = equation.params["axis"]
    return lambda operands: (evaluator.program[axis],)


def _num_programs(evaluator: BatchedEvaluator, equation: Equation) -> EquationFunction:
    axis = equation.params["axis"]
    return lambda operands: (np.array([evaluator.grid[axis]], np.int32),)


def _cond(evaluator: BatchedEvaluator, equation: Equation) -> EquationFunction:
    branches = [evaluator.compile(branch) for branch in equation.params["branches"]]

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        index, *rest = operands
        keys = np.clip(index.astype(np.int64), 0, len(branches) - 1)
        if len(keys) == 1:
            return branches[int(keys[0])](rest)
        return run_by_group(keys, rest, lambda key, part: branches[int(key)](part))

    return evaluate


def _while(evaluator: BatchedEvaluator, equation: Equation) -> EquationFunction:
    params = equation.params
    count = params["cond_nconsts"]
    start = count + params["body_nconsts"]
    condition, body = evaluator.compile(params["cond_jaxpr"]), evaluator.compile(params["body_jaxpr"])

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        carried = list(operands[start:])
        while True:
            (going,) = condition([*operands[:count], *carried])
            if len(going) > 1 and going.any() and not going.all():
                whole = [*operands[:start], *carried]
                return run_by_group(going, whole, lambda on, part: evaluate(part) if on else part[start:])
            if not going.any():
                return carried
            carried = body([*operands[count:start], *carried])

    return evaluate


def _scan(evaluator: BatchedEvaluator, equation: Equation) -> EquationFunction:
    params = equation.params
    body, length = evaluator.compile(params["jaxpr"]), params["length"]
    fixed, carry = scan_counts(params)
    order = range(length)[::-1] if params["reverse"] else range(length)
    avals = [v.aval for v in equation.outvars[carry:]]

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        consts, carried, xs = operands[:fixed], list(operands[fixed : fixed + carry]), operands[fixed + carry :]
        stacked: list[list[Array]] = []
        for i in order:
            results = body([*consts, *carried, *(x[:, i] for x in xs)])
            carried = results[:carry]
            stacked.append(results[carry:])
        if params["reverse"]:
            stacked.reverse()
        return [*carried, *(_stack([results[k] for results in stacked], aval) for k, aval in enumerate(avals))]

    return evaluate


def _stack(results: list[Array], aval: AbstractValue) -> Array:
    if not results:
        return np.zeros((1, *aval.shape), dtype_of(aval))
    rows = rows_of(results)
    return np.stack([np.broadcast_to(x, (rows, *x.shape[1:])) for x in results], axis=1)


def _run_scoped(evaluator: BatchedEvaluator, equation: Equation) -> EquationFunction:
    inner = equation.params["jaxpr"]
    body = evaluator.compile(inner, consts_as_arguments=True)
    fresh = [scoped_memory(v.aval) for v in inner.invars]
    if equation.params.get("collective_axes"):
        raise UnknownError("memory that programs share")

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        rows = rows_of(operands)
        return body([*operands, *(make(rows) for make in fresh)])

    return evaluate


def call_python(equation: Equation) -> EquationFunction:
    """Calls back into Python, for a single row only, since a callback may change state."""
    callback, dtypes = equation.params["callback"], [dtype_of(v.aval) for v in equation.outvars]

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        if not is_uniform(operands):
            raise UnknownError("a callback with several rows")
        results = call_back(callback, [x[0].copy() for x in operands])  # it may keep its arguments, and write to them
        return [np.array(result, dtype)[None] for result, dtype in zip(results, dtypes, strict=True)]

    return evaluate


CONTROL: Mapping[str, Callable[[BatchedEvaluator, Equation], EquationFunction]] = {
    "program_id": _program_id,
    "num_programs": _num_programs,
    "cond": _cond,
    "while": _while,
    "scan": _scan,
    "run_scoped": _run_scoped,
    **dict.fromkeys(_CALLS.split(), _call),
}
