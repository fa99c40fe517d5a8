"""Blocks that no author declares: traces show them, and lengths are planned around them."""

import functools
import itertools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import kerneltest as kt
from kerneltest.backends.registry import resolve
from kerneltest.declare.dims import Dim
from kerneltest.execute.kernel_numbers import with_learned_blocks
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.settings import RunSettings
from kerneltest.plan import DEPTHS
from kerneltest.plan.cases import Case, value_cases
from kerneltest.plan.families import GROUPS
from kerneltest.plan.signatures import signatures
from kerneltest.records.schema import Record
from tests.found import found_twice, records


def in_columns(x: jax.Array, block: Callable[[int], int], broken: bool = False, fixed: int = 8) -> Any:
    """Doubles in blocks of 8 rows; a broken one adds 1 in each block of columns but the first."""

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = 2 * x_ref[...] + jnp.where(broken & (pl.program_id(1) > 0), 1, 0).astype(x.dtype)

    spec = pl.BlockSpec((fixed, size := block(x.shape[1])), lambda i, j: (i, j))
    grid = (pl.cdiv(x.shape[0], fixed), pl.cdiv(x.shape[1], size))
    return pl.pallas_call(body, grid=grid, in_specs=[spec], out_specs=spec, out_shape=x)(x)


def in_tail(x: jax.Array, broken: bool = False) -> Any:
    """Doubles in blocks of 128; a broken one adds 1 in the last of several blocks, if it is a part of one."""
    blocks, rest = divmod(x.size, 128)

    def body(x_ref: Any, o_ref: Any) -> None:
        is_last = broken & (pl.program_id(0) == blocks) & (blocks > 0) & (rest > 0)
        o_ref[...] = 2 * x_ref[...] + jnp.where(is_last, 1, 0).astype(x.dtype)

    spec = pl.BlockSpec((128,), lambda i: (i,))
    return pl.pallas_call(body, grid=(pl.cdiv(x.size, 128),), in_specs=[spec], out_specs=spec, out_shape=x)(x)


def accumulated(x: jax.Array, broken: bool = False) -> Any:
    """The sum of each row in blocks of 64; a broken one begins again with the third."""

    def body(x_ref: Any, o_ref: Any) -> None:
        step = pl.program_id(1)
        begins = (step == 0) | (broken & (step == 2))
        inside = 64 * step + lax.broadcasted_iota(jnp.int32, (8, 64), 1) < x.shape[1]
        sums = jnp.sum(jnp.where(inside, x_ref[...], 0), axis=1, keepdims=True)
        o_ref[...] = jnp.where(begins, 0, o_ref[...]) + sums

    specs = pl.BlockSpec((8, 64), lambda i, j: (i, j)), pl.BlockSpec((8, 1), lambda i, j: (i, 0))
    grid, out = (pl.cdiv(x.shape[0], 8), pl.cdiv(x.shape[1], 64)), jax.ShapeDtypeStruct((x.shape[0], 1), x.dtype)
    return pl.pallas_call(body, grid=grid, in_specs=specs[:1], out_specs=specs[1], out_shape=out)(x)


