"""Kernels that run on the cores of a TPU by `pl.kernel` and `core_map`, SparseCores among them, on every tier."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc

import kerneltest as kt
from kerneltest.backends.tpu.errors import windows
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.trace.tracing import trace_function
from tests.backends.tpu.test_compile import needs_libtpu

ROWS, COLUMNS = 32, 128


def _tensor_cores(count: int) -> Any:
    make: Any = pltpu.TensorCoreMesh if jax.__version_info__ >= (0, 11) else pltpu.create_tensorcore_mesh
    return make(axis_name="core", num_cores=count)


def _on(mesh: Callable[[], Any], body: Callable[..., None], *scratch: Any) -> Callable[[jax.Array], Any]:
    return lambda x: pl.kernel(
        body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype), mesh=mesh(), scratch_types=scratch
    )(x)


def _double(x: Any, o: Any, buffer: Any) -> None:
    pltpu.sync_copy(x, buffer)
    buffer[...] = buffer[...] * 2
    pltpu.sync_copy(buffer, o)


def _copy_half(x: Any, o: Any) -> None:
    half = pl.ds(lax.axis_index("core") * (ROWS // 2), ROWS // 2)
    pltpu.sync_copy(x.at[half], o.at[half])


def _double_row(x: Any, o: Any, buffer: Any) -> None:
    row = pl.ds(lax.axis_index("core") * 16 + lax.axis_index("subcore"), 1)
    pltpu.sync_copy(x.at[row], buffer)

    @pl.loop(0, COLUMNS, step=16)
    def _(start: Any) -> None:
        at = 0, pl.ds(start, 16)
        buffer[at] = buffer[at] * 2

    pltpu.sync_copy(buffer, o.at[row])


def by_references(x: jax.Array) -> Any:
    def on_references(refs: Any) -> None:
        @pl.core_map(_tensor_cores(1))
        def _() -> None:
            pl.run_scoped(lambda buffer: _double(*refs, buffer), pltpu.VMEM(x.shape, x.dtype))

    return pl.run_state(on_references)((x, jnp.zeros_like(x)))[1]


whole = _on(lambda: _tensor_cores(1), _double, pltpu.VMEM((ROWS, COLUMNS), jnp.float32))
halves = _on(lambda: _tensor_cores(2), _copy_half)
subcores = _on(
    lambda: plsc.VectorSubcoreMesh(core_axis_name="core", subcore_axis_name="subcore", num_cores=2),
    _double_row, pltpu.VMEM((1, COLUMNS), jnp.float32),
)  # fmt: skip
scalar = _on(lambda: plsc.ScalarSubcoreMesh(axis_name="core", num_cores=2), _copy_half)
ONE_OF = "runs one of the {} SparseCore subcores"
OUTSIDE = "references from outside" if jax.__version_info__ < (0, 11) else ""  # JAX lowers them since then
NO_CORES = "cannot run kernels that read their core's index"

CASES = [
    (whole, 2, "interpret", ""),
    (whole, 2, "interpret-tpu", ""),
    (whole, 2, "lower:tpu-v5e", ""),
    (halves, 1, "interpret", NO_CORES),
    (halves, 1, "interpret-tpu", ""),
    (by_references, 2, "lower:tpu-v5e", OUTSIDE),
    (subcores, 2, "interpret", NO_CORES),
    (subcores, 2, "interpret-tpu", ONE_OF.format(32)),
    (subcores, 2, "lower:tpu-v5e", "tpu-v5e has no SparseCores"),
    (subcores, 2, "lower:tpu-v5p", ""),
    (subcores, 2, "lower:tpu-7x", ""),
    (scalar, 1, "interpret-tpu", ONE_OF.format(2)),
    (scalar, 1, "lower:tpu-v6e", ""),
    *(
        pytest.param(kernel, 2, backend, "", marks=needs_libtpu)
        for kernel, backend in [
            (whole, "compile:tpu-v5e"),
            (by_references, "compile:tpu-v5e"),
            (subcores, "compile:tpu-v5p"),
        ]
    ),
]


@pytest.mark.sweep(6)
@pytest.mark.parametrize(("kernel", "factor", "backend", "words"), CASES)
def test_a_right_kernel_passes_or_is_unavailable_with_the_true_reason(
    kernel: Callable[..., Any], factor: int, backend: str, words: str
) -> None:
    pairing = kt.oracle_for(kernel, x=kt.array(f"{ROWS} {COLUMNS}", "float32"))(lambda x: factor * x)
    result = kt.check(pairing, backends=[backend], depth="quick")
    values = [record for record in result.records if record.family != "vmapped"]  # JAX batches few of these
    assert {record.verdict for record in values} == {"unavailable" if words else "pass"}, values
    assert all(words in record.message for record in values)


def test_only_scratch_is_in_vmem() -> None:
    shape = ROWS, COLUMNS
    (call,) = trace_function(lambda x: [whole(x)], (ShapeDtype(shape, np.dtype("float32")),), "", "tpu-v5e").calls
    assert [(window.name, window.shape) for window in windows(call)] == [("buffer", shape)]
