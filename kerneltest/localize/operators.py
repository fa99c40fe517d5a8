"""The table of mutation operators: the small mistakes that people make in kernels, each as a change of one equation.

Mutation tests plant a mistake in a right kernel, and localisation repairs it in a wrong one. Both are edits of one
equation: often the same, since `<` and `<=` are mistaken for each other. Where they differ, a right kernel knows less
than a wrong one: a mask is forgotten in one way, and added in as many ways as there are conditions in scope. Some
mistakes are only planted, as a branch that is taken in the wrong case, and some only repaired, as an operand that is
another value of the same type. The table at the end of this module lists them all, with both directions.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kerneltest.core.dtypes import Array, is_float
from kerneltest.localize import call_operators, insertions
from kerneltest.localize.edits import (
    EquationChange,
    Function,
    after,
    before,
    compute,
    define,
    dtype_of,
    is_array,
    is_float_array,
    is_integer_array,
    keep,
    same_type,
    with_literal,
    with_operand,
    with_params,
    with_value,
)
from kerneltest.localize.sites import Changes, Site
from kerneltest.trace.jax_compat.jaxprs import Atom, Equation, JaxArray, Literal
from kerneltest.trace.primitives import (
    PRIMITIVES,
    AccessParts,
    Kind,
    access_parts,
    kind_of,
    primitive_named,
    primitive_of,
    with_access_parts,
)
from kerneltest.trace.walk import new_variable, primitive_name, scan_counts


@dataclass(frozen=True, slots=True)
class Operator:
    """A kind of mistake."""

    name: str  # the name in results and options
    mistake: str  # the mistake in words
    plant: Changes | None = None  # yields the changes of a right equation; None if the mistake is only repaired
    # yields the changes of an equation that may be wrong; None if the mistake is only planted
    repair: Changes | None = None


# Other functions in place of a primitive, and primitives that are left out.

_ELEMENTWISE = {p.name: p for p in PRIMITIVES.values() if p.kind in (Kind.ELEMENTWISE, Kind.COMPARISON)}
_FUNCTIONS: dict[str, Function] = {
    "rsqrt": lambda x: 1 / jnp.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "logistic": lambda x: 1 / (1 + jnp.exp(-x)),
    "round": jnp.round,
    "x": lambda x: x,
    "true": lambda x: True,
}
_WORDS = {"max": "maximum", "min": "minimum", "reciprocal": "1 / x", "true": "always true", "is_finite": "isfinite"}
_OF_X = {"neg": "-x", "not": "~x", "abs": "|x|", "square": "x**2"}


def _function(name: str) -> Function:
    function: Function = _FUNCTIONS.get(name) or getattr(jnp, getattr(PRIMITIVES[name].numpy, "__name__", ""))
    return function


def _spelled(name: str) -> str:
    known = primitive_named(name)
    return _WORDS.get(name) or known.sign or known.words


def _plant_other(others: Mapping[str, Sequence[str]], site: Site) -> Iterator[EquationChange]:
    # The likeliest mistake alone: each further one would plant a bug like the first.
    for new in others.get(site.name, ())[:1]:
        old = _OF_X.get(site.name, f"{site.name}(x)") if new == "x" else _spelled(site.name)
        quoted = (each.removeprefix("the ") if re.search(r"\w", each) else f"`{each}`" for each in (_spelled(new), old))
        yield from _replace(site, " for ".join(quoted), _function(new))


def _repair_other(others: Mapping[str, Sequence[str]], cost: int, site: Site) -> Iterator[EquationChange]:
    old = _spelled(site.name)
    for new in others.get(site.name, ()):
        if new in PRIMITIVES:  # an operand in place of a result is another operator's
            yield from _replace(site, f"changing {old} to {_spelled(new)}", _function(new), cost)


def _replace(site: Site, phrase: str, function: Function, cost: int = 0) -> Iterator[EquationChange]:
    if len(site.equation.outvars) == 1 and all(map(is_array, site.operands)):
        yield EquationChange(phrase, partial(compute, site.equation, function), cost=cost)


def _mistaken(primitives: str) -> dict[str, Sequence[str]]:
    return {name: _ELEMENTWISE[name].mistaken_for for name in primitives.split()}


_ORDERS = _mistaken("lt le gt ge")
EDGES = {name: others[:1] for name, others in _ORDERS.items()}
_INVERSIONS = {name: others[1:] for name, others in _ORDERS.items()} | _mistaken("eq ne")
_SCALES = _mistaken("mul div")
_OF_OTHER_OPERATORS = "lt le gt ge eq ne add sub mul div and or max min neg pow clamp atan2".split()
_OTHERS = {name: known.mistaken_for for name, known in _ELEMENTWISE.items() if name not in _OF_OTHER_OPERATORS}


def _both(others: Mapping[str, Sequence[str]], cost: int = 1) -> dict[str, Changes]:
    return {"plant": partial(_plant_other, others), "repair": partial(_repair_other, others, cost)}


def _invert_scale(site: Site) -> Iterator[EquationChange]:
    # An integer division has no inverse.
    if site.equation.outvars and is_float_array(site.equation.outvars[0]):
        yield from _plant_other(_SCALES, site)


def _swap_operands(site: Site) -> Iterator[EquationChange]:
    if site.name in _ELEMENTWISE and "swapped" in _ELEMENTWISE[site.name].mistaken_for:
        yield from _replace(site, "operands swapped", lambda x, y: _function(site.name)(y, x))


def _repair_swapped(site: Site) -> Iterator[EquationChange]:
    yield from _as_repair(_swap_operands, f"exchanging the operands of {_spelled(site.name)}")(site)


# By operator: primitives, the operand that is kept, and the phrase.
_KEPT_OPERANDS: dict[str, tuple[tuple[str, int, str], ...]] = {
    "term": (("add sub mul div", 0, "without its second operand"), ("add", 1, "without its first operand")),
    "condition": (("and or", 1, "without its first condition"), ("and or", 0, "without its second condition")),
    "choice": (
        ("select_n", 2, "always the first value of `where`"),
        ("select_n", 1, "always the second value of `where`"),
    ),
    "limit": (
        ("max min", 0, "only operand 1 of {name}"),
        ("max min", 1, "only operand 2 of {name}"),
        ("clamp", 1, "without the clamp"),
    ),
}


def _drop(what: str, site: Site) -> Iterator[EquationChange]:
    for primitives, number, phrase in _KEPT_OPERANDS[what]:
        if site.name in primitives.split() and _can_keep(site, number):
            yield EquationChange(phrase.format(name=site.name), partial(keep, site.equation, number))


def _can_keep(site: Site, number: int) -> bool:
    match site.name:
        case "and" | "or":
            return dtype_of(site.equation.outvars[0]) == np.bool_
        case "max" | "min":
            return not isinstance(site.operands[number], Literal)
    return site.name != "select_n" or len(site.operands) == 3


def _swap_choice(site: Site) -> Iterator[EquationChange]:
    if site.name == "select_n" and len(site.operands) == 3:
        which, no, yes = site.operands
        yield EquationChange("branches of `where` swapped", lambda: [site.equation.replace(invars=[which, yes, no])])


def _as_repair(changes: Changes, words: str) -> Changes:
    # A planted change as a repair: what was exchanged is exchanged back.
    def repair(site: Site) -> Iterator[EquationChange]:
        for change in changes(site):
            yield replace(change, phrase=words, key=change.key or change.phrase, cost=1)

    return repair


def _change_exponent(site: Site) -> Iterator[EquationChange]:
    if site.name == "integer_pow":
        power = site.equation.params["y"] + 1
        yield EquationChange("an exponent one larger", partial(with_params, site.equation, y=power))


def _replace_reduction(site: Site) -> Iterator[EquationChange]:
    known = primitive_of(site.equation)
    if known.kind in (Kind.REDUCTION, Kind.SCAN) and known.mistaken_for:
        other = known.mistaken_for[0]
        new, old = (name.removeprefix("reduce_") for name in (other, site.name))
        replaced = site.equation.replace(primitive=getattr(jax.lax, f"{other}_p"))
        yield EquationChange(f"{new} for {old}", lambda: [replaced])
    if "reverse" in site.equation.params and known.kind is Kind.SCAN:
        reverse = not site.equation.params["reverse"]
        yield EquationChange("accumulated from the other end", partial(with_params, site.equation, reverse=reverse))


def _repair_reduction(site: Site) -> Iterator[EquationChange]:
    for change in _replace_reduction(site):
        phrase = f"taking {change.phrase}" if " for " in change.phrase else "accumulating from the other end"
        yield replace(change, phrase=phrase, cost=1)


def _take_last(site: Site) -> Iterator[EquationChange]:
    if site.name in ("argmax", "argmin"):
        (axis,), find = site.equation.params["axes"], getattr(jnp, site.name)
        edit = partial(compute, site.equation, lambda x: x.shape[axis] - 1 - find(jnp.flip(x, axis), axis))
        yield EquationChange("taking the last of equal numbers", edit, cost=1)


_KEPT = frozenset("broadcast_in_dim reshape squeeze convert_element_type copy".split())
_CALLS = frozenset({Kind.CALL, Kind.LOOP, Kind.BRANCH, Kind.KERNEL})


def _remove(site: Site) -> Iterator[EquationChange]:
    known = primitive_of(site.equation)
    is_call = known.kind is Kind.CALL and not known.rules
    if len(site.equation.outvars) != 1 or site.name in _KEPT or (known.kind in _CALLS and not is_call):
        return
    (result,) = site.equation.outvars
    for number, operand in enumerate(site.operands):
        # A scalar in place of an array would be another bug.
        if not (is_array(result) and is_array(operand) and same_type(operand, result)) or isinstance(operand, Literal):
            continue
        is_rounding = site.name == "reduce_precision"
        # The name of a call is that of its function, such as `where`.
        name = str(site.equation.params.get("name", site.name)).lstrip("_") if is_call else site.name
        phrase = "removing the rounding" if is_rounding else f"replacing {name} by {_describe(site, operand)}"
        cost, undone = (0, f"a rounding to {_rounded_to(site)}") if is_rounding else (2, "")
        yield EquationChange(phrase, partial(keep, site.equation, number), f"operand {number}", cost, undone=undone)


def _rounded_to(site: Site) -> str:
    bits = site.equation.params["exponent_bits"], site.equation.params["mantissa_bits"]
    formats = {(finfo.nexp, finfo.nmant): name for name in ("bfloat16", "float16") if (finfo := jnp.finfo(name))}
    return formats.get(bits, f"{bits[1]} bits")


def _describe(site: Site, operand: Atom) -> str:
    return next((str(value) for value in site.scope if value.variable is operand), "one of its operands")


_NOT_MEANT = frozenset("broadcast_in_dim full_like iota reshape squeeze program_id".split())


def _exchange(site: Site) -> Iterator[EquationChange]:
    # Another operand of the same type: a value, or a reference that is loaded or stored to.
    for number, operand in enumerate(site.operands) if kind_of(site.equation) not in _CALLS else ():
        if isinstance(operand, Literal):
            continue
        programs = {value.variable for value in site.scope if value.name == "program_id"}
        for value in reversed(site.scope):
            if value.variable is operand or not same_type(value.variable, operand):
                continue
            is_axis = {operand, value.variable} <= programs
            if is_array(operand) and value.name in _NOT_MEANT and not is_axis:
                continue
            edit = partial(with_operand, site.equation, number, value.variable)
            old, new = _describe(site, operand), str(value)
            phrase = f"replacing {old} by {'another one' if new == old else new} in {site.name}"
            is_meant = is_axis or not is_array(operand)
            cost = 1 if is_axis else 3 + (site.name in insertions.MAXIMA)  # by chance, another value often fits
            yield EquationChange(phrase, edit, f"operand {number} by {value.key}", cost, is_meant)


# Constants.

COMPARISONS = frozenset(name for name, known in _ELEMENTWISE.items() if known.kind is Kind.COMPARISON)
_WITH_CONSTANTS = COMPARISONS | frozenset("add sub mul div max min pow rem clamp select_n atan2".split())
_BEGUN = frozenset("broadcast_in_dim full_like scan while".split())
TAKING_CONSTANTS = (
    _WITH_CONSTANTS | _BEGUN | frozenset("and or xor shift_left shift_right_logical shift_right_arithmetic".split())
)
_LARGEST_TERM = 1e4  # larger constants are fills, such as -1e30 for -inf


def common_floats(value: float) -> tuple[float, ...]:
    """Returns numbers that may have been meant in place of a float; infinities only for what may be a fill."""
    if not np.isfinite(value):
        return 0.0, -np.inf, np.inf
    return (0.0, 1.0, -np.inf, np.inf) if value == 0 or abs(value) >= _LARGEST_TERM else (0.0, 1.0)


def format_constant(value: float) -> str:
    """Returns a constant as messages spell it."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _constants(site: Site, primitives: Collection[str]) -> Iterator[tuple[int, Literal]]:
    for number, operand in enumerate(site.operands) if site.name in primitives else ():
        if isinstance(operand, Literal) and is_array(operand) and dtype_of(operand) != np.bool_:
            yield number, operand


