"""With `collective=True`, both blocks of a cluster of the Blackwell product claim a tile (JAX 0.11.2, 0.12.0.1).

`jax.experimental.pallas.ops.gpu.blackwell_matmul_mgpu` calls `plgpu.dynamic_scheduling_loop` without `cluster_axes`,
which its documentation demands "if the kernel uses a cluster size > 1". Each block then requests another tile, and
the answer to either request is written to both blocks: two answers of 16 bytes to the same memory, at a barrier that
expects one. A block may compute a tile that the other does not, and a tile may be lost. Needs no GPU: it reads the
axes of the request in the traced kernel.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.gpu.blackwell_matmul_mgpu import TuningConfig, matmul_kernel


def equations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            for item in value if isinstance(value, (tuple, list)) else (value,):
                if hasattr(item := getattr(item, "jaxpr", item), "eqns"):
                    yield from equations(item)


config = TuningConfig(128, 128, 64, max_concurrent_steps=2, collective=True)
x = jnp.ones((256, 256), jnp.float16)
found = equations(jax.make_jaxpr(lambda a, b: matmul_kernel(a, b, config))(x, x).jaxpr)
(axes,) = [e.params["collective_axes"] for e in found if e.primitive.name == "try_cluster_cancel"]
print("JAX", jax.__version__, "requests a tile once along", axes, "where it should be", ("x", "wg"))
raise SystemExit(int("x" not in axes))
