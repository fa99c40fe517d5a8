"""Broken TPU kernels are found on the CPU, their right twins are not accused, and messages name places."""

import re
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import kerneltest as kt
import tests.tpu_memory_bugs  # noqa: F401 - its twins join the others
from kernels.tpu_vector_add import tpu_vector_add
from kerneltest.api import Result, pairing_id
from kerneltest.backends.registry import resolve
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.cache import Cache
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_case
from kerneltest.execute.settings import RunSettings
from kerneltest.localize.special_origin import Cause, depends_on_order
from kerneltest.plan.cases import value_cases
from tests.tpu_bugs import COLUMNS, TWINS

BACKEND = "interpret-tpu"


def paired(name: str, broken: bool) -> kt.Pairing:
    twins = TWINS[name]
    return kt.oracle_for(
        twins.make(broken),
        x=kt.array("m n", twins.dtype),
        dims={"m": kt.dim(values=[twins.rows]), "n": kt.dim(values=[COLUMNS])},
    )(lambda x: twins.oracle(x))


def one_case(name: str, broken: bool, backend: str = BACKEND) -> Result:
    pairing = paired(name, broken)
    first = next(value_cases(pairing, pairing_id(pairing), TWINS[name].dtype, "structural", 0, "quick"))
    return kt.check(pairing, backends=[backend], depth="quick", case=first.id)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("name", TWINS)
def test_the_right_twin_is_not_accused(name: str) -> None:
    result = one_case(name, False)
    assert result.ok, [f"{f.verdict}: {f.message}" for f in result.findings] or result.records


@pytest.mark.parametrize("name", TWINS)
def test_the_broken_twin_is_found(name: str) -> None:
    twins = TWINS[name]
    (finding,) = one_case(name, True).findings
    assert (finding.verdict, twins.words in finding.message) == (twins.verdict, True), finding.message
    assert "the pipeline's own code" not in finding.message


@pytest.mark.parametrize("name", [name for name, twins in TWINS.items() if twins.verdict == "race"])
def test_a_race_names_lines_of_the_kernel(name: str) -> None:
    (finding,) = one_case(name, True).findings
    assert len(re.findall(r"tests/tpu_bugs\.py:\d+", finding.message)) == (1 if "end" in TWINS[name].words else 2)


def test_a_signal_is_told_with_its_line_and_printed_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    (finding,) = one_case("signals_and_nobody_waits", True).findings
    assert re.search(r"it is signalled at tests/tpu_bugs\.py:\d+ and never waited for$", finding.message)
    assert "non-zero count" not in "".join(capfd.readouterr())


def test_a_deadlock_names_the_semaphore_and_the_line() -> None:
    (finding,) = one_case("waits_for_more_than_is_signalled", True).findings
    assert re.fullmatch(
        r"deadlock: core 0 waits at tests/tpu_bugs\.py:\d+ for ready to reach 2, but it is at 1", finding.message
    )


@pytest.mark.parametrize(
    "name", ["never_waits_for_the_block", "writes_past_its_buffer", "accumulates_over_a_parallel_dimension"]
)
def test_a_case_after_a_failing_one_is_not_harmed(name: str) -> None:
    assert one_case(name, True).findings
    assert one_case(name, False).ok


def test_what_nobody_filled_is_found_by_pallas_own_interpreter() -> None:
    (finding,) = one_case("fills_half_of_an_empty_array", True, "interpret").findings
    assert finding.verdict == "special_mismatch"
    assert one_case("fills_half_of_an_empty_array", False, "interpret").ok


@pytest.mark.parametrize("name", ["relies_on_the_order_of_a_parallel_dimension"])
def test_wrong_values_that_are_right_in_order_are_said_to_be(name: str) -> None:
    pairing = paired(name, True)
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
