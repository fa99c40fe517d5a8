"""The pairings that pytest collects below some folders, without running them."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kerneltest.core.source_location import relative_path
from kerneltest.pytest_plugin.pytest_run import RUN
from kerneltest.start.command_progress import CommandProgress

if TYPE_CHECKING:
    from kerneltest.declare.pairing import Pairing


class _LimitedModule(pytest.Module):
    """A test file whose import is interrupted when the command's time is over."""

    progress: CommandProgress

    def collect(self) -> Sequence[pytest.Item | pytest.Collector]:
        self.progress.show(f"importing {relative_path(str(self.path))}")
        with self.progress.interrupt():
            return list(super().collect())


class _PairingCollector:
    """A pytest plugin that imports some test files, and keeps their pairings and what they raise."""

    def __init__(self, wanted: Collection[Path], progress: CommandProgress) -> None:
        self.pairings: list[Pairing] = []
        self.errors: list[str] = []
        self._folders = {folder for path in wanted for folder in path.parents}
        self._wanted = wanted
        self._progress = progress
        self._syntax_errors: dict[str, SyntaxError] = {}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        path = collection_path.resolve()
        return None if path in self._wanted or path in self._folders else True

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Module:
        module: _LimitedModule = _LimitedModule.from_parent(parent, path=module_path)
        module.progress = self._progress
        return module

    def pytest_exception_interact(self, node: pytest.Collector, call: pytest.CallInfo[Any]) -> None:
        cause = call.excinfo.value.__cause__ if call.excinfo is not None else None
        if isinstance(cause, SyntaxError):
            self._syntax_errors[node.nodeid] = cause

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.failed:
            return
        error = self._syntax_errors.get(report.nodeid)
        if error is None:
            reason = report.longreprtext.strip().splitlines()[-1]
        else:
            reason = f"{relative_path(error.filename or '')}:{error.lineno}: {error.msg}"
        self.errors.append(f"{report.nodeid}: {reason}")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        collection = session.config.stash[RUN].collection
        self.pairings = [each.pairing for each in collection.unique_pairings()]


def gather(
    paths: Sequence[Path], wanted: Collection[Path], progress: CommandProgress
) -> tuple[list[Pairing], list[str]]:
    """Returns the pairings of the test files below some folders, and the errors of files that cannot be imported.

    pytest reads its configuration as always and imports the test files.

    Args:
      paths: the folders.
      wanted: the only files to import, as absolute paths.
      progress: interrupts an import when the time is over.
    """
    collector = _PairingCollector(wanted, progress)
    options = ["--collect-only", "-q", "-p", "kerneltest", "-p", "no:cacheprovider", "--kt-backends", "interpret"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        pytest.main([*options, "--continue-on-collection-errors", *map(str, paths)], plugins=[collector])
    return collector.pairings, collector.errors
