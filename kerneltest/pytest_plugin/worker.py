"""One process of a run: it runs items, one after another, and keeps what they share."""

import faulthandler
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

import pytest

from kerneltest.backends.device import device_responds
from kerneltest.backends.disk_cache import cached_on_disk
from kerneltest.core.failures import Failure, printable
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Gap, Verdict, worst
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item, Outcome
from kerneltest.execute.runner import run as run_item
from kerneltest.execute.time_budget import Budget, worth
from kerneltest.pytest_plugin.crash_reports import before, device_is_lost, last_words
from kerneltest.pytest_plugin.suspect_tracker import Suspicion
from kerneltest.pytest_plugin.watchdog import Watchdog, tell_of_exit
from kerneltest.records.interning import held
from kerneltest.records.io import Writer, read_shard, save_artifacts
from kerneltest.records.journal import Doing, Journal
from kerneltest.records.resume import SHARD
from kerneltest.records.schema import Record
from kerneltest.report.text.failure import failure, headline
from kerneltest.reproduce.script import saved
from kerneltest.trace.tracing import without_debugging
from kerneltest.triage.suspects import Suspect

_SAVED = 20  # findings of an item whose inputs are saved, beside the first of each kind


@dataclass(frozen=True, slots=True)
class Setup:
    """What all processes of a run are told; it can be sent to another one.

    Attributes:
      folder: of the run.
      shard: the name of the process among those of the run: `main`, `gw0`, `gw0.1`.
      planned: pairing, backend and dtype of all that the run does.
      timeout: seconds that a case may spend in one step; 0 for no limit.
      minimize: seconds for the smallest case of each suspect.
      artifacts: whether lowered and compiled code is kept.
      compiled: where executables are kept between runs; None for nowhere.
      root: of the session, to which paths in messages are relative.
      report: the run's folder as the user named it; "" if nothing is kept.
      asked_by_name: backends that fail where they are absent.
      cases: whether failures show single cases as well.
      resumes: whether the run goes on with one that was cut off.
      kept: where the folder is read later on, as paths in its files have it; None for where it is.
    """

    folder: Path
    shard: str
    planned: frozenset[tuple[str, str, str]]
    timeout: int
    minimize: int
    artifacts: bool
    compiled: Path | None
    root: Path
    report: str
    asked_by_name: frozenset[str]
    cases: bool
    resumes: bool = False
    kept: Path | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One item to run.

    Attributes:
      name: its node id.
      command: that runs it again, as its failure shows it.
      budget: seconds that it has; 0 for no limit.
      again: whether some of its cases may have a record: it was begun before.
    """

    name: str
    command: str
    budget: float = 0.0
    again: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """How an item ended.

    Attributes:
      verdict: the worst of its cases' verdicts, or a gap.
      families: that have a record.
      headline: what is wrong in one line; "" where nothing is.
      message: what is wrong, or why it was skipped.
      skipped: whether it was.
      lost: whether its process must not run another, since its device answers no more.
    """

    verdict: str
    families: tuple[str, ...] = ()
    headline: str = ""
    message: str = ""
    skipped: bool = False
    lost: bool = False


class Process:
    """What runs items in this process.

    Attributes:
      setup: as it was told.
      cache: what items share.
      judged: cases of the item that is running.
    """

    def __init__(self, setup: Setup, give_up: Callable[[Doing, Failure], None], console: int | None = None) -> None:
        """Args:
        setup: of the run.
        give_up: what is done before the watchdog ends this process.
        console: descriptor of where a person reads why this process ended; None where another process takes its place
          and reads that in a file.
        """
        self.setup = setup
        self.cache = Cache(journal=Journal(setup.folder, setup.shard), planned=setup.planned)
        self.judged = 0
        self._suspicion = Suspicion(setup.folder, setup.minimize, setup.kept)
        self._kinds: set[tuple[Verdict, str]] = set()  # of the findings of the item that is running
        self._writer: Writer | None = None
        self._console, self._give_up = console, give_up
        self._words: TextIO | None = None
        self._watchdog: Watchdog | None = None
        self._patched = pytest.MonkeyPatch()

    def expect(self, planned: frozenset[tuple[str, str, str]]) -> None:
        """Says what the run does, once that is known: pairing, backend and dtype of it all."""
        self.setup = replace(self.setup, planned=planned)
        self.cache.planned = planned

    @property
    def writer(self) -> Writer:
        if self._writer is None:
            self._writer = Writer(self.setup.folder, self.setup.shard)
        return self._writer

    def close(self) -> None:
        if self._watchdog is not None:
            self._watchdog.stop()
        if self._writer is not None:
            self._writer.close()
        self.cache.pool.close()
        self.cache.journal.close()
        self._patched.undo()
        if self._words is not None:
            if self._console is None:
                faulthandler.disable()  # it would go on to write to the file
                Path(self._words.name).unlink(missing_ok=True)
            self._words.close()

    @functools.cached_property
    def _known(self) -> Mapping[str, Sequence[Record]] | None:
        """The records of the run that was cut off, by item; None where there is none."""
        if not self.setup.resumes:
            return None
        known: dict[str, list[Record]] = {}
        for record in held(read_shard(self.setup.folder, SHARD)):
            known.setdefault(record.item, []).append(record)
        return known

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Has whatever ends this process leave word of it, and a case that goes on for too long end."""
        if self._words is None:
            self._listen()
        if self._watchdog is not None:
            self._watchdog.arm()
        try:
            yield
        finally:
            self.judged = 0
            if self._watchdog is not None:
                self._watchdog.disarm()  # whatever comes between items is left alone

    def _listen(self) -> None:
        if self._console is None:
            self.cache.end = self._end
            self._words = last_words(self.setup.folder, self.setup.shard).open("w", encoding="utf-8")
            faulthandler.enable(self._words)
        else:
            self._words = os.fdopen(os.dup(self._console), "w", encoding="utf-8")
        loudly = tell_of_exit(self.cache.journal, self._words, alone=self._console is not None)
        self._patched.setattr(os, "_exit", loudly)
        if self.setup.timeout:
            self._watchdog = Watchdog(self.cache.journal, self.setup.timeout, self._words, self._give_up)
            self._watchdog.start()

    @contextmanager
    def settings(self) -> Iterator[None]:
        """JAX's settings while an item runs: the user's, but that compiled code is kept and that no NaN raises."""
        with ExitStack() as stack:
            if self.setup.compiled is not None:
                stack.enter_context(cached_on_disk(self.setup.compiled))
            stack.enter_context(without_debugging())
            yield

    def run(self, parts: Sequence[Item], task: Task, judged: Callable[[], None] = lambda: None) -> Ended:
        """Runs all groups of an item, and records each case as it ends.

        Args:
          parts: of the item, one for each group.
          task: how.
          judged: called after each case, before it is recorded.
        """
        with self.watched(), self.settings():
            ended = self._run(parts, task, judged)
        self.cache.journal.leave_costs()
        return ended

    def _run(self, parts: Sequence[Item], task: Task, judged: Callable[[], None]) -> Ended:
        self.judged, device = 0, parts[0].backend
        self.cache.budget = _budget(parts, task.budget)
        earlier, records = before(self.setup.folder, task.name, self.setup.shard, again=task.again, known=self._known)
        found: list[Record] = []
        self._kinds.clear()
        for record in records:
            self._add(record, found)
        for part in parts:
            for outcome in run_item(part, self.cache, before=earlier):
                judged()
                record = self._written(part, outcome, found)
                records.append(record)
                self._add(record, found)
                self._notice(record)
        suspects: Sequence[Suspect] = ()
        if found and not self.cache.lost:
            suspects = self._suspicion.investigate(parts, self.cache, self.writer)
            if device.tier is Tier.DEVICE and not device_responds(device.id):
                self.cache.lost = "while the smallest case of a finding was looked for"
        verdicts = [record.verdict for record in records]
        passed = any(not v.is_finding and v is not Verdict.UNAVAILABLE for v in verdicts)
        verdict = (
            worst(v for v in verdicts if v.is_finding) if found else Verdict.PASS if passed else Verdict.UNAVAILABLE
        )
        ended = Ended(
            str(verdict), tuple(dict.fromkeys(record.family for record in records)), lost=bool(self.cache.lost)
        )
        if found:
            headline, message = self._told(parts[0], found, suspects, task)
            return replace(ended, headline=headline, message=message)
        reason = next((r.message for r in reversed(records) if r.verdict is Verdict.UNAVAILABLE), "")
        if passed or not reason:
            return ended
        if device.id in self.setup.asked_by_name and device.unavailable():
            words = printable(f"{device.id} was asked for and is unavailable: {reason}")
            return replace(ended, headline=words, message=words)
        return replace(ended, skipped=True, message=printable(f"{device.id} unavailable: {reason}"))

    def interrupted(self, parts: Sequence[Item], task: Task, words: str, advice: Sequence[str]) -> Ended:
        """How an item ends whose time was up, which says nothing of the kernel; what was recorded stays.

        Args:
          parts, task: as for `run`.
          words: what happened, in a line, with `{}` for how many cases were judged.
          advice: what to do.
        """
        _, records = before(self.setup.folder, task.name, self.setup.shard, again=True)
        found = [record for record in records if record.verdict.is_finding]
        planned = sum(sum(part.families().values()) for part in parts)
        words = words.format(f"{sum(bool(record.case) for record in records)} of {planned} cases judged")
        told = [self._told(parts[0], found, (), task)[1]] if found else []
        families = tuple(dict.fromkeys(record.family for record in found))
        return Ended(str(Gap.MISSING), families, words, "\n".join([f"{words}.", *advice, *told]))

    def _told(self, item: Item, found: Sequence[Record], suspects: Sequence[Suspect], task: Task) -> tuple[str, str]:
        """What is wrong with an item that has findings: in a line, and in full."""
        setup = self.setup
        lines = failure(item, found, suspects, setup.root, setup.report, task.command, cases=setup.cases)
        return headline(found, suspects), "\n".join(lines)

    def _written(self, part: Item, outcome: Outcome, found: Sequence[Record]) -> Record:
        """Writes the record of a case, with its inputs if it is the first finding of its kind or one of few."""
        record = outcome.record
        known = (record.verdict, record.family) in self._kinds
        if outcome.arguments is not None and (not known or len(found) < _SAVED):
            record = saved(self.setup.folder, record, part, outcome.arguments, self.setup.kept)
        if record.evidence is not None and known:
            # One picture of a kind.
            record = replace(record, evidence=replace(record.evidence, window=None, inputs=()))
        if self.setup.artifacts and (texts := outcome.files()):
            name = f"{record.case}-{_slug(record.backend)}"
            record = replace(record, files=save_artifacts(self.setup.folder, name, texts))
        self.writer.write(record)
        self.judged += bool(record.case)
        return record

    def _add(self, record: Record, found: list[Record]) -> None:
        """Takes in a record of the item that is running; `found` are its findings."""
        self._suspicion.add(record)
        if record.verdict.is_finding:
            found.append(record)
            self._kinds.add((record.verdict, record.family))

    def _notice(self, record: Record) -> None:
        """Ends this process, or leaves the device alone, where a case has cost it the device."""
        if device_is_lost(record):
            self.cache.lost = f"since case {record.case}: {record.message.partition(chr(10))[0]}"
            if self.cache.end is not None:
                self.cache.end("a device error that no later call survives\n")

    def _end(self, word: str) -> None:
        """Ends this process, whose place another takes."""
        if self._words is not None:
            self._words.write(word)
            self._words.flush()
            os._exit(1)


def _budget(parts: Sequence[Item], seconds: float) -> Budget | None:
    return Budget(seconds, {part.group.name: worth(part.cases()) for part in parts}) if seconds else None


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in text)
