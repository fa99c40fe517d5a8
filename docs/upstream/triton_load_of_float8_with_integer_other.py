"""plgpu.load(ref, mask=mask, other=0) of an 8-bit float does not lower through Pallas' Triton backend.

The integer is not cast: NotImplementedError, "cannot cast tensor<16xi32> tp tensor<16xf8E4M3FN>". It lowers with
other=0.0, and other=0 lowers for every wider float (JAX 0.10.2 and 0.12.0.1; no GPU is needed).
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jax.sharding import AbstractDevice, AbstractMesh

print("JAX", jax.__version__)
H200 = AbstractMesh((), (), abstract_device=AbstractDevice(device_kind="NVIDIA H200", num_cores=None, platform="gpu"))


def body(x_ref, o_ref):
    at = jnp.arange(16)
    o_ref[...] = plgpu.load(x_ref.at[at], mask=at < 9, other=0).astype(jnp.float32)


def kernel(x):
    shape = jax.ShapeDtypeStruct(x.shape, jnp.float32)
    return pl.pallas_call(body, out_shape=shape, compiler_params=plgpu.CompilerParams())(x)


with jax.sharding.use_abstract_mesh(H200):
    jax.jit(kernel).trace(jax.ShapeDtypeStruct((16,), jnp.float8_e4m3fn)).lower(lowering_platforms=("cuda",))
print("it lowers")
