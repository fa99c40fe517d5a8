"""Walks over a jaxpr: its equations at any depth, those that run unconditionally, and properties of its arithmetic.

`inline_jaxpr` returns a jaxpr as a list of operations.
"""

import functools
import itertools
import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from kerneltest.core.dtypes import DType, float_format, is_float, is_integer, parse_dtype
from kerneltest.numerics.rounding_model import fits, is_short, significant_digits
from kerneltest.trace.jax_compat.jaxprs import (
    Atom,
    ClosedJaxpr,
    Equation,
    Jaxpr,
    Literal,
    Params,
    Var,
    consts_of,
    inner_jaxprs,
    open_jaxpr,
    parameter_jaxprs,
    without_dead_code,
)
from kerneltest.trace.jax_compat.source_lines import line_of_nested
from kerneltest.trace.primitives import MOVES, Kind, called_jaxpr, kind_of, primitive_of
from kerneltest.trace.triton_kernels import arithmetic_of, is_triton_call


def first_line(equation: Equation) -> str:
    """FILE:LINE of the user's code behind an equation, or behind the first one in it that has a line; or ""."""
    paths = itertools.chain([[equation]], ([*around, inner] for inner, around in equations_in(equation)))
    return next(filter(None, map(line_of_nested, paths)), "")


def primitive_name(equation: Equation) -> str:
    """The name of an equation's primitive."""
    return primitive_of(equation).name


def new_variable(variable: Var) -> Var:
    """Returns a new variable of the same type."""
    return type(variable)(variable.aval)


def iter_equations(jaxpr: Jaxpr, within: tuple[Equation, ...] = ()) -> Iterator[tuple[Equation, tuple[Equation, ...]]]:
    """Yields every equation at any depth of a jaxpr, open or closed, and the equations that it is nested in.

    The order is that of the program. The jaxpr itself is nested `within` equations, the outermost first.
    """
    for equation in jaxpr.eqns:
        yield equation, within
        for inner in inner_jaxprs(equation):
            yield from iter_equations(inner, (*within, equation))


def equations_in(equation: Equation) -> Iterator[tuple[Equation, tuple[Equation, ...]]]:
    """Yields the equations that are nested in an equation, as `iter_equations` does, but not the equation itself."""
    for inner in inner_jaxprs(equation):
        yield from iter_equations(inner, (equation,))


def iter_calls(jaxpr: Jaxpr) -> Iterator[Equation]:
    """Yields the Pallas calls, but not those inside of another one, such as the warps of a Mosaic GPU kernel."""
    for equation in jaxpr.eqns:
        if kind_of(equation) is Kind.KERNEL:
            yield equation
        else:
            for inner in inner_jaxprs(equation):
                yield from iter_calls(inner)


def iter_constants(jaxpr: ClosedJaxpr | Jaxpr) -> Iterator[Any]:
    """Yields the constants of a jaxpr at any depth: literals, and the values of constants that have some."""
    outer = jax.core.Tracer  # what a nested jaxpr takes from the one around it
    yield from (const for const in consts_of(jaxpr) if not isinstance(const, outer))
    opened = open_jaxpr(jaxpr)
    atoms = [*opened.outvars, *(operand for equation in opened.eqns for operand in equation.invars)]
    yield from (atom.val for atom in atoms if isinstance(atom, Literal))
    for equation in opened.eqns:
        for inner in parameter_jaxprs(equation):
            yield from iter_constants(inner)


NARROW = parse_dtype("float16"), parse_dtype("bfloat16")  # the finer first


def narrow_inputs(jaxpr: ClosedJaxpr) -> tuple[DType, ...]:
    """Returns the floats of 16 bits that are as fine as one of the inputs, or finer: numbers may be rounded to them."""
    given = [dtype for aval in jaxpr.in_avals if (dtype := float_dtype(getattr(aval, "dtype", None))) in NARROW]
    return NARROW[: max(map(NARROW.index, given), default=-1) + 1]


def narrow_numbers(jaxpr: ClosedJaxpr, narrow: Sequence[DType] | None = None) -> Mapping[float, DType]:
    """Returns the literals that may have been rounded to 16 bits, each with that dtype.

    It is their own, or the coarsest of some, by default `narrow_inputs`, that represents one of float32, as
    `np.float16(0.1)` is a literal of float32 in such arithmetic.
    """
    narrow = narrow_inputs(jaxpr) if narrow is None else narrow
    found = dict[float, DType]()
    for each in iter_constants(jaxpr):
        dtype = float_dtype(getattr(each, "dtype", None))
        if dtype is not None and not np.ndim(each) and np.isfinite(number := float(np.asarray(each, dtype))):
            candidates = narrow if dtype == np.float32 else [dtype] if dtype in NARROW else ()
            found.update((number, d) for d in candidates if fits(np.array([number]), float_format(d)))
    return found


