"""What a TPU kernel uses tells that it is one, without compiler parameters; what any platform has does not."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.trace.tracing import Traced, trace_function

SHAPE, ROWS = (16, 128), (8, 128)
WHOLE = pl.BlockSpec(memory_space=pl.ANY)
BLOCK = pl.BlockSpec(ROWS, lambda i, *_: (i, 0))
GPUS = ("lower:sm_90", "lower:gfx942", "compile:sm_90", "compile:gfx942", "compile:xla-sm_90",
        "simulate:sm_90", "simulate:gfx942", "cuda", "rocm", "interpret-mosaic-gpu")  # fmt: skip
TPUS = ("interpret", "interpret-tpu", "lower:tpu-v5e", "compile:tpu-v6e", "tpu")


def _copy(x_ref: Any, o_ref: Any, *_: Any) -> None:
    o_ref[...] = x_ref[...]


def _by_semaphore(x_ref: Any, o_ref: Any, semaphore: Any) -> None:
    copy = pltpu.make_async_copy(x_ref, o_ref, semaphore)
    copy.start()
    copy.wait()


def _within(x_ref: Any, o_ref: Any) -> None:
    def through(buffer: Any) -> None:
        buffer[...] = x_ref[...]
        o_ref[...] = buffer[...]

    pl.run_scoped(through, pltpu.VMEM(SHAPE, jnp.float32))


def _pipeline(x_ref: Any, o_ref: Any) -> None:
    pltpu.emit_pipeline(_copy, grid=(2,), in_specs=[BLOCK], out_specs=[BLOCK])(x_ref, o_ref)


def _rolled(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = pltpu.roll(x_ref[...], 1, 0)


def _random(x_ref: Any, o_ref: Any) -> None:
    pltpu.prng_seed(0)
    o_ref[...] = x_ref[...] + pltpu.prng_random_bits(SHAPE).astype(jnp.float32)


def _prefetched(x: jax.Array) -> jax.Array:
    grid_spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(2,), in_specs=[BLOCK], out_specs=BLOCK)
    body = lambda _, x_ref, o_ref: _copy(x_ref, o_ref)  # noqa: E731
    return pl.pallas_call(body, grid_spec=grid_spec, out_shape=x)(jnp.zeros(1, jnp.int32), x)


def _call(body: Callable[..., None], **options: Any) -> Callable[[jax.Array], jax.Array]:
    return lambda x: pl.pallas_call(body, out_shape=x, **options)(x)


def _grid(**options: Any) -> Callable[[jax.Array], jax.Array]:
    return _call(_copy, grid=(2,), in_specs=[BLOCK], out_specs=BLOCK, **options)


def _traced(kernel: Callable[[jax.Array], jax.Array]) -> Traced:
    return trace_function(lambda x: [kernel(x)], (ShapeDtype(SHAPE, np.dtype("float32")),), "here")


TELLING: dict[str, tuple[Callable[[jax.Array], jax.Array], str]] = {
    "order of the grid": (
        _grid(compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",))),
        "compiler_params is pallas.tpu.CompilerParams",
    ),
    "prefetched scalars": (_prefetched, "1 scalar argument is prefetched"),
    "block in VMEM": (_call(_copy, in_specs=[pl.BlockSpec(memory_space=pltpu.VMEM)]), "x_ref is in pallas.tpu.VMEM"),
    "output in SMEM": (_call(_copy, out_specs=pl.BlockSpec(memory_space=pltpu.SMEM)), "o_ref is in pallas.tpu.SMEM"),
    "scratch": (_grid(scratch_shapes=[pltpu.VMEM(ROWS, jnp.float32)]), "is in pallas.tpu.VMEM"),
    "semaphore": (
        _call(_by_semaphore, in_specs=[WHOLE], out_specs=WHOLE, scratch_shapes=[pltpu.SemaphoreType.DMA]),
        "semaphore is in pallas.tpu.SEMAPHORE",
    ),
    "memory within": (_call(_within), "is from pallas.tpu (tests/trace/test_languages.py:"),
    "copies within": (_call(_pipeline, in_specs=[WHOLE], out_specs=WHOLE), "is from pallas.tpu"),
    "roll": (_call(_rolled), "roll is from pallas.tpu (tests/trace/test_languages.py:"),
    "random bits": (_call(_random), "prng_seed is from pallas.tpu (tests/trace/test_languages.py:"),
}


@pytest.mark.parametrize("name", TELLING)
def test_what_tpus_alone_have_tells_a_kernel_for_them(name: str) -> None:
    kernel, why = TELLING[name]
    traced = _traced(kernel)
    assert {each.id: why in each.unsupported_reason(traced) for each in resolve(GPUS)} == dict.fromkeys(GPUS, True)
    assert [each.unsupported_reason(traced) for each in resolve(TPUS)] == [""] * len(TPUS)


PORTABLE: dict[str, Callable[[jax.Array], jax.Array]] = {
    "no parameters": _call(_copy),
    "blocks": _grid(),
    "arrays as they are": _call(_copy, in_specs=[WHOLE], out_specs=WHOLE),
    "a grid without prefetched scalars": _call(
        _copy,
        grid_spec=pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=0, grid=(2,), in_specs=[BLOCK], out_specs=BLOCK),
    ),
}


@pytest.mark.parametrize("name", PORTABLE)
def test_a_portable_kernel_is_for_all(name: str) -> None:
    traced = _traced(PORTABLE[name])
    for each in resolve((*GPUS[:-1], *TPUS)):
        assert each.unsupported_reason(traced) == "", each.id
