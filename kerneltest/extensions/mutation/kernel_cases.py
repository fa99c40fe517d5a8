"""The cases of a pairing in one dtype on one backend, with what all mutants of its kernel share."""

from dataclasses import dataclass, field

from kerneltest.backends.base import Backend
from kerneltest.core.group_names import GroupName
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.runner import run_case
from kerneltest.extensions.mutation.differences import SignatureCases
from kerneltest.extensions.mutation.mutant_tracer import LocatedTraces
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import Signature

VALUES = frozenset({GroupName.STRUCTURAL, GroupName.NUMERIC, GroupName.SPECIAL, GroupName.MASKS})


@dataclass(slots=True)
class KernelCases:
    """The cases of a pairing in one dtype on one backend, with what its mutants share.

    Attributes:
      dtype, backend: the dtype and the backend of the cases.
      traces: the kernel's traces.
      cache: a cache with the oracle's results.
      values: the cases of each signature that compare values of the kernel as it is called.
      others: all other cases, mainly those of invariants.
      findings: by group and id, whether a case has a finding in the unchanged kernel, if it has run there.
    """

    dtype: str
    backend: Backend
    traces: LocatedTraces
    cache: Cache
    values: dict[Signature, SignatureCases] = field(default_factory=dict)
    others: list[tuple[Item, AnyCase]] = field(default_factory=list)
    findings: dict[tuple[str, str], bool] = field(default_factory=dict)

    def has_finding(self, item: Item, case: AnyCase) -> bool:
        """Returns whether a case has a finding in the unchanged kernel, and thus says nothing about a mutant."""
        key = item.group.name, case.id
        if key not in self.findings:
            self.cache.group_cases = {}
            verdict = run_case(item, case, self.cache).record.verdict
            self.findings[key] = verdict.is_finding or verdict is Verdict.INTERNAL_ERROR
        return self.findings[key]
