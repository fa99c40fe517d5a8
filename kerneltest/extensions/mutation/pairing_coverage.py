"""The coverage of a pairing: the states of its kernel's sites, and the special values of its inputs."""

import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.failures import Failure
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.batching import kernel_inputs
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.settings import RunSettings
from kerneltest.extensions.mutation.judging import UnfitPairingError
from kerneltest.extensions.mutation.kernel_cases import VALUES
from kerneltest.extensions.mutation.kernel_coverage import STEPS, CoverageRecorder, CoverageSite
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import Signature
from kerneltest.trace.scalars import UnknownError
from kerneltest.trace.tracing import without_debugging

_SPECIALS = {"NaN": np.isnan, "an infinity": np.isinf}


@dataclass(slots=True)
class SpecialReach:
    """The cases in which an input holds a special value.

    Attributes:
      planned: the number of these cases.
      reaching: the number of those in which an output holds a NaN (for an infinite input, an infinity or a NaN).
    """

    planned: int = 0
    reaching: int = 0


@dataclass(slots=True)
class PairingCoverage:
    """The coverage of a pairing by its planned cases.

    Attributes:
      cases: number of cases that were evaluated.
      left_out: why the cases of some signatures could not be evaluated.
      sites: the states of each site that were seen.
      specials: by input and special value, the cases with it.
    """

    cases: int = 0
    left_out: set[str] = field(default_factory=set)
    sites: dict[CoverageSite, set[str]] = field(default_factory=dict)
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

    Args:
      pairing: the pairing of the kernel.
      pairing_id: its node id.
      depth: the depth of the plan.

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
                kernel = recorder.kernel(cache.tracer.trace(item.pairing, signature, item.backend.platform))
                inputs = [kernel_inputs(item, case, cache) for item, case in pairs]
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
        file, _, line = place.rpartition(":")
        yield f"  {place}  {linecache.getline(file, int(line)).strip()}".rstrip()
        yield from (f"    {site.what} is never {' or '.join(missing[site])}" for site in sites)
    for (path, name), reach in coverage.specials.items():
        if not reach.planned:
            yield f"  {path}: {name} is never among its values"
        elif not reach.reaching:
            yield f"  {path}: {name} is among its values in {reach.planned} cases, and never reaches an output"
