"""A jaxpr as a list of operations: a function that it only calls is put in the place of the call."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kerneltest.trace.jax_compat.names import ClosedJaxpr, line_of_nested
from kerneltest.trace.walk import name_of, nested, scan_counts

_CALLS = frozenset({"jit", "pjit", "closed_call", "core_call", "custom_jvp_call"})


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """One operation.

    Attributes:
      equation: it, with its parameters; the variables in it are those of its own jaxpr.
      operands: what it takes, variables and literals.
      results: the variables that it defines; None for one that nothing takes.
      within: the calls that it was put in the place of, outermost first.
      bodies: what a conditional or a loop runs: the branches; the body; or the condition and the body.
    """

    equation: Any
    operands: tuple[Any, ...]
    results: tuple[Any, ...]
    within: tuple[Any, ...] = ()
    bodies: tuple["Body", ...] = ()

    @property
    def name(self) -> str:
        """Of its primitive."""
        return name_of(self.equation)

    @property
    def line(self) -> str:
        """`FILE:LINE` of the user's code, or ""."""
        return line_of_nested([*self.within, self.equation])


@dataclass(frozen=True, eq=False, slots=True)
class Body:
    """A jaxpr, or one that a step runs.

    Attributes:
      arguments: the variables that it is called with; what it finds around it is no argument.
      steps: its operations, in order.
      results: what it returns, variables and literals.
    """

    arguments: tuple[Any, ...]
    steps: tuple[Step, ...]
    results: tuple[Any, ...]


def body_of(jaxpr: Any) -> Body:
    """The operations of a jaxpr, open or closed."""
    return _body(jaxpr, (), ())


def is_literal(value: Any) -> bool:
    """Whether an operand is a constant."""
    return hasattr(value, "val")


def everything(steps: Sequence[Step]) -> Iterator[Step]:
    """The steps, and all in their bodies at any depth."""
    for step in steps:
        yield step
        for body in step.bodies:
            yield from everything(body.steps)


def _bodies(equation: Any, operands: tuple[Any, ...], within: tuple[Any, ...]) -> tuple[Body, ...]:
    params = equation.params
    match name_of(equation):
        case "cond":
            return tuple(_body(branch, operands[1:], within) for branch in params["branches"])
        case "scan":
            return (_body(params["jaxpr"], operands[: scan_counts(params)[0]], within),)
        case "while":
            tested = params["cond_nconsts"]
            fixed = operands[tested : tested + params["body_nconsts"]]
            test = _body(params["cond_jaxpr"], operands[:tested], within)
            return test, _body(params["body_jaxpr"], fixed, within)
    return ()


def _body(jaxpr: Any, fixed: Sequence[Any], within: tuple[Any, ...]) -> Body:
    """A jaxpr whose first arguments are `fixed`; all variables are new, since one jaxpr may stand in two places."""
    jaxpr = jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr
    arguments = tuple(_like(variable) for variable in jaxpr.invars[len(fixed) :])
    steps: list[Step] = []
    results = _put(jaxpr, (*fixed, *arguments), within, steps)
    return Body(arguments, tuple(steps), results)


def _put(jaxpr: Any, given: Sequence[Any], within: tuple[Any, ...], steps: list[Step]) -> tuple[Any, ...]:
    """Adds the steps of a jaxpr called with `given`; what it returns."""
    environment: dict[Any, Any] = dict(zip(jaxpr.invars, given, strict=True))

    def read(value: Any) -> Any:
        return value if is_literal(value) else environment.setdefault(value, value)

    taken = {v for e in jaxpr.eqns for v in e.invars if not is_literal(v)} | {
        v for v in jaxpr.outvars if not is_literal(v)
    }
    for equation in jaxpr.eqns:
        operands = tuple(map(read, equation.invars))
        inner = next((j for v in equation.params.values() for j in nested(v)), None)
        if name_of(equation) in _CALLS and inner is not None:
            results = _put(inner, operands, (*within, equation), steps)
        else:
            results = tuple(_like(v) if v in taken else None for v in equation.outvars)
            steps.append(Step(equation, operands, results, within, _bodies(equation, operands, within)))
        environment.update(zip(equation.outvars, results, strict=True))
    return tuple(map(read, jaxpr.outvars))


def _like(variable: Any) -> Any:
    return type(variable)(variable.aval)
