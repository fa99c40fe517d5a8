"""The equations of a kernel's jaxpr by their place in the source, and the jaxpr with those of one place changed.

One edit of the source changes all equations of a primitive at one place, whatever the lengths are: those of an unrolled
loop, too. A place is therefore a chain of frames, and a change has a key that is the same at all lengths.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from kerneltest.core.dtypes import is_float, is_integer
from kerneltest.localize.edits import EquationChange
from kerneltest.trace.jax_compat.jaxprs import Atom, ClosedJaxpr, Equation, Jaxpr, Literal, Var, parameter_names
from kerneltest.trace.jax_compat.source_lines import propagate_call_lines, user_frames
from kerneltest.trace.primitives import Kind, kind_of
from kerneltest.trace.rewrite import map_jaxprs, rewrite_jaxpr
from kerneltest.trace.walk import iter_equations, primitive_name

# The frames of the user's code as (FILE:LINE, column), from the inside out, and the primitive.
SiteKey = tuple[tuple[tuple[str, int], ...], str]


def locate_equations(jaxpr: Jaxpr) -> Jaxpr:
    """Gives each equation in JAX's own functions, such as `jnp.where`, the place of their call in the kernel."""

    def rule(equation: Equation) -> Sequence[Equation] | None:
        other = propagate_call_lines(equation)
        return None if other is equation else [other]

    return rewrite_jaxpr(jaxpr, rule)


def site_key(equation: Equation) -> SiteKey:
    """Returns the place of an equation; without frames if the user's code did not make it."""
    return tuple(user_frames(equation.source_info)), primitive_name(equation)


@dataclass(frozen=True, slots=True, eq=False)
class ScopedValue:
    """A value that an equation could use."""

    variable: Var
    number: int  # its number among the results of its site, or among the arguments
    site: "Site | None" = None  # where it is computed; None for an argument
    outer: "ScopedValue | None" = None  # the value that an argument without a name of its own is given
    parameter: str = ""  # the name of an argument in the source

    @property
    def key(self) -> str:
        """Identifies its origin, at all lengths."""
        return f"argument {self.number}" if self.site is None else f"{self.site.key}[{self.number}]"

    @property
    def name(self) -> str:
        """The primitive that computes it; "" for an argument."""
        return "" if self.site is None else self.site.name

    def __str__(self) -> str:
        """Its origin in words: the name of an argument in the source, or the operation with its line."""
        if self.site is None:
            return self.parameter or (str(self.outer) if self.outer is not None else "a value from outside")
        if self.name == "program_id":
            return f"program_id({self.site.equation.params['axis']})"
        frames = self.site.frames
        return f"the {self.name} of line {frames[0][0].rpartition(':')[2]}" if frames else self.name


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """An equation that may be changed."""

    equation: Equation
    jaxpr: "LocatedJaxpr"
    known: Sequence[ScopedValue] = ()  # the values of its own jaxpr, in order
    count: int = 0  # how many of them come before it

    @property
    def key(self) -> SiteKey:
        return self.jaxpr.key_of(self.equation)

    @property
    def frames(self) -> tuple[tuple[str, int], ...]:
        """FILE:LINE and column in the user's code, from the inside out; () if that did not make the equation."""
        return self.key[0]

    @property
    def name(self) -> str:
        return primitive_name(self.equation)

    @property
    def operands(self) -> Sequence[Atom]:
        return list(self.equation.invars)

    @property
    def scope(self) -> Sequence[ScopedValue]:
        """The values that it could use, in order."""
        return self.known[: self.count]


# From a site to the equations in its place; None to keep the equation and look into it.
SiteRule = Callable[[Site], Sequence[Equation] | None]

# The changes that an operator makes of an equation.
Changes = Callable[[Site], Iterator[EquationChange]]


