"""JAX's Mosaic GPU interpreter refuses a scope with an accumulator and other memory (JAX 0.10.2 to 0.12.0.1).

`ValueError: Scoped allocations in MemorySpace.REGS cannot be mixed with scoped allocations in other memory spaces.` The
same scope lowers for Hopper. Two nested scopes, one of them for the accumulator, are interpreted.
"""

import jax
import jax.numpy as jnp
from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def square(x_ref, o_ref):
    def scope(x_smem, total, loaded):
        plgpu.copy_gmem_to_smem(x_ref, x_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.wgmma(total, x_smem, x_smem)
        o_ref[...] = total[...]

    tiled = plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128)
    operand = plgpu.SMEM((64, 64), jnp.bfloat16, transforms=tiled)
    pl.run_scoped(scope, operand, plgpu.ACC((64, 64), jnp.float32), plgpu.Barrier())


kernel = plgpu.kernel(
    square, out_type=jax.ShapeDtypeStruct((64, 64), jnp.float32), grid=(1,), grid_names=("program",),
    interpret=InterpretGPUParams(),
)  # fmt: skip
print("JAX", jax.__version__, kernel(jnp.ones((64, 64), jnp.bfloat16)).sum())
