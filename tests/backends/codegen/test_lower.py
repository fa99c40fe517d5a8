"""Lowering with no GPU: every Pallas call is taken, and what has no rule is named with the user's line."""

import functools
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu
from jax.experimental.pallas import triton as plgpu

import kerneltest as kt
from kernels.iota import iota_scalar_memory
from kernels.matmul import matmul
from kernels.pipeline_copy import pipeline_copy
from kernels.softmax import softmax_tiled
from kernels.vector_add import vector_add
from kerneltest.backends import lowering_errors
from kerneltest.backends.codegen.tiers import lower
from kerneltest.backends.registry import resolve
from kerneltest.core.failures import Failure
from kerneltest.core.targets import TARGETS, Target
from kerneltest.execute.value_groups import affordable_long_signatures
from kerneltest.plan.signatures import signatures
from kerneltest.trace.tracing import Traced, trace
from tests import elsewhere
from tests.corpus import twin
from tests.sample import elementwise

HERE, ELSEWHERE = Path(__file__), Path(elsewhere.__file__)


def _traced(kernel: Callable[..., Any], n: int = 16, dtype: str = "float32", **more: Any) -> Traced:
    pairing = kt.oracle_for(kernel, x=kt.array("n", dtype), dims=dict(n=kt.dim(values=(n,))), **more)(lambda **_: None)
    return trace(pairing, signatures(pairing, "quick")[0])


def _matrix(kernel: Callable[..., Any], m: int = 64, n: int = 64) -> Traced:
    dims = dict(m=kt.dim(values=(m,)), n=kt.dim(values=(n,)))
    pairing = kt.oracle_for(kernel, x=kt.array("m n", "float32"), dims=dims)(lambda **_: None)
    return trace(pairing, signatures(pairing, "quick")[0])


def _error(kernel: Callable[..., Any], target: str = "sm_90", **more: Any) -> Failure:
    with pytest.raises(Failure) as caught:
        lower(_traced(kernel, **more), TARGETS[target])
    return caught.value


def _add(x: jax.Array) -> jax.Array:
    return vector_add(x, x)


_custom = jax.custom_vjp(_add)
_custom.defvjp(lambda x: (_add(x), None), lambda _, g: (g,))


@pytest.mark.parametrize(
    ("kernel", "names"),
    [
        (_add, ["_add_block"]),
        (jax.jit(_add), ["_add_block"]),
        (lambda x: jax.vmap(_add)(x[None])[0], ["_add_block"]),
        (_custom, ["_add_block"]),
        (lambda x: jax.lax.scan(lambda c, _: (_add(c), None), x, None, length=3)[0], ["_add_block"]),
        (lambda x: jax.lax.cond(x[0] > 0, _add, lambda v: v, x), ["_add_block"]),
        (lambda x: _add(_add(x)), ["_add_block", "_add_block"]),
        (lambda x: softmax_tiled(_add(x)[None])[0], ["_add_block", "_tile_statistics", "_normalise"]),
        (lambda x: x + 1, []),
    ],
)
@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_every_call_is_taken_wherever_it_stands(kernel: Callable[..., Any], names: list[str], target: str) -> None:
    kernels = lower(_traced(kernel), TARGETS[target])
    assert [kernel.name for kernel in kernels] == names
    assert all("tt.func" in kernel.text for kernel in kernels)


def test_a_kernel_carries_grid_parameters_and_aliases() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + 1

    def in_place(x: jax.Array) -> jax.Array:
        spec = pl.BlockSpec((16,), lambda i, j: (i,))
        return pl.pallas_call(
            body,
            out_shape=x,
            grid=(4, 2),
            in_specs=[spec],
            out_specs=spec,
            input_output_aliases={0: 0},
            compiler_params=plgpu.CompilerParams(num_warps=8, num_stages=2),
        )(x)

    (kernel,) = lower(_traced(in_place, n=64), TARGETS["sm_90"])
    assert (kernel.grid, kernel.warps, kernel.stages, kernel.aliases) == ((4, 2, 1), 8, 2, {0: 0})
    assert lower(_traced(_add), TARGETS["sm_90"])[0].aliases == {}


def _line(path: Path, mark: str) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return f"{path.relative_to(Path.cwd())}:{next(i for i, line in enumerate(lines, 1) if line.endswith('# ' + mark))}"


def _sorts_here(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: jnp.sort(v), x)  # HERE


