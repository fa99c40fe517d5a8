"""Mutation operators on arithmetic, comparisons, choices and constants."""

from collections.abc import Iterator, Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from kerneltest.core.dtypes import Array, is_float
from kerneltest.extensions.mutation.edits import before, with_primitive
from kerneltest.extensions.mutation.operators import EquationChange, mutation_operator
from kerneltest.localize.equation_edits import Function, compute, dtype_of, is_array, is_float_array, with_params
from kerneltest.trace.jax_compat.jaxpr_types import Atom, Equation, Literal
from kerneltest.trace.walk import primitive_name

_Table = Mapping[str, tuple[str, Function]]

_SUMS: _Table = {"add": ("`-` for `+`", jnp.subtract), "sub": ("`+` for `-`", jnp.add)}
_PRODUCTS: _Table = {"mul": ("`/` for `*`", jnp.divide), "div": ("`*` for `/`", jnp.multiply)}
_EDGES: _Table = {
    "lt": ("`<=` for `<`", jnp.less_equal),
    "le": ("`<` for `<=`", jnp.less),
    "gt": ("`>=` for `>`", jnp.greater_equal),
    "ge": ("`>` for `>=`", jnp.greater),
}
_OPPOSITES: _Table = {
    "lt": ("`>=` for `<`", jnp.greater_equal),
    "le": ("`>` for `<=`", jnp.greater),
    "gt": ("`<=` for `>`", jnp.less_equal),
    "ge": ("`<` for `>=`", jnp.less),
    "eq": ("`!=` for `==`", jnp.not_equal),
    "ne": ("`==` for `!=`", jnp.equal),
}
_LOGIC: _Table = {"and": ("`|` for `&`", jnp.bitwise_or), "or": ("`&` for `|`", jnp.bitwise_and)}
_EXTREMES: _Table = {"max": ("minimum for maximum", jnp.minimum), "min": ("maximum for minimum", jnp.maximum)}
_FUNCTIONS: _Table = {
    "exp": ("exp2 for exp", jnp.exp2),
    "exp2": ("exp for exp2", jnp.exp),
    "log": ("log2 for log", jnp.log2),
    "log1p": ("log for log1p", jnp.log),
    "expm1": ("exp for expm1", jnp.exp),
    "rsqrt": ("sqrt for rsqrt", jnp.sqrt),
    "sqrt": ("x for sqrt(x)", lambda x: x),
    "tanh": ("x for tanh(x)", lambda x: x),
    "logistic": ("tanh for sigmoid", jnp.tanh),
    "erf": ("tanh for erf", jnp.tanh),
    "abs": ("x for |x|", lambda x: x),
    "sign": ("x for sign(x)", lambda x: x),
    "floor": ("ceil for floor", jnp.ceil),
    "ceil": ("floor for ceil", jnp.floor),
    "round": ("floor for round", jnp.floor),
    "sin": ("cos for sin", jnp.cos),
    "cos": ("sin for cos", jnp.sin),
    "square": ("x for x**2", lambda x: x),
    "not": ("x for ~x", lambda x: x),
    "is_finite": ("always true for isfinite", lambda x: True),
}


def _replace(equation: Equation, table: _Table) -> Iterator[EquationChange]:
    known = table.get(primitive_name(equation))
    if known is not None and len(equation.outvars) == 1 and all(map(is_array, equation.invars)):
        phrase, function = known
        yield EquationChange(phrase, lambda: compute(equation, function))


@mutation_operator(order=10)
def sum_sign(equation: Equation) -> Iterator[EquationChange]:
    """The sign of a term is wrong."""
    yield from _replace(equation, _SUMS)


@mutation_operator(order=11)
def product_inverted(equation: Equation) -> Iterator[EquationChange]:
    """A scale is applied the wrong way."""
    if is_float_array(equation.outvars[0]) if equation.outvars else False:
        yield from _replace(equation, _PRODUCTS)


