"""Imports the modules that runs need, in the process from which they are forked. Creates no device or thread of JAX."""

# ruff: noqa: E402, F401
import gc

from kerneltest.core.targets import skip_tpu_discovery

skip_tpu_discovery()  # before libtpu is loaded

import jax.experimental.pallas
import jax.numpy
import pytest

import kerneltest.backends.codegen.tiers
import kerneltest.backends.interpret
import kerneltest.backends.interpret_mosaic
import kerneltest.backends.simulate.backend
import kerneltest.backends.tpu.tiers
import kerneltest.execute.planning
import kerneltest.localize.suspect_reduction
import kerneltest.pytest_plugin.hooks
import kerneltest.pytest_plugin.worker
import kerneltest.report.html.page

gc.freeze()  # the modules are permanent
