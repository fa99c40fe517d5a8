"""The smallest case obeys the declarations: relations, partitions, optional and derived arguments."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

import kerneltest as kt
from tests.found import findings
from tests.sample import double
from tests.shrink.test_shrinker import shrink_first_finding

FLOATS = kt.array("m n", "float32", domain=(-9, 9))


def _off(x: jax.Array, wrong: Any) -> jax.Array:
    """Twice the input, with one element off if `wrong` is true."""
    return double(x).at[-1, -1].add(jnp.asarray(wrong, x.dtype))


def test_a_relation_holds() -> None:
    pairing = kt.oracle_for(lambda x: _off(x, x.shape[1] > 6), x=FLOATS, where=lambda m, n: n == 2 * m)(_twice)
    assert shrink_first_finding(pairing).case.signature.dims == (("m", 4), ("n", 8))


def test_axes_made_of_dims_are_cut_together() -> None:
    x = kt.array("m 2*h", "float32", domain=(-9, 9))
    pairing = kt.oracle_for(lambda x: _off(x, x.shape[1] > 6), x=x)(_twice)
    case = shrink_first_finding(pairing).case
    assert (case.signature.dims, case.arguments["x"].shape) == ((("m", 1), ("h", 4)), (1, 8))


def test_irrelevant_optional_arguments_are_absent() -> None:
    def kernel(x: jax.Array, bias: Any = None, shift: Any = None) -> jax.Array:
        return _off(x, shift is not None)

    def oracle(x: np.ndarray, bias: Any = None, shift: Any = None) -> np.ndarray:
        return 2 * x

    optional = kt.optional(kt.array("n", "float32"))
    case = shrink_first_finding(kt.oracle_for(kernel, x=FLOATS, bias=optional, shift=optional)(oracle)).case
    assert case.signature.statics == (("bias", "absent"), ("shift", "given"))
    assert list(case.arguments) == ["x", "shift"]


def test_a_partition_stays_a_partition() -> None:
    def kernel(x: jax.Array, sizes: jax.Array) -> jax.Array:
        return _off(x, (sizes > 2).any())

    pairing = kt.oracle_for(kernel, x=FLOATS, sizes=kt.partition("g", of="n"))(lambda x, sizes: 2 * x)
    case = shrink_first_finding(pairing).case
    assert case.arguments["sizes"].sum() == dict(case.signature.dims)["n"] == 3
    assert case.arguments["sizes"].tolist() == [3]


def test_only_lengths_that_matter_stay() -> None:
    def kernel(x: jax.Array, lengths: jax.Array) -> jax.Array:
        return _off(x, (lengths == 5).any())

    declared = dict(x=FLOATS, lengths=kt.lengths("b", up_to="n"), dims=dict(b=kt.dim(values=(3,))))
    found = shrink_first_finding(kt.oracle_for(kernel, **declared)(lambda x, lengths: 2 * x)).case.arguments["lengths"]
    assert sorted(found.tolist()) == [0, 0, 5]


def test_derived_arguments_follow_the_others() -> None:
    def kernel(x: jax.Array, top: jax.Array) -> jax.Array:
        return _off(x, top > 4)

    top = kt.derived("", lambda x: x.max(initial=-9), dtypes="float32")
    case = shrink_first_finding(kt.oracle_for(kernel, x=FLOATS, top=top)(lambda x, top: 2 * x)).case
    assert case.arguments["top"] == case.arguments["x"].max() > 4
    assert case.arguments["x"].size == 1


def _twice(x: np.ndarray) -> np.ndarray:
    return 2 * x


def test_a_kernel_that_writes_in_place_is_judged_by_what_it_returns() -> None:
    def kernel(x: jax.Array, at: jax.Array) -> jax.Array:
        def body(x_ref: Any, at_ref: Any, out_ref: Any) -> None:
            out_ref[at_ref[...]] = jnp.zeros(at_ref.shape, out_ref.dtype)

        like = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pl.pallas_call(body, out_shape=like, input_output_aliases={0: 0})(x, at)

    def oracle(x: np.ndarray, at: np.ndarray) -> np.ndarray:
        y = x.copy()
        y[at] = wrong
        return y

    dims = dict(n=kt.dim(values=(5,)), q=kt.dim(values=(1, 5)))
    declared = dict(x=kt.array("n", "float32"), at=kt.permutation("q", into="n"), where=lambda q, n: q <= n, dims=dims)
    for wrong in (0, 1):
        for made in (kernel, jax.jit(kernel, donate_argnums=0)):
            first = next(findings(kt.oracle_for(made, **declared)(oracle), ["interpret"]), None)
            assert (first is None) == (wrong == 0)
            assert first is None or first.verdict in ("mismatch", "special_mismatch")
