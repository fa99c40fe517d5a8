"""How XLA compiles for the CPU what runs a few times: quickly."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax

from kerneltest.trace.walk import equations, name_of

# An interpreter's loops gain nothing from LLVM's optimiser, and their compilation is most of the time.
PORTABLE: Mapping[str, Any] = MappingProxyType(
    {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
)
"""Options that each version of JAX knows."""

# XLA's older way to emit loops costs LLVM less than half; JAX 0.11 has it no more. There tanh is 6.4 ulps off and cbrt
# 15, as benchmarks/function_errors.py measures, and neither may be more than 5.5.
_PLAIN_LOOPS = {"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11) else {}
_WORSE_IN_THESE = frozenset({"cbrt", "tanh"})


_MANY = 1024  # programs, beyond which running them takes longer than compiling them


def quick(jaxpr: Any) -> dict[str, Any]:
    """The options of XLA with which a jaxpr compiles and runs soonest and computes no worse than `XLA_CPU` says."""
    if any(_programs(each) > _MANY for each, _ in equations(jaxpr) if name_of(each) == "pallas_call"):
        return {}
    worse = bool(_PLAIN_LOOPS) and any(name_of(each) in _WORSE_IN_THESE for each, _ in equations(jaxpr))
    return {**PORTABLE, **({} if worse else _PLAIN_LOOPS)}


def _programs(call: Any) -> int:
    """Of a Pallas call; 0 where a kernel computes how many."""
    grid = call.params["grid_mapping"].grid
    return math.prod(grid) if all(isinstance(length, int) for length in grid) else 0
