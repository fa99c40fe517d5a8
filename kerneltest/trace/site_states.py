"""Sites: places of a kernel's code with several states, such as a mask, and the states that evaluations have shown.

Of a site that has one state in every planned case, nothing tests the others.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kerneltest.trace.jax_compat.jaxprs import Equation, open_jaxpr
from kerneltest.trace.jax_compat.source_lines import is_of_jax, place_of
from kerneltest.trace.machine import EquationFunction, rows_of
from kerneltest.trace.primitives import Kind, access_parts, called_jaxpr, kind_of
from kerneltest.trace.rewrite import is_plain_call
from kerneltest.trace.walk import equations_in, primitive_name

_Values = Sequence[Any]


class DimLengths(NamedTuple):
    """The lengths of a dim."""

    own: int  # in the signature for which a kernel is traced
    planned: Sequence[int]  # in all signatures of the plan
    # Grids of calls by place at a length past a block, whatever is declared; past the planned ones for a block of 0.
    longer_grids: Callable[[int], Mapping[str, Sequence[object]]] = lambda block: {}


_Lengths = Mapping[str, DimLengths]  # by dim

_NOT_EVALUATED = (
    "NumPy cannot evaluate the kernel, so no remark tells whether a mask or branch of it is the same in every case"
)


@dataclass(frozen=True, slots=True, order=True)
class CodeSite:
    """A place of the kernel's code that has several states."""

    file: str
    line: int
    column: int
    what: str  # the site in words, such as `the mask of the load`
    states: tuple[str, ...]  # all of them, such as `on` and `off`

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class _Kind:
    what: str
    states: tuple[str, ...]
    # Yields remarks that only one state was seen at a place: for each declaration that may lead to others, one.
    remarks: "Callable[[_Watched, str, str, _Lengths], Iterable[str]]"
    rank: int  # the order of remarks: lower ones may be the cause of higher ones


@dataclass(slots=True)
class _Watched:
    """An equation that is a site, and what its evaluations have shown."""

    equation: Equation
    kind: _Kind
    see: Callable[[_Values], Collection[int]]  # the numbers of the states that operands show
    decision: int | None = None  # the operand that decides the state, if one does
    varies: bool = True  # whether evaluations may differ
    around: Sequence[Equation] = ()  # those that it is nested in, whose place it has if it is JAX's, as in a pipeline
    in_kernel: bool = False
    seen: set[int] = field(default_factory=set)
    by_lengths: bool = False  # whether cases with different values had one decision
    by_values: bool = False  # whether cases had decisions of their own

    def note(self, operands: _Values) -> None:
        states = self.see(operands)
        self.seen.update(states)
        if self.decision is None or not len(states):
            return
        if len(operands[self.decision]) > 1:
            self.by_values = True
        elif not self.by_lengths:
            self.by_lengths = rows_of(operands) > 1


class SiteRemarks(NamedTuple):
    """Remarks that a site had one state in every case of a signature so far."""

    static: tuple[str, ...] = ()  # on those that are known without an evaluation
    evaluated: tuple[str, ...] | None = None  # on others; None if no case was evaluated


