"""On a CPU, XLA removes the two additions by which a kernel rounds a float to an integer.

`(x + 1.5 * 2**23) - 1.5 * 2**23` is `x` rounded to the nearest integer, ties to even, where |x| < 2**22. GPU
kernels use it because it costs two additions. XLA adds up the two constants first, so `jax.jit` returns `x` itself and
the interpreters of Pallas, which compile with XLA, differ from a GPU. Outside of `jax.jit` the result is right.
Seen with JAX 0.10.2 and 0.11.2; JAX 0.12.0.1 returns 30, 30 and 1.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def body(x_ref, o_ref):
    o_ref[...] = (x_ref[...] + 12582912) - 12582912


x = jnp.array([29.75, 30.5, 1.25], jnp.float32)
rounded = pl.pallas_call(body, out_shape=x, interpret=True)
got = jax.jit(rounded)(x)
print("JAX", jax.__version__, "gives", got, "where 30, 30 and 1 are right")
raise SystemExit(int(not (got == jnp.array([30, 30, 1])).all()))
