"""On a GPU, a Pallas kernel's atomic_add of a block of integers adds them as floats: small ones vanish.

Seen on an H200 with JAX 0.11.2: 1 + 1 = 0. The Triton lowering emits `tt.atomic_rmw fadd` for a block of int32, since
it looks at the type of the block and not of its elements; a single int32 is added rightly (`add`). JAX 0.4.35 to
0.11.2; 0.12 emits `add`.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


def body(x_ref, start_ref, o_ref):
    plgpu.atomic_add(o_ref, (pl.ds(0, 16),), x_ref[...])


def add(x, start):
    return pl.pallas_call(body, out_shape=start, input_output_aliases={1: 0}, compiler_params=plgpu.CompilerParams())(
        x, start
    )


if jax.default_backend() != "gpu":
    raise SystemExit("nothing was run: this needs a GPU")
for value in (1, 1000, 2**23, 1065353216):  # the last one has the bits of 1.0
    x = jnp.full(16, value, jnp.int32)
    print(f"{value} + {value} = {np.asarray(add(x, x))[0]}, expected {2 * value}")
