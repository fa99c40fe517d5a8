"""JAX's TPU interpreter cannot alias an output that ends within a block to an input (JAX 0.10.2 to 0.12.0.1).

It pads an input to whole blocks, takes the padded array as the aliased output's value, and returns it in that shape,
so the call does not compile. An output without an alias is cut to its own shape.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def double(x_ref, o_ref):
    o_ref[...] = 2 * x_ref[...]


x, block = jnp.ones((20, 128)), pl.BlockSpec((8, 128), lambda i: (i, 0))
call = pl.pallas_call(
    double, grid=(3,), in_specs=[block], out_specs=block, out_shape=x, input_output_aliases={0: 0},
    interpret=pltpu.InterpretParams(),
)  # fmt: skip
try:
    jax.jit(call).lower(x)
except ValueError as error:
    print("JAX", jax.__version__, "raises", str(error).splitlines()[:2])
    raise SystemExit(1) from None
print("JAX", jax.__version__, "interprets it")
