"""Triton kernels with bugs that interpret mode does not show: accesses out of bounds, races and memory never written.

All take a vector `x` of 100 elements in blocks of 32, so the last block has a tail of 4.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from tests.corpus.twin import Twin, paired

N, BLOCK = 100, 32
BLOCKS = -(-N // BLOCK)
LOWEST = np.iinfo(np.int32).min
UNMASKED_TAIL = "pass" if jax.__version_info__ >= (0, 12) else "out_of_bounds"  # JAX masks it

Kernel = Callable[[jax.Array], jax.Array]


def _call(body: Callable[..., None], shape: Any = N, grid: Any = BLOCKS, **more: Any) -> Kernel:
    shape = shape if isinstance(shape, tuple) else (shape,)

    def kernel(x: jax.Array) -> jax.Array:
        return pl.pallas_call(
            body,
            out_shape=jax.ShapeDtypeStruct(shape, more.get("dtype") or x.dtype),
            grid=grid if isinstance(grid, tuple) else (grid,),
            compiler_params=plgpu.CompilerParams(),
            **{key: value for key, value in more.items() if key != "dtype"},
        )(x)

    return kernel


def _here() -> jax.Array:
    return pl.program_id(0) * BLOCK + jnp.arange(BLOCK)


def _copy(limit: int, shift: int = 0, mask_load: bool = True) -> Kernel:
    """A copy that stores where the index is below `limit`."""

    def body(x: Any, o: Any) -> None:
        at = _here()
        inside = at < N
        value = plgpu.load(x.at[at + shift], mask=inside, other=0) if mask_load else x[at + shift]
        plgpu.store(o.at[at], value, mask=at < limit)

    return _call(body)


def _blocked(masked: bool) -> Kernel:
    """A copy with blocks from a BlockSpec."""
    if masked:
        return _copy(N)
    block = pl.BlockSpec((BLOCK,), lambda i: (i,))

    def body(x: Any, o: Any) -> None:
        o[...] = x[...]

    return _call(body, in_specs=[block], out_specs=block)


def _tail_maximum(masked: bool) -> Kernel:
    """Each block's maximum; interpret mode pads the last block with the least integer, or clamps its indices."""

    def body(x: Any, o: Any) -> None:
        at = _here()
        value = plgpu.load(x.at[at], mask=at < N, other=LOWEST if masked else None)
        o[pl.program_id(0)] = jnp.max(value)

    return _call(body, BLOCKS)


def _neighbour(guarded: bool) -> Kernel:
    """Differences from the previous element, with the first one unchanged: index -1 is read and discarded."""

    def body(x: Any, o: Any) -> None:
        at = _here()
        inside = at < N
        before = plgpu.load(x.at[at - 1], mask=inside & (at > 0) if guarded else inside, other=0)
        here = plgpu.load(x.at[at], mask=inside, other=0)
        plgpu.store(o.at[at], jnp.where(at > 0, here - before, here), mask=inside)

    return _call(body)


def _lookup(guarded: bool) -> Kernel:
    """x[x] if x is an index, and 0 otherwise: invalid indices are looked up too, and the result is discarded."""

    def body(x: Any, o: Any) -> None:
        at = _here()
        inside = at < N
        index = plgpu.load(x.at[at], mask=inside, other=0)
        known = (index >= 0) & (index < N)
        found = plgpu.load(x.at[index], mask=inside & known if guarded else inside, other=0)
        plgpu.store(o.at[at], jnp.where(known, found, 0), mask=inside)

    return _call(body)


def _accumulated(kind: str) -> Kernel:
    """The sum of all blocks in one output block."""

    def body(x: Any, o: Any) -> None:
        at = _here()
        value = plgpu.load(x.at[at], mask=at < N, other=0)
        if kind == "store":

            @pl.when(pl.program_id(0) == 0)
            def _() -> None:
                o[...] = jnp.zeros_like(o)

            o[...] += value
        else:
            total = jnp.zeros(BLOCK, value.dtype)
            for i in range(BLOCKS):
                at = i * BLOCK + jnp.arange(BLOCK)
                total += plgpu.load(x.at[at], mask=at < N, other=0)
            o[...] = total

    return _call(body, BLOCK, BLOCKS if kind == "store" else 1)


