"""The equations of a kernel's jaxpr by their place in the source, and the jaxpr with those of one place replaced.

One edit of the source changes all equations of a primitive at one place, whatever the lengths are: those of an unrolled
loop, too. A place is therefore a chain of frames, and a mutation has a key that is the same at all lengths.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltest.core.dtypes import is_float, is_integer
from kerneltest.trace.jax_compat.jaxprs import Atom, ClosedJaxpr, Equation, Jaxpr, OpenJaxpr, Var
from kerneltest.trace.jax_compat.source_lines import propagate_call_lines, user_frames
from kerneltest.trace.primitives import Kind, primitive_named
from kerneltest.trace.rewrite import rewrite_jaxpr
from kerneltest.trace.walk import primitive_name


def locate_equations(jaxpr: Jaxpr) -> Jaxpr:
    """Gives each equation in JAX's own functions, such as `jnp.where`, the place of their call in the kernel."""

    def rule(equation: Equation) -> Sequence[Equation] | None:
        other = propagate_call_lines(equation)
        return None if other is equation else [other]

    return rewrite_jaxpr(jaxpr, rule)


# The frames of the user's code as (FILE:LINE, column), from the inside out, and the primitive.
SiteKey = tuple[tuple[tuple[str, int], ...], str]


@dataclass(frozen=True, slots=True)
class ScopedValue:
    """A value that an equation could use.

    Attributes:
      variable: its variable.
      key: where it comes from, the same at all lengths.
      text: FILE:LINE of the equation that computes it; "" for an argument.
      name: the primitive that computes it, or `argument 2`.
    """

    variable: Var
    key: str
    text: str
    name: str


@dataclass(frozen=True, slots=True)
class Site:
    """An equation that may be mutated.

    Attributes:
      key: its place.
      equation: the equation.
      known: the values of its jaxpr, in order.
      count: how many of them come before it.
      lengths: the lengths of the kernel's dims, by name.
      numbers: the scalar literals of the kernel, by a key that is the same at all lengths.
      in_kernel: whether it is in the body of a Pallas call.
    """

    key: SiteKey
    equation: Equation
    known: Sequence[ScopedValue]
    count: int
    lengths: Mapping[str, int]
    numbers: Mapping[str, float | int]
    in_kernel: bool

    @property
    def scope(self) -> Sequence[ScopedValue]:
        """The values that it could use, in order."""
        return self.known[: self.count]

    @property
    def name(self) -> str:
        """The equation's primitive."""
        return primitive_name(self.equation)

    @property
    def operands(self) -> Sequence[Atom]:
        """The equation's operands."""
        return list(self.equation.invars)


# From a site to the equations in its place; None to keep the equation and look into it.
EquationRule = Callable[[Site], Sequence[Equation] | None]


def site_key(equation: Equation) -> SiteKey:
    """Returns the place of an equation; without frames if the user's code did not make it."""
    return tuple(user_frames(equation.source_info)), primitive_name(equation)


class LocatedJaxpr:
    """A jaxpr whose equations have their place in the kernel, also those in JAX's own functions, such as `jnp.where`.

    Attributes:
      jaxpr: the jaxpr.
      lengths: the lengths of the kernel's dims, by name.
      numbers: its scalar literals, by a key that is the same at all lengths.
    """

    def __init__(self, jaxpr: ClosedJaxpr, lengths: Mapping[str, int]) -> None:
        self.jaxpr: ClosedJaxpr = locate_equations(jaxpr)
        self.lengths = lengths
        self.numbers: dict[str, float | int] = {}
        rewrite_jaxpr(self.jaxpr, self._note_numbers)

    def _note_numbers(self, equation: Equation) -> None:
        for number, operand in enumerate(equation.invars):
            if hasattr(operand, "val") and getattr(operand.aval, "shape", None) == ():
                value = np.asarray(operand.val)
                if is_float(value.dtype) or (is_integer(value.dtype) and value.dtype != np.bool_):
                    self.numbers.setdefault(f"{site_key(equation)}[{number}]", value[()].item())

    def sites(self) -> list[Site]:
        """Returns the sites, in the order of the equations."""
        found: list[Site] = []

        def note(site: Site) -> None:
            found.append(site)

        self.rewrite(note)
        return found

    def rewrite(self, rule: EquationRule) -> ClosedJaxpr:
        """Applies a rule to every equation with a place in the user's source, at any depth."""
        changed: ClosedJaxpr = self._visit(self.jaxpr, rule, in_kernel=False)
        return changed

    def _visit(self, jaxpr: Jaxpr, rule: EquationRule, *, in_kernel: bool) -> Jaxpr:
        if isinstance(jaxpr, ClosedJaxpr) and jaxpr.jaxpr is not jaxpr:
            return jaxpr.replace(jaxpr=self._visit(jaxpr.jaxpr, rule, in_kernel=in_kernel))
        inputs = (*jaxpr.constvars, *jaxpr.invars)
        known = [ScopedValue(v, f"argument {i}", "", f"argument {i + 1}") for i, v in enumerate(inputs)]
        equations: list[Equation] = []
        for equation in jaxpr.eqns:
            key = site_key(equation)
            site = Site(key, equation, known, len(known), self.lengths, self.numbers, in_kernel)
            replacements = rule(site) if key[0] else None
            if replacements is None:
                within = in_kernel or primitive_named(key[1]).kind is Kind.KERNEL
                changed = {
                    name: self._visit_value(value, rule, in_kernel=within)
                    for name, value in equation.params.items()
                    if _has_jaxpr(value)
                }
                replacements = [equation.replace(params={**equation.params, **changed})] if changed else [equation]
            equations += replacements
            place = key[0][0][0] if key[0] else ""
            known += [ScopedValue(v, f"{key}[{i}]", place, key[1]) for i, v in enumerate(equation.outvars)]
        return jaxpr.replace(eqns=equations)

    def _visit_value(self, value: Any, rule: EquationRule, *, in_kernel: bool) -> Any:
        if isinstance(value, tuple):
            return tuple(self._visit(each, rule, in_kernel=in_kernel) for each in value)
        return self._visit(value, rule, in_kernel=in_kernel)


def _has_jaxpr(value: object) -> bool:
    first = value[0] if isinstance(value, tuple) and value else value
    return isinstance(first, (ClosedJaxpr, OpenJaxpr))
