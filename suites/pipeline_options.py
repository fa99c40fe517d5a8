"""What the pipelines' pairings share: how many steps are concurrent, when buffers are released, which grids."""

from typing import Any

import jax

import kerneltest as kt

# (max_concurrent_steps, delay_release): from 1 to 6 steps with every delay below them.
ALL_STAGES = {f"{steps}-{delay}": (steps, delay) for steps in range(1, 7) for delay in range(steps)}
STAGES = {name: ALL_STAGES[name] for name in ("2-1", "1-0", "3-0", "4-2", "6-5")}
# With two blocks along the other axis, or one, these make grids of one step, of fewer steps than are concurrent, of
# exactly as many, and of many.
BLOCKS = (2, 1, 3)


# Before 0.11 a value's layout follows from its dtype, and JAX does not bring two together.
LAYOUTS = [
    kt.xfail(
        "compile_error",
        backend="lower:sm_90",
        reason="JAX 0.10 gives each load the layout of its dtype, and cannot add two or carry one that began as zeros",
        url="https://github.com/jax-ml/jax/blob/jax-v0.10.2/jax/experimental/mosaic/gpu/fragmented_array.py",
    )
] * (jax.__version_info__ < (0, 11))

REFUSED_STAGES = [
    kt.rejects(f"stages_{steps}_{delay}", stages=(steps, delay), raises=ValueError, match="max_concurrent_steps must")
    for steps, delay in ((1, 1), (2, 2), (2, 3), (6, 6))
]


def whole(block: int, *counts: int) -> Any:
    """A dim of so many blocks of a length."""
    return kt.dim(block=block, values=[count * block for count in counts])