def _in_a_late_digit(x: Array) -> Array:
    # By 16 ulps of float32, more than rounding admits; to the next number, away from zero, in fewer than 32 bits.
    if x.dtype.itemsize >= 4:
        larger: Array = x * np.asarray(1 + 2.0**-19, x.dtype)
        return larger
    bits = x.view(f"u{x.dtype.itemsize}")
    return (bits + np.ones((), bits.dtype)).view(x.dtype)


def _enlarge(how: str, function: Function, site: Site) -> Iterator[EquationChange]:
    for number, operand in _constants(site, _WITH_CONSTANTS):
        value = np.asarray(operand.val).astype(np.float64)
        # A few ulps matter for a scale.
        if is_float(dtype_of(operand)) and np.isfinite(value).all() and (value != 0).all():
            yield EquationChange(f"operand {number + 1} {how}", partial(before, site.equation, {number: function}))


def _count_one_more(site: Site) -> Iterator[EquationChange]:
    yield from _enlarge("a quarter larger", lambda x: x * 1.25, site)
    for number, operand in _constants(site, _WITH_CONSTANTS):
        if not is_float(dtype_of(operand)):
            edit = partial(before, site.equation, {number: lambda x: x + 1})
            yield EquationChange(f"operand {number + 1} one larger", edit)


