"""Fault localisation names the faulty line with the experiment that shows it, and no line without one."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu
from jax.experimental.pallas import triton as plgpu

import kerneltest as kt
from kerneltest.core.verdicts import Verdict
from kerneltest.records.schema import FaultLocation
from tests.corpus import TWINS, Twin
from tests.corpus.twin import edited
from tests.localize.fault_cases import locate_case, make_case
from tests.sample import elementwise


def _line(variant: Twin, text: str) -> int:
    """The number of the only line of a variant's source that contains a text."""
    (line,) = (number for number, each in enumerate(variant.edit.sources()[1].splitlines(), 1) if text in each)
    return line


@pytest.mark.parametrize(
    ("name", "case", "line", "words", "certain"),
    [
        (
            "softmax.fused: rows that are fully masked are not guarded",
            dict(dims=dict(m=2, n=3), x=[[0.0], [-np.inf]]),
            "e = jnp.exp(x - jnp.max(x))",
            "-inf - -inf is nan, in program (1)",
            True,
        ),
        (
            "softmax.fused: a sum of zero is not guarded",
            dict(dims=dict(m=1, n=1), x=-np.inf),
            "return x / total",
            "0 / 0 is nan, in program (0)",
            True,
        ),
        (
            "softmax.fused: no maximum is subtracted",
            dict(dims=dict(m=1, n=1), x=200.0),
            "e = jnp.exp(x)",
            "exp(200) overflows float32 to inf, in program (0)",
            False,
        ),
        (
            "vector_add.blocked: NaN and inf are replaced by numbers",
            dict(dims=dict(n=1), x=np.nan),
            "jnp.nan_to_num(x + y)",
            "NaN is lost, in program (0)",
            True,
        ),
        (
            "vector_add.blocked: the mask drops the last element",
            dict(dims=dict(n=3)),
            "< length - 1",
            "changing < to <= fixes the result",
            False,  # `length` may be wrong at its definition
        ),
        (
            "vector_add.blocked: the mask is <= and not <",
            dict(dims=dict(n=3)),
            "<= length",
            "changing <= to < fixes the result",
            False,
        ),
        (
            "vector_add.blocked: the first operand is added to itself",
            dict(dims=dict(n=1), y=2.0),
            "y = plgpu.load(x_ref.at[at]",
            "replacing `x_ref` by `y_ref` fixes the result",
            False,  # the sum is right as well if the other load is of y
        ),
        (
            "vector_add.blocked: the sum is computed in bfloat16",
            dict(dims=dict(n=1), x=257.0),
            "bfloat16",
            "removing the cast to bfloat16",
            True,
        ),
        (
            "vector_add.blocked: the grid lacks the tail",
            dict(dims=dict(n=129)),
            "grid=(max(length // block, 1),)",
            "launching more than",
            True,
        ),
        (
            "softmax.fused: the tail of a row counts as zeros",
            dict(dims=dict(m=1, n=3)),
            "other=0.0).astype(jnp.float32)\n",
            "giving the masked load other=-inf fixes the result",
            True,
        ),
        (
            "rms_norm.normalised: epsilon is added outside of the root",
            dict(dims=dict(m=1, n=3), x=0.5),
            "return jax.lax.rsqrt(",
            "exchanging rsqrt and add fixes the result",
            True,
        ),
        (
            "matmul.two_by_two: the rows' index map is shifted by one block",
            dict(dims=dict(m=32, k=16, n=32), x=np.arange(32.0)[:, None]),
            "lambda i, j: (1 - i, 0)",
            "using program_id(0) along axis 0 in the index map fixes the result",
            True,
        ),
    ],
)
def test_the_faulty_line_is_named(name: str, case: dict[str, Any], line: str, words: str, certain: bool) -> None:
    variant = TWINS[name]
    pairing = variant.broken()
    found = locate_case(pairing, make_case(pairing, **case))
    assert found is not None
    assert found.place == f"kernels/{variant.edit.family}.py:{_line(variant, line.strip())}"
    assert words in found.words
    assert found.confirmed == certain
    assert not (certain and found.alternatives)


