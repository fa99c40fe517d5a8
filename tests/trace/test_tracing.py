"""Tracing, and that JAX's insides are touched in one place alone."""

import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jax.extend import backend

import kerneltest
import kerneltest as kt
from kernels.iota import iota_scalar_memory
from kernels.matmul import matmul
from kernels.pipeline_copy import pipeline_copy
from kernels.softmax import softmax_tiled
from kernels.vector_add import vector_add
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import TF32, FloatFormat, float_format, parse_dtype
from kerneltest.core.failures import Failure
from kerneltest.core.precision import NVIDIA, SIMULATED
from kerneltest.core.verdicts import Verdict
from kerneltest.plan.signatures import signatures
from kerneltest.trace.tracing import Traced, trace, version_problem
from kerneltest.trace.walk import computes_outside_calls, lowering_differences
from tests.sample import double, elementwise, exponential

ROOT = Path(__file__).parents[2]


def _traced(kernel: Callable[..., Any], platform: str = "", **arguments: Any) -> Traced:
    pairing = kt.oracle_for(kernel, **arguments)(lambda **_: None)
    return trace(pairing, signatures(pairing, "quick")[0], platform)


def _vector(kernel: Callable[..., Any], dtype: str = "float32") -> Traced:
    return _traced(kernel, x=kt.array("n", dtype))


@jax.custom_vjp
def _custom(x: jax.Array) -> jax.Array:
    return double(x)


_custom.defvjp(lambda x: (double(x), None), lambda _, g: (2 * g,))


def _scanned(x: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda carry, _: (double(carry), None), x, None, length=3)[0]


def _conditional(x: jax.Array) -> jax.Array:
    return jax.lax.cond(x[0] > 1e30, double, lambda v: double(double(v)), x)


NESTED: dict[str, tuple[Callable[..., Any], int]] = {
    "plain": (double, 2),
    "jit": (jax.jit(double), 2),
    "vmap": (lambda x: jax.vmap(double)(x[None])[0], 2),
    "custom_vjp": (_custom, 2),
    "scan": (_scanned, 8),
    "cond": (_conditional, 4),
}


@pytest.mark.parametrize("how", NESTED)
def test_a_nested_call_is_interpreted(how: str) -> None:
    kernel, factor = NESTED[how]
    traced = _vector(kernel)
    assert traced.calls
    (interpret,) = resolve(["interpret"])
    values = np.arange(traced.inputs[0].shape[0], dtype=np.float32)
    (output,) = interpret.prepare(traced).run([values])
    assert np.array_equal(output, factor * values)


def _cubes(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: v * v * v, x)


def _powers(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: jax.lax.fori_loop(0, 3, lambda _, a: a * v, v), x)


@pytest.mark.parametrize(
    ("kernel", "dtype", "exact"),
    [
        (double, "float32", True),
        (lambda x: elementwise(lambda v: v * v, x), "float32", True),
        (lambda x: elementwise(lambda v: jnp.maximum(v, 0) - v, x), "bfloat16", True),
        (_cubes, "float32", False),
        (_cubes, "int32", True),
        (_powers, "float32", False),
        (exponential, "float32", False),
        (lambda x: elementwise(lambda v: v / 3, x), "float32", False),
        (lambda x: elementwise(lambda v: 1000.0 * v + 0.375, x), "float32", True),
        (lambda x: elementwise(lambda v: v * 1.1, x), "float32", False),  # the oracle's 1.1 is another number
        (lambda x: elementwise(lambda v: v - 0.1, x), "bfloat16", False),
    ],
)
def test_exact_arithmetic_is_recognised(kernel: Callable[..., Any], dtype: str, exact: bool) -> None:
    assert _vector(kernel, dtype).exact is exact


