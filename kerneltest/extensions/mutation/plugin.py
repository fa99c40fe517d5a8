"""The pytest plugin of this extension: loads the rest with `--kt-mutate`."""

from __future__ import annotations

import pytest

from kerneltest.extensions.mutation import LEAST, MUTATE
from kerneltest.pytest_plugin.pytest_run import RUN


def pytest_configure(config: pytest.Config) -> None:
    settings = config.stash[RUN].settings
    if settings.get(LEAST) and not settings.get(MUTATE):
        raise pytest.UsageError("--kt-mutate-least needs --kt-mutate, whose scores it is about")
    if settings.get(MUTATE):
        from kerneltest.extensions.mutation.items import MutantItems

        config.pluginmanager.register(MutantItems(config), "kerneltest-mutants")
