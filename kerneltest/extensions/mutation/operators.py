"""The registry of mutation operators: the small bugs that people make, each as a change of one equation."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.extension_registry import AFTER_BUILT_IN, Registry
from kerneltest.localize.call_mutations import CallMutation, call_mutations
from kerneltest.localize.equation_mutations import (
    Function,
    after,
    compute,
    define,
    dtype_of,
    is_array,
    is_float_array,
    with_params,
)
from kerneltest.trace.jax_compat.jaxprs import Atom, ClosedJaxpr, Equation, JaxArray, Jaxpr, Literal, Var
from kerneltest.trace.rewrite import is_plain_call
from kerneltest.trace.walk import new_variable, primitive_name, scan_counts


@dataclass(frozen=True, slots=True)
class EquationChange:
    """One change of an equation.

    Attributes:
      phrase: the change in words, the same for all signatures: "`<=` for `<`".
      equations: makes the equations that replace it. They define the same variables.
    """

    phrase: str
    equations: Callable[[], Sequence[Equation]]


Mutate = Callable[[Equation], Iterator[EquationChange]]


@dataclass(frozen=True, slots=True)
class Operator:
    """A kind of change.

    Attributes:
      name: the name in results and options.
      bug: the bug that it plants.
      mutate: yields the changes of an equation; nothing for equations to which it does not apply.
    """

    name: str
    bug: str
    mutate: Mutate


OPERATORS: Registry[Operator] = Registry("mutation operator", extended_by="mutations")


def mutation_operator(*, order: int = AFTER_BUILT_IN) -> Callable[[Mutate], Mutate]:
    """Registers a function as a mutation operator. Its name, with `-` for `_`, is the operator's.

        @mutation_operator()
        def square_dropped(equation):
            \"\"\"A sum of squares lacks the squares.\"\"\"
            if primitive_name(equation) == "square":
                yield EquationChange("x for x**2", lambda: compute(equation, lambda x: x))

    Its docstring names the bug that it plants.

    Args:
      order: its position in lists.

    Raises:
      ValueError: another module has registered the name.
    """

    def register(mutate: Mutate) -> Mutate:
        bug = (mutate.__doc__ or "").strip().rstrip(".")
        OPERATORS.add(Operator(mutate.__name__.replace("_", "-"), bug, mutate), mutate.__module__, order)
        return mutate

    return register


# Edits of equations that only mutation operators need, in addition to those of `localize.equation_edits`.


def shape_of(atom: Atom) -> tuple[int, ...]:
    """The shape of an array."""
    shape: tuple[int, ...] = atom.aval.shape
    return shape


def before(equation: Equation, functions: dict[int, Function]) -> list[Equation]:
    """Returns an equation on changed operands: by their number, the function that changes each."""
    operands, added = list(equation.invars), []
    for number, function in functions.items():
        operand = operands[number]
        if isinstance(operand, Literal):
            value = np.asarray(function(np.asarray(operand.val, dtype_of(operand))), dtype_of(operand))
            operands[number] = with_value(operand, value)
        else:
            operands[number] = new_variable(operand)
            added += define(operands[number], function, [operand])
    return [*added, equation.replace(invars=operands)]


def with_value(literal: Literal, value: Any) -> Literal:
    """Returns a literal of the same type with another value."""
    return type(literal)(np.asarray(value, dtype_of(literal))[()], literal.aval)


def with_primitive(equation: Equation, other: Any, **params: Any) -> list[Equation]:
    """Returns an equation with another primitive, with its own parameters if none are given."""
    return [equation.replace(primitive=other, params=params or dict(equation.params))]


def are_discarded(variables: Sequence[Var]) -> bool:
    """Returns whether JAX marks all of these variables as unused."""
    return all(type(variable).__name__ == "DropVar" for variable in variables)


# Mutation operators on arithmetic, comparisons, choices and constants.

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


# Mutation operators on loads, stores, masks, slices, initial values, copies and barriers.

_MASKED = {"masked_load": 2, "masked_swap": 3}  # the position of the mask among the parts of an access


def _parts(equation: Equation) -> list[Any] | None:
    """The parts of a masked access: reference, indices, stored value if any, mask, and a load's `other`."""
    if primitive_name(equation) not in _MASKED:
        return None
    return list(equation.params["args_tree"].unflatten(equation.invars))