@mutation_operator(order=12)
def term_dropped(equation: Equation) -> Iterator[EquationChange]:
    """A term or a factor is forgotten."""
    if primitive_name(equation) in ("add", "sub", "mul", "div") and len(equation.invars) == 2:
        yield EquationChange("without its second operand", lambda: compute(equation, lambda x, y: x))
        if primitive_name(equation) == "add":
            yield EquationChange("without its first operand", lambda: compute(equation, lambda x, y: y))


@mutation_operator(order=13)
def operands_swapped(equation: Equation) -> Iterator[EquationChange]:
    """Operands are exchanged."""
    functions: dict[str, Function] = {"sub": lambda x, y: y - x, "div": lambda x, y: y / x, "pow": lambda x, y: y**x}
    if (function := functions.get(primitive_name(equation))) is not None:
        yield EquationChange("operands swapped", lambda: compute(equation, function))


@mutation_operator(order=14)
def comparison_edge(equation: Equation) -> Iterator[EquationChange]:
    """A boundary is off by one."""
    yield from _replace(equation, _EDGES)


@mutation_operator(order=15)
def comparison_inverted(equation: Equation) -> Iterator[EquationChange]:
    """A condition or a mask is inverted."""
    yield from _replace(equation, _OPPOSITES)


@mutation_operator(order=16)
def conjunction(equation: Equation) -> Iterator[EquationChange]:
    """Conditions are joined the wrong way."""
    yield from _replace(equation, _LOGIC)


@mutation_operator(order=17)
def condition_dropped(equation: Equation) -> Iterator[EquationChange]:
    """One of several conditions is forgotten."""
    if primitive_name(equation) in ("and", "or") and dtype_of(equation.outvars[0]) == np.bool_:
        yield EquationChange("without its first condition", lambda: compute(equation, lambda x, y: y))
        yield EquationChange("without its second condition", lambda: compute(equation, lambda x, y: x))


@mutation_operator(order=18)
def choice_swapped(equation: Equation) -> Iterator[EquationChange]:
    """The branches of a choice are exchanged."""
    if primitive_name(equation) == "select_n" and len(equation.invars) == 3:
        which, no, yes = equation.invars
        yield EquationChange("branches of `where` swapped", lambda: [equation.replace(invars=[which, yes, no])])


@mutation_operator(order=19)
def choice_dropped(equation: Equation) -> Iterator[EquationChange]:
    """A guard or a mask of values is forgotten."""
    if primitive_name(equation) == "select_n" and len(equation.invars) == 3:
        yield EquationChange("always the first value of `where`", lambda: compute(equation, lambda which, no, yes: yes))
        yield EquationChange("always the second value of `where`", lambda: compute(equation, lambda which, no, yes: no))


@mutation_operator(order=20)
def extreme_swapped(equation: Equation) -> Iterator[EquationChange]:
    """A limit is on the wrong side."""
    yield from _replace(equation, _EXTREMES)


@mutation_operator(order=21)
def limit_dropped(equation: Equation) -> Iterator[EquationChange]:
    """A limit is forgotten."""
    if primitive_name(equation) in ("max", "min"):
        for number, operand in enumerate(equation.invars):
            if not isinstance(operand, Literal):
                phrase = f"only operand {number + 1} of {primitive_name(equation)}"
                yield EquationChange(phrase, partial(_operand, equation, number))
    if primitive_name(equation) == "clamp":
        yield EquationChange("without the clamp", lambda: compute(equation, lambda low, x, high: x))


def _operand(equation: Equation, number: int) -> list[Equation]:
    return compute(equation, lambda *operands: operands[number])


@mutation_operator(order=22)
def negation_dropped(equation: Equation) -> Iterator[EquationChange]:
    """The sign of a value is wrong."""
    if primitive_name(equation) == "neg":
        yield EquationChange("x for -x", lambda: compute(equation, lambda x: x))


