"""megablox.gmm leaves rows unwritten near the end of 4,004 tiles (JAX 0.10.2 to 0.12.0.1).

`make_group_metadata` counts visits of each tile by `jnp.histogram(..., bins=tiles_m, range=(0, tiles_m - 1))`, whose
edges lie 1 - 1 / tiles_m apart. In float32 the edge after tile t = tiles_m - 2, which is t + 1 / tiles_m, becomes t
at 4,004 tiles for the first time, and a visit to that tile is counted for the next one. A group that starts within it
then never gets the rows it has there. 640,000 rows in tiles of 128 are 5,000. `jnp.bincount` has no edges.
Shown without a TPU: a product of ones, where row i should have the number of its group.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.megablox.gmm import gmm

TILES = 4_004
m = 8 * TILES
sizes = jnp.array([m - 12, 12], jnp.int32)  # the second group starts within tile TILES - 2
matrices = jnp.stack([jnp.full((8, 8), 1 / 8), jnp.full((8, 8), 2 / 8)])
out = gmm(jnp.ones((m, 8)), matrices, sizes, tiling=(8, 8, 8), interpret=True)
expected = jnp.repeat(jnp.array([1.0, 2.0]), sizes, total_repeat_length=m)
wrong = jnp.nonzero(out[:, 0] != expected)[0]
print("JAX", jax.__version__, "gives", out[wrong, 0], "in rows", wrong, "where each should be 2.0")
raise SystemExit(int(wrong.size > 0))
