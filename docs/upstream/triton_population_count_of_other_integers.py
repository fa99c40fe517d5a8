"""On a GPU, a Pallas kernel's population_count and clz of anything but int32 and int64 do not compile.

Seen on an H200 with JAX 0.11.2 for uint8: "INTERNAL: Failed to compile Triton kernel. Context: []", without a line. For
int8, int16, uint8, uint16 and uint32, the Triton lowering falls back to `math.ctpop` and `math.ctlz`, which the
passes of Triton do not know (3.9, for NVIDIA and AMD, with no GPU).
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


def body(x_ref, o_ref):
    o_ref[...] = jax.lax.population_count(x_ref[...])


def count(x):
    return pl.pallas_call(body, out_shape=x, compiler_params=plgpu.CompilerParams())(x)


if jax.default_backend() != "gpu":
    raise SystemExit("nothing was run: this needs a GPU")
for dtype in (jnp.int32, jnp.uint32, jnp.uint8):
    print(jnp.dtype(dtype).name, count(jnp.full(16, 7, dtype))[0])
