"""What JAX's interpreter of TPU kernels is given and refused; tests/corpus/tpu.py has broken kernels."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import kerneltest as kt
from kernels.tpu_vector_add import tpu_vector_add
from kerneltest.api import pairing_id
from kerneltest.backends.registry import resolve
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.cache import Cache
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_case
from kerneltest.execute.settings import RunSettings
from kerneltest.localize.special_origin import Cause, depends_on_order
from tests.corpus import twin
from tests.corpus.judged import finding, run

BACKEND = "interpret-tpu"


def test_what_nobody_filled_is_found_by_pallas_own_interpreter() -> None:
    half = twin("fills half of an empty array")
    assert finding(half, "interpret").verdict == "special_mismatch"
    assert [record.verdict for record in run(half, False, ["interpret"])] == ["pass"]


def test_jax_prints_nothing_about_a_semaphore(capfd: pytest.CaptureFixture[str]) -> None:
    finding(twin("signals and nobody waits"))
    assert "non-zero count" not in "".join(capfd.readouterr())


def test_wrong_values_that_are_right_in_order_are_said_to_be() -> None:
    pairing = twin("TPU kernel relies on the order of a parallel dimension").broken()
    items = plan_pairing(pairing, pairing_id(pairing), resolve([BACKEND]), RunSettings(depth="quick")).items
    item = next(each for each in items if each.group.name == "structural")
    case, cache = next(iter(item.cases())), Cache()
    record = run_case(item, case, cache).record
    assert depends_on_order(item, case, record, cache) is Cause.PROGRAM_ORDER
    assert depends_on_order(item, case, replace(record, verdict=Verdict.RACE), cache) is None


@pytest.mark.sweep(1)
@pytest.mark.parametrize("semantics", [("parallel", "arbitrary"), ("arbitrary", "parallel"), ("parallel", "parallel")])
def test_parallel_dimensions_are_taken_anywhere_and_under_vmap(semantics: tuple[str, str]) -> None:
    """JAX's interpreter refuses a parallel dimension after another, and one more dimension than was declared."""

    def kernel(x: jax.Array) -> jax.Array:
        def body(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...] * 2

        block = pl.BlockSpec((8, 128), lambda i, j: (i, j))
        return pl.pallas_call(
            body,
            grid=(x.shape[0] // 8, x.shape[1] // 128),
            in_specs=[block],
            out_specs=block,
            out_shape=x,
            compiler_params=pltpu.CompilerParams(dimension_semantics=semantics),
        )(x)

    pairing = kt.oracle_for(
        kernel, x=kt.array("m n", "float32"), dims={"m": kt.dim(values=[24]), "n": kt.dim(values=[256])}
    )(lambda x: 2 * x)
    result = kt.check(pairing, backends=[BACKEND], depth="quick")
    assert result.ok, result.findings
    assert "vmapped" in {record.family for record in result.records if record.verdict == "pass"}


def test_a_kernel_that_takes_references_is_unavailable() -> None:
    mesh: Any = pltpu.TensorCoreMesh if jax.__version_info__ >= (0, 11) else pltpu.create_tensorcore_mesh
    mesh = mesh(axis_name="core", num_cores=2)

    def kernel(x: jax.Array) -> jax.Array:
        def stateful(refs: Any) -> None:
            @pl.core_map(mesh)
            def _() -> None:
                pltpu.sync_copy(*refs)

        return pl.run_state(stateful)((x, jnp.zeros_like(x)))[1]

    pairing = kt.oracle_for(
        kernel, x=kt.array("m n", "float32"), dims={"m": kt.dim(values=[8]), "n": kt.dim(values=[128])}
    )(lambda x: x)
    result = kt.check(pairing, backends=[BACKEND], depth="quick")
    assert {record.verdict for record in result.records} == {"unavailable"}
    assert "call it by pl.kernel" in result.records[0].message


def test_axes_that_vmap_adds_have_dimension_semantics_too() -> None:
    number = kt.array("n", "int32")

    @kt.oracle_for(tpu_vector_add, x=number, y=number, dims={"n": kt.dim(values=(3,))}, tolerance=kt.tolerance.exact())
    def add(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x + y

    result = kt.check(add, backends=[BACKEND], depth="quick")
    assert result.ok, result.findings
    assert "pass" in {record.verdict for record in result.records if record.family == "vmapped"}


@pytest.mark.parametrize(("rows", "served"), [(24, True), (20, False)])
def test_an_output_that_is_an_input_and_ends_within_a_block_is_unavailable(rows: int, served: bool) -> None:
    def double(x: jax.Array) -> jax.Array:
        block = pl.BlockSpec((8, 128), lambda i: (i, 0))
        grid, over = (pl.cdiv(rows, 8),), {0: 0}
        return pl.pallas_call(
            _double, grid=grid, in_specs=[block], out_specs=block, out_shape=x, input_output_aliases=over
        )(x)

    def _double(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = 2 * x_ref[...]

    dims = {"m": kt.dim(values=(rows,)), "n": kt.dim(values=(128,))}
    pairing = kt.oracle_for(double, x=kt.array("m n", "float32"), dims=dims)(lambda x: 2 * x)
    result = kt.check(pairing, backends=[BACKEND], depth="quick")
    assert not result.findings
    assert any(record.verdict is Verdict.PASS for record in result.records) is served