def _begin_wrongly(site: Site) -> Iterator[EquationChange]:
    for number, operand in _constants(site, _BEGUN | {"swap", "masked_swap"}):
        value = float(np.asarray(operand.val).astype(np.float64))
        if is_float(dtype_of(operand)) and (value == 0 or np.isinf(value)):
            new = 1.0 if value == 0 else 0.0
            edit = partial(with_literal, site.equation, number, new)
            yield EquationChange(f"{new:g} for the initial {value:g}", edit)


def _other_constants(site: Site) -> Iterator[EquationChange]:
    for number, operand in _constants(site, TAKING_CONSTANTS):
        value: Any = float(operand.val) if is_float_array(operand) else int(operand.val)
        if site.name in COMPARISONS and not np.isfinite(value):
            continue  # a test for infinities, which JAX writes, too
        seen: set[tuple[Any, str]] = set()
        for key, meaning, new, cost in _other_numbers(site, operand, value):
            dtype = dtype_of(operand)
            fits = is_float(dtype) or np.iinfo(dtype).min <= new <= np.iinfo(dtype).max
            if new == value or (new, meaning) in seen or not fits:
                continue
            seen.add((new, meaning))
            phrase = f"changing {format_constant(value)} to {meaning}{format_constant(new)}"
            edit = partial(with_literal, site.equation, number, new)
            dim = key.removeprefix("unpadded ")
            undone = f"the padded length of {dim} in place of {dim}" if dim != key and new else ""
            # A length may equal the right number by coincidence.
            yield EquationChange(phrase, edit, f"operand {number} to {key}", cost, not meaning, undone)


