"""Repairs that insert what a kernel may lack: a mask, a guard, a factor, an offset of positions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import permutations, product
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from kerneltest.localize.edits import (
    EquationChange,
    Function,
    after,
    before,
    compute,
    define,
    is_array,
    is_boolean_array,
    is_float_array,
    is_integer_array,
    same_type,
    substitute,
)
from kerneltest.localize.sites import ScopedValue, Site
from kerneltest.trace.jax_compat.jaxprs import Atom, Equation, Literal, Var
from kerneltest.trace.primitives import Kind, access_parts, kind_of, primitive_of
from kerneltest.trace.walk import new_variable

_REDUCING = frozenset({Kind.REDUCTION, Kind.SCAN, Kind.PRODUCT})


def mask(site: Site) -> Iterator[EquationChange]:
    """Yields loads, and operands of reductions, products and stores, masked by conditions in scope."""
    places: list[tuple[int | None, Atom]] = []
    if kind_of(site.equation) is Kind.READ and len(site.equation.outvars) == 1:
        places = [(None, site.equation.outvars[0])]
    numbers = range(len(site.operands)) if kind_of(site.equation) in _REDUCING else _stored(site)
    places += [(number, site.operands[number]) for number in numbers]
    for number, atom in places:
        if isinstance(atom, Literal) or not is_array(atom):
            continue
        what = "the loaded values" if number is None else f"operand {number + 1} of {site.name}"
        where = "result" if number is None else f"operand {number}"
        for key, words, conditions, fill, function, cost in _masks(site, atom):
            edit = _change_at(site, number, function, *conditions)
            # The mask may be missing in several places.
            phrase, key = f"masking {what} by {words} with {fill:g}", f"{where} {key}"
            cost = _DEAR if site.name in MAXIMA else cost  # a softmax is the same with any maximum
            yield EquationChange(phrase, edit, key, cost, literal=False, undone="a missing mask")


def _change_at(site: Site, number: int | None, function: Function, *more: Atom) -> Callable[[], Sequence[Equation]]:
    # An equation whose result (None) or whose operand becomes a function of it, and of further values.
    if number is None:
        return partial(after, site.equation, function, *more)
    return partial(before, site.equation, {number: function}, *more)


def _stored(site: Site) -> list[int]:
    # The number of the operand that a store stores.
    parts = access_parts(site.equation, range(len(site.operands)))
    return [parts.value] if parts is not None and kind_of(site.equation) in (Kind.WRITE, Kind.UPDATE) else []


def _masks(site: Site, atom: Atom) -> Iterator[tuple[str, str, list[Var], float, Function, int]]:
    # Masks of an array: a key, words, conditions in scope, a fill, a function of the array and those, and the cost.
    fills = (0.0, -np.inf) if is_float_array(atom) else (0,) if is_integer_array(atom) else ()
    booleans = {v: v.variable.aval.shape for v in site.scope if is_boolean_array(v.variable)}
    for conditions in conjunctions(booleans, tuple(atom.aval.shape)):
        key = " ".join(value.key if axis is None else f"{value.key}@{axis}" for value, axis in conditions)
        words = " and ".join(str(value) + along(axis) for value, axis in conditions)
        axes = [axis for _, axis in conditions]
        for fill in fills:
            function = partial(_select, axes=axes, fill=fill)
            yield f"{key} {fill}", words, [value.variable for value, _ in conditions], fill, function, 1
        if len(axes) == 1 and _stored(site):  # what is masked by a part of the formula may be the elements to ignore
            function = partial(_select, axes=axes, fill=0, negated=True)
            yield f"not {key}", f"not {words}", [conditions[0][0].variable], 0, function, 1
    for value in site.scope:
        if value.name not in _POSITIONS or not is_integer_array(value.variable) or not value.variable.aval.shape:
            continue
        for axis, (name, length), fill in product(_axes_along(value.variable, atom), site.jaxpr.lengths.items(), fills):
            function = partial(_select_below, axis=axis, length=length, fill=fill)
            words = f"{value}{along(axis)} < {name}"
            # By chance, positions along another axis fit the only length of a dim.
            cost = _DEAR if name in site.jaxpr.fixed else 1
            yield f"{value.key}@{axis} < {name} {fill}", words, [value.variable], fill, function, cost
    for value, meant in _limited_indices(site):
        for axis, fill in product(_axes_along(value.variable, atom), fills):
            function = partial(_select_same, axis=axis, fill=fill)
            words = f"the indices that {value} leaves as they are{along(axis)}"
            yield f"{value.key}@{axis} as it is {fill}", words, [value.variable, meant], fill, function, 1


def _limited_indices(site: Site) -> Iterator[tuple[ScopedValue, Var]]:
    # Integers that are limited to a range, so that they may stand for others, with these. The last ones come first:
    # those before may be of other turns of an unrolled loop.
    for value in reversed(site.scope):
        made = value.site.equation if value.site is not None else None
        # JAX's `clip` is a call.
        if made is not None and is_integer_array(value.variable) and made.params.get("name", value.name) in _LIMITS:
            yield from ((value, v) for v in made.invars if not isinstance(v, Literal) and same_type(v, value.variable))


_LIMITS = frozenset("max min clamp clip".split())


def conjunctions(
    shapes: Mapping[Any, tuple[int, ...]], shape: tuple[int, ...], *, scalars: bool = True
) -> Iterator[list[tuple[Any, int | None]]]:
    """Yields the conjunctions of conditions that could mask an array: one of its shape, or vectors along some axes.

    Args:
      shapes: the conditions, each with its shape.
      shape: that of the array.
      scalars: whether a scalar masks the array, too.

    Yields:
      The conditions, each with the axis along which it lies; None if it has the shape of the array or is a scalar.
    """
    for condition, own in shapes.items():
        if tuple(own) == shape or (scalars and tuple(own) == ()):
            yield [(condition, None)]
    if len(shape) > 1:
        vectors: list[list[tuple[Any, int | None] | None]] = [
            [None, *((condition, axis) for condition, own in shapes.items() if tuple(own) == (length,))]
            for axis, length in enumerate(shape)
        ]
        for chosen in product(*vectors):
            if any(chosen):
                yield [condition for condition in chosen if condition is not None]


def along(axis: int | None) -> str:
    """Returns ` along axis 0`, or "" for a value that has the shape of the array."""
    return "" if axis is None else f" along axis {axis}"


_DEAR = 4  # dearer than any other insertion
_POSITIONS = frozenset("iota add broadcast_in_dim".split())


def _select_below(x: Any, positions: Any, *, axis: int | None, length: int, fill: float) -> Any:
    return _select(x, positions < length, axes=[axis], fill=fill)


def _select_same(x: Any, positions: Any, meant: Any, *, axis: int | None, fill: float) -> Any:
    return _select(x, positions == meant, axes=[axis], fill=fill)


def _select(x: Any, *conditions: Any, axes: Sequence[int | None], fill: float, negated: bool = False) -> Any:
    for condition, axis in zip(conditions, axes, strict=True):
        x = jnp.where(_aligned(condition, axis, x) ^ negated, x, jnp.asarray(fill, x.dtype))
    return x


def _aligned(vector: Any, axis: int | None, x: Any) -> Any:
    return vector if axis is None else vector.reshape([-1 if k == axis else 1 for k in range(x.ndim)])


# Guards and factors that a kernel may lack.


class _Guard(NamedTuple):
    phrase: str
    function: Function
    undone: str = ""  # as `EquationChange.undone`; of a product, if an operand is a mask


_GUARDS: dict[str, tuple[_Guard, ...]] = {
    "div": (
        _Guard("dividing by 1 where the divisor is 0", lambda x, y: x / jnp.where(y == 0, jnp.ones_like(y), y)),
        _Guard("giving 0 where the divisor is 0", lambda x, y: jnp.where(y == 0, 0, x / jnp.where(y == 0, 1, y))),
        _Guard("dividing by at least 1", lambda x, y: x / jnp.maximum(y, jnp.ones_like(y))),
    ),
    "sub": (
        _Guard("giving 0 where both operands are -inf", lambda x, y: jnp.where((x == y) & jnp.isinf(x), 0, x - y)),
        _Guard("subtracting 0 instead of -inf", lambda x, y: x - jnp.where(y == -jnp.inf, jnp.zeros_like(y), y)),
        _Guard("limiting the difference to at least 0", lambda x, y: jnp.maximum(x - y, 0)),
    ),
    "sqrt": (_Guard("taking the root of at least 0", lambda x: jnp.sqrt(jnp.maximum(x, 0))),),
    "mul": (
        _Guard(
            "giving 0 where an operand is 0",
            lambda x, y: jnp.where((x == 0) | (y == 0), 0, x * y),
            "a masked-out value that is multiplied by 0 instead of left out",
        ),
    ),
    "exp": (
        _Guard("limiting the exponent to at most 0", lambda x: jnp.exp(jnp.minimum(x, 0))),
        _Guard(
            "subtracting the maximum from the exponent",
            lambda x: jnp.exp(_below_maximum(x)),
            "an exponential without the maximum subtracted",
        ),
    ),
    # An epsilon against a division by zero.
    "add": (
        _Guard(
            "adding the constant only to 0",
            lambda x, y: jnp.where(x == 0, y, x),
            "a constant that is added to other numbers than 0",
        ),
    ),
}


def _below_maximum(x: Any) -> Any:
    # Along the last axis, as in a softmax. A row of -inf stays as it is.
    most = jnp.max(x, axis=-1, keepdims=True) if x.ndim else x
    return x - jnp.where(jnp.isfinite(most), most, 0)


def guard(site: Site) -> Iterator[EquationChange]:
    """Yields divisions, roots, sums and differences guarded against 0, negative numbers and infinities."""
    if len(site.equation.outvars) != 1 or not is_float_array(site.equation.outvars[0]):
        return
    if site.name != "add" or isinstance(site.operands[1], Literal):
        is_masked = site.name == "mul" and any(_is_of_mask(site, operand) for operand in site.operands)
        for phrase, function, undone in _GUARDS.get(site.name, ()):
            cause = undone if is_masked or site.name != "mul" else ""
            yield EquationChange(phrase, partial(compute, site.equation, function), cost=not is_masked, undone=cause)


def _is_of_mask(site: Site, atom: Atom) -> bool:
    # Whether an operand is computed from booleans and literals alone, as zeros and ones are that stand for a mask.
    made = {value.variable: value.site for value in site.scope}
    todo, seen, masks = [atom], set[Atom](), 0
    while todo:
        value = todo.pop()
        if isinstance(value, Literal) or value in seen:
            continue
        seen.add(value)
        if is_boolean_array(value):
            masks += 1
        elif (origin := made.get(value)) is not None:
            todo += origin.operands
        else:
            return False
    return masks > 0


def take_magnitudes(site: Site) -> Iterator[EquationChange]:
    """Yields maxima of absolute values, as for the scale of a quantisation or a relative error."""
    if site.name in MAXIMA and is_float_array(site.equation.outvars[0]):
        operands = {number: jnp.abs for number, atom in enumerate(site.operands) if not isinstance(atom, Literal)}
        edit = partial(before, site.equation, operands)
        yield EquationChange("taking the maximum of absolute values", edit, cost=1, undone="a missing absolute value")


def round_shift(site: Site) -> Iterator[EquationChange]:
    """Yields shifts to the right that round to nearest, as a requantisation does."""
    if site.name == "shift_right_arithmetic":
        edit = partial(compute, site.equation, lambda x, by: (x + ((jnp.ones_like(by) << by) >> 1)) >> by)
        yield EquationChange("rounding the shift to nearest", edit, cost=1, undone="a shift that rounds down")


def rescale(site: Site) -> Iterator[EquationChange]:
    """Yields products, sums and stored values multiplied or divided by a number or a vector of the kernel."""
    places: list[tuple[int | None, Atom]]
    if site.name in ("dot_general", "reduce_sum") and is_float_array(site.equation.outvars[0]):
        places = [(None, site.equation.outvars[0])]
    elif site.name == "add" and is_float_array(site.equation.outvars[0]):
        places = [(n, v) for n, v in enumerate(site.operands) if not isinstance(v, Literal)]
    else:
        places = [(n, site.operands[n]) for n in _stored(site) if is_float_array(site.operands[n])]
    for number, atom in places:
        what = f"the result of {site.name}" if number is None else f"operand {number + 1} of {site.name}"
        origins = [value.site for value in site.scope if value.variable is atom]
        is_kept = site.name == "add" and all(each is None or kind_of(each.equation) is Kind.READ for each in origins)
        for key, words, factor, axis in _factors(site, atom):
            more = () if isinstance(factor, float) else (factor,)
            for verb in ("multiplying", "dividing"):
                scale = partial(_scale, factor=factor, axis=axis, divides=verb == "dividing")
                edit = _change_at(site, number, scale, *more)
                place = -1 if number is None else number
                undone = f"a missing {'divisor' if verb == 'dividing' else 'factor'}"
                if is_kept and verb == "multiplying" and words.startswith(_EXPONENTIALS):  # from step to step
                    undone = _NOT_RESCALED
                yield EquationChange(f"{verb} {what} by {words}", edit, f"{verb} {place} {key}", 3, undone=undone)


_EXPONENTIALS, _NOT_RESCALED = ("the exp of ", "the exp2 of "), "a sum that is not rescaled"


def add_term(site: Site) -> Iterator[EquationChange]:
    """Yields what lacks 1 or another value: factors, divisors, arguments of logarithms, stored values, running sums."""
    for number, words in _LARGER_BY_ONE.get(site.name, {}).items():
        operand = site.operands[number]
        if is_float_array(operand) and not isinstance(operand, Literal):
            edit = partial(before, site.equation, {number: lambda x: x + jnp.ones_like(x)})
            yield EquationChange(f"adding 1 to {words}", edit, cost=2)
    for number in _stored(site):
        for value in site.scope if is_float_array(site.operands[number]) else ():
            if value.variable is not site.operands[number] and same_type(value.variable, site.operands[number]):
                edit = partial(before, site.equation, {number: jnp.add}, value.variable)
                key = f"add {number} {value.key}"
                yield EquationChange(f"adding {value}", edit, key, 3, undone="a missing term")
    for value in site.scope if kind_of(site.equation) in _REDUCING and len(site.equation.outvars) == 1 else ():
        if value.site is None and value.parameter and same_type(value.variable, site.equation.outvars[0]):
            edit, key = partial(after, site.equation, jnp.add, value.variable), f"add {value.key}"
            undone = "a sum that starts anew in each step of a loop"
            yield EquationChange(f"adding {value}", edit, key, 2, undone=undone)


_LARGER_BY_ONE: Mapping[str, Mapping[int, str]] = {
    "mul": {0: "the first factor", 1: "the second factor"},
    "div": {1: "the divisor"},
    "log": {0: "the argument of the logarithm"},
}


def rescale_by_maximum(site: Site) -> Iterator[EquationChange]:
    """Yields sums with a term multiplied by exp(a - b), where b is a maximum, as a sum so far needs where that rose."""
    if site.name not in ("add", "reduce_sum") or not is_float_array(site.equation.outvars[0]):
        return
    values = [value for value in site.scope if is_float_array(value.variable)]
    maxima = [value for value in values if _is_maximum(value, values)]
    for number, atom in enumerate(site.operands):
        for old, new in product(values, maxima) if not isinstance(atom, Literal) else ():
            if old is new or new.variable.aval.shape not in ((), old.variable.aval.shape):
                continue
            for axis in _axes_along(old.variable, atom):
                edit = _change_at(site, number, partial(_by_exponential, axis=axis), old.variable, new.variable)
                phrase = f"multiplying operand {number + 1} of {site.name} by exp({old} - {new})"
                key = f"exponential {number} {old.key} {new.key} {axis}"
                yield EquationChange(phrase, edit, key, 3, literal=False, undone=_NOT_RESCALED)


def _is_maximum(value: ScopedValue, values: Sequence[ScopedValue]) -> bool:
    # Directly, or by way of a guard against infinities.
    if value.site is None or value.name in MAXIMA:
        return value.site is not None
    operands = {id(v) for v in value.site.operands}
    is_guard = kind_of(value.site.equation) is Kind.CALL or value.name == "select_n"
    return is_guard and any(v.name in MAXIMA for v in values if id(v.variable) in operands)


MAXIMA = frozenset({"max", "reduce_max"})


def _by_exponential(x: Any, old: Any, new: Any, *, axis: int | None) -> Any:
    difference = jnp.where(old == new, 0, old - new)  # also where both are -inf
    return x * _aligned(jnp.exp(difference), axis, x)


def _axes_along(vector: Atom, atom: Atom) -> list[int | None]:
    # The axes of an array along which a vector may lie; None if it has the shape of the array or is a scalar.
    inner, shape = tuple(vector.aval.shape), tuple(atom.aval.shape)
    if inner in ((), shape):
        return [None]
    return [axis for axis, length in enumerate(shape) if inner == (length,)] if len(shape) > 1 else []


def _scale(x: Any, *by: Any, factor: Any, axis: int | None, divides: bool) -> Any:
    by_what = _aligned(by[0], axis, x) if by else jnp.asarray(factor, x.dtype)
    return x / by_what if divides else x * by_what


def _factors(site: Site, atom: Atom) -> Iterator[tuple[str, str, Any, int | None]]:
    # Factors for an array: a key, words, a number or a variable, and the axis along which a vector lies.
    seen = {0.0, 1.0, -1.0}
    for key, number in site.jaxpr.numbers.items():
        if isinstance(number, float) and number not in seen and np.isfinite(number):
            seen.add(number)
            yield key, f"{number:.9g}", number, None
    for name, length in site.jaxpr.lengths.items():
        yield f"length {name}", f"the length {name}={length}", float(length), None
    for value in site.scope:
        if is_float_array(value.variable) and value.variable is not atom:
            for axis in _axes_along(value.variable, atom):
                if axis is not None or value.variable.aval.shape == ():
                    at = "" if axis is None else f"@{axis}"
                    yield f"{value.key}{at}", f"{value}{along(axis)}", value.variable, axis


def shift(site: Site) -> Iterator[EquationChange]:
    """Yields comparisons of positions, with one shifted by the difference of two lengths, as by s - t from the end."""
    if not primitive_of(site.equation).sign.startswith(("<", ">")) or not all(map(is_integer_array, site.operands)):
        return
    number = 1 if isinstance(site.operands[0], Literal) else 0
    for (one, length), (other, its_length) in permutations(site.jaxpr.lengths.items(), 2):
        if length != its_length:
            by = length - its_length
            edit = partial(before, site.equation, {number: lambda x, by=by: x + jnp.asarray(by, x.dtype)})
            phrase = f"adding {one} - {other} to operand {number + 1} of the comparison"
            undone = "positions that are counted from the wrong end"
            yield EquationChange(phrase, edit, f"shift by {one} - {other}", 1, undone=undone)


def limit(site: Site) -> Iterator[EquationChange]:
    """Yields maxima and minima of a constant that limit the other side as well, to the constant of the other sign."""
    opposite = {"min": jnp.maximum, "max": jnp.minimum}.get(site.name)
    constant = next((float(v.val) for v in site.operands if isinstance(v, Literal) and is_float_array(v)), 0.0)
    if opposite is not None and constant and np.isfinite(constant):
        edit = partial(after, site.equation, lambda x: opposite(x, jnp.asarray(-constant, x.dtype)))
        yield EquationChange(f"limiting it to {-constant:.9g} as well", edit, "limit", 1)


_FUNCTIONS: dict[str, Function] = {
    "sqrt": jnp.sqrt,
    "rsqrt": lambda x: 1 / jnp.sqrt(x),
    "exp": jnp.exp,
    "log": jnp.log,
    "tanh": jnp.tanh,
}
_SIGNS: dict[str, Function] = {"add": lambda x, y: x + y, "mul": lambda x, y: x * y}
_SUMS: dict[str, Function] = {"add": _SIGNS["add"], "sub": lambda x, y: x - y}
_SCALES: dict[str, Function] = {"mul": _SIGNS["mul"], "div": lambda x, y: x / y}


def exchange_operations(site: Site) -> Iterator[EquationChange]:
    """Yields `f(x) + c` for `f(x + c)`, `(x + y) * z` for `x * z + y` and the other way round; the same for factors."""
    inner = next((v.site for v in reversed(site.scope) if site.operands and v.variable is site.operands[0]), None)
    if inner is None or len(site.equation.outvars) != 1 or not is_float_array(site.equation.outvars[0]):
        return
    if site.name in _FUNCTIONS and inner.name in _SIGNS:
        function, sign, operands = _FUNCTIONS[site.name], _SIGNS[inner.name], inner.operands
        changed: Function = lambda x, c: sign(function(x), c)  # noqa: E731
    elif site.name in _SIGNS and inner.name in _FUNCTIONS:
        function, sign = _FUNCTIONS[inner.name], _SIGNS[site.name]
        operands = [inner.operands[0], site.operands[1]]
        changed = lambda x, c: function(sign(x, c))  # noqa: E731
    elif (site.name in _SUMS and inner.name in _SCALES) or (site.name in _SCALES and inner.name in _SUMS):
        first, second = ({**_SUMS, **_SCALES}[each.name] for each in (site, inner))
        operands = [*inner.operands, *site.operands[1:]]
        changed = lambda x, y, z: second(first(x, z), y)  # noqa: E731
    else:
        return
    if not isinstance(operands[0], Literal) and (len(operands) > 2 or isinstance(operands[1], Literal)):
        (result,) = site.equation.outvars
        yield EquationChange(
            f"exchanging {inner.name} and {site.name}", partial(define, result, changed, operands), cost=1
        )


def guard_store(site: Site) -> Iterator[EquationChange]:
    """Yields stores that are made only under a condition in scope, or only by the first program along an axis."""
    places = _stored(site)
    if site.name not in ("swap", "addupdate") or not places:
        return
    for value in site.scope:
        if not is_array(value.variable) or value.variable.aval.shape:
            continue
        if is_boolean_array(value.variable):
            conditions: tuple[tuple[str, Function], ...] = ((f"{value}", lambda x: x), (f"not {value}", lambda x: ~x))
        elif value.name == "program_id":
            conditions = ((f"{value} = 0", lambda x: x == 0), (f"{value} > 0", lambda x: x > 0))
        else:
            continue
        for words, condition in conditions:
            edit = partial(_guarded, site, places[0], value.variable, condition)
            phrase, key = f"storing only if {words}", f"guard {value.key} {words}"
            yield EquationChange(phrase, edit, key, 2, literal=False, undone="a store that lacks its condition")


def _guarded(site: Site, place: int, variable: Var, condition: Function) -> Sequence[Equation]:
    # A store is made, and then undone where the condition does not hold.
    equation, value = site.equation, site.operands[place]
    if site.name == "addupdate":
        keep: Function = lambda x, given: jnp.where(condition(given), x, jnp.zeros_like(x))  # noqa: E731
        return before(equation, {place: keep}, variable)
    (old,) = equation.outvars
    stored = new_variable(old)
    choose: Function = lambda x, before, given: jnp.where(condition(given), x, before)  # noqa: E731
    again = equation.replace(invars=substitute(equation.invars, place, stored), outvars=[new_variable(old)])
    return [equation, *define(stored, choose, [value, old, variable]), again]
