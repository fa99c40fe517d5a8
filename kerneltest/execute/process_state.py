"""The state of a process that runs items."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from kerneltest.core.failures import Failure
from kerneltest.execute.time_budget import TimeBudget
from kerneltest.records.journal import Journal


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
      device_lost: since when, or why, the device no longer responds; "" while it does.
    """

    journal: Journal = field(default_factory=Journal)
    planned: Collection[tuple[str, str, str]] = ()
    compiles_ahead: bool = True
    budget: TimeBudget | None = None
    abort: Callable[[str], None] | None = None
    internal_failures: list[Failure] = field(default_factory=list)
    device_lost: str = ""

    def take_internal_failures(self) -> list[Failure]:
        """Returns the internal failures so far, one for each line that raised, and forgets them."""
        distinct = {failure.detail.essence: failure for failure in self.internal_failures}
        self.internal_failures.clear()
        return list(distinct.values())
