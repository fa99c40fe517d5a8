"""Oracles that are singular or lose their digits in float64: right kernels pass, wrong ones are found."""

import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.core.details import ErrorCause
from kerneltest.core.verdicts import Verdict
from tests.found import findings
from tests.sample import whole

N = 10


def _substituted(sign: float) -> Any:
    def kernel(matrix: jax.Array, right: jax.Array) -> jax.Array:
        def body(m_ref: Any, b_ref: Any) -> jax.Array:
            m, b = m_ref[...], b_ref[...]
            found = jnp.zeros(N)
            for i in range(N):
                found = found.at[i].set((b[i] - sign * jnp.sum(m[i] * found)) / m[i, i])
            return found

        return whole(body, right, matrix, right)

    return kernel


def _graded(values: Any) -> Any:
    """Lower triangular, with a condition far above 1e16."""
    lower = np.tril(values, -1)
    sizes = np.abs(lower).sum(axis=-1)
    return lower + np.diag(np.where(sizes > 0, np.float32(sizes) * 2.0**-11, 1.0))


@pytest.mark.usefixtures("values_alone")
@pytest.mark.parametrize(("sign", "right"), [(1.0, True), (-1.0, False)])
def test_an_oracle_without_digits_accuses_nobody(sign: float, right: bool) -> None:
    pairing = kt.oracle_for(
        _substituted(sign),
        matrix=kt.array(f"{N} {N}", "float32", structure=_graded, domain=(-10, 10)),
        right=kt.array(f"{N}", "float32", domain=(-10, 10)),
    )(lambda matrix, right: np.linalg.solve(matrix, right))
    if not right:
        assert next(findings(pairing, ["interpret"]), None)
    else:
        result = kt.check(pairing, backends=["interpret"], depth="quick", minimize=0)
        assert not result.findings
        count = sum(each.doubted for each in result.records)
        assert count
        assert f"{count:,} elements of " in repr(result)
        assert "cases are not compared: the oracle loses its digits there, in float64" in repr(result)


def _quotient(a: Any, b: Any, c: Any, d: Any, sign: float) -> Any:
    scale = jnp.maximum(jnp.abs(c), jnp.abs(d))
    a, b, c, d = a / 4, b / 4, c / scale, d / scale
    size = c * c + d * d
    return (a * c + sign * b * d) / size / scale * 4, (b * c - sign * a * d) / size / scale * 4


def _parts(z: Any) -> Any:
    return z.real, z.imag


def _transform(a: Any, b: Any, sign: float) -> Any:
    turns = jax.lax.broadcasted_iota(jnp.int32, (64, 64), 0) * jax.lax.broadcasted_iota(jnp.int32, (64, 64), 1) % 64
    c, s = (f(turns.astype(a.dtype) * (np.pi / 32)) for f in (jnp.cos, jnp.sin))
    return (c * a + sign * s * b).sum(axis=1), (c * b - sign * s * a).sum(axis=1)


def _turns(a: Any) -> Any:
    return np.exp(-2j * np.pi * np.outer(np.arange(a.shape[-1]), np.arange(a.shape[-1])) / a.shape[-1])


# Kernels of real and imaginary parts, of which the twin's sign is wrong, with oracles in complex numbers.
COMPLEX: dict[str, tuple[Any, Any]] = {
    "product": (
        lambda a, b, c, d, sign: (a * c - sign * b * d, a * d + sign * b * c),
        lambda a, b, c, d: _parts((a + 1j * b) * (c + 1j * d)),
    ),
    "quotient": (_quotient, lambda a, b, c, d: _parts((a + 1j * b) / (c + 1j * d))),
    "conjugate": (lambda a, b, sign: (a, -sign * b), lambda a, b: _parts(np.conj(a + 1j * b))),
    "angle": (lambda a, b, sign: (jnp.arctan2(sign * b, a), a), lambda a, b: (np.angle(a + 1j * b), a)),
    "transform": (_transform, lambda a, b: _parts(np.fft.fft(a + 1j * b))),
    "transform by a table": (_transform, lambda a, b: _parts((a + 1j * b) @ _turns(a))),
    "size": (lambda a, b, sign: (jnp.sqrt(a * a + sign * b * b), a), lambda a, b: (np.abs(a + 1j * b), a)),
}


def _of_parts(compute: Any, names: str) -> Any:
    def call(*arrays: jax.Array) -> Any:
        def body(*refs: Any) -> None:
            refs[-2][...], refs[-1][...] = compute(*(ref[...] for ref in refs[:-2]))

        return pl.pallas_call(body, out_shape=(jax.ShapeDtypeStruct(arrays[0].shape, jnp.float32),) * 2)(*arrays)

    return {"ab": lambda a, b: call(a, b), "abcd": lambda a, b, c, d: call(a, b, c, d)}[names]