def _with_parts(equation: Equation, parts: list[Any]) -> Equation:
    leaves, tree = jax.tree_util.tree_flatten(parts)
    return equation.replace(invars=leaves, params={**equation.params, "args_tree": tree})


def _mask(equation: Equation) -> Var | None:
    parts = _parts(equation)
    mask = parts[_MASKED[primitive_name(equation)]] if parts is not None else None
    return None if mask is None or isinstance(mask, Literal) else mask


def _with_mask(equation: Equation, function: Any) -> list[Equation]:
    parts = _parts(equation)
    assert parts is not None
    place = _MASKED[primitive_name(equation)]
    old, new = parts[place], new_variable(parts[place])
    parts[place] = new
    return [*define(new, function, [old]), _with_parts(equation, parts)]


def _verb(equation: Equation) -> str:
    return "load" if primitive_name(equation) == "masked_load" else "store"


@mutation_operator(order=40)
def mask_dropped(equation: Equation) -> Iterator[EquationChange]:
    """The mask of a load or a store is forgotten."""
    if _mask(equation) is not None:
        yield EquationChange(f"the {_verb(equation)} without its mask", lambda: _with_mask(equation, jnp.ones_like))


@mutation_operator(order=41)
def mask_inverted(equation: Equation) -> Iterator[EquationChange]:
    """The mask of a load or a store is inverted."""
    if _mask(equation) is not None:
        yield EquationChange(
            f"the {_verb(equation)} with its mask inverted", lambda: _with_mask(equation, jnp.logical_not)
        )


@mutation_operator(order=42)
def other_changed(equation: Equation) -> Iterator[EquationChange]:
    """Masked elements get the wrong value."""
    parts = _parts(equation)
    if parts is None or primitive_name(equation) != "masked_load" or not isinstance(parts[3], Literal):
        return
    old = parts[3]
    value = np.asarray(old.val).astype(np.float64)
    new = 1.0 if value == 0 else 0.0

    def change() -> list[Equation]:
        return [_with_parts(equation, [*parts[:3], with_value(old, new)])]

    yield EquationChange(f"other={new:g}", change)


@mutation_operator(order=43)
def store_dropped(equation: Equation) -> Iterator[EquationChange]:
    """A result is not stored."""
    if primitive_name(equation) in ("swap", "masked_swap", "addupdate") and are_discarded(equation.outvars):
        yield EquationChange("not stored", list)


@mutation_operator(order=44)
def store_doubled(equation: Equation) -> Iterator[EquationChange]:
    """Something is added twice."""
    if primitive_name(equation) in ("addupdate", "atomic_rmw") and are_discarded(equation.outvars):
        yield EquationChange("stored twice", lambda: [equation, equation])


_INDEXED = {"get": 1, "swap": 2, "addupdate": 2, "dynamic_slice": 1, "dynamic_update_slice": 2}


def _starts(equation: Equation) -> Iterator[int]:
    """Yields the indices of the operands that hold the start of a slice."""
    name = primitive_name(equation)
    if name in _MASKED:
        parts = _parts(equation)
        assert parts is not None
        first = 1
        last = first + len(jax.tree_util.tree_leaves(parts[1]))
    elif name in _INDEXED:
        first, last = _INDEXED[name], len(equation.invars)
    else:
        return
    for number in range(first, last):
        operand = equation.invars[number]
        if is_array(operand) and operand.aval.shape == () and np.issubdtype(dtype_of(operand), np.integer):
            yield number


