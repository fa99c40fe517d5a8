"""Kernels with one fault each that only a device shows, and their right twins, for `benchmarks/sanitized.py`.

Triton shares no memory between its threads by itself, so inline assembly does that here.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as mosaic
from jax.experimental.pallas import triton

import kerneltest as kt
from kerneltest.extensions.sanitizer.tools import TOOLS

N = 1000
LANES = 128
_PADDED = 1024  # lanes of a program, more than there are elements
_FAR = 1 << 26

Kernel = Callable[[jax.Array], jax.Array]


def _loaded(x_ref: Any) -> tuple[Any, Any]:
    there = jnp.arange(_PADDED) < N
    return triton.load(x_ref.at[jnp.arange(_PADDED)], mask=there, other=0.0), there


def copy_masked(x_ref: Any, o_ref: Any) -> None:
    x, there = _loaded(x_ref)
    triton.store(o_ref.at[jnp.arange(_PADDED)], x, mask=there)


def store_far_away(x_ref: Any, o_ref: Any) -> None:
    x, there = _loaded(x_ref)
    triton.store(o_ref.at[jnp.arange(_PADDED)], x, mask=there)
    triton.store(o_ref.at[_FAR + jnp.arange(_PADDED)], x)


def store_past_the_end(x_ref: Any, o_ref: Any) -> None:
    x, _ = _loaded(x_ref)
    triton.store(o_ref.at[jnp.arange(_PADDED)], x)  # 24 floats too many


def load_past_the_end(x_ref: Any, o_ref: Any) -> None:
    x = triton.load(x_ref.at[jnp.arange(_PADDED)])  # likewise
    triton.store(o_ref.at[jnp.arange(_PADDED)], x, mask=jnp.arange(_PADDED) < N)


def store_before_the_start(x_ref: Any, o_ref: Any) -> None:
    x, there = _loaded(x_ref)
    triton.store(o_ref.at[jnp.arange(_PADDED) - 8], x, mask=there)


def add_to_output(x_ref: Any, o_ref: Any) -> None:
    x, there = _loaded(x_ref)
    before = triton.load(o_ref.at[jnp.arange(_PADDED)], mask=there, other=0.0)  # nobody wrote that
    triton.store(o_ref.at[jnp.arange(_PADDED)], x + before, mask=there)


def add_to_own(x_ref: Any, o_ref: Any) -> None:
    x, there = _loaded(x_ref)
    triton.store(o_ref.at[jnp.arange(_PADDED)], x, mask=there)
    before = triton.load(o_ref.at[jnp.arange(_PADDED)], mask=there, other=0.0)
    triton.store(o_ref.at[jnp.arange(_PADDED)], x + before, mask=there)


# Each thread puts its element into shared memory and takes that of a thread in another warp.
_EXCHANGE = """{ .shared .align 4 .b32 buffer[128]; .reg .b32 mine, other, offset;
mov.u32 offset, %tid.x; shl.b32 offset, offset, 2; mov.u32 mine, buffer; mov.u32 other, buffer;
add.u32 mine, mine, offset; st.shared.b32 [mine], $1;
BARRIER
xor.b32 offset, offset, 256; add.u32 other, other, offset; ld.shared.b32 $0, [other]; }"""
_BARRIER = """{ .reg .b32 thread; .reg .pred here; mov.u32 thread, %tid.x; setp.lt.u32 here, thread, LIMIT;
@here bar.sync 0; mov.b32 $0, $1; }"""


def _assembly(code: str, x_ref: Any, o_ref: Any) -> None:
    x = x_ref[...]
    (y,) = triton.elementwise_inline_asm(
        code, args=[x], constraints="=r,r", pack=1, result_shape_dtypes=[jax.ShapeDtypeStruct(x.shape, x.dtype)]
    )
    o_ref[...] = y


def exchange(x_ref: Any, o_ref: Any) -> None:
    _assembly(_EXCHANGE.replace("BARRIER", "bar.sync 0;"), x_ref, o_ref)


def exchange_unguarded(x_ref: Any, o_ref: Any) -> None:
    _assembly(_EXCHANGE.replace("BARRIER", ""), x_ref, o_ref)


def wait_for_all(x_ref: Any, o_ref: Any) -> None:
    _assembly(_BARRIER.replace("LIMIT", "1024"), x_ref, o_ref)


def wait_in_half_a_warp(x_ref: Any, o_ref: Any) -> None:
    _assembly(_BARRIER.replace("LIMIT", "16"), x_ref, o_ref)


def _by_triton(body: Callable[..., None]) -> Kernel:
    def kernel(x: jax.Array) -> jax.Array:
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pl.pallas_call(body, out_shape=shape, compiler_params=triton.CompilerParams())(x)

    return kernel


def _warpgroups(*, wait: bool) -> Kernel:
    def hand_over(x_ref: Any, o_ref: Any, shared: Any, written: Any) -> None:
        number = jax.lax.axis_index("wg")

        @pl.when(number == 0)
        def _() -> None:
            shared[...] = x_ref[...]
            if wait:
                mosaic.barrier_arrive(written)

        @pl.when(number == 1)
        def _() -> None:
            if wait:
                mosaic.barrier_wait(written)
            o_ref[...] = shared[...]

    if not wait:
        hand_over.__name__ = "hand_over_unguarded"

    def kernel(x: jax.Array) -> jax.Array:
        return mosaic.kernel(  # type: ignore[no-any-return]
            hand_over,
            out_type=jax.ShapeDtypeStruct(x.shape, x.dtype),
            scratch_types=[mosaic.SMEM(x.shape, x.dtype), mosaic.Barrier()],
            num_threads=2,
            thread_name="wg",
        )(x)

    return kernel


def _blocks(count: int) -> Kernel:
    def copy_blocks(x_ref: Any, o_ref: Any) -> None:
        o_ref[pl.ds(jax.lax.axis_index("block") * LANES, LANES)] = x_ref[pl.ds(0, LANES)]

    if count > 1:
        copy_blocks.__name__ = "copy_blocks_past_the_end"

    def kernel(x: jax.Array) -> jax.Array:
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return mosaic.kernel(copy_blocks, out_type=shape, grid=(count,), grid_names=("block",))(x)  # type: ignore[no-any-return]

    return kernel


def _pairing(kernel: Kernel, length: int) -> kt.Pairing:
    def oracle(x: Any) -> Any:
        return x

    return kt.oracle_for(kernel, x=kt.array("n", "float32"), dims={"n": kt.dim(values=(length,))})(oracle)


# By name: the pairing, and the tools that must find its fault; none for a right kernel.
SUITE: dict[str, tuple[kt.Pairing, frozenset[str]]] = {
    **{
        body.__name__: (_pairing(_by_triton(body), length), frozenset(found))
        for body, length, found in (
            (copy_masked, N, []),
            (store_far_away, N, TOOLS),  # the device refuses that
            (store_past_the_end, N, ["memcheck", "guards"]),
            (store_before_the_start, N, ["memcheck", "guards"]),
            (load_past_the_end, N, ["memcheck"]),
            (add_to_own, N, []),
            (add_to_output, N, ["initcheck"]),
            (exchange, LANES, []),
            (exchange_unguarded, LANES, ["racecheck"]),
            (wait_for_all, LANES, []),
            (wait_in_half_a_warp, LANES, ["synccheck"]),
        )
    },
    "copy_blocks": (_pairing(_blocks(1), LANES), frozenset()),
    "copy_blocks_past_the_end": (_pairing(_blocks(2), LANES), frozenset(["memcheck", "guards"])),
    "hand_over": (_pairing(_warpgroups(wait=True), LANES), frozenset()),
    # A fault, of which racecheck says nothing: it does not follow Mosaic GPU's warpgroups.
    "hand_over_unguarded": (_pairing(_warpgroups(wait=False), LANES), frozenset()),
}
