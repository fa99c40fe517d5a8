"""Helper processes: idle processors judge cases of the running item, and of the next ones, ahead of their turn."""

from __future__ import annotations

import itertools
import threading
import time
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING

from kerneltest.core.group_names import GroupName
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.invariant_group import InvariantGroup
from kerneltest.execute.item import Item
from kerneltest.execute.value_groups import ValueGroup
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import Signature
from kerneltest.pytest_plugin.helper_process import HelperSetup, JudgedCases, Question, describe, serve
from kerneltest.records.journal import Journal
from kerneltest.records.schema import Record

if TYPE_CHECKING:  # Windows has no fork
    from multiprocessing.context import ForkContext, SpawnContext

_Key = tuple[str, Signature | str]

_PATIENCE = 20.0  # seconds to wait for the cases of one signature before the helper counts as hanging
_EVERY = 0.5  # seconds between two signs of life
_AHEAD = 3  # items after the running one: a kernel that takes long to compile is begun before it is waited for


@dataclass(slots=True, eq=False)
class _Chunk:
    """The cases of one signature in one group of values, or a case of another group.

    Attributes:
      item: their item.
      helper: the one that may judge them.
      ids: of the cases.
      answer: what the helper answers; cancelled once this process judges the cases.
      records: what the helper has found, by case; None as long as the answer was not read.
    """

    item: Item
    helper: _Helper
    ids: list[str] = field(default_factory=list)
    answer: Future[JudgedCases] = field(default_factory=Future)
    records: dict[str, Record] | None = None


@dataclass(frozen=True, slots=True)
class _Share:
    """The cases of an item that helpers may judge.

    Attributes:
      description: of the item, by `describe`, when it was sent to them.
      chunks: by group, and signature or case.
      digests: of the cases that they have judged, by group and case.
    """

    description: str = ""
    chunks: Mapping[_Key, _Chunk] = field(default_factory=dict)
    digests: dict[tuple[str, str], str] = field(default_factory=dict)

    def cancel(self) -> None:
        """Cancels what helpers have not begun."""
        for chunk in self.chunks.values():
            chunk.answer.cancel()


