"""How XLA compiles for the CPU what runs a few times: quickly."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax

from kerneltest.jaxprs.walk import equations, name_of

# An interpreter's loops gain nothing from LLVM's optimiser, and their compilation is most of the time.
PORTABLE: Mapping[str, Any] = MappingProxyType(
    {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
)
"""Options that each version of JAX knows."""

# XLA's older way to emit loops costs LLVM less than half; JAX 0.11 has it no more. There tanh is 6.4 ulps off and cbrt
# 15, as benchmarks/function_errors.py measures, and neither may be more than 5.5.
_PLAIN_LOOPS = {"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11) else {}
_WORSE_IN_THESE = frozenset({"cbrt", "tanh"})


def quick(jaxpr: Any) -> dict[str, Any]:
    """The options of XLA with which a jaxpr compiles soonest and computes no worse than `XLA_CPU` says."""
    worse = bool(_PLAIN_LOOPS) and any(name_of(each) in _WORSE_IN_THESE for each, _ in equations(jaxpr))
    return {**PORTABLE, **({} if worse else _PLAIN_LOOPS)}
