"""What the processes that tests fork find imported; see `tests.forked`."""

import gc
from importlib import import_module
from importlib.metadata import entry_points

import jax.experimental.pallas.mosaic_gpu
import jax.experimental.pallas.tpu
import jax.numpy
import pytest
import xdist.dsession
import xdist.plugin
import xdist.remote
from _pytest.assertion.rewrite import AssertionRewritingHook
from _pytest.config import default_plugins

import kerneltest.api
import kerneltest.backends.interpret
import kerneltest.backends.interpret_mosaic
import kerneltest.backends.tpu.tiers
import kerneltest.execute.verdict_key
import kerneltest.extensions.same_bits.certificate
import kerneltest.pytest_plugin.hooks
import kerneltest.pytest_plugin.incremental
import kerneltest.pytest_plugin.isolation
import kerneltest.pytest_plugin.kernel_item
import kerneltest.pytest_plugin.progress
import kerneltest.pytest_plugin.project
import kerneltest.pytest_plugin.pytest_run
import kerneltest.pytest_plugin.scheduler
import kerneltest.pytest_plugin.summary
import kerneltest.pytest_plugin.worker
import kerneltest.records.resume
import kerneltest.report.html.page
import kerneltest.trace.cost_model
import kerneltest.trace.index_maps
from kerneltest.report import panels

__all__ = ["jax", "kerneltest", "pytest", "xdist"]

# No process is told that kerneltest's modules were imported before pytest could rewrite them.
AssertionRewritingHook._warn_already_imported = lambda self, name: None  # type: ignore[method-assign]

# Each session finds its modules and plugins imported. Extensions are not: they register when a session imports them.
for name in default_plugins:
    import_module(f"_pytest.{name}")
import_module("jaxlib.mlir.dialects.mhlo")  # by JAX, when it first lowers a function
for plugin in entry_points(group="pytest11"):
    if plugin.name not in ("hypothesispytest", "jaxtyping", "randomly"):
        plugin.load()

for template in panels._ENVIRONMENT.list_templates():
    panels._ENVIRONMENT.get_template(template)  # compiled
gc.collect()
gc.freeze()  # what is imported stays; a forked process would copy it to look through it