def _of_name(name: str, compute: Any) -> kt.Pairing:
    oracle = COMPLEX[name][1]
    names = "".join(inspect.signature(oracle).parameters)
    arrays: Any = {each: kt.array("n", "float32") for each in names}
    return kt.oracle_for(_of_parts(compute, names), **arrays, dims={"n": kt.dim(values=(64,))})(oracle)


@pytest.mark.usefixtures("values_alone")
@pytest.mark.parametrize("name", COMPLEX)
def test_conventions_of_complex_numbers_accuse_no_kernel_and_excuse_no_wrong_sign(name: str) -> None:
    for sign, right in ((1.0, True), (-1.0, False)):
        found = next(findings(_of_name(name, functools.partial(COMPLEX[name][0], sign=sign)), ["interpret"]), None)
        assert (found is None) is right, found


@pytest.mark.usefixtures("values_alone")
@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", [each for each in COMPLEX if "table" not in each])  # of which NumPy makes NaN alone
def test_an_infinity_that_a_complex_oracle_has_by_any_convention_is_missed(name: str) -> None:
    def finite(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(jnp.where(jnp.isinf(part), 0.0, part) for part in COMPLEX[name][0](*arrays, sign=1.0))

    assert {"one_inf", "one_negative_inf"} <= {each.family for each in findings(_of_name(name, finite), ["interpret"])}


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (1 + 1e-6, False)])
def test_the_dust_of_a_kernels_table_is_no_other_formula(factor: float, right: bool) -> None:
    def kernel(x: jax.Array) -> Any:
        def body(x_ref: Any, c_ref: Any, s_ref: Any, re_ref: Any, im_ref: Any) -> None:
            re_ref[...] = jnp.dot(x_ref[...], c_ref[...], precision="highest")
            im_ref[...] = jnp.dot(x_ref[...], s_ref[...], precision="highest")

        out, turns = jax.ShapeDtypeStruct(x.shape, x.dtype), _turns(x)
        tables = jnp.asarray(turns.real, x.dtype), jnp.asarray(turns.imag * factor, x.dtype)
        return pl.pallas_call(body, out_shape=(out, out))(x, *tables)

    pairing = kt.oracle_for(kernel, x=kt.array("4 16", "float32"))(lambda x: _parts(np.fft.fft(x)))
    result = kt.check(pairing, backends=["interpret"], depth="quick", minimize=0)
    assert (not result.findings) is right, result.findings[:1]


@pytest.mark.usefixtures("values_alone")
def test_a_nan_that_a_complex_oracle_expects_is_missed() -> None:
    wrong = _of_name("size", lambda a, b: (jnp.where(jnp.isnan(a), jnp.abs(b), jnp.sqrt(a * a + b * b)), a))
    assert {each.family for each in findings(wrong, ["interpret"])} == {
        "nan_first",
        "nan_last",
        "nan_and_inf_in_one_tile",
    }


def _compensated(x: Any) -> Any:
    total = rest = 0 * x[:, 0]
    for i in range(8):
        term = x[:, i] - rest
        rest = (total + term - total) - term
        total = total + term
    return total[:, None] + 0 * rest[:, None]


def _recursive(x: Any) -> Any:
    columns = [x[:, 0]]
    for i in range(1, 8):
        columns.append(columns[-1] / 2 + x[:, i])
    return jnp.stack(columns, 1) if isinstance(x, jax.Array) else np.stack(columns, 1)


def _by_matrix(x: Any) -> Any:
    i = np.arange(8)
    weights = np.where(i[:, None] <= i, 0.5 ** np.maximum(i - i[:, None], 0), 0.0)
    return x @ weights


def _between(x: Any, weight: float) -> Any:
    return (1 - weight) * x[:, :-1] + weight * x[:, 1:]


# Kernels that skip a product by 0, or infinities of two signs, of which their oracles make NaN.
SELECTING: dict[str, tuple[Any, Any]] = {
    "scan": (_recursive, _by_matrix),
    "interpolation": (lambda x: x[:, :-1], lambda x: _between(x, 0.0)),
    "transform": (
        lambda x: jnp.stack([x[:, 0] + x[:, 2], x[:, 0] - x[:, 2]], 1),
        lambda x: x[:, :4] @ np.array([[1.0, 1], [0, 0], [1, -1], [0, 0]]),
    ),
    "compensated sum": (lambda x: x.sum(1, keepdims=True), _compensated),
    "polynomial": (lambda x: x * (x - 1), lambda x: x**2 - x),
    "window": (lambda x: x[:, 1:], lambda x: np.cumsum(x, 1)[:, 1:] - np.cumsum(x, 1)[:, :-1]),
}


def _selecting(name: str, change: Any) -> kt.Pairing:
    compute, oracle = SELECTING[name]

    def kernel(x: jax.Array) -> jax.Array:
        return whole(lambda ref: change(compute(ref[...])), jax.eval_shape(compute, x), x)

    return kt.oracle_for(kernel, x=kt.array("16 8", "float32"))(oracle)