@pytest.mark.parametrize(
    ("verdict", "text", "is_partial"), [(Verdict.UNWRITTEN, "< length", True), (Verdict.MISMATCH, "y_ref", False)]
)
def test_elements_that_were_never_written_and_other_wrong_values_have_a_line_each(
    verdict: Verdict, text: str, is_partial: bool
) -> None:
    bugs = ("the mask drops the last element", "the first operand is added to itself")
    changes = tuple(change for bug in bugs for change in TWINS[f"vector_add.blocked: {bug}"].edit.changes)
    pairing = edited("two bugs", "vector_add.blocked", "vector_add_blocked", changes).broken()
    cases = [make_case(pairing, dict(n=n), x=2.0) for n in (3, 5)]
    found = locate_case(pairing, cases[0], verdict=verdict, also=cases[1:])
    assert found is not None
    assert text in found.operation
    assert {each.id for each in cases}.issubset(found.explained) is is_partial
    assert set(found.unexplained).issubset(found.explained)


def test_a_second_bug_is_found_once_the_first_is_repaired() -> None:
    bugs = ("the mask drops the last element", "the grid lacks the tail")
    changes = tuple(change for bug in bugs for change in TWINS[f"vector_add.blocked: {bug}"].edit.changes)
    twin = edited("two bugs", "vector_add.blocked", "vector_add_blocked", changes)
    pairing = twin.broken()
    tail, *others = (make_case(pairing, dict(n=n)) for n in (129, 300, 1, 128))
    mask = locate_case(pairing, others[1])
    assert mask is not None
    assert mask.place == f"kernels/vector_add.py:{_line(twin, 'inside = ')}"
    assert locate_case(pairing, tail, also=others) is None
    grid = locate_case(pairing, tail, also=others, repaired=mask)
    assert grid is not None
    assert (grid.place, grid.confirmed) == (f"kernels/vector_add.py:{_line(twin, 'grid=')}", False)
    assert grid.words.endswith(f"after the change at {mask.place}")
    by_itself = locate_case(pairing, others[1], repaired=replace(mask, place="elsewhere.py:1", words=""))
    assert by_itself == mask


def _two_bounds(x: jax.Array) -> jax.Array:
    above = x >= 1
    below = x <= -1
    return jnp.where(above, 2.0, 0.0) + jnp.where(below, 3.0, 0.0)


def test_the_smallest_case_of_a_second_bug_is_wrong_once_the_first_is_repaired() -> None:
    made = kt.oracle_for(
        lambda x: elementwise(_two_bounds, x), x=kt.array("n", "float32"), dims={"n": kt.dim(values=(1, 2))}
    )(lambda x: np.where(x > 1, 2.0, 0.0) + np.where(x < -1, 3.0, 0.0))
    suspects = kt.check(made, backends=["interpret"], depth="quick", minimize=5).suspects
    assert {each.fault and each.fault.operation for each in suspects} == {"above = x >= 1", "below = x <= -1"}
    assert {str(each.example.shown.arguments["x"]) for each in suspects} == {"float32[1] [1.]", "float32[1] [-1.]"}


def test_a_constant_that_is_wrong_at_its_definition_is_not_confirmed_elsewhere() -> None:
    """`columns=n - 1` is fixed as well by `<=` where `columns` is compared, on another line."""
    edits = (("columns=n),\n        grid=(m, 1)", "columns=n - 1),\n        grid=(m, 1)"),)
    pairing = edited("one column too few", "softmax.fused", "softmax_fused", edits).broken()
    found = locate_case(pairing, make_case(pairing, dict(m=1, n=3)))
    assert found is not None
    assert not found.confirmed


def test_a_number_that_fits_the_length_of_a_case_is_refuted_at_a_longer_one() -> None:
    def kernel(x: jax.Array) -> jax.Array:
        return elementwise(lambda u: u * jnp.minimum(jnp.arange(u.shape[0]), 1), x)

    pairing = kt.oracle_for(kernel, x=kt.array("n", "float32"))(lambda x: x * np.arange(len(x)))
    found = locate_case(pairing, make_case(pairing, dict(n=3)), backend="interpret")
    assert found is None or found.words != "changing 1 to 2 fixes the result"


def _clamped(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.maximum(x_ref[...], 0.0)

    return pl.pallas_call(
        body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), compiler_params=plgpu.CompilerParams()
    )(x)


