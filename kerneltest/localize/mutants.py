"""Mutants of a kernel: each differs from it in one place that could be the bug."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import methodcaller
from typing import Any

import jax

from kerneltest.core.dtypes import is_float
from kerneltest.core.source_location import source_line
from kerneltest.localize.call_operators import call_repairs
from kerneltest.localize.case_replay import MutableCall, MutableKernel, Patch
from kerneltest.localize.code_operators import code_mutations
from kerneltest.localize.edits import dtype_of, is_array, is_integer_array
from kerneltest.localize.equation_replay import EquationPatch, EvaluatedKernel
from kerneltest.localize.listing import Mutation
from kerneltest.localize.operators import OPERATORS
from kerneltest.localize.sites import Changes, LocatedJaxpr, Site, SiteKey
from kerneltest.trace.jax_compat.jaxprs import ClosedJaxpr, Equation
from kerneltest.trace.jax_compat.source_lines import line_of
from kerneltest.trace.partial_arrays import KernelValue, list_values
from kerneltest.trace.primitives import Kind, kind_of, primitive_of
from kerneltest.trace.walk import primitive_name


@dataclass(frozen=True, slots=True)
class Mutant:
    """A kernel with one mutation."""

    place: str  # FILE:LINE of what is mutated
    operation: str  # the source there
    phrase: str  # `changing <= to <`
    cost: int
    literal: bool  # whether the source spells out at this place what is mutated, rather than naming it
    # yields the patches that apply the mutation to the kernel, which may be traced for other lengths: one for each
    # possible way, none if the mutation does not fit
    patches: Callable[[Any], Iterator[Any]]


def generate_mutants(kernel: MutableKernel) -> list[Mutant]:
    """Returns all mutants, those with the lowest cost first."""
    mutants = [*_around_calls(kernel)]
    for number, call in enumerate(kernel.calls):
        mutants += [*_of_frame(number, call), *_of_body(number, call)]
    return sorted((mutant for mutant in mutants if mutant.place), key=lambda mutant: mutant.cost)


def _of_body(number: int, call: MutableCall) -> Iterator[Mutant]:
    for mutation in code_mutations(call.listing):
        source = call.listing.sources[mutation.operation]
        caller = f", called at {source.callers[0]}" if source.callers else ""

        def patches(kernel: MutableKernel, mutation: Mutation = mutation) -> Iterator[Patch]:
            other = _counterpart(kernel, number, call)
            if other is not None:
                yield Patch({number: other.prepare(other.listing.apply(mutation.edits(other.listing)))})

        yield Mutant(source.place, f"{source.text}{caller}", mutation.phrase, mutation.cost, mutation.literal, patches)


def _counterpart(kernel: MutableKernel, number: int, call: MutableCall) -> MutableCall | None:
    # The same call of a kernel for other lengths, if it has the same operations.
    if number >= len(kernel.calls):
        return None
    other = kernel.calls[number]
    return other if other.listing.structure == call.listing.structure else None


def _of_frame(number: int, call: MutableCall) -> Iterator[Mutant]:
    for turn, mutation in enumerate(call_repairs(call.call.equation)):

        def patches(kernel: MutableKernel, turn: int = turn) -> Iterator[Patch]:
            if number >= len(kernel.calls):
                return
            other = kernel.calls[number].call
            for equation in list(call_repairs(other.equation))[turn].equations:
                mutated = MutableCall(replace(other, equation=equation), kernel.target, kernel.lengths)
                yield Patch({number: mutated.prepare()})

        yield Mutant(mutation.place, source_line(mutation.place), mutation.phrase, 0, True, patches)


def _around_calls(kernel: MutableKernel) -> Iterator[Mutant]:
    # A value of the function around the calls is replaced by an earlier one of the same shape.
    known = list_values(kernel.traced)
    names = _names(known)
    for turn, variable in enumerate(known):
        if variable.equation is None or kind_of(variable.equation) is Kind.KERNEL:
            continue
        place = line_of(variable.equation.source_info)
        for choice in variable.candidates:

            def patches(kernel: MutableKernel, turn: int = turn, choice: int = choice) -> Iterator[Patch]:
                others = list_values(kernel.traced)
                if _names(others) == names and choice in others[turn].candidates:
                    yield Patch(substitutions={others[turn].variable: others[choice].variable})

            phrase = f"removing {_operation_name(variable.equation)}"
            yield Mutant(place, source_line(place), phrase, 1, True, patches)


def _names(known: Sequence[KernelValue]) -> list[str]:
    return [primitive_name(each.equation) if each.equation is not None else "" for each in known]


def _operation_name(equation: Equation) -> str:
    return f"`{equation.params['name']}`" if "name" in equation.params else primitive_name(equation)


# Mutants of a kernel's jaxpr, which need no lowering: any kernel that NumPy evaluates has them.


def equation_mutants(kernel: EvaluatedKernel) -> list[Mutant]:
    """Returns the mutants of a kernel, those with the lowest cost first."""
    sites = kernel.own.sites()
    places = _places([site.key for site in sites])
    found: dict[object, Mutant] = {}
    for site in sites:
        place = places[site.key]
        text = source_line(place)
        for repair in filter(None, (operator.repair for operator in OPERATORS)):
            for change in repair(site):
                key = change.key or change.phrase
                patches = _patches(EquationPatch(partial(_changed, site.key, repair, key)))
                mutant = Mutant(place, text, change.phrase, change.cost, change.literal, patches)
                found.setdefault((site.key, key, change.phrase), mutant)
        if (narrow := _rounded_to(site)) is not None:
            phrase = f"not rounding the result of {site.name} to {narrow}"
            mutant = Mutant(place, text, phrase, 0, True, _patches(EquationPatch(unrounded=site.key)))
            found.setdefault((site.key, "unrounded", phrase), mutant)
        for turn, frame in enumerate(call_repairs(site.equation)):
            mutant = Mutant(frame.place, source_line(frame.place), frame.phrase, 0, True, _framed(site.key, turn))
            found.setdefault((site.key, turn), mutant)
    return sorted((mutant for mutant in found.values() if mutant.place), key=lambda mutant: mutant.cost)


def _changed(key: SiteKey, operator: Changes, change: str, jaxpr: LocatedJaxpr) -> ClosedJaxpr | None:
    with jax.enable_x64(True):
        return jaxpr.change(lambda site: site.key == key, operator, change)


def _places(keys: Sequence[SiteKey]) -> dict[SiteKey, str]:
    # The line of each place: the innermost that only one call leads to, since a helper itself may be right.
    callers: dict[str, set[tuple[tuple[str, int], ...]]] = {}
    for frames, _ in keys:
        for depth, (line, _) in enumerate(frames):
            callers.setdefault(line, set()).add(frames[depth + 1 :])
    return {
        key: next((line for line, _ in key[0] if len(callers[line]) == 1), key[0][0][0] if key[0] else "")
        for key in keys
    }


def _rounded_to(site: Site) -> str | None:
    # The narrow dtype to which an equation rounds, or at which it wraps.
    if len(site.equation.outvars) != 1 or not is_array(site.equation.outvars[0]):
        return None
    (result,) = site.equation.outvars
    dtype = dtype_of(result)
    if is_float(dtype) and dtype.itemsize == 2 and primitive_of(site.equation).may_round:
        return str(dtype.name)
    if site.name == "convert_element_type" and is_integer_array(result) and is_integer_array(site.operands[0]):
        wider = dtype_of(site.operands[0]).itemsize > dtype.itemsize
        return str(dtype.name) if wider else None
    return None


def _patches(patch: EquationPatch) -> Callable[[EvaluatedKernel], Iterator[EquationPatch]]:
    return lambda kernel: iter([patch])


def _framed(key: SiteKey, turn: int) -> Callable[[EvaluatedKernel], Iterator[EquationPatch]]:
    # A patch for each value that the line of a call's grid or index map could have.

    def patches(kernel: EvaluatedKernel) -> Iterator[EquationPatch]:
        ways = [list(call_repairs(s.equation))[turn].equations for s in kernel.own.sites() if s.key == key]
        for way in range(max(map(len, ways), default=0)):
            rule = partial(_framed_call, key, turn, way)
            yield EquationPatch(methodcaller("rewrite", rule))

    return patches


def _framed_call(key: SiteKey, turn: int, way: int, site: Site) -> Sequence[Equation] | None:
    return [list(call_repairs(site.equation))[turn].equations[way]] if site.key == key else None
