"""Runs the cases of a pairing on mutants of its kernel, until one finds the mutant."""

import functools
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from kerneltest.backends.base import Backend
from kerneltest.backends.interpret import NumpyEvaluation, evaluate
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.failures import Failure, underlying_hang
from kerneltest.core.verdicts import GroupName, Verdict, VerdictKind
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.expectations import Expectations
from kerneltest.execute.item import Item
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.process_state import ProcessState
from kerneltest.execute.runner import run_case
from kerneltest.execute.settings import RunSettings
from kerneltest.extensions.mutation.mutants import (
    EvaluatedInterpret,
    KernelMutant,
    LocatedTraces,
    MutantTracer,
    find_mutants,
)
from kerneltest.localize.operators import Operator
from kerneltest.plan import DEPTHS
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import Signature, order_by_variety
from kerneltest.records.journal import Journal, Phase
from kerneltest.trace.tracing import Traced, without_debugging

# The trial of one mutant by the cases of a pairing.


class TrialEnd(StrEnum):
    """The end of a trial."""

    KILLED = "killed"
    SURVIVED = "survived"
    # not one bit of its results differs from the kernel's, with rounding and without, at this depth and the next
    EQUIVALENT = "equivalent"
    UNDECIDED = "undecided"  # no case finds it; NumPy cannot evaluate the kernel, so that it may be equivalent
    INVALID = "invalid"  # it cannot be made, or does not run


@dataclass(frozen=True, slots=True)
class Kill:
    """The first finding of a mutant."""

    backend: str
    dtype: str
    group: str
    family: str
    signature: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Trial:
    """A mutant and its end."""

    mutant: KernelMutant
    end: TrialEnd
    kill: Kill | None = None  # the first finding; None unless a case found it
    cases: int = 0  # the number of cases that ran
    seconds: float = 0.0
    note: str = ""  # why a mutant is invalid; where a survivor differs most; that a mutant ended its process
    # the cases that have a finding in the unchanged kernel, and therefore judge no mutant
    disregarded: tuple[str, ...] = ()


# The cases in which a mutant's bits differ from the kernel's, evaluated for a whole signature at once.
#
# All other cases have the kernel's own verdict, so they are not judged. Outputs are compared in the kernel's own dtypes
# and without rounding: the pairing tests both.

_Outputs = list[Array] | None  # of all cases, (cases, *shape) each; None if they cannot be evaluated


@dataclass(slots=True)
class SignatureCases:
    """The cases of one signature, with the outputs of the kernel itself."""

    pairs: list[tuple[Item, AnyCase]] = field(default_factory=list)  # the cases, each with its item
    _inputs: list[Array] | None = None
    _outputs: dict[bool, _Outputs] = field(default_factory=dict)  # with rounding, and without

    def differing(
        self, plain: Cache, original: Traced, mutated: Cache, mutant: Traced, *, with_wide: bool = True
    ) -> Iterator[tuple[tuple[Item, AnyCase], float | None]]:
        """Yields the cases in which a mutant's bits differ, first in its own dtypes and then without rounding.

        With each comes its largest difference relative to the largest result; None if that is unknown. Raises a Failure
        if the mutant takes too long.
        """
        if self._inputs is None:
            columns = zip(*(plain.expectations.inputs(item.pairing, case) for item, case in self.pairs), strict=True)
            self._inputs = [np.stack(column) for column in columns]
        seen: set[int] = set()
        for rounds in (True, False)[: 1 + with_wide]:
            if rounds not in self._outputs:
                self._outputs[rounds] = None
                with suppress(Failure):  # the kernel itself takes too long
                    self._outputs[rounds] = self._evaluate(rounds, plain, original, self._inputs)
            before = self._outputs[rounds]
            if before is None and seen:
                continue
            outputs = self._evaluate(rounds, mutated, mutant, self._inputs)
            for row, pair in enumerate(self.pairs):
                size = None if before is None or outputs is None else _difference(before, outputs, row)
                if row not in seen and size != 0:
                    seen.add(row)
                    yield pair, size

    def _evaluate(self, rounds: bool, cache: Cache, traced: Traced, inputs: Sequence[Array]) -> _Outputs:
        item, case = self.pairs[0]
        cache.process.begin_case(item.name, case)
        cache.process.enter_phase(Phase.RUNNING)
        try:
            if not rounds:
                trace_wide = functools.partial(cache.traces.wide, item.pairing, case.signature, item.backend, traced)
                return list(cache.formulas.kernel(traced, trace_wide)(inputs))
            if not isinstance(evaluation := evaluate(traced), NumpyEvaluation):
                return None
            for leaves in zip(*inputs, strict=True):
                evaluation.check_blocks(leaves)
            return list(evaluation.rows(inputs))
        except Exception as error:  # a kernel that NumPy cannot evaluate, or told where the case is judged
            if (hang := underlying_hang(error)) is not None:
                raise hang from error
            return None


