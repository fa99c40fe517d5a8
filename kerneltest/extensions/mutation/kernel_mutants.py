"""Mutants of a kernel: the places in its jaxpr where operators apply, and the jaxpr with one of them applied.

A mutant is like one edit of the source. It changes all equations of one primitive from one place in the source, in any
signature, so that it is the same mutant at all lengths.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from kerneltest.extensions.mutation.operators import OPERATORS, EquationChange, Operator
from kerneltest.trace.jax_compat.jaxpr_types import ClosedJaxpr, Equation, Jaxpr
from kerneltest.trace.jax_compat.source_lines import place_of, propagate_call_lines
from kerneltest.trace.rewrite import rewrite_jaxpr
from kerneltest.trace.walk import iter_equations, primitive_name


@dataclass(frozen=True, slots=True, order=True)
class KernelMutant:
    """A kernel with one change.

    Attributes:
      file, line, column: the place of the code that is changed; lines count from 1.
      operator: the operator's name.
      primitive: the primitive of the equations that are changed.
      phrase: the change in words.
    """

    file: str
    line: int
    column: int
    operator: str
    primitive: str
    phrase: str

    @property
    def place(self) -> str:
        """FILE:LINE."""
        return f"{self.file}:{self.line}"


class InvalidMutantError(Exception):
    """An operator could not change an equation. The message says why."""


def locate_equations(jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    """Gives each equation in JAX's own functions, such as `jnp.where`, the place of their call in the kernel."""

    def rule(equation: Equation) -> Sequence[Equation] | None:
        other = propagate_call_lines(equation)
        return None if other is equation else [other]

    located: ClosedJaxpr = rewrite_jaxpr(jaxpr, rule)
    return located


def find_mutants(jaxpr: Jaxpr, operators: Collection[Operator]) -> Iterator[KernelMutant]:
    """Yields the mutants of a jaxpr with located equations, in the order of its equations, some more than once."""
    for equation, _ in iter_equations(jaxpr):
        if (place := place_of(equation.source_info)) is None:
            continue
        for operator in operators:
            for change in _changes(operator, equation):
                yield KernelMutant(*place, operator.name, primitive_name(equation), change.phrase)


def apply_mutant(jaxpr: ClosedJaxpr, mutant: KernelMutant) -> ClosedJaxpr | None:
    """Returns a jaxpr with located equations as the mutant has it; None if it has none of the mutant's equations.

    Raises:
      InvalidMutantError: an equation cannot be changed in this way.
    """
    operator = OPERATORS.get(mutant.operator)
    assert operator is not None
    changed = 0

    def rule(equation: Equation) -> Sequence[Equation] | None:
        nonlocal changed
        if primitive_name(equation) != mutant.primitive:
            return None
        if place_of(equation.source_info) != (mutant.file, mutant.line, mutant.column):
            return None
        for change in _changes(operator, equation):
            if change.phrase == mutant.phrase:
                changed += 1
                return _make(change)
        return None

    result = rewrite_jaxpr(jaxpr, rule)
    return result if changed else None


def _changes(operator: Operator, equation: Equation) -> list[EquationChange]:
    """Returns the changes of an equation, one for each phrase."""
    return list({change.phrase: change for change in operator.mutate(equation)}.values())


def _make(change: EquationChange) -> Sequence[Equation]:
    try:
        return change.equations()
    except Exception as error:
        raise InvalidMutantError(f"{type(error).__name__}: {error}") from error
