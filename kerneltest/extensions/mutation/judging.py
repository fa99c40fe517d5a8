"""Runs the cases of a pairing on mutants of its kernel, until one finds the mutant."""

from collections import Counter
from collections.abc import Collection

from kerneltest.backends.registry import resolve
from kerneltest.core.failures import Failure
from kerneltest.core.group_names import GroupName
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_item
from kerneltest.execute.settings import RunSettings
from kerneltest.extensions.mutation.differences import SignatureCases
from kerneltest.extensions.mutation.kernel_cases import VALUES, KernelCases, reads_indices
from kerneltest.extensions.mutation.kernel_mutants import KernelMutant, find_mutants
from kerneltest.extensions.mutation.mutant_tracer import EvaluatedInterpret, LocatedTraces, MutantTracer
from kerneltest.extensions.mutation.operators import Operator
from kerneltest.extensions.mutation.running_trial import RunningTrial
from kerneltest.extensions.mutation.trial import Trial
from kerneltest.plan.signatures import Signature, order_by_variety
from kerneltest.trace.tracing import without_debugging

BACKENDS = "interpret,interpret-tpu,interpret-mosaic-gpu,simulate:sm_90"

# Kernels that refuse arguments do so while they are traced, before any equation; drawn cases are not planned.
_LEFT_OUT = frozenset({GroupName.REJECTIONS, GroupName.DRAWN})

# They test the code around the calls: rules for `jax.vmap`, and state that it keeps between calls.
_ABOUT_WRAPPERS = frozenset({"plain_call", "vmapped"})


_NEXT_DEPTH = {"quick": "standard", "standard": "deep", "deep": "deep"}


class UnfitPairingError(Exception):
    """The mutants of a pairing cannot be judged. The message says why."""


class MutationSession:
    """A pairing, ready to judge mutants of its kernel.

    Args:
      pairing: the pairing whose kernel is mutated.
      pairing_id: its node id.
      backends: ids or patterns of backends, separated by commas; those that do not apply or are missing are left out.
      depth: the depth of the plan.
      seed: the seed of the plan.

    Attributes:
      pairing: the same.
      findings: messages of the cases with findings in the unchanged kernel, which are not used to judge mutants.
      cases: the number of planned cases.

    Raises:
      UnfitPairingError: none of its cases runs on any of the backends.
    """

    def __init__(
        self, pairing: Pairing, pairing_id: str, backends: str = BACKENDS, depth: str = "quick", seed: int = 0
    ) -> None:
        self.pairing = pairing
        self.findings: list[str] = []
        self.cases = 0
        self._kills: Counter[tuple[Signature, str]] = Counter()
        self._parts: list[KernelCases] = []
        self._deeper: list[KernelCases] | None = None  # made on first use
        self._pairing_id, self._depth, self._seed = pairing_id, depth, seed
        chosen = [EvaluatedInterpret(b.id) if b.id == "interpret" else b for b in resolve(backends.split(","))]
        plan = plan_pairing(pairing, pairing_id, chosen, RunSettings(depth=depth, seed=seed))
        with without_debugging():
            for item in sorted(
                plan.items, key=lambda item: chosen.index(item.backend) if item.backend in chosen else 99
            ):
                if not item.backend.unavailable() and item.group.name not in _LEFT_OUT:
                    self._add(item)
        if not self.cases:
            reasons = "; ".join(dict.fromkeys(each.reason for each in plan.not_applicable))
            raise UnfitPairingError(plan.problem or reasons or "none of its cases runs here")

    def _add(self, item: Item) -> None:
        """Runs an item of the kernel itself, and keeps its cases."""
        part = next((p for p in self._parts if (p.dtype, p.backend) == (item.dtype, item.backend)), None)
        if part is None:
            shared = next((p for p in self._parts if p.dtype == item.dtype), None)
            traces = shared.traces if shared is not None else LocatedTraces()
            cache = Cache(tracer=traces, expectations=shared.cache.expectations if shared is not None else {})
            cache.owner = id(item.pairing.kernel), id(item.pairing.oracle), item.dtype
            part = KernelCases(item.dtype, item.backend, traces, cache, reads_indices(item.pairing))
            self._parts.append(part)
        for outcome in run_item(item, part.cache):
            record = outcome.record
            if record.verdict.is_finding or record.verdict is Verdict.INTERNAL_ERROR:
                part.known.add((item.group.name, record.case))
                self.findings.append(f"{record.backend}, {record.family}, {record.signature}: {record.message}")
        for case in item.cases():
            self.cases += 1
            if item.group.name in VALUES:
                part.values.setdefault(case.signature, SignatureCases()).pairs.append((item, case))
            elif case.family.name not in _ABOUT_WRAPPERS:
                part.others.append((item, case))

    def mutants(self, operators: Collection[Operator]) -> list[KernelMutant]:
        """Returns the mutants of the kernel and of the kernels that its gradient calls, ordered by place."""
        found: dict[KernelMutant, None] = {}
        for part in self._parts:
            signatures = {signature: traced for (signature, _), traced in part.traces.plain.items()}
            telling, _ = order_by_variety(self.pairing, list(signatures))
            traced = [signatures[signature] for signature in telling or signatures]
            gradients = [t for (_, name), t in part.cache.variation_traces.items() if name == "gradient"]
            for each in (*traced, *gradients):
                found |= dict.fromkeys(find_mutants(each.jaxpr.jaxpr, operators))
        return sorted(found)

    def judge(self, mutant: KernelMutant) -> Trial:
        """Runs cases on a mutant until one finds it; those that found earlier mutants come first."""
        trial = RunningTrial(mutant, self._kills)
        with without_debugging():
            for part in self._parts:
                tracer = MutantTracer(part.traces, mutant)
                cache = Cache(tracer=tracer, expectations=part.cache.expectations, pool=part.cache.pool)
                cache.owner, cache.evidence_seconds = part.cache.owner, 0.0
                if trial.run_values(part, cache, tracer) or trial.run_others(part, cache, tracer):
                    break
            if trial.is_undistinguished:
                self._look_deeper(trial)
        return trial.end()

    def _look_deeper(self, trial: RunningTrial) -> None:
        """Looks for a case of the next depth in which a mutant's bits differ from the kernel's."""
        if self._deeper is None:
            self._deeper = self._plan_deeper()
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
                    for (_, case), size in group.differing(part.cache, original, cache, traced):
                        if size is not None:
                            trial.deeper = f"by {size:.1e} of the largest one ({case.family.name}, {signature})"
                            return
                        trial.is_unknown = True

    def _plan_deeper(self) -> list[KernelCases]:
        settings = RunSettings(depth=_NEXT_DEPTH[self._depth], seed=self._seed)
        plan = plan_pairing(self.pairing, self._pairing_id, [EvaluatedInterpret("interpret")], settings)
        parts: dict[str, KernelCases] = {}
        for item in plan.items:
            if item.group.name in VALUES and not item.backend.unavailable():
                traces = LocatedTraces()
                made = KernelCases(item.dtype, item.backend, traces, Cache(tracer=traces), reads_indices(item.pairing))
                part = parts.setdefault(item.dtype, made)
                for case in item.cases():
                    part.values.setdefault(case.signature, SignatureCases()).pairs.append((item, case))
        return list(parts.values())
