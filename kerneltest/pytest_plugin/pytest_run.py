"""One pytest session: its options, and the objects that own its folder, its plan, its items and their results."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kerneltest.core.media import lines_for_terminal
from kerneltest.execute.settings import RunSettings, SettingError, known_settings
from kerneltest.pytest_plugin.collection import Collection
from kerneltest.pytest_plugin.dispatch import Dispatcher, XdistCrashes
from kerneltest.pytest_plugin.run_folder import (
    FolderError,
    PlanFile,
    RunFolder,
    TemporaryFolder,
    remove_abandoned_folders,
)
from kerneltest.pytest_plugin.summary import Reporter


def add_options(parser: pytest.Parser) -> None:
    """Adds the option and the ini value of each setting."""
    group = parser.getgroup("kerneltest", "conformance of Pallas kernels")
    for setting in known_settings():
        name = f"kt_{setting.name}"
        group.addoption(setting.option, dest=name, **setting.option_keywords())
        if setting.ini:
            kind, default = ("bool", setting.default) if setting.is_flag else ("string", setting.default_text)
            parser.addini(name, f"the same as {setting.option}", type=kind, default=default)  # type: ignore[arg-type]


def read_settings(config: pytest.Config) -> RunSettings:
    """Returns the settings of a session; raises pytest.UsageError."""
    values: dict[str, Any] = {}
    try:
        for setting in known_settings():
            name = f"kt_{setting.name}"
            value = config.getoption(name)
            if value is None and setting.ini:
                value = config.getini(name)
            values[setting.name] = bool(value) if setting.is_flag else setting.parse(value or "")
        settings = RunSettings.of(**values)
        settings.named_backends()
    except SettingError as error:
        raise pytest.UsageError(lines_for_terminal(error.as_option())) from error
    collects_only = config.option.collectonly  # as isolated processes do, which have no folder
    if settings.artifacts and not settings.report and not collects_only:
        raise pytest.UsageError("--kt-artifacts needs --kt-report, the folder to keep them in")
    if settings.resume and not settings.report and not collects_only:
        raise pytest.UsageError("--kt-resume needs --kt-report, the folder of the run to resume")
    if settings.durations and settings.shard is None and config.getoption("kt_durations") is not None:
        raise pytest.UsageError("--kt-durations needs --kt-shard, whose shards it balances")
    if settings.changed and not config.pluginmanager.hasplugin("cacheprovider") and not collects_only:
        raise pytest.UsageError("--kt-changed needs pytest's cache, which -p no:cacheprovider disables")
    # A debugger talks to the process in which pytest runs.
    return replace(settings, isolate="never") if config.getoption("usepdb", False) else settings


def resolve_path(config: pytest.Config, name: str, value: str) -> Path:
    """Returns the path that a setting names: relative to the ini file if set there, else to pytest's start."""
    if config.inipath is not None and config.getoption(f"kt_{name}") is None:
        return config.inipath.parent / value
    return config.invocation_params.dir / value


class XdistRole:
    """The role of this process under pytest-xdist."""

    def __init__(self, config: pytest.Config) -> None:
        # what the controller sent this worker; None in any other process
        self.worker_input: Mapping[str, object] | None = getattr(config, "workerinput", None)
        # whether this process hands items to workers
        self.is_controller = self.worker_input is None and bool(config.getoption("numprocesses", None))

    @property
    def is_worker(self) -> bool:
        """True if a controller hands this process its items."""
        return self.worker_input is not None

    @property
    def name(self) -> str:
        """The name of this process within the run: `main`, `controller`, `gw0`."""
        return "controller" if self.is_controller else os.environ.get("PYTEST_XDIST_WORKER", "main")


class PytestRun:
    """One pytest session. Each part owns the state of one concern."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.settings, self.role = config, read_settings(config), XdistRole(config)
        self.folder = _claim_folder(config, self.settings, self.role)
        may_resume = not (self.role.is_worker or config.option.collectonly)
        self.plan = PlanFile(self.folder, self.settings, may_resume=may_resume)
        self.collection = Collection()  # the pairings that were collected, and what is selected of them
        self.reporter = Reporter(config, self.folder, self.settings.report)
        self.dispatcher = Dispatcher(  # chooses the executor of each item
            config,
            self.settings,
            self.folder.path,
            self.collection,
            shard=self.role.name,
            arguments=pytest_arguments(config, self.role),
            reporter=None if self.role.is_worker else self.reporter,
        )
        self.crashes = XdistCrashes(self.folder.path, self.dispatcher)

    @property
    def has_plan(self) -> bool:
        return self.plan.is_written or (self.role.is_controller and self.plan.is_on_disk)

    def close(self) -> None:
        self.dispatcher.close()
        self.reporter.close()
        self.folder.release()


RUN = pytest.StashKey[PytestRun]()


def _claim_folder(config: pytest.Config, settings: RunSettings, role: XdistRole) -> RunFolder:
    if role.worker_input is not None:
        return RunFolder(Path(str(role.worker_input["kt_folder"])), str(role.worker_input["kt_run"]))
    remove_abandoned_folders()
    if not settings.report or config.option.collectonly:
        return TemporaryFolder()
    try:
        return RunFolder.claim(resolve_path(config, "report", settings.report))
    except FolderError as error:
        raise pytest.UsageError(lines_for_terminal(f"--kt-report: {error}")) from error


def pytest_arguments(config: pytest.Config, role: XdistRole) -> tuple[str, ...]:
    """Returns the arguments with which another process collects the same items; a worker has its controller's."""
    if role.worker_input is not None:
        return tuple(map(str, role.worker_input["kt_arguments"]))  # type: ignore[call-overload]
    has_plugin, option = config.pluginmanager.hasplugin, config.option
    return (
        *map(str, config.invocation_params.args),
        # Only this session writes the files that other plugins write at its end.
        *(["-n0"] if has_plugin("xdist") else []),
        *(["--no-cov"] if has_plugin("_cov") else []),
        *(["--junitxml="] if getattr(option, "xmlpath", None) else []),
        *(["--html="] if getattr(option, "htmlpath", None) else []),
    )