class SiteStates:
    """The states that evaluations of a traced kernel have shown of its sites."""

    def __init__(self) -> None:
        self._watched: list[_Watched] = []
        self._sites: dict[int, CodeSite | None] = {}  # by the number of an equation that is watched
        self._loops: dict[int, _Watched] = {}  # those whose evaluation notes its steps, by the id of the equation
        self._known: tuple[int, SiteRemarks] = -1, SiteRemarks()  # the remarks when so much was known
        self._in_kernel = False
        self._is_static_known = False
        self._has_decisions = False  # whether an evaluation would show states of sites
        self.is_evaluated = False

    @contextmanager
    def inside(self, equation: Equation) -> Iterator[None]:
        """Notes that the equations inside of one are prepared."""
        before = self._in_kernel
        self._in_kernel |= kind_of(equation) is Kind.KERNEL
        try:
            yield
        finally:
            self._in_kernel = before

    def watch(self, equation: Equation, evaluate: EquationFunction) -> EquationFunction:
        """Returns the function that evaluates an equation, and notes the states of its sites until all were seen."""
        watches = _WATCHES.get(primitive_name(equation))
        if watches is None or not (sites := tuple(watches(equation))):
            return evaluate
        self._watched += sites
        for site in sites:
            site.in_kernel = self._in_kernel or kind_of(equation) is Kind.KERNEL
        if primitive_name(equation) == "while":
            (self._loops[id(equation)],) = sites
            return evaluate

        def watching(operands: _Values) -> _Values:
            results = evaluate(operands)
            for site in sites:
                if not site.seen or (site.varies and len(site.seen) < len(site.kind.states)):
                    site.note(operands)
            return results

        return watching

    def leave_loop(self, equation: Equation, steps: int) -> None:
        """Notes the number of steps after which some cases leave a loop that `watch` was given."""
        self._loops[id(equation)].seen.add(min(steps, 2))

    @property
    def needs_rows(self) -> bool:
        """True if the next evaluation needs a second row, without which it does not show what depends on values."""
        return not self.is_evaluated and any(each.decision is not None for each in self._watched)

    @property
    def states_by_site(self) -> dict[CodeSite, set[str]]:
        """The states so far of each site that was evaluated. Equations of JAX's own functions have no place."""
        found: dict[CodeSite, set[str]] = {}
        for site, each in self._evaluated():
            found.setdefault(site, set()).update(site.states[number] for number in each.seen)
        return found

    def remarks(
        self, calls: Iterable[Equation], lengths: _Lengths, is_refused: Callable[[], bool] = lambda: False
    ) -> SiteRemarks:
        """Returns remarks on the sites of a kernel's Pallas calls with a single state so far.

        Those that may be the cause of others come first. The words do not depend on the signature, so that those of one
        are compared with those of others. If no evaluation has shown masks and branches since NumPy's machine refuses
        the kernel, the last remark says so.
        """
        if not self._is_static_known:
            self._is_static_known = True
            for call in calls:
                self._note_static(call)
        states = sum(len(each.seen) + each.by_lengths + each.by_values for each in self._watched)
        amount = states + self.is_evaluated
        if amount != self._known[0]:
            seen = self.states_by_site
            found = sorted(
                (each.kind.rank, number, words, each.varies)
                for site, each in self._evaluated()
                if each.in_kernel and len(seen[site]) == 1
                for state in seen[site]
                for number, words in enumerate(each.kind.remarks(each, site.place, state, lengths))
            )
            static, dynamic = (tuple(dict.fromkeys(r[2] for r in found if r[3] is varies)) for varies in (False, True))
            self._known = amount, SiteRemarks(static, dynamic if self.is_evaluated else None)
        known = self._known[1]
        if self._has_decisions and not self.is_evaluated and is_refused():
            return known._replace(static=(*known.static, _NOT_EVALUATED))
        return known

    def _note_static(self, call: Equation) -> None:
        for equation, around in ((call, ()), *equations_in(call)):
            sites = tuple(_WATCHES.get(primitive_name(equation), lambda _: ())(equation))
            if primitive_name(equation) not in _STATIC:
                self._has_decisions |= bool(sites)
                continue
            for site in sites:
                site.in_kernel, site.around = True, around
                site.note(())
                self._watched.append(site)

    def _evaluated(self) -> Iterator[tuple[CodeSite, _Watched]]:
        for number, each in enumerate(self._watched):
            if each.seen and number not in self._sites:
                places = (place_of(equation.source_info) for equation in (each.equation, *reversed(each.around)))
                place = next(filter(None, places), None)
                self._sites[number] = None if place is None else CodeSite(*place, each.kind.what, each.kind.states)
            if each.seen and (site := self._sites[number]) is not None:
                yield site, each


# Masks, and the conditions of `where`.


def _remarks_on_mask(site: _Watched, place: str, seen: str, lengths: _Lengths) -> Iterator[str]:
    # A mask that depends on lengths alone is full where these are whole blocks. The block may grow with them.
    assert site.decision is not None
    if site.by_values or not site.by_lengths:
        return
    begin = f"{site.kind.what} at {place} is {seen} in every case"
    blocks = {length for length in site.equation.invars[site.decision].aval.shape if length > 1}
    if not blocks:
        yield f"{begin}; plan other lengths if these decide it"
    for name, (own, planned, _) in lengths.items() if blocks else ():
        factor = math.gcd(*planned)
        if factor > 1 and not all(own % block for block in blocks):
            others = f"plan others, as in dims=dict({name}=kt.dim(block={factor}))"
            yield f"{begin}, and every length of {name} is a multiple of {factor}; {others}"


_MASKS = {verb: _Kind(f"the mask of the {verb}", ("on", "off"), _remarks_on_mask, rank=2) for verb in ("load", "store")}
_CHOICE = _Kind("the condition of `where`", ("true", "false"), _remarks_on_mask, rank=2)


def _mask(verb: str, equation: Equation) -> Iterator[_Watched]:
    parts = access_parts(equation, range(len(equation.invars)))
    if parts is not None and parts.mask is not None:
        yield _Watched(equation, _MASKS[verb], partial(_booleans, parts.mask), parts.mask)


def _choice(equation: Equation) -> Iterator[_Watched]:
    if len(equation.invars) == 3:
        yield _Watched(equation, _CHOICE, partial(_booleans, 0), 0)


def _where(equation: Equation) -> Iterator[_Watched]:
    inner = called_jaxpr(equation)
    if inner is not None and is_of_jax(inner) and equation.params.get("name") == "_where":
        yield from _choice(equation)


def _booleans(number: int, operands: _Values) -> Collection[int]:
    if not operands[number].size:
        return ()
    if operands[number].all():
        return (0,)
    return (0, 1) if operands[number].any() else (1,)


# Branches.


