"""The states of a kernel's masks, choices, branches, loops and grids that the planned cases exercise."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.failures import Failure
from kerneltest.core.source_location import source_line
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.watchdog import limit_time
from kerneltest.extensions.mutation.judging import VALUES, plan_items
from kerneltest.localize.sites import locate_equations
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import Signature
from kerneltest.records.journal import Phase
from kerneltest.trace.batched_interpreter.kernel_rules import BatchedKernel, KernelRules
from kerneltest.trace.jax_compat.jaxprs import Equation
from kerneltest.trace.jax_compat.source_lines import place_of
from kerneltest.trace.machine import EquationFunction, Machine, UnknownError
from kerneltest.trace.primitives import access_parts
from kerneltest.trace.tracing import Traced, without_debugging
from kerneltest.trace.walk import primitive_name

_Values = Sequence[Any]


@dataclass(frozen=True, slots=True, order=True)
class CoverageSite:
    """A place of the kernel's code that has several states."""

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


class CoverageRecorder(KernelRules):
    """Records the states of sites while kernels are evaluated."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[CoverageSite, set[str]] = {}  # the states of each site so far

    def kernel(self, traced: Traced) -> BatchedKernel:
        """Returns a kernel whose evaluation is recorded.

        Raises:
          UnknownError: it contains an operation that NumPy cannot evaluate.
        """
        return BatchedKernel(replace(traced, jaxpr=locate_equations(traced.jaxpr)), self)

    def rule(self, machine: Machine, equation: Equation) -> EquationFunction:
        function = super().rule(machine, equation)
        place, watch = place_of(equation.source_info), _WATCHES.get(primitive_name(equation))
        if place is None or watch is None:
            return function
        watched = [(CoverageSite(*place, what, states), see) for what, states, see in watch(equation)]

        def evaluate(operands: _Values) -> _Values:
            results = function(operands)
            for site, see in watched:
                self.seen.setdefault(site, set()).update(site.states[number] for number in see(operands, results))
            return results

        return evaluate


# What is watched of an equation: a site in words, its states, and the numbers of those that operands and results show.
_Watched = tuple[str, tuple[str, ...], Callable[[_Values, _Values], Iterable[int]]]


def _mask(verb: str, equation: Equation) -> Iterator[_Watched]:
    parts = access_parts(equation, range(len(equation.invars)))
    if parts is not None and parts.mask is not None:
        yield f"the mask of the {verb}", ("on", "off"), partial(_booleans, parts.mask)


def _choice(equation: Equation) -> Iterator[_Watched]:
    if len(equation.invars) == 3:
        yield "the condition of `where`", ("true", "false"), partial(_booleans, 0)


def _booleans(number: int, operands: _Values, results: _Values) -> Iterable[int]:
    return 1 - np.unique(np.asarray(operands[number]).astype(bool).astype(np.int64))


def _branches(equation: Equation) -> Iterator[_Watched]:
    count = len(equation.params["branches"])
    states = ("not taken", "taken") if count == 2 else tuple(f"branch {number}" for number in range(count))
    yield "the branch", states, lambda operands, _: np.unique(np.clip(np.asarray(operands[0], np.int64), 0, count - 1))


def _scan(equation: Equation) -> Iterator[_Watched]:
    yield STEPS, _LOOP, lambda *_: [min(equation.params["length"], 2)]


def _while(equation: Equation) -> Iterator[_Watched]:
    start = equation.params["cond_nconsts"] + equation.params["body_nconsts"]
    for number, variable in enumerate(equation.outvars):
        if getattr(variable.aval, "shape", None) == () and np.issubdtype(variable.aval.dtype, np.integer):
            yield STEPS, _LOOP, partial(_steps, number, start + number)  # JAX's own loops count their steps there
            return


def _steps(result: int, operand: int, operands: _Values, results: _Values) -> Iterable[int]:
    steps = np.abs(np.asarray(results[result], np.int64) - np.asarray(operands[operand], np.int64))
    return np.unique(np.minimum(steps, 2))


def _grid(equation: Equation) -> Iterator[_Watched]:
    for axis, length in enumerate(equation.params["grid_mapping"].grid):
        if isinstance(length, int) and length:
            what = f"the number of programs along axis {axis} of the grid"
            yield what, ("one", "more than one"), partial(lambda state, *_: [state], min(length, 2) - 1)


_WATCHES: Mapping[str, Callable[[Equation], Iterator[_Watched]]] = {
    "masked_load": partial(_mask, "load"),
    "masked_swap": partial(_mask, "store"),
    "select_n": _choice,
    "cond": _branches,
    "scan": _scan,
    "while": _while,
    "pallas_call": _grid,
}


# The coverage of a pairing: the states of its kernel's sites, and the special values of its inputs.

_SPECIALS = {"NaN": np.isnan, "an infinity": np.isinf}


@dataclass(slots=True)
class PairingCoverage:
    """The coverage of a pairing by its planned cases."""

    cases: int = 0  # number of cases that were evaluated
    left_out: set[str] = field(default_factory=set)  # why the cases of some signatures could not be evaluated
    sites: dict[CoverageSite, set[str]] = field(default_factory=dict)  # the states of each site that were seen
    # by input and special value, for each case with it: whether an output holds a NaN (or, for an infinity, either)
    specials: dict[tuple[str, str], list[bool]] = field(default_factory=dict)

    @property
    def unexercised(self) -> dict[CoverageSite, tuple[str, ...]]:
        """The states of each site that no case exercises; not of a loop that always has the same number of steps."""
        found = {}
        for site, seen in sorted(self.sites.items()):
            missing = tuple(state for state in site.states if state not in seen)
            if missing and not (site.what == STEPS and len(seen) == 1):
                found[site] = missing
        return found

    @property
    def counts(self) -> tuple[int, int]:
        """The number of states that some case exercises, and of all states."""
        states = sum(len(site.states) for site in self.sites)
        return states - sum(map(len, self.unexercised.values())), states


def measure_coverage(pairing: Pairing, pairing_id: str, depth: str, seconds: float = 0.0) -> PairingCoverage:
    """Evaluates the planned cases of values on a kernel, and records what they exercise.

    Args:
      pairing, pairing_id: whose cases are planned.
      depth: of the plan.
      seconds: that the cases of one signature may take; they are left out if they take longer. 0 for no limit.

    Raises:
      UnfitPairingError: interpret mode runs none of its cases.
    """
    coverage, recorder, cache = PairingCoverage(), CoverageRecorder(), Cache()
    signatures: dict[Signature, list[tuple[Item, AnyCase]]] = {}
    journal = cache.process.journal
    with without_debugging(), limit_time(journal, seconds):
        for item in plan_items(pairing, pairing_id, "interpret", depth, journal):
            for case in item.cases() if item.group.name in VALUES else ():
                signatures.setdefault(case.signature, []).append((item, case))
        for signature, pairs in signatures.items():
            item, case = pairs[0]
            try:
                cache.process.begin_case(item.name, case)
                kernel = recorder.kernel(cache.traces.tracer.trace(item.pairing, signature, item.backend.platform))
                inputs = [cache.expectations.inputs(item.pairing, case) for item, case in pairs]
                cache.process.enter_phase(Phase.RUNNING)
                outputs = kernel([np.stack(column) for column in zip(*inputs, strict=True)])
                journal.stop()
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
            reached = coverage.specials.setdefault((path, name), [])
            if holds(leaf.astype(np.float64)).any():
                reached.append(reaches[name])


def coverage_as_data(pairing: str, coverage: PairingCoverage) -> dict[str, Any]:
    """Returns a pairing's coverage in a form that JSON can hold."""
    missing, (exercised, states) = coverage.unexercised, coverage.counts
    sites = [
        {"place": site.place, "what": site.what, "seen": sorted(seen), "missing": missing.get(site, ())}
        for site, seen in sorted(coverage.sites.items())
    ]
    return {"pairing": pairing, "cases": coverage.cases, "exercised": exercised, "states": states, "sites": sites}


def format_coverage(pairing: str, coverage: PairingCoverage) -> Iterator[str]:
    """Yields the lines that show a pairing's coverage: the share, then the states that no case reaches, by line."""
    missing, (exercised, states) = coverage.unexercised, coverage.counts
    yield f"{pairing}: {exercised} of {states} states exercised by {coverage.cases} cases"
    for reason in sorted(coverage.left_out):
        yield f"  some cases were not evaluated: {reason}"
    for place, sites in groupby(missing, key=lambda site: site.place):
        yield f"  {place}  {source_line(place)}".rstrip()
        yield from (f"    {site.what} is never {' or '.join(missing[site])}" for site in sites)
    for (path, name), reached in coverage.specials.items():
        if not reached:
            yield f"  {path}: {name} is never among its values"
        elif not any(reached):
            yield f"  {path}: {name} is among its values in {len(reached)} cases, and never reaches an output"
