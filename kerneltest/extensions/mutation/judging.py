"""Runs the cases of a pairing on mutants of its kernel, until one finds the mutant."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import is_float
from kerneltest.core.failures import Failure
from kerneltest.core.group_names import GroupName
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.settings import RunSettings
from kerneltest.extensions.mutation.differences import SignatureCases
from kerneltest.extensions.mutation.kernel_cases import VALUES, KernelCases
from kerneltest.extensions.mutation.kernel_mutants import KernelMutant, find_mutants
from kerneltest.extensions.mutation.mutant_tracer import EvaluatedInterpret, LocatedTraces, MutantTracer
from kerneltest.extensions.mutation.operators import Operator
from kerneltest.extensions.mutation.running_trial import RunningTrial
from kerneltest.extensions.mutation.trial import Trial
from kerneltest.plan.signatures import Signature, order_by_variety
from kerneltest.trace.tracing import Traced, without_debugging

BACKENDS = "interpret,interpret-tpu,interpret-mosaic-gpu,simulate:sm_90"

# Kernels that refuse arguments do so while they are traced, before any equation. Proofs trace kernels themselves. Drawn
# cases are not known before they run.
_LEFT_OUT = frozenset({GroupName.REJECTIONS, GroupName.PROOFS, GroupName.DRAWN})

# They test the code around the calls: rules for `jax.vmap`, and state that it keeps between calls.
_ABOUT_WRAPPERS = frozenset({"plain_call", "vmapped"})


_NEXT_DEPTH = {"quick": "standard", "standard": "deep", "deep": "deep"}


class UnfitPairingError(Exception):
    """The mutants of a pairing cannot be judged. The message says why."""


def plan_items(
    pairing: Pairing, pairing_id: str, backends: str = BACKENDS, depth: str = "quick", seed: int = 0
) -> list[Item]:
    """Returns the items of a pairing that can judge mutants of its kernel, ordered by backend.

    Args:
      pairing: the pairing whose kernel is mutated.
      pairing_id: its node id.
      backends: ids or patterns of backends, separated by commas; those that do not apply or are missing are left out.
      depth: the depth of the plan.
      seed: the seed of the plan.

    Raises:
      UnfitPairingError: none of its cases runs on any of the backends.
    """
    chosen = resolve(backends.split(","))
    plan = plan_pairing(pairing, pairing_id, chosen, RunSettings(depth=depth, seed=seed))
    if items := fit_items(plan.items, [backend.id for backend in chosen]):
        return items
    reasons = "; ".join(dict.fromkeys(each.reason for each in plan.not_applicable))
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

    Args:
      items: of the pairing, as `plan_items` returns them.
      judged: a cache with which they have been run; its oracle's results are used.

    Attributes:
      pairing: whose kernel is mutated.
    """

    def __init__(self, items: Sequence[Item], judged: Cache | None = None) -> None:
        self.pairing = items[0].pairing.origin
        self._kills: Counter[tuple[Signature, str]] = Counter()
        self._parts: list[KernelCases] = []
        self._deeper: list[KernelCases] | None = None  # made on first use
        self._planned = items[0]
        self._judged = judged
        with without_debugging():
            for item in items:
                is_evaluated = item.backend.id == "interpret"
                self._add(replace(item, backend=EvaluatedInterpret("interpret")) if is_evaluated else item)

    def _add(self, item: Item) -> None:
        """Keeps the cases of an item."""
        part = next((p for p in self._parts if (p.dtype, p.backend.id) == (item.dtype, item.backend.id)), None)
        if part is None:
            part = self._make_part(item)
            self._parts.append(part)
        for case in item.cases():
            if item.group.name in VALUES:
                part.values.setdefault(case.signature, SignatureCases()).pairs.append((item, case))
            elif case.family.name not in _ABOUT_WRAPPERS:
                part.others.append((item, case))

    def _make_part(self, item: Item) -> KernelCases:
        """Returns a part for the cases of an item's dtype and backend, which shares what those of the dtype have."""
        owner = id(item.pairing.kernel), id(item.pairing.oracle), item.dtype
        shared = next((p for p in self._parts if p.dtype == item.dtype), None)
        traces = shared.traces if shared is not None else LocatedTraces()
        cache = Cache(owner=owner, tracer=traces)
        if shared is not None:
            cache.expectations, cache.gradients = shared.cache.expectations, shared.cache.gradients
        elif self._judged is not None and self._judged.owner == owner:
            cache.expectations, cache.gradients = self._judged.expectations.copy(), self._judged.gradients
        return KernelCases(item.dtype, item.backend, traces, cache)

    def mutants(self, operators: Collection[Operator]) -> list[KernelMutant]:
        """Returns the mutants of the kernel and of the kernels that its gradient calls, ordered by place."""
        found: dict[KernelMutant, None] = {}
        with without_debugging():
            for part in self._parts:
                for traced in self._telling_traces(part):
                    found |= dict.fromkeys(find_mutants(traced.jaxpr.jaxpr, operators))
        return sorted(found)

    def _telling_traces(self, part: KernelCases) -> Iterator[Traced]:
        """Yields traces of the kernel, and of its gradient, that together have all of its equations."""
        pairings = {group.pairs[0][1].signature: group.pairs[0][0].pairing for group in part.values.values()}
        pairings |= {case.signature: item.pairing for item, case in part.others}
        traced: dict[Signature, Traced] = {}
        chosen: Sequence[Signature] = ()
        while pairings:
            chosen = order_by_variety(self.pairing, list(pairings))[0] or list(pairings)
            for signature in chosen:
                try:
                    traced[signature] = part.cache.trace_for(pairings[signature], signature, part.backend)
                except Failure:  # told where its cases are judged
                    del pairings[signature]
            if all(signature in traced for signature in chosen):
                break
        yield from (traced[signature] for signature in chosen if signature in traced)
        gradients = [(item, case) for item, case in part.others if case.family.name == "gradient"]
        for item, case in sorted(gradients, key=lambda pair: pair[1].signature not in chosen):
            if case.signature in chosen or not part.cache.variation_traces:
                part.has_finding(item, case)  # its trace is kept
        yield from (traced for (_, name), traced in part.cache.variation_traces.items() if name == "gradient")

    def run_kernel(self) -> None:
        """Runs all cases on the unchanged kernel."""
        for part in self._parts:
            cases = [*(pair for group in part.values.values() for pair in group.pairs), *part.others]
            for item, case in cases:
                part.has_finding(item, case)

    def judge(self, mutant: KernelMutant) -> Trial:
        """Runs cases on a mutant until one finds it; those that found earlier mutants come first."""
        trial = RunningTrial(mutant, self._kills)
        with without_debugging():
            self.run_cases(trial)
            if trial.is_undistinguished:
                self._look_deeper(trial)
        return trial.end()

    def run_cases(self, trial: RunningTrial) -> None:
        """Runs the cases of all parts on a trial's mutant until the trial is over."""
        for part in self._parts:
            tracer = MutantTracer(part.traces, trial.mutant)
            own = part.cache
            cache = Cache(tracer=tracer, expectations=own.expectations, gradients=own.gradients, pool=own.pool)
            cache.owner, cache.evidence_seconds = own.owner, 0.0
            if trial.run_values(part, cache, tracer) or trial.run_others(part, cache, tracer):
                return

    def _look_deeper(self, trial: RunningTrial) -> None:
        """Looks for a case of the next depth in which a mutant's bits differ from the kernel's.

        Without rounding, all dtypes compute the same, so only the first float dtype is compared that way.
        """
        if self._deeper is None:
            self._deeper = self._plan_deeper()
        first: KernelCases | None = None  # that has float arguments
        for part in self._deeper:
            tracer = MutantTracer(part.traces, trial.mutant)
            cache = Cache(tracer=tracer)
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
                    for (_, case), size in group.differing(
                        part.cache, original, cache, traced, with_wide=first is None or first is part
                    ):
                        if size is not None:
                            trial.deeper = f"by {size:.1e} of the largest one ({case.family.name}, {signature})"
                            return
                        trial.is_unknown = True

    def _plan_deeper(self) -> list[KernelCases]:
        planned = self._planned
        settings = RunSettings(depth=_NEXT_DEPTH[planned.depth], seed=planned.seed)
        plan = plan_pairing(self.pairing, planned.pairing_id, [EvaluatedInterpret("interpret")], settings)
        parts: dict[str, KernelCases] = {}
        for item in plan.items:
            if item.group.name in VALUES and not item.backend.unavailable():
                traces = LocatedTraces()
                made = KernelCases(item.dtype, item.backend, traces, Cache(tracer=traces))
                part = parts.setdefault(item.dtype, made)
                for case in item.cases():
                    part.values.setdefault(case.signature, SignatureCases()).pairs.append((item, case))
        return list(parts.values())
