"""A jaxpr as a list of operations, with the calls of functions inlined."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kerneltest.trace.jax_compat.jaxprs import Atom, Equation, Jaxpr, Var, open_jaxpr
from kerneltest.trace.jax_compat.source_lines import line_of_nested
from kerneltest.trace.primitives import called_jaxpr
from kerneltest.trace.walk import new_variable, primitive_name, scan_counts


@dataclass(frozen=True, eq=False, slots=True)
class JaxprStep:
    """One operation."""

    equation: Equation  # whose variables are those of the equation's own jaxpr
    operands: tuple[Atom, ...]  # valid in the whole list
    results: tuple[Var | None, ...]  # None for one that is not used
    enclosing_calls: tuple[Equation, ...] = ()  # that it was inlined from, outermost first
    bodies: tuple["JaxprBody", ...] = ()  # the branches of a `cond`; of a `scan`, one; of a `while`, condition and body

    @property
    def name(self) -> str:
        """The name of its primitive."""
        return primitive_name(self.equation)

    @property
    def line(self) -> str:
        """`FILE:LINE` of the user's code, or ""."""
        return line_of_nested([*self.enclosing_calls, self.equation])


@dataclass(frozen=True, eq=False, slots=True)
class JaxprBody:
    """The operations of a jaxpr, in order."""

    arguments: tuple[Var, ...]  # without those that it captures from its surroundings
    steps: tuple[JaxprStep, ...]
    results: tuple[Atom, ...]


def inline_jaxpr(jaxpr: Jaxpr) -> JaxprBody:
    """The operations of a jaxpr, open or closed."""
    return _body(jaxpr, (), ())


def is_literal(value: Atom | None) -> bool:
    """Returns whether an operand is a constant."""
    return hasattr(value, "val")


def iter_steps(steps: Sequence[JaxprStep]) -> Iterator[JaxprStep]:
    """Yields the steps, and those in their bodies at any depth."""
    for step in steps:
        yield step
        for body in step.bodies:
            yield from iter_steps(body.steps)


def _bodies(equation: Equation, operands: tuple[Atom, ...], within: tuple[Equation, ...]) -> tuple[JaxprBody, ...]:
    params = equation.params
    match primitive_name(equation):
        case "cond":
            return tuple(_body(branch, operands[1:], within) for branch in params["branches"])
        case "scan":
            return (_body(params["jaxpr"], operands[: scan_counts(params)[0]], within),)
        case "while":
            count = params["cond_nconsts"]
            condition = _body(params["cond_jaxpr"], operands[:count], within)
            fixed = operands[count : count + params["body_nconsts"]]
            return condition, _body(params["body_jaxpr"], fixed, within)
    return ()


def _body(jaxpr: Jaxpr, fixed: Sequence[Atom], within: tuple[Equation, ...]) -> JaxprBody:
    # The body of a jaxpr whose first arguments are `fixed`. Its variables are new, since jaxprs may be shared.
    jaxpr = open_jaxpr(jaxpr)
    arguments = tuple(new_variable(variable) for variable in jaxpr.invars[len(fixed) :])
    steps: list[JaxprStep] = []
    results = _inline(jaxpr, (*fixed, *arguments), within, steps)
    return JaxprBody(arguments, tuple(steps), results)


def _inline(
    jaxpr: Jaxpr, arguments: Sequence[Atom], within: tuple[Equation, ...], steps: list[JaxprStep]
) -> tuple[Atom, ...]:
    environment: dict[Var, Atom] = dict(zip(jaxpr.invars, arguments, strict=True))

    def read(value: Atom) -> Atom:
        return value if is_literal(value) else environment.setdefault(value, value)

    atoms = itertools.chain(jaxpr.outvars, *(equation.invars for equation in jaxpr.eqns))
    used = {atom for atom in atoms if not is_literal(atom)}
    for equation in jaxpr.eqns:
        operands = tuple(map(read, equation.invars))
        inner = called_jaxpr(equation)
        if inner is not None:
            results = _inline(open_jaxpr(inner), operands, (*within, equation), steps)
        else:
            results = tuple(new_variable(v) if v in used else None for v in equation.outvars)
            steps.append(JaxprStep(equation, operands, results, within, _bodies(equation, operands, within)))
        environment.update(zip(equation.outvars, results, strict=True))
    return tuple(map(read, jaxpr.outvars))
