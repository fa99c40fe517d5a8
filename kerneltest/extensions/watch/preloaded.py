"""Imports the modules that runs need, in the process from which they are forked. Creates no device or thread of JAX."""

import gc
from importlib import import_module

from kerneltest.core.targets import skip_tpu_discovery

_MODULES = (
    "jax.numpy",
    "jax.experimental.pallas",
    "kerneltest.backends.codegen.gpu_tiers",
    "kerneltest.backends.interpret",
    "kerneltest.backends.interpret_mosaic",
    "kerneltest.backends.simulate.backend",
    "kerneltest.backends.tpu.tpu_tiers",
    "kerneltest.execute.planning",
    "kerneltest.localize.suspect_reduction",
    "kerneltest.pytest_plugin.hooks",
    "kerneltest.pytest_plugin.worker",
    "kerneltest.report.html.render_page",
    "pytest",
)

skip_tpu_discovery()  # before libtpu is loaded
for _module in _MODULES:
    import_module(_module)
gc.freeze()  # the modules are permanent
