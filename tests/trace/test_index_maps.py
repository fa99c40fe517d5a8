"""Blocks outside of arrays: a kernel that takes one is told so, and no right one is."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as plgpu

import kerneltest as kt
from kerneltest.backends.registry import resolve
from kerneltest.core.details import Access, MemoryFault
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.index_maps import calls_with_index_maps
from kerneltest.trace.rewrite import Fill, fill_outputs, fill_padding, reverse_grids, rewrite_jaxpr
from kerneltest.trace.tracing import Traced, analyze, trace_function

B = 32
HERE = Path(__file__)
ROW = pl.BlockSpec((B,), lambda i: (i,))
TPU = dict(compiler_params=pltpu.CompilerParams())
Kernel = Callable[..., Any]


def copy(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...]


def called(
    body: Kernel = copy, grid: Any = (4,), spec: Any = ROW, out: Any = None, n: int = 0, **options: Any
) -> Kernel:
    """A call with one input and one output, of `n` elements or as long as the input."""

    def kernel(x: jax.Array) -> Any:
        shape = jax.ShapeDtypeStruct((n,) if n else x.shape, x.dtype)
        options.update(in_specs=[spec], out_specs=out or ROW, out_shape=shape)
        return pl.pallas_call(body, grid=grid, **options)(x)

    return kernel


def traced(kernel: Kernel, *shapes: Any, dtype: Any = np.float32) -> Traced:
    inputs = tuple(
        s if isinstance(s, ShapeDtype) else ShapeDtype(s if isinstance(s, tuple) else (s,), np.dtype(dtype))
        for s in shapes or (100,)
    )
    return trace_function(lambda *leaves: jax.tree.leaves(kernel(*leaves)), inputs, "here")


def outside(kernel: Kernel, *shapes: Any) -> str:
    return "\n".join(
        fault.text() for call in calls_with_index_maps(traced(kernel, *shapes)) if (fault := call.find_outside_block())
    )


def when_inside(blocks: int) -> Kernel:
    def body(x_ref: Any, o_ref: Any) -> None:
        @pl.when(pl.program_id(0) < blocks)
        def _() -> None:
            o_ref[...] = x_ref[...]

    return body


def masked(x_ref: Any, o_ref: Any) -> None:
    inside = pl.program_id(0) * B + jnp.arange(B) < 100
    plgpu.store(o_ref.at[...], plgpu.load(x_ref.at[...], mask=inside, other=0), mask=inside)


def in_loop(turns: Any) -> Kernel:
    """What is read in a loop of a length that is known, or is not."""

    def body(x_ref: Any, o_ref: Any) -> None:
        count = turns if isinstance(turns, int) else pl.program_id(0)
        total = jax.lax.fori_loop(0, count, lambda _, v: v + x_ref[...], jnp.zeros(B))

        @pl.when(pl.program_id(0) < 4)
        def _() -> None:
            o_ref[...] = total

    return body


def by_halves(x_ref: Any, o_ref: Any) -> None:
    @jax.jit
    def half(v: Any) -> Any:
        return v / 2

    o_ref[...] = half(x_ref[...])


def unused(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = jnp.zeros(B)


def plain_and_padded(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[pl.ds(1, B)]


def matmul(grid: tuple[int, int]) -> Kernel:
    def body(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] @ y_ref[...]

    return lambda x, y: pl.pallas_call(
        body,
        grid=grid,
        in_specs=[pl.BlockSpec((16, 64), lambda i, j: (i, 0)), pl.BlockSpec((64, 16), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((16, 16), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct((48, 32), x.dtype),
    )(x, y)


def row_of(kind: Any, index_map: Kernel, body: Kernel = by_halves, grid: Any = (4,), **options: Any) -> Kernel:
    return called(body, grid, pl.BlockSpec((kind,), index_map), **options)


def in_a_branch(x: jax.Array) -> Any:
    return jax.lax.cond(x[0] > 0, called(grid=(5,)), lambda v: v, x)


def many(x: jax.Array) -> Any:
    """A grid of 2^40 programs over blocks that wrap around."""
    spec = pl.BlockSpec((B,), lambda i, j: ((i + j) % 4,))
    return called(grid=(2**20, 2**20), spec=spec, out=spec)(x)


RIGHT: dict[str, Kernel] = {
    "a tail": called(),
    "whole blocks": lambda x: called()(x[:64].repeat(2)),
    "fewer programs than blocks": called(grid=(2,)),
    "no program": called(grid=(0,)),
    "no grid": lambda x: pl.pallas_call(copy, out_shape=x)(x),
    "no blocks": lambda x: pl.pallas_call(copy, out_shape=x, grid=(9,))(x),
    "a block past the end that nobody touches": called(when_inside(4), (5,)),
    "a load under a mask": called(masked, (5,)),
    "a loop that may not turn": called(in_loop("?"), (5,), out=pl.BlockSpec((B,), lambda i: (jnp.minimum(i, 3),))),
    "a loop of no turns": called(in_loop(0), (5,), out=pl.BlockSpec((B,), lambda i: (jnp.minimum(i, 3),))),
    "an input that nobody reads": called(unused, spec=pl.BlockSpec((B,), lambda i: (i + 9,))),
    "clamped": called(grid=(6,), spec=pl.BlockSpec((B,), lambda i: (jnp.minimum(i, 3),)),
                      out=pl.BlockSpec((B,), lambda i: (jnp.clip(i, 0, 3),))),
    "wrapped around": called(grid=(9,), spec=pl.BlockSpec((B,), lambda i: (i % 4,)),
                             out=pl.BlockSpec((B,), lambda i: (i // 3,))),
    "the block before, if there is one": called(spec=pl.BlockSpec((B,), lambda i: (jnp.where(i > 0, i - 1, 0),))),
    "from the end": called(spec=pl.BlockSpec((B,), lambda i: (pl.cdiv(100, B) - 1 - i,))),
    "two axes": lambda x: matmul((3, 2))(x, jnp.ones((64, 32))),
    "squeezed": lambda x: pl.pallas_call(
        lambda x_ref, o_ref: copy(x_ref, o_ref), grid=(3, 2), out_shape=x,
        in_specs=[pl.BlockSpec((None, B), lambda i, j: (i, j))], out_specs=pl.BlockSpec((None, B), lambda i, j: (i, j)),
    )(x),
    "elements with padding": row_of(pl.Element(B + 2, (1, 29)), lambda i: (i * B,), plain_and_padded),
    "elements up to the end": row_of(pl.Element(B), lambda i: (i * B,)),
    "elements of which some lie before": row_of(pl.Element(B + 2), lambda i: (i * B - 1,), plain_and_padded),
    "in place": called(input_output_aliases={0: 0}),
    "vmapped": lambda x: jax.vmap(called())(jnp.stack([x, x])),
    "vmapped twice": lambda x: jax.vmap(jax.vmap(called()))(jnp.stack([x, x])[None]),
    "jitted": jax.jit(called()),
    "in a branch not taken": in_a_branch,
    "a grid of 2^40": many,
    "for a TPU": called(**TPU),
    "an unknown operation": called(spec=pl.BlockSpec((B,), lambda i: (jax.lax.bessel_i1e(1.0 * i).astype(int) + 9,))),
}  # fmt: skip

SHAPES: dict[str, Any] = {"two axes": (48, 64), "squeezed": (3, 64)}


RULES: dict[str, Callable[[], Any]] = {
    "as it is": lambda: lambda equation: None,
    "padded": lambda: fill_padding(Fill(nan=True)),
    "reversed": reverse_grids,
    "with old outputs": lambda: fill_outputs(Fill(nan=True)),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", RIGHT)
def test_no_right_kernel_is_accused_nor_is_it_rewritten(name: str, rule: str) -> None:
    kernel = traced(RIGHT[name], SHAPES.get(name, 100))
    changed = analyze(rewrite_jaxpr(kernel.jaxpr, RULES[rule]()), kernel.function, kernel.inputs)
    assert not any(call.find_outside_block() for call in calls_with_index_maps(changed))


LONG = pl.BlockSpec((B,), lambda i: (i + 1,))
BACK = pl.BlockSpec((B,), lambda i: (i - 1,))
LAST = pl.BlockSpec((B,), lambda i: (3,))
PAIR = pl.BlockSpec((B,), lambda i, j: (i * 2 + j,))

# What is said, where @ stands for the line of this file at which the index map is.
BROKEN: list[tuple[Kernel, str]] = [
    (
        called(grid=(5,)),
        "kernel copy: program (4,) takes block 4 of x_ref along axis 0, which has 4 blocks (0 to 3) of 32 for 100 "
        "elements, by the index map at @; 1 program in all; also of o_ref; interpret mode substitutes a block "
        "inside the array, which hides this: make axis 0 of the grid pl.cdiv(100, 32) long",
    ),
    (called(spec=LONG), "(3,) takes block 4 of x_ref .*; 1 program in all; interpret .*: keep the .* within 0 to 3"),
    (called(spec=BACK), r"(0,) takes block -1 of x_ref"),
    (called(out=LONG), "(3,) takes block 4 of o_ref"),
    (called(out=LAST, n=B), "(0,) takes block 3 of o_ref along axis 0, which has one block (0) of 32 for 32 elements"),
    (called(n=B), r"(1,) takes block 1 of o_ref .*: axis 0 of the grid counts the blocks of x_ref, so return another"),
    (called(grid=(), spec=pl.BlockSpec((B,), lambda: (4,)), out=pl.BlockSpec((B,), lambda: (0,))),
     "the only program takes block 4 of x_ref"),
    (called(grid=(3, 2), spec=PAIR, out=PAIR), "(2, 0) takes block 4 of x_ref .*; 2 programs in all"),
    (lambda x: matmul((3, 3))(x, jnp.ones((64, 32))), "(0, 2) takes block 2 of y_ref along axis 1, .*; 3 programs in "
     "all; also of o_ref; .* make axis 1 of the grid pl.cdiv(32, 16) long"),
    (called(when_inside(3), (5,), **TPU), "(4,) takes block 4 of x_ref"),
    (called(unused, spec=LONG, **TPU), "(3,) takes block 4 of x_ref"),
    (called(in_loop(3), (5,)), "(4,) takes block 4 of x_ref .*; 1 program in all; interpret"),
    (called(by_halves, (5,), input_output_aliases={0: 0}), "(4,) takes block 4 of x_ref"),
    (jax.jit(called(grid=(6,))), "(4,) takes block 4 of x_ref .*; 2 programs in all"),
    (jax.vmap(called(grid=(5,))), "(4,) takes block 4 of x_ref along axis 1"),
    (row_of(pl.Element(B), lambda i: (i * B + 4,)), "(3,) takes the 32 elements from 100 of x_ref along axis 0, "
     "which has elements 0 to 99"),
    (row_of(pl.Element(B, (4, 0)), lambda i: (i * B - 36,)), "(0,) takes .* from -36 .* 0 to 99, padded by 4 and 0"),
    (row_of(pl.Element(B), lambda i: (i * B - 1,), **TPU), "(0,) takes the 32 elements from -1 of x_ref"),
    (called(grid=(2**20,) * 2, spec=PAIR, out=pl.BlockSpec((B,), lambda i, j: (i % 4,))),
     "takes block [0-9]+ of x_ref .*; at least [0-9]+ programs in all"),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "said"), BROKEN)
def test_a_block_outside_is_told(kernel: Kernel, said: str) -> None:
    shape: Any = (48, 64) if "y_ref" in said else (2, 100) if "axis 1" in said else 100
    told = outside(kernel, shape)
    place = re.search(rf"{HERE.name}:(\d+);", told)
    assert place is not None
    assert re.search(r"lambda|index_map", HERE.read_text().splitlines()[int(place[1]) - 1])
    pattern = re.sub(r"([()])", r"\\\1", said).replace("@", r"\S+")
    assert re.search(pattern, told), told


def test_a_squeezed_axis_is_counted_in_elements() -> None:
    spec = pl.BlockSpec((None, B), lambda i: (i, 0))
    kernel = called(grid=(4,), spec=spec, n=4 * B)
    assert "program (3,) takes element 3 of x_ref along axis 0, which has elements 0 to 2" in outside(kernel, (3, 64))


def test_a_large_grid_costs_milliseconds() -> None:
    (call,) = calls_with_index_maps(traced(many))
    start = time.thread_time()
    assert call.find_outside_block() is None
    assert time.thread_time() - start < 5  # days if each program were looked at


@pytest.mark.parametrize("rule", ["padded", "reversed", "with old outputs"])
def test_a_rewritten_kernel_is_told_the_same_of(rule: str) -> None:
    kernel = traced(called(grid=(5,)))
    changed = analyze(rewrite_jaxpr(kernel.jaxpr, RULES[rule]()), kernel.function, kernel.inputs)
    (fault,) = (call.find_outside_block() for call in calls_with_index_maps(changed))
    assert fault is not None
    told = fault.text()
    assert "takes block 4 of x_ref along axis 0, which has 4 blocks (0 to 3) of 32" in told
    assert "1 program in all; also of o_ref; " in told


def _gathered(table: jax.Array, x: jax.Array) -> Any:
    def body(table_ref: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    grid = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=table.shape,
        in_specs=[pl.BlockSpec((8, 128), lambda i, table: (table[i], 0))],
        out_specs=pl.BlockSpec((8, 128), lambda i, table: (i, 0)),
    )
    shape = jax.ShapeDtypeStruct((8 * table.size, 128), x.dtype)
    return pl.pallas_call(body, grid_spec=grid, out_shape=shape)(table, x)


@pytest.mark.parametrize(
    ("kernel", "table", "said"),
    [
        (_gathered, [0, 2, 1], ""),
        (_gathered, [0, 3, 4], "program (1,) takes block 3 of x_ref along axis 0, which has 3 blocks (0 to 2) of 8 for "
         "24 elements"),
        (_gathered, [0, -1, 2], "program (1,) takes block -1 of x_ref"),
        (jax.jit(_gathered), [3, 0, 0], "keep the scalars that it reads within 0 to 2"),
        (lambda table, x: _gathered(table % 3, x), [0, 3, 4], ""),
    ],
)  # fmt: skip
def test_prefetched_scalars_are_looked_at_case_by_case(kernel: Kernel, table: list[int], said: str) -> None:
    kernel = traced(kernel, ShapeDtype((3,), np.dtype(np.int32)), (24, 128))
    leaves = np.array(table, np.int32), np.arange(24 * 128, dtype=np.float32).reshape(24, 128)
    executable = resolve(["interpret"])[0].prepare(kernel)
    if not said:
        executable.run(leaves)
        return
    with pytest.raises(Failure, match=re.escape(said)) as caught:
        executable.run(leaves)
    assert caught.value.verdict is Verdict.OUT_OF_BOUNDS
    detail = caught.value.detail
    assert isinstance(detail, MemoryFault)
    assert detail.buffer == "x_ref"
    assert detail.element.startswith("block ")
    assert detail.visit.access is Access.BLOCK


def test_every_case_of_a_signature_with_such_a_block_is_out_of_bounds() -> None:
    """A grid that is one too long where the length is a multiple of the block: the values are right all the same."""

    def kernel(x: jax.Array) -> Any:
        return called(by_halves, (x.shape[0] // B + 1,))(x)

    @kt.oracle_for(kernel, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(50, 64))))
    def halves(x: Any) -> Any:
        return x / 2

    result = kt.check(halves, backends=["interpret"], depth="quick")
    assert {(f.signature, f.verdict) for f in result.findings} == {("n=64,float32", Verdict.OUT_OF_BOUNDS)}
    assert all("program (2,) takes block 2 of x_ref" in finding.message for finding in result.findings)
