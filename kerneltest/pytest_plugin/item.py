"""The pytest item: one pairing on one backend, in one dtype."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kerneltest.core.failures import printable
from kerneltest.pytest_plugin.alarm import TimeIsUp, set_alarm
from kerneltest.pytest_plugin.collect import unwritten
from kerneltest.pytest_plugin.run import RUN, Run

if TYPE_CHECKING:
    from kerneltest.core.verdicts import Verdict
    from kerneltest.declare.pairing import Pairing
    from kerneltest.records.schema import Record
    from kerneltest.records.suspects import Suspect
    from kerneltest.run.budget import Budget
    from kerneltest.run.item import Item
    from kerneltest.run.runner import Before


class FindingsError(Exception):
    """An item has findings; the message tells them.

    Attributes:
      headline: the first in one line.
    """

    def __init__(self, headline: str, message: str) -> None:
        super().__init__(message)
        self.headline = headline


class KernelItem(pytest.Item):
    """One pairing on one backend, in one dtype: its groups of families one after another."""

    def __init__(self, *, items: Sequence[Item], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.items = items
        self.item = items[0]
        self.user_properties += properties(self.item.backend.id, self.item.dtype)
        self._begun = self._ended = False
        self._raised: BaseException | None = None
        self._limit, self._rung = 0.0, ""

    def runtest(self) -> None:
        """Runs it once: who runs it again, to see whether it passes, gets what came of that, since cases never differ.

        One whose time was up goes on where it is given more.
        """
        if not self._ended and not self._rung:
            self._run_watched()
        if self._raised is not None:
            raise self._raised.with_traceback(None)

    def _run_watched(self) -> None:
        run = self.config.stash[RUN]
        again, self._begun = self._begun, True
        run.watch()
        try:
            with run.settings():
                self._raised = self._run(run, again)
            self._ended = True
        except TimeIsUp as time_is_up:
            self._raised = self._interrupted(run, str(time_is_up))
        finally:
            run.judged = 0
            run.unwatch()

    def limit(self, seconds: float) -> None:
        """Gives it no more time than that, from now on; pytest-timeout looks for how to cancel it."""
        self._limit, self._rung = seconds, ""
        self.cancel_timeout = set_alarm(seconds, self._ring)

    def _ring(self) -> None:
        doing = self.config.stash[RUN].cache.journal.doing
        if doing is not None:
            self._rung = str(doing)
            raise TimeIsUp(self._rung)

    def _run(self, run: Run, again: bool) -> BaseException | None:
        """Runs all groups and returns what the item raises, if anything; `again` after it was interrupted."""
        from kerneltest.core.verdicts import Verdict, worst
        from kerneltest.pytest_plugin.deaths import before

        run.cache.budget = self._budget(run)
        earlier, found = before(run.folder, self.item.name, run.shard, again=again)
        kinds = {(record.verdict, record.family) for record in found}
        families: dict[str, None] = {}
        passed, unavailable = False, ""
        for part in self.items:
            for record in self._records(run, part, earlier, found, kinds):
                families[record.family] = None
                if record.verdict is Verdict.UNAVAILABLE:
                    unavailable = record.message
                elif not record.verdict.is_finding:
                    passed = True
        verdict = worst(r.verdict for r in found) if found else Verdict.PASS if passed else Verdict.UNAVAILABLE
        self._say(families, str(verdict))
        if found:
            return self._findings(run, found, run.suspicion.investigate(self.items, run.cache, run.writer))
        if not unavailable or passed:
            return None
        if self.item.backend.id in run.asked_by_name and self.item.backend.unavailable():
            words = printable(f"{self.item.backend.id} was asked for and is unavailable: {unavailable}")
            return FindingsError(words, words)
        return pytest.skip.Exception(printable(f"{self.item.backend.id} unavailable: {unavailable}"))

    def _budget(self, run: Run) -> Budget | None:
        """Its share of the time that a pairing has on a backend: dtypes share it equally."""
        from kerneltest.run.budget import Budget, worth

        if not run.budget:
            return None
        share = run.budget / run.dtypes[self.item.pairing_id, self.item.backend.id]
        return Budget(share, {part.group.name: worth(part.cases()) for part in self.items})

    def _findings(self, run: Run, found: Sequence[Record], suspects: Sequence[Suspect]) -> FindingsError:
        from kerneltest.report.text.failure import failure, headline

        cases = self.config.option.verbose > 0
        command = self._command(run)
        lines = failure(self.item, found, suspects, self.config.rootpath, run.report, command, cases=cases)
        return FindingsError(headline(found, suspects), "\n".join(lines))

    def _interrupted(self, run: Run, doing: str) -> FindingsError:
        """What the item raises when its time is up, which says nothing of the kernel; what was recorded stays."""
        from kerneltest.core.verdicts import Gap
        from kerneltest.pytest_plugin.deaths import before

        earlier, found = before(run.folder, self.item.name, run.shard, again=True)
        done = len(earlier.recorded) if earlier is not None else 0
        planned = sum(sum(part.families().values()) for part in self.items)
        self._say({record.family: None for record in found}, str(Gap.MISSING))
        words = f"pytest-timeout ended the item after {self._limit:g} s, with {done} of {planned} cases judged"
        lines = [
            f"{words}.",
            f"It was {doing}.",
            "The cases left have no verdict. Give the item longer, as by pytestmark = pytest.mark.timeout(600) in its "
            "module, or plan fewer cases.",
        ]
        told = [str(self._findings(run, found, ()))] if found else []
        return FindingsError(words, "\n".join([*lines, *told]))

    def _say(self, families: Iterable[str], verdict: str) -> None:
        """Says in JUnit XML how it ended, once."""
        known = [each for each in self.user_properties if each[0] not in ("family", "verdict")]
        self.user_properties[:] = [*known, ("family", " ".join(families)), ("verdict", verdict)]

    def _records(
        self, run: Run, part: Item, earlier: Before | None, found: list[Record], kinds: set[tuple[Verdict, str]]
    ) -> Iterator[Record]:
        """Runs one group of families and writes a record of each case; findings are added to `found`."""
        from dataclasses import replace

        from kerneltest.pytest_plugin.deaths import device_is_lost
        from kerneltest.records.io import save_artifacts
        from kerneltest.report.reproduce.script import saved
        from kerneltest.run.runner import run as run_item

        for outcome in run_item(part, run.cache, before=earlier):
            if self._rung:  # whatever took it for the kernel's
                raise TimeIsUp(self._rung)
            record = outcome.record
            kind = (record.verdict, record.family)
            if outcome.arguments is not None and (kind not in kinds or len(found) < _SAVED):
                record = saved(run.folder, record, part, outcome.arguments)
            if record.evidence is not None and kind in kinds:
                # One picture of a kind.
                record = replace(record, evidence=replace(record.evidence, window=None, inputs=()))
            if run.artifacts and (files := outcome.files()):
                name = f"{record.case}-{_slug(record.backend)}"
                record = replace(record, files=save_artifacts(run.folder, name, files))
            run.writer.write(record)
            run.suspicion.add(record)
            if run.worker is not None and device_is_lost(record):
                run.leave()
            run.judged += bool(record.case)
            if record.verdict.is_finding:
                found.append(record)
                kinds.add(kind)
            yield record

    def _command(self, run: Run) -> str:
        from kerneltest.report.commands import pytest_command

        file, _, name = self.nodeid.partition("::")
        nodeid = f"{_relative(self.config.rootpath / file, self.config.invocation_params.dir)}::{name}"
        return pytest_command(run, self.item.backend.id, nodeid)

    def record_skip(self, reason: str) -> None:
        """A skip is a status: all of the item is unavailable, for the reason that was given."""
        from kerneltest.core.verdicts import Verdict

        writer = self.config.stash[RUN].writer
        for part in self.items:
            for family in part.families():
                writer.write(part.record(Verdict.UNAVAILABLE, f"skipped: {reason}", family=family))

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        if not isinstance(excinfo.value, FindingsError):
            return super().repr_failure(excinfo, style)
        # pytest's own form, so that its summary line, JUnit XML and xdist take it, with the pairing for a place.
        shown = excinfo.getrepr(style="value")
        path, line, _ = self.reportinfo()
        place = shown.reprcrash
        place.path, place.lineno, place.message = str(path), (line or 0) + 1, excinfo.value.headline
        (entry,) = shown.reprtraceback.reprentries
        entry.style, entry.reprfileloc = "long", place
        if self.config.option.tbstyle == "line":  # pytest writes the place itself
            entry.lines, entry.reprfileloc = [], None
        return shown

    def reportinfo(self) -> tuple[Path, int | None, str]:
        code = getattr(self.item.pairing.oracle, "__code__", None)
        return self.path, code.co_firstlineno - 1 if code else None, self.name


class UnwrittenItem(pytest.Item):
    """A pairing whose oracle is still to be written: one failure, where running it would give one for each case."""

    def __init__(self, *, pairing: Pairing, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pairing = pairing

    def runtest(self) -> None:
        pytest.fail(unwritten(self.pairing), pytrace=False)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


_SAVED = 20  # findings of an item whose inputs are saved, beside the first of each kind


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in text)


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def properties(backend: str, dtype: str) -> list[tuple[str, object]]:
    """What JUnit XML says of an item before it is run."""
    return [("backend", backend), ("dtype", dtype)]
