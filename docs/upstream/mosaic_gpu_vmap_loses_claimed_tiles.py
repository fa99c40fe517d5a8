"""Under `jax.vmap`, `plgpu.dynamic_scheduling_loop` forgets to which array a claimed tile belongs.

`jax.vmap` puts another axis before the grid of a `plgpu.kernel`, and slices its references by the program's own index
there. The loop claims tiles of programs that have not started, from the whole grid, but reads only the indices along
the axes that the kernel named. It computes a tile of its own array in place of one of another array, whose tile is
lost. Needs no GPU: it reads the axes of the loop's answer in the traced kernel. JAX 0.11.2 and 0.12.0.1.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu


def equations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            for item in value if isinstance(value, (tuple, list)) else (value,):
                if hasattr(item := getattr(item, "jaxpr", item), "eqns"):
                    yield from equations(item)


def doubled(x):
    def body(x_ref, o_ref):
        @plgpu.dynamic_scheduling_loop(grid_names=("row",))
        def _(tile):
            (row,) = tile.index
            o_ref[row] = 2 * x_ref[row]

    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype), grid=x.shape[:1], grid_names=("row",))(x)


found = list(equations(jax.make_jaxpr(jax.vmap(doubled))(jnp.ones((3, 4, 128))).jaxpr))
(grid,) = [e.params["meshes"][0].grid for e in found if e.primitive.name == "mpmd_map"]
(axes,) = [e.params["grid_names"] for e in found if e.primitive.name == "query_cluster_cancel"]
print("JAX", jax.__version__, "claims tiles of the grid", grid, "and reads their indices along", axes)
raise SystemExit(int(len(axes) < len(grid)))