def _difference(before: Sequence[Array], outputs: Sequence[Array], row: int) -> float:
    # Relative to the largest result; infinite if one is NaN.
    largest = 0.0
    for old, new in zip(before, outputs, strict=True):
        if old[row].tobytes() == new[row].tobytes():
            continue
        with np.errstate(all="ignore"):
            one, other = new[row].astype(np.float64), old[row].astype(np.float64)
            same = (one == other) | (np.isnan(one) & np.isnan(other))
            error = np.where(same, 0.0, np.abs(one - other))
            size = np.max(np.abs(other[np.isfinite(other)]), initial=0.0) or 1.0
            found = np.max(np.where(np.isnan(error), np.inf, error / size), initial=0.0)
        largest = max(largest, float(found), np.finfo(np.float64).tiny)
    return largest


# The cases of a pairing in one dtype on one backend, with what all mutants of its kernel share.

VALUES = frozenset({GroupName.STRUCTURAL, GroupName.NUMERIC, GroupName.SPECIAL, GroupName.MASKS})


@dataclass(slots=True)
class KernelCases:
    """The cases of a pairing in one dtype on one backend, with what its mutants share."""

    dtype: str
    backend: Backend
    traces: LocatedTraces  # the kernel's traces
    cache: Cache  # a cache with the oracle's results
    # the cases of each signature that compare values of the kernel as it is called
    values: dict[Signature, SignatureCases] = field(default_factory=dict)
    others: list[tuple[Item, AnyCase]] = field(default_factory=list)  # all other cases, mainly those of invariants
    # by group and id, whether a case has a finding in the unchanged kernel, if it has run there
    findings: dict[tuple[str, str], bool] = field(default_factory=dict)

    def add(self, item: Item) -> None:
        for case in item.cases():
            if item.group.name in VALUES:
                self.values.setdefault(case.signature, SignatureCases()).pairs.append((item, case))
            elif case.family.name not in _ABOUT_WRAPPERS:
                self.others.append((item, case))

    def has_finding(self, item: Item, case: AnyCase) -> bool:
        """Returns whether a case has a finding in the unchanged kernel, and thus says nothing about a mutant."""
        key = item.group.name, case.id
        if key not in self.findings:
            self.cache.batch.cases = {}
            self.cache.process.begin_case(item.name, case)
            verdict = run_case(item, case, self.cache).record.verdict
            self.findings[key] = verdict.is_finding or verdict is Verdict.INTERNAL_ERROR
        return self.findings[key]


# A trial in progress: cases run on a mutant until one finds it.

_KILLS = frozenset({VerdictKind.VALUES, VerdictKind.MEMORY})
_ALSO_KILL = frozenset({Verdict.HANG, Verdict.CRASH})

# Cases of a signature that a backend other than the interpreter runs although their values are the kernel's: they show
# wrong uses of memory, which follow from the signature alone unless addresses depend on values.
_OF_THE_SAME = 2