@pytest.mark.parametrize(
    ("dtype", "precision", "reduced"),
    [("float32", None, True), ("float32", "high", True), ("float32", "highest", False), ("bfloat16", None, False)],
)
def test_a_product_left_to_the_backend_is_recognised(dtype: str, precision: str | None, reduced: bool) -> None:
    kernel = functools.partial(matmul, precision=precision)
    traced = _traced(kernel, x=kt.array("m k", dtype), y=kt.array("k n", dtype))
    assert traced.reduced_dots is reduced


BFLOAT16 = float_format(parse_dtype("bfloat16"))


@pytest.mark.parametrize(
    ("default", "operands"),
    [(None, TF32), ("high", TF32), ("highest", None), ("float32", None), ("BF16_BF16_F32", BFLOAT16)],
)
def test_the_default_precision_of_products_is_that_of_the_error_model(
    default: str | None, operands: FloatFormat | None
) -> None:
    with jax.default_matmul_precision(default):
        traced = _traced(matmul, x=kt.array("m k", "float32"), y=kt.array("k n", "float32"))
    assert traced.adapt_precision(NVIDIA).dot_input.get("float32") == operands


def _added_atomically(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        plgpu.atomic_add(o_ref, (0,), x_ref[0])

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((1,), x.dtype), grid=x.shape)(x)


@pytest.mark.parametrize(
    ("kernel", "dtype", "flushes"),
    [
        (_added_atomically, "float32", True),
        (_added_atomically, "int32", False),
        (lambda x: vector_add(x, x), "float32", False),
    ],
)
def test_atomic_additions_flush_on_nvidia(kernel: Callable[..., Any], dtype: str, flushes: bool) -> None:
    traced = _vector(kernel, dtype)
    adapted = [traced.adapt_precision(precision) for precision in (NVIDIA, SIMULATED)]
    assert [each.flushes for each in adapted] == [flushes, False]


