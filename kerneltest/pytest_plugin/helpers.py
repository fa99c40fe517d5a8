"""The helper processes of this one: idle processors judge cases of the running item ahead of their turn."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.item import Item
from kerneltest.execute.value_groups import ValueGroup
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import Signature
from kerneltest.pytest_plugin.helper_process import HelperSetup, JudgedCases, describe, serve
from kerneltest.records.journal import Journal
from kerneltest.records.schema import Record

if TYPE_CHECKING:  # Windows has no fork
    from multiprocessing.context import ForkContext, SpawnContext

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
      records: what it has found, by case; None as long as the answer was not read.
    """

    item: Item
    ids: list[str]
    helper: _Helper | None
    answer: Future[JudgedCases] | None = None
    records: dict[str, Record] | None = None


class _Helper:
    """One helper process, which judges one chunk at a time.

    It is no pool of `concurrent.futures`, since that waits for ever if its process is killed while it answers.
    """

    def __init__(self, setup: HelperSetup, context: ForkContext | SpawnContext) -> None:
        self._lock = threading.Lock()
        self._queue: list[_Chunk] = []
        self._asked: Future[JudgedCases] | None = None
        self._description = ""
        self._is_stopped, self._is_ready = False, False
        self._connection, its_own = context.Pipe()
        self._process = context.Process(target=serve, args=(its_own, setup), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside other threads
            self._process.start()
        its_own.close()  # so that the end of the process is the end of the connection

    def listen(self) -> None:
        """Begins to read what the process answers, in a thread, which a later fork would lack."""
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with suppress(Exception):  # the process has ended
            is_ready = self._connection.recv()
            with self._lock:
                self._is_ready = is_ready
                self._ask()
            while True:
                judged = self._connection.recv()
                with self._lock:
                    answered, self._asked = self._asked, None
                    self._ask()
                if answered is not None:
                    answered.set_result(judged)
        with self._lock:
            self._is_stopped = True
            if self._asked is not None:
                self._asked.set_exception(EOFError("the helper has ended"))

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
        if not (self.is_usable and self._queue) or self._asked is not None:
            return
        chunk = self._queue.pop()
        try:
            self._connection.send((chunk.item.name, chunk.item.group.name, chunk.ids, self._description))
        except OSError:  # the process has ended
            self._is_stopped = True
            return
        self._asked = chunk.answer = Future()

    def take(self, chunk: _Chunk) -> bool:
        """Takes a chunk back; returns False if the process was asked already."""
        with self._lock:
            if chunk.answer is not None:
                return False
            with suppress(ValueError):
                self._queue.remove(chunk)
            return True

    def dismiss(self) -> None:
        """Lets the process end once it has collected, before it judges anything."""
        with self._lock, suppress(OSError):
            self._is_stopped = True
            self._connection.send(None)

    def stop(self) -> None:
        """Ends the process at once."""
        with self._lock:
            self._queue.clear()
            self._is_stopped = True
        self._process.kill()
        self._process.join()


class Helpers:
    """Helper processes, each of which may judge its share of the signatures of an item.

    A helper's word counts for cases that pass, and for wrong values once this process has found them in one of its
    cases as well. Everything else this process judges itself, and whatever no helper has begun.
    """

    def __init__(
        self, setup: HelperSetup, number: int, tiers: Collection[Tier], context: ForkContext | SpawnContext
    ) -> None:
        """Starts the processes.

        Args:
          setup: of each.
          number: how many there are.
          tiers: of the backends whose cases they may judge.
          context: of `multiprocessing`, which forks or spawns them.
        """
        self._tiers = tiers
        self._helpers: list[_Helper] = []
        try:
            for _ in range(number):
                self._helpers.append(_Helper(setup, context))
        except BaseException:
            self.close()
            raise
        for helper in self._helpers:
            helper.listen()
        self._chunks: dict[tuple[str, Signature], _Chunk] = {}
        self._agreed: set[tuple[_Helper, Verdict]] = set()  # what this process has found as well
        self._contradicted: set[_Helper] = set()
        self._journal = Journal()

    def begin(self, parts: Sequence[Item], journal: Journal) -> None:
        """Distributes the cases of an item's groups, () for none; the journal counts what the processes do."""
        self._journal, self._chunks = journal, {}
        self._agreed.clear()
        self._contradicted.clear()
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

    def find_record(self, group: str, case: AnyCase) -> Record | None:
        """Returns what a helper has found for a case; None if this process has to judge it.

        It judges itself the first case in which a helper finds wrong values, and believes the helper if it agrees.
        """
        chunk = self._chunks.get((group, case.signature))
        if chunk is None or chunk.helper is None or chunk.helper in self._contradicted:
            return None
        if chunk.records is None:
            chunk.records = self._await(chunk, chunk.helper)
        record = chunk.records.get(case.id)
        if record is None or record.verdict is Verdict.PASS or (chunk.helper, record.verdict) in self._agreed:
            return record
        return None

    def compare(self, group: str, case: AnyCase, verdict: Verdict) -> None:
        """Learns the verdict of this process: a helper that it contradicts is not believed any more."""
        chunk = self._chunks.get((group, case.signature))
        if chunk is None or chunk.helper is None or not chunk.records or case.id not in chunk.records:
            return
        if chunk.records[case.id].verdict is verdict:
            self._agreed.add((chunk.helper, verdict))
        else:
            self._contradicted.add(chunk.helper)

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
        return {record.case: record for record in judged.records}

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

    def dismiss(self) -> None:
        """Lets the processes end, as there is too little to judge."""
        for helper in self._helpers:
            helper.dismiss()

    def close(self) -> None:
        """Ends the processes."""
        for helper in self._helpers:
            helper.stop()
