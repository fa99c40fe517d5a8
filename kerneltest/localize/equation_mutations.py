"""Mutation operators on equations of a jaxpr: comparisons, constants, arithmetic, removals, operands, loops."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kerneltest.core.dtypes import is_float, is_integer
from kerneltest.localize.sites import ScopedValue, Site
from kerneltest.trace.jax_compat.jaxprs import Atom, DType, Equation, Literal, Var
from kerneltest.trace.rewrite import inline_equations
from kerneltest.trace.walk import new_variable, primitive_name, scan_counts

# Equations that compute something else in place of an equation.

Function = Callable[..., Any]


def is_array(atom: Atom) -> bool:
    """Returns whether an operand is an array of numbers or booleans, rather than a reference, a token or a key."""
    aval = atom.aval
    try:
        return hasattr(aval, "shape") and not hasattr(aval, "inner_aval") and np.dtype(aval.dtype).kind != "O"
    except TypeError:
        return False


def dtype_of(atom: Atom) -> DType:
    """The dtype of an array."""
    dtype: DType = np.dtype(atom.aval.dtype)
    return dtype


def is_float_array(atom: Atom) -> bool:
    """Returns whether an operand is an array of floats."""
    return is_array(atom) and is_float(dtype_of(atom))


def is_integer_array(atom: Atom) -> bool:
    """Returns whether an operand is an array of integers."""
    return is_array(atom) and is_integer(dtype_of(atom)) and dtype_of(atom) != np.bool_


def same_type(a: Atom, b: Atom) -> bool:
    """Returns whether one operand can take the place of another."""
    if is_array(a) and is_array(b):
        return tuple(a.aval.shape) == tuple(b.aval.shape) and dtype_of(a) == dtype_of(b)
    return not is_array(a) and not is_array(b) and str(a.aval) == str(b.aval)


def compute(equation: Equation, function: Function, *more: Atom) -> list[Equation]:
    """Returns equations that compute the only result of an equation as a function of its operands and further ones."""
    (result,) = equation.outvars
    return define(result, function, [*equation.invars, *more])


def define(result: Var, function: Function, operands: Sequence[Atom]) -> list[Equation]:
    """Returns equations that define a variable as a function of operands, literals among them.

    The result of the function is converted to the dtype of the variable and broadcast to its shape.
    """
    free = [operand for operand in operands if not isinstance(operand, Literal)]

    def of_free(*values: Any) -> Any:
        given = iter(values)
        chosen = [np.asarray(o.val, dtype_of(o))[()] if isinstance(o, Literal) else next(given) for o in operands]
        value = jnp.asarray(function(*chosen)).astype(dtype_of(result))
        value = jnp.broadcast_to(value, result.aval.shape)
        # An operation is needed even where nothing changes; this one keeps every value, -0 and NaN included.
        return jnp.logical_or(value, False) if value.dtype == bool else value - np.zeros((), value.dtype)[()]

    is_wide = any(dtype_of(each).itemsize == 8 for each in (result, *operands))
    with jax.enable_x64(True) if is_wide else nullcontext():
        return inline_equations(of_free, free, [result])


def after(equation: Equation, function: Function, *more: Atom) -> list[Equation]:
    """Returns an equation followed by a change of its only result."""
    (result,) = equation.outvars
    raw = new_variable(result)
    return [equation.replace(outvars=[raw]), *define(result, function, [raw, *more])]


def before(equation: Equation, number: int, function: Function, *more: Atom) -> list[Equation]:
    """Returns an equation on a changed operand."""
    operand = equation.invars[number]
    changed = new_variable(operand)
    operands = [*equation.invars[:number], changed, *equation.invars[number + 1 :]]
    return [*define(changed, function, [operand, *more]), equation.replace(invars=operands)]


def with_operand(equation: Equation, number: int, operand: Atom) -> list[Equation]:
    """Returns an equation with another operand."""
    return [equation.replace(invars=[*equation.invars[:number], operand, *equation.invars[number + 1 :]])]


def with_literal(equation: Equation, number: int, value: Any) -> list[Equation]:
    """Returns an equation with another value of a literal."""
    old = equation.invars[number]
    return with_operand(equation, number, type(old)(np.asarray(value, dtype_of(old))[()], old.aval))


def common_floats(value: float) -> tuple[float, ...]:
    """Returns numbers that may have been meant in place of a float; infinities only for what may be a fill."""
    if not np.isfinite(value):
        return 0.0, -np.inf, np.inf
    return (0.0, 1.0, -np.inf, np.inf) if value == 0 or abs(value) >= _LARGEST_TERM else (0.0, 1.0)


_LARGEST_TERM = 1e4  # larger constants are fills, such as -1e30 for -inf


def with_params(equation: Equation, **params: Any) -> list[Equation]:
    """Returns an equation with other parameters."""
    return [equation.replace(params={**equation.params, **params})]


@dataclass(frozen=True, slots=True)
class EquationMutation:
    """One change of an equation.

    Attributes:
      key: identifies it among the mutations of the equation, at all lengths.
      phrase: `changing < to <=`.
      cost: how much the change assumes: 0 for a comparison or a constant, more for less likely mistakes.
      equations: makes the equations in place of the equation.
      literal: whether the source spells out at this place what is changed, rather than naming it.
    """

    key: str
    phrase: str
    cost: int
    equations: Callable[[], Sequence[Equation]]
    literal: bool = True


EquationOperator = Callable[[Site], Iterator[EquationMutation]]

_Table = Mapping[str, tuple[tuple[str, str, Function], ...]]

_EDGES: _Table = {
    "lt": (("<", "<=", jnp.less_equal),),
    "le": (("<=", "<", jnp.less),),
    "gt": ((">", ">=", jnp.greater_equal),),
    "ge": ((">=", ">", jnp.greater),),
}
_ARITHMETIC: _Table = {
    "add": (("+", "-", jnp.subtract), ("+", "*", jnp.multiply)),
    "sub": (("-", "+", jnp.add), ("-", "- with its operands exchanged", lambda x, y: y - x)),
    "mul": (("*", "/", jnp.divide), ("*", "+", jnp.add)),
    "div": (("/", "*", jnp.multiply), ("/", "/ with its operands exchanged", lambda x, y: y / x)),
    "max": (("maximum", "minimum", jnp.minimum),),
    "min": (("minimum", "maximum", jnp.maximum),),
    "and": (("&", "|", jnp.bitwise_or),),
    "or": (("|", "&", jnp.bitwise_and),),
    "lt": (("<", ">=", jnp.greater_equal), ("<", ">", jnp.greater)),
    "le": (("<=", ">", jnp.greater), ("<=", ">=", jnp.greater_equal)),
    "gt": ((">", "<=", jnp.less_equal), (">", "<", jnp.less)),
    "ge": ((">=", "<", jnp.less), (">=", "<=", jnp.less_equal)),
    "eq": (("==", "!=", jnp.not_equal),),
    "ne": (("!=", "==", jnp.equal),),
    "exp": (("exp", "exp2", jnp.exp2), ("exp", "expm1", jnp.expm1)),
    "exp2": (("exp2", "exp", jnp.exp),),
    "log": (("log", "log2", jnp.log2), ("log", "log1p", jnp.log1p)),
    "log1p": (("log1p", "log", jnp.log),),
    "sqrt": (("sqrt", "rsqrt", lambda x: 1 / jnp.sqrt(x)),),
    "rsqrt": (("rsqrt", "sqrt", jnp.sqrt), ("rsqrt", "1 / x", lambda x: 1 / x)),
    "sin": (("sin", "cos", jnp.cos),),
    "cos": (("cos", "sin", jnp.sin),),
    "floor": (("floor", "ceil", jnp.ceil), ("floor", "round", jnp.round)),
    "ceil": (("ceil", "floor", jnp.floor), ("ceil", "round", jnp.round)),
    "round": (("round", "floor", jnp.floor),),
    "tanh": (("tanh", "the sigmoid", lambda x: 1 / (1 + jnp.exp(-x))),),
    "logistic": (("the sigmoid", "tanh", jnp.tanh),),
}


def _replacements(table: _Table, cost: int) -> EquationOperator:
    def replace(site: Site) -> Iterator[EquationMutation]:
        if len(site.equation.outvars) != 1 or not all(map(is_array, site.operands)):
            return
        for old, new, function in table.get(site.name, ()):

            def make(function: Function = function) -> Sequence[Equation]:
                return compute(site.equation, function)

            yield EquationMutation(f"{old} to {new}", f"changing {old} to {new}", cost, make)

    return replace


COMPARISONS = frozenset("lt le gt ge eq ne".split())
TAKING_CONSTANTS = COMPARISONS | frozenset(
    "add sub mul div max min pow rem clamp select_n atan2 and or xor shift_left "
    "shift_right_logical shift_right_arithmetic broadcast_in_dim full_like scan while".split()
)


def constants(site: Site) -> Iterator[EquationMutation]:
    """Yields constants changed by one, or to another number of the kernel."""
    if site.name not in TAKING_CONSTANTS:
        return
    for number, operand in enumerate(site.operands):
        if not isinstance(operand, Literal) or not is_array(operand) or dtype_of(operand) == np.bool_:
            continue
        value: Any = float(operand.val) if is_float_array(operand) else int(operand.val)
        if site.name in COMPARISONS and not np.isfinite(value):
            continue  # a test for infinities, which JAX writes, too
        seen: set[tuple[Any, str]] = set()
        for key, meaning, new, cost in _other_numbers(site, operand):
            if new == value or (new, meaning) in seen or not _fits(new, dtype_of(operand)):
                continue
            seen.add((new, meaning))

            def make(number: int = number, new: Any = new) -> Sequence[Equation]:
                return with_literal(site.equation, number, new)

            phrase = f"changing {_format(value)} to {meaning}{_format(new)}"
            yield EquationMutation(f"operand {number} to {key}", phrase, cost, make, not meaning)


def _other_numbers(site: Site, operand: Literal) -> Iterator[tuple[str, str, Any, int]]:
    """Yields other numbers for a literal: a key, a prefix that tells the meaning, the number, the cost."""
    value: Any = float(operand.val) if is_float_array(operand) else int(operand.val)
    if is_integer_array(operand):
        yield from ((f"{by:+}", "", value + by, 0) for by in (1, -1))
    else:
        yield from ((f"{new}", "", new, 0) for new in common_floats(value))
        if value == 0 or not np.isfinite(value):
            return  # no other number is meant in place of a fill
        yield from (("minus", "", -value, 1), ("inverse", "", 1 / value, 1))
    for name, length in site.lengths.items():
        yield f"length {name}", f"the length {name}=", type(value)(length), 1
    for key, number in site.numbers.items():
        if isinstance(number, float) == is_float_array(operand):
            yield key, "", type(value)(number), 1


def _fits(number: Any, dtype: np.dtype[Any]) -> bool:
    if is_float(dtype):
        return True
    info = np.iinfo(dtype)
    return bool(info.min <= number <= info.max)


def _format(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


_NOT_REMOVED = frozenset("scan while cond pallas_call custom_vjp_call custom_jvp_call".split())
_CALLS = _NOT_REMOVED | {"pjit", "jit"}
_KEPT = frozenset("broadcast_in_dim reshape squeeze convert_element_type copy".split())


def removals(site: Site) -> Iterator[EquationMutation]:
    """Yields operations replaced by one of their operands."""
    if len(site.equation.outvars) != 1 or site.name in _KEPT | _NOT_REMOVED:
        return
    (result,) = site.equation.outvars
    for number, operand in enumerate(site.operands):
        # A scalar in place of an array would be another bug.
        if is_array(result) and is_array(operand) and not isinstance(operand, Literal) and same_type(operand, result):

            def make(number: int = number) -> Sequence[Equation]:
                return compute(site.equation, lambda *operands: operands[number])

            what = "the rounding" if site.name == "reduce_precision" else _describe(site, operand)
            phrase = f"removing {what}" if site.name == "reduce_precision" else f"replacing {_name(site)} by {what}"
            yield EquationMutation(f"operand {number}", phrase, 0 if site.name == "reduce_precision" else 2, make)


def _name(site: Site) -> str:
    """Returns the name of an operation: that of the function for a call, such as `where`."""
    return str(site.equation.params.get("name", site.name)).lstrip("_") if site.name in _CALLS else site.name


def _describe(site: Site, operand: Atom) -> str:
    """Returns where the value of an operand comes from."""
    known = {value.variable: value for value in site.scope if value.variable is operand}
    value = known.get(operand)
    return "one of its operands" if value is None else describe_value(value)


def describe_value(value: ScopedValue) -> str:
    """Returns where a value comes from, in words."""
    return f"the {value.name} of line {value.text.rpartition(':')[2]}" if value.text else value.name


_NOT_MEANT = frozenset("broadcast_in_dim full_like iota reshape squeeze program_id".split())


def exchanges(site: Site) -> Iterator[EquationMutation]:
    """Yields equations with another operand of the same type: a value, or a reference that is loaded or stored to."""
    if site.name in _CALLS:
        return
    for number, operand in enumerate(site.operands):
        if isinstance(operand, Literal):
            continue
        for value in reversed(site.scope):
            if value.variable is operand or not same_type(value.variable, operand):
                continue
            if is_array(operand) and value.name in _NOT_MEANT:
                continue

            def make(number: int = number, value: ScopedValue = value) -> Sequence[Equation]:
                return with_operand(site.equation, number, value.variable)

            phrase = f"replacing {_describe(site, operand)} by {describe_value(value)} in {site.name}"
            # By chance, another value often fits.
            yield EquationMutation(f"operand {number} by {value.key}", phrase, 3, make, not is_array(operand))


def loops(site: Site) -> Iterator[EquationMutation]:
    """Yields loops with one iteration more or less at either end."""
    if site.name != "scan" or any(hasattr(v.aval, "inner_aval") for v in site.equation.outvars):
        return
    length, (consts, carried) = site.equation.params["length"], scan_counts(site.equation.params)
    if carried != len(site.equation.outvars):
        return
    counter = _counter(site.equation, consts)
    for by, verb in ((1, "adding"), (-1, "removing")):

        def end(by: int = by) -> Sequence[Equation]:
            return with_params(site.equation, length=max(length + by, 0))

        def start(by: int = by, counter: int = counter or 0) -> Sequence[Equation]:
            first = site.operands[counter]
            if isinstance(first, Literal):
                *edits, loop = with_literal(site.equation, counter, int(first.val) - by)
            else:
                *edits, loop = before(site.equation, counter, lambda i: i - jnp.asarray(by, i.dtype))
            return [*edits, *with_params(loop, length=max(length + by, 0))]

        yield EquationMutation(f"{by:+}", f"{verb} an iteration at the end of the loop", 0, end)
        if counter is not None:
            yield EquationMutation(f"start {by:+}", f"{verb} an iteration at the start of the loop", 0, start)


def _counter(loop: Equation, consts: int) -> int | None:
    """Returns the number of the operand with which a loop starts to count; None if it does not count."""
    body = loop.params["jaxpr"].jaxpr
    for number, (carried, result) in enumerate(zip(body.invars[consts:], body.outvars, strict=False)):
        counts = (e for e in body.eqns if primitive_name(e) == "add" and e.outvars[0] is result)
        added = [e.invars[1] for e in counts if e.invars[0] is carried and is_integer_array(carried)]
        if any(isinstance(each, Literal) and each.val == 1 for each in added):
            return consts + number
    return None


EQUATION_OPERATORS: tuple[EquationOperator, ...] = (
    _replacements(_EDGES, 0),
    constants,
    loops,
    _replacements(_ARITHMETIC, 1),
    removals,
    exchanges,
)


# Mutation operators that insert what a kernel may lack: a mask, a guard, a rescale, a shift.

_SUMS = frozenset("reduce_sum reduce_max reduce_min reduce_prod cumsum cummax cummin dot_general argmax argmin".split())
_LOADS = frozenset("get masked_load".split())
_STORES = {"swap": 1, "masked_swap": 1, "addupdate": 1}  # with the number of the stored operand


def masks(site: Site) -> Iterator[EquationMutation]:
    """Yields loads, and operands of reductions, products and stores, masked by conditions in scope."""
    if site.name in _LOADS and len(site.equation.outvars) == 1:
        (result,) = site.equation.outvars
        for key, words, conditions, axes in _site_conditions(site, result):
            for fill in _fills(result):

                def load(conditions: Any = conditions, axes: Any = axes, fill: Any = fill) -> Sequence[Equation]:
                    return after(site.equation, _select(axes, fill), *conditions)

                phrase = f"masking the loaded values by {words} with {fill:g}"
                yield EquationMutation(f"result {key} {fill}", phrase, 1, load)
    numbers = range(len(site.operands)) if site.name in _SUMS else ()
    for number in (*numbers, *((_STORES[site.name],) if site.name in _STORES else ())):
        operand = site.operands[number]
        if isinstance(operand, Literal) or not is_array(operand):
            continue
        for key, words, conditions, axes in _site_conditions(site, operand):
            for fill in _fills(operand):

                def use(
                    number: int = number, conditions: Any = conditions, axes: Any = axes, fill: Any = fill
                ) -> Sequence[Equation]:
                    return before(site.equation, number, _select(axes, fill), *conditions)

                phrase = f"masking operand {number + 1} of {site.name} by {words} with {fill:g}"
                yield EquationMutation(f"operand {number} {key} {fill}", phrase, 1, use)


def _fills(atom: Atom) -> tuple[float, ...]:
    return (0.0, -np.inf) if is_float_array(atom) else (0,) if is_integer_array(atom) else ()


def _site_conditions(site: Site, atom: Atom) -> Iterator[tuple[str, str, list[Any], list[int | None]]]:
    """Yields conditions for the elements of an array: one of its shape or a scalar, or vectors along some axes."""
    shape = tuple(atom.aval.shape)
    booleans = [v for v in site.scope if is_array(v.variable) and dtype_of(v.variable) == np.bool_]
    for value in booleans:
        if tuple(value.variable.aval.shape) in (shape, ()):
            yield value.key, describe_value(value), [value.variable], [None]
    if len(shape) < 2:
        return
    vectors: list[list[tuple[ScopedValue, int] | None]] = [
        [None, *((v, axis) for v in booleans if tuple(v.variable.aval.shape) == (length,))]
        for axis, length in enumerate(shape)
    ]
    for chosen in product(*vectors):
        pairs = [each for each in chosen if each is not None]
        if pairs:
            key = " ".join(f"{value.key}@{axis}" for value, axis in pairs)
            words = " and ".join(f"{describe_value(value)} along axis {axis}" for value, axis in pairs)
            yield key, words, [value.variable for value, _ in pairs], [axis for _, axis in pairs]


def _select(axes: Sequence[int | None], fill: float) -> Any:
    def select(x: Any, *conditions: Any) -> Any:
        for condition, axis in zip(conditions, axes, strict=True):
            if axis is not None:
                condition = condition.reshape([-1 if k == axis else 1 for k in range(x.ndim)])
            x = jnp.where(condition, x, jnp.asarray(fill, x.dtype))
        return x

    return select


def guards(site: Site) -> Iterator[EquationMutation]:
    """Yields divisions, roots, sums and differences guarded against 0, negative numbers and infinities."""
    functions: dict[str, tuple[tuple[str, Any], ...]] = {
        "div": (
            ("dividing by 1 where the divisor is 0", lambda x, y: x / jnp.where(y == 0, jnp.ones_like(y), y)),
            ("giving 0 where the divisor is 0", lambda x, y: jnp.where(y == 0, 0, x / jnp.where(y == 0, 1, y))),
            ("dividing by at least 1", lambda x, y: x / jnp.maximum(y, jnp.ones_like(y))),
        ),
        "sub": (
            ("giving 0 where both operands are -inf", lambda x, y: jnp.where((x == y) & jnp.isinf(x), 0, x - y)),
            ("subtracting 0 instead of -inf", lambda x, y: x - jnp.where(y == -jnp.inf, jnp.zeros_like(y), y)),
            ("limiting the difference to at least 0", lambda x, y: jnp.maximum(x - y, 0)),
        ),
        "sqrt": (("taking the root of at least 0", lambda x: jnp.sqrt(jnp.maximum(x, 0))),),
        "mul": (("giving 0 where an operand is 0", lambda x, y: jnp.where((x == 0) | (y == 0), 0, x * y)),),
        "exp": (("limiting the exponent to at most 0", lambda x: jnp.exp(jnp.minimum(x, 0))),),
    }
    if len(site.equation.outvars) == 1 and is_float_array(site.equation.outvars[0]):
        if site.name == "add" and isinstance(site.operands[1], Literal):  # an epsilon against a division by zero
            functions["add"] = (("adding the constant only to 0", lambda x, y: jnp.where(x == 0, y, x)),)
        for phrase, function in functions.get(site.name, ()):

            def make(function: Any = function) -> Sequence[Equation]:
                return compute(site.equation, function)

            yield EquationMutation(phrase, phrase, 1, make)


def rescales(site: Site) -> Iterator[EquationMutation]:
    """Yields products, sums and stored values multiplied or divided by a number or a vector of the kernel."""
    places: list[tuple[int, Atom]] = []
    if site.name in ("dot_general", "reduce_sum") and is_float_array(site.equation.outvars[0]):
        places = [(-1, site.equation.outvars[0])]
    elif site.name == "add" and is_float_array(site.equation.outvars[0]):
        places = [(n, v) for n, v in enumerate(site.operands) if not isinstance(v, Literal)]
    elif site.name in _STORES and is_float_array(site.operands[1]):
        places = [(1, site.operands[1])]
    for number, atom in places:
        for key, words, factor, axis in _factors(site, atom):
            for verb in ("multiplying", "dividing"):

                def scale(x: Any, *by: Any, factor: Any = factor, axis: int | None = axis, verb: str = verb) -> Any:
                    (by_what,) = by or (jnp.asarray(factor, x.dtype),)
                    if axis is not None:
                        by_what = by_what.reshape([-1 if k == axis else 1 for k in range(x.ndim)])
                    return x * by_what if verb == "multiplying" else x / by_what

                def make(number: int = number, factor: Any = factor, scale: Any = scale) -> Sequence[Equation]:
                    more = () if isinstance(factor, (int, float)) else (factor,)
                    if number < 0:
                        return after(site.equation, scale, *more)
                    return before(site.equation, number, scale, *more)

                what = f"operand {number + 1} of {site.name}" if number >= 0 else f"the result of {site.name}"
                yield EquationMutation(f"{verb} {number} {key}", f"{verb} {what} by {words}", 3, make)


def _factors(site: Site, atom: Atom) -> Iterator[tuple[str, str, Any, int | None]]:
    """Yields factors for an array: a key, words, a number or a variable, and the axis along which a vector lies."""
    seen = {0.0, 1.0, -1.0}
    for key, number in site.numbers.items():
        if isinstance(number, float) and number not in seen and np.isfinite(number):
            seen.add(number)
            yield key, f"{number:.9g}", number, None
    for name, length in site.lengths.items():
        yield f"length {name}", f"the length {name}={length}", float(length), None
    shape = tuple(atom.aval.shape)
    for value in site.scope:
        if not is_float_array(value.variable) or value.variable is atom:
            continue
        inner = tuple(value.variable.aval.shape)
        if inner == ():
            yield value.key, describe_value(value), value.variable, None
        elif len(inner) == 1 and len(shape) > 1:
            for axis, length in enumerate(shape):
                if inner == (length,):
                    yield f"{value.key}@{axis}", f"{describe_value(value)} along axis {axis}", value.variable, axis


_ORDERS = frozenset("lt le gt ge".split())


def shifts(site: Site) -> Iterator[EquationMutation]:
    """Yields comparisons of positions, with one shifted by the difference of two lengths, as by s - t from the end."""
    if site.name not in _ORDERS or not all(map(is_integer_array, site.operands)):
        return
    number = 1 if isinstance(site.operands[0], Literal) else 0
    for (one, length), (other, its_length) in permutations(site.lengths.items(), 2):
        if length == its_length:
            continue

        def shift(x: Any, by: int = length - its_length) -> Any:
            return x + jnp.asarray(by, x.dtype)

        def make(shift: Any = shift) -> Sequence[Equation]:
            return before(site.equation, number, shift)

        phrase = f"adding {one} - {other} to operand {number + 1} of the comparison"
        yield EquationMutation(f"shift by {one} - {other}", phrase, 0, make)


INSERTIONS: tuple[EquationOperator, ...] = (masks, guards, rescales, shifts)
