"""The matrix product for Hopper GPUs rounds `a @ b` before it adds `c` (JAX 0.10.2 to 0.12.0.1).

`jax.experimental.pallas.ops.gpu.hopper_matmul_mgpu` sums in float32, but `acc_ref[...].astype(out_dtype)` stands before
`out_smem += acc`. So `a @ b + c` is rounded twice: 2049 + 1 is 2048 in float16. It shows in the code, and
on an H200. This script needs a Hopper GPU.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.gpu.hopper_matmul_mgpu import TuningConfig, matmul

a, c = jnp.ones((128, 64), jnp.float16), jnp.ones((128, 128), jnp.float16)
b = jnp.ones((64, 128), jnp.float16).at[0].set(2049 - 63)
if jax.default_backend() != "gpu":
    raise SystemExit("this needs a Hopper GPU")
out = matmul(a, b, c, TuningConfig(64, 64, 64, max_concurrent_steps=2))
print("JAX", jax.__version__, "gives", out[0, 0], "where it should be 2050.0")
raise SystemExit(int(out[0, 0] != 2050))