@dataclass(slots=True)
class RunningTrial:
    """A trial in progress."""

    mutant: KernelMutant
    kills: Counter[tuple[Signature, str]]  # the number of mutants found so far, by signature and family
    kill: Kill | None = None
    cases: int = 0  # number of cases so far
    problem: str = ""  # why the mutant cannot be made or does not run; "" so far
    passed: bool = False  # whether a case passed
    difference: tuple[float, str] = (0.0, "")  # the largest difference so far, and where it is
    same: set[str] = field(default_factory=set)  # the ids of cases that have the same bits as the kernel's
    is_evaluated: bool = False  # whether its results were compared with the kernel's
    is_unknown: bool = False  # whether they could not be compared in some case
    deeper: str = ""  # where they differ at the next depth; "" if they do not, or if that is not known
    disregarded: set[str] = field(default_factory=set)  # the cases that have a finding in the unchanged kernel
    started: float = field(default_factory=time.perf_counter)

    def run_values(self, part: KernelCases, cache: Cache, tracer: MutantTracer) -> bool:
        """Runs the cases whose values differ from the kernel's; returns whether the trial is over."""
        times: Counter[Signature] = Counter()
        for (signature, _), count in self.kills.items():
            times[signature] += count
        # The longest signatures take the longest.
        lengths = {signature: signature.volume for signature in part.values}
        for signature in sorted(part.values, key=lambda each: (-times[each], lengths[each])):
            group = part.values[signature]
            item, _ = group.pairs[0]
            traced = cache.traces.of(item.pairing, signature, item.backend)
            if tracer.problem:
                self.problem = tracer.problem
                return True
            if traced not in tracer.changed:
                continue
            self.passed = True
            pairs: Sequence[tuple[Item, AnyCase]] = group.pairs
            if isinstance(part.backend, EvaluatedInterpret):
                try:
                    differing = list(group.differing(part.cache, tracer.changed[traced], cache, traced))
                except Failure as hang:
                    _, case = group.pairs[0]
                    names = part.backend.id, part.dtype, item.group.name, case.family.name, str(signature)
                    self.kill = Kill(*names, str(hang.verdict))
                    return True
                self.is_evaluated = True
                for (_, case), size in differing:
                    if size is None:
                        self.is_unknown = True
                    else:
                        self.difference = max(self.difference, (size, f"{case.family.name}, {signature}"))
                pairs = [pair for pair, _ in differing]
                self.same.update(case.id for _, case in group.pairs)
                self.same.difference_update(case.id for _, case in pairs)
            elif all(is_float(leaf.dtype) for leaf in traced.inputs):  # addresses may depend on others
                same = [pair for pair in pairs if pair[1].id in self.same]
                pairs = [pair for pair in pairs if pair[1].id not in self.same] + same[:_OF_THE_SAME]
            cache.batch.cases = {signature: [case for _, case in pairs]}
            for pair in sorted(pairs, key=lambda pair: -self.kills[signature, pair[1].family.name]):
                if self.run(*pair, part, cache):
                    return True
        return False

    def run_others(self, part: KernelCases, cache: Cache, tracer: MutantTracer) -> bool:
        """Runs the other cases; returns whether the trial is over."""
        for item, case in part.others:
            try:
                traced = cache.traces.of(item.pairing, case.signature, item.backend)
            except Failure:
                continue
            if (traced in tracer.changed or case.family.name == "gradient") and self.run(item, case, part, cache):
                return True
        return False

    def run(self, item: Item, case: AnyCase, part: KernelCases, cache: Cache) -> bool:
        """Runs a case; returns whether the trial is over."""
        place = f"{part.backend.id}, {part.dtype}, {item.group.name}, {case.id}"
        if part.findings.get((item.group.name, case.id)):
            self.disregarded.add(place)
            return False
        self.cases += 1
        cache.process.begin_case(item.name, case)
        record = run_case(item, case, cache).record
        is_kill = record.verdict.kind in _KILLS or record.verdict in _ALSO_KILL
        is_problem = record.verdict.is_finding or record.verdict is Verdict.INTERNAL_ERROR
        if (is_kill or is_problem) and part.has_finding(item, case):
            self.disregarded.add(place)
            return False
        if is_kill:
            self.kills[case.signature, case.family.name] += 1
            names = record.backend, part.dtype, record.group, record.family, record.signature
            self.kill = Kill(*names, str(record.verdict))
            return True
        self.passed = self.passed or record.verdict is Verdict.PASS
        if is_problem:
            self.problem = record.message.partition("\n")[0]
            return True
        return False

    def end(self) -> Trial:
        end, note = self._conclude()
        seconds = time.perf_counter() - self.started
        return Trial(self.mutant, end, self.kill, self.cases, seconds, note, tuple(sorted(self.disregarded)))

    def _conclude(self) -> tuple[TrialEnd, str]:
        if self.kill is not None:
            return TrialEnd.KILLED, ""
        if self.problem or not self.passed:
            return TrialEnd.INVALID, self.problem or "none of its cases ran"
        size, where = self.difference
        if where:
            return TrialEnd.SURVIVED, f"its results differ by up to {size:.1e} of the largest one ({where})"
        if self.deeper:
            note = f"its results differ in no planned case, but do at the next depth: {self.deeper}"
            return TrialEnd.SURVIVED, note
        is_known = self.is_evaluated and not self.is_unknown
        return (TrialEnd.EQUIVALENT if is_known else TrialEnd.UNDECIDED), ""


