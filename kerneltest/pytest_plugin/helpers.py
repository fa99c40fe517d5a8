"""The helper processes of this one: idle processors judge cases of the running item ahead of their turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context

from pebble import ProcessFuture, ProcessPool

from kerneltest.core.targets import Tier
from kerneltest.execute.item import Item
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
from kerneltest.records.schema import Record

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
      passed: the records of those that passed, by case; None as long as the answer was not read.
    """

    item: Item
    ids: list[str]
    helper: _Helper | None
    answer: ProcessFuture[JudgedCases] | None = None
    passed: dict[str, Record] | None = None


class _Helper:
    """One helper process, which judges one chunk at a time."""

    def __init__(self, setup: HelperSetup) -> None:
        self._lock = threading.RLock()  # a callback runs at once if its future is done already
        self._queue: list[_Chunk] = []
        self._description = ""
        self._is_idle, self._is_stopped, self._is_ready = False, False, False
        self._pool = ProcessPool(max_workers=1, initializer=initialize, initargs=(setup,), context=get_context("spawn"))
        self._pool.schedule(is_ready, args=(setup.started,)).add_done_callback(self._on_ready)

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
            answer = self._pool.schedule(judge_cases, args=arguments)
        except Exception:  # of a pool whose process has died
            self._is_stopped = True
            return
        chunk.answer, self._is_idle = answer, False
        answer.add_done_callback(self._on_answer)

    def _on_answer(self, _: object) -> None:
        with self._lock:
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
            self._pool.stop()  # type: ignore[no-untyped-call]
            self._pool.join()


class Helpers:
    """Helper processes, each of which may judge its share of the signatures of an item.

    A helper's word counts for cases that pass; everything else this process judges itself. It takes over whatever no
    helper has begun.
    """

    def __init__(self, setup: HelperSetup, number: int, tiers: Collection[Tier]) -> None:
        """Starts the processes.

        Args:
          setup: of each.
          number: how many there are.
          tiers: of the backends whose cases they may judge.
        """
        self._tiers = tiers
        self._helpers = [_Helper(setup) for _ in range(number)]
        self._chunks: dict[tuple[str, Signature], _Chunk] = {}
        self._journal = Journal()

    def begin(self, parts: Sequence[Item], journal: Journal) -> None:
        """Distributes the cases of an item's groups, () for none; the journal counts what the processes do."""
        self._journal = journal
        self._chunks = {}
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

    def find_pass(self, group: str, case: AnyCase) -> Record | None:
        """Returns the record of a case that a helper has seen pass; None if this process has to judge it."""
        chunk = self._chunks.get((group, case.signature))
        if chunk is None or chunk.helper is None:
            return None
        if chunk.passed is None:
            chunk.passed = self._await(chunk, chunk.helper)
        return chunk.passed.get(case.id)

    def _await(self, chunk: _Chunk, helper: _Helper) -> dict[str, Record]:
        """Returns the records of a chunk, waiting for them if the helper was asked."""
        if helper.take(chunk) or chunk.answer is None:
            chunk.helper = None
            return {}
        try:
            judged = self._wait(chunk.answer)
        except Exception:  # it crashed or hangs; if the kernel is to blame, this process will see that
            helper.stop()
            return {}
        self._journal.add(judged.counts, judged.seconds)
        return {record.case: record for record in judged.passed}

    def _wait(self, answer: ProcessFuture[JudgedCases]) -> JudgedCases:
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
