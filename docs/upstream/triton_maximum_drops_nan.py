"""jnp.maximum, jnp.max and jax.nn.relu drop NaN in Pallas kernels on a GPU (JAX 0.10.2, 0.11.2 and 0.12.0.1).

The Triton lowering emits `arith.maxnumf`, which returns the operand that is not NaN; `jnp.maximum` is documented to
return NaN, and does so everywhere else. Shown here without a GPU, by the lowered code; with one, also by values (seen
on an NVIDIA H200, JAX 0.11.2: prints [0. 1.] instead of [nan 1.]).
"""

import re

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh
from jaxlib.mlir import ir
from jaxlib.triton import dialect


def kernel(x_ref, o_ref):
    o_ref[...] = jnp.maximum(x_ref[...], 0.0)


x = jnp.array([jnp.nan, 1.0], jnp.float32)
relu = jax.jit(pl.pallas_call(kernel, out_shape=x, compiler_params=plgpu.CompilerParams()))
hopper = AbstractDevice(device_kind="NVIDIA H200", num_cores=None, platform="gpu")
with use_abstract_mesh(AbstractMesh((), (), abstract_device=hopper)):
    lowered = relu.trace(x).lower(lowering_platforms=("cuda",)).compiler_ir()

with lowered.context as context:
    dialect.register_dialect(context)
    call = next(op for op in lowered.body.operations[0].body.blocks[0].operations if "custom_call" in op.name)
    bytecode = ir.StringAttr(ir.DictAttr(call.attributes["mhlo.backend_config"])["ir"]).value_bytes
    print(re.findall(r"arith\.max\w+", str(ir.Module.parse(bytecode))))
if jax.default_backend() == "gpu":
    print(relu(x))
