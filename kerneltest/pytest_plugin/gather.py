"""The pairings that pytest collects below some folders, without running them."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kerneltest.pytest_plugin.pytest_run import RUN

if TYPE_CHECKING:
    from kerneltest.declare.pairing import Pairing


class _PairingCollector:
    """A pytest plugin that keeps the collected pairings."""

    def __init__(self) -> None:
        self.pairings: list[Pairing] = []
        self.errors: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(f"{report.nodeid}: {report.longreprtext.strip().splitlines()[-1]}")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        collection = session.config.stash[RUN].collection
        self.pairings = [each.pairing for each in collection.unique_pairings()]


def gather(paths: Sequence[Path]) -> tuple[list[Pairing], list[str]]:
    """Returns the pairings of the test files below some folders, and the errors of files that cannot be imported.

    pytest reads its configuration as always and imports the test files.
    """
    collector = _PairingCollector()
    options = ["--collect-only", "-q", "-p", "kerneltest", "-p", "no:cacheprovider", "--kt-backends", "interpret"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        pytest.main([*options, "--continue-on-collection-errors", *map(str, paths)], plugins=[collector])
    return collector.pairings, collector.errors