AROUND: dict[str, tuple[Callable[..., Any], bool]] = {
    "nothing": (lambda x: vector_add(x, x), False),
    "moves": (lambda x: vector_add(x[::-1], jnp.roll(jnp.pad(x, 3)[3:-3], 1)).reshape(-1, 1), False),
    "indices": (lambda x: vector_add(x, x)[jnp.arange(x.shape[0]) // 2], False),
    "a product": (lambda x: vector_add(x, 2 * x), True),
    "a function in jit": (lambda x: vector_add(x, jax.jit(jnp.exp)(x)), True),
    "a comparison": (lambda x: vector_add(x, x) > 0, True),
    "in a loop": (lambda x: jax.lax.fori_loop(0, 3, lambda _, v: vector_add(v, v) / 2, x), True),
    "a loop of calls": (_scanned, False),
}


@pytest.mark.parametrize("name", AROUND)
def test_what_is_computed_around_the_calls_is_recognised(name: str) -> None:
    kernel, computed = AROUND[name]
    assert computes_outside_calls(_vector(kernel).jaxpr.jaxpr) is computed


def test_calls_are_listed_with_grid_and_dialect() -> None:
    assert [call.dialect for call in _traced(vector_add, x=kt.array("n"), y=kt.array("n")).calls] == ["triton"]
    assert [call.dialect for call in _vector(double).calls] == ["any"]
    tiled = _traced(softmax_tiled, x=kt.array("m n"), dims=dict(m=kt.dim(values=(3,)), n=kt.dim(values=(130,))))
    assert [call.grid for call in tiled.calls] == [(3, 4), (3, 3)]


def one_for_each_multiprocessor(x: jax.Array) -> jax.Array:
    device = jax.sharding.get_abstract_mesh().abstract_device
    cores = device.num_cores if device else backend.get_default_device().core_count
    return pl.pallas_call(lambda x_ref, o_ref: None, out_shape=x, grid=(cores,))(x)


@pytest.mark.parametrize(("platform", "programs"), [("", 2), ("cuda", 132), ("rocm", 304)])
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="a GPU has multiprocessors of its own")
def test_a_kernel_may_ask_for_the_number_of_multiprocessors(platform: str, programs: int) -> None:
    (call,) = _traced(one_for_each_multiprocessor, platform, x=kt.array("n")).calls
    assert call.grid == (programs,)


def test_a_backend_refuses_what_is_written_for_another() -> None:
    whole = kt.dim(values=(64,))
    pipeline = _traced(pipeline_copy, x=kt.array("m n"), dims=dict(m=whole, n=whole))
    tpu = _traced(iota_scalar_memory, n=kt.dim_size("n"))
    interpret, cuda, rocm = resolve(["interpret", "cuda", "rocm"])
    assert "interpret-mosaic-gpu" in interpret.unsupported_reason(pipeline)
    assert not cuda.unsupported_reason(pipeline)
    assert "mosaic_gpu (" in rocm.unsupported_reason(pipeline)
    assert "mosaic_tpu (" in cuda.unsupported_reason(tpu)
    assert not interpret.unsupported_reason(tpu)


def test_a_kernel_that_raises_names_signature_and_line() -> None:
    def raises(x: jax.Array) -> jax.Array:
        raise RuntimeError("out of patience")

    with pytest.raises(Failure) as caught:
        _vector(raises)
    message = str(caught.value)
    assert "RuntimeError while traced for n=" in message
    assert "out of patience" in message
    assert f"(tests/trace/{Path(__file__).name}:" in message


def _launched(grid: Any = (1,), block: int = 4) -> Callable[[jax.Array], jax.Array]:
    def kernel(x: jax.Array) -> jax.Array:
        spec = pl.BlockSpec((block,), lambda i: (i,))
        return pl.pallas_call(lambda a, o: None, grid=grid, in_specs=[spec], out_specs=spec, out_shape=x)(x)

    return kernel


# what JAX traces although no backend could run it
NOT_RUNNABLE: dict[str, tuple[Callable[[jax.Array], Any], str]] = {
    "a typed key": (lambda x: jax.random.key(0), r"type key<fry>\[\], and not an array"),
    "an array of keys": (lambda x: (x, jax.random.split(jax.random.key(0), 3)), r"type key<fry>\[3\]"),
    "a token": (lambda x: jax.lax.create_token(), "type AbstractToken"),
    "a shape": (lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), "has no values"),
    "a negative grid": (_launched(grid=(-1,)), r"grid \(-1,\) has a negative length"),
    "a negative integer as grid": (_launched(grid=-2), r"grid \(-2,\) has a negative length"),
    "an empty block": (_launched(block=0), "a block has length 0 along an axis of"),
    "a negative block": (_launched(block=-4), "a block has length -4"),
}


@pytest.mark.parametrize("name", NOT_RUNNABLE)
def test_what_no_backend_could_run_is_the_kernels_mistake(name: str) -> None:
    kernel, why = NOT_RUNNABLE[name]
    with pytest.raises(Failure, match=why) as caught:
        _vector(kernel)
    assert caught.value.verdict is Verdict.RUNTIME_ERROR


def test_an_empty_grid_is_traced() -> None:
    assert _vector(_launched(grid=(0,))).calls[0].grid == (0,)


def test_a_kernel_of_an_installed_library_that_raises_names_its_line() -> None:
    file, library = "/env/lib/python3.11/site-packages/library/ops.py", {}
    exec(compile("def kernel(x):\n    return x.nonsense", file, "exec"), library)
    pairing = kt.oracle_for(library["kernel"], x=kt.array("n"))(lambda x: x)
    with pytest.raises(Failure, match=re.escape(f"({file}:2)")):
        trace(pairing, signatures(pairing, "quick")[0])


def test_the_installed_jax_is_one_that_was_tested() -> None:
    assert version_problem() == ""