BACKENDS = "interpret,interpret-tpu,interpret-mosaic-gpu,simulate:sm_90"

# Kernels that refuse arguments do so while they are traced, before any equation. Proofs trace kernels themselves. Drawn
# cases are not known before they run.
_LEFT_OUT = frozenset({GroupName.REJECTIONS, GroupName.PROOFS, GroupName.DRAWN})

# They test the code around the calls: rules for `jax.vmap`, and state that it keeps between calls.
_ABOUT_WRAPPERS = frozenset({"plain_call", "vmapped", "vmapped_first", "vmapped_others"})


class UnfitPairingError(Exception):
    """The mutants of a pairing cannot be judged. The message says why."""


def plan_items(
    pairing: Pairing, pairing_id: str, backends: str = BACKENDS, depth: str = "quick", journal: Journal | None = None
) -> list[Item]:
    """Returns the items of a pairing that can judge mutants of its kernel, ordered by backend.

    `backends` are ids or patterns, separated by commas; those that do not apply or are missing are left out. A journal
    notes the steps, for whoever limits their time. Raises an UnfitPairingError if no case runs on any of the backends.
    """
    chosen = resolve(backends.split(","))
    plan = plan_pairing(pairing, pairing_id, chosen, RunSettings(depth=depth), journal)
    if items := fit_items(plan.items, [backend.id for backend in chosen]):
        return items
    absent = (item.backend.unavailable() for item in plan.items)
    reasons = "; ".join(filter(None, dict.fromkeys([*(each.reason for each in plan.not_applicable), *absent])))
    raise UnfitPairingError(plan.problem or reasons or "none of its cases runs here")


def fit_items(items: Collection[Item], backends: Sequence[str]) -> list[Item]:
    """Returns the items that can judge mutants on some backends, ordered by backend."""
    fit = [
        item
        for item in items
        if item.backend.id in backends and item.group.name not in _LEFT_OUT and not item.backend.unavailable()
    ]
    return sorted(fit, key=lambda item: backends.index(item.backend.id))