def _other_numbers(site: Site, operand: Literal, value: Any) -> Iterator[tuple[str, str, Any, int]]:
    # Other numbers for a literal: a key, a prefix that tells the meaning, the number, the cost.
    if is_integer_array(operand):
        yield from ((f"{by:+}", "", value + by, 0) for by in (1, -1))
    else:
        yield from ((f"{new}", "", new, 0) for new in common_floats(value))
        if value == 0 or not np.isfinite(value):
            return  # no other number is meant in place of a fill
        yield from (("minus", "", -value, 1), ("inverse", "", 1 / value, 1))
    for name, length in site.jaxpr.lengths.items():
        yield f"length {name}", f"the length {name}=", type(value)(length), 1
        if value > 1 and np.log2(value) % 1 == 0:
            is_padded = value == 1 << (length - 1).bit_length()  # at all lengths, which 0 refutes
            meaning, cost = (f"the unpadded length {name}=", 0) if is_padded else ("no length but ", 4)
            yield f"unpadded {name}", meaning, type(value)(length if is_padded else 0), cost
    for key, number in site.jaxpr.numbers.items():
        if isinstance(number, float) == is_float_array(operand):
            yield key, "", type(value)(number), 1
        for name, length in site.jaxpr.lengths.items() if isinstance(value, float) and type(number) is int else ():
            if number > 1 and length > 1:  # a rate or a scale may be computed from another number than a length
                yield f"{key} for {name}", f"that with {number} for {name}={length}, ", value * length / number, 2


