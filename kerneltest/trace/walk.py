"""Walks over a jaxpr: its equations at any depth, those that run unconditionally, and properties of its arithmetic."""

import math
from collections.abc import Container, Iterator, Mapping, Sequence

import numpy as np

from kerneltest.core.dtypes import float_format, is_float
from kerneltest.numerics.rounding_model import significant_digits
from kerneltest.trace.jax_compat.jaxprs import (
    AbstractValue,
    Atom,
    ClosedJaxpr,
    Equation,
    Jaxpr,
    Literal,
    OpenJaxpr,
    Params,
    Var,
)

# The primitives by which a function enters a Pallas kernel.
PALLAS_PRIMITIVES = frozenset({"pallas_call", "core_map", "mpmd_map"})
REDUCE_PRECISION = "reduce_precision"
_LOOPS = frozenset({"scan", "while"})


def primitive_name(equation: Equation) -> str:
    """The name of an equation's primitive."""
    return str(equation.primitive.name)


def new_variable(variable: Var) -> Var:
    """Returns a new variable of the same type."""
    return type(variable)(variable.aval)


def nested_jaxprs(value: object) -> Iterator[Jaxpr]:
    """Yields the jaxprs in one parameter of an equation, as open ones."""
    for item in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(item, ClosedJaxpr):
            yield item.jaxpr
        elif isinstance(item, OpenJaxpr):
            yield item


def iter_equations(jaxpr: Jaxpr, *, looped: bool = False) -> Iterator[tuple[Equation, bool]]:
    """Yields every equation at any depth, and whether it is in a loop.

    Args:
      jaxpr: open or closed.
      looped: whether the jaxpr itself runs in a loop.
    """
    for equation in jaxpr.eqns:
        yield equation, looped
        for value in equation.params.values():
            for inner in nested_jaxprs(value):
                yield from iter_equations(inner, looped=looped or primitive_name(equation) in _LOOPS)


def iter_calls(jaxpr: Jaxpr) -> Iterator[Equation]:
    """Yields the Pallas calls, but not those inside of another one, such as the warps of a Mosaic GPU kernel."""
    for equation in jaxpr.eqns:
        if primitive_name(equation) in PALLAS_PRIMITIVES:
            yield equation
            continue
        for value in equation.params.values():
            for inner in nested_jaxprs(value):
                yield from iter_calls(inner)


