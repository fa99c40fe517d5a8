"""Evaluation of the function around the Pallas calls, one operation at a time, which tracks undefined elements."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from kerneltest.core.details import Undefined, UndefinedCause, UndefinedSource
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure, warn_of_recovery
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.batched_interpreter.pallas_call import operation
from kerneltest.trace.jax_compat.jaxprs import (
    AbstractValue,
    Atom,
    Equation,
    JaxArray,
    Jaxpr,
    Literal,
    Params,
    Var,
    consts_of,
    open_jaxpr,
)
from kerneltest.trace.jax_compat.source_lines import describe_limitation, is_jax_limitation, line_of, line_of_nested
from kerneltest.trace.primitives import Kind, called_jaxpr, inner_jaxprs, kind_of
from kerneltest.trace.rewrite import Fill
from kerneltest.trace.scalars import UnknownError
from kerneltest.trace.tracing import Traced
from kerneltest.trace.virtual_arrays import VirtualArray
from kerneltest.trace.walk import (
    equations_in,
    new_variable,
    primitive_name,
    scan_counts,
)

# Arrays with undefined elements, as they occur in the function around the Pallas calls.

# Codes of undefined elements. An output's verdict is that of its highest code.
UNWRITTEN, UNINITIALISED = 1, 2


@dataclass(frozen=True, slots=True)
class PartialArray:
    """An array of which some elements may be undefined.

    Attributes:
      values: its elements, an array of NumPy's or JAX's.
      undefined: a code for each undefined element and 0 for the others, uint8; None if all are defined.
      sources: the reads that the undefined elements come from.
    """

    values: JaxArray
    undefined: Array | None = None
    sources: tuple[UndefinedSource, ...] = ()


def require_defined(outputs: Sequence[PartialArray]) -> tuple[Array, ...]:
    """The values of outputs, all of which must be defined.

    Raises:
      Failure: an element of an output is undefined.
    """
    for number, output in enumerate(outputs):
        if output.undefined is not None and output.undefined.any():
            raise _failure(f"output {number}", output.undefined, output.sources)
    return tuple(np.asarray(output.values) for output in outputs)


def _failure(array: str, codes: Array, sources: Sequence[UndefinedSource]) -> Failure:
    """The failure of an array with undefined elements."""
    first = format_element(codes.shape, int(np.flatnonzero(codes)[0]))
    unwritten = int(codes.max()) == UNWRITTEN
    count = int(np.count_nonzero(codes))
    detail = Undefined(array, unwritten, count, codes.size, first, () if unwritten else tuple(sources))
    return Failure(Verdict.UNWRITTEN if unwritten else Verdict.UNINITIALISED, detail)


def format_element(shape: tuple[int, ...], offset: int) -> str:
    """The indices of an element, as in `[3, 4]`, from its flat offset in an array."""
    return f"[{', '.join(str(int(i)) for i in np.unravel_index(offset, shape))}]"


_MOST = 2**26  # elements of an array that fits in memory

RunCall = Callable[[Equation, list[PartialArray]], list[PartialArray]]


def evaluate(
    traced: Traced,
    leaves: Sequence[Array | VirtualArray],
    run_call: RunCall,
    substitutions: Mapping[Var, Var] | None = None,
) -> list[PartialArray]:
    """Evaluates a kernel: its Pallas calls by `run_call`, and everything else by JAX.

    Args:
      traced: the kernel.
      leaves: its inputs.
      run_call: runs one call, from its equation and its operands.
      substitutions: variables that get the value of another variable, one that is evaluated before them.

    Raises:
      Failure: `unavailable` for an operation that JAX cannot evaluate here, or that makes or computes on arrays that
        are too large; whatever `run_call` raises.
    """
    consts = [PartialArray(const) for const in traced.jaxpr.consts]
    return _evaluate(traced.jaxpr.jaxpr, consts, [PartialArray(leaf) for leaf in leaves], run_call, substitutions or {})


@dataclass(frozen=True, slots=True)
class KernelValue:
    """A value of the function around the Pallas calls.

    Attributes:
      variable: the variable in its jaxpr.
      equation: the equation that computes it; None for an argument.
      candidates: indices in the list of all values: those of the same shape and dtype that are computed before it.
    """

    variable: Var
    equation: Equation | None
    candidates: tuple[int, ...]


def list_values(traced: Traced) -> list[KernelValue]:
    """The variables that `evaluate` computes, in order."""
    found: list[KernelValue] = []

    def walk(jaxpr: Jaxpr) -> None:
        start = len(found)
        found.extend(KernelValue(v, None, ()) for v in (*jaxpr.constvars, *jaxpr.invars))
        own = list(range(start, len(found)))
        for equation in jaxpr.eqns:
            before = tuple(own)
            for variable in equation.outvars:
                known = tuple(n for n in before if _same_type(found[n].variable.aval, variable.aval))
                own.append(len(found))
                found.append(KernelValue(variable, equation, known))
            if kind_of(equation) is not Kind.KERNEL and _has_calls(equation):
                for inner in inner_jaxprs(equation):
                    walk(inner)

    walk(traced.jaxpr.jaxpr)
    return found


def _same_type(a: AbstractValue, b: AbstractValue) -> bool:
    return bool(a.shape == b.shape and a.dtype == b.dtype) if hasattr(a, "dtype") and hasattr(b, "dtype") else False


def _evaluate(
    jaxpr: Jaxpr,
    consts: list[PartialArray],
    arguments: list[PartialArray],
    run_call: RunCall,
    instead: Mapping[Var, Var],
) -> list[PartialArray]:
    environment = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *arguments], strict=True))

    def read(atom: Atom) -> PartialArray:
        return PartialArray(_literal(atom)) if hasattr(atom, "val") else environment[atom]

    for equation in jaxpr.eqns:
        operands = [read(variable) for variable in equation.invars]
        environment.update(zip(equation.outvars, _equation(equation, operands, run_call, instead), strict=True))
        for variable in equation.outvars if instead else ():
            if variable in instead:
                environment[variable] = environment[instead[variable]]
    return [read(variable) for variable in jaxpr.outvars]


def _literal(literal: Literal) -> JaxArray:
    """The value of a literal, which JAX may keep as one of Python's numbers, in its own dtype."""
    dtype = getattr(literal.aval, "dtype", None)
    return np.asarray(literal.val, dtype) if isinstance(literal.val, bool | int | float | complex) else literal.val


