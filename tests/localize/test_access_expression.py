"""The offsets of accesses, as the lowered code computes them."""

from typing import Any

import jax
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

import kerneltest as kt
from kerneltest.core.targets import TARGETS
from kerneltest.localize.case_replay import MutableKernel
from kerneltest.localize.code_operators import Listing, describe_offset
from kerneltest.plan.signatures import Signature
from kerneltest.trace.tracing import trace
from suites import test_matmul, test_vector_add


def _listing(pairing: object, dims: dict[str, int], statics: dict[str, str]) -> Listing:
    dtypes = tuple((path, "float32") for path in pairing.leaves)  # type: ignore[attr-defined]
    signature = Signature(tuple(dims.items()), dtypes, tuple(statics.items()), "float32")
    return MutableKernel(trace(pairing, signature), TARGETS["sm_90"], dims).calls[0].listing  # type: ignore[arg-type]


def _places(listing: Listing, kind: str) -> list[str]:
    pairs = zip(listing.operations, listing.sources, strict=True)
    return [source.place for op, source in pairs if op.name == kind]


@pytest.mark.parametrize(
    ("kind", "number", "name", "words"),
    [
        ("tt.load", 0, "x_ref",
         "program_id(0) * 128 + arange(128), where program_id(0) * 128 + arange(128) < 300"),
        ("tt.store", 0, "o_ref",
         "program_id(0) * 128 + arange(128), where program_id(0) * 128 + arange(128) < 300"),
        ("tt.load", 0, "o_ref", ""),
        ("tt.load", 0, "nothing", ""),
    ],
)  # fmt: skip
def test_an_offset_and_its_mask_read_as_the_kernel_does(kind: str, number: int, name: str, words: str) -> None:
    listing = _listing(test_vector_add.blocked, {"n": 300}, {"block": "128"})
    assert describe_offset(listing, _places(listing, kind)[number], name) == words


def test_offsets_in_a_loop_have_strides_and_a_turn() -> None:
    statics = {"activation": "none", "precision": "None"}
    listing = _listing(test_matmul.tiled, {"m": 40, "n": 70, "k": 100}, statics)
    assert (
        describe_offset(listing, _places(listing, "tt.store")[0], "o_ref")
        == "(program_id(0) * 32 + arange(32)) * 70 + program_id(1) * 32 + arange(32), where "
        "program_id(0) * 32 + arange(32) < 40 and program_id(1) * 32 + arange(32) < 70"
    )
    load = describe_offset(listing, _places(listing, "tt.load")[0], "x_ref")
    assert "i * 32 + arange(32)" in load
    assert "* 100" in load


def _gather(x: jax.Array, at: jax.Array) -> jax.Array:
    def body(x_ref: Any, at_ref: Any, o_ref: Any) -> None:
        o_ref[0] = x_ref[at_ref[pl.program_id(0)]]

    result: jax.Array = pl.pallas_call(
        body,
        grid=at.shape,
        in_specs=[pl.BlockSpec(x.shape, lambda i: (0,)), pl.BlockSpec(at.shape, lambda i: (0,))],
        out_specs=pl.BlockSpec((1,), lambda i: (i,)),
        out_shape=jax.ShapeDtypeStruct(at.shape, x.dtype),
    )(x, at)
    return result


def _histogram(at: jax.Array) -> jax.Array:
    def body(at_ref: Any, o_ref: Any) -> None:
        plgpu.atomic_add(o_ref, pl.program_id(0), at_ref[0])
        plgpu.atomic_add(o_ref, pl.program_id(0) + 1, at_ref[0], mask=pl.program_id(0) < 3)

    result: jax.Array = pl.pallas_call(body, grid=at.shape, out_shape=at, compiler_params=plgpu.CompilerParams())(at)
    return result


def test_the_mask_of_an_atomic_access_is_not_the_value_that_it_adds() -> None:
    pairing = kt.oracle_for(_histogram, at=kt.array("m", "int32"))(lambda at: at)
    signature = Signature((("m", 4),), (("at", "int32"),), (), "int32")
    listing = MutableKernel(trace(pairing, signature), TARGETS["sm_90"], {"m": 4}).calls[0].listing
    plain, masked = _places(listing, "tt.atomic_rmw")
    assert describe_offset(listing, plain, "o_ref") == "program_id(0)"
    assert describe_offset(listing, masked, "o_ref") == "program_id(0) + 1, where program_id(0) < 3"


def test_an_offset_that_is_loaded_names_its_array() -> None:
    pairing = kt.oracle_for(_gather, x=kt.array("n", "float32"), at=kt.indices("m", into="n"))(lambda x, at: x[at])
    signature = Signature((("n", 8), ("m", 4)), (("x", "float32"), ("at", "int32")), (), "float32")
    listing = MutableKernel(trace(pairing, signature), TARGETS["sm_90"], {"n": 8, "m": 4}).calls[0].listing
    said = [describe_offset(listing, place, "x_ref") for place in _places(listing, "tt.load")]
    assert "at_ref[program_id(0)]" in " ".join(said)
    assert "addptr" not in " ".join(said)