@mutation_operator(order=45)
def slice_shifted(equation: Equation) -> Iterator[EquationChange]:
    """A slice starts one element too late."""
    for number in _starts(equation):
        phrase = f"start {number + 1} of the slice one larger"
        yield EquationChange(phrase, partial(before, equation, {number: lambda start: start + 1}))


_INITIAL = frozenset("broadcast_in_dim full_like scan while swap masked_swap".split())


@mutation_operator(order=46)
def initial_value(equation: Equation) -> Iterator[EquationChange]:
    """A sum, a maximum or a minimum begins with the wrong value."""
    if primitive_name(equation) in _INITIAL:
        for number, operand in enumerate(equation.invars):
            if isinstance(operand, Literal) and is_array(operand) and is_float(dtype_of(operand)):
                value = float(np.asarray(operand.val).astype(np.float64))
                new = 1.0 if value == 0 else 0.0
                if value == 0 or np.isinf(value):
                    phrase = f"{new:g} for the initial {value:g}"
                    yield EquationChange(phrase, partial(_with_initial, equation, number, new))


def _with_initial(equation: Equation, number: int, value: float) -> list[Equation]:
    return before(equation, {number: lambda _: value})


_WAITS = {
    "dma_wait": "the wait for a copy",
    "semaphore_wait": "the wait for a semaphore",
    "barrier_wait": "the wait at a barrier",
    "wait_smem_to_gmem": "the wait for copies to global memory",
    "wgmma_wait": "the wait for matrix products",
    "semaphore_signal": "a signal",
    "barrier_arrive": "an arrival at a barrier",
    "commit_smem": "the commit of shared memory",
    "dma_start": "the start of a copy",
    "copy_gmem_to_smem": "a copy to shared memory",
    "copy_smem_to_gmem": "a copy to global memory",
}


@mutation_operator(order=47)
def synchronisation_dropped(equation: Equation) -> Iterator[EquationChange]:
    """A wait, a signal or a copy is forgotten."""
    if (what := _WAITS.get(primitive_name(equation))) is not None and not equation.outvars:
        yield EquationChange(f"without {what}", list)


# Mutation operators on loops and branches.


def _is_loop_of_steps(equation: Equation) -> bool:
    """Returns whether a scan neither slices inputs nor stacks outputs, so that it can have any length."""
    if primitive_name(equation) != "scan":
        return False
    fixed, carried = scan_counts(equation.params)
    return len(equation.invars) == fixed + carried and len(equation.outvars) == carried


@mutation_operator(order=60)
def loop_length(equation: Equation) -> Iterator[EquationChange]:
    """A loop ends a step too early or too late."""
    if _is_loop_of_steps(equation):
        length = equation.params["length"]
        if length > 0:
            yield EquationChange("one step less", lambda: with_params(equation, length=length - 1))
        yield EquationChange("one step more", lambda: with_params(equation, length=length + 1))


@mutation_operator(order=61)
def loop_start(equation: Equation) -> Iterator[EquationChange]:
    """A loop begins at the wrong step."""
    if primitive_name(equation) not in ("scan", "while"):
        return
    for number, operand in enumerate(equation.invars):
        is_step = (
            isinstance(operand, Literal)
            and is_array(operand)
            and not shape_of(operand)
            and np.issubdtype(dtype_of(operand), np.integer)
        )
        if is_step:
            yield EquationChange(f"carried value {number + 1} starts one larger", partial(_start, equation, number))
            return  # the first one counts the steps


def _start(equation: Equation, number: int) -> list[Equation]:
    old = equation.invars[number]
    new = type(old)(np.asarray(old.val + 1, old.aval.dtype)[()], old.aval)
    return [equation.replace(invars=[*equation.invars[:number], new, *equation.invars[number + 1 :]])]


@mutation_operator(order=62)
def branches_swapped(equation: Equation) -> Iterator[EquationChange]:
    """A branch is taken in the wrong case."""
    if primitive_name(equation) == "cond" and len(equation.params["branches"]) == 2:
        no, yes = equation.params["branches"]
        yield EquationChange("branches swapped", lambda: with_params(equation, branches=(yes, no)))


