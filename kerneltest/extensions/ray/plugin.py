"""The pytest plugin of this extension: checks its options and, if a cluster is to be used, loads the rest."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from kerneltest.extensions.ray import RAY
from kerneltest.pytest_plugin.progress import PROGRESS
from kerneltest.pytest_plugin.pytest_run import RUN


def pytest_configure(config: pytest.Config) -> None:
    run = config.stash[RUN]
    if not run.settings.get(RAY):
        return
    if not find_spec("ray"):
        raise pytest.UsageError("--kt-ray needs Ray: pip install 'kerneltest[ray]'")
    if run.role.is_worker or run.role.is_controller:
        raise pytest.UsageError(
            "--kt-ray and -n cannot be combined: the cluster has its own workers. Omit -n or use -n0"
        )
    if run.settings.resume:
        raise pytest.UsageError(
            "--kt-ray and --kt-resume cannot be combined: nodes do not tell with which code an item ran"
        )
    if run.settings.isolate == "never":
        raise pytest.UsageError(
            "--kt-ray cannot be combined with --kt-isolate never or --pdb: each item runs in a process on some node"
        )
    from kerneltest.extensions.ray.loop import RayLoop

    run.dispatcher.cluster = loop = RayLoop(run, config.pluginmanager.getplugin(PROGRESS))
    config.pluginmanager.register(loop, "kerneltest-ray")
