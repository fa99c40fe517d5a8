"""Production sizes: bugs that show only there are found, the correct kernels pass, and memory stays small."""

import functools
import importlib
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

import kerneltest as kt
from kerneltest.records.schema import Record
from tests.found import records


def at_production(pairing: kt.Pairing, backend: str, depth: str = "standard") -> list[Record]:
    return list(records(pairing, [backend], depth, "production"))


def _copied(x: jax.Array, around: Any = lambda x: x) -> jax.Array:
    """Copies x in blocks of whole rows, after a change outside of the call."""

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    given = around(x)
    block = pl.BlockSpec((1, given.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(body, out_shape=given, grid=given.shape[:1], in_specs=[block], out_specs=block)(given)


WIDE = dict(m=kt.dim(production=3_000_000), n=kt.dim(values=(1024,)))


def _copies(around: Any, oracle: Any, **more: Any) -> kt.Pairing:
    declared = dict(x=kt.array("m n", "float32"), dims=WIDE, batch_dims="m") | more
    return kt.oracle_for(lambda x: _copied(x, around), **declared)(oracle)


@pytest.mark.parametrize(
    ("pairing", "verdict", "words"),
    [
        (_copies(lambda x: x, lambda x: x), "pass", ""),
        (_copies(lambda x: x.astype(jnp.float16), lambda x: x), "pass", ""),
        (_copies(lambda x: x.reshape(-1, 512), lambda x: x.reshape(-1, 512), batch_dims=(), needs={}), "pass",
         "values are not compared: the length of axis 0 of output 0 is not a dim"),
        (_copies(lambda x: x, lambda x: x, batch_dims=()), "pass",
         "values of output 0 are not compared: the oracle needs 3,07"),
        (_copies(lambda x: x * 2, lambda x: x * 2), "unavailable", "mul, outside of the Pallas calls"),
        (_copies(lambda x: x, lambda x: x + x.sum(axis=0)), "oracle_error", "needs more than batch_dims= and needs="),
        (_copies(lambda x: x, lambda x: x, batch_dims=(), needs={"m": lambda i: slice(i + 1, i + 2)}), "oracle_error",
         "which must contain the position, lie within the dim"),
    ],
)  # fmt: skip
def test_values_are_compared_if_the_pairing_declares_what_an_element_needs(
    pairing: kt.Pairing, verdict: str, words: str
) -> None:
    (record,) = at_production(pairing, "simulate:sm_90", "quick")
    assert (record.verdict, words in record.message) == (verdict, True), record.message


def test_a_mean_of_whole_rows_is_judged_by_the_bound_of_its_row() -> None:
    def kernel(x: jax.Array, lost: int) -> jax.Array:
        def body(x_ref: Any, o_ref: Any) -> None:
            o_ref[0] = jnp.sum(x_ref[0, : x.shape[1] - lost] / x.shape[1]) if not lost else jnp.mean(x_ref[0, :]) * 0.99

        row, one = pl.BlockSpec((1, x.shape[1]), lambda i: (i, 0)), pl.BlockSpec((1,), lambda i: (i,))
        out = jax.ShapeDtypeStruct(x.shape[:1], x.dtype)
        return pl.pallas_call(body, out_shape=out, grid=x.shape[:1], in_specs=[row], out_specs=one)(x)

    for lost, verdict in ((0, "pass"), (1, "mismatch")):
        pair = kt.oracle_for(
            lambda x, lost=lost: kernel(x, lost), x=kt.array("m n", "float32"), dims=WIDE, batch_dims="m"
        )
        (record,) = at_production(pair(lambda x: np.mean(x, axis=1)), "simulate:sm_90", "quick")
        assert record.verdict == verdict, record.message


def _scattered(x: jax.Array, mixed: Any) -> jax.Array:
    """Takes elements of x at a hash of their position, whose arithmetic wraps around on purpose."""

    def body(x_ref: Any, o_ref: Any) -> None:
        at = pl.program_id(0) * 1024 + jnp.arange(1024)
        o_ref[at] = x_ref[mixed(at, x.shape[0])]

    return pl.pallas_call(body, out_shape=x, grid=(x.shape[0] // 1024,))(x)


@pytest.mark.parametrize(
    "mixed",
    [
        lambda at, n: ((at.astype(jnp.uint32) * jnp.uint32(2654435761)) % jnp.uint32(n)).astype(jnp.int32),
        lambda at, n: ((at * 1103515245 + 12345) & 0x7FFFFFFF) % n,
        lambda at, n: ((at.astype(jnp.uint32) * jnp.uint32(40503)) >> jnp.uint32(7)).astype(jnp.int32) % n,
        lambda at, n: (at ^ (at * 73856093)) & (n - 1),
        lambda at, n: (at * 1103515245) % n,
        lambda at, n: (at.astype(jnp.uint8) * jnp.uint8(7) + jnp.uint8(3)).astype(jnp.int32),
        lambda at, n: jnp.where(at.astype(jnp.uint32) * jnp.uint32(2654435761) < jnp.uint32(2**31), at, 0),
    ],
)
def test_a_hash_that_wraps_around_is_not_accused(mixed: Any) -> None:
    dims = dict(n=kt.dim(multiple_of=1024, production=2**30))
    pairing = kt.oracle_for(lambda x: _scattered(x, mixed), x=kt.array("n", "int8"), dims=dims)(lambda x: x)
    (record,) = at_production(pairing, "simulate:sm_90", "quick")
    assert record.verdict == "pass", record.message


def test_without_a_production_length_there_are_no_cases() -> None:
    pairing = kt.oracle_for(_copied, x=kt.array("m n", "float32"), dims=dict(n=kt.dim(values=(64,))))(lambda x: x)
    assert at_production(pairing, "simulate:sm_90", "quick") == []


@pytest.mark.parametrize("options", [dict(maximum=10), dict(multiple_of=7), dict(values=(3, 4))])
def test_a_production_length_that_the_dim_does_not_admit_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="production=64 is excluded by the dim's other options"):
        kt.dim(production=64, **options)


def test_the_page_shows_what_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs/production-sizes.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL)
    (code,) = [block for language, block in blocks if language == "python" and "# flat_copy.py" in block]
    (shown,) = [block for _, block in blocks if block.startswith("out_of_bounds")]
    (tmp_path / "flat_copy.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (record,) = at_production(importlib.import_module("flat_copy").copied, "simulate:sm_90", "quick")
    told = f"{record.verdict}: {record.family}, {record.signature} {record.message.splitlines()[0]}"
    assert " ".join(shown.split()) == " ".join(told.split())


def test_a_finding_says_if_jax_itself_wraps_around() -> None:
    wide = dict(m=kt.dim(production=2**21 + 8), n=kt.dim(values=(1024,)))
    pair = kt.oracle_for(_copied, x=kt.array("m n", "int8"), dims=wide, batch_dims="m")
    (record,) = at_production(pair(lambda x: x), "simulate:sm_90", "quick")
    assert record.verdict == "out_of_bounds"
    assert "computes offsets into an array of at most 2^32 bytes in 32 bits" in record.message


def _in_blocks(x: jax.Array, block: int, programs: int, found: Any = lambda x_ref, at: at) -> jax.Array:
    """Copies x in blocks, to places that may depend on the values of x."""

    def body(x_ref: Any, o_ref: Any) -> None:
        at = pl.program_id(0) * block + jnp.arange(block)
        inside = at < x.shape[0]
        value = plgpu.load(x_ref.at[at], mask=inside, other=0)
        plgpu.store(o_ref.at[found(value, at)], value, mask=inside)

    return pl.pallas_call(body, out_shape=x, grid=(programs,))(x)


def _reversed_twice(x: jax.Array) -> jax.Array:
    """One call computes places to which another one stores, in blocks of another length."""

    def body(o_ref: Any) -> None:
        at = pl.program_id(0) * 1024 + jnp.arange(1024)
        plgpu.store(o_ref.at[at], x.shape[0] - 1 - at, mask=at < x.shape[0])

    places = pl.pallas_call(body, out_shape=x, grid=(pl.cdiv(x.shape[0], 1024),))()
    return _in_blocks(places, 256, pl.cdiv(x.shape[0], 256), lambda value, at: value)


NOT_WRITTEN = "elements of output 0 were never written, the first [200000000]"
LONG = dict(n=kt.dim(block=1024, production=200_000_001))


@pytest.mark.parametrize(
    ("kernel", "verdict", "words"),
    [
        (lambda x: _in_blocks(x, 1024, pl.cdiv(x.shape[0], 1024)), "pass", ""),
        (lambda x: _in_blocks(x, 1024, min(pl.cdiv(x.shape[0], 1024), 65_535)), "unwritten", NOT_WRITTEN),
        (lambda x: _in_blocks(x, 1024, max(x.shape[0] // 1024, 1)), "unwritten", NOT_WRITTEN),
        (_reversed_twice, "pass", "no element is final before all programs have run"),
        (lambda x: _in_blocks(jax.lax.optimization_barrier(x), 1024, pl.cdiv(x.shape[0], 1024)), "pass", ""),
        (lambda x: _in_blocks(jnp.split(x, [1])[1], 1024, 9), "unavailable", "outside of the Pallas calls"),
        (lambda x: _in_blocks(x.reshape(-1, 1).reshape(-1, order="F"), 1024, pl.cdiv(x.shape[0], 1024)), "unavailable",
         "reshape, outside of the Pallas calls"),
    ],
)  # fmt: skip
def test_unreached_elements_are_unwritten_and_limits_are_reported(kernel: Any, verdict: str, words: str) -> None:
    pairing = kt.oracle_for(kernel, x=kt.array("n", "int32"), dims=LONG, batch_dims="n")(lambda x: x)
    (record,) = at_production(pairing, "simulate:sm_90", "quick")
    assert (record.verdict, words in record.message) == (verdict, True), record.message


@pytest.mark.parametrize("needs", [lambda i: i, lambda i: (i, i + 1), lambda i: slice(i - 1, i + 1), lambda i: 1 // 0])
def test_needs_that_give_no_part_are_the_pairings_error(needs: Any) -> None:
    kernel = functools.partial(_in_blocks, block=1024, programs=4)
    pairing = kt.oracle_for(lambda x: kernel(x), x=kt.array("n", "int32"), dims=LONG, needs={"n": needs})(lambda x: x)
    (record,) = at_production(pairing, "simulate:sm_90", "quick")
    assert (record.verdict, record.message.startswith("needs of 'n'")) == ("oracle_error", True)
