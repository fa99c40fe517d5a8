"""Probes for TPUs only: block shapes, and the functions of `pallas.tpu`."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from .base import DTYPES, FLOAT32, FLOATS, NUMBERS, VECTOR, Body, LoweringProbe, Operand, Ref, Value, first_available

_WIDE, _LONG = (64, 512), (4096,)
_LENGTHS = (64, 100, 128, 256, 512, 1000, 1024, 2048)
_DTYPES = tuple(dtype for dtype in DTYPES if "64" not in dtype)


def blocks_probes() -> Iterator[LoweringProbe]:
    """Yields the probes of group `blocks`: an array copied block by block."""
    for rows in (1, 2, 4, 8, 16, 32):
        for columns in (32, 64, 128, 256, 512):
            yield _blocks(_WIDE, (rows, columns))
    for length in _LENGTHS:
        yield _blocks(_LONG, (length,))


def _blocks(whole: tuple[int, ...], block: tuple[int, ...]) -> LoweringProbe:
    grid = tuple(-(-length // each) for length, each in zip(whole, block, strict=True))
    of_whole = f"of {'x'.join(map(str, whole))}"
    name = f"blocks[{'x'.join(map(str, block))} {of_whole}]"
    return LoweringProbe(name, "blocks", _copy, _DTYPES, (whole,), whole, grid, block, "tpu")


def _copy(x: Ref, o: Ref) -> None:
    o[...] = x[...]


def tpus_probes() -> Iterator[LoweringProbe]:
    """Yields the probes of group `pallas.tpu`."""
    yield _tpu("roll", lambda x: _of("roll")(x, 1, 0))
    yield _tpu("roll[lanes]", lambda x: _of("roll")(x, 1, 1))
    yield _tpu("roll[strided]", lambda x: _of("roll")(x, 1, 1, stride=1, stride_axis=0))
    for axis in (0, 1):
        name = f"gather[in bounds, axis {axis}]"
        yield _tpu(name, _gather(axis), VECTOR, (VECTOR, "int32"))
    yield _tpu("top_k[unstable]", _top_k, dtypes=FLOATS)
    yield _tpu("bitcast", lambda x: _of("bitcast")(x, jnp.int32))
    yield _tpu("stochastic_round", _round, VECTOR, (VECTOR, "uint32"), dtypes=FLOAT32)
    yield _tpu("prng_random_bits", _draw, dtypes=("uint32",))
    yield _references("run_scoped[VMEM]", _run_scoped)
    yield _references("async_copy", _async_copy)
    yield _references("store[masked]", _masked_store, VECTOR, (VECTOR, "bool"))


def _of(name: str) -> Any:
    return first_available(f"pltpu.{name}")


def _tpu(name: str, body: Body, *operands: Operand, dtypes: tuple[str, ...] = NUMBERS) -> LoweringProbe:
    return LoweringProbe(name, "pallas.tpu", body, dtypes, operands or (VECTOR,), only="tpu")


def _references(name: str, body: Callable[..., None], *operands: Operand) -> LoweringProbe:
    return LoweringProbe(name, "pallas.tpu", body, DTYPES, operands or (VECTOR,), VECTOR, only="tpu")


def _top_k(x: Value) -> Value:
    return first_available("lax.top_k")(x, 4, is_stable=False)


def _gather(axis: int) -> Callable[[Value, Value], Value]:
    return lambda x, i: jnp.take_along_axis(x, i, axis=axis, mode="promise_in_bounds")


def _round(x: Value, bits: Value) -> Value:
    return _of("stochastic_round")(x, bits, target_dtype=jnp.bfloat16)


def _draw(x: Value) -> Value:
    _of("prng_seed")(1)
    bits = _of("prng_random_bits")(x.shape)
    return jax.lax.bitcast_convert_type(bits, x.dtype)


def _run_scoped(x: Ref, o: Ref) -> None:
    def copy_through(scratch: Ref) -> None:
        scratch[...] = x[...]
        o[...] = scratch[...]

    pl.run_scoped(copy_through, _of("VMEM")(x.shape, x.dtype))


def _async_copy(x: Ref, o: Ref) -> None:
    def copy(semaphore: Ref) -> None:
        description = _of("make_async_copy")(x, o, semaphore)
        description.start()
        description.wait()

    pl.run_scoped(copy, _of("SemaphoreType.DMA"))


def _masked_store(x: Ref, m: Ref, o: Ref) -> None:
    _of("store")(o, x[...], mask=m[...])