class _Helper:
    """One helper process, which judges one chunk at a time.

    This is not a `ProcessPoolExecutor`, which hangs if its process is killed in the middle of an answer.

    Attributes:
      is_usable: whether the process has collected and was not stopped.
    """

    def __init__(self, setup: HelperSetup, context: ForkContext | SpawnContext) -> None:
        self.is_usable = False
        self._waiting: SimpleQueue[tuple[Future[JudgedCases], Question] | None] = SimpleQueue()
        self._connection, its_own = context.Pipe()
        self._process = context.Process(target=serve, args=(its_own, setup), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside other threads
            self._process.start()
        its_own.close()  # so that the connection ends when the process does

    def listen(self) -> None:
        """Starts the thread that sends chunks and receives answers. All helpers must be forked before."""
        threading.Thread(target=self._exchange, daemon=True).start()

    def _exchange(self) -> None:
        with suppress(EOFError, OSError):  # the process has ended
            self.is_usable = self._connection.recv()
            while (waiting := self._waiting.get()) is not None:
                answer, question = waiting
                if not answer.set_running_or_notify_cancel():
                    continue
                try:
                    self._connection.send(question)
                    answer.set_result(self._connection.recv())
                except Exception as error:
                    answer.set_exception(error)
                    break
        self.is_usable = False

    def ask(self, chunk: _Chunk, description: str) -> None:
        """Has the process judge a chunk after those that it was asked to judge before."""
        self._waiting.put((chunk.answer, Question(chunk.item.name, chunk.item.group.name, chunk.ids, description)))

    def stop(self) -> None:
        """Ends the process at once."""
        self.is_usable = False
        self._waiting.put(None)
        self._process.kill()
        self._process.join()


class Helpers:
    """Helper processes, each of which may judge its share of the signatures and of the invariants of an item.

    This process begins with the first signature, and helpers with the last ones, which are the longest.

    A helper's word counts for cases that pass, and for wrong values once this process has found them in one of its
    cases as well. Everything else this process judges itself, and whatever no helper has begun.

    Attributes:
      items: the groups of each item of the run, by its name.
    """

    items: Mapping[str, Sequence[Item]]

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
        self.items, self._tiers = {}, tiers
        self._shares: dict[str, _Share] = {}  # of the running item and of the next ones, by name
        self._running = _Share()
        self._helpers: list[_Helper] = []
        try:
            for _ in range(number):
                self._helpers.append(_Helper(setup, context))
        except BaseException:
            self.close()
            raise
        for helper in self._helpers:
            helper.listen()
        self._agreed: set[tuple[_Helper, Verdict]] = set()  # what this process has found as well
        self._journal = Journal()

    def begin(self, parts: Sequence[Item], following: Iterable[str], journal: Journal) -> None:
        """Begins an item.

        Args:
          parts: its groups; () for an item that helpers must not judge.
          following: the names of the items that this process is to run after it.
          journal: counts what the processes do.
        """
        self._journal = journal
        self._agreed.clear()
        upcoming = [parts, *(self.items.get(name, ()) for name in following)]
        served = {each[0].name: each for each in upcoming if each and self._serves(each[0])}
        known, self._shares = self._shares, {}
        for name, groups in itertools.islice(served.items(), _AHEAD + 1):
            description = describe(groups[0])
            share = known.get(name)
            is_known = share is not None and share.description == description
            self._shares[name] = known.pop(name) if is_known else self._ask(groups, description)
        for share in known.values():
            share.cancel()
        self._running = self._shares.get(parts[0].name, _Share()) if parts else _Share()

    def _serves(self, item: Item) -> bool:
        return item.backend.tier in self._tiers and not item.backend.unavailable()

    def _ask(self, parts: Sequence[Item], description: str) -> _Share:
        """Distributes an item's cases: those of a signature together, since it is traced for them; invariants alone."""
        values: dict[Signature, list[tuple[Item, AnyCase]]] = {}
        for part in parts:
            for case in part.cases() if isinstance(part.group, ValueGroup) else ():
                values.setdefault(case.signature, []).append((part, case))
        others = [(part, case) for part in parts if isinstance(part.group, InvariantGroup) for case in part.cases()]
        chunks: dict[_Key, _Chunk] = {}
        for place, own in reversed([*enumerate(values.values())]):
            self._add(chunks, own, place, len(values))
        for place, each in enumerate(others):
            self._add(chunks, [each], place, len(others))
        for chunk in chunks.values():
            chunk.helper.ask(chunk, description)
        return _Share(description, chunks)

    def _add(self, chunks: dict[_Key, _Chunk], cases: Iterable[tuple[Item, AnyCase]], place: int, places: int) -> None:
        """Adds the cases of a place to the chunks of the helper whose turn it is, if any."""
        turn = place % (len(self._helpers) + 1) or int(0 < place == places - 1)
        for part, case in cases if turn else ():
            made = _Chunk(part, self._helpers[turn - 1])
            chunks.setdefault(_key(part.group.name, case), made).ids.append(case.id)

    def end(self) -> Mapping[tuple[str, str], str]:
        """Ends the item, whose cases helpers judge no longer. Returns the digests of those that they have judged."""
        ended, self._running = self._running, _Share()
        ended.cancel()
        return ended.digests

    def arrange(self, group: str, planned: Sequence[AnyCase]) -> list[AnyCase]:
        """Returns the cases of a group with those last that a helper may judge meanwhile."""
        return sorted(planned, key=lambda case: _key(group, case) in self._running.chunks)

    def may_judge(self, group: str, signature: Signature) -> bool:
        """Returns whether a helper that is ready may judge the cases of a signature."""
        chunk = self._running.chunks.get((group, signature))
        return chunk is not None and chunk.helper.is_usable and not chunk.answer.cancelled()

    def find_record(self, group: str, case: AnyCase) -> Record | None:
        """Returns what a helper has found for a case; None if this process has to judge it.

        It judges itself the first case in which a helper finds wrong values, and believes the helper if it agrees.
        """
        chunk = self._running.chunks.get(_key(group, case))
        if chunk is None:
            return None
        if chunk.records is None:
            chunk.records = self._await(chunk)
        record = chunk.records.get(case.id) if chunk.helper.is_usable else None
        if record is None or record.verdict is Verdict.PASS or (chunk.helper, record.verdict) in self._agreed:
            return record
        return None

    def compare(self, group: str, case: AnyCase, verdict: Verdict) -> None:
        """Compares the verdict of this process with a helper's, and stops the helper if they differ."""
        chunk = self._running.chunks.get(_key(group, case))
        if chunk is None or not chunk.records or case.id not in chunk.records:
            return
        if chunk.records[case.id].verdict is verdict:
            self._agreed.add((chunk.helper, verdict))
        else:
            chunk.helper.stop()

    def _await(self, chunk: _Chunk) -> dict[str, Record]:
        """Returns the records of a chunk, waiting for them if the helper was asked; otherwise takes the chunk back."""
        if chunk.answer.cancel():
            return {}
        try:
            judged = self._wait(chunk.answer)
        except TimeoutError:  # the other helpers probably hang, too
            self.close()
            return {}
        except Exception:  # it crashed; if the kernel is to blame, this process will see that
            return {}
        self._journal.add(judged.counts, judged.seconds)
        self._running.digests.update(judged.digests)
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

    def close(self) -> None:
        """Ends the processes."""
        for share in self._shares.values():
            share.cancel()
        for helper in self._helpers:
            helper.stop()


def _key(group: str, case: AnyCase) -> _Key:
    """Returns the key of a case's chunk."""
    return group, case.id if group == GroupName.INVARIANTS else case.signature
