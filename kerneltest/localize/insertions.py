"""Mutation operators that insert what a kernel may lack: a mask, a guard, a rescale, a shift."""

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from typing import Any

import jax.numpy as jnp
import numpy as np

from kerneltest.localize.equation_edits import (
    after,
    before,
    compute,
    dtype_of,
    is_array,
    is_float_array,
    is_integer_array,
)
from kerneltest.localize.equation_mutations import EquationMutation, EquationOperator, describe_value
from kerneltest.localize.equation_sites import ScopedValue, Site
from kerneltest.trace.jax_compat.jaxpr_types import Atom, Equation, Literal

_SUMS = frozenset("reduce_sum reduce_max reduce_min reduce_prod cumsum cummax cummin dot_general argmax argmin".split())
_LOADS = frozenset("get masked_load".split())
_STORES = {"swap": 1, "masked_swap": 1, "addupdate": 1}  # with the number of the stored operand


def masks(site: Site) -> Iterator[EquationMutation]:
    """Yields loads, and operands of reductions, products and stores, masked by conditions in scope."""
    if site.name in _LOADS and len(site.equation.outvars) == 1:
        (result,) = site.equation.outvars
        for key, words, conditions, axes in _conditions(site, result):
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
        for key, words, conditions, axes in _conditions(site, operand):
            for fill in _fills(operand):

                def use(
                    number: int = number, conditions: Any = conditions, axes: Any = axes, fill: Any = fill
                ) -> Sequence[Equation]:
                    return before(site.equation, number, _select(axes, fill), *conditions)

                phrase = f"masking operand {number + 1} of {site.name} by {words} with {fill:g}"
                yield EquationMutation(f"operand {number} {key} {fill}", phrase, 1, use)


def _fills(atom: Atom) -> tuple[float, ...]:
    return (0.0, -np.inf) if is_float_array(atom) else (0,) if is_integer_array(atom) else ()


def _conditions(site: Site, atom: Atom) -> Iterator[tuple[str, str, list[Any], list[int | None]]]:
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
