"""JAX's TPU interpreter refuses a copy of no elements that begins at a buffer's end (JAX 0.10.2 to 0.12.0.1).

It raises `IndexError: Out-of-bounds read`, although an empty range reads nothing, at any place. A wait for the 0 bytes
of an empty copy elsewhere fails with an AssertionError, because no signal has come yet.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def copy_in_two_parts(count_ref, x_ref, o_ref, done):
    for start, end in ((0, count_ref[0]), (count_ref[0], 16)):
        rows = pl.ds(start, end - start)
        copy = pltpu.make_async_copy(x_ref.at[rows], o_ref.at[rows], done)
        copy.start()
        copy.wait()


whole = pl.BlockSpec(memory_space=pl.ANY)
spec = pltpu.PrefetchScalarGridSpec(
    num_scalar_prefetch=1, grid=(1,), in_specs=[whole], out_specs=whole, scratch_shapes=[pltpu.SemaphoreType.DMA]
)
x = jnp.ones((16, 128))
for count, mode in ((16, "eager"), (0, "on_wait")):
    parameters = pltpu.InterpretParams(detect_races=True, dma_execution_mode=mode)
    call = pl.pallas_call(copy_in_two_parts, grid_spec=spec, out_shape=x, interpret=parameters)
    try:
        print("JAX", jax.__version__, count, "gives", call(jnp.array([count]), x).sum(), "and should give 2048")
    except Exception as error:
        raised = [line for line in str(error).splitlines() if line.startswith(("IndexError", "AssertionError"))]
        print("JAX", jax.__version__, count, "raises", raised)