def scan_counts(params: Params) -> tuple[int, int]:
    """The number of a scan's operands that are constants, and of those that it carries, from its parameters."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carried, _ = params["ft_in"].unpack()  # since JAX 0.12
    return len(consts), len(carried)


_CALLS = frozenset(
    """jit pjit closed_call core_call custom_jvp_call custom_vjp_call custom_vmap_call checkpoint remat2""".split()
)


def unconditional_equations(jaxpr: Jaxpr, known: Mapping[Var, int]) -> Iterator[tuple[Equation, list[int | None]]]:
    """Yields the equations that run unconditionally: not in a branch, nor in a loop that may run zero times.

    Args:
      jaxpr: an open one; equations at any depth are looked at.
      known: numbers for some of its variables.

    Yields:
      An equation, and for each operand the number of its variable, or None if that has none.
    """
    for equation in jaxpr.eqns:
        operands = [None if hasattr(v, "val") else known.get(v) for v in equation.invars]
        yield equation, operands
        name = primitive_name(equation)
        inner = next((each for value in equation.params.values() for each in nested_jaxprs(value)), None)
        if inner is None:
            continue
        if name in _CALLS and len(inner.invars) == len(operands):
            yield from unconditional_equations(inner, _number_variables(inner.invars, operands))
        elif name == "run_scoped":
            yield from unconditional_equations(inner, _number_variables(inner.constvars, operands))
        elif name == "scan" and equation.params["length"] > 0:
            consts, _ = scan_counts(equation.params)  # a carried value may differ in the next iteration
            yield from unconditional_equations(inner, _number_variables(inner.invars[:consts], operands[:consts]))


def _number_variables(variables: Sequence[Var], numbers: Sequence[int | None]) -> dict[Var, int]:
    return {v: number for v, number in zip(variables, numbers, strict=True) if number is not None}


_EXACT_ON_INTEGERS = frozenset(
    """add sub neg mul dot_general max min abs sign floor ceil round clamp select_n reduce_sum reduce_max reduce_min
    cumsum cummax cummin convert_element_type broadcast_in_dim reshape squeeze expand_dims transpose rev concatenate
    slice dynamic_slice dynamic_update_slice gather scatter scatter_add pad copy copy_p iota stop_gradient
    get swap addupdate masked_load masked_swap load store atomic_rmw full_like device_put optimization_barrier
    jit pjit closed_call core_call custom_jvp_call custom_vjp_call custom_vmap_call cond scan while run_scoped
    run_state pallas_call core_map mpmd_map""".split()
)
_NARROW_IN_MEMORY = frozenset("get load masked_load swap store masked_swap jit pjit".split()) | PALLAS_PRIMITIVES
_MULTIPLIES = frozenset({"mul", "dot_general"})
_ARITHMETIC = frozenset({"add", "sub", "mul"})
_LARGEST_MOVED = 2.0**24  # larger constants that are only moved are fills, such as -1e30 for -inf


def is_exact(jaxpr: Jaxpr) -> bool:
    """Returns whether its arithmetic is exact on small integers in any order.

    That is so for sums and moves, and for at most one multiplication of floats.
    """
    multiplications = 0
    for equation, looped in iter_equations(jaxpr):
        if not any(_holds_floats(v.aval) for v in equation.outvars):
            continue
        if primitive_name(equation) not in _EXACT_ON_INTEGERS:
            return False
        limit = math.inf if primitive_name(equation) in _ARITHMETIC else _LARGEST_MOVED
        if any(_is_rounded(operand, limit) for operand in equation.invars):
            return False
        if primitive_name(equation) in _MULTIPLIES:
            # The next iteration of a loop may multiply a product again; a dot only feeds a sum.
            multiplications += 2 if looped and primitive_name(equation) == "mul" else 1
    return multiplications <= 1


def _is_rounded(operand: Atom, limit: float) -> bool:
    """Returns whether it is a constant such as 0.1 below a limit: kernel and oracle round it to different values."""
    if not isinstance(operand, Literal) or not _holds_floats(operand.aval):
        return False
    dtype = np.dtype(getattr(operand.aval, "dtype", np.float32))
    value = np.asarray(operand.val, dtype)[()]
    # Of float32, the shortest decimal that names it tells 0.1 from 1,000,000; narrower floats have too few digits.
    is_decimal = dtype.itemsize > 2 and float(str(value)) == float(value)
    if is_decimal or not abs(float(value)) < limit:
        return False
    return significant_digits(float(value)) >= 1 << float_format(dtype).precision // 3  # too many for exact products


def _holds_floats(aval: AbstractValue) -> bool:
    dtype = getattr(aval, "dtype", None)
    try:
        return dtype is not None and is_float(np.dtype(dtype))
    except TypeError:
        return False  # a key, a semaphore or a barrier


MOVES = frozenset(
    """broadcast_in_dim reshape squeeze expand_dims transpose rev concatenate split slice dynamic_slice
    dynamic_update_slice gather scatter pad select_n copy copy_p iota stop_gradient full_like device_put
    optimization_barrier""".split()
)


def rounds_explicitly(jaxpr: Jaxpr) -> bool:
    """Returns whether some equation rounds to a precision that it names, which may be derived from dtypes."""
    return any(primitive_name(equation) == REDUCE_PRECISION for equation, _ in iter_equations(jaxpr))


def computes_floats(jaxpr: Jaxpr) -> bool:
    """Returns whether an operation has floats among its results."""
    return any(_holds_floats(v.aval) for equation, _ in iter_equations(jaxpr) for v in equation.outvars)


def computes_outside_calls(jaxpr: Jaxpr) -> bool:
    """Returns whether it computes with floats outside of its Pallas calls. Moving elements does not count."""
    for equation in jaxpr.eqns:
        inner = [each for value in equation.params.values() for each in nested_jaxprs(value)]
        if primitive_name(equation) in PALLAS_PRIMITIVES or primitive_name(equation) in MOVES:
            continue
        if any(map(computes_outside_calls, inner)):
            return True
        if not inner and any(_holds_floats(v.aval) for v in equation.invars):
            return True
    return False


def has_reduced_dots(jaxpr: Jaxpr) -> bool:
    """Returns whether a float32 matrix product in it leaves its precision to the backend."""
    return any(_is_reduced_dot(equation) for equation, _ in iter_equations(jaxpr))


def _is_reduced_dot(equation: Equation) -> bool:
    if primitive_name(equation) != "dot_general" or equation.invars[0].aval.dtype != np.float32:
        return False
    precision = str(equation.params.get("precision"))
    return not ("HIGHEST" in precision or precision.endswith("F32_F32_F32"))


def named_dot_dtype(jaxpr: Jaxpr) -> str:
    """The dtype, narrower than TF32, that a float32 matrix product in it names for its operands, or ""."""
    dots = (equation for equation, _ in iter_equations(jaxpr) if _is_reduced_dot(equation))
    return "bfloat16" if any("BF16" in str(dot.params.get("precision")) for dot in dots) else ""


def lowering_differences(jaxpr: Jaxpr) -> tuple[str, ...]:
    """Names the operations whose results may differ between a GPU and interpret mode without any wrong rounding.

    Returns:
      Names of the formats narrower than float32 in which it computes, since XLA's CPU may keep float32 for them;
      `TF32` if a product leaves its precision open; `maximum`, whose lowering to Triton drops NaN.
    """
    found: dict[str, None] = {}
    for equation, _ in iter_equations(jaxpr):
        if primitive_name(equation) in _NARROW_IN_MEMORY:
            continue
        for variable in equation.outvars:
            if _holds_floats(variable.aval) and (dtype := np.dtype(variable.aval.dtype)).itemsize < 4:
                found.setdefault(dtype.name)
        if _is_reduced_dot(equation):
            found.setdefault("TF32")
        if primitive_name(equation) in ("max", "reduce_max", "min", "reduce_min"):
            found.setdefault("maximum")
    return tuple(found)


# The width of the operands of a kernel's matrix products: whether it rounds values to 16 bits before it multiplies.

_STORES = frozenset("swap store masked_swap masked_store addupdate".split())


def has_narrow_products(jaxpr: Jaxpr) -> bool:
    """Returns whether a product may have an operand that the kernel rounded to 16 bits.

    That is so if it multiplies matrices of 16 bits, or values that it rounded to 16 bits and widened again. A kernel
    without matrix products may multiply such values one by one. If in doubt, and without arguments of 16 bits, where it
    does not matter, the answer is yes.
    """
    if not any(_bytes_of_float(each) == 2 for each in jaxpr.invars):
        return True
    nested = list(_iter_jaxprs(jaxpr))
    dots = [(each, dot) for each in nested for dot in each.eqns if primitive_name(dot) == "dot_general"]
    results = {each for each in jaxpr.outvars if not isinstance(each, Literal)}
    rounds = any(
        _is_used(each, equation, results) for each in nested for equation in each.eqns if _is_narrowing(equation)
    )
    if not dots:
        return rounds
    exact = frozenset(jaxpr.invars)
    return any(_is_narrow(each, operand, exact, rounds) for each, dot in dots for operand in dot.invars)


def _iter_jaxprs(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """Yields a jaxpr and all nested ones."""
    yield jaxpr
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            for inner in nested_jaxprs(value):
                yield from _iter_jaxprs(inner)


def _is_narrow(jaxpr: Jaxpr, operand: Atom, exact: frozenset[Var], rounds: bool) -> bool:
    """Returns whether an operand of a product is of 16 bits, or a value that was rounded to 16 bits.

    Args:
      jaxpr: that of the product.
      operand: the operand.
      exact: the kernel's arguments, which it did not round.
      rounds: whether the kernel rounds any value that it does not just store; this decides for values that come from
        outside of the jaxpr.
    """
    if _bytes_of_float(operand) in (1, 2):
        return True
    made_by = {variable: equation for equation in jaxpr.eqns for variable in equation.outvars}
    todo, seen = [operand], set()
    while todo:
        atom = todo.pop()
        if isinstance(atom, Literal) or atom in seen or atom in exact:
            continue
        seen.add(atom)
        equation = made_by.get(atom)
        if equation is None or any(True for value in equation.params.values() for _ in nested_jaxprs(value)):
            if rounds and _bytes_of_float(atom):
                return True
        elif _is_narrowing(equation):
            return True
        elif primitive_name(equation) in MOVES or primitive_name(equation) == "convert_element_type":
            todo.extend(equation.invars)
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
    uses = [each for each in jaxpr.eqns if any(variable is rounded for variable in each.invars)]
    return any(primitive_name(each) not in _STORES for each in uses)


def _bytes_of_float(atom: Atom) -> int:
    """Returns the size of an element, 0 if it is not a float."""
    dtype = getattr(atom.aval, "dtype", None)
    try:
        return np.dtype(dtype).itemsize if dtype is not None and is_float(np.dtype(dtype)) else 0
    except TypeError:
        return 0  # a key, a semaphore or a barrier
