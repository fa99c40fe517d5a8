"""What JAX's interpreters get wrong and kerneltest corrects: right kernels pass, and their wrong twins are found.

`docs/upstream` has the reports: `interpret_*`, `tpu_interpreter_*` and `mosaic_gpu_*`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as pltriton

import kerneltest as kt
from tests.found import findings

Kernel = Callable[..., Any]
ROWS, COLUMNS = 16, 128


def _like(x: Any) -> Any:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def masked_lanes_share_the_last_cell(broken: bool) -> Kernel:
    """Lanes past the end are clamped to the last cell and masked: they store nothing there."""

    def kernel(x: jax.Array) -> Any:
        last = x.shape[0] - 1

        def body(x_ref: Any, o_ref: Any) -> None:
            lane = jnp.arange(2 * pl.next_power_of_2(last + 1))
            inside = lane < last if broken else lane <= last
            value = pltriton.load(x_ref.at[jnp.minimum(lane, last)], mask=inside, other=0)
            pltriton.store(o_ref.at[jnp.minimum(lane, last)], 2 * value, mask=inside)

        return pl.pallas_call(body, out_shape=_like(x))(x)

    return kernel


def masked_lanes_share_a_row(broken: bool) -> Kernel:
    """The same in two dimensions, where masked lanes fall onto a row that other lanes fill."""

    def kernel(x: jax.Array) -> Any:
        rows, columns = x.shape

        def body(x_ref: Any, o_ref: Any) -> None:
            row, column = jnp.arange(2 * pl.next_power_of_2(rows))[:, None], jnp.arange(columns)[None, :]
            inside = jnp.broadcast_to(row < rows, (row.shape[0], columns))
            at = row % rows, column
            value = pltriton.load(x_ref.at[at], mask=inside, other=0)
            pltriton.store(o_ref.at[at], 3 * value if broken else 2 * value, mask=inside)

        return pl.pallas_call(body, out_shape=_like(x))(x)

    return kernel


def copies_of_no_rows(broken: bool) -> Kernel:
    """The first `count` rows, then the others: one of the two copies may be empty, and begin at the end."""

    def kernel(count: jax.Array, x: jax.Array) -> Any:
        def body(count_ref: Any, x_ref: Any, o_ref: Any, buffer: Any, done: Any) -> None:
            for start, end in ((0, count_ref[0]), (count_ref[0], x.shape[0])):
                target = o_ref.at[pl.ds(0 if broken else start, end - start)]
                copy = pltpu.make_async_copy(x_ref.at[pl.ds(start, end - start)], target, done)
                copy.start()
                copy.wait()

        spec = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1, grid=(1,), in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
            out_specs=pl.BlockSpec(memory_space=pl.ANY),
            scratch_shapes=[pltpu.VMEM(x.shape, x.dtype), pltpu.SemaphoreType.DMA],
        )  # fmt: skip
        return pl.pallas_call(body, grid_spec=spec, out_shape=_like(x))(count, x)

    return kernel


def an_accumulator_beside_shared_memory(broken: bool) -> Kernel:
    """One scope allocates registers, shared memory and barriers together."""
    tiled = plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128)

    def kernel(x: jax.Array, y: jax.Array) -> Any:
        def body(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
            def scope(x_smem: Any, y_smem: Any, o_smem: Any, total: Any, loaded: Any) -> None:
                plgpu.copy_gmem_to_smem(x_ref, x_smem, loaded.at[0])
                plgpu.copy_gmem_to_smem(x_ref if broken else y_ref, y_smem, loaded.at[1])
                plgpu.barrier_wait(loaded.at[0])
                plgpu.barrier_wait(loaded.at[1])
                plgpu.wgmma(total, x_smem, y_smem)
                o_smem[...] = total[...]
                plgpu.commit_smem()
                plgpu.copy_smem_to_gmem(o_smem, o_ref)
                plgpu.wait_smem_to_gmem(0)

            operand = plgpu.SMEM(x.shape, x.dtype, transforms=tiled)
            pl.run_scoped(
                scope, operand, operand, plgpu.SMEM(x.shape, jnp.float32), plgpu.ACC(x.shape, jnp.float32),
                plgpu.Barrier(num_barriers=2),
            )  # fmt: skip

        out = jax.ShapeDtypeStruct(x.shape, jnp.float32)
        return plgpu.kernel(body, grid=(1,), grid_names=("program",), out_type=out)(x, y)

    return kernel


def _doubled(kernel: Kernel, shape: str) -> Any:
    dims = {name: kt.dim(values=[5, 8, 21]) for name in "m" if name in shape}
    return kt.oracle_for(kernel, x=kt.array(shape, "float32"), dims=dims)(lambda x: 2 * x)


def _copied(kernel: Kernel) -> Any:
    x = kt.array(f"m {COLUMNS}", "float32")
    declare = kt.oracle_for(
        kernel, count=kt.lengths("1", up_to="m"), x=x, dims={"m": kt.dim(values=[ROWS])}, tolerance=kt.tolerance.exact()
    )
    return declare(lambda count, x: x)


def _multiplied(kernel: Kernel) -> Any:
    operand = kt.array("64 64", "bfloat16")
    return kt.oracle_for(kernel, x=operand, y=operand)(lambda x, y: x @ y)


CASES: list[tuple[Callable[[bool], Kernel], Callable[[Kernel], Any], str]] = [
    (masked_lanes_share_the_last_cell, lambda kernel: _doubled(kernel, "m"), "interpret"),
    (masked_lanes_share_a_row, lambda kernel: _doubled(kernel, "m 16"), "interpret"),
    (copies_of_no_rows, _copied, "interpret-tpu"),
    (an_accumulator_beside_shared_memory, _multiplied, "interpret-mosaic-gpu"),
]


@pytest.mark.parametrize(("make", "pair", "backend"), CASES, ids=[make.__name__ for make, _, _ in CASES])
def test_a_right_kernel_passes_and_its_wrong_twin_does_not(
    make: Callable[[bool], Kernel], pair: Callable[[Kernel], Any], backend: str
) -> None:
    right = kt.check(pair(make(False)), backends=[backend], depth="quick")
    unavailable = [record.message for record in right.records if record.verdict == "unavailable"]
    assert right.ok, right.findings
    assert not any("interpret" in message for message in unavailable)
    wrong = findings(pair(make(True)), [backend])
    assert any(finding.verdict in ("mismatch", "special_mismatch", "unwritten") for finding in wrong)
