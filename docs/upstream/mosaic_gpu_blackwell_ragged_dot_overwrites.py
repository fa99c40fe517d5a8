"""With `collective=True`, `ragged_dot_kernel` for Blackwell GPUs overwrites an accumulator that is being read.

`jax.experimental.pallas.ops.gpu.blackwell_ragged_dot_mgpu` starts a product, which writes to the tensor memory of
both blocks of a cluster, once `store_done_barrier` says that the block which starts it has read its half of the
accumulator. The other block signals a barrier of its own. In `blackwell_matmul_mgpu`, it is a `ClusterBarrier`, at
which both arrive. With `collective=False`, the kernel does not trace at all: it asks for its place along an axis "x"
that it has not. Needs no GPU. JAX 0.11.2 and 0.12.0.1.
"""

from types import SimpleNamespace
from unittest import mock

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.gpu.blackwell_matmul_mgpu import MatmulDimension
from jax.experimental.pallas.ops.gpu.blackwell_ragged_dot_mgpu import TuningConfig, ragged_dot_kernel


def traced(collective):
    config = TuningConfig(128, 128, 64, 2, collective, 1, MatmulDimension.N)
    a, b, sizes = jnp.ones((512, 128), jnp.float16), jnp.ones((2, 128, 256), jnp.float16), jnp.array([256, 256])
    with mock.patch.object(jax, "local_devices", return_value=[SimpleNamespace(core_count=148)]):
        return str(jax.make_jaxpr(lambda *x: ragged_dot_kernel(*x, config))(a, b, sizes))


waits_for_both = "cluster_barrier" in traced(collective=True)
print("JAX", jax.__version__, "waits for both blocks to have read:", waits_for_both)
try:
    traced(collective=False)
    traces = True
except NameError as error:
    print("collective=False:", error)
    traces = False
raise SystemExit(int(not (waits_for_both and traces)))
