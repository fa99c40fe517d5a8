"""What can be declared, and how a declaration that does not fit is refused."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
from tests.sample import double, elementwise


def _two(x: jax.Array, y: jax.Array, scale: int = 1) -> jax.Array:
    return elementwise(lambda a, b: a + b * scale, x, y)


MISFITS: dict[str, tuple[dict[str, Any], Callable[..., Any], list[str]]] = {
    "unknown argument": (
        dict(x=kt.array("n"), y=kt.array("n"), z=kt.array("n")),
        lambda x, y, z: x,
        ["argument 'z'", "no such parameter; it has x, y, scale"],
    ),
    "undeclared argument": (dict(x=kt.array("n")), lambda x: x, ["argument 'y'", "the kernel needs it; declare it"]),
    "not a declaration": (
        dict(x=kt.array("n"), y="n"),
        lambda x, y: x,
        ["argument 'y'", "declare it with kt.array", "not str"],
    ),
    "oracle lacks an argument": (
        dict(x=kt.array("n"), y=kt.array("n")),
        lambda x: x,
        ["argument 'y'", "the oracle does not take it"],
    ),
    "oracle wants more": (
        dict(x=kt.array("n"), y=kt.array("n")),
        lambda x, y, w: x,
        ["argument 'w'", "the pairing does not declare it"],
    ),
    "unused dim": (
        dict(x=kt.array("n"), y=kt.array("n"), dims=dict(q=kt.dim())),
        lambda x, y: x,
        ["dim 'q'", "no argument has it; the dims in use are n"],
    ),
    "unknown dtype": (
        dict(x=kt.array("n", "float33"), y=kt.array("n")),
        lambda x, y: x,
        ["argument 'x'", "'float33' is not a dtype", "remove it"],
    ),
    "a dtype the oracle cannot take": (
        dict(x=kt.array("n", "uint64"), y=kt.array("n")),
        lambda x, y: x,
        ["argument 'x'", "int64, which cannot hold every uint64"],
    ),
    "complex": (
        dict(x=kt.array("n", "complex64"), y=kt.array("n")),
        lambda x, y: x,
        ["argument 'x'", "takes real numbers and booleans, not complex64"],
    ),
    "64 bits": (
        dict(x=kt.array("n", "float64"), y=kt.array("n")),
        lambda x, y: x,
        ["argument 'x'", "JAX_ENABLE_X64=1"],
    ),
    "mask without a block": (
        dict(x=kt.array("n"), y=kt.mask("n")),
        lambda x, y: x,
        ["mask 'y'", "none of its dims (n) has a block", "dims=dict(n=kt.dim(block=64))"],
    ),
    "dot over a dim of one array": (
        dict(x=kt.array("m k"), y=kt.array("m n"), tolerance=kt.tolerance.dot("k")),
        lambda x, y: x,
        ["tolerance", "exactly two array arguments", "1 have it (x)"],
    ),
    "conditioned over an unknown dim": (
        dict(x=kt.array("n"), y=kt.array("n"), tolerance=kt.tolerance.conditioned(over="q")),
        lambda x, y: x,
        ["tolerance", "names dim 'q'"],
    ),
    "invariant to what is not there": (
        dict(x=kt.array("n"), y=kt.array("n"), invariant_to=("block",)),
        lambda x, y: x,
        ["invariant_to", "'block' is not a static argument; choose among 'grid'"],
    ),
    "invariant to a dim": (
        dict(x=kt.array("n"), y=kt.array("n"), scale=kt.static(1, 2), invariant_to="n"),
        lambda x, y: x,
        ["invariant_to", "'n' is not a static argument; choose among 'scale', 'grid'; dims go into batch_dims"],
    ),
    "a batch along what is no dim": (
        dict(x=kt.array("n"), y=kt.array("n"), batch_dims=("m",)),
        lambda x, y: x,
        ["batch_dims", "'m' is not a dim of the pairing; its dims are 'n'"],
    ),
    "no slice stands alone": (
        dict(x=kt.array("n"), y=kt.array("n"), dims=dict(n=kt.dim(multiple_of=8)), batch_dims="n"),
        lambda x, y: x,
        ["batch_dims", "a slice along 'n' cannot be run alone"],
    ),
    "an index crosses slices": (
        dict(x=kt.array("n"), y=kt.indices("m", into="n"), batch_dims="n"),
        lambda x, y: x,
        ["batch_dims", "points into 'n'"],
    ),
    "gradient of integers": (
        dict(x=kt.array("n", "int32"), y=kt.array("n", "int32"), grad=True),
        lambda x, y: x,
        ["grad", "no argument holds floats"],
    ),
    "empty domain": (
        dict(x=kt.array("n", domain=(1, 0)), y=kt.array("n")),
        lambda x, y: x,
        ["argument 'x'", "domain (1, 0) is empty"],
    ),
}


@pytest.mark.parametrize("misfit", MISFITS, ids=lambda name: name.replace(" ", "-"))
def test_a_misfit_names_the_pairing_the_argument_and_the_fix(misfit: str) -> None:
    declaration, oracle, words = MISFITS[misfit]
    oracle.__name__ = "paired"
    with pytest.raises(kt.DeclarationError) as caught:
        kt.oracle_for(_two, **declaration)(oracle)
    for word in ["pairing 'paired'", *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: kt.dim(block=0), "at least 1"),
        (lambda: kt.dim(minimum=5, maximum=3), "no length lies between"),
        (lambda: kt.static(), "at least one"),
        (lambda: kt.static(1, named=2), "either values or name=value"),
        (lambda: kt.xfail("pass", reason="r", url="https://x"), "cannot be expected"),
        (lambda: kt.xfail("mismatch", reason=" ", url="https://x"), "give the reason"),
        (lambda: kt.xfail("mismatch", reason="r", url="nowhere"), "url must link"),
        (lambda: kt.family(group="no such"), "unknown group"),
    ],
)
def test_a_bad_value_is_refused_where_it_is_written(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def _everything(
    params: dict[str, Any], mask: jax.Array, which: jax.Array, count: jax.Array, *, bias: jax.Array, n: int, how: Any
) -> tuple[jax.Array, dict[str, jax.Array]]:
    kept = elementwise(lambda w, m: jnp.where(m, w, 0), params["w"], mask)
    shifted = elementwise(lambda w, b: how(w + b), kept, jnp.broadcast_to(bias, kept.shape))
    picked = elementwise(lambda w, i: w + i, params["v"][0], which + count + n, dtype=jnp.int32)
    return shifted, {"picked": picked}


def everything(params: Any, mask: Any, which: Any, count: Any, bias: Any, n: int, how: str) -> Any:
    kept = np.where(mask, params["w"], 0)
    assert which.size == 0 or (which.min() == 0 and (which.size == 1 or which.max() == n - 1))
    assert count.size == 0 or (count.min() == 0 and (count.size == 1 or count.max() == n))
    return (kept + bias) * (1 if how == "same" else -1), {"picked": params["v"][0] + which + count + n}


def test_every_kind_of_argument_reaches_kernel_and_oracle_alike() -> None:
    pairing = kt.oracle_for(
        _everything,
        params=kt.tree({"w": kt.array("m n"), "v": [kt.array("q", "int32")]}),
        mask=kt.mask("m n"),
        which=kt.indices("q", into="n"),
        count=kt.lengths("q", up_to="n"),
        bias=kt.scalar(),
        n=kt.dim_size("n"),
        how=kt.static(same=lambda v: v, negated=lambda v: -v),
        dims=dict(n=kt.dim(block=8)),
        tolerance=kt.tolerance.exact(),
    )(everything)
    result = kt.check(pairing, depth="quick")
    assert result.ok, result.findings[0].message
    assert {record.group for record in result.records} == {"structural", "numeric", "special", "masks", "invariants"}


def test_a_partial_kernel_and_a_left_out_static_argument_are_declarable() -> None:
    scaled = functools.partial(_two, scale=1)
    pairing = kt.oracle_for(
        scaled, x=kt.array("n"), y=kt.array("n"), scale=kt.static(1), tolerance=kt.tolerance.exact()
    )(lambda x, y: x + y)
    assert kt.check(pairing, depth="quick").ok


def test_a_pairing_called_calls_its_oracle() -> None:
    pairing = kt.oracle_for(double, x=kt.array("n"))(lambda x: 2 * x)
    assert pairing(21) == 42
