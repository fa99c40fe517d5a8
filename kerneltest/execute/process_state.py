"""The state of a process that runs items."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.time_budget import TimeBudget
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import Signature
from kerneltest.records.journal import Journal
from kerneltest.records.schema import Record


class CaseHelpers(Protocol):
    """Other processes that judge cases of the running item, and of the next ones."""

    def begin(self, parts: Sequence[Any], following: Iterable[str], journal: Journal) -> None:
        """Distributes the cases of an item's groups, () for none, and of the items that follow, by their names.

        The journal counts what the processes do.
        """
        ...

    def end(self) -> Mapping[tuple[str, str], str]:
        """Ends the item. Returns the digests of cases that other processes have judged, by group and case."""
        ...

    def arrange(self, group: str, planned: Sequence[AnyCase]) -> list[AnyCase]:
        """Returns the cases of a group in the order in which this process should come to them."""
        ...

    def may_judge(self, group: str, signature: Signature) -> bool:
        """Returns whether another process may judge the cases of a signature."""
        ...

    def find_record(self, group: str, case: AnyCase) -> Record | None:
        """Returns the record of a case that another process has judged; None if this one has to judge it."""
        ...

    def compare(self, group: str, case: AnyCase, verdict: Verdict) -> None:
        """Compares the verdict of this process with another's, which is believed only if they agree."""
        ...


@dataclass(slots=True)
class ProcessState:
    """The state of a process that runs items, apart from what their cases share.

    Attributes:
      journal: in which this process notes what it is doing.
      planned: pairing, backend and dtype of everything that the run does, so that one failure is reported once.
      compiles_ahead: whether to compile ahead of the cases. If not, kernels compile one at a time, so that a crash has
        a single possible cause.
      budget: time budget of the current item; None for no limit.
      abort: ends this process with a message so that its supervisor can restart it; None if it has no supervisor.
      internal_failures: exceptions of kerneltest outside of a verdict, such as in the evidence of a finding.
      helpers: processes that judge cases of the current item, too; None for none.
      digests: of the cases that were judged, by group and case, if the key of the item is made last; None if it is not.
      device_lost: since when, or why, the device no longer responds; "" while it does.
    """

    journal: Journal = field(default_factory=Journal)
    planned: Collection[tuple[str, str, str]] = ()
    compiles_ahead: bool = True
    budget: TimeBudget | None = None
    abort: Callable[[str], None] | None = None
    internal_failures: list[Failure] = field(default_factory=list)
    helpers: CaseHelpers | None = None
    digests: dict[tuple[str, str], str] | None = None
    device_lost: str = ""

    def take_internal_failures(self) -> list[Failure]:
        """Returns the internal failures so far, one for each line that raised, and forgets them."""
        distinct = {failure.detail.essence: failure for failure in self.internal_failures}
        self.internal_failures.clear()
        return list(distinct.values())