@pytest.mark.usefixtures("values_alone")
@pytest.mark.parametrize("name", SELECTING)
def test_nan_that_an_oracle_makes_of_0_times_an_infinity_accuses_no_kernel(name: str) -> None:
    found = next(findings(_selecting(name, lambda y: y), ["interpret"]), None)
    assert found is None, found


@pytest.mark.usefixtures("values_alone")
@pytest.mark.parametrize(
    "change", [lambda y: jnp.where(jnp.isfinite(y), y, 0.0), lambda y: jnp.where(jnp.isinf(y), -y, y)]
)
@pytest.mark.parametrize("name", SELECTING)
def test_a_kernel_that_is_wrong_about_infinities_alone_is_found_nevertheless(name: str, change: Any) -> None:
    assert next(findings(_selecting(name, change), ["interpret"]), None)


def _weighted(x: Any) -> Any:
    weights = [[0.5 ** (i - j) if j <= i else 0.0 for j in range(8)] for i in range(8)]
    return jnp.stack([sum(x[:, j] * weight for j, weight in enumerate(row)) for row in weights], 1)


# Kernels that make NaN where their oracles do not: of numbers they compute the same, but for the last one.
MAKING_NAN: dict[str, tuple[Any, Any, bool]] = {
    "scan": (_weighted, _recursive, True),
    "compensated sum": (_compensated, lambda x: x.sum(1, keepdims=True), True),
    "replaced": (lambda x: x + 0 * x, lambda x: np.where(np.isfinite(x), x, 7.0), False),
}


@pytest.mark.usefixtures("values_alone")
@pytest.mark.parametrize("name", MAKING_NAN)
def test_nan_that_a_kernel_makes_of_infinities_is_a_finding_that_says_so(name: str) -> None:
    compute, oracle, is_special = MAKING_NAN[name]

    def kernel(x: jax.Array) -> jax.Array:
        return whole(lambda ref: compute(ref[...]), jax.eval_shape(compute, x), x)

    pairing = kt.oracle_for(kernel, x=kt.array("16 8", "float32"))(oracle)
    messages = [each.message for each in findings(pairing, ["interpret"]) if each.family == "one_inf"]
    assert messages
    assert all(("declare domain=kt.interval(finite=True)" in message) is is_special for message in messages)


def _inverse(swap: bool) -> Any:
    def kernel(x: jax.Array) -> jax.Array:
        def body(ref: Any) -> jax.Array:
            a, b, c, d = (ref[..., i, j] for i in range(2) for j in range(2))
            rows = jnp.stack([jnp.stack([d, b if swap else -b], -1), jnp.stack([-c, a], -1)], -2)
            return rows / (a * d - b * c)[..., None, None]

        return whole(body, x, x)

    return kernel


@pytest.mark.usefixtures("values_alone")
@pytest.mark.parametrize(("swap", "right"), [(False, True), (True, False)])
def test_singular_inputs_are_no_mistake_of_the_oracle(swap: bool, right: bool) -> None:
    pairing = kt.oracle_for(_inverse(swap), x=kt.array("4 2 2", "float32", domain=(-10, 10)))(
        lambda x: np.linalg.inv(x)
    )
    result = kt.check(pairing, backends=["interpret"], depth="quick", minimize=0)
    assert Verdict.ORACLE_ERROR not in {each.verdict for each in result.findings}
    assert (not result.findings) is right, result.findings[:1]
    assert sum(each.compared for each in result.records) > 100


def test_a_mistake_of_the_oracle_is_still_one() -> None:
    pairing = kt.oracle_for(_inverse(False), x=kt.array("4 2 2", "float32"))(lambda x: np.linalg.inv(x[0, 0]))
    result = kt.check(pairing, backends=["interpret"], depth="quick", minimize=0)
    assert {each.verdict for each in result.findings} == {Verdict.ORACLE_ERROR}


def _variance(x: Any) -> Any:
    return (x * x).mean(axis=-1) - x.mean(axis=-1) ** 2


def _untracked(x: Any) -> Any:
    return np.apply_along_axis(np.var, -1, x)


def test_no_formula_is_unstable_beside_an_oracle_whose_rounding_is_unknown() -> None:
    def kernel(x: jax.Array) -> jax.Array:
        return whole(lambda ref: _variance(ref[...]), jax.ShapeDtypeStruct((4,), x.dtype), x)

    pairing = kt.oracle_for(kernel, x=kt.array("4 32", "float32", domain=(-10, 10)))(_untracked)
    result = kt.check(pairing, backends=["interpret"], depth="quick", minimize=0)
    causes = {getattr(getattr(each.record.detail, "cause", None), "what", None) for each in result.findings}
    assert ErrorCause.UNSTABLE not in causes
