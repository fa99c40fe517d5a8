"""What the processes that tests fork find imported; see `tests.forked`."""

import jax.experimental.pallas
import jax.numpy
import pytest
import xdist.plugin
from _pytest.assertion.rewrite import AssertionRewritingHook

import kerneltest.api
import kerneltest.pytest_plugin.incremental
import kerneltest.pytest_plugin.kernel_item
import kerneltest.pytest_plugin.summary
import kerneltest.pytest_plugin.suspect_tracker
import kerneltest.pytest_plugin.worker
import kerneltest.report.html.render_page

__all__ = ["jax", "kerneltest", "pytest", "xdist"]

# No process is told that kerneltest's modules were imported before pytest could rewrite them.
AssertionRewritingHook._warn_already_imported = lambda self, name: None  # type: ignore[method-assign]
