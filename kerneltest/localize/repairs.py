"""Repairs of a kernel: each changes it in one place that could be the bug."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

import jax

from kerneltest.core.dtypes import is_float
from kerneltest.core.source_location import source_line
from kerneltest.localize.call_operators import call_repairs
from kerneltest.localize.case_replay import MutableCall, MutableKernel, Patch
from kerneltest.localize.code_operators import CodeChange, code_changes
from kerneltest.localize.edited_evaluation import Edit, Replacement
from kerneltest.localize.edits import (
    EquationChange,
    Function,
    after,
    dtype_of,
    is_array,
    is_boolean_array,
    is_float_array,
    is_integer_array,
)
from kerneltest.localize.equation_replay import EvaluatedKernel, MakeEdit
from kerneltest.localize.operators import OPERATORS
from kerneltest.localize.sites import Changes, LocatedJaxpr, Site, SiteKey
from kerneltest.trace.jax_compat.jaxprs import Literal
from kerneltest.trace.jax_compat.source_lines import line_of
from kerneltest.trace.partial_arrays import KernelValue, list_values
from kerneltest.trace.primitives import Kind, kind_of, primitive_of
from kerneltest.trace.walk import primitive_name


@dataclass(frozen=True, slots=True)
class Repair:
    """A change of a kernel in one place."""

    place: str  # FILE:LINE of what is changed
    operation: str  # the source there
    phrase: str  # `changing <= to <`
    cost: int
    literal: bool  # whether the source spells out at this place what is changed, rather than naming it
    # yields the patches that apply the change to the kernel, which may be traced for other lengths: one for each
    # possible way, none if the change does not fit
    patches: Callable[[Any], Iterator[Any]]


def code_repairs(kernel: MutableKernel) -> list[Repair]:
    """Returns all repairs of the lowered code and of its calls, those with the lowest cost first."""
    repairs = [*_around_calls(kernel)]
    for number, call in enumerate(kernel.calls):
        repairs += [*_of_frame(number, call), *_of_body(number, call)]
    return _in_order(repairs)


def _in_order(repairs: Iterable[Repair]) -> list[Repair]:
    return sorted((repair for repair in repairs if repair.place), key=attrgetter("cost"))


def _of_body(number: int, call: MutableCall) -> Iterator[Repair]:
    for change in code_changes(call.listing):
        source = call.listing.sources[change.operation]
        caller = f", called at {source.callers[0]}" if source.callers else ""

        def patches(kernel: MutableKernel, change: CodeChange = change) -> Iterator[Patch]:
            for other in kernel.calls[number : number + 1]:
                if other.listing.structure == call.listing.structure:  # of a kernel for other lengths
                    yield Patch({number: other.prepare(other.listing.apply(change.edits(other.listing)))})

        yield Repair(source.place, f"{source.text}{caller}", change.phrase, change.cost, change.literal, patches)


def _of_frame(number: int, call: MutableCall) -> Iterator[Repair]:
    for turn, change in enumerate(call_repairs(call.call.equation)):

        def patches(kernel: MutableKernel, turn: int = turn) -> Iterator[Patch]:
            for other in kernel.calls[number : number + 1]:
                for equation in list(call_repairs(other.call.equation))[turn].equations:
                    changed = MutableCall(replace(other.call, equation=equation), kernel.target, kernel.lengths)
                    yield Patch({number: changed.prepare()})

        yield Repair(change.place, source_line(change.place), change.phrase, 0, True, patches)


def _around_calls(kernel: MutableKernel) -> Iterator[Repair]:
    # A value of the function around the calls is replaced by an earlier one of the same shape.
    known = list_values(kernel.traced)
    names = _names(known)
    for turn, variable in enumerate(known):
        if variable.equation is None or kind_of(variable.equation) is Kind.KERNEL:
            continue
        place, params = line_of(variable.equation.source_info), variable.equation.params
        name = f"`{params['name']}`" if "name" in params else primitive_name(variable.equation)
        for choice in variable.candidates:

            def patches(kernel: MutableKernel, turn: int = turn, choice: int = choice) -> Iterator[Patch]:
                others = list_values(kernel.traced)
                if _names(others) == names and choice in others[turn].candidates:
                    yield Patch(substitutions={others[turn].variable: others[choice].variable})

            yield Repair(place, source_line(place), f"removing {name}", 1, True, patches)


def _names(known: Sequence[KernelValue]) -> list[str]:
    return [primitive_name(value.equation) if value.equation is not None else "" for value in known]


# Repairs of a kernel's jaxpr, which need no lowering: any kernel that NumPy evaluates has them.


def equation_repairs(kernel: EvaluatedKernel) -> list[Repair]:
    """Returns the repairs of a kernel's equations, those with the lowest cost first."""
    sites = kernel.own.sites()
    places = _places([site.key for site in sites])
    found: dict[object, Repair] = {}

    def add(key: object, change: EquationChange, edit: MakeEdit, place: str) -> None:
        made = Repair(place, source_line(place), change.phrase, change.cost, change.literal, lambda _: iter([edit]))
        found.setdefault(key, made)

    for site in sites:
        for repair in filter(None, (operator.repair for operator in OPERATORS)):
            for change in repair(site):
                key = change.key or change.phrase
                edit = partial(_changed, site.key, repair, key)
                add((site.key, key, change.phrase), change, edit, places[site.key])
        for turn, frame in enumerate(call_repairs(site.equation)):
            patches = partial(_frame_edits, site.key, turn)
            made = Repair(frame.place, source_line(frame.place), frame.phrase, 0, True, patches)
            found.setdefault((site.key, turn), made)
    for place, keys, change in _unrounded_results(sites, places):
        add((place, keys), change, partial(_unrounded, keys), place)
    return _in_order(found.values())