@pytest.mark.parametrize("target", ["sm_80", "gfx1151"])
@pytest.mark.parametrize(
    ("kernel", "place"),
    [
        (_sorts_here, (HERE, "HERE")),
        (lambda x: elementwise(elsewhere.ranked, x), (ELSEWHERE, "THE LINE")),
        (lambda x: elementwise(elsewhere.ranked_in_a_jitted_helper, x), (ELSEWHERE, "THE LINE IN THE JITTED HELPER")),
        (lambda x: elementwise(jax.vmap(lambda v: elsewhere.ranked(v[None])[0]), x), (ELSEWHERE, "THE LINE")),
    ],
)
def test_a_missing_rule_is_named_with_the_users_line(
    kernel: Callable[..., Any], place: tuple[Path, str], target: str
) -> None:
    error = _error(kernel, target)
    assert error.verdict == "unimplemented"
    assert f"primitive sort has no lowering ({_line(*place)})" in str(error)
    assert lowering_errors.lowering_hint("sort") in str(error)


def test_a_line_is_right_though_jax_traced_the_same_function_before() -> None:
    lower_first = _error(lambda x: elementwise(elsewhere.ranked, x))
    error = _error(_sorts_here)
    assert _line(HERE, "HERE") in str(error)
    assert _line(HERE, "HERE") not in str(lower_first)


def test_the_finding_names_the_primitive_and_the_line() -> None:
    def softened(x: jax.Array) -> jax.Array:
        return elementwise(lambda v: jnp.exp(elsewhere.ranked(v)), x)

    pairing = kt.oracle_for(softened, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(16,))))(lambda x: x)
    (finding,) = kt.check(pairing, backends=["lower:gfx942"], depth="quick").findings
    assert (finding.verdict, finding.backend, finding.family) == ("unimplemented", "lower:gfx942", "signature")
    assert _line(ELSEWHERE, "THE LINE") in finding.message


def test_users_can_say_what_to_write_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lowering_errors, "_HINTS", dict(lowering_errors._HINTS))
    kt.add_lowering_hint("sort", "mylib.bitonic")
    assert "write instead: mylib.bitonic" in str(_error(_sorts_here))


def _gridded(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    def inner(count: Any) -> jax.Array:
        return pl.pallas_call(body, out_shape=x, grid=(count,), compiler_params=plgpu.CompilerParams())(x)

    return inner(x[0].astype(jnp.int32))


def _prefetched(x: jax.Array) -> jax.Array:
    from jax.experimental.pallas import tpu as pltpu

    def body(count_ref: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + count_ref[0]

    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(1,),
        in_specs=[pl.BlockSpec((16,), lambda i, c: (i,))],
        out_specs=pl.BlockSpec((16,), lambda i, c: (i,)),
    )
    call = pl.pallas_call(body, out_shape=x, grid_spec=spec, compiler_params=plgpu.CompilerParams())
    return call(jnp.ones(1, jnp.int32), x)


@pytest.mark.parametrize(
    ("kernel", "n", "verdict", "words"),
    [
        (lambda x: elementwise(lambda v: v + v, x), 17, "compile_error", "size is a power of two, and (17,) is not"),
        (_gridded, 16, "unimplemented", "the grid depends on a value at run time"),
        (_prefetched, 16, "unimplemented", "scalar prefetch (num_scalar_prefetch) has no Triton lowering"),
    ],
)
def test_rules_of_the_backend_are_said_in_words(kernel: Callable[..., Any], n: int, verdict: str, words: str) -> None:
    error = _error(kernel, n=n)
    assert error.verdict == verdict
    assert words in str(error)


def _doubled(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = 2 * x_ref[...]

    return mosaic_gpu.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


def _tensor_core(use: Callable[..., Any], **scratch: Any) -> Callable[[jax.Array], jax.Array]:
    # `use` ends the body of a copy.
    def kernel(x: jax.Array) -> jax.Array:
        def body(x_ref: Any, o_ref: Any, **refs: Any) -> None:
            o_ref[...] = x_ref[...]
            use(**refs)

        return mosaic_gpu.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype), scratch_types=scratch)(x)

    return kernel


_HOPPER = _tensor_core(lambda: mosaic_gpu.wgmma_wait(0))
_BLACKWELL = _tensor_core(
    mosaic_gpu.tcgen05_commit_arrive, barrier=mosaic_gpu.Barrier(num_arrivals=1, orders_tensor_core=True)
)


@pytest.mark.skipif(jax.__version_info__ < (0, 11), reason="jaxlib cannot read the module that JAX makes")
@pytest.mark.parametrize("target", [target for target in TARGETS.values() if target.platform == "cuda"], ids=str)
def test_mosaic_gpu_kernels_are_lowered_for_their_own_target(target: Target) -> None:
    (kernel,) = lower(_traced(_doubled, n=128), target)
    assert f"arch_major = {target.arch // 10} : i32" in kernel.text  # type: ignore[operator]