# Loads, stores, masks, slices, copies and barriers.


def _access(site: Site) -> AccessParts | None:
    return access_parts(site.equation) if kind_of(site.equation) is not Kind.ATOMIC else None


def _change_mask(words: str, function: Function, site: Site) -> Iterator[EquationChange]:
    parts = _access(site)
    if parts is None or parts.mask is None or isinstance(parts.mask, Literal):
        return

    def edit() -> list[Equation]:
        new = new_variable(parts.mask)
        return [*define(new, function, [parts.mask]), with_access_parts(site.equation, parts._replace(mask=new))]

    yield EquationChange(f"the {'load' if kind_of(site.equation) is Kind.READ else 'store'} {words}", edit)


def _change_other(site: Site) -> Iterator[EquationChange]:
    parts = _access(site)
    if parts is not None and isinstance(parts.other, Literal):
        new = 1.0 if np.asarray(parts.other.val).astype(np.float64) == 0 else 0.0
        changed = parts._replace(other=with_value(parts.other, new))
        yield EquationChange(f"other={new:g}", lambda: [with_access_parts(site.equation, changed)])


def _other_fills(site: Site) -> Iterator[EquationChange]:
    parts = _access(site)
    if parts is None or parts.mask is None or parts.other is None or kind_of(site.equation) is not Kind.READ:
        return
    literal = parts.other if isinstance(parts.other, Literal) else None
    for fill in (0.0, 1.0, -np.inf, np.inf) if literal is not None and is_float_array(literal) else (0, 1):
        if literal is not None and float(np.asarray(literal.val).astype(np.float64)) != fill:
            changed = parts._replace(other=with_value(literal, fill))
            edit = partial(lambda parts: [with_access_parts(site.equation, parts)], changed)
            phrase = f"giving the masked load other={fill:g}"
            yield EquationChange(phrase, edit, undone="the value of masked elements")


def _is_discarded(equation: Equation) -> bool:
    # JAX marks the results that are not used.
    return all(type(variable).__name__ == "DropVar" for variable in equation.outvars)


def _drop_store(site: Site) -> Iterator[EquationChange]:
    if _access(site) is not None and kind_of(site.equation) is not Kind.READ and _is_discarded(site.equation):
        yield EquationChange("not stored", list)


def _store_twice(site: Site) -> Iterator[EquationChange]:
    if site.name in ("addupdate", "atomic_rmw") and _is_discarded(site.equation):
        yield EquationChange("stored twice", lambda: [site.equation, site.equation])


_FIRST_START = {"dynamic_slice": 1, "dynamic_update_slice": 2}


def _shift_slice(site: Site) -> Iterator[EquationChange]:
    if (parts := _access(site)) is not None:
        first = primitive_of(site.equation).parts.index("transforms")
        last = first + len(jax.tree_util.tree_leaves(parts.transforms))
    else:
        last = len(site.operands)
        first = _FIRST_START.get(site.name, last)
    for number in range(first, last):
        operand = site.operands[number]
        if is_array(operand) and operand.aval.shape == () and np.issubdtype(dtype_of(operand), np.integer):
            edit = partial(before, site.equation, {number: lambda start: start + 1})
            yield EquationChange(f"start {number + 1} of the slice one larger", edit)