def uses_call(jaxpr: Jaxpr) -> bool:
    """Returns whether the result of a Pallas call is used, or the call has effects."""

    def is_live(jaxpr: Jaxpr) -> bool:
        alive = open_jaxpr(jaxpr)
        used = {id(atom) for atoms in (alive.outvars, *(e.invars for e in alive.eqns)) for atom in atoms}
        return any(
            bool(equation.effects) or any(id(output) in used for output in equation.outvars)
            if kind_of(equation) is Kind.KERNEL  # JAX 0.10 keeps those that are dead
            else any(map(is_live, inner_jaxprs(equation)))
            for equation in alive.eqns
        )

    return is_live(without_dead_code(open_jaxpr(jaxpr)))


def scan_counts(params: Params) -> tuple[int, int]:
    """The number of a scan's operands that are constants, and of those that it carries, from its parameters."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carried, _ = params["ft_in"].unpack()  # since JAX 0.12
    return len(consts), len(carried)


def unconditional_equations(jaxpr: Jaxpr, known: Mapping[Var, int]) -> Iterator[tuple[Equation, list[int | None]]]:
    """Yields the equations, at any depth, that run unconditionally: not in a branch, nor in a loop that may not turn.

    With each comes, for each operand, the number of its variable, or None; some variables of the open jaxpr have a
    `known` number.
    """
    for equation in jaxpr.eqns:
        yield equation, [None if isinstance(v, Literal) else known.get(v) for v in equation.invars]
        if primitive_name(equation) in ("pallas_call", "cond", "while") or equation.params.get("length") == 0:
            continue
        for inner, pairs in _entered(equation):
            passed = ((v, operand) for v, operand in pairs if not isinstance(operand, Literal) and operand in known)
            # The body of a scan gets a part of some operands, which has fewer axes.
            numbers = {v: known[operand] for v, operand in passed if v.aval.shape == operand.aval.shape}
            yield from unconditional_equations(inner, numbers)


_LARGEST_MOVED = 2.0**24  # larger constants that are only moved are fills, such as -1e30 for -inf


def is_exact(jaxpr: ClosedJaxpr) -> bool:
    """Returns whether it is exact on small integers in any order: sums, moves and at most one product of floats."""
    nested = (inner for equation, _ in iter_equations(jaxpr) for inner in parameter_jaxprs(equation))
    if not all(_is_whole(constant) for each in (jaxpr, *nested) for constant in consts_of(each)):
        return False
    multiplications, narrow = 0, narrow_numbers(jaxpr)
    for equation, within in iter_equations(jaxpr):
        if is_triton_call(equation):
            arithmetic = arithmetic_of(equation)
            if not arithmetic.exact:
                return False
            multiplications += arithmetic.multiplications
            continue
        if not any(map(_bytes_of_float, equation.outvars)):
            continue
        primitive = primitive_of(equation)
        limit = math.inf if primitive.adds or primitive.multiplies else _LARGEST_MOVED
        if not primitive.exact or any(_is_rounded(v, limit, narrow) for v in equation.invars):
            return False
        if primitive.multiplies:  # the next iteration of a loop may multiply the product again
            multiplications += 2 if any(kind_of(outer) is Kind.LOOP for outer in within) else 1
        elif primitive.kind is Kind.PRODUCT:  # only feeds a sum
            multiplications += 1
    return multiplications <= 1


def _is_whole(constant: Any) -> bool:
    """Returns whether the floats in an array that a kernel captured are integers or infinities."""
    if float_dtype(getattr(constant, "dtype", None)) is None or isinstance(constant, jax.core.Tracer):
        return True  # a tracer is a constant of a jaxpr around it
    values = np.asarray(constant, np.float64)
    return bool(np.all(~np.isfinite(values) | (values == np.rint(values))))


def _is_rounded(operand: Atom, limit: float, narrow: Mapping[float, DType]) -> bool:
    """Returns whether it is a constant such as 0.1 below a limit: kernel and oracle round it to different values."""
    dtype = float_dtype(getattr(operand.aval, "dtype", None))
    if dtype is None or not isinstance(operand, Literal):
        return False
    value = np.asarray(operand.val, dtype)[()]
    if (given := narrow.get(float(value))) is not None and not is_short(float(value), float_format(given)):
        return abs(float(value)) < limit
    # Of float32, the shortest decimal that names it tells 0.1 from 1,000,000; narrower floats have too few digits.
    is_decimal = dtype.itemsize > 2 and float(str(value)) == float(value)
    if is_decimal or not abs(float(value)) < limit:
        return False
    return significant_digits(float(value)) >= 1 << float_format(dtype).precision // 3  # too many for exact products


def float_dtype(dtype: Any) -> DType | None:
    """The dtype if it is a float, else None, as for None."""
    try:
        return np.dtype(dtype) if dtype is not None and is_float(np.dtype(dtype)) else None
    except TypeError:
        return None  # a key, a semaphore or a barrier


def _bytes_of_float(atom: Atom) -> int:  # 0 if it is not a float
    dtype = float_dtype(getattr(atom.aval, "dtype", None))
    return 0 if dtype is None else dtype.itemsize


def rounds_explicitly(jaxpr: Jaxpr) -> bool:
    """Returns whether some equation rounds to a precision that it names, which may be derived from dtypes."""
    return any(primitive_name(equation) == "reduce_precision" for equation, _ in iter_equations(jaxpr))


def reads_bits_of_floats(jaxpr: Jaxpr) -> bool:
    """Returns whether floats are made of bits, or bits of floats: how many there are depends on the dtype."""
    bitcasts = (each for each, _ in iter_equations(jaxpr) if primitive_name(each).startswith("bitcast"))
    return any(any(map(_bytes_of_float, (*each.invars, *each.outvars))) for each in bitcasts)


def converts_floats_to_integers(jaxpr: Jaxpr) -> bool:
    """Returns whether some equation converts floats to integers other than booleans."""
    casts = (each for each, _ in iter_equations(jaxpr) if primitive_name(each) == "convert_element_type")
    return any(_bytes_of_float(each.invars[0]) and is_integer(np.dtype(each.params["new_dtype"])) for each in casts)


def computes_floats(jaxpr: Jaxpr) -> bool:
    """Returns whether an operation has floats among its results, or a call of a kernel in Triton among its operands."""

    def computes(equation: Equation) -> bool:
        values = (*equation.outvars, *(equation.invars if is_triton_call(equation) else ()))
        return any(map(_bytes_of_float, values))

    return any(computes(equation) for equation, _ in iter_equations(jaxpr))


def computes_outside_calls(jaxpr: Jaxpr) -> bool:
    """Returns whether it computes with floats outside of its Pallas calls. Moving elements does not count."""
    for equation in jaxpr.eqns:
        inner = list(inner_jaxprs(equation))
        if kind_of(equation) is Kind.KERNEL or kind_of(equation) in MOVES:
            continue
        if any(map(computes_outside_calls, inner)) or (not inner and any(map(_bytes_of_float, equation.invars))):
            return True
    return False


def dot_precision(jaxpr: Jaxpr) -> tuple[bool, str]:
    """Returns whether a float32 matrix product leaves its precision to the backend, and the dtype below TF32, or ""."""
    dots = [equation for equation, _ in iter_equations(jaxpr) if _is_reduced_dot(equation)]
    calls = any(is_triton_call(equation) and arithmetic_of(equation).reduced_dots for equation in iter_calls(jaxpr))
    return calls or bool(dots), "bfloat16" if any("BF16" in str(dot.params.get("precision")) for dot in dots) else ""


@functools.lru_cache(maxsize=128)  # each case needs it
def adds_atomically(jaxpr: Jaxpr) -> bool:
    """Returns whether it may add floats by atomic operations."""
    calls = any(is_triton_call(equation) and arithmetic_of(equation).adds_atomically for equation in iter_calls(jaxpr))
    updates = (equation for equation, _ in iter_equations(jaxpr) if kind_of(equation) is Kind.ATOMIC)
    return calls or any(_bytes_of_float(variable) for update in updates for variable in update.outvars)


def _is_reduced_dot(equation: Equation) -> bool:
    if primitive_name(equation) != "dot_general" or equation.invars[0].aval.dtype != np.float32:
        return False
    precision = str(equation.params.get("precision"))
    return not ("HIGHEST" in precision or precision.endswith("F32_F32_F32"))


# Kinds whose results may be narrow in memory only, or are those of equations inside.
_NARROW_IN_MEMORY = frozenset({Kind.READ, Kind.WRITE, Kind.CALL, Kind.KERNEL})


def lowering_differences(jaxpr: Jaxpr) -> tuple[str, ...]:
    """Names the operations whose results may differ between a GPU and interpret mode without any wrong rounding.

    These are the formats narrower than float32 in which it computes, since XLA's CPU may keep float32 for them, and
    `TF32` if a product leaves its precision open.
    """
    found: dict[str, None] = {}
    for equation, _ in iter_equations(jaxpr):
        if kind_of(equation) in _NARROW_IN_MEMORY:
            continue
        found |= {np.dtype(v.aval.dtype).name: None for v in equation.outvars if _bytes_of_float(v) in (1, 2)}
        if _is_reduced_dot(equation):
            found.setdefault("TF32")
    return tuple(found)


# The width of the operands of a kernel's matrix products: whether it rounds values to 16 bits before it multiplies.


def has_narrow_products(jaxpr: Jaxpr) -> bool:
    """Returns whether a product may have an operand that the kernel rounded to 16 bits, and perhaps widened again.

    A kernel without matrix products may multiply such values one by one. If in doubt, and without arguments of 16 bits,
    where it does not matter, the answer is yes.
    """
    if not any(_bytes_of_float(v) == 2 for v in jaxpr.invars) or any(map(is_triton_call, iter_calls(jaxpr))):
        return True
    nested = [jaxpr, *(inner for equation, _ in iter_equations(jaxpr) for inner in inner_jaxprs(equation))]
    dots = [(inner, e) for inner in nested for e in inner.eqns if primitive_name(e) == "dot_general"]
    results = {v for v in jaxpr.outvars if not isinstance(v, Literal)}
    rounds = any(_is_used(inner, e, results) for inner in nested for e in inner.eqns if _is_narrowing(e))
    if not dots:
        return rounds
    exact = _exact_variables(jaxpr, jaxpr.invars)
    return any(_is_narrow(inner, operand, exact, rounds) for inner, dot in dots for operand in dot.invars)


def _exact_variables(jaxpr: Jaxpr, arguments: Iterable[Var]) -> set[Var]:
    """Returns the variables, at any depth, whose values are those of arguments, moved or widened at most."""
    exact = set(arguments)
    for equation in jaxpr.eqns:
        name, floats = primitive_name(equation), [v for v in equation.invars if _bytes_of_float(v)]
        widens = name == "convert_element_type" and floats and not _is_narrowing(equation)
        keeps = widens or kind_of(equation) in MOVES | {Kind.READ}
        if keeps and all(isinstance(v, Literal) or v in exact for v in floats):
            exact.update(equation.outvars)
        for inner, pairs in _entered(equation):
            given = [v for v, operand in pairs if not isinstance(operand, Literal) and operand in exact]
            exact |= _exact_variables(inner, given)
    return exact


# The jaxprs in an equation, with pairs of a variable of theirs and the operand whose value it has throughout.
def _entered(equation: Equation) -> Iterator[tuple[Jaxpr, Iterable[tuple[Var, Atom]]]]:
    name, params, operands = primitive_name(equation), equation.params, equation.invars
    inside = list(inner_jaxprs(equation))
    if name == "pallas_call":
        given = operands[params["grid_mapping"].num_dynamic_grid_bounds :]
        written = {operand for operand, _ in params["input_output_aliases"]}
        pairs = enumerate(zip(open_jaxpr(params["jaxpr"]).invars, given, strict=False))
        yield open_jaxpr(params["jaxpr"]), [pair for number, pair in pairs if number not in written]
    elif (called := called_jaxpr(equation)) is not None:
        yield open_jaxpr(called), zip(open_jaxpr(called).invars, operands, strict=True)
    elif name == "cond":
        yield from ((branch, zip(branch.invars, operands[1:], strict=True)) for branch in inside)
    elif name == "scan":
        (consts, carried), whole = scan_counts(params), list(zip(inside[0].invars, operands, strict=True))
        yield inside[0], [*whole[:consts], *whole[consts + carried :]]
    elif name == "while":
        body, first = open_jaxpr(params["body_jaxpr"]), params["cond_nconsts"]
        yield body, zip(body.invars[: params["body_nconsts"]], operands[first:], strict=False)
    elif name == "run_scoped":
        yield inside[0], zip(inside[0].constvars, operands, strict=True)


def _is_narrow(jaxpr: Jaxpr, operand: Atom, exact: Container[Var], rounds: bool) -> bool:
    """Returns whether an operand of a product in a jaxpr is a value that was rounded to 16 bits.

    Some variables are `exact`. Other values that come from outside of the jaxpr are narrow if they have 16 bits, or it
    `rounds` any value that it does not just store.
    """
    made_by = {variable: equation for equation in jaxpr.eqns for variable in equation.outvars}
    todo, seen = [operand], set()
    while todo:
        atom = todo.pop()
        if isinstance(atom, Literal) or atom in seen or atom in exact:
            continue
        seen.add(atom)
        equation = made_by.get(atom)
        if equation is None or any(True for _ in inner_jaxprs(equation)):
            if _bytes_of_float(atom) in (1, 2) or (rounds and _bytes_of_float(atom)):
                return True
        elif _is_narrowing(equation):
            return True
        elif kind_of(equation) in MOVES or primitive_name(equation) == "convert_element_type":
            todo.extend(equation.invars)
        elif _bytes_of_float(atom) in (1, 2):
            return True
    return False


def _is_narrowing(equation: Equation) -> bool:
    if primitive_name(equation) == "reduce_precision":
        return True
    if primitive_name(equation) != "convert_element_type":
        return False
    return _bytes_of_float(equation.invars[0]) >= 4 and _bytes_of_float(equation.outvars[0]) in (1, 2)


def _is_used(jaxpr: Jaxpr, narrowing: Equation, results: Container[Var]) -> bool:
    """Returns whether a rounded value goes anywhere but into memory or into the results of the kernel."""
    (rounded,) = narrowing.outvars
    if rounded not in results and any(variable is rounded for variable in jaxpr.outvars):
        return True
    uses = (e for e in jaxpr.eqns if any(variable is rounded for variable in e.invars))
    return any(kind_of(e) not in (Kind.WRITE, Kind.UPDATE) for e in uses)


# A jaxpr as a list of operations, with the calls of functions inlined.


@dataclass(frozen=True, eq=False, slots=True)
class JaxprStep:
    """One operation."""

    equation: Equation  # whose variables are those of the equation's own jaxpr
    operands: tuple[Atom, ...]  # valid in the whole list
    results: tuple[Var | None, ...]  # None for one that is not used
    enclosing_calls: tuple[Equation, ...] = ()  # that it was inlined from, outermost first
    bodies: tuple["JaxprBody", ...] = ()  # the branches of a `cond`; of a `scan`, one; of a `while`, condition and body

    @property
    def name(self) -> str:
        return primitive_name(self.equation)

    @property
    def line(self) -> str:
        return line_of_nested([*self.enclosing_calls, self.equation])


@dataclass(frozen=True, eq=False, slots=True)
class JaxprBody:
    """The operations of a jaxpr, in order."""

    arguments: tuple[Var, ...]  # without those that it captures from its surroundings
    steps: tuple[JaxprStep, ...]
    results: tuple[Atom, ...]


def inline_jaxpr(jaxpr: Jaxpr, fixed: Sequence[Atom] = (), within: tuple[Equation, ...] = ()) -> JaxprBody:
    """The operations of a jaxpr, open or closed, whose first arguments are `fixed`.

    Its variables are new, since jaxprs may be shared.
    """
    jaxpr = open_jaxpr(jaxpr)
    arguments = tuple(new_variable(variable) for variable in jaxpr.invars[len(fixed) :])
    steps: list[JaxprStep] = []
    results = _inline(jaxpr, (*fixed, *arguments), within, steps)
    return JaxprBody(arguments, tuple(steps), results)


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
            return tuple(inline_jaxpr(branch, operands[1:], within) for branch in params["branches"])
        case "scan":
            return (inline_jaxpr(params["jaxpr"], operands[: scan_counts(params)[0]], within),)
        case "while":
            count = params["cond_nconsts"]
            condition = inline_jaxpr(params["cond_jaxpr"], operands[:count], within)
            fixed = operands[count : count + params["body_nconsts"]]
            return condition, inline_jaxpr(params["body_jaxpr"], fixed, within)
    return ()


def _inline(
    jaxpr: Jaxpr, arguments: Sequence[Atom], within: tuple[Equation, ...], steps: list[JaxprStep]
) -> tuple[Atom, ...]:
    environment: dict[Var, Atom] = dict(zip(jaxpr.invars, arguments, strict=True))

    def read(value: Atom) -> Atom:
        return value if is_literal(value) else environment.setdefault(value, value)

    atoms = itertools.chain(jaxpr.outvars, *(equation.invars for equation in jaxpr.eqns))
    used = {atom for atom in atoms if not is_literal(atom)}
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
