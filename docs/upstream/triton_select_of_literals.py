"""jnp.where(condition, 2.0, 1.0) of a scalar condition does not lower through Pallas' Triton backend.

Both branches are literals there, and the lowering of select_n makes its result a boolean: an AssertionError, or a
RuntimeError: std::bad_cast (JAX 0.10.2 and 0.12.0; no GPU is needed). With one branch that is no literal it lowers.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jax.sharding import AbstractDevice, AbstractMesh

print("JAX", jax.__version__)
H200 = AbstractMesh((), (), abstract_device=AbstractDevice(device_kind="NVIDIA H200", num_cores=None, platform="gpu"))


def body(x_ref, o_ref):
    o_ref[...] = x_ref[...] * jnp.where(jnp.max(x_ref[...]) > 0, 2.0, 1.0)


def kernel(x):
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(body, out_shape=shape, compiler_params=plgpu.CompilerParams())(x)


with jax.sharding.use_abstract_mesh(H200):
    jax.jit(kernel).trace(jax.ShapeDtypeStruct((16,), jnp.float32)).lower(lowering_platforms=("cuda",))
print("it lowers")