def _accumulated_atomically(kind: str) -> Kernel:
    """The sum of all elements, which every program adds to in an output that starts at 0."""

    def body(x: Any, start: Any, o: Any) -> None:
        del start
        at = _here()
        total = jnp.sum(plgpu.load(x.at[at], mask=at < N, other=0))
        if kind == "plain":
            o[0] = o[0] + total
        else:
            plgpu.atomic_add(o, jnp.zeros((), jnp.int32), total)

    def kernel(x: jax.Array) -> jax.Array:
        return pl.pallas_call(
            body,
            out_shape=jax.ShapeDtypeStruct((1,), x.dtype),
            grid=(BLOCKS,),
            input_output_aliases={1: 0},
            compiler_params=plgpu.CompilerParams(),
        )(x, jnp.zeros(1, x.dtype))

    return kernel


def _maximum(initialised: bool) -> Kernel:
    """The running maximum of each block, in an output that only interpret mode initialises, to the least integer."""

    def body(x: Any, o: Any) -> None:
        at = _here()
        inside = at < N
        value = plgpu.load(x.at[at], mask=inside, other=LOWEST)
        before = jnp.full(BLOCK, LOWEST) if initialised else plgpu.load(o.at[at], mask=inside, other=LOWEST)
        plgpu.store(o.at[at], jnp.maximum(before, value), mask=inside)

    return _call(body)


