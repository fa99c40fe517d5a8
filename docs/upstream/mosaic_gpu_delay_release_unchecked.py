"""Mosaic GPU's `emit_pipeline` compares `max_concurrent_steps` with the smallest `delay_release`, not with all.

Its message says that `max_concurrent_steps` must be greater than all `delay_release` values, and with one input it is
so. With two inputs, one of which has no delay, any delay of the other is let through. JAX 0.10.2, 0.11.2, 0.12.0.1.
Needs no GPU: the error would be raised while the kernel is traced.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

BLOCK = (64, 64)


def traced(*delays):
    specs = [plgpu.BlockSpec(BLOCK, lambda i: (i, 0), delay_release=delay) for delay in delays]

    def kernel(*refs):
        plgpu.emit_pipeline(
            lambda _, *blocks: None, grid=(4,), in_specs=specs, max_concurrent_steps=2
        )(*refs[: len(delays)])  # fmt: skip

    x = jnp.zeros((256, 64))
    jax.make_jaxpr(plgpu.kernel(kernel, out_type=jax.ShapeDtypeStruct(BLOCK, jnp.float32)))(*[x] * len(delays))


for delays in ((5,), (0, 5)):
    try:
        traced(*delays)
        print("delays", delays, "with 2 concurrent steps: accepted")
    except ValueError as error:
        print("delays", delays, "refused:", error)