def _unrounded_results(
    sites: Sequence[Site], places: Mapping[SiteKey, str]
) -> Iterator[tuple[str, tuple[SiteKey, ...], EquationChange]]:
    # Results that are not rounded to a narrow dtype, or do not wrap: each by itself, those of a line, whoever calls it
    # or by way of one call, and all that are computed from a cast in its dtype.
    narrow = {id(site): dtype for site in sites if (dtype := _rounded_to(site)) is not None}
    for site in sites:
        if (dtype := narrow.get(id(site))) is None:
            continue
        place, innermost = places[site.key], site.frames[0][0]
        phrase = f"not rounding the result of {site.name} to {dtype}"
        # What one of several calls of a helper rounds, the helper may round.
        yield place, (site.key,), EquationChange(phrase, list, literal=place == innermost)
        if is_float_array(site.equation.outvars[0]):
            near = [each for each in sites if narrow.get(id(each)) == dtype]
            groups = (
                (innermost, [each for each in near if each.frames[0][0] == innermost], "in this line"),
                (place, [each for each in near if places[each.key] == place], "in this line"),
                (place, _computed_from(site, near) if site.name == "convert_element_type" else [], "from this cast on"),
            )
            for line, together, where in groups:
                keys = tuple(dict.fromkeys(each.key for each in together))
                if len(keys) > 1:
                    change = EquationChange(f"not rounding to {dtype} {where}", list, cost=1, literal=line == innermost)
                    yield line, keys, change


def _computed_from(site: Site, later: Sequence[Site]) -> list[Site]:
    # A site and those that depend on it by way of each other, in order.
    found, known = [site], set(site.equation.outvars)
    for each in later:
        if not known.isdisjoint(v for v in each.operands if not isinstance(v, Literal)):
            found.append(each)
            known.update(each.equation.outvars)
    return found


def disturbances(kernel: EvaluatedKernel) -> list[tuple[str, MakeEdit]]:
    """Returns an edit for each place of a kernel that computes floats or booleans, which changes all of them."""
    sites = [site for site in kernel.own.sites() if len(site.equation.outvars) == 1]
    places = _places([site.key for site in sites])
    kinds = ((is_float_array, lambda x: 2 * x + 1), (is_boolean_array, lambda x: ~x))
    edits = {
        site.key: partial(_disturbed, site.key, change)
        for site in sites
        for has_type, change in kinds
        if has_type(site.equation.outvars[0])
    }
    return [(places[key], edit) for key, edit in edits.items()]


def _disturbed(key: SiteKey, function: Function, jaxpr: LocatedJaxpr) -> Edit:
    return [Replacement(site.equation, after(site.equation, function)) for site in jaxpr.sites_at(key)]


def _changed(key: SiteKey, operator: Changes, change: str, jaxpr: LocatedJaxpr) -> Edit:
    with jax.enable_x64(True):
        changes = ((site, jaxpr.change_of(site, operator, change)) for site in jaxpr.sites_at(key))
        return [Replacement(site.equation, found.equations()) for site, found in changes if found is not None]


def _unrounded(keys: Sequence[SiteKey], jaxpr: LocatedJaxpr) -> Edit:
    return [Replacement(site.equation) for key in keys for site in jaxpr.sites_at(key)]


def _frame_edits(key: SiteKey, turn: int, kernel: EvaluatedKernel) -> Iterator[MakeEdit]:
    # An edit for each value that the line of a call's grid or index map could have.
    ways = [list(call_repairs(site.equation))[turn].equations for site in kernel.own.sites_at(key)]
    for way in range(max(map(len, ways), default=0)):

        def make(jaxpr: LocatedJaxpr, way: int = way) -> Edit:
            calls = [site.equation for site in jaxpr.sites_at(key)]
            return [Replacement(call, [list(call_repairs(call))[turn].equations[way]]) for call in calls]

        yield make


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
    if is_float(dtype) and dtype.itemsize <= 2 and primitive_of(site.equation).may_round:
        return str(dtype.name)
    is_cast = site.name == "convert_element_type" and is_integer_array(result) and is_integer_array(site.operands[0])
    return str(dtype.name) if is_cast and dtype_of(site.operands[0]).itemsize > dtype.itemsize else None