@pytest.mark.parametrize(
    ("kernel", "backend", "reason"),
    [
        (_HOPPER, "lower:sm_90", ""),
        (_HOPPER, "lower:sm_100", rf"uses wgmma at .*{HERE.name}:\d+, which only sm_90 has"),
        (_BLACKWELL, "lower:sm_100", ""),
        (_BLACKWELL, "compile:xla-sm_90", rf"uses tcgen05 at .*{HERE.name}:\d+, which only sm_100 has"),
        (_doubled, "lower:gfx942", "Mosaic GPU lowers for NVIDIA's GPUs, not for gfx942"),
    ],
)
def test_a_kernel_of_one_generation_is_for_that_generation(kernel: Any, backend: str, reason: str) -> None:
    (stage,) = resolve([backend])
    found = stage.unsupported_reason(_traced(kernel, n=128))
    assert re.search(reason, found) if reason else not found


@pytest.mark.parametrize("backend", ["lower:sm_80", "compile:xla-sm_80"])
def test_what_a_target_lacks_is_found_before_it_is_lowered(backend: str) -> None:
    (stage,) = resolve([backend])
    words = r"sm_80 has no TMA, which sm_90, sm_100 and sm_120 have \(kernels/pipeline_copy"
    with pytest.raises(Failure, match=words) as caught:
        stage.prepare(_matrix(pipeline_copy))
    assert caught.value.verdict == "unimplemented"


def _converts(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...].astype(jnp.float8_e8m0fnu).astype(x.dtype)

    return mosaic_gpu.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


@pytest.mark.parametrize("backend", ["lower:sm_90", "compile:xla-sm_90", "simulate:sm_90"])
def test_dtypes_that_a_target_does_not_convert_are_named(backend: str) -> None:
    (stage,) = resolve([backend])
    words = rf"sm_90 has no conversions of float4 and float8_e8m0fnu, which sm_100 and sm_120 have \(.*{HERE.name}:\d+"
    with pytest.raises(Failure, match=words) as caught:
        stage.prepare(_traced(_converts, n=128))
    assert caught.value.verdict == "unimplemented"


def _copied(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any, kept: Any, loaded: Any) -> None:
        mosaic_gpu.copy_gmem_to_smem(x_ref, kept, loaded)
        mosaic_gpu.barrier_wait(loaded)
        o_ref[...] = kept[...]

    scratch = {"kept": mosaic_gpu.SMEM(x.shape, x.dtype), "loaded": mosaic_gpu.Barrier()}
    return mosaic_gpu.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype), scratch_types=scratch)(x)


def _on_mesh(**mesh: Any) -> Callable[[jax.Array], jax.Array]:
    def kernel(x: jax.Array) -> jax.Array:
        def body(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...]

        return mosaic_gpu.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype), **mesh)(x)

    return kernel


def _accumulates(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any, total: Any) -> None:
        o_ref[...] = x_ref[...]
        mosaic_gpu.async_store_tmem(
            total.at[:, pl.ds(0, 128)], mosaic_gpu.layout_cast(x_ref[...], mosaic_gpu.Layout.TCGEN05)
        )

    scratch = {"total": mosaic_gpu.TMEM((128, 1024), jnp.float32)}
    return mosaic_gpu.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype), scratch_types=scratch)(x)


_QUARTER = (
    r"needs 131,080 bytes .* sm_120 has 101,376: .*kept float32\[256, 128\] = 128 KiB.*; arrays of 1/2 the size fit"
)


@pytest.mark.parametrize(
    ("kernel", "shape", "target", "words"),
    [
        (
            _copied,
            (256, 256),
            "sm_90",
            r"needs 262,152 bytes .* sm_90 has 232,448: .*kept float32\[256, 256\] = 256 KiB",
        ),
        pytest.param(
            *(_copied, (256, 128), "sm_120", _QUARTER),
            marks=pytest.mark.skipif(jax.__version_info__ < (0, 12), reason="jaxlib cannot read the module"),
        ),
        (
            _on_mesh(num_threads=9, thread_name="wg"),
            (8, 128),
            "sm_90",
            "1,152 threads, .* at most 1,024, or 8 warpgroups",
        ),
        (_on_mesh(cluster=(32,), cluster_names=("c",)), (8, 128), "sm_90", "a cluster of 32 blocks, .* at most 16"),
        (_accumulates, (128, 128), "sm_100", r"needs 1024 columns .* sm_100 has 512 .*: .*total float32\[128, 1024\]"),
    ],
)
@pytest.mark.parametrize("tier", ["lower", "compile:xla", "simulate"])
def test_what_a_block_cannot_have_is_named_with_what_fits(
    kernel: Any, shape: tuple[int, int], target: str, words: str, tier: str
) -> None:
    if tier == "simulate" and jax.__version_info__ < (0, 11):
        pytest.skip("Mosaic GPU kernels are not simulated")
    (stage,) = resolve([f"{tier}-{target}" if tier.endswith("xla") else f"{tier}:{target}"])
    with pytest.raises(Failure, match=words) as caught:
        stage.prepare(_matrix(kernel, *shape))
    assert caught.value.verdict == "resource_exceeded"
    assert HERE.name in str(caught.value)