_SYNCHRONISATION = {
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


def _drop_synchronisation(site: Site) -> Iterator[EquationChange]:
    if (what := _SYNCHRONISATION.get(site.name)) is not None and not site.equation.outvars:
        yield EquationChange(f"without {what}", list)


# Loops and branches.


def _loop_of_steps(site: Site) -> int | None:
    # The length of a loop that neither slices inputs nor stacks outputs, so that it can have any length.
    if site.name != "scan":
        return None
    fixed, carried = scan_counts(site.equation.params)
    has_steps = len(site.operands) == fixed + carried and len(site.equation.outvars) == carried
    return int(site.equation.params["length"]) if has_steps else None


def _change_length(site: Site) -> Iterator[EquationChange]:
    if length := _loop_of_steps(site):
        yield EquationChange("one step less", partial(with_params, site.equation, length=length - 1))
    if length is not None:
        yield EquationChange("one step more", partial(with_params, site.equation, length=length + 1))


def _begin_late(site: Site) -> Iterator[EquationChange]:
    for number, operand in enumerate(site.operands) if site.name in ("scan", "while") else ():
        if isinstance(operand, Literal) and is_integer_array(operand) and not np.shape(operand.val):
            edit = partial(with_literal, site.equation, number, operand.val + 1)
            yield EquationChange(f"carried value {number + 1} starts one larger", edit)
            return  # the first one counts the steps


def _lengthen(site: Site) -> Iterator[EquationChange]:
    length = _loop_of_steps(site)
    if length is None or any(hasattr(v.aval, "inner_aval") for v in site.equation.outvars):
        return
    counter = _counter(site.equation)
    for by, verb in ((1, "adding"), (-1, "removing")):
        (loop,) = with_params(site.equation, length=max(length + by, 0))
        yield EquationChange(f"{verb} an iteration at the end of the loop", partial(list, [loop]), f"{by:+}")
        if counter is not None:
            edit = partial(before, loop, {counter: lambda i, by=by: i - jnp.asarray(by, i.dtype)})
            yield EquationChange(f"{verb} an iteration at the start of the loop", edit, f"start {by:+}")


def _counter(loop: Equation) -> int | None:
    body, (consts, _) = loop.params["jaxpr"].jaxpr, scan_counts(loop.params)
    for number, (carried, result) in enumerate(zip(body.invars[consts:], body.outvars, strict=False)):
        counts = (e for e in body.eqns if primitive_name(e) == "add" and e.outvars[0] is result)
        added = [e.invars[1] for e in counts if e.invars[0] is carried and is_integer_array(carried)]
        if any(isinstance(step, Literal) and step.val == 1 for step in added):
            return consts + number
    return None


def _change_branches(swaps: bool, site: Site) -> Iterator[EquationChange]:
    if site.name != "cond" or len(site.equation.params["branches"]) != 2:
        return
    no, yes = site.equation.params["branches"]
    if swaps:
        yield EquationChange("branches swapped", partial(with_params, site.equation, branches=(yes, no)))
        return
    for which, branch in (("first", yes), ("second", no)):
        copied = branch.replace(jaxpr=branch.jaxpr.replace()) if branch.jaxpr is not branch else branch.replace()
        # Some code caches branches by identity.
        edit = partial(with_params, site.equation, branches=(branch, copied))
        yield EquationChange(f"always the {which} branch", edit)


# Dtypes, accumulators and matrix products.

_SUMMED = frozenset({"add", *(name for name, known in PRIMITIVES.items() if known.sums)})
_COMPUTED = frozenset("mul sub div exp exp2 log rsqrt sqrt tanh logistic erf reduce_max".split())


def _narrow(x: JaxArray) -> JaxArray:
    return jnp.asarray(x).astype(jnp.bfloat16).astype(x.dtype)


def _narrow_result(primitives: Collection[str], site: Site) -> Iterator[EquationChange]:
    if site.name in primitives and len(site.equation.outvars) == 1:
        (result,) = site.equation.outvars
        if is_float_array(result) and dtype_of(result) == np.float32:
            yield EquationChange("rounded to bfloat16", partial(after, site.equation, _narrow))


def _narrow_cast(site: Site) -> Iterator[EquationChange]:
    if site.name == "convert_element_type" and is_array(site.operands[0]):
        old, new = dtype_of(site.operands[0]), dtype_of(site.equation.outvars[0])
        if not np.issubdtype(old, np.integer) or old.itemsize == 1:
            return
        if np.issubdtype(new, np.integer):
            edit = partial(before, site.equation, {0: lambda x: x.astype(np.int8)})
            yield EquationChange("cast by way of int8", edit)
        elif new == np.float32:
            yield EquationChange("cast by way of bfloat16", partial(after, site.equation, _narrow))


def _narrow_product(site: Site) -> Iterator[EquationChange]:
    if site.name == "dot_general" and all(dtype_of(v) == np.float32 for v in site.operands):
        edit = partial(before, site.equation, {0: _narrow, 1: _narrow})
        yield EquationChange("operands rounded to bfloat16", edit)


def _transpose_operand(site: Site) -> Iterator[EquationChange]:
    if site.name != "dot_general":
        return
    contracted, batch = site.equation.params["dimension_numbers"]
    for number, axes in enumerate(contracted if not any(map(len, batch)) else ()):
        shape = site.operands[number].aval.shape
        if len(shape) == 2 and shape[0] == shape[1] and len(axes) == 1:
            other: list[tuple[int, ...]] = [tuple(axes) for axes in contracted]
            other[number] = (1 - axes[0],)
            edit = partial(with_params, site.equation, dimension_numbers=(tuple(other), batch))
            yield EquationChange(f"operand {number + 1} transposed", edit)


def _drop_transpose(site: Site) -> Iterator[EquationChange]:
    if site.name == "transpose" and len(set(site.operands[0].aval.shape)) == 1:
        order = tuple(range(len(site.equation.params["permutation"])))
        if order != tuple(site.equation.params["permutation"]):
            yield EquationChange("not transposed", partial(with_params, site.equation, permutation=order))


# Programs of a grid.


def _shift_program(site: Site) -> Iterator[EquationChange]:
    if site.name == "program_id":
        edit = partial(after, site.equation, lambda i: jnp.maximum(i - 1, 0))
        yield EquationChange("one less, but not below 0", edit)


# Where several repair an equation in the same way or at the same cost, the first one is tried first.
OPERATORS: tuple[Operator, ...] = (
    Operator("comparison-edge", "A boundary is off by one", **_both(EDGES, cost=0)),
    Operator(
        "constant-in-a-late-digit",
        "A constant is wrong in a late digit",
        partial(_enlarge, "larger in a late digit", _in_a_late_digit),
    ),
    Operator(
        "constant-by-a-little",
        "A constant has too few digits",
        partial(_enlarge, "larger by a thousandth", lambda x: x * (1 + 2.0**-10)),
    ),
    Operator("constant-by-a-lot", "A constant is wrong", _count_one_more, _other_constants),
    Operator("initial-value", "A sum, a maximum or a minimum begins with the wrong value", _begin_wrongly),
    Operator("loop-length", "A loop ends a step too early or too late", _change_length, _lengthen),
    Operator("loop-start", "A loop begins at the wrong step", _begin_late),
    Operator("comparison-inverted", "A condition or a mask is inverted", **_both(_INVERSIONS)),
    Operator("sum-sign", "The sign of a term is wrong", **_both(_mistaken("add sub"))),
    Operator("product-inverted", "A scale is applied the wrong way", _invert_scale, _both(_SCALES)["repair"]),
    Operator("term-dropped", "A term or a factor is forgotten", partial(_drop, "term")),
    Operator("operands-swapped", "Operands are exchanged", _swap_operands, _repair_swapped),
    Operator("conjunction", "Conditions are joined the wrong way", **_both(_mistaken("and or"))),
    Operator("condition-dropped", "One of several conditions is forgotten", partial(_drop, "condition")),
    Operator(
        "choice-swapped",
        "The branches of a choice are exchanged",
        _swap_choice,
        _as_repair(_swap_choice, "exchanging the branches of `where`"),
    ),
    Operator("choice-dropped", "A guard or a mask of values is forgotten", partial(_drop, "choice")),
    Operator("extreme-swapped", "A limit is on the wrong side", **_both(_mistaken("max min"))),
    Operator("limit-dropped", "A limit is forgotten", partial(_drop, "limit"), insertions.limit),
    Operator("negation-dropped", "The sign of a value is wrong", partial(_plant_other, _mistaken("neg"))),
    Operator("function-replaced", "A similar function is called, or none at all", **_both(_OTHERS)),
    Operator("exponent-changed", "An exponent is off by one", _change_exponent),
    Operator("reduction-replaced", "Another reduction is taken", _replace_reduction, _repair_reduction),
    Operator("first-taken-for-last", "The first of equal numbers is taken, not the last", repair=_take_last),
    Operator("operation-added", "An operation is one too many", repair=_remove),
    Operator("operand-exchanged", "Another value or reference is used", repair=_exchange),
    Operator(
        "mask-dropped",
        "The mask of a load or a store is forgotten",
        partial(_change_mask, "without its mask", jnp.ones_like),
        insertions.mask,
    ),
    Operator(
        "mask-inverted",
        "The mask of a load or a store is inverted",
        partial(_change_mask, "with its mask inverted", jnp.logical_not),
    ),
    Operator("other-changed", "Masked elements get the wrong value", _change_other, _other_fills),
    Operator("store-dropped", "A result is not stored", _drop_store),
    Operator("store-unguarded", "Something is stored too often", repair=insertions.guard_store),
    Operator("store-doubled", "Something is added twice", _store_twice),
    Operator("slice-shifted", "A slice starts one element too late", _shift_slice),
    Operator("synchronisation-dropped", "A wait, a signal or a copy is forgotten", _drop_synchronisation),
    Operator(
        "branches-swapped",
        "A branch is taken in the wrong case",
        partial(_change_branches, True),
        _as_repair(partial(_change_branches, True), "exchanging the branches"),
    ),
    Operator("branch-always", "A condition is forgotten: one branch is always taken", partial(_change_branches, False)),
    Operator(
        "value-unguarded", "Zero, negative numbers or infinities are not guarded against", repair=insertions.guard
    ),
    Operator("magnitude-forgotten", "Signed values are compared, not their sizes", repair=insertions.take_magnitudes),
    Operator("shift-unrounded", "A shift rounds down, not to nearest", repair=insertions.round_shift),
    Operator("scale-dropped", "A scale is forgotten, or applied twice", repair=insertions.rescale),
    Operator("term-missing", "1, or another value, is not added", repair=insertions.add_term),
    Operator("sum-not-rescaled", "A sum so far keeps an old maximum", repair=insertions.rescale_by_maximum),
    Operator("operations-exchanged", "Operations are in the wrong order", repair=insertions.exchange_operations),
    Operator("position-shifted", "Positions are counted from the wrong end", repair=insertions.shift),
    Operator("sum-narrowed", "Sums are accumulated in 16 bits", partial(_narrow_result, _SUMMED)),
    Operator("result-narrowed", "A result is kept in 16 bits", partial(_narrow_result, _COMPUTED)),
    Operator("cast-narrowed", "A cast goes through a narrower type", _narrow_cast),
    Operator("product-narrowed", "A matrix product takes its operands in 16 bits", _narrow_product),
    Operator(
        "product-transposed",
        "An operand of a matrix product is transposed",
        _transpose_operand,
        _as_repair(_transpose_operand, "transposing an operand of the product"),
    ),
    Operator("transpose-dropped", "An axis is transposed or not", _drop_transpose),
    Operator("program-id-shifted", "A program works on the block of the program before it", _shift_program),
    Operator("grid-shortened", "The last programs are never launched", call_operators.shorten_grid),
    Operator("block-shifted", "An index map takes the next block", call_operators.shift_block),
    Operator("axes-mixed-up", "Axes of a grid or of an index map are mixed up", call_operators.mix_up_axes),
)
