"""The states of a kernel's masks, choices, branches, loops and grids that the planned cases exercise."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.failures import Failure
from kerneltest.core.source_location import source_line
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.claims import kernel_inputs
from kerneltest.execute.item import Item
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.settings import RunSettings
from kerneltest.extensions.mutation.judging import VALUES, UnfitPairingError
from kerneltest.localize.sites import locate_equations
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import Signature
from kerneltest.trace.batched_interpreter.kernel_rules import BatchedKernel, KernelRules
from kerneltest.trace.jax_compat.jaxprs import Equation
from kerneltest.trace.jax_compat.source_lines import place_of
from kerneltest.trace.machine import EquationFunction, Machine, UnknownError
from kerneltest.trace.tracing import Traced, without_debugging
from kerneltest.trace.walk import primitive_name

_Values = Sequence[Any]


@dataclass(frozen=True, slots=True, order=True)
class CoverageSite:
    """A place of the kernel's code that has several states."""

    # file, line, column: the place in the code
    file: str
    line: int
    column: int
    what: str  # the site in words, such as `the mask of the load`
    states: tuple[str, ...]  # all of them, such as `on` and `off`

    @property
    def place(self) -> str:
        """FILE:LINE."""
        return f"{self.file}:{self.line}"


STEPS = "the number of steps of the loop"
_LOOP = ("zero", "one", "more than one")
_AXIS = ("one", "more than one")


