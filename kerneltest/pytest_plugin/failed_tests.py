"""The tests of a session that failed, so that merging its shards knows of those that are no pairings."""

from __future__ import annotations

import pytest


class FailedTests:
    """Notes each test and each file that failed."""

    def __init__(self, names: dict[str, None]) -> None:
        """Initialises the instance.

        Args:
          names: receives the node ids, pairings included.
        """
        self._names = names

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._names[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._names[report.nodeid] = None
