"""A trial in progress: cases run on a mutant until one finds it."""

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from kerneltest.core.dtypes import is_float
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict, VerdictKind
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.runner import run_case
from kerneltest.extensions.mutation.kernel_cases import KernelCases
from kerneltest.extensions.mutation.kernel_mutants import KernelMutant
from kerneltest.extensions.mutation.mutant_tracer import EvaluatedInterpret, MutantTracer
from kerneltest.extensions.mutation.trial import Kill, Trial, TrialEnd
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import Signature
from kerneltest.trace.tracing import Traced

_KILLS = frozenset({VerdictKind.VALUES, VerdictKind.MEMORY})
_ALSO_KILL = frozenset({Verdict.HANG, Verdict.CRASH})

# Cases of a signature that a backend other than the interpreter runs although their values are the kernel's: they show
# wrong uses of memory, which follow from the signature alone unless addresses depend on values.
_OF_THE_SAME = 2


@dataclass(slots=True)
class RunningTrial:
    """A trial in progress.

    Attributes:
      mutant: the mutant.
      kills: the number of mutants found so far, by signature and family.
      kill: the first finding; None so far.
      cases: number of cases so far.
      problem: why the mutant cannot be made or does not run; "" so far.
      passed: whether a case passed.
      difference: the largest difference so far, and where it is.
      same: the ids of cases that have the same bits as the kernel's.
      is_evaluated: whether its results were compared with the kernel's.
      is_unknown: whether they could not be compared in some case.
      deeper: where they differ at the next depth; "" if they do not, or if that is not known.
      disregarded: the cases that have a finding in the unchanged kernel.
      started: when it began.
    """

    mutant: KernelMutant
    kills: Counter[tuple[Signature, str]]
    kill: Kill | None = None
    cases: int = 0
    problem: str = ""
    passed: bool = False
    difference: tuple[float, str] = (0.0, "")
    same: set[str] = field(default_factory=set)
    is_evaluated: bool = False
    is_unknown: bool = False
    deeper: str = ""
    disregarded: set[str] = field(default_factory=set)
    started: float = field(default_factory=time.perf_counter)

    @property
    def is_undistinguished(self) -> bool:
        """True if it ran, no case found it, and its results never differed from the kernel's."""
        return self.is_evaluated and self.kill is None and not self.problem and not self.difference[1]

    def run_values(self, part: KernelCases, cache: Cache, tracer: MutantTracer) -> bool:
        """Runs the cases whose values differ from the kernel's; returns whether the trial is over."""
        times: Counter[Signature] = Counter()
        for (signature, _), count in self.kills.items():
            times[signature] += count
        for signature in sorted(part.values, key=lambda each: (-times[each], _size(each))):
            group = part.values[signature]
            item, _ = group.pairs[0]
            traced = cache.trace_for(item.pairing, signature, item.backend)
            if tracer.problem:
                self.problem = tracer.problem
                return True
            if traced not in tracer.changed:
                continue
            self.passed = True
            pairs: Sequence[tuple[Item, AnyCase]] = group.pairs
            if isinstance(part.backend, EvaluatedInterpret):
                differing = list(group.differing(part.cache, tracer.changed[traced], cache, traced))
                self.is_evaluated = True
                for (_, case), size in differing:
                    if size is None:
                        self.is_unknown = True
                    else:
                        self.difference = max(self.difference, (size, f"{case.family.name}, {signature}"))
                pairs = [pair for pair, _ in differing]
                self.same.update(case.id for _, case in group.pairs)
                self.same.difference_update(case.id for _, case in pairs)
            elif not _reads_indices(traced):
                same = [pair for pair in pairs if pair[1].id in self.same]
                pairs = [pair for pair in pairs if pair[1].id not in self.same] + same[:_OF_THE_SAME]
            cache.group_cases = {signature: [case for _, case in pairs]}
            for pair in sorted(pairs, key=lambda pair: -self.kills[signature, pair[1].family.name]):
                if self.run(*pair, part, cache):
                    return True
        return False

    def run_others(self, part: KernelCases, cache: Cache, tracer: MutantTracer) -> bool:
        """Runs the other cases; returns whether the trial is over."""
        for item, case in part.others:
            try:
                traced = cache.trace_for(item.pairing, case.signature, item.backend)
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
        """Returns the trial."""
        end, note = self._conclude()
        seconds = time.perf_counter() - self.started
        return Trial(self.mutant, end, self.kill, self.cases, seconds, note, tuple(sorted(self.disregarded)))

    def _conclude(self) -> tuple[TrialEnd, str]:
        """Returns how the trial ends, and a note about that."""
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


def _size(signature: Signature) -> int:
    """Returns the product of a signature's lengths, an estimate of how long its cases take."""
    return math.prod(length for _, length in signature.dims)


def _reads_indices(traced: Traced) -> bool:
    """Returns whether an argument holds integers or booleans, on which the addresses of accesses may depend."""
    return any(not is_float(leaf.dtype) for leaf in traced.inputs)
