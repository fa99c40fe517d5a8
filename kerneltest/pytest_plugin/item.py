"""The pytest item: one pairing on one backend, in one dtype."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kerneltest.core.verdicts import Gap
from kerneltest.pytest_plugin.alarm import TimeIsUp, set_alarm
from kerneltest.pytest_plugin.collect import unwritten
from kerneltest.pytest_plugin.run import RUN

if TYPE_CHECKING:
    from kerneltest.declare.pairing import Pairing
    from kerneltest.execute.item import Item
    from kerneltest.pytest_plugin.worker import Ended


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
        self._begun = False
        self._ended: Ended | None = None
        self._limit, self._rung = 0.0, ""

    def runtest(self) -> None:
        """Runs it once: who runs it again, to see whether it passes, gets what came of that, since cases never differ.

        One whose time was up goes on where it is given more.
        """
        if self._ended is None or (self._ended.verdict == Gap.MISSING and not self._rung):
            self._ended = self._run_once()
        if self._ended.skipped:
            raise pytest.skip.Exception(self._ended.message)
        if self._ended.headline:
            raise FindingsError(self._ended.headline, self._ended.message)

    def _run_once(self) -> Ended:
        run = self.config.stash[RUN]
        task = run.task(self.item, self.nodeid, again=self._begun)
        begun, self._begun = self._begun, True
        try:
            ended = (None if begun else run.found_before(self.item, self.nodeid)) or run.engine_for(self.item).run(
                self.items, task, self._check_alarm
            )
        except TimeIsUp as time_is_up:
            advice = (
                f"It was {time_is_up}.",
                "The cases left have no verdict. Give the item longer, as by pytestmark = pytest.mark.timeout(600) in "
                "its module, or plan fewer cases.",
            )
            words = f"pytest-timeout ended the item after {self._limit:g} s, with {{}}"
            ended = run.process.interrupted(self.items, task, words, advice)
        known = [each for each in self.user_properties if each[0] not in ("family", "verdict")]
        self.user_properties[:] = [*known, ("family", " ".join(ended.families)), ("verdict", ended.verdict)]
        return ended

    def limit(self, seconds: float) -> None:
        """Gives it no more time than that, from now on; pytest-timeout looks for how to cancel it."""
        self._limit, self._rung = seconds, ""
        self.cancel_timeout = set_alarm(seconds, self._ring)

    def _ring(self) -> None:
        doing = self.config.stash[RUN].doing_now()
        if doing is not None:
            self._rung = str(doing)
            raise TimeIsUp(self._rung)

    def _check_alarm(self) -> None:
        if self._rung:  # what the alarm raised was taken for the kernel's
            raise TimeIsUp(self._rung)

    def record_skip(self, reason: str) -> None:
        """A skip is a status: all of the item is unavailable, for the reason that was given."""
        from kerneltest.core.verdicts import Verdict

        writer = self.config.stash[RUN].process.writer
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


def properties(backend: str, dtype: str) -> list[tuple[str, object]]:
    """What JUnit XML says of an item before it is run."""
    return [("backend", backend), ("dtype", dtype)]
