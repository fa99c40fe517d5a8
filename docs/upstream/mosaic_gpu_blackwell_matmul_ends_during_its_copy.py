"""The matrix product for Blackwell GPUs may end while TMA still reads its shared memory (JAX 0.11.2, 0.12.0.1).

`jax.experimental.pallas.ops.gpu.blackwell_matmul_mgpu` leaves its last copy to global memory under way: after it
comes `wait_smem_to_gmem(1)`, which one copy may outlast, and nothing after the loop. Shared memory belongs to a block
until it exits, so the copy may read what the next block writes there. NVIDIA's examples end with a wait for all
copies to have read (CUDA C++ Programming Guide, "Using TMA to transfer multi-dimensional arrays", step 7), and so
does JAX's product for Hopper, with the comment "Await all transfers before we exit". Needs no GPU: it reads the waits
of the traced kernel.
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


config = TuningConfig(128, 128, 64, max_concurrent_steps=2, collective=False)
x = jnp.ones((256, 256), jnp.float16)
found = list(equations(jax.make_jaxpr(lambda a, b: matmul_kernel(a, b, config))(x, x).jaxpr))
names = [e.primitive.name for e in found]
last = len(names) - 1 - names[::-1].index("copy_smem_to_gmem")
left = [e.params["n"] for e in found[last:] if e.primitive.name == "wait_smem_to_gmem"]
print("JAX", jax.__version__, "after the last copy waits until so many are left:", left, "where it should be 0")
raise SystemExit(int(0 not in left))
