"""Mutation operators on equations of a jaxpr: comparisons, constants, arithmetic, removals, operands, loops."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from kerneltest.core.dtypes import is_float
from kerneltest.localize.equation_edits import (
    Function,
    before,
    common_floats,
    compute,
    dtype_of,
    is_array,
    is_float_array,
    is_integer_array,
    same_type,
    with_literal,
    with_operand,
    with_params,
)
from kerneltest.localize.equation_sites import ScopedValue, Site
from kerneltest.trace.jax_compat.jaxpr_types import Atom, Equation, Literal
from kerneltest.trace.walk import primitive_name, scan_counts


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
