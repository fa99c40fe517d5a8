"""Mutation operators on loops and branches."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from kerneltest.extensions.mutation.edits import shape_of
from kerneltest.extensions.mutation.operators import EquationChange, mutation_operator
from kerneltest.localize.equation_edits import dtype_of, is_array, with_params
from kerneltest.trace.jax_compat.jaxpr_types import ClosedJaxpr, Equation, Literal
from kerneltest.trace.walk import primitive_name, scan_counts


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