def test_a_block_at_its_limits_is_lowered() -> None:
    most = _on_mesh(num_threads=8, thread_name="wg", cluster=(16,), cluster_names=("c",))
    assert lower(_matrix(most, 8, 128), TARGETS["sm_90"])
    assert lower(_matrix(_copied, 192, 128), TARGETS["sm_120"])  # 98,312 of 101,376 bytes


def _casts(*casts: Any) -> Callable[[jax.Array], jax.Array]:
    def kernel(x: jax.Array) -> jax.Array:
        def body(x_ref: Any, o_ref: Any) -> None:
            total = jnp.exp(mosaic_gpu.layout_cast(x_ref[...], mosaic_gpu.Layout.WGMMA))
            for number, layout in enumerate(casts):
                total = total + mosaic_gpu.layout_cast(x_ref[...] + number, layout)  # THE CAST
            o_ref[...] = total

        return mosaic_gpu.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    return kernel


@pytest.mark.skipif(jax.__version_info__ < (0, 11), reason="JAX lowers without the dialect whose layouts are inferred")
def test_casts_that_disagree_are_named_with_their_lines() -> None:
    layouts = mosaic_gpu.Layout
    if jax.__version_info__ >= (0, 12):  # before, it stores no such layout to global memory
        assert lower(_matrix(_casts(layouts.WGMMA, layouts.WGMMA), 128, 128), TARGETS["sm_90"])
    with pytest.raises(Failure, match="disagree") as caught:
        lower(_matrix(_casts(layouts.WGMMA, layouts.TCGEN05), 128, 128), TARGETS["sm_90"])
    said = str(caught.value)
    assert caught.value.verdict == "compile_error"
    assert said.count("the cast to ") == 2
    assert _line(HERE, "THE CAST") in said
    assert "Failed to infer a possible set of layouts" in said


@pytest.mark.skipif(jax.__version_info__ < (0, 12), reason="JAX's pipelines always copy by TMA")
def test_what_jax_chose_for_the_traced_gpu_is_not_the_kernels_fault() -> None:
    (stage,) = resolve(["lower:sm_80"])
    with pytest.raises(Failure, match=r"sm_80 has no TMA.*traced for compute capability 9\.0") as caught:
        stage.prepare(_matrix(twin("input only pipeline without commit smem").broken().kernel))
    assert caught.value.verdict == "unavailable"


def test_a_pallas_call_is_lowered_to_mosaic_gpu_while_jax_does() -> None:
    def call(x: jax.Array) -> jax.Array:
        return pl.pallas_call(lambda x, o: None, x, compiler_params=mosaic_gpu.CompilerParams())(x)

    (stage,) = resolve(["lower:sm_90"])
    with nullcontext() if jax.__version_info__ < (0, 11) else pytest.raises(Failure) as caught:
        stage.prepare(_traced(call, n=128))
    if caught is not None:
        assert caught.value.verdict == "unimplemented"
        assert re.search(rf"write the kernel with plgpu\.kernel \(.*{HERE.name}:\d+", str(caught.value))


def test_tpu_kernels_are_refused() -> None:
    pairing = kt.oracle_for(iota_scalar_memory, n=kt.dim_size("n"))(lambda n: None)
    traced = trace(pairing, signatures(pairing, "quick")[0])
    (stage,) = resolve(["lower:sm_90"])
    told = "a kernel written for mosaic_tpu (compiler_params is pallas.tpu.CompilerParams) cannot be lowered for sm_90"
    assert stage.unsupported_reason(traced) == told


def test_one_record_a_signature_and_target() -> None:
    kernel = functools.partial(matmul, activation=None)
    pairing = kt.oracle_for(
        kernel, x=kt.array("m k", "float32"), y=kt.array("k n", "float32"), tolerance=kt.tolerance.dot("k")
    )(lambda x, y: x @ y)
    result = kt.check(pairing, backends=["lower:*"], depth="quick")
    assert result.ok
    planned = (*signatures(pairing, "quick"), *affordable_long_signatures(pairing, "quick"))
    assert result.cases == len(TARGETS) * len(planned)
    assert {record.compared for record in result.records} == {1}