def _pairs(own: bool) -> Kernel:
    """Two programs for each output block; the second one's value is kept if they run in order."""

    def body(x: Any, o: Any) -> None:
        i = pl.program_id(0)
        at = (2 * i + 1 if own else i) * BLOCK + jnp.arange(BLOCK)
        to = (i if own else i // 2) * BLOCK + jnp.arange(BLOCK)
        o[to] = plgpu.load(x.at[at], mask=at < N, other=0)

    return _call(body, 2 * BLOCK, 2 if own else BLOCKS)


def _same_value(own: bool) -> Kernel:
    """The number of elements, written by every program or by one."""

    def body(x: Any, o: Any) -> None:
        o[0] = jnp.asarray(N, x.dtype)

    return _call(body, 1, 1 if own else BLOCKS)


def _running_sum(own: bool) -> Kernel:
    """The sums of all blocks up to each one; the wrong kernel reads the output of the previous program."""

    def body(x: Any, o: Any) -> None:
        i = pl.program_id(0)
        if own:
            total = jnp.zeros((), x.dtype)
            for j in range(BLOCKS):
                at = j * BLOCK + jnp.arange(BLOCK)
                total += jnp.where(j <= i, jnp.sum(plgpu.load(x.at[at], mask=at < N, other=0)), 0)
            o[i] = total
            return
        at = _here()
        before = plgpu.load(o.at[jnp.maximum(i - 1, 0)], mask=i > 0, other=0)
        o[i] = before + jnp.sum(plgpu.load(x.at[at], mask=at < N, other=0))

    return _call(body, BLOCKS)


def _in_place(own: bool) -> Kernel:
    """Each element plus the next, stored to x itself; the wrong kernel reads elements that another program stores."""

    def body(x: Any, *rest: Any) -> None:
        o = rest[-1]
        at = _here()
        inside = at < N
        after = plgpu.load(x.at[at + 1], mask=at + 1 < N, other=0)
        plgpu.store(o.at[at], plgpu.load(x.at[at], mask=inside, other=0) + after, mask=inside)

    return _call(body, **({} if own else {"input_output_aliases": {0: 0}}))


def _empty_rows(written: bool) -> Kernel:
    """The maxima of rows, half of which are empty; interpret mode fills unwritten memory with the expected result."""

    def body(x: Any, o: Any) -> None:
        i, at = pl.program_id(0), _here()

        @pl.when(i % 2 == 0)
        def _() -> None:
            o[i] = jnp.max(plgpu.load(x.at[at], mask=at < N, other=LOWEST))

        if written:

            @pl.when(i % 2 == 1)
            def _() -> None:
                o[i] = jnp.int32(LOWEST)

    return _call(body, BLOCKS)


def _grid(blocks: int, fill: bool) -> Kernel:
    """The first 64 elements of x, and NaN after them: the wrong grid stops there, where memory holds NaN."""

    def body(x: Any, o: Any) -> None:
        at = _here()
        inside = at < N
        value = plgpu.load(x.at[at], mask=inside, other=0)
        plgpu.store(o.at[at], jnp.where(at < 2 * BLOCK, value, jnp.nan) if fill else value, mask=inside)

    return _call(body, N, blocks)


def _overlapping(step: int) -> Kernel:
    """A copy in windows that overlap by one element, to which two programs write the same value."""

    def body(x: Any, o: Any) -> None:
        at = pl.program_id(0) * step + jnp.arange(BLOCK)
        inside = at < N
        plgpu.store(o.at[at], plgpu.load(x.at[at], mask=inside, other=0), mask=inside)

    return _call(body, N, -(-(N - 1) // step))


def _histogram(atomic: bool) -> Kernel:
    """The number of occurrences of 0 to 15 in x (modulo 16), in counters that programs share."""

    def body(x: Any, start: Any, o: Any) -> None:
        del start
        value = x[pl.program_id(0)] & 15
        if atomic:
            plgpu.atomic_add(o, value, jnp.ones((), x.dtype))
        else:
            o[value] = o[value] + 1

    def kernel(x: jax.Array) -> jax.Array:
        return pl.pallas_call(
            body,
            out_shape=jax.ShapeDtypeStruct((16,), x.dtype),
            grid=(N,),
            input_output_aliases={1: 0},
            compiler_params=plgpu.CompilerParams(),
        )(x, jnp.zeros(16, x.dtype))

    return kernel


def _looped(blocks: int) -> Kernel:
    """The largest element; the loop of the wrong kernel runs for one block too many."""

    def body(x: Any, o: Any) -> None:
        def step(i: Any, most: Any) -> Any:
            at = i * BLOCK + jnp.arange(BLOCK)
            inside = at < N if blocks == BLOCKS else at >= 0
            return jnp.maximum(most, jnp.max(plgpu.load(x.at[at], mask=inside, other=LOWEST)))

        o[0] = jax.lax.fori_loop(0, blocks, step, jnp.int32(LOWEST))

    return _call(body, 1, 1)


def _searched(guarded: bool) -> Kernel:
    """The first position from the program's own on at which x is over 1000 (or N): x itself ends the loop."""

    def body(x: Any, o: Any) -> None:
        start = pl.program_id(0) * BLOCK

        def going(i: Any) -> Any:
            value = plgpu.load(x.at[i], mask=i < N, other=0) if guarded else x[i]
            return (i < N) & (value <= 1000)

        o[pl.program_id(0)] = jax.lax.while_loop(going, lambda i: i + 1, start)

    return _call(body, BLOCKS)


def _first_large(x: np.ndarray) -> np.ndarray:
    return np.array([next((j for j in range(i * BLOCK, N) if x[j] > 1000), N) for i in range(BLOCKS)])


def _block_maxima(x: np.ndarray) -> np.ndarray:
    return np.array([x[i * BLOCK : (i + 1) * BLOCK].max() for i in range(BLOCKS)])


def _padded(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, np.zeros(BLOCKS * BLOCK - N, x.dtype)]).reshape(BLOCKS, BLOCK)


def _even_maxima(x: np.ndarray) -> np.ndarray:
    return np.where(np.arange(BLOCKS) % 2 == 0, _block_maxima(x), LOWEST)


def _known_lookup(x: np.ndarray) -> np.ndarray:
    known = (x >= 0) & (x < N)
    return np.where(known, x[np.where(known, x, 0)], 0)


def _copied(x: np.ndarray) -> np.ndarray:
    return x


def _twin(
    name: str,
    wrong: Kernel,
    right: Kernel,
    oracle: Callable[[np.ndarray], np.ndarray],
    verdict: str,
    words: str,
    *lines: str,
    dtype: str = "float32",
) -> Twin:
    make = paired(
        lambda broken: wrong if broken else right, (N,), oracle, dtype, (-20, 140) if dtype == "int32" else None
    )
    verdicts = {"interpret": "pass", "simulate:sm_90": verdict, "simulate:gfx942": verdict}
    return Twin(name=name, make=make, verdicts=verdicts, words=words, lines=lines, cases="all")


TRITON = (
    _twin("a store one element past the end", _copy(N + 1), _copy(N), _copied, "out_of_bounds",
          "store at o offset 100", "plgpu.store("),
    _twin("a store of a block past the end", _copy(10 * N), _copy(N), _copied, "out_of_bounds", "28 in all",
          "plgpu.store("),
    _twin("an unmasked load of the tail", _copy(N, mask_load=False), _copy(N), _copied, "out_of_bounds", "load at x",
          "value = plgpu.load("),
    _twin("a block's tail left to the BlockSpec", _blocked(False), _blocked(True), _copied, UNMASKED_TAIL,
          "does not mask the tail of a block", "o[...] = x[...]"),
    _twin("a negative index", _neighbour(False), _neighbour(True), lambda x: np.concatenate([x[:1], np.diff(x)]),
          "out_of_bounds", "load at x offset -1 of 100", "before = plgpu.load("),
    _twin("a lookup by data that is no index", _lookup(False), _lookup(True), _known_lookup, "out_of_bounds",
          "load at x offset", "found = plgpu.load(", dtype="int32"),
    _twin("a masked load without other in a maximum", _tail_maximum(False), _tail_maximum(True), _block_maxima,
          "uninitialised", "a masked load without `other` at", "value = plgpu.load(", dtype="int32"),
    _twin("a sum accumulated in an output block by all programs", _accumulated("store"), _accumulated("once"),
          lambda x: _padded(x).sum(axis=0), "race", "is read by program (1)", "o[...] += value",
          "o[...] = jnp.zeros_like(o)"),
    _twin("a sum without atomics", _accumulated_atomically("plain"), _accumulated_atomically("atomic"),
          lambda x: x.sum(keepdims=True), "race", "start[0]", "o[0] = o[0] + total"),
    _twin("counters without atomics", _histogram(False), _histogram(True),
          lambda x: np.bincount(x & 15, minlength=16), "race", "in no order", "o[value] = o[value] + 1",
          dtype="int32"),
    _twin("two programs share an output block", _pairs(False), _pairs(True), lambda x: _padded(x)[1::2].reshape(-1),
          "race", "by program (1)", "o[to] = "),
    _twin("every program writes the same value", _same_value(False), _same_value(True), lambda x: np.full(1, N),
          "race", "all write 100", "o[0] = "),
    _twin("windows that overlap by an element", _overlapping(BLOCK - 1), _overlapping(BLOCK), _copied, "race",
          "o[31]", "plgpu.store("),
    _twin("a read of another program's output", _running_sum(False), _running_sum(True),
          lambda x: np.cumsum(_padded(x).sum(axis=1)), "race", "and read by program (1)", "o[i] = before",
          "before = plgpu.load("),
    _twin("an input overwritten before its neighbour read it", _in_place(False), _in_place(True),
          lambda x: x + np.concatenate([x[1:], np.zeros(1, x.dtype)]), "race", "and read by program", "plgpu.store("),
    _twin("a maximum with what nobody wrote", _maximum(False), _maximum(True), _copied, "uninitialised",
          "before anything was written there", "plgpu.load(o.at[at]", dtype="int32"),
    _twin("rows never written", _empty_rows(False), _empty_rows(True), _even_maxima, "unwritten", "2 of 4 elements",
          dtype="int32"),
    _twin("a grid without its tail", _grid(2, False), _grid(BLOCKS, True),
          lambda x: np.where(np.arange(N) < 2 * BLOCK, x, np.nan), "unwritten", "36 of 100 elements"),
    _twin("a loop one block too far", _looped(BLOCKS + 1), _looped(BLOCKS), lambda x: x.max(keepdims=True),
          "out_of_bounds", "load at x offset 100 of 100", "plgpu.load(", dtype="int32"),
    _twin("a search that reads past the end before it stops", _searched(False), _searched(True), _first_large,
          "out_of_bounds", "load at x offset 100 of 100", "value = plgpu.load(", dtype="int32"),
)  # fmt: skip
