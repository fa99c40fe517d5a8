"""The state of a process that runs items."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

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
      device_lost: since when, or why, the device no longer responds; "" while it does.
    """

    journal: Journal = field(default_factory=Journal)
    planned: Collection[tuple[str, str, str]] = ()
    compiles_ahead: bool = True
    budget: TimeBudget | None = None
    abort: Callable[[str], None] | None = None
    device_lost: str = ""