def in_loop(x: jax.Array) -> Any:
    def double(x_ref: Any, o_ref: Any) -> None:
        def step(i: Any, _: None) -> None:
            at = pl.ds(48 * i, 48)
            o_ref[:, at] = 2 * x_ref[:, at]

        lax.fori_loop(0, x.shape[1] // 48, step, None)

    return pl.pallas_call(double, out_shape=x)(x)


def in_pipeline(x: jax.Array) -> Any:
    def body(x_ref: Any, o_ref: Any) -> None:
        def double(_: Any, x_part: Any, o_part: Any) -> None:
            o_part[...] = 2 * x_part[...]

        spec = plgpu.BlockSpec((64, 32), lambda j: (lax.axis_index("i"), j))
        pipeline = plgpu.emit_pipeline(double, grid=(x.shape[1] // 32,), in_specs=[spec], out_specs=[spec])
        pipeline(x_ref, o_ref)

    out = {"out_type" if hasattr(plgpu, "Mesh") else "out_shape": x}
    grid: dict[str, Any] = dict(grid=(pl.cdiv(x.shape[0], 64),), grid_names=("i",))
    return plgpu.kernel(body, **out, **grid)(x)


def refusing(x: jax.Array) -> Any:
    assert x.shape[1] % 64 == 0
    return in_columns(x, lambda _: 64)


PLAIN: Mapping[str, Dim] = {}


@pytest.mark.parametrize(
    ("kernel", "dims", "blocks"),
    [
        (functools.partial(in_columns, block=lambda _: 64), PLAIN, {"n": 64}),
        (functools.partial(in_columns, block=lambda _: 64, fixed=24), PLAIN, {"m": 24, "n": 64}),
        (functools.partial(in_columns, block=lambda n: min(n, 96)), PLAIN, {"n": 96}),
        (functools.partial(in_columns, block=lambda n: pl.cdiv(n, 4)), PLAIN, {}),  # follow the length
        (functools.partial(in_columns, block=pl.next_power_of_2), PLAIN, {}),
        (functools.partial(in_columns, block=lambda _: 256, fixed=256), PLAIN, {"n": 256}),  # both take long
        (functools.partial(in_columns, block=lambda _: 8), PLAIN, {}),  # lengths of dims without a block pass it
        (functools.partial(in_columns, block=lambda _: 64), {"n": kt.dim(block=32)}, {"n": 32}),
        (functools.partial(in_columns, block=lambda _: 64), {"n": kt.dim(values=(7, 9))}, {}),
        (functools.partial(in_columns, block=lambda _: 64), {"n": kt.dim(multiple_of=64)}, {}),
        (functools.partial(in_columns, block=lambda _: 64), {"n": kt.dim(multiple_of=8, maximum=512)}, {"n": 64}),
        (functools.partial(in_columns, block=lambda _: 64), {"n": kt.dim(maximum=64)}, {}),
        (in_loop, PLAIN, {"n": 48}),
        (in_pipeline, {"m": kt.dim(multiple_of=8), "n": kt.dim(multiple_of=16)}, {"n": 32}),
        (in_pipeline, {"n": kt.dim(multiple_of=32)}, {"m": 64}),
        (refusing, PLAIN, {}),  # the lengths at which it is traced
        (refusing, {"n": kt.dim(multiple_of=32)}, {}),
    ],
)
def test_traces_show_the_blocks_of_dims_without_one(
    kernel: Callable[..., Any], dims: dict[str, Dim], blocks: dict[str, int]
) -> None:
    pairing = kt.oracle_for(kernel, x=kt.array("m n", "float32"), dims=dims)(lambda x: 2 * x)
    learned = with_learned_blocks(pairing)
    assert {name: dim.block for name, dim in learned.dims.items() if dim.block} == blocks
    assert with_learned_blocks(learned) is learned
    if learned is not pairing:
        declared = {name: kt.dim(block=block) for name, block in blocks.items() if name not in dims}
        again = kt.oracle_for(kernel, x=kt.array("m n", "float32"), dims={**dims, **declared})(lambda x: 2 * x)
        if not dims:
            assert list(map(str, signatures(learned, "quick"))) == list(map(str, signatures(again, "quick")))
        plans = [signatures(learned, depth) for depth in DEPTHS]
        assert all(set(less) <= set(more) for less, more in itertools.pairwise(plans))


def test_a_kernel_whose_loops_python_unrolls_is_not_traced_at_long_lengths() -> None:
    lengths = [0]

    def unrolled(x: jax.Array) -> Any:
        def body(x_ref: Any, o_ref: Any) -> None:
            for i in range(x.shape[1]):
                o_ref[0, i] = x_ref[0, i] + x_ref[0, 0]

        lengths.append(x.shape[1])
        return pl.pallas_call(body, out_shape=x)(x)

    pairing = kt.oracle_for(unrolled, x=kt.array("1 n", "float32"))(lambda x: x)
    assert with_learned_blocks(pairing) is pairing
    assert 0 < max(lengths) < 100


def test_blocks_follow_static_arguments_and_hold_on_each_backend() -> None:
    def kernel(x: jax.Array, block: int) -> Any:
        return in_columns(x, lambda _: block)

    dims = {"n": kt.dim(on={"cuda": kt.dim(minimum=2), "rocm": kt.dim(block=5)})}
    paired = kt.oracle_for(kernel, x=kt.array("m n", "float32"), block=kt.static(32, 128), dims=dims)
    pairing = paired(lambda x, block: 2 * x)
    learned = with_learned_blocks(pairing)
    assert [learned.on(name).dims["n"].block for name in ("interpret", "cuda", "rocm")] == [128, 128, 5]
    plan = plan_pairing(pairing, "a", resolve(["interpret"]), RunSettings(depth="quick"))
    assert {item.pairing for item in plan.items} == {learned} == {item.pairing.origin for item in plan.items}


@pytest.mark.parametrize("kernel", [functools.partial(in_columns, block=lambda _: 64), in_tail, accumulated])
def test_most_families_find_what_is_wrong_past_the_first_block(kernel: Any) -> None:
    def pair(broken: bool) -> kt.Pairing:
        array = kt.array("n" if kernel is in_tail else "9 n", "float32")
        oracle = (lambda x: x.sum(1, keepdims=True)) if kernel is accumulated else (lambda x: 2 * x)
        return kt.oracle_for(functools.partial(kernel, broken=broken), x=array)(oracle)

    def judged(broken: bool) -> list[Record]:
        return list(records(pair(broken), ["interpret"], group="structural"))

    right = judged(broken=False)
    assert {each.verdict for each in right} == {"pass"}
    found = [each for each in judged(broken=True) if each.verdict.is_finding]
    assert len({each.signature for each in found}) >= 2
    assert len(found) > len(right) / 6


def in_squares(x: jax.Array, broken: tuple[int, ...] = ()) -> Any:
    """Doubles in blocks of 128 by 128; a broken one adds 1 in the blocks that are past the first along some axes."""

    def body(x_ref: Any, o_ref: Any) -> None:
        is_wrong = functools.reduce(operator.and_, (pl.program_id(axis) > 0 for axis in broken), bool(broken))
        o_ref[...] = 2 * x_ref[...] + jnp.where(is_wrong, 1, 0).astype(x.dtype)

    spec = pl.BlockSpec((128, 128), lambda i, j: (i, j))
    grid = tuple(pl.cdiv(length, 128) for length in x.shape)
    return pl.pallas_call(body, grid=grid, in_specs=[spec], out_specs=spec, out_shape=x)(x)


def squared(broken: tuple[int, ...] = ()) -> kt.Pairing:
    kernel = functools.partial(in_squares, broken=broken)
    return kt.oracle_for(kernel, x=kt.array("m n", ("float32", "float16")))(lambda x: 2 * x)


@pytest.mark.parametrize("broken", [(0,), (1,), (0, 1)])
def test_what_is_wrong_past_the_first_block_of_either_of_two_dims_or_of_both_is_found(broken: tuple[int, ...]) -> None:
    assert found_twice(squared(broken), 0)


def test_few_families_fill_several_blocks_of_two_dims_and_all_fill_several_of_one() -> None:
    def planned(pairing: kt.Pairing, depth: str) -> list[Case]:
        return [case for g in GROUPS for case in value_cases(pairing, "a", "float32", g, 0, depth)]

    declared = kt.oracle_for(in_tail, x=kt.array("n", "float32"), dims=dict(n=kt.dim(block=1024)))
    two, one = with_learned_blocks(squared()), declared(lambda x: 2 * x)
    volume = sum(each.volume for each in signatures(two, "quick") if each.dtype == "float32")
    assert sum(case.signature.volume for case in planned(two, "quick")) < 8 * volume
    quick, deeper = ({(c.signature, c.family.name) for c in planned(one, depth)} for depth in ("quick", "standard"))
    assert quick == {(signature, family) for signature, family in deeper if signature in signatures(one, "quick")}


def test_a_long_signature_that_is_planned_anyway_has_each_case_once() -> None:
    declared = kt.oracle_for(in_tail, x=kt.array("n", "float32"))(lambda x: 2 * x)
    planned = tuple(signatures(declared, "quick"))
    cases = [c.id for g in GROUPS for c in value_cases(declared, "a", "float32", g, 0, "quick", long=planned)]
    assert len(cases) == len(set(cases))


def test_a_loop_in_triton_may_have_any_constant_as_its_block() -> None:
    triton = pytest.importorskip("triton")
    from tests.corpus.in_triton import matmul

    lengths = {
        "m": lambda given: given["x"].shape[0],
        "n": lambda given: given["y"].shape[1],
        "k": lambda given: given["x"].shape[1],
    }
    kernel = kt.triton_kernel(
        matmul,
        grid=lambda given: (triton.cdiv(given["m"], 32), triton.cdiv(given["n"], 16)),
        outputs={"out": lambda given: jax.ShapeDtypeStruct((given["m"], given["n"]), given["x"].dtype)},
        constants={**lengths, "bm": 32, "bn": 16, "bk": 64, "bug": ""},
    )
    pairing = kt.oracle_for(kernel, x=kt.array("m k", "float32"), y=kt.array("k n", "float32"))(np.matmul)
    assert {name: dim.block for name, dim in with_learned_blocks(pairing).dims.items()} == {
        "m": 32,
        "k": 64,
        "n": None,
    }