@mutation_operator(order=23)
def function_replaced(equation: Equation) -> Iterator[EquationChange]:
    """A similar function is called, or none at all."""
    yield from _replace(equation, _FUNCTIONS)


@mutation_operator(order=24)
def exponent_changed(equation: Equation) -> Iterator[EquationChange]:
    """An exponent is off by one."""
    if primitive_name(equation) == "integer_pow":
        power = equation.params["y"]
        yield EquationChange("an exponent one larger", lambda: with_params(equation, y=power + 1))


_REDUCTIONS = {
    "reduce_sum": ("max for sum", jax.lax.reduce_max_p),
    "reduce_max": ("min for max", jax.lax.reduce_min_p),
    "reduce_min": ("max for min", jax.lax.reduce_max_p),
    "argmax": ("argmin for argmax", jax.lax.argmin_p),
    "argmin": ("argmax for argmin", jax.lax.argmax_p),
    "cumsum": ("cummax for cumsum", jax.lax.cummax_p),
}


@mutation_operator(order=25)
def reduction_replaced(equation: Equation) -> Iterator[EquationChange]:
    """Another reduction is taken."""
    if (known := _REDUCTIONS.get(primitive_name(equation))) is not None:
        phrase, other = known
        yield EquationChange(phrase, lambda: with_primitive(equation, other))
    if "reverse" in equation.params and primitive_name(equation).startswith("cum"):
        reverse = not equation.params["reverse"]
        yield EquationChange("accumulated from the other end", lambda: with_params(equation, reverse=reverse))


_CONSTANTS = frozenset("add sub mul div max min pow rem clamp lt le gt ge eq ne select_n atan2".split())


def _constants(equation: Equation) -> Iterator[int]:
    """Yields the indices of an equation's operands that are constants written by its author."""
    if primitive_name(equation) in _CONSTANTS:
        for number, operand in enumerate(equation.invars):
            if isinstance(operand, Literal) and is_array(operand) and dtype_of(operand) != np.bool_:
                yield number


def _nudge(equation: Equation, number: int, how: str, function: Function) -> EquationChange:
    return EquationChange(f"operand {number + 1} {how}", lambda: before(equation, {number: function}))


def _is_scale(operand: Atom) -> bool:
    """Returns whether a constant is a float for which a few ulps matter."""
    value = np.asarray(operand.val).astype(np.float64)
    return is_float(dtype_of(operand)) and bool(np.isfinite(value).all() and (value != 0).all())


def _next(x: Array) -> Array:
    """The next number of the dtype, away from zero; of float32 where a kernel is traced in float64."""
    if x.dtype == np.float64:
        return x * (1 + 2.0**-23)
    bits = x.view(f"u{x.dtype.itemsize}")
    return (bits + np.ones((), bits.dtype)).view(x.dtype)


@mutation_operator(order=26)
def constant_by_an_ulp(equation: Equation) -> Iterator[EquationChange]:
    """A constant is rounded wrongly in its last digit."""
    for number in _constants(equation):
        if _is_scale(equation.invars[number]):
            yield _nudge(equation, number, "larger by an ulp", _next)


@mutation_operator(order=27)
def constant_by_a_little(equation: Equation) -> Iterator[EquationChange]:
    """A constant has too few digits."""
    for number in _constants(equation):
        if _is_scale(equation.invars[number]):
            yield _nudge(equation, number, "larger by a thousandth", lambda x: x * (1 + 2.0**-10))


@mutation_operator(order=28)
def constant_by_a_lot(equation: Equation) -> Iterator[EquationChange]:
    """A constant is wrong."""
    for number in _constants(equation):
        operand = equation.invars[number]
        if _is_scale(operand):
            yield _nudge(equation, number, "a quarter larger", lambda x: x * 1.25)
        elif not is_float(dtype_of(operand)):
            yield _nudge(equation, number, "one larger", lambda x: x + 1)
