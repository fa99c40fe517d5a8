"""On a CPU, XLA gives a sum of products to YNNPACK, which mixes up their broadcast axes unless XLA has simplified them.

Without XLA's algebraic simplifier, as one compiles to keep `0 * NaN`, the sum below is off by more than 10 for 8 times
32 rows. kerneltest compiles without fusions of YNNPACK.
Seen with JAX 0.10.2; JAX 0.12.0.1 is right.
"""

import jax
import jax.numpy as jnp
import numpy as np

x, y = (np.random.default_rng(0).normal(size=(rows, 16)).astype(np.float32) for rows in (8, 32))
products = jax.jit(lambda x, y: jnp.sum(x[:, None, :] * y[None], axis=-1))
compiled = products.lower(x, y).compile(compiler_options={"xla_disable_hlo_passes": "algsimp"})
error = np.abs(compiled(x, y) - x @ y.T).max()
print("JAX", jax.__version__, "is off by", error)
raise SystemExit(int(error > 1e-3))
