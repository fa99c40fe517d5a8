"""Budgets of searches. They count work, so that a search ends at the same step in every run, on any machine.

Work is in seconds of one core, estimated from what is evaluated by the measured costs below, never measured itself.
Time ends only a search that takes far longer.
"""

import math
import time
from dataclasses import dataclass

EDITED, SIMULATED = 6e-4, 2e-3  # an edit of equations, and of lowered code
LOWERED, COMPILED = 0.025, 0.1  # a kernel for one signature
JUDGED = 5e-3  # a case, whose kernel is compiled
_PATIENCE = 30.0  # seconds that a second of work may take


def oracle_work(volume: int) -> float:
    """The work of evaluating an oracle, if its arguments have dims of a volume."""
    return 2e-4 + 2e-8 * volume


@dataclass(slots=True)
class WorkBudget:
    """The work that a search may do."""

    work: float = math.inf
    spent: float = 0.0
    is_cut: bool = False  # whether the search had to end early
    is_late: bool = False  # whether time ended it, so that another run may find more
    _started: float = math.inf  # when it was first asked whether it is over

    def spend(self, work: float) -> None:
        """Notes that work is done."""
        self.spent += work

    def is_over(self) -> bool:
        """Returns whether the search has to end. If time ends it, the work that it may do counts as done."""
        self._started = min(self._started, now := time.monotonic())
        if self.spent < self.work and now - self._started > _PATIENCE * self.work:
            self.spent, self.is_late = self.work, True
        self.is_cut |= self.spent >= self.work
        return self.spent >= self.work
