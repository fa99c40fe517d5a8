"""The pairings that pytest collects below some folders, without running any."""

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kerneltest.pytest_plugin.collect import chosen
from kerneltest.pytest_plugin.run import RUN

if TYPE_CHECKING:
    from kerneltest.declare.pairing import Pairing


class _Gatherer:
    """A plugin that keeps what was collected."""

    def __init__(self) -> None:
        self.pairings: list[Pairing] = []
        self.broken: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.broken.append(f"{report.nodeid}: {report.longreprtext.strip().splitlines()[-1]}")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.pairings = [holder.pairing for holder in chosen(session.config.stash[RUN].holders)]


def gather(paths: Sequence[Path]) -> tuple[list["Pairing"], list[str]]:
    """The pairings in test files below some folders, and the files that raise as they are imported, with the reason.

    pytest reads its configuration as it always does, and imports the test files.
    """
    seen = _Gatherer()
    options = ["--collect-only", "-q", "-p", "kerneltest", "-p", "no:cacheprovider", "--kt-backends", "interpret"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        pytest.main([*options, "--continue-on-collection-errors", *map(str, paths)], plugins=[seen])
    return seen.pairings, seen.broken
