"""Small kernels that copy, each right, or wrong in one place: what a proof must tell apart."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

import kerneltest as kt

BLOCK = 16


@dataclass(frozen=True, slots=True)
class Copy:
    """A kernel with what is declared of it; its grid and its output's shape follow from the arguments' shapes."""

    name: str
    body: Callable[..., None]
    grid: Callable[..., tuple[int, ...]]
    arguments: dict[str, Any]
    dims: dict[str, Any]
    out: Callable[..., tuple[int, ...]] = lambda *shapes: shapes[0]

    def pairing(self) -> kt.Pairing:
        """With an oracle that no proof asks."""

        def kernel(*arrays: jax.Array) -> Any:
            shapes = [array.shape for array in arrays]
            return pl.pallas_call(
                functools.partial(self.body, shapes=shapes),
                out_shape=jax.ShapeDtypeStruct(self.out(*shapes), arrays[0].dtype),
                grid=self.grid(*shapes),
                compiler_params=plgpu.CompilerParams(),
            )(*arrays)

        names = ", ".join(self.arguments)
        named = eval(f"lambda {names}: kernel({names})", {"kernel": kernel})
        oracle = eval(f"lambda {names}: {names.partition(',')[0]}")
        return kt.oracle_for(named, **self.arguments, dims=self.dims)(oracle)


def _blocks(n: int) -> int:
    return pl.cdiv(n, BLOCK)


def _vector(
    start: Callable[[Any], Any] = lambda i: i * BLOCK,
    inside: Callable[[Any, int], Any] = lambda at, n: at < n,
    to: Callable[[Any, int], Any] = lambda at, n: at,
) -> Callable[..., None]:
    """A block of a vector, masked."""

    def body(x_ref: Any, o_ref: Any, *, shapes: Any) -> None:
        (n,) = shapes[0]
        at = start(pl.program_id(0)) + jnp.arange(BLOCK)
        x = plgpu.load(x_ref.at[at], mask=at < n, other=0)
        plgpu.store(o_ref.at[to(at, n)], x, mask=inside(at, n))

    return body


def _matrix(
    rows: Callable[[Any, int], Any] = lambda at, m: at < m,
    columns: Callable[[Any, int], Any] = lambda at, n: at < n,
    place: Callable[[Any, Any], Any] = lambda i, j: (i, j),
) -> Callable[..., None]:
    """A tile of a matrix, masked along both axes."""

    def body(x_ref: Any, o_ref: Any, *, shapes: Any) -> None:
        m, n = shapes[0]
        i, j = (pl.program_id(axis) * BLOCK + jnp.arange(BLOCK) for axis in (0, 1))
        x = plgpu.load(x_ref.at[i[:, None], j[None, :]], mask=(i < m)[:, None] & (j < n)[None, :], other=0)
        at = place(i[:, None], j[None, :])
        plgpu.store(o_ref.at[at], x, mask=rows(i, m)[:, None] & columns(j, n)[None, :])

    return body


def _rows(
    tiles: Callable[[int], Any] = _blocks, inside: Callable[[Any, int], Any] = lambda at, n: at < n
) -> Callable[..., None]:
    """A row in a loop over its tiles."""

    def body(x_ref: Any, o_ref: Any, *, shapes: Any) -> None:
        _, n = shapes[0]
        row = pl.program_id(0)

        def step(tile: Any, carry: None) -> None:
            at = tile * BLOCK + jnp.arange(BLOCK)
            plgpu.store(o_ref.at[row, at], plgpu.load(x_ref.at[row, at], mask=at < n, other=0), mask=inside(at, n))

        jax.lax.fori_loop(0, tiles(n), step, None)

    return body


def _carried(step_by: int = BLOCK) -> Callable[..., None]:
    """The same with the offset carried from turn to turn."""

    def body(x_ref: Any, o_ref: Any, *, shapes: Any) -> None:
        _, n = shapes[0]
        row = pl.program_id(0)

        def step(_: Any, at: Any) -> Any:
            plgpu.store(o_ref.at[row, at], plgpu.load(x_ref.at[row, at]))
            return at + step_by

        jax.lax.fori_loop(0, n // BLOCK, step, jnp.arange(BLOCK))

    return body


def _flat(row: Callable[[Any, int], Any] = lambda i, n: i * n) -> Callable[..., None]:
    """A row of a matrix held as a vector, by an offset that the kernel computes."""

    def body(x_ref: Any, like_ref: Any, o_ref: Any, *, shapes: Any) -> None:
        n = shapes[1][1]
        lane = jnp.arange(pl.next_power_of_2(n))
        at = row(pl.program_id(0), n) + lane
        plgpu.store(o_ref.at[at], plgpu.load(x_ref.at[at], mask=lane < n, other=0), mask=lane < n)

    return body


def _gather(index: Callable[[Any], Any] = lambda i: i) -> Callable[..., None]:
    """The row that an index points at."""

    def body(x_ref: Any, at_ref: Any, o_ref: Any, *, shapes: Any) -> None:
        i, lane = pl.program_id(0), jnp.arange(BLOCK)
        o_ref[i, lane] = x_ref[index(at_ref[i]), lane]

    return body


def _scatter(x_ref: Any, at_ref: Any, o_ref: Any, *, shapes: Any) -> None:
    """To the row that an index points at, where two may point at one."""
    i, lane = pl.program_id(0), jnp.arange(BLOCK)
    o_ref[at_ref[i], lane] = x_ref[i, lane]


def _by_a_float(x_ref: Any, o_ref: Any, *, shapes: Any) -> None:
    i = pl.program_id(0)
    o_ref[i] = x_ref[(i.astype(jnp.float32) * 0.5).astype(jnp.int32)]


def _through_a_division(wide: Callable[[int], int] = lambda n: n) -> Callable[..., None]:
    """One program an element, whose row and column follow from a division."""

    def body(x_ref: Any, o_ref: Any, *, shapes: Any) -> None:
        _, n = shapes[0]
        i = pl.program_id(0)
        row, column = jax.lax.div(i, wide(n)), jax.lax.rem(i, wide(n))
        o_ref[row, column] = x_ref[row, column]

    return body


def _added(x_ref: Any, o_ref: Any, *, shapes: Any) -> None:
    """Each program adds to the same elements, atomically."""
    (n,) = shapes[0]
    at = pl.program_id(0) * BLOCK + jnp.arange(BLOCK)
    x = plgpu.load(x_ref.at[at], mask=at < n, other=0)
    plgpu.atomic_add(o_ref, (jnp.arange(BLOCK),), x)


def _while(x_ref: Any, o_ref: Any, *, shapes: Any) -> None:
    """A row, tile after tile while there are more."""
    _, n = shapes[0]
    row = pl.program_id(0)

    def step(tile: Any) -> Any:
        at = tile * BLOCK + jnp.arange(BLOCK)
        plgpu.store(o_ref.at[row, at], plgpu.load(x_ref.at[row, at], mask=at < n, other=0), mask=at < n)
        return tile + 1

    jax.lax.while_loop(lambda tile: tile * BLOCK < n, step, 0)


def _only_if(apart: int) -> Callable[..., None]:
    """An element of each program that a condition lets do something."""

    def body(x_ref: Any, o_ref: Any, *, shapes: Any) -> None:
        (n,) = shapes[0]
        i = pl.program_id(0)

        @pl.when(i * apart < n)
        def _() -> None:
            o_ref[i] = x_ref[i]

    return body


V = {"x": kt.array("n", "float32")}
M = {"x": kt.array("m n", "float32")}
F = {"x": kt.array("m n", "float32"), "like": kt.array("m n", "float32")}
G = {"x": kt.array("n 16", "float32"), "at": kt.indices("q", into="n")}
N, MN = {"n": kt.dim(block=BLOCK)}, {"m": kt.dim(block=BLOCK), "n": kt.dim(block=BLOCK)}


def _along(n: tuple[int, ...]) -> tuple[int, ...]:
    return (_blocks(n[0]),)


def _tiles(x: tuple[int, ...]) -> tuple[int, ...]:
    return _blocks(x[0]), _blocks(x[1])


def _one_a_row(x: tuple[int, ...], *_: Any) -> tuple[int, ...]:
    return (x[0],)


def _one_an_index(x: Any, at: tuple[int, ...]) -> tuple[int, ...]:
    return (at[0],)


def _found(x: Any, at: tuple[int, ...]) -> tuple[int, ...]:
    return at[0], BLOCK


def _turned(x: tuple[int, ...]) -> tuple[int, ...]:
    return x[1], x[0]


RIGHT = (
    Copy("a vector in blocks", _vector(), _along, V, N),
    Copy("from the end", _vector(to=lambda at, n: n - 1 - at), _along, V, N),
    Copy(
        "a length that blocks divide", _vector(inside=lambda at, n: at >= 0), _along, V, {"n": kt.dim(multiple_of=16)}
    ),
    Copy("a matrix in tiles", _matrix(), _tiles, M, MN),
    Copy("a matrix that is turned", _matrix(place=lambda i, j: (j, i)), _tiles, M, MN, _turned),
    Copy("rows in a loop", _rows(), _one_a_row, M, MN),
    Copy("rows in a loop, of lengths from 0", _rows(), _one_a_row, M, {"n": kt.dim(block=BLOCK, minimum=0)}),
    Copy("an offset carried along", _carried(), _one_a_row, M, {"n": kt.dim(multiple_of=16)}),
    Copy("rows at an index", _gather(), _one_an_index, G, {}, _found),
    Copy("a row and a column by division", _through_a_division(), lambda x: (x[0] * x[1],), M, {}),
    Copy("an atomic sum", _added, _along, V, N, lambda x: (BLOCK,)),
    Copy("one program", _vector(), lambda x: (1,), V, {"n": kt.dim(maximum=16)}),
    Copy("a loop that goes on while there is more", _while, _one_a_row, M, {"n": kt.dim(maximum=2**20)}),
    Copy("more programs than elements", _only_if(1), lambda x: (x[0] + 3,), V, {"n": kt.dim(maximum=99)}),
    Copy("a few lengths", _vector(), lambda x: (1,), V, {"n": kt.dim(values=(3, 16, 5))}),
)

# Each with the verdict of its counterexample and words of it.
WRONG = (
    (Copy("<= for <", _vector(inside=lambda at, n: at <= n), _along, V, N), "out_of_bounds", "store at o_ref"),
    (Copy("no mask", _vector(inside=lambda at, n: at >= 0), _along, V, N), "out_of_bounds", "store at o_ref"),
    (Copy("a mask for one more", _vector(inside=lambda at, n: at < n + 1), _along, V, N), "out_of_bounds", "store at"),
    (Copy("one past", _vector(to=lambda at, n: at + 1), _along, V, N), "out_of_bounds", "store at o_ref"),
    (Copy("from the end and one", _vector(to=lambda at, n: n - at), _along, V, N), "out_of_bounds", "store at o_ref"),
    (Copy("blocks half as far apart", _vector(lambda i: i * 8), _along, V, N), "race", "is written by"),
    (Copy("a program too many", _vector(lambda i: jnp.maximum(i - 1, 0) * BLOCK),
          lambda x: (_blocks(x[0]) + 1,), V, N), "race", "is written by"),
    (Copy("no mask of rows", _matrix(rows=lambda at, m: at >= 0), _tiles, M, MN), "out_of_bounds", "store at o_ref"),
    (Copy("no mask of columns", _matrix(columns=lambda at, n: at >= 0), _tiles, M, MN),
     "out_of_bounds", "store at o_ref"),
    (Copy("axes swapped", _matrix(place=lambda i, j: (j, i)), _tiles, M, MN), "out_of_bounds", "store at o_ref"),
    (Copy("masks swapped", _matrix(place=lambda i, j: (j, i), rows=lambda at, m: at < m + 1), _tiles, M, MN, _turned),
     "out_of_bounds", "store at o_ref"),
    (Copy("a turn too many", _rows(lambda n: _blocks(n) + 1, lambda at, n: at >= 0), _one_a_row, M, MN),
     "out_of_bounds", "store at o_ref"),
    (Copy("a carried offset that grows too fast", _carried(2 * BLOCK), _one_a_row, M,
          {"n": kt.dim(multiple_of=16)}), "out_of_bounds", "at x_ref"),
    (Copy("the row after an index", _gather(lambda i: i + 1), _one_an_index, G, {}, _found), "out_of_bounds", "x_ref"),
    (Copy("rows to an index", _scatter, _one_a_row, {"x": kt.array("q 16", "float32"), "at": kt.indices("q", into="n"),
          }, {"n": kt.dim(maximum=40)}, lambda x, at: (40, BLOCK)), "race", "is written by"),
    (Copy("division by another length", _through_a_division(lambda n: n + 1), lambda x: (x[0] * x[1],), M, {}),
     "race", "is written by"),
    (Copy("a branch whose condition wraps around", _only_if(2**16), lambda x: (x[0] + 70_000,), V,
          {"n": kt.dim(maximum=99)}),
     "out_of_bounds", "at x_ref"),
    (Copy("a length that is less than the block", _vector(inside=lambda at, n: at >= 0), lambda x: (1,), V,
          {"n": kt.dim(values=(16, 15))}), "out_of_bounds", "store at o_ref"),
)  # fmt: skip

# Each with what stands in the way.
UNDECIDED = (
    (Copy("an index of which nothing is declared", _gather(), _one_an_index,
          {"x": G["x"], "at": kt.array("q", "int32")}, {}, _found), "whose values have no declared range"),
    (Copy("an index that is a float", _by_a_float, lambda x: (x[0],), V, {}), "arith.fptosi"),
)  # fmt: skip
