"""In interpret mode, a lane that is masked off a store overwrites what another lane stores to the same element.

The interpreter stores the old content for such a lane, with one scatter for all lanes: this prints [0. 0.] and should
print [5. 0.] (JAX 0.10.2 and 0.12.0.1, a CPU). On a GPU, lanes that are masked off store nothing, so a compaction by
prefix sums may give them any position.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


def body(x_ref, at_ref, keep_ref, o_ref):
    o_ref[...] = jnp.zeros(2)
    plgpu.store(o_ref.at[at_ref[...]], x_ref[...], mask=keep_ref[...])


x, at, keep = jnp.array([5.0, 7.0]), jnp.array([0, 0]), jnp.array([True, False])
shape = jax.ShapeDtypeStruct((2,), jnp.float32)
print("JAX", jax.__version__)
print(pl.pallas_call(body, out_shape=shape, interpret=True)(x, at, keep))
