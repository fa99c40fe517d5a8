"""The state of a process that runs items: its journal, its time, and its threads for compilations."""

import functools
import os
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar, TypeVarTuple

from kerneltest.core.failures import Failure
from kerneltest.core.processes import available_processors
from kerneltest.execute.time_budget import TimeBudget
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.journal import Journal, Phase

_T = TypeVar("_T")
_Arguments = TypeVarTuple("_Arguments")


def compiler_threads() -> int:
    """Returns the number of concurrent compilations: xdist workers share the processors equally."""
    return max(1, available_processors() // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


class CompilePool:
    """A pool of so many threads that do not keep the process alive, unlike those of `concurrent.futures`.

    A compilation that never returns therefore cannot prevent the process from exiting. `pending` counts calls.
    """

    def __init__(self, threads: int) -> None:
        self._slots = threading.Semaphore(threads)
        self._closed = False
        self._counting = threading.Lock()
        self.pending = 0

    def submit(self, function: Callable[[*_Arguments], _T], *arguments: *_Arguments) -> "Future[_T]":
        """Calls a function in a thread of its own, as soon as there is a free slot."""
        future: Future[_T] = Future()
        self._count(1)
        future.add_done_callback(lambda _: self._count(-1))
        call = functools.partial(function, *arguments)
        threading.Thread(target=self._run, args=(future, call), daemon=True).start()
        return future

    def abandon(self) -> None:
        """Frees the slot of a call that does not end."""
        self._slots.release()

    def close(self) -> None:
        """Cancels the calls that wait for a slot."""
        self._closed = True

    def _count(self, more: int) -> None:
        with self._counting:
            self.pending += more

    def _run(self, future: "Future[_T]", call: Callable[[], _T]) -> None:
        with self._slots:
            if self._closed or not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)


@dataclass(slots=True)
class ProcessState:
    """The state of a process that runs items, apart from what their cases share."""

    journal: Journal = field(default_factory=Journal)  # in which this process notes what it is doing
    # pairing, backend and dtype of everything that the run does, so that one failure is reported once
    planned: Collection[tuple[str, str, str]] = ()
    # whether to compile ahead of the cases. If not, kernels compile one at a time, so that a crash has a single
    # possible cause
    compiles_ahead: bool = True
    budget: TimeBudget | None = None  # time budget of the current item; None for no limit
    # ends this process with a message so that its supervisor can restart it; None if it has no supervisor
    abort: Callable[[str], None] | None = None
    # exceptions of kerneltest outside of a verdict, such as in the evidence of a finding
    internal_failures: list[Failure] = field(default_factory=list)
    device_lost: str = ""  # since when, or why, the device no longer responds; "" while it does
    pool: CompilePool = field(default_factory=lambda: CompilePool(compiler_threads()))  # compiles in threads

    def take_internal_failures(self) -> list[Failure]:
        """Returns the internal failures so far, one for each line that raised, and forgets them."""
        distinct = {failure.detail.essence: failure for failure in self.internal_failures}
        self.internal_failures.clear()
        return list(distinct.values())

    def begin_case(self, item: str, case: AnyCase) -> None:
        """Notes in the journal that a case begins."""
        self.journal.start(item, case.id, case.family.name, str(case.signature), self.pool.pending)

    def enter_phase(self, phase: Phase, *, is_waiting: bool = False, others: int = 0) -> None:
        """Notes in the journal that the case, with some others, enters a phase, or waits for a compilation itself."""
        self.journal.enter_phase(phase, self.pool.pending - is_waiting + others)

    @contextmanager
    def in_phase(self, phase: Phase) -> Iterator[None]:
        """Notes in the journal that the case enters a phase, and afterwards that it is in the one before again."""
        before = self.journal.phase
        self.enter_phase(phase)
        try:
            yield
        finally:
            self.enter_phase(before)
