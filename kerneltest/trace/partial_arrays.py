"""Arrays with undefined elements, and the rule set that evaluates the function around the Pallas calls on them.

A `VirtualArray` is too large for memory: its elements are computed from their offsets.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from kerneltest.core.details import Undefined, UndefinedCause, UndefinedSource
from kerneltest.core.dtypes import Array, DType, is_float
from kerneltest.core.failures import Failure, warn_of_recovery
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.batched_interpreter.kernel_rules import supported_rule
from kerneltest.trace.jax_compat.jaxprs import AbstractValue, Equation, JaxArray, Jaxpr, Params, Var, inner_jaxprs
from kerneltest.trace.jax_compat.source_lines import describe_limitation, is_jax_limitation, line_of
from kerneltest.trace.machine import EquationFunction, Machine, RuleSet, UnknownError, control_rule, unwritten_memory
from kerneltest.trace.primitives import Kind, kind_of
from kerneltest.trace.rewrite import Fill
from kerneltest.trace.tracing import Traced
from kerneltest.trace.walk import iter_equations, primitive_name


@dataclass(frozen=True, eq=False, slots=True)
class VirtualArray:
    """An array whose elements are computed on demand."""

    shape: tuple[int, ...]
    dtype: DType
    read: Callable[[Array], Array]  # from flat offsets, int64 of any shape, to the elements there
    known_offsets: Array | None = None  # of the known elements, int64 (n,), ascending; None if all are known
    undefined: Array | None = None  # for each known element, whether it depends on unwritten memory, bool (n,)
    # Flat offsets of elements that no program writes, int64 (k,).
    unwritten: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def move(self, name: str, params: Params, shape: tuple[int, ...]) -> "VirtualArray | None":
        """Moves the elements into another shape as the primitive `name` does; None for an unsupported move."""
        rule = _MOVES.get(name)
        if rule is None or (params.get("dimensions") is not None and name == "reshape"):
            return None
        source, target = rule(self.shape, shape, params)
        places, undefined = self.known_offsets, self.undefined
        if places is not None:
            moved = target(places)
            order = np.flatnonzero(moved >= 0)
            order = order[np.argsort(moved[order], kind="stable")]
            places, undefined = moved[order], None if undefined is None else undefined[order]
        unwritten = target(self.unwritten)
        remaining = unwritten[unwritten >= 0]
        return VirtualArray(shape, self.dtype, lambda at: self.read(source(at)), places, undefined, remaining)

    def cast(self, dtype: DType) -> "VirtualArray":
        return replace(self, dtype=dtype, read=lambda at: self.read(at).astype(dtype))


Offsets = Callable[[Array], Array]
# From the old shape, the new shape and the primitive's parameters to two functions of flat offsets: from the new array
# to the old one, and from the old array to the new one (-1 for elements that the new one does not have).
Move = Callable[[tuple[int, ...], tuple[int, ...], Params], tuple[Offsets, Offsets]]


def flat_offsets(indices: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """Flat offsets of elements, from an index array for each axis."""
    offset = np.zeros((), np.int64)
    for index, length in zip(indices, shape, strict=True):
        offset = offset * length + index
    return np.asarray(offset)


def axis_indices(offset: Array, shape: tuple[int, ...]) -> list[Array]:
    """An index array for each axis, from flat offsets of elements."""
    indices: list[Array] = []
    for length in reversed(shape):
        indices.insert(0, offset % max(length, 1))
        offset = offset // max(length, 1)
    return indices


def _transpose(before: tuple[int, ...], after: tuple[int, ...], params: Params) -> tuple[Offsets, Offsets]:
    def exchange(order: Sequence[int], old: tuple[int, ...], new: tuple[int, ...]) -> Offsets:
        return lambda at: flat_offsets([axis_indices(at, old)[axis] for axis in order], new)

    order = params["permutation"]
    return exchange(np.argsort(order).tolist(), after, before), exchange(order, before, after)


def _slice(before: tuple[int, ...], after: tuple[int, ...], params: Params) -> tuple[Offsets, Offsets]:
    steps = params["strides"] or (1,) * len(before)
    spans = list(zip(params["start_indices"], steps, after, strict=True))

    def source(at: Array) -> Array:
        indices = zip(axis_indices(at, after), spans, strict=True)
        return flat_offsets([start + step * i for i, (start, step, _) in indices], before)

    def target(at: Array) -> Array:
        outside = np.zeros(at.shape, bool)
        indices = []
        for index, (start, step, length) in zip(axis_indices(at, before), spans, strict=True):
            new = (index - start) // step
            outside |= ((index - start) % step != 0) | (new < 0) | (new >= length)
            indices.append(new)
        return np.where(outside, -1, flat_offsets(indices, after))

    return source, target


def _broadcast(before: tuple[int, ...], after: tuple[int, ...], params: Params) -> tuple[Offsets, Offsets]:
    axes = params["broadcast_dimensions"]

    def source(at: Array) -> Array:
        indices = axis_indices(at, after)
        pairs = zip(axes, before, strict=True)
        return flat_offsets([indices[a] if n > 1 else indices[a] * 0 for a, n in pairs], before)

    def target(at: Array) -> Array:  # only the first of several copies
        indices = dict(zip(axes, axis_indices(at, before), strict=True))
        return flat_offsets([indices.get(axis, np.zeros((), np.int64)) for axis in range(len(after))], after)

    return source, target


_MOVES: Mapping[str, Move] = {
    **dict.fromkeys(("reshape", "squeeze", "copy"), lambda *_: (lambda at: at, lambda at: at)),
    "transpose": _transpose,
    "slice": _slice,
    "broadcast_in_dim": _broadcast,
}


# Arrays of which some elements are undefined.

# Codes of undefined elements. An output's verdict is that of its highest code.
UNWRITTEN, UNINITIALISED = 1, 2


@dataclass(frozen=True, slots=True)
class PartialArray:
    """An array of which some elements may be undefined."""

    values: JaxArray
    undefined: Array | None = None  # a code for each undefined element and 0 for the others, uint8; None if all are 0
    sources: tuple[UndefinedSource, ...] = ()  # the reads that the undefined elements come from


def require_defined(outputs: Sequence[PartialArray]) -> tuple[Array, ...]:
    """The values of outputs; raises a Failure if one of their elements is undefined."""
    for number, output in enumerate(outputs):
        codes = output.undefined
        if codes is not None and codes.any():
            first = format_element(codes.shape, int(np.flatnonzero(codes)[0]))
            unwritten, count = int(codes.max()) == UNWRITTEN, int(np.count_nonzero(codes))
            sources = () if unwritten else output.sources
            detail = Undefined(f"output {number}", unwritten, count, codes.size, first, sources)
            raise Failure(Verdict.UNWRITTEN if unwritten else Verdict.UNINITIALISED, detail)
    return tuple(np.asarray(output.values) for output in outputs)


def format_element(shape: tuple[int, ...], offset: int) -> str:
    """The indices of an element, as in `[3, 4]`, from its flat offset in an array."""
    return f"[{', '.join(str(int(i)) for i in np.unravel_index(offset, shape))}]"


# The rule set of the function around the Pallas calls.

_MOST = 2**26  # elements of an array that fits in memory

RunCall = Callable[[Equation, list[PartialArray]], list[PartialArray]]


class PartialRules(RuleSet):
    """Arrays with undefined elements, without rows. A function runs the Pallas calls, NumPy or JAX everything else."""

    def __init__(self, run_call: RunCall) -> None:
        super().__init__()
        self._run_call = run_call

    def rule(self, machine: Machine, equation: Equation) -> EquationFunction:
        kind = kind_of(equation)
        if kind is Kind.KERNEL:
            return lambda operands: self._run_call(equation, list(operands))
        if kind is Kind.EMPTY:
            return lambda operands: _empty(equation)
        inner = control_rule(machine, equation) if _has_calls(equation) else None
        substitutions = machine.substitutions  # the machine would be in a reference circle with all calls

        def evaluate(operands: Sequence[PartialArray]) -> Sequence[PartialArray]:
            if not any(isinstance(operand.values, VirtualArray) for operand in operands):
                return inner(operands) if inner is not None else _track(equation, operands)
            if kind is Kind.CALL:
                return control_rule(Machine(self, substitutions), equation)(operands)
            return inner(operands) if inner is not None and kind is Kind.BRANCH else _large(equation, operands)

        return evaluate

    def constant(self, value: Any, dtype: Any = None) -> PartialArray:
        # JAX may keep literals as Python's numbers, and NumPy has no keys.
        return PartialArray(np.asarray(value, dtype) if isinstance(value, bool | int | float | complex) else value)

    def decisions(self, value: PartialArray) -> Array:
        return np.asarray(value.values).reshape(1)

    def item(self, value: PartialArray, i: int) -> PartialArray:
        undefined = None if value.undefined is None else value.undefined[i]
        return PartialArray(value.values[i], undefined, value.sources)

    def stack(self, values: Sequence[PartialArray], aval: AbstractValue) -> PartialArray:
        if not values:
            return PartialArray(np.zeros(aval.shape, aval.dtype))
        stacked = np.stack([np.asarray(value.values) for value in values])
        if all(value.undefined is None for value in values):
            return PartialArray(stacked)
        defined = np.zeros(stacked.shape[1:], np.uint8)
        masks = [defined if value.undefined is None else value.undefined for value in values]
        return PartialArray(stacked, np.stack(masks), _sources(values))


def _sources(arrays: Sequence[PartialArray]) -> tuple[UndefinedSource, ...]:
    return tuple(dict.fromkeys(source for array in arrays for source in array.sources))


class PartialKernel:
    """A kernel whose Pallas calls are run by a function, from their equations and operands."""

    def __init__(self, traced: Traced, run_call: RunCall, substitutions: Mapping[Var, Var] | None = None) -> None:
        self._compiled = Machine(PartialRules(run_call), substitutions).compile(traced.jaxpr)

    def __call__(self, leaves: Sequence[Array | VirtualArray]) -> list[PartialArray]:
        """Evaluates the kernel; raises whatever `run_call` does.

        The Failure is `unavailable` for an operation that JAX cannot evaluate here, or on arrays that are too large.
        """
        return self._compiled([PartialArray(leaf) for leaf in leaves])


@functools.lru_cache(maxsize=4096)  # kernels with other substitutions have the same equations
def _has_calls(equation: Equation) -> bool:
    # Returns whether equations nested in it need this rule set: Pallas calls, and arrays that are not filled.
    nested = (e for jaxpr in inner_jaxprs(equation) for e, _ in iter_equations(jaxpr))
    return any(kind_of(e) in (Kind.KERNEL, Kind.EMPTY) for e in nested)


def _empty(equation: Equation) -> list[PartialArray]:
    _check_size(equation)
    aval = equation.outvars[0].aval
    values = unwritten_memory(aval.shape, np.dtype(aval.dtype))
    source = UndefinedSource(UndefinedCause.EMPTY, line_of(equation.source_info))
    return [PartialArray(values, np.full(values.shape, UNINITIALISED, np.uint8), (source,))]


def _check_size(equation: Equation) -> None:
    if sum(math.prod(getattr(v.aval, "shape", ())) for v in equation.outvars) > _MOST:
        reason = f"{primitive_name(equation)}, outside of the Pallas calls, makes an array that is too large for memory"
        raise _unavailable(reason, equation)


def _unavailable(reason: str, equation: Equation) -> Failure:
    line = line_of(equation.source_info)
    return Failure(Verdict.UNAVAILABLE, f"{reason} ({line})" if line else reason)


def _large(equation: Equation, operands: Sequence[PartialArray]) -> list[PartialArray]:
    result, name = equation.outvars[0], primitive_name(equation)
    if name == "optimization_barrier":
        return list(operands)
    first = operands[0].values
    made: VirtualArray | None = None
    if len(operands) == len(equation.outvars) == 1 and isinstance(first, VirtualArray):
        shape, dtype = tuple(result.aval.shape), np.dtype(result.aval.dtype)
        made = first.cast(dtype) if name == "convert_element_type" else first.move(name, equation.params, shape)
    if made is None:
        reason = "computes on arrays that are too large for memory: only moves and casts of them are supported"
        raise _unavailable(f"{name}, outside of the Pallas calls, {reason}", equation)
    return [PartialArray(made)]


class _NumpyRules(RuleSet):
    """Numbers with a single row, without operations that NumPy lacks."""

    rule = staticmethod(supported_rule)


@functools.lru_cache(maxsize=4096)
def _in_numpy(equation: Equation) -> EquationFunction | None:
    # The function that evaluates an equation without a Pallas call in it; None if it is not supported.
    if any(hasattr(v.aval, "inner_aval") for v in (*equation.invars, *equation.outvars)):
        return None
    try:
        return supported_rule(Machine(_NumpyRules()), equation)
    except UnknownError:
        return None


def _bind(equation: Equation, values: Sequence[JaxArray]) -> list[JaxArray]:
    # Evaluates an operation of JAX's own in NumPy, or by JAX if the rule does not cover it.
    if (function := _in_numpy(equation)) is not None:
        try:
            with np.errstate(all="ignore"):
                return [result[0] for result in function([np.asarray(value)[None] for value in values])]
        except Failure:  # a hang
            raise
        except Exception as error:
            warn_of_recovery(error, f"evaluating {primitive_name(equation)} in NumPy", UnknownError)
    try:
        outputs = equation.primitive.bind(*values, **equation.params)
    except jax.errors.JaxRuntimeError:
        raise  # from a callback of the user's
    except Exception as error:
        if not is_jax_limitation(error):
            raise
        what = f"cannot evaluate {primitive_name(equation)}, outside of the Pallas calls, on this CPU"
        raise _unavailable(describe_limitation(error, what), equation) from error
    return list(outputs) if equation.primitive.multiple_results else [outputs]


def _track(equation: Equation, operands: Sequence[PartialArray]) -> list[PartialArray]:
    # Evaluates an operation of JAX's own. An element of a result is undefined if it changes with the values that the
    # undefined operand elements are given.
    _check_size(equation)
    results = _bind(equation, [operand.values for operand in operands])
    tainted = [operand for operand in operands if operand.undefined is not None]
    if not tainted:
        return [PartialArray(result) for result in results]
    is_move = kind_of(equation) is Kind.MOVE and len(operands) == len(results) == 1
    if is_move and (move := _in_numpy(equation)) is not None:
        (operand,), (result,) = operands, results
        moved = np.asarray(move([np.asarray(operand.undefined)[None]])[0][0], np.uint8)
        return [PartialArray(result, moved, operand.sources)]
    code = max(int(operand.undefined.max()) for operand in tainted if operand.undefined is not None)
    sources = _sources(tainted)
    zeros, others = (
        _bind(equation, [_fill_undefined(operand, functools.partial(_repeat_byte, byte)) for operand in operands])
        for byte in (0x00, 0x4B)  # 0, and a number too large to vanish in a sum
    )
    tracked = []
    for result, *filled in zip(results, zeros, others, strict=True):
        differs = _differ(*map(np.asarray, filled))
        mask = np.where(differs, np.uint8(code), np.uint8(0)) if differs.any() else None
        tracked.append(PartialArray(result, mask, sources if mask is not None else ()))
    return tracked


def _fill_undefined(array: PartialArray, fill: Callable[[np.dtype], Any]) -> JaxArray:
    if array.undefined is None:
        return array.values
    values = np.array(array.values)
    values[array.undefined != 0] = fill(values.dtype)
    return values


def _repeat_byte(byte: int, dtype: np.dtype) -> Any:
    return np.frombuffer(bytes([byte & (1 if dtype == np.bool_ else 255)]) * dtype.itemsize, dtype)[0]


def _differ(one: Array, other: Array) -> Array:
    return np.asarray((one != other) & ~((one != one) & (other != other)))


# The values that can be substituted.


@dataclass(frozen=True, slots=True)
class KernelValue:
    """A value of the function around the Pallas calls, and the equation that computes it; None for an argument.

    `candidates` are the indices, in the list of all values, of those of the same type that are computed before it.
    """

    variable: Var
    equation: Equation | None
    candidates: tuple[int, ...]


def list_values(traced: Traced) -> list[KernelValue]:
    """The variables that a `PartialKernel` computes, in order."""
    found: list[KernelValue] = []

    def walk(jaxpr: Jaxpr) -> None:
        start = len(found)
        found.extend(KernelValue(v, None, ()) for v in (*jaxpr.constvars, *jaxpr.invars))
        own = list(range(start, len(found)))
        for equation in jaxpr.eqns:
            before = tuple(own)
            for variable in equation.outvars:
                known = tuple(n for n in before if _type(found[n].variable) == _type(variable) is not None)
                own.append(len(found))
                found.append(KernelValue(variable, equation, known))
            if kind_of(equation) is not Kind.KERNEL and _has_calls(equation):
                for inner in inner_jaxprs(equation):
                    walk(inner)

    walk(traced.jaxpr.jaxpr)
    return found


def _type(variable: Var) -> tuple[Any, Any] | None:
    return (variable.aval.shape, variable.aval.dtype) if hasattr(variable.aval, "dtype") else None


# Calls that run to their end whatever memory holds.


class FilledRun(NamedTuple):
    """The outputs of a call, and what it left unwritten or read too early, as far as that is known."""

    outputs: Sequence[Array]
    unwritten: Sequence[Array | None] = ()  # a mask of the elements that were never written; None if all were
    reads: tuple[UndefinedSource, ...] = ()  # of memory that was never written


# Runs a call on its operands. Unwritten memory holds the values of the second argument, or the interpreter's own if
# that is None.
FilledCall = Callable[[Sequence[Any], Callable[[np.dtype], Any] | None], FilledRun]


# Returns another value for unwritten memory than interpreters put there: NaN, or the largest integer.
def _other_fill(dtype: np.dtype) -> Any:
    return Fill(nan=not is_float(dtype))(dtype)


def run_filled(run: FilledCall, operands: Sequence[PartialArray]) -> list[PartialArray]:
    """Runs a call; if it reads unwritten memory, a second time with other values there, to see what depends on it."""
    ran = run([operand.values for operand in operands], None)
    sources = tuple(dict.fromkeys([*ran.reads, *(s for operand in operands for s in operand.sources)]))
    if not sources and not any(mask is not None for mask in ran.unwritten):
        return [PartialArray(output) for output in ran.outputs]
    others = run([_fill_undefined(operand, _other_fill) for operand in operands], _other_fill)
    results = []
    for number, (output, other) in enumerate(zip(ran.outputs, others.outputs, strict=True)):
        codes = np.where(_differ(output, other), np.uint8(UNINITIALISED), np.uint8(0))
        if ran.unwritten and (mask := ran.unwritten[number]) is not None:
            codes[mask] = UNWRITTEN
        results.append(PartialArray(output, codes, sources) if codes.any() else PartialArray(output))
    return results