def test_an_older_jax_is_named_before_anything_is_missed_in_it(tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text('__version__, __version_info__ = "0.6.0", (0, 6, 0)', encoding="utf-8")
    told = _in_a_process("import kerneltest as kt; kt.check", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert (
        "ImportError: JAX 0.6.0 is older than 0.10.2, the oldest version that kerneltest supports: pip"
        in told.splitlines()[-1]
    )


UNAVAILABLE = """
import jax
import kerneltest as kt
from kernels.vector_add import vector_add

pairing = kt.oracle_for(vector_add, x=kt.array("n"), y=kt.array("n"))(lambda x, y: x + y)
result = kt.check(pairing, backends=["interpret", "interpret-tpu", "lower:sm_90", "simulate:gfx942"], depth="quick")
assert not result.ok and not result.findings, result.findings
assert result.unavailable.keys() >= {"interpret", "simulate:gfx942"}, result
try:
    jax.devices()
except BaseException:
    assert "lower:sm_90" in result.unavailable, result
print(*result.unavailable.values(), sep=chr(10))
"""


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("platform", "why"),
    [("cuda", "JAX_PLATFORMS is 'cuda'"), ("tpu", "initialize backend 'tpu'"), ("bogus", "initialize backend 'bogus'")],
)
def test_without_a_cpu_device_what_computes_on_one_is_unavailable(platform: str, why: str) -> None:
    lines = _in_a_process(UNAVAILABLE, JAX_PLATFORMS=platform).splitlines()
    assert len(lines) in (2, 3)  # a machine with that platform still lowers
    assert all(line.startswith("JAX finds no ") and why in line for line in lines), lines


def _in_a_process(code: str, **environment: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return run.stdout or run.stderr


def test_a_newer_jax_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "__version_info__", (0, 13, 0))
    assert "newer than 0.12" in version_problem()


def test_out_of_bounds_reads_are_interpreted_as_nan_not_as_a_neighbour() -> None:
    def past_the_end(x: jax.Array) -> jax.Array:
        def body(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...]

        block = pl.BlockSpec((16,), lambda i: (i + 1,))
        return pl.pallas_call(body, grid=(1,), in_specs=[block], out_specs=pl.BlockSpec((16,), lambda i: (i,)),
                              out_shape=jax.ShapeDtypeStruct((16,), x.dtype))(x)  # fmt: skip

    traced = _traced(past_the_end, x=kt.array("n"), dims=dict(n=kt.dim(values=(17,))))
    (interpret,) = resolve(["interpret"])
    (output,) = interpret.prepare(traced).run([np.arange(17, dtype=np.float32)])
    assert output[0] == 16
    assert np.isnan(output[1:]).all()


PACKAGE = Path(kerneltest.__file__).parent
COMPAT = PACKAGE / "trace" / "jax_compat"
# Also in names of modules and of loggers, where ruff's ban of imports does not look.
INSIDES = re.compile(r"jax\._src|jaxlib\.(?:mlir|triton)")


def test_only_jax_compat_mentions_the_insides_of_jax() -> None:
    mentioning = {path for path in PACKAGE.rglob("*.py") if INSIDES.search(path.read_text(encoding="utf-8"))}
    outside = [str(path.relative_to(PACKAGE)) for path in mentioning if COMPAT not in path.parents]
    assert outside == []


@pytest.mark.parametrize(
    ("function", "dtype", "expected"),
    [
        (lambda v: v * 2, "float32", ()),
        (lambda v: v.astype(jnp.bfloat16) * 2, "float32", ("bfloat16",)),
        (lambda v: v, "float16", ()),
        (lambda v: v * 2, "float16", ("float16",)),
        (lambda v: v @ v, "float32", ("TF32",)),
        (lambda v: jnp.dot(v, v, precision="highest"), "float32", ()),
    ],
)
def test_what_may_come_out_otherwise_where_it_is_lowered(function: Any, dtype: str, expected: tuple[str, ...]) -> None:
    kernel = jax.make_jaxpr(lambda x: elementwise(function, x))(jnp.ones((16, 16), dtype))
    assert lowering_differences(kernel.jaxpr) == expected