@functools.lru_cache(maxsize=4096)  # a loop asks in each iteration, and each case again
def _has_calls(equation: Equation) -> bool:
    """Returns whether equations nested in it need `_evaluate`: Pallas calls, and arrays that are not filled."""
    return any(kind_of(inner) in (Kind.KERNEL, Kind.EMPTY) for inner, _ in equations_in(equation))


def _equation(
    equation: Equation, operands: list[PartialArray], run_call: RunCall, instead: Mapping[Var, Var]
) -> list[PartialArray]:
    params = equation.params
    if kind_of(equation) is Kind.KERNEL:
        return run_call(equation, operands)
    if kind_of(equation) is Kind.EMPTY:
        (result,) = equation.outvars
        _check_size(equation)
        values = np.full(result.aval.shape, Fill(nan=True)(np.dtype(result.aval.dtype)))
        source = UndefinedSource(UndefinedCause.EMPTY, line_of(equation.source_info))
        return [PartialArray(values, np.full(values.shape, UNINITIALISED, np.uint8), (source,))]
    large = any(isinstance(operand.values, VirtualArray) for operand in operands)
    if not _has_calls(equation) and not (large and any(True for _ in inner_jaxprs(equation))):
        return _large(equation, operands) if large else _bind(equation, operands)

    def call(inner: Jaxpr, arguments: list[PartialArray]) -> list[PartialArray]:
        consts = [PartialArray(const) for const in consts_of(inner)]
        return _evaluate(open_jaxpr(inner), consts, arguments, run_call, instead)

    match primitive_name(equation):
        case "cond":
            index, *rest = operands
            branches = params["branches"]
            return call(branches[int(np.clip(int(index.values), 0, len(branches) - 1))], rest)
        case "scan" | "while" if large:
            return _large(equation, operands)
        case "while":
            count = params["cond_nconsts"]
            start = count + params["body_nconsts"]
            carried = operands[start:]
            while bool(call(params["cond_jaxpr"], operands[:count] + carried)[0].values):
                carried = call(params["body_jaxpr"], operands[count:start] + carried)
            return carried
        case "scan":
            return _scan(params, operands, call)
    return call(called_jaxpr(equation), operands)


def _check_size(equation: Equation) -> None:
    """Raises an `unavailable` Failure if an operation of JAX's own makes an array that does not fit in memory."""
    if sum(math.prod(getattr(v.aval, "shape", ())) for v in equation.outvars) > _MOST:
        reason = f"{primitive_name(equation)}, outside of the Pallas calls, makes an array that is too large for memory"
        raise Failure(Verdict.UNAVAILABLE, f"{reason} ({line_of(equation.source_info)})")


