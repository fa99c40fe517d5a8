"""The states of a kernel's masks, choices, branches, loops and grids that the planned cases exercise."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.failures import Failure
from kerneltest.core.grouping import group_pairs
from kerneltest.core.source_location import source_line
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.watchdog import limit_time
from kerneltest.extensions.mutation.judging import VALUES, plan_items
from kerneltest.records.journal import Phase
from kerneltest.trace.batched_interpreter.kernel_rules import BatchedKernel
from kerneltest.trace.machine import UnknownError
from kerneltest.trace.site_states import STEPS, CodeSite
from kerneltest.trace.tracing import without_debugging

# The coverage of a pairing: the states of its kernel's sites, and the special values of its inputs.

_SPECIALS = {"NaN": np.isnan, "an infinity": np.isinf}


@dataclass(slots=True)
class PairingCoverage:
    """The coverage of a pairing by its planned cases."""

    cases: int = 0  # number of cases that were evaluated
    left_out: set[str] = field(default_factory=set)  # why the cases of some signatures could not be evaluated
    sites: dict[CodeSite, set[str]] = field(default_factory=dict)  # the states of each site that were seen
    # by input and special value, for each case with it: whether an output holds a NaN (or, for an infinity, either)
    specials: dict[tuple[str, str], list[bool]] = field(default_factory=dict)

    @property
    def unexercised(self) -> dict[CodeSite, tuple[str, ...]]:
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
    """Evaluates the planned cases of values, and records what they exercise; UnfitPairingError if none runs.

    Cases of a signature that take longer than some seconds are left out; 0 for no limit.
    """
    coverage, cache = PairingCoverage(), Cache()
    journal = cache.process.journal
    with without_debugging(), limit_time(journal, seconds):
        planned = [
            item for item in plan_items(pairing, pairing_id, "interpret", depth, journal) if item.group.name in VALUES
        ]
        signatures = group_pairs((case.signature, (item, case)) for item in planned for case in item.cases())
        for signature, pairs in signatures.items():
            item, case = pairs[0]
            try:
                cache.process.begin_case(item.name, case)
                traced = cache.traces.tracer.trace(item.pairing, signature, item.backend.platform)
                inputs = [cache.expectations.inputs(item.pairing, case) for item, case in pairs]
                cache.process.enter_phase(Phase.RUNNING)
                outputs = BatchedKernel(traced)([np.stack(column) for column in zip(*inputs, strict=True)])
                journal.stop()
            except (Failure, UnknownError) as error:
                coverage.left_out.add(str(error).partition("\n")[0])
                continue
            coverage.cases += len(pairs)
            for site, seen in traced.sites.states_by_site.items():
                coverage.sites.setdefault(site, set()).update(seen)
            paths = [path for path, _ in signature.dtypes]
            for row, leaves in enumerate(inputs):
                _note_specials(coverage, paths, leaves, [output[row] for output in outputs])
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
