"""Imports a test file as pytest does: with its conftest.py, and only if pytest would collect it."""

import contextlib
import io
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kerneltest.core.failures import format_exception

_OPTIONS = ("--collect-only", "--quiet", "--capture=no", "-p", "kerneltest")


class SuiteImportError(Exception):
    """A test file cannot be imported; the message says why, in a line."""


def import_suite(suite: Path) -> ModuleType:
    """Imports a test file in a session of pytest that collects nothing else, and no test of it.

    Raises:
      SuiteImportError: pytest would not collect the file, or it raised, skipped itself or ended the process.
    """
    picker = _Picker(suite)
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(printed):
        pytest.main([*_OPTIONS, str(suite)], plugins=[picker])
    if picker.interrupt is not None:
        raise picker.interrupt
    if picker.module is None:
        said = [line for line in printed.getvalue().splitlines() if line.strip()]
        raise SuiteImportError(picker.problem or (said[-1] if said else "pytest did not collect it"))
    return picker.module


class _UnreadModule(pytest.Module):
    """A module that is not imported."""

    def collect(self) -> list[pytest.Item]:
        return []


class _Picker:
    """A plugin of pytest that keeps the module of one file.

    Attributes:
      module: of the file; None while it is not imported.
      problem: why it was not imported, or "".
      interrupt: a KeyboardInterrupt that ended the session.
    """

    def __init__(self, suite: Path) -> None:
        self.module: ModuleType | None = None
        self.problem = ""
        self.interrupt: KeyboardInterrupt | None = None
        self._suite = suite

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
        if module_path == self._suite:
            patterns: list[str] = parent.config.getini("python_files")
            if any(module_path.match(pattern) for pattern in patterns):
                return None
            self.problem = f"pytest does not collect it as a test file: its name matches none of {', '.join(patterns)}"
        module: pytest.Module = _UnreadModule.from_parent(parent, path=module_path)
        return module

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self, collector: pytest.Collector, name: str, obj: object) -> list[pytest.Item]:
        module = collector.getparent(pytest.Module)
        self.module = module.obj if module is not None else None
        return []

    def pytest_exception_interact(self, call: pytest.CallInfo[Any]) -> None:
        assert call.excinfo is not None
        self._note(call.excinfo.value)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.problem = str(report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        if isinstance(excinfo.value, pytest.Session.Interrupted):
            return  # by the error that was noted
        if isinstance(excinfo.value, KeyboardInterrupt):
            self.interrupt = excinfo.value
        self._note(excinfo.value)

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
        self._note(excinfo.value)
        return True

    def _note(self, error: BaseException) -> None:
        """Notes an error; of pytest's own, which quote a traceback, the last line."""
        words = format_exception(error)
        self.problem = words.strip().splitlines()[-1].removeprefix("E ").strip() if "\n" in words else words
