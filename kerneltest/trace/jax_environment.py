"""The settings and versions of JAX, and the devices, as a run records them."""

import functools
import math
import platform
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax

from kerneltest.core.fingerprint import package_versions
from kerneltest.trace.jax_compat.jaxprs import Jaxpr
from kerneltest.trace.primitives import primitive_of
from kerneltest.trace.tracing import device_problem
from kerneltest.trace.walk import iter_equations, primitive_name

JAX_SETTINGS = (
    "jax_enable_x64", "jax_default_matmul_precision", "jax_default_device", "jax_debug_nans", "jax_debug_infs",
    "jax_disable_jit",
)  # fmt: skip


def jax_settings() -> dict[str, str]:
    """The user's settings of JAX that affect the results of kernels, and those of `without_debugging`."""
    return {name: str(getattr(jax.config, name)) for name in JAX_SETTINGS}


@functools.cache
def jax_environment() -> dict[str, str]:
    """The versions of JAX and Python, and the devices, as JAX reports them."""
    found = [] if device_problem() else jax.devices()
    named = ((d.client.platform_version.splitlines()[0], d.device_kind) for d in found)
    devices = sorted({": ".join(dict.fromkeys(names)) for names in named})  # a CPU is called the same twice
    return {
        **package_versions(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "devices": "; ".join(devices) or device_problem(),
    }


# XLA compiler options for CPU code that runs only a few times: compiling it takes longer than running it.

# An interpreter's loops gain nothing from LLVM's optimiser, and compiling them takes most of the time.
PORTABLE_OPTIONS: Mapping[str, Any] = MappingProxyType(
    {
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
        "xla_cpu_parallel_codegen_split_count": 1,  # in 32 parts, a matrix product takes half as long again
    }
)
"""Options that every supported version of JAX has."""

# XLA's algebraic simplifier, which GPU kernels never meet, makes a select of `x * mask`, and hides 0 * NaN. Without it,
# functions that are less accurate outside of fusions are left outside: a tanh is 6.9 ulps off. Sums of products that
# XLA gives to YNNPACK are then wrong in JAX 0.10.2 (docs/upstream/xla_ynnpack_without_simplifier.py).
AS_WRITTEN: Mapping[str, Any] = MappingProxyType(
    {"xla_disable_hlo_passes": "algsimp", "xla_cpu_experimental_ynn_fusion_type": ""}
)
"""Options by which products with 0 stay products."""

# XLA's older loop emitter, gone in JAX 0.11, takes LLVM less than half the time. Its tanh is 6.4 ulps off and its cbrt
# 15 (benchmarks/function_errors.py), where 5.5 is allowed.
_PLAIN_LOOPS = {"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11) else {}

_MANY = 1024  # programs above which running takes longer than compiling


def is_simplified(jaxpr: Jaxpr) -> bool:
    """Returns whether XLA's simplifier runs on a jaxpr, open or closed: some functions are inaccurate without it."""
    return any(primitive_of(equation).fused_only for equation, _ in iter_equations(jaxpr))


def fast_compile_options(jaxpr: Jaxpr) -> dict[str, Any]:
    """The XLA options that minimise compile time plus run time of a jaxpr, open or closed.

    With them, functions are as accurate as `core.precision.XLA_CPU` states.
    """
    equations = [equation for equation, _ in iter_equations(jaxpr)]
    inaccurate = is_simplified(jaxpr)
    grids = [e.params["grid_mapping"].grid for e in equations if primitive_name(e) == "pallas_call"]
    if any(math.prod(grid) > _MANY for grid in grids if all(isinstance(length, int) for length in grid)):
        return {} if inaccurate else dict(AS_WRITTEN)
    return {**PORTABLE_OPTIONS, **({} if inaccurate else {**AS_WRITTEN, **_PLAIN_LOOPS})}
