"""The second collection of a session's items, in another process."""

from __future__ import annotations

import io
import os
from collections.abc import Generator, Mapping
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from kerneltest.execute.item import Item
from kerneltest.pytest_plugin.crash_reports import UncollectedError
from kerneltest.pytest_plugin.executor import PytestArguments

ItemsByName = Mapping[str, tuple[Item, ...]]

# Options of the second collection, after those of the session.
_ALWAYS = (
    "--collect-only", "-q", "--kt-report=", "--kt-shard=", "--kt-durations=", "--kt-isolate=never",
    "--kt-ray=", "-W", "ignore::pytest.PytestAssertRewriteWarning",
)  # fmt: skip
_WRITE_THE_CACHE = ("lfplugin", "nfplugin", "stepwiseplugin")  # at their end, which may be after the session's
PROBLEMS: dict[str, str] = {}
"""From the names of pairings that this process cannot test to the reasons."""


def collect(arguments: PytestArguments, file: Path | None = None) -> ItemsByName:
    """Returns the items of a session, or of one of its files, by name.

    Raises:
      UncollectedError: pytest cannot collect them.
    """
    collector = _ItemCollector(file and file.resolve())
    output = io.StringIO()
    with redirect_stdout(output):
        status = pytest.main([*arguments.words, *_ALWAYS], plugins=[collector])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        subject = file or "the session"
        raise UncollectedError(f"{subject} cannot be re-collected in another process:\n{output.getvalue().strip()}")
    return collector.items


class _ItemCollector:
    """A pytest plugin that collects one file, or all if that is None, and keeps the items."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.items: dict[str, tuple[Item, ...]] = {}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        path = collection_path.resolve()
        return None if self.file is None or self.file.is_relative_to(path) else True

    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_parse(self) -> Generator[None, pytest.Config, pytest.Config]:
        config = yield
        config.option.cacheclear, config.option.log_file = False, os.devnull  # these belong to the session
        return config

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for name in _WRITE_THE_CACHE:
            if (plugin := session.config.pluginmanager.getplugin(name)) is not None:
                session.config.pluginmanager.unregister(plugin)
        for item in session.items:
            parts = tuple(getattr(item, "items", ()))
            if parts and all(isinstance(part, Item) for part in parts):  # a `KernelItem`, imported twice perhaps
                self.items.setdefault(parts[0].name, parts)  # the item of its mutants comes after it
            elif problem := getattr(item, "problem", ""):  # an `UntestableItem`
                PROBLEMS[item.nodeid] = problem