class LocatedJaxpr:
    """A jaxpr with located equations.

    Attributes:
      jaxpr: the jaxpr.
      lengths: the lengths of the kernel's dims, by name.
      fixed: the dims that have one length.
    """

    def __init__(
        self, jaxpr: ClosedJaxpr, lengths: Mapping[str, int] | None = None, fixed: Collection[str] = ()
    ) -> None:
        self.jaxpr, self.lengths, self.fixed = jaxpr, lengths or {}, fixed
        self._keys: dict[int, tuple[Equation, SiteKey]] = {}  # each with its equation, whose id may be reused otherwise
        self._changes: dict[tuple[int, object], dict[str, EquationChange]] = {}

    def key_of(self, equation: Equation) -> SiteKey:
        if id(equation) not in self._keys:
            self._keys[id(equation)] = equation, site_key(equation)
        return self._keys[id(equation)][1]

    @cached_property
    def numbers(self) -> Mapping[str, float | int]:
        """The scalar literals of the kernel, by a key that is the same at all lengths."""
        found: dict[str, float | int] = {}
        for equation, _ in iter_equations(self.jaxpr):
            for number, operand in enumerate(equation.invars):
                if hasattr(operand, "val") and getattr(operand.aval, "shape", None) == ():
                    value = np.asarray(operand.val)
                    if is_float(value.dtype) or is_integer(value.dtype):
                        found.setdefault(f"{self.key_of(equation)}[{number}]", value[()].item())
        return found

    def sites(self) -> list[Site]:
        """Returns the sites in the user's source, in the order of the equations."""
        found: list[Site] = []
        self.rewrite(found.append)
        return [site for site in found if site.frames]

    def sites_at(self, key: SiteKey) -> Sequence[Site]:
        """Returns the sites of a place."""
        return self._sites.get(key, ())

    def change_of(self, site: Site, operator: Changes, key: str) -> EquationChange | None:
        """Returns a change that an operator makes of a site, by its key, or by its phrase if it has none."""
        if (id(site), operator) not in self._changes:
            made: dict[str, EquationChange] = {}
            for change in operator(site):
                made.setdefault(change.key or change.phrase, change)
            self._changes[id(site), operator] = made
        return self._changes[id(site), operator].get(key)

    @cached_property
    def _sites(self) -> dict[SiteKey, list[Site]]:
        found: dict[SiteKey, list[Site]] = {}
        for site in self.sites():
            found.setdefault(site.key, []).append(site)
        return found

    def change(self, is_there: Callable[[Site], bool], operator: Changes, key: str) -> ClosedJaxpr | None:
        """Returns the jaxpr with one change of all equations of a place; None if none of them has that change."""
        changed = False

        def rule(site: Site) -> Sequence[Equation] | None:
            nonlocal changed
            for change in operator(site) if is_there(site) else ():
                if (change.key or change.phrase) == key:
                    changed = True
                    return change.equations()
            return None

        result = self.rewrite(rule)
        return result if changed else None

    def rewrite(self, rule: SiteRule) -> ClosedJaxpr:
        """Applies a rule to every equation, at any depth."""
        changed: ClosedJaxpr = self._visit(self.jaxpr, rule)
        return changed

    def _visit(self, jaxpr: Jaxpr, rule: SiteRule, around: Site | None = None) -> Any:
        if isinstance(jaxpr, ClosedJaxpr) and jaxpr.jaxpr is not jaxpr:
            return jaxpr.replace(jaxpr=self._visit(jaxpr.jaxpr, rule, around))
        known = _arguments(jaxpr, around)
        equations: list[Equation] = []
        for equation in jaxpr.eqns:
            site = Site(equation, self, known, len(known))
            replacements = rule(site)
            if replacements is None:
                params = map_jaxprs(equation.params, partial(self._visit, rule=rule, around=site))
                replacements = [equation.replace(params=params)]
            equations += replacements
            known += [ScopedValue(v, number, site) for number, v in enumerate(equation.outvars)]
        return jaxpr.replace(eqns=equations)


def _arguments(jaxpr: Jaxpr, around: Site | None) -> list[ScopedValue]:
    # The last arguments of a function within the kernel's, such as the body of a loop, are given the last operands. One
    # without a name is a value outside, and so are those of a function that is called, as JAX's own are.
    kind, names = Kind.KERNEL if around is None else kind_of(around.equation), parameter_names(jaxpr)
    outer: dict[Atom, ScopedValue] = {}
    if around is not None and kind is not Kind.KERNEL and around.name != "while":
        values = {value.variable: value for value in around.scope}
        pairs = zip(reversed(jaxpr.invars), reversed(around.operands), strict=False)
        outer = {v: values[given] for v, given in pairs if not isinstance(given, Literal) and given in values}
    names = [""] * len(jaxpr.constvars) + (names if kind is not Kind.CALL else [""] * len(names))
    variables = enumerate((*jaxpr.constvars, *jaxpr.invars))
    return [ScopedValue(v, number, None, outer.get(v), names[number]) for number, v in variables]
