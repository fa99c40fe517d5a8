"""The pytest item: one pairing on one backend, in one dtype, with one group of families."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kerneltest.core.failures import printable
from kerneltest.pytest_plugin.run import RUN, Run

if TYPE_CHECKING:
    from kerneltest.run.item import Item


class FindingsError(Exception):
    """An item has findings; the message tells them.

    Attributes:
      headline: the first in one line.
    """

    def __init__(self, headline: str, message: str) -> None:
        super().__init__(message)
        self.headline = headline


class KernelItem(pytest.Item):
    """One pairing on one backend, in one dtype, with one group of families."""

    def __init__(self, *, item: Item, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.item = item
        self.user_properties += properties(item.backend.id, item.dtype, item.group.name)

    def runtest(self) -> None:
        run = self.config.stash[RUN]
        run.watch()
        try:
            self._run(run)
        finally:
            run.judged = 0
            run.unwatch()

    def _run(self, run: Run) -> None:
        from dataclasses import replace

        from kerneltest.core.verdicts import Verdict, worst
        from kerneltest.pytest_plugin.deaths import before, device_is_lost
        from kerneltest.records.io import save_arguments, save_artifacts
        from kerneltest.report.commands import pytest_command
        from kerneltest.report.reproduce.script import save_script
        from kerneltest.report.text.failure import failure, headline
        from kerneltest.run.runner import run as run_item

        earlier, found = before(run.folder, self.item.name, run.shard)
        kinds = {(record.verdict, record.family) for record in found}
        families: dict[str, None] = {}
        passed, unavailable = False, ""
        for outcome in run_item(self.item, run.cache, before=earlier):
            record = outcome.record
            if record.evidence is not None and outcome.arguments is not None and len(found) < _SAVED:
                file = save_arguments(run.folder, f"{record.case}-{_slug(record.backend)}", outcome.arguments)
                evidence = replace(record.evidence, file=file)
                script = save_script(run.folder, replace(record, evidence=evidence), self.item)
                script_path = script.relative_to(run.folder).as_posix()
                record = replace(record, evidence=replace(evidence, script=script_path))
            kind = (record.verdict, record.family)
            if record.evidence is not None and kind in kinds:
                # One picture of a kind.
                record = replace(record, evidence=replace(record.evidence, window=None, inputs=()))
            if run.artifacts and (files := outcome.files()):
                name = f"{record.case}-{_slug(record.backend)}"
                record = replace(record, files=save_artifacts(run.folder, name, files))
            run.writer.write(record)
            if run.worker is not None and device_is_lost(record):
                run.leave()
            run.judged += bool(record.case)
            families[record.family] = None
            if record.verdict is Verdict.UNAVAILABLE:
                unavailable = record.message
            elif not record.verdict.is_finding:
                passed = True
            else:
                found.append(record)
                kinds.add(kind)
        verdict = worst(r.verdict for r in found) if found else Verdict.PASS if passed else Verdict.UNAVAILABLE
        self.user_properties += [("family", " ".join(families)), ("verdict", str(verdict))]
        if found:
            file, _, name = self.nodeid.partition("::")
            nodeid = f"{_relative(self.config.rootpath / file, self.config.invocation_params.dir)}::{name}"
            command = pytest_command(run, self.item.backend.id, nodeid)
            lines = failure(self.item, found, self.config.rootpath, run.report, command)
            raise FindingsError(headline(found), "\n".join(lines))
        if not unavailable or passed:
            return
        if self.item.backend.id in run.asked_by_name and self.item.backend.unavailable():
            words = printable(f"{self.item.backend.id} was asked for and is unavailable: {unavailable}")
            raise FindingsError(words, words)
        pytest.skip(printable(f"{self.item.backend.id} unavailable: {unavailable}"))

    def record_skip(self, reason: str) -> None:
        """A skip is a status: all of the item is unavailable, for the reason that was given."""
        from kerneltest.core.verdicts import Verdict

        writer = self.config.stash[RUN].writer
        for family in self.item.families():
            writer.write(self.item.record(Verdict.UNAVAILABLE, f"skipped: {reason}", family=family))

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


_SAVED = 20  # arguments saved per item: enough to study, small enough to keep


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in text)


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def properties(backend: str, dtype: str, group: str) -> list[tuple[str, object]]:
    """What JUnit XML says of an item before it is run."""
    return [("backend", backend), ("dtype", dtype), ("group", group)]