def _large(equation: Equation, operands: list[PartialArray]) -> list[PartialArray]:
    """Evaluates an operation of JAX's own on arrays that do not fit in memory.

    Raises:
      Failure: `unavailable`, for an operation that computes.
    """
    result, name = equation.outvars[0], primitive_name(equation)
    if name == "optimization_barrier":
        return operands
    first = operands[0].values
    made: VirtualArray | None = None
    if len(operands) == len(equation.outvars) == 1 and isinstance(first, VirtualArray):
        shape, dtype = tuple(result.aval.shape), np.dtype(result.aval.dtype)
        made = first.cast(dtype) if name == "convert_element_type" else first.move(name, equation.params, shape)
    if made is None:
        line = line_of(equation.source_info)
        where = f" ({line})" if line else ""
        raise Failure(
            Verdict.UNAVAILABLE,
            f"{name}, outside of the Pallas calls, computes on arrays that are too large for memory: only moves and "
            f"casts of them are supported{where}",
        )
    return [PartialArray(made)]


def _scan(
    params: Params, operands: list[PartialArray], call: Callable[[Jaxpr, list[PartialArray]], list[PartialArray]]
) -> list[PartialArray]:
    fixed, carry = scan_counts(params)
    consts, carried, xs = operands[:fixed], operands[fixed : fixed + carry], operands[fixed + carry :]
    order = range(params["length"])
    stacked: list[list[PartialArray]] = []
    for i in reversed(order) if params["reverse"] else order:
        row = [PartialArray(x.values[i], None if x.undefined is None else x.undefined[i], x.sources) for x in xs]
        results = call(params["jaxpr"], [*consts, *carried, *row])
        carried = results[:carry]
        stacked.append(results[carry:])
    if params["reverse"]:
        stacked.reverse()
    return [*carried, *(_stack(list(column)) for column in zip(*stacked, strict=True))]


def _stack(rows: list[PartialArray]) -> PartialArray:
    values = np.stack([np.asarray(row.values) for row in rows])
    if all(row.undefined is None for row in rows):
        return PartialArray(values)
    masks = [np.zeros(values.shape[1:], np.uint8) if row.undefined is None else row.undefined for row in rows]
    return PartialArray(values, np.stack(masks), tuple(dict.fromkeys(s for row in rows for s in row.sources)))


def _bind(equation: Equation, operands: list[PartialArray]) -> list[PartialArray]:
    """Evaluates an operation of JAX's own.

    An element of a result is undefined if it changes with the values that the undefined operand elements are given.
    """
    on_references = any(hasattr(v.aval, "inner_aval") for v in (*equation.invars, *equation.outvars))
    step = None if on_references else operation(equation)

    def bind(values: list[JaxArray]) -> list[JaxArray]:
        if step is not None:
            try:
                with np.errstate(all="ignore"):
                    return [each[0] for each in step([np.asarray(value)[None] for value in values])]
            except Failure:  # a hang
                raise
            except Exception as error:  # JAX evaluates what the rule does not cover
                warn_of_recovery(error, f"evaluating {primitive_name(equation)} in NumPy", UnknownError)
        try:
            outputs = equation.primitive.bind(*values, **equation.params)
        except jax.errors.JaxRuntimeError:
            raise  # from a callback of the user's
        except Exception as error:
            if not is_jax_limitation(error):
                raise
            reason = describe_limitation(
                error, f"cannot evaluate {primitive_name(equation)}, outside of the Pallas calls, on this CPU"
            )
            line = line_of(equation.source_info)
            raise Failure(Verdict.UNAVAILABLE, f"{reason} ({line})" if line else reason) from error
        return list(outputs) if equation.primitive.multiple_results else [outputs]

    _check_size(equation)
    results = bind([operand.values for operand in operands])
    tainted = [operand for operand in operands if operand.undefined is not None]
    if not tainted:
        return [PartialArray(result) for result in results]
    if step is not None and kind_of(equation) is Kind.MOVE and len(operands) == len(results) == 1:
        (operand,), (result,) = operands, results
        moved = np.asarray(step([np.asarray(operand.undefined)[None]])[0][0], np.uint8)
        return [PartialArray(result, moved, operand.sources)]
    code = max(int(operand.undefined.max()) for operand in tainted if operand.undefined is not None)
    sources = tuple(dict.fromkeys(source for operand in tainted for source in operand.sources))
    filled = [
        bind([operand.values if operand.undefined is None else _fill_undefined(operand, byte) for operand in operands])
        for byte in (0x00, 0x4B)  # 0, and a number too large to vanish in a sum
    ]
    partial = []
    for result, *others in zip(results, *filled, strict=True):
        a, b = (np.asarray(other) for other in others)
        differs = (a != b) & ~((a != a) & (b != b))
        mask = np.where(differs, np.uint8(code), np.uint8(0)) if differs.any() else None
        partial.append(PartialArray(result, mask, sources if mask is not None else ()))
    return partial