def test_a_nan_lost_in_a_maximum_is_traced_to_it() -> None:
    pairing = kt.oracle_for(_clamped, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(1, 2))))(
        lambda x: np.maximum(x, 0)
    )
    found = locate_case(pairing, make_case(pairing, dict(n=1), x=np.nan))
    assert found == FaultLocation(
        f"tests/localize/test_fault_location.py:{_clamped.__code__.co_firstlineno + 2}",
        "jnp.maximum(x_ref[...], 0.0)",
        "max(nan, 0) is 0: NaN is lost, in program (0)",
        confirmed=True,
        alternatives=(),
        cause="max(nan, 0)",
    )


@pytest.mark.parametrize("name", ["vector_add.blocked", "softmax.fused"])
def test_a_right_kernel_has_no_faulty_line(name: str) -> None:
    pairing = next(twin for twin in TWINS.values() if twin.edit.pairing == name).right()
    assert locate_case(pairing, make_case(pairing, dict(m=1, n=3), x=-np.inf)) is None


def _scaled_in_a_pipeline(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        def step(_: Any, block: Any, o: Any) -> None:
            o[...] = block[...] * -1.5

        block = mosaic_gpu.BlockSpec((8, 128), lambda i: (i, 0))
        mosaic_gpu.emit_pipeline(step, grid=(2,), in_specs=[block], out_specs=[block])(x_ref, o_ref)

    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return mosaic_gpu.kernel(body, out_type=out, grid=(1,), grid_names=("program",))(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("verdict", "found"), [(Verdict.MISMATCH, True), (Verdict.RACE, False)])
def test_values_that_are_right_where_nothing_races_explain_no_race(verdict: Verdict, found: bool) -> None:
    pairing = kt.oracle_for(_scaled_in_a_pipeline, x=kt.array("16 128", "float32"))(lambda x: 1.5 * x)
    case = make_case(pairing, {}, x=2.0)
    assert (locate_case(pairing, case, backend="interpret-mosaic-gpu", verdict=verdict) is not None) is found


def test_a_constant_that_is_zero_at_another_length_may_be_wrong() -> None:
    def kernel(x: jax.Array) -> jax.Array:
        return elementwise(lambda v: v * jnp.float32(v.shape[0] - 4) + v * 0.7, x)

    dims = dict(n=kt.dim(values=(4, 8)))
    pairing = kt.oracle_for(kernel, x=kt.array("n", "float32"), dims=dims)(lambda x: x * len(x) + x * 0.7)
    first, other = (make_case(pairing, dict(n=n)) for n in (8, 4))
    found = locate_case(pairing, first, also=[other])
    assert found is not None
    assert (found.words, found.unexplained) == ("changing 4 to the length n=8 fixes the result", ())


def test_no_line_is_named_if_no_mutant_helps() -> None:
    pairing = TWINS["softmax.fused: the block is one tile"].broken()
    assert locate_case(pairing, make_case(pairing, dict(m=1, n=65)), backend="interpret") is None


def test_no_line_is_named_if_there_is_no_time() -> None:
    name = "vector_add.blocked: the mask drops the last element"
    pairing = TWINS[name].broken()
    assert locate_case(pairing, make_case(pairing, dict(n=3)), seconds=0.0) is None


def test_the_smallest_case_is_made_of_a_wrong_number_if_there_is_one() -> None:
    """The scale of a row of negative numbers is wrong, and where these are divided by nearly 0, they become NaN."""

    def kernel(x: jax.Array) -> jax.Array:
        def codes(values: jax.Array) -> jax.Array:
            return values / (jnp.maximum(values.max(axis=1, keepdims=True), 1e-12) / 448)

        return elementwise(codes, x, dtype=jnp.float8_e4m3fn)

    dims = {"m": kt.dim(values=(3, 1)), "n": kt.dim(block=8)}

    @kt.oracle_for(kernel, x=kt.array("m n", "float32", domain=(-1e4, 1e4)), dims=dims)
    def scaled(x: np.ndarray) -> np.ndarray:
        return x / (np.maximum(np.abs(x).max(axis=1, keepdims=True), 1e-12) / 448)

    (suspect,) = kt.check(scaled, backends=["interpret"], depth="quick", minimize=5).suspects
    assert suspect.headline == "NaN or wrong values from a missing absolute value"
