"""pytest's options and ini values: added from the table of settings, and read back into `RunSettings`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kerneltest.core.media import lines_for_terminal
from kerneltest.execute.settings import RunSettings, SettingError, known_settings


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