def _fill_undefined(array: PartialArray, byte: int) -> Array:
    """The array's values, every undefined element made of one repeated byte."""
    values = np.array(array.values)
    word = np.frombuffer(bytes([byte & (1 if values.dtype == bool else 255)]) * values.dtype.itemsize, values.dtype)[0]
    values[array.undefined != 0] = word
    return values


# A jaxpr as a list of operations, with the calls of functions inlined.


@dataclass(frozen=True, eq=False, slots=True)
class JaxprStep:
    """One operation.

    Attributes:
      equation: its equation, whose variables are those of the equation's own jaxpr.
      operands: its variables and literals, valid in the whole list.
      results: the variables that it defines; None for one that is not used.
      enclosing_calls: the calls that it was inlined from, outermost first.
      bodies: the branches of a `cond`, the body of a `scan`, or the condition and the body of a `while`.
    """

    equation: Equation
    operands: tuple[Atom, ...]
    results: tuple[Var | None, ...]
    enclosing_calls: tuple[Equation, ...] = ()
    bodies: tuple["JaxprBody", ...] = ()

    @property
    def name(self) -> str:
        """The name of its primitive."""
        return primitive_name(self.equation)

    @property
    def line(self) -> str:
        """`FILE:LINE` of the user's code, or ""."""
        return line_of_nested([*self.enclosing_calls, self.equation])


@dataclass(frozen=True, eq=False, slots=True)
class JaxprBody:
    """The operations of a jaxpr.

    Attributes:
      arguments: the variables that it is called with, without those that it captures from its surroundings.
      steps: its operations, in order.
      results: the variables and literals that it returns.
    """

    arguments: tuple[Var, ...]
    steps: tuple[JaxprStep, ...]
    results: tuple[Atom, ...]


def inline_jaxpr(jaxpr: Jaxpr) -> JaxprBody:
    """The operations of a jaxpr, open or closed."""
    return _body(jaxpr, (), ())


def is_literal(value: Atom | None) -> bool:
    """Returns whether an operand is a constant."""
    return hasattr(value, "val")


def iter_steps(steps: Sequence[JaxprStep]) -> Iterator[JaxprStep]:
    """Yields the steps, and those in their bodies at any depth."""
    for step in steps:
        yield step
        for body in step.bodies:
            yield from iter_steps(body.steps)


def _bodies(equation: Equation, operands: tuple[Atom, ...], within: tuple[Equation, ...]) -> tuple[JaxprBody, ...]:
    params = equation.params
    match primitive_name(equation):
        case "cond":
            return tuple(_body(branch, operands[1:], within) for branch in params["branches"])
        case "scan":
            return (_body(params["jaxpr"], operands[: scan_counts(params)[0]], within),)
        case "while":
            count = params["cond_nconsts"]
            condition = _body(params["cond_jaxpr"], operands[:count], within)
            fixed = operands[count : count + params["body_nconsts"]]
            return condition, _body(params["body_jaxpr"], fixed, within)
    return ()


def _body(jaxpr: Jaxpr, fixed: Sequence[Atom], within: tuple[Equation, ...]) -> JaxprBody:
    """The body of a jaxpr whose first arguments are `fixed`. Its variables are new, since jaxprs may be shared."""
    jaxpr = open_jaxpr(jaxpr)
    arguments = tuple(new_variable(variable) for variable in jaxpr.invars[len(fixed) :])
    steps: list[JaxprStep] = []
    results = _inline(jaxpr, (*fixed, *arguments), within, steps)
    return JaxprBody(arguments, tuple(steps), results)


def _inline(
    jaxpr: Jaxpr, arguments: Sequence[Atom], within: tuple[Equation, ...], steps: list[JaxprStep]
) -> tuple[Atom, ...]:
    """Appends the steps of a jaxpr that is called with `arguments`, and returns its results."""
    environment: dict[Var, Atom] = dict(zip(jaxpr.invars, arguments, strict=True))

    def read(value: Atom) -> Atom:
        return value if is_literal(value) else environment.setdefault(value, value)

    used = {v for e in jaxpr.eqns for v in e.invars if not is_literal(v)} | {
        v for v in jaxpr.outvars if not is_literal(v)
    }
    for equation in jaxpr.eqns:
        operands = tuple(map(read, equation.invars))
        inner = called_jaxpr(equation)
        if inner is not None:
            results = _inline(open_jaxpr(inner), operands, (*within, equation), steps)
        else:
            results = tuple(new_variable(v) if v in used else None for v in equation.outvars)
            steps.append(JaxprStep(equation, operands, results, within, _bodies(equation, operands, within)))
        environment.update(zip(equation.outvars, results, strict=True))
    return tuple(map(read, jaxpr.outvars))
