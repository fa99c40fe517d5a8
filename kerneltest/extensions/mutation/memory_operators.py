"""Mutation operators on loads, stores, masks, slices, initial values, copies and barriers."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kerneltest.core.dtypes import is_float
from kerneltest.extensions.mutation.edits import are_discarded, before, with_value
from kerneltest.extensions.mutation.operators import EquationChange, mutation_operator
from kerneltest.localize.equation_edits import define, dtype_of, is_array
from kerneltest.trace.jax_compat.jaxpr_types import Equation, Literal, Var
from kerneltest.trace.walk import new_variable, primitive_name

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
