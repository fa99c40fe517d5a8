"""The states of a kernel's masks, choices, branches, loops and grids that the planned cases exercise."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

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


@dataclass(frozen=True, slots=True)
class SiteCoverage:
    """A place of a kernel with several states, those that cases exercise, and those that they do not."""

    place: str
    what: str
    seen: tuple[str, ...]
    missing: tuple[str, ...]  # not of a loop that always has the same number of steps


@dataclass(frozen=True, slots=True)
class PairingCoverage:
    """The coverage of a pairing by its planned cases, as `--json` stores it."""

    pairing: str
    cases: int = 0  # number of cases that were evaluated
    exercised: int = 0
    states: int = 0
    sites: tuple[SiteCoverage, ...] = ()  # the places of the kernel
    left_out: tuple[str, ...] = ()  # why the cases of some signatures could not be evaluated
    inputs: tuple[str, ...] = ()  # the special values that inputs never hold, or that never reach an output, in words
    problem: str = ""  # why it was not measured; "" if it was

    def lines(self) -> Iterator[str]:
        """Yields the lines that show it: the share, then the states that no case reaches, by line."""
        yield f"{self.pairing}: {self.exercised} of {self.states} states exercised by {self.cases} cases"
        for reason in self.left_out:
            yield f"  some cases were not evaluated: {reason}"
        for place, sites in groupby((site for site in self.sites if site.missing), key=lambda site: site.place):
            yield f"  {place}  {source_line(place)}".rstrip()
            yield from (f"    {site.what} is never {' or '.join(site.missing)}" for site in sites)
        yield from (f"  {line}" for line in self.inputs)


def measure_coverage(pairing: Pairing, pairing_id: str, depth: str, seconds: float = 0.0) -> PairingCoverage:
    """Evaluates the planned cases of values, and records what they exercise; UnfitPairingError if none runs.

    Cases of a signature that take longer than some seconds are left out; 0 for no limit.
    """
    cache, cases, left_out = Cache(), 0, set()
    states: dict[CodeSite, set[str]] = {}  # of each site that were seen
    # by input and special value, for each case with it: whether an output holds a NaN (or, for an infinity, either)
    specials: dict[tuple[str, str], list[bool]] = {}
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
                left_out.add(str(error).partition("\n")[0])
                continue
            cases += len(pairs)
            for site, seen in traced.sites.states_by_site.items():
                states.setdefault(site, set()).update(seen)
            paths = [path for path, _ in signature.dtypes]
            for row, leaves in enumerate(inputs):
                _note_specials(specials, paths, leaves, [output[row] for output in outputs])
    sites = [
        SiteCoverage(s.place, s.what, tuple(sorted(seen)), _missing(s, seen)) for s, seen in sorted(states.items())
    ]
    total, missing = sum(len(site.states) for site in states), sum(len(site.missing) for site in sites)
    unreached = tuple(filter(None, (_special_remark(*key, reached) for key, reached in specials.items())))
    return PairingCoverage(pairing_id, cases, total - missing, total, tuple(sites), tuple(sorted(left_out)), unreached)


def _missing(site: CodeSite, seen: Collection[str]) -> tuple[str, ...]:
    return () if site.what == STEPS and len(seen) == 1 else tuple(state for state in site.states if state not in seen)


def _special_remark(path: str, name: str, reached: Sequence[bool]) -> str:
    if not reached:
        return f"{path}: {name} is never among its values"
    cases = f"{path}: {name} is among its values in {len(reached)} cases, and never reaches an output"
    return "" if any(reached) else cases


def _note_specials(
    specials: dict[tuple[str, str], list[bool]],
    paths: Sequence[str],
    leaves: Sequence[Array],
    outputs: Sequence[Array],
) -> None:
    wide = [output.astype(np.float64) for output in outputs if is_float(output.dtype)]
    reaches = {"NaN": any(np.isnan(x).any() for x in wide), "an infinity": not all(np.isfinite(x).all() for x in wide)}
    for path, leaf in zip(paths, leaves, strict=True):
        for name, holds in _SPECIALS.items() if is_float(leaf.dtype) else ():
            reached = specials.setdefault((path, name), [])
            if holds(leaf.astype(np.float64)).any():
                reached.append(reaches[name])
