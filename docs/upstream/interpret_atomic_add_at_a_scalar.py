"""Interpret mode of Pallas refuses `atomic_add` at an index that is a Python integer.

Seen on a CPU with JAX 0.10.2 and 0.12.0.1: AttributeError, "'TypedInt' object has no attribute 'shape'". The rule that
turns the operation into array operations asks each index for its shape. `(pl.ds(0, 1),)` works, and so does lowering
the kernel for a GPU.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu


def body(x_ref, zero_ref, o_ref):
    plgpu.atomic_add(o_ref, 0, jnp.sum(x_ref[...]))


out = jax.ShapeDtypeStruct((1,), jnp.float32)
call = pl.pallas_call(body, out_shape=out, input_output_aliases={1: 0}, interpret=True)
try:
    print(call(jnp.ones(4), jnp.zeros(1)))
except AttributeError as error:
    raise SystemExit(f"JAX {jax.__version__}: {error}") from error