class CoverageRecorder(KernelRules):
    """Records the states of sites while kernels are evaluated.

    Attributes:
      seen: the states of each site so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[CoverageSite, set[str]] = {}

    def kernel(self, traced: Traced) -> BatchedKernel:
        """Returns a kernel whose evaluation is recorded.

        Raises:
          UnknownError: it contains an operation that NumPy cannot evaluate.
        """
        return BatchedKernel(_with_places(traced), self)

    def rule(self, machine: Machine, equation: Equation) -> EquationFunction:
        function = super().rule(machine, equation)
        place = place_of(equation.source_info)
        watch = _WATCHES.get(primitive_name(equation))
        if place is None or watch is None:
            return function
        note = partial(self._note, place)
        observe = watch(equation, note)
        if observe is None:
            return function

        def evaluate(operands: _Values) -> _Values:
            results = function(operands)
            observe(operands, results)
            return results

        return evaluate

    def _note(self, place: tuple[str, int, int], what: str, states: tuple[str, ...], seen: Sequence[str]) -> None:
        self.seen.setdefault(CoverageSite(*place, what, states), set()).update(seen)


_Note = Callable[[str, tuple[str, ...], Sequence[str]], None]
_Observe = Callable[[_Values, _Values], None]


def _with_places(traced: Traced) -> Traced:
    return replace(traced, jaxpr=locate_equations(traced.jaxpr))


def _of_mask(verb: str, position: int, equation: Equation, note: _Note) -> _Observe | None:
    numbers = equation.params["args_tree"].unflatten(range(len(equation.invars)))
    number = numbers[position]
    return None if number is None else partial(_see_booleans, note, f"the mask of the {verb}", ("on", "off"), number)


def _of_choice(equation: Equation, note: _Note) -> _Observe | None:
    if len(equation.invars) != 3:
        return None
    return partial(_see_booleans, note, "the condition of `where`", ("true", "false"), 0)


def _see_booleans(
    note: _Note, what: str, states: tuple[str, ...], number: int, operands: _Values, results: _Values
) -> None:
    values = np.asarray(operands[number]).astype(bool)
    note(
        what,
        states,
        [state for state, is_seen in zip(states, (values.any(), not values.all()), strict=True) if is_seen],
    )


def _of_branches(equation: Equation, note: _Note) -> _Observe:
    count = len(equation.params["branches"])
    states = ("not taken", "taken") if count == 2 else tuple(f"branch {number}" for number in range(count))

    def observe(operands: _Values, results: _Values) -> None:
        chosen = np.clip(np.asarray(operands[0]).astype(np.int64), 0, count - 1)
        note("the branch", states, [states[number] for number in np.unique(chosen)])

    return observe


def _of_scan(equation: Equation, note: _Note) -> _Observe:
    length = equation.params["length"]
    return lambda operands, results: note(STEPS, _LOOP, [_LOOP[min(length, 2)]])


def _of_while(equation: Equation, note: _Note) -> _Observe | None:
    params = equation.params
    start = params["cond_nconsts"] + params["body_nconsts"]
    counters = [
        number
        for number, variable in enumerate(equation.outvars)
        if getattr(variable.aval, "shape", None) == () and np.issubdtype(variable.aval.dtype, np.integer)
    ]
    if not counters:
        return None
    first = counters[0]  # JAX's own loops count their steps there

    def observe(operands: _Values, results: _Values) -> None:
        steps = np.abs(np.asarray(results[first], np.int64) - np.asarray(operands[start + first], np.int64))
        note(STEPS, _LOOP, [_LOOP[number] for number in np.unique(np.minimum(steps, 2))])

    return observe


def _of_call(equation: Equation, note: _Note) -> _Observe:
    grid: Sequence[object] = equation.params["grid_mapping"].grid

    def observe(operands: _Values, results: _Values) -> None:
        for axis, length in enumerate(grid):
            if isinstance(length, int) and length:
                note(f"the number of programs along axis {axis} of the grid", _AXIS, [_AXIS[min(length, 2) - 1]])

    return observe


_WATCHES: Mapping[str, Callable[[Equation, _Note], _Observe | None]] = {
    "masked_load": partial(_of_mask, "load", 2),
    "masked_swap": partial(_of_mask, "store", 3),
    "select_n": _of_choice,
    "cond": _of_branches,
    "scan": _of_scan,
    "while": _of_while,
    "pallas_call": _of_call,
}


# The coverage of a pairing: the states of its kernel's sites, and the special values of its inputs.

_SPECIALS = {"NaN": np.isnan, "an infinity": np.isinf}


@dataclass(slots=True)
class SpecialReach:
    """The cases in which an input holds a special value."""

    planned: int = 0  # the number of these cases
    # the number of those in which an output holds a NaN (for an infinite input, an infinity or a NaN)
    reaching: int = 0


@dataclass(slots=True)
class PairingCoverage:
    """The coverage of a pairing by its planned cases."""

    cases: int = 0  # number of cases that were evaluated
    left_out: set[str] = field(default_factory=set)  # why the cases of some signatures could not be evaluated
    sites: dict[CoverageSite, set[str]] = field(default_factory=dict)  # the states of each site that were seen
    # by input and special value, the cases with it
    specials: dict[tuple[str, str], SpecialReach] = field(default_factory=dict)

    @property
    def unexercised(self) -> dict[CoverageSite, tuple[str, ...]]:
        """The states of each site that no case exercises; not of a loop that always has the same number of steps."""
        found = {}
        for site, seen in sorted(self.sites.items()):
            missing = tuple(state for state in site.states if state not in seen)
            if missing and not (site.what == STEPS and len(seen) == 1):
                found[site] = missing
        return found


def measure_coverage(pairing: Pairing, pairing_id: str, depth: str) -> PairingCoverage:
    """Evaluates the planned cases of values on a kernel, and records what they exercise.

    Raises:
      UnfitPairingError: interpret mode runs none of its cases.
    """
    coverage, recorder, cache = PairingCoverage(), CoverageRecorder(), Cache()
    plan = plan_pairing(pairing, pairing_id, resolve(["interpret"]), RunSettings(depth=depth))
    signatures: dict[Signature, list[tuple[Item, AnyCase]]] = {}
    for item in plan.items:
        if item.group.name in VALUES and not item.backend.unavailable():
            for case in item.cases():
                signatures.setdefault(case.signature, []).append((item, case))
    if not signatures:
        reasons = "; ".join(dict.fromkeys(each.reason for each in plan.not_applicable))
        raise UnfitPairingError(plan.problem or reasons or "none of its cases runs here")
    with without_debugging():
        for signature, pairs in signatures.items():
            item, _ = pairs[0]
            try:
                kernel = recorder.kernel(cache.traces.tracer.trace(item.pairing, signature, item.backend.platform))
                inputs = [kernel_inputs(item.pairing, case, cache) for item, case in pairs]
                outputs = kernel([np.stack(column) for column in zip(*inputs, strict=True)])
            except (Failure, UnknownError) as error:
                coverage.left_out.add(str(error).partition("\n")[0])
                continue
            coverage.cases += len(pairs)
            paths = [path for path, _ in signature.dtypes]
            for row, leaves in enumerate(inputs):
                _note_specials(coverage, paths, leaves, [output[row] for output in outputs])
    coverage.sites = recorder.seen
    return coverage


def _note_specials(
    coverage: PairingCoverage, paths: Sequence[str], leaves: Sequence[Array], outputs: Sequence[Array]
) -> None:
    wide = [output.astype(np.float64) for output in outputs if is_float(output.dtype)]
    reaches = {"NaN": any(np.isnan(x).any() for x in wide), "an infinity": not all(np.isfinite(x).all() for x in wide)}
    for path, leaf in zip(paths, leaves, strict=True):
        for name, holds in _SPECIALS.items() if is_float(leaf.dtype) else ():
            reach = coverage.specials.setdefault((path, name), SpecialReach())
            if holds(leaf.astype(np.float64)).any():
                reach.planned += 1
                reach.reaching += reaches[name]


def coverage_as_data(pairing: str, coverage: PairingCoverage) -> dict[str, Any]:
    """Returns a pairing's coverage in a form that JSON can hold."""
    missing = coverage.unexercised
    states = sum(len(site.states) for site in coverage.sites)
    sites = [
        {"place": site.place, "what": site.what, "seen": sorted(seen), "missing": missing.get(site, ())}
        for site, seen in sorted(coverage.sites.items())
    ]
    exercised = states - sum(map(len, missing.values()))
    return {"pairing": pairing, "cases": coverage.cases, "exercised": exercised, "states": states, "sites": sites}


def format_coverage(pairing: str, coverage: PairingCoverage) -> Iterator[str]:
    """Yields the lines that show a pairing's coverage: the share, then the states that no case reaches, by line."""
    states = sum(len(site.states) for site in coverage.sites)
    missing = coverage.unexercised
    left = sum(map(len, missing.values()))
    yield f"{pairing}: {states - left} of {states} states exercised by {coverage.cases} cases"
    for reason in sorted(coverage.left_out):
        yield f"  some cases were not evaluated: {reason}"
    for place, sites in groupby(missing, key=lambda site: site.place):
        yield f"  {place}  {source_line(place)}".rstrip()
        yield from (f"    {site.what} is never {' or '.join(missing[site])}" for site in sites)
    for (path, name), reach in coverage.specials.items():
        if not reach.planned:
            yield f"  {path}: {name} is never among its values"
        elif not reach.reaching:
            yield f"  {path}: {name} is among its values in {reach.planned} cases, and never reaches an output"