@mutation_operator(order=63)
def branch_always(equation: Equation) -> Iterator[EquationChange]:
    """A condition is forgotten: one branch is always taken."""
    if primitive_name(equation) == "cond" and len(equation.params["branches"]) == 2:
        no, yes = equation.params["branches"]
        yield EquationChange("always the first branch", lambda: with_params(equation, branches=(yes, _renewed(yes))))
        yield EquationChange("always the second branch", lambda: with_params(equation, branches=(no, _renewed(no))))


def _renewed(branch: Any) -> ClosedJaxpr:
    """Returns a copy of a branch, since some code caches branches by identity."""
    renewed: ClosedJaxpr = (
        branch.replace(jaxpr=branch.jaxpr.replace()) if branch.jaxpr is not branch else branch.replace()
    )
    return renewed


# Mutation operators on dtypes, accumulators and matrix products.


def _round_to_16_bits(x: JaxArray) -> JaxArray:
    return jnp.asarray(x).astype(jnp.bfloat16).astype(x.dtype)


def _is_float32(equation: Equation) -> bool:
    return (
        len(equation.outvars) == 1
        and is_float_array(equation.outvars[0])
        and dtype_of(equation.outvars[0]) == np.float32
    )


@mutation_operator(order=80)
def sum_narrowed(equation: Equation) -> Iterator[EquationChange]:
    """Sums are accumulated in 16 bits."""
    if primitive_name(equation) in ("add", "reduce_sum", "cumsum", "dot_general") and _is_float32(equation):
        yield EquationChange("rounded to bfloat16", lambda: after(equation, _round_to_16_bits))


@mutation_operator(order=81)
def result_narrowed(equation: Equation) -> Iterator[EquationChange]:
    """A result is kept in 16 bits."""
    names = ("mul", "sub", "div", "exp", "exp2", "log", "rsqrt", "sqrt", "tanh", "logistic", "erf", "reduce_max")
    if primitive_name(equation) in names and _is_float32(equation):
        yield EquationChange("rounded to bfloat16", lambda: after(equation, _round_to_16_bits))


@mutation_operator(order=82)
def cast_narrowed(equation: Equation) -> Iterator[EquationChange]:
    """A cast goes through a narrower type."""
    if primitive_name(equation) == "convert_element_type" and is_array(equation.invars[0]):
        old, new = dtype_of(equation.invars[0]), dtype_of(equation.outvars[0])
        if np.issubdtype(old, np.integer) and old.itemsize > 1 and np.issubdtype(new, np.integer):
            yield EquationChange("cast by way of int8", lambda: before(equation, {0: lambda x: x.astype(np.int8)}))
        elif np.issubdtype(old, np.integer) and old.itemsize > 1 and new == np.float32:
            yield EquationChange("cast by way of bfloat16", lambda: after(equation, _round_to_16_bits))


@mutation_operator(order=83)
def product_narrowed(equation: Equation) -> Iterator[EquationChange]:
    """A matrix product takes its operands in 16 bits."""
    if primitive_name(equation) == "dot_general" and all(dtype_of(v) == np.float32 for v in equation.invars):
        change = {0: _round_to_16_bits, 1: _round_to_16_bits}
        yield EquationChange("operands rounded to bfloat16", lambda: before(equation, change))


@mutation_operator(order=84)
def product_transposed(equation: Equation) -> Iterator[EquationChange]:
    """An operand of a matrix product is transposed."""
    if primitive_name(equation) != "dot_general":
        return
    (left, right), batch = equation.params["dimension_numbers"]
    if batch != ((), ()) and any(map(len, batch)):
        return
    for number, axes in enumerate((left, right)):
        shape = equation.invars[number].aval.shape
        if len(shape) == 2 and shape[0] == shape[1] and len(axes) == 1:
            other: list[tuple[int, ...]] = [tuple(left), tuple(right)]
            other[number] = (1 - axes[0],)
            numbers = (tuple(other), batch)
            phrase = f"operand {number + 1} transposed"
            yield EquationChange(phrase, partial(with_params, equation, dimension_numbers=numbers))


