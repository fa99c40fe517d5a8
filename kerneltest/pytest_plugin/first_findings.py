"""The first finding of each item, on the terminal as soon as it is judged."""

from contextlib import ExitStack
from typing import Any

import pytest

from kerneltest.core.ids import PairingId
from kerneltest.pytest_plugin.progress import PROGRESS
from kerneltest.report.text.lines import for_terminal


class FirstFindings:
    """Shows findings between pytest's own lines; a worker of xdist, which has no terminal, shows none."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._shown: set[str] = set()

    def show(self, item: str, finding: str) -> None:
        """Shows a finding in a line, unless the run is quiet or has shown the same one."""
        plugins = self._config.pluginmanager
        reporter: Any = plugins.getplugin("terminalreporter")
        if reporter is None or self._config.option.verbose < 0 or finding in self._shown:
            return
        self._shown.add(finding)
        capture: Any = plugins.getplugin("capturemanager")
        progress: Any = plugins.getplugin(PROGRESS)
        with ExitStack() as stack:
            if capture is not None:
                stack.enter_context(capture.global_and_fixture_disabled())
            if progress is not None:
                stack.enter_context(progress.hide())
            reporter.ensure_newline()
            reporter.write_line(for_terminal(f"first finding in {PairingId.parse(item).own_name}: {finding}"), red=True)
