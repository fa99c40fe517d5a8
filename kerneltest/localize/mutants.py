"""Mutants of a kernel: each differs from it in one place that could be the bug."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kerneltest.core.source_location import source_line
from kerneltest.localize.call_repairs import call_repairs
from kerneltest.localize.code_mutations import code_mutations
from kerneltest.localize.listing import Mutation
from kerneltest.localize.mutable_kernel import MutableCall, MutableKernel, Patch
from kerneltest.trace.evaluator import KernelValue, list_values
from kerneltest.trace.jax_compat.jaxpr_types import Equation
from kerneltest.trace.jax_compat.source_lines import line_of
from kerneltest.trace.walk import PALLAS_PRIMITIVES, primitive_name


@dataclass(frozen=True, slots=True)
class Mutant:
    """A kernel with one mutation.

    Attributes:
      place: FILE:LINE of what is mutated.
      operation: the source there.
      phrase: `changing <= to <`.
      cost: how much the mutation assumes; see `Mutation`.
      literal: whether the source spells out at this place what is mutated, rather than naming it.
      patches: yields the patches that apply the mutation to the kernel, which may be traced for other lengths: one for
        each possible way, none if the mutation does not fit.
    """

    place: str
    operation: str
    phrase: str
    cost: int
    literal: bool
    patches: Callable[[Any], Iterator[Any]]


def generate_mutants(kernel: MutableKernel) -> list[Mutant]:
    """Returns all mutants, those with the lowest cost first."""
    mutants = [*_around_calls(kernel)]
    for number, call in enumerate(kernel.calls):
        mutants += [*_of_frame(number, call), *_of_body(number, call)]
    return sorted((mutant for mutant in mutants if mutant.place), key=lambda mutant: mutant.cost)


def _of_body(number: int, call: MutableCall) -> Iterator[Mutant]:
    """Yields the mutants of a call's lowered body."""
    for mutation in code_mutations(call.listing):
        source = call.listing.sources[mutation.operation]
        caller = f", called at {source.callers[0]}" if source.callers else ""

        def patches(kernel: MutableKernel, mutation: Mutation = mutation) -> Iterator[Patch]:
            other = _counterpart(kernel, number, call)
            if other is not None:
                yield Patch({number: other.prepare(other.listing.apply(mutation.edits(other.listing)))})

        yield Mutant(source.place, f"{source.text}{caller}", mutation.phrase, mutation.cost, mutation.literal, patches)


def _counterpart(kernel: MutableKernel, number: int, call: MutableCall) -> MutableCall | None:
    """Returns the same call of a kernel for other lengths, if it has the same operations."""
    if number >= len(kernel.calls):
        return None
    other = kernel.calls[number]
    return other if other.listing.structure == call.listing.structure else None


def _of_frame(number: int, call: MutableCall) -> Iterator[Mutant]:
    """Yields the mutants of a call's grid and index maps."""
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
    """Yields the mutants of the function around the calls: a value is replaced by an earlier one of the same shape."""
    known = list_values(kernel.traced)
    names = _names(known)
    for turn, variable in enumerate(known):
        if variable.equation is None or primitive_name(variable.equation) in PALLAS_PRIMITIVES:
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