class MutationSession:
    """A pairing, ready to judge mutants of its kernel.

    The items are those of `plan_items`. The oracle's results of a cache with which they were `judged` are used. A
    journal notes evaluations, for whoever limits their time.
    """

    def __init__(self, items: Sequence[Item], judged: Cache | None = None, journal: Journal | None = None) -> None:
        self._journal = journal or Journal()
        self.pairing = items[0].pairing.origin
        self._kills: Counter[tuple[Signature, str]] = Counter()
        self._parts: list[KernelCases] = []
        self._planned = items[0]
        self._judged = judged
        with without_debugging():
            for item in items:
                is_evaluated = item.backend.id == "interpret"
                self._add(self._parts, replace(item, backend=EvaluatedInterpret("interpret")) if is_evaluated else item)

    def _add(self, parts: list[KernelCases], item: Item) -> None:
        part = next((p for p in parts if (p.dtype, p.backend.id) == (item.dtype, item.backend.id)), None)
        if part is None:
            part = self._make_part(parts, item)
            parts.append(part)
        part.add(item)

    def _make_part(self, parts: Sequence[KernelCases], item: Item) -> KernelCases:
        # Parts of one dtype share traces and the oracle's results.
        owner = id(item.pairing.kernel), id(item.pairing.oracle), item.dtype
        shared = next((p for p in parts if p.dtype == item.dtype), None)
        traces = shared.traces if shared is not None else LocatedTraces()
        cache = Cache(ProcessState(self._journal), owner=owner, tracer=traces)
        if shared is not None:
            known = shared.cache.expectations
            cache.expectations = Expectations(cache.process, known.cases, known.gradients)
        elif self._judged is not None and self._judged.owner == owner:
            known = self._judged.expectations
            cache.expectations = Expectations(cache.process, known.cases.copy(), known.gradients)
        return KernelCases(item.dtype, item.backend, traces, cache)

    def mutants(self, operators: Collection[Operator]) -> list[KernelMutant]:
        """Returns the mutants of the kernel and of the kernels that its gradient calls, ordered by place."""
        found: dict[KernelMutant, None] = {}
        with without_debugging():
            for part in self._parts:
                for traced in self._telling_traces(part):
                    found |= dict.fromkeys(find_mutants(traced.jaxpr, operators))
        return sorted(found)

    def _telling_traces(self, part: KernelCases) -> Iterator[Traced]:
        # Traces of the kernel, and of its gradient, that together have all of its equations.
        pairings = {group.pairs[0][1].signature: group.pairs[0][0].pairing for group in part.values.values()}
        pairings |= {case.signature: item.pairing for item, case in part.others}
        traced: dict[Signature, Traced] = {}
        chosen: Sequence[Signature] = ()
        while pairings:
            chosen = order_by_variety(self.pairing, list(pairings))[0] or list(pairings)
            for signature in chosen:
                try:
                    traced[signature] = part.cache.traces.of(pairings[signature], signature, part.backend)
                except Failure:  # told where its cases are judged
                    del pairings[signature]
            if all(signature in traced for signature in chosen):
                break
        yield from (traced[signature] for signature in chosen if signature in traced)
        gradients = [(item, case) for item, case in part.others if case.family.name == "gradient"]
        for item, case in sorted(gradients, key=lambda pair: pair[1].signature not in chosen):
            if case.signature in chosen or not part.cache.traces.variations("gradient"):
                part.has_finding(item, case)  # its trace is kept
        yield from part.cache.traces.variations("gradient")

    def run_kernel(self) -> None:
        for part in self._parts:
            for item, case in (*(pair for group in part.values.values() for pair in group.pairs), *part.others):
                part.has_finding(item, case)

    def judge(self, mutant: KernelMutant) -> Trial:
        """Runs cases on a mutant until one finds it; those that found earlier mutants come first."""
        trial = RunningTrial(mutant, self._kills)
        try:
            with without_debugging():
                self.run_cases(trial)
                if trial.is_evaluated and not (trial.kill or trial.problem or trial.difference[1]):
                    self._look_deeper(trial)
        finally:
            self._journal.stop()
        return trial.end()

    def run_cases(self, trial: RunningTrial) -> None:
        for part in self._parts:
            tracer = MutantTracer(part.traces, trial.mutant)
            own = part.cache
            cache = Cache(ProcessState(self._journal, pool=own.process.pool), tracer=tracer, owner=own.owner)
            cache.expectations = Expectations(cache.process, own.expectations.cases, own.expectations.gradients)
            cache.evidence.work = 0.0
            if trial.run_values(part, cache, tracer) or trial.run_others(part, cache, tracer):
                return

    def _look_deeper(self, trial: RunningTrial) -> None:
        # Without rounding, all dtypes compute the same, so only the first float dtype is compared that way.
        first: KernelCases | None = None  # that has float arguments
        for part in self._deeper:
            tracer = MutantTracer(part.traces, trial.mutant)
            cache = Cache(ProcessState(self._journal), tracer=tracer)
            for signature, group in part.values.items():
                item, _ = group.pairs[0]
                try:
                    original = part.traces.trace(item.pairing, signature, item.backend.platform)
                    traced = tracer.trace(item.pairing, signature, item.backend.platform)
                except Failure:
                    continue
                if traced in tracer.changed:
                    if first is None and any(is_float(leaf.dtype) for leaf in original.inputs):
                        first = part
                    with_wide = first is None or first is part
                    differing = group.differing(part.cache, original, cache, traced, with_wide=with_wide)
                    try:
                        for (_, case), size in differing:
                            if size is not None:
                                trial.deeper = f"by {size:.1e} of the largest one ({case.family.name}, {signature})"
                                return
                            trial.is_unknown = True
                    except Failure as hang:
                        trial.deeper = f"{hang} ({signature})"
                        return

    @functools.cached_property
    def _deeper(self) -> list[KernelCases]:
        planned = self._planned
        deeper = DEPTHS[DEPTHS.index(planned.depth) + 1 :] or DEPTHS[-1:]
        settings, backend = RunSettings(depth=deeper[0], seed=planned.seed), EvaluatedInterpret("interpret")
        plan = plan_pairing(self.pairing, planned.pairing_id, [backend], settings, self._journal)
        parts: list[KernelCases] = []
        for item in plan.items:
            if item.group.name in VALUES and not item.backend.unavailable():
                self._add(parts, item)
        return parts
