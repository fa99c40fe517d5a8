"""Functions under `jax.shard_map` around a Pallas kernel that doubles, by name, for a mesh with the axes a and b."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from tests.sample import whole

P = PartitionSpec
SHAPE = (8, 4)


def double(x: jax.Array) -> jax.Array:
    return whole(lambda x_ref: x_ref[...] * 2, x, x)


def ring(x: jax.Array) -> jax.Array:
    def step(carry: Any, _: Any) -> Any:
        moving, total = carry
        return (jax.lax.ppermute(moving, "a", [(0, 1), (1, 0)]), total + double(moving)), moving.sum()

    (_, total), sums = jax.lax.scan(step, (x, jnp.zeros_like(x)), None, length=2)
    return total + sums.sum()


def loop(x: jax.Array) -> jax.Array:
    """Exchanges values in a loop whose length JAX does not know."""

    def body(carry: Any) -> Any:
        count, value = carry
        return count + 1, jax.lax.ppermute(double(value), "a", [(0, 1), (1, 0)])

    return jax.lax.while_loop(lambda carry: carry[0] < 2, body, (0, x))[1]


def _cases(mesh: Any) -> Mapping[str, Callable[..., Any]]:
    def over(function: Callable[..., Any], inside: Any, outside: Any, **options: Any) -> Callable[..., Any]:
        options = {"check_vma": False, **options}
        return jax.shard_map(function, mesh=mesh, in_specs=inside, out_specs=outside, **options)

    rows = over(double, P("a"), P("a"))
    both = P("a", "b")
    return {
        "rows": rows,
        "columns": over(double, P(None, "b"), P(None, "b")),
        "both dimensions": over(double, both, both),
        "both axes along one dimension": over(double, P(("b", "a")), P(("b", "a"))),
        "an axis that stays automatic": over(double, P("a"), P("a"), axis_names={"a"}),
        "replicated": over(double, P(), P()),
        "without a kernel": over(lambda x: x, both, both),
        "sum": over(lambda x: jax.lax.psum(double(x), ("a", "b")), both, P()),
        "sum of varying types": over(lambda x: jax.lax.psum(x * 2, "a") + jnp.ones(4), P("a"), P(), check_vma=True),
        "largest": over(jax.jit(lambda x: jax.lax.pmax(jax.jit(double)(x), "b")), both, P("a")),
        "gather": over(lambda x: double(jax.lax.all_gather(x, ("b", "a"), tiled=True)), P(("a", "b")), P()),
        "scatter": over(lambda x: jax.lax.psum_scatter(double(x), "a", tiled=True), P(), P("a")),
        "exchange": over(lambda x: jax.lax.all_to_all(double(x), "a", 1, 0, tiled=True), P("a"), P(None, "a")),
        "some send": over(lambda x: jax.lax.ppermute(double(x), "b", [(0, 1)]), both, both),
        "places": over(lambda x: double(x) + jax.lax.axis_index("b") - 2 * jax.lax.axis_index("a"), both, both),
        "ring": over(ring, P("a"), P("a")),
        "in jit": jax.jit(rows),
        "with shardings": lambda x: jax.jit(rows, in_shardings=None)(
            jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("a")))
        ),
        "batched": lambda x: jax.vmap(rows)(jnp.stack([x, x + 1])),
        "gradient": jax.grad(lambda x: (over(jnp.sin, P("a"), P("a"), check_vma=True)(x) ** 2).sum()),
    }


def sharded(name: str, mesh: Any) -> Callable[..., Any]:
    """The function of one name on a mesh."""
    return _cases(mesh)[name]


NAMES = tuple(_cases(AbstractMesh((2, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)))