def _remarks_on_branch(site: _Watched, place: str, seen: str, lengths: _Lengths) -> Iterator[str]:
    # Values may decide it for other signatures, which then have the second remark only.
    how = {"taken": "is always taken", "not taken": "is never taken"}.get(seen, f"is {seen} in every case")
    for other in ("lengths", "lengths or values") if site.by_lengths and not site.by_values else ("lengths or values",):
        yield f"the branch at {place} {how}; plan other {other} if these decide it"


def _branches(equation: Equation) -> Iterator[_Watched]:
    count = len(equation.params["branches"])
    states = ("not taken", "taken") if count == 2 else tuple(f"branch {number}" for number in range(count))
    kind = _Kind("the branch", states, _remarks_on_branch, rank=3)
    yield _Watched(
        equation, kind, lambda operands: np.unique(np.clip(np.asarray(operands[0], np.int64), 0, count - 1)), 0
    )


# Loops.

STEPS = "the number of steps of the loop"
_MORE = "more than one"


def _remarks_on_loop(site: _Watched, place: str, seen: str, lengths: _Lengths) -> Iterator[str]:
    if seen != _MORE:
        steps = "one step" if seen == "one" else "no step"
        yield f"the loop at {place} has {steps} in every case; plan longer lengths if these determine its steps"


_LOOP = _Kind(STEPS, ("zero", "one", _MORE), _remarks_on_loop, rank=1)


# Grids.


def _remarks_on_axis(axis: int, site: _Watched, place: str, seen: str, lengths: _Lengths) -> Iterator[str]:
    if seen != "one":
        return
    begin = f"axis {axis} of the grid at {place} has one program in every case"
    longest = min((max(each.planned) for each in lengths.values()), default=0)
    blocks = _blocks_along(axis, site.equation)

    def names_past(block: int) -> Iterator[str]:
        grids = ((name, each.longer_grids(block).get(place, ())) for name, each in lengths.items())
        return (name for name, grid in grids if axis < len(grid) and grid[axis] != 1)

    for size in blocks:
        # A block shorter than some length that every dim reaches spans an axis that is no dim.
        for name in names_past(size) if size > 1 and size >= longest else ():
            yield f"{begin}; lengths past its block would have more, as in dims=dict({name}=kt.dim(block={size}))"
    for name in names_past(0) if not blocks and _asks_program(site.equation, axis) else ():
        yield f"{begin}; lengths of {name} past {max(lengths[name].planned)} would have more"


def _remarks_on_single(axis: int, site: _Watched, place: str, seen: str, lengths: _Lengths) -> Iterator[str]:
    names = [name for name, each in lengths.items() if [*each.planned] == [1]]
    if seen == "one" and names and 1 in _blocks_along(axis, site.equation):
        begin = f"axis {axis} of the grid at {place} has one program in every case"
        yield f"{begin}, and {' and '.join(names)} only the length 1; plan longer ones"


def _asks_program(call: Equation, axis: int) -> bool:
    inside = (inner for inner, _ in equations_in(call) if primitive_name(inner) == "program_id")
    return any(inner.params["axis"] == axis for inner in inside)


# The lengths of the blocks that index maps choose by the program along an axis of a grid.
def _blocks_along(axis: int, call: Equation) -> list[int]:
    found = []
    for mapping in call.params["grid_mapping"].block_mappings if is_plain_call(call) else ():
        index_map = open_jaxpr(mapping.index_map_jaxpr)
        for index, block in zip(index_map.outvars, mapping.block_shape, strict=False):
            if index is index_map.invars[axis]:
                found.append(getattr(block, "block_size", None) or 1)
    return found


def grids_by_place(calls: Iterable[Equation]) -> Mapping[str, Sequence[object]]:
    """Returns the grids of Pallas calls, by FILE:LINE."""
    grids = ((place_of(call.source_info), call.params.get("grid_mapping")) for call in calls)
    return {f"{place[0]}:{place[1]}": tuple(grid.grid) for place, grid in grids if place and grid is not None}


def _grid(equation: Equation) -> Iterator[_Watched]:
    for axis, length in enumerate(equation.params["grid_mapping"].grid):
        if isinstance(length, int) and length:
            what = f"the number of programs along axis {axis} of the grid"
            for rank, remarks in ((0, _remarks_on_axis), (4, _remarks_on_single)):
                kind = _Kind(what, ("one", _MORE), partial(remarks, axis), rank)
                yield _Watched(equation, kind, partial(lambda state, _: [state], min(length, 2) - 1), varies=False)


_WATCHES: Mapping[str, Callable[[Equation], Iterator[_Watched]]] = {
    "masked_load": partial(_mask, "load"),
    "masked_swap": partial(_mask, "store"),
    "select_n": _choice,
    "jit": _where,
    "cond": _branches,
    "scan": lambda e: iter([_Watched(e, _LOOP, lambda _: [min(e.params["length"], 2)], varies=False)]),
    "while": lambda e: iter([_Watched(e, _LOOP, lambda _: ())]),  # `leave_loop` adds the states
    "pallas_call": _grid,
}
_STATIC = ("scan", "pallas_call")  # the states of their sites do not depend on an evaluation
