"""Mutants of a kernel's jaxpr, which need no lowering: any kernel that NumPy evaluates has them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import jax

from kerneltest.core.dtypes import is_float
from kerneltest.core.source_location import source_line
from kerneltest.localize.call_repairs import call_repairs
from kerneltest.localize.equation_edits import dtype_of, is_array, is_integer_array
from kerneltest.localize.equation_mutations import EQUATION_OPERATORS, EquationMutation, EquationOperator
from kerneltest.localize.equation_sites import LocatedJaxpr, Site, SiteKey
from kerneltest.localize.evaluated_kernel import MOVES, EquationPatch, EvaluatedKernel
from kerneltest.localize.insertions import INSERTIONS
from kerneltest.localize.mutants import Mutant
from kerneltest.trace.jax_compat.jaxpr_types import ClosedJaxpr, Equation

_OPERATORS: tuple[EquationOperator, ...] = (*EQUATION_OPERATORS, *INSERTIONS)


@dataclass(frozen=True, slots=True)
class _Change:
    """A mutation of all equations of one place.

    Attributes:
      site: their place.
      operator: the operator that mutates them.
      key: the key of the mutation.
    """

    site: SiteKey
    operator: EquationOperator
    key: str

    def __call__(self, jaxpr: LocatedJaxpr) -> ClosedJaxpr | None:
        """Returns a jaxpr as the mutation has it; None if it changes no equation."""
        changed = False

        def rule(site: Site) -> Sequence[Equation] | None:
            nonlocal changed
            for mutation in self.operator(site) if site.key == self.site else ():
                if mutation.key == self.key:
                    changed = True
                    return mutation.equations()
            return None

        with jax.enable_x64(True):
            mutated = jaxpr.rewrite(rule)
        return mutated if changed else None


def equation_mutants(kernel: EvaluatedKernel) -> list[Mutant]:
    """Returns the mutants of a kernel, those with the lowest cost first."""
    sites = kernel.own.sites()
    places = _places([site.key for site in sites])
    found: dict[object, Mutant] = {}
    for site in sites:
        place = places[site.key]

        def add(mutation: EquationMutation, patches: Callable[[EvaluatedKernel], Iterator[EquationPatch]]) -> None:
            key = site.key, mutation.key, mutation.phrase  # noqa: B023
            mutant = Mutant(place, source_line(place), mutation.phrase, mutation.cost, mutation.literal, patches)  # noqa: B023
            found.setdefault(key, mutant)

        for operator in _OPERATORS:
            for mutation in operator(site):
                add(mutation, _patches(_Change(site.key, operator, mutation.key)))
        if (narrow := _rounded_to(site)) is not None:
            phrase = f"not rounding the result of {site.name} to {narrow}"
            add(EquationMutation("unrounded", phrase, 0, tuple), _unrounded(site.key))
        for turn, frame in enumerate(call_repairs(site.equation)):
            mutant = Mutant(frame.place, source_line(frame.place), frame.phrase, 0, True, _framed(site.key, turn))
            found.setdefault((site.key, turn), mutant)
    return sorted((mutant for mutant in found.values() if mutant.place), key=lambda mutant: mutant.cost)


def _places(keys: Sequence[SiteKey]) -> dict[SiteKey, str]:
    """Returns the line of each place: the innermost that only one call leads to, since a helper itself may be right."""
    callers: dict[str, set[tuple[tuple[str, int], ...]]] = {}
    for frames, _ in keys:
        for depth, (line, _) in enumerate(frames):
            callers.setdefault(line, set()).add(frames[depth + 1 :])
    return {
        key: next((line for line, _ in key[0] if len(callers[line]) == 1), key[0][0][0] if key[0] else "")
        for key in keys
    }


def _rounded_to(site: Site) -> str | None:
    """Returns the narrow dtype to which an equation rounds, or at which it wraps; None if it does not."""
    if len(site.equation.outvars) != 1 or not is_array(site.equation.outvars[0]):
        return None
    (result,) = site.equation.outvars
    dtype = dtype_of(result)
    if is_float(dtype) and dtype.itemsize == 2 and site.name not in MOVES:
        return str(dtype.name)
    if site.name == "convert_element_type" and is_integer_array(result) and is_integer_array(site.operands[0]):
        wider = dtype_of(site.operands[0]).itemsize > dtype.itemsize
        return str(dtype.name) if wider else None
    return None


def _patches(change: _Change) -> Callable[[EvaluatedKernel], Iterator[EquationPatch]]:
    def patches(kernel: EvaluatedKernel) -> Iterator[EquationPatch]:
        yield EquationPatch(change)

    return patches


def _unrounded(site: SiteKey) -> Callable[[EvaluatedKernel], Iterator[EquationPatch]]:
    def patches(kernel: EvaluatedKernel) -> Iterator[EquationPatch]:
        yield EquationPatch(unrounded=site)

    return patches


def _framed(key: SiteKey, turn: int) -> Callable[[EvaluatedKernel], Iterator[EquationPatch]]:
    """Yields a patch for each value that the line of a call's grid or index map could have."""

    def patches(kernel: EvaluatedKernel) -> Iterator[EquationPatch]:
        ways = [list(call_repairs(s.equation))[turn].equations for s in kernel.own.sites() if s.key == key]
        for way in range(max(map(len, ways), default=0)):

            def mutate(jaxpr: LocatedJaxpr, way: int = way) -> ClosedJaxpr:
                return jaxpr.rewrite(partial(_framed_call, key, turn, way))

            yield EquationPatch(mutate)

    return patches


def _framed_call(key: SiteKey, turn: int, way: int, site: Site) -> Sequence[Equation] | None:
    return [list(call_repairs(site.equation))[turn].equations[way]] if site.key == key else None