@mutation_operator(order=85)
def transpose_dropped(equation: Equation) -> Iterator[EquationChange]:
    """An axis is transposed or not."""
    if primitive_name(equation) == "transpose" and len(set(equation.invars[0].aval.shape)) == 1:
        order = tuple(range(len(equation.params["permutation"])))
        if order != tuple(equation.params["permutation"]):
            yield EquationChange("not transposed", lambda: with_params(equation, permutation=order))


# Mutation operators on Pallas calls: the grid, the index maps and the programs' ids.


@mutation_operator(order=100)
def program_id_shifted(equation: Equation) -> Iterator[EquationChange]:
    """A program works on the block of the program before it."""
    if primitive_name(equation) == "program_id":
        yield EquationChange("one less, but not below 0", lambda: after(equation, lambda i: jnp.maximum(i - 1, 0)))


@mutation_operator(order=102)
def grid_shortened(equation: Equation) -> Iterator[EquationChange]:
    """The last programs are never launched."""
    if is_plain_call(equation):
        mapping = equation.params["grid_mapping"]
        for axis, length in enumerate(mapping.grid):
            if length > 1:
                grid = (*mapping.grid[:axis], length - 1, *mapping.grid[axis + 1 :])
                phrase = f"a program less along axis {axis} of the grid"
                yield EquationChange(phrase, partial(with_params, equation, grid_mapping=mapping.replace(grid=grid)))


@mutation_operator(order=103)
def block_shifted(equation: Equation) -> Iterator[EquationChange]:
    """An index map takes the next block."""
    if not is_plain_call(equation):
        return
    mapping = equation.params["grid_mapping"]
    for number, block in enumerate(mapping.block_mappings):
        shape = [getattr(length, "block_size", length) for length in block.block_shape]
        for axis, size in enumerate(shape):
            whole = block.array_aval.shape[axis]
            if isinstance(size, int) and size < whole:  # otherwise, the only block
                phrase = f"the next block along axis {axis} of block spec {number}"
                yield EquationChange(phrase, partial(_with_next_block, equation, number, axis))


def _with_next_block(equation: Equation, number: int, axis: int) -> list[Equation]:
    mapping = equation.params["grid_mapping"]
    block = mapping.block_mappings[number]
    whole = block.index_map_jaxpr
    inner = getattr(whole, "jaxpr", whole)  # some versions of JAX close it
    shifted = _with_larger_output(inner, axis)
    other = block.replace(index_map_jaxpr=whole.replace(jaxpr=shifted) if whole is not inner else shifted)
    blocks = (*mapping.block_mappings[:number], other, *mapping.block_mappings[number + 1 :])
    return with_params(equation, grid_mapping=mapping.replace(block_mappings=blocks))


def _with_larger_output(jaxpr: Jaxpr, axis: int) -> Jaxpr:
    old = jaxpr.outvars[axis]
    outputs, equations = list(jaxpr.outvars), list(jaxpr.eqns)
    if isinstance(old, Literal):
        outputs[axis] = type(old)(np.asarray(old.val + 1, dtype_of(old))[()], old.aval)
    else:
        outputs[axis] = new_variable(old)
        equations += define(outputs[axis], lambda index: index + 1, [old])
    return jaxpr.replace(outvars=outputs, eqns=equations)


@mutation_operator(order=104)
def axes_mixed_up(equation: Equation) -> Iterator[EquationChange]:
    """Axes of a grid or of an index map are mixed up."""
    for mutation in call_mutations(equation):
        if not mutation.phrase.startswith("launching"):  # more programs than needed are not a bug
            yield EquationChange(mutation.phrase, partial(_equations_of, mutation))


def _equations_of(mutation: CallMutation) -> Sequence[Equation]:
    return mutation.equations
