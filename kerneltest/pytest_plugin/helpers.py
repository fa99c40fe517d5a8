"""The helper processes of this one: idle processors judge cases of the running item ahead of their turn."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Collection, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import active_children, get_context

from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.item import Item, Outcome
from kerneltest.execute.value_groups import ValueGroup
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import Signature
from kerneltest.pytest_plugin.helper_process import (
    HelperSetup,
    JudgedCases,
    describe,
    initialize,
    is_ready,
    judge_cases,
)
from kerneltest.records.journal import Journal

_PATIENCE = 20.0  # seconds for the cases of one signature; a helper that takes longer hangs
_EVERY = 0.5  # seconds between two signs of life


@dataclass(slots=True, eq=False)
class _Chunk:
    """The cases of one signature in one group.

    Attributes:
      item: their item.
      ids: of the cases.
      helper: the one that may judge them; None once this process must.
      answer: what the helper answers; None as long as it was not asked.
      outcomes: what it has found, by case; None as long as the answer was not read.
    """

    item: Item
    ids: list[str]
    helper: _Helper | None
    answer: Future[JudgedCases] | None = None
    outcomes: dict[str, Outcome] | None = None


class _Helper:
    """One helper process, which judges one chunk at a time."""

    def __init__(self, setup: HelperSetup, method: str) -> None:
        self._lock = threading.RLock()  # a callback runs at once if its future is done already
        self._queue: list[_Chunk] = []
        self._description = ""
        self._is_idle, self._is_stopped, self._is_ready = False, False, False
        self._pool = ProcessPoolExecutor(1, get_context(method), initialize, (setup,))
        others = active_children()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # other threads hold no lock that a helper needs
            ready = self._pool.submit(is_ready, setup.started)
        (self._process,) = (each for each in active_children() if each not in others)
        ready.add_done_callback(self._on_ready)

    def _on_ready(self, ready: Future[bool]) -> None:
        with suppress(Exception), self._lock:  # it could not start, so it stays busy
            self._is_ready = self._is_idle = ready.result()
            self._ask()

    @property
    def is_usable(self) -> bool:
        """True if its process is ready to judge cases and was not stopped."""
        return self._is_ready and not self._is_stopped

    def begin(self, chunks: Sequence[_Chunk], description: str) -> None:
        """Replaces the chunks to judge, the last of which is judged first."""
        with self._lock:
            self._queue, self._description = list(chunks), description
            self._ask()

    def _ask(self) -> None:
        """Sends the next chunk if the process is idle."""
        if not (self._is_idle and self._queue) or self._is_stopped:
            return
        chunk = self._queue.pop()
        arguments = chunk.item.name, chunk.item.group.name, chunk.ids, self._description
        try:
            answer = self._pool.submit(judge_cases, *arguments)
        except Exception:  # of a pool whose process has died
            self._is_stopped = True
            return
        chunk.answer, self._is_idle = answer, False
        answer.add_done_callback(self._on_answer)

    def _on_answer(self, answer: Future[JudgedCases]) -> None:
        with self._lock:
            # A pool whose process has died waits for ever if it is asked from here.
            self._is_stopped |= answer.cancelled() or isinstance(answer.exception(), BrokenExecutor)
            self._is_idle = True
            self._ask()

    def take(self, chunk: _Chunk) -> bool:
        """Takes a chunk back; returns False if the process was asked already."""
        with self._lock:
            if chunk.answer is not None:
                return False
            with suppress(ValueError):
                self._queue.remove(chunk)
            return True

    def stop(self) -> None:
        """Ends the process at once."""
        with self._lock:
            self._queue.clear()
            self._is_stopped = True
        with suppress(Exception):  # whatever becomes of it, it ends with this process
            self._process.kill()
            self._pool.shutdown(cancel_futures=True)


class Helpers:
    """Helper processes, each of which may judge its share of the signatures of an item.

    A helper's word counts for cases that pass, and for wrong values once this process has found them in one of its
    cases as well. Everything else this process judges itself, and whatever no helper has begun.
    """

    def __init__(self, setup: HelperSetup, number: int, tiers: Collection[Tier], method: str) -> None:
        """Starts the processes.

        Args:
          setup: of each.
          number: how many there are.
          tiers: of the backends whose cases they may judge.
          method: of `multiprocessing`: `fork` or `spawn`.
        """
        self._tiers = tiers
        self._helpers = [_Helper(setup, method) for _ in range(number)]
        self._chunks: dict[tuple[str, Signature], _Chunk] = {}
        self._agreed: dict[_Helper, bool] = {}  # whether this process has found the same wrong values
        self._journal = Journal()

    def begin(self, parts: Sequence[Item], journal: Journal) -> None:
        """Distributes the cases of an item's groups, () for none; the journal counts what the processes do."""
        self._journal, self._chunks, self._agreed = journal, {}, {}
        if not parts or parts[0].backend.tier not in self._tiers or parts[0].backend.unavailable():
            parts = ()
        order: dict[Signature, int] = {}
        for part in parts:
            if not isinstance(part.group, ValueGroup):
                continue
            for case in part.cases():
                turn = order.setdefault(case.signature, len(order)) % (len(self._helpers) + 1)
                if turn:
                    made = _Chunk(part, [], self._helpers[turn - 1])
                    self._chunks.setdefault((part.group.name, case.signature), made).ids.append(case.id)
        description = describe(parts[0]) if self._chunks else ""
        in_turn = [chunk for part in reversed(parts) for chunk in self._chunks.values() if chunk.item is part]
        for helper in self._helpers:
            helper.begin([chunk for chunk in in_turn if chunk.helper is helper], description)

    def arrange(self, group: str, planned: Sequence[AnyCase]) -> list[AnyCase]:
        """Returns the cases of a group with those last that a helper may judge meanwhile."""
        return sorted(planned, key=lambda case: (group, case.signature) in self._chunks)

    def may_judge(self, group: str, signature: Signature) -> bool:
        """Returns whether a helper that is ready may judge the cases of a signature."""
        chunk = self._chunks.get((group, signature))
        return chunk is not None and chunk.helper is not None and chunk.helper.is_usable

    def find_outcome(self, group: str, case: AnyCase) -> Outcome | None:
        """Returns what a helper has found for a case; None if this process has to judge it.

        It judges itself the first case in which a helper finds wrong values, and believes the helper if it agrees.
        """
        chunk = self._chunks.get((group, case.signature))
        if chunk is None or chunk.helper is None:
            return None
        if chunk.outcomes is None:
            chunk.outcomes = self._await(chunk, chunk.helper)
        outcome = chunk.outcomes.get(case.id)
        if outcome is None or outcome.record.verdict is Verdict.PASS or self._agreed.get(chunk.helper):
            return outcome
        return None

    def compare(self, group: str, case: AnyCase, outcome: Outcome) -> None:
        """Learns what this process has found for a case."""
        chunk = self._chunks.get((group, case.signature))
        if chunk is None or chunk.helper is None or not chunk.outcomes or case.id not in chunk.outcomes:
            return
        verdict, own = chunk.outcomes[case.id].record.verdict, outcome.record.verdict
        if verdict is not Verdict.PASS or own is not Verdict.PASS:
            self._agreed[chunk.helper] = self._agreed.get(chunk.helper, True) and verdict is own

    def _await(self, chunk: _Chunk, helper: _Helper) -> dict[str, Outcome]:
        """Returns the outcomes of a chunk, waiting for them if the helper was asked."""
        if helper.take(chunk) or chunk.answer is None:
            chunk.helper = None
            return {}
        try:
            judged = self._wait(chunk.answer)
        except Exception:  # it crashed or hangs; if the kernel is to blame, this process will see that
            helper.stop()
            return {}
        self._journal.add(judged.counts, judged.seconds)
        return {each.record.case: each for each in judged.outcomes}

    def _wait(self, answer: Future[JudgedCases]) -> JudgedCases:
        """Returns an answer, as long as it comes in time.

        Raises:
          TimeoutError: it does not.
        """
        ends = time.monotonic() + _PATIENCE
        while True:
            self._journal.keep_alive()  # the watchdog is not about helpers
            try:
                return answer.result(timeout=_EVERY)
            except TimeoutError:
                if time.monotonic() > ends:
                    raise

    def close(self) -> None:
        """Ends the processes."""
        for helper in self._helpers:
            helper.stop()
