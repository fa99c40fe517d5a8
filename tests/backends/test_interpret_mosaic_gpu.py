"""What JAX's interpreter of Mosaic GPU kernels is given; tests/corpus/mosaic_gpu_pipelines.py has broken kernels."""

import jax

import kerneltest as kt
from kerneltest.api import pairing_id
from kerneltest.plan.cases import value_cases
from tests.sample import whole

BACKEND = "interpret-mosaic-gpu"


def test_jaxs_debugging_modes_reach_no_callback() -> None:
    """The interpreter's callbacks run on other threads, which see the global value; its memory starts as NaN."""
    from suites.test_pipeline_copy import copy

    first = next(value_cases(copy, pairing_id(copy), "float32", "structural", 0, "quick"))
    jax.config.update("jax_debug_nans", True)
    try:
        result = kt.check(copy, backends=[BACKEND], depth="quick", case=first.id)
        assert jax.config.jax_debug_nans
    finally:
        jax.config.update("jax_debug_nans", False)
    assert result.ok, result.findings


def test_other_kernels_are_refused() -> None:
    from suites.test_vector_add import whole

    result = kt.check(whole, backends=[BACKEND], depth="quick")
    assert "not for mosaic_gpu" in result.not_applicable[BACKEND]


def test_a_kernel_of_no_dialect_is_told_what_selects_this_interpreter() -> None:
    def copy(x: jax.Array) -> jax.Array:
        return whole(lambda x_ref: x_ref[...], x, x)

    copied = kt.oracle_for(copy, x=kt.array("n", "float32"))(lambda x: x)
    told = kt.check(copied, backends=[BACKEND], depth="quick").not_applicable[BACKEND]
    assert "uses nothing of pallas.mosaic_gpu; plgpu.kernel, or compiler_params=" in told
