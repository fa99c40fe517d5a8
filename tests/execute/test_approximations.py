"""Approximations are right if float32 admits them or they are declared; with a wrong constant they are not."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import kerneltest as kt
from kerneltest.api import Result
from kerneltest.core.details import ErrorCause, Mismatch
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.oracle.evaluation import expect
from kerneltest.plan.signatures import signatures
from kerneltest.records.sharpness import Informativeness
from tests.found import records
from tests.sample import elementwise, whole

pytestmark = pytest.mark.usefixtures("values_alone")

ROOT = math.sqrt(0.5)
VECTORIZED_ERF = np.vectorize(math.erf, otypes=[float])


def horner(x: Any, *coefficients: float) -> Any:
    return functools.reduce(lambda total, each: total * x + each, coefficients, jnp.zeros_like(x))


def to_float(bits: Any) -> Any:
    return jax.lax.bitcast_convert_type(bits, jnp.float32)


def rational_erf(x: Any, last: float = 0.254829592) -> Any:
    """Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26."""
    t = 1 / (1 + 0.3275911 * jnp.abs(x))
    series = horner(t, 1.061405429, -1.453152027, 1.421413741, -0.284496736, last) * t
    return jnp.sign(x) * (1 - series * jnp.exp(-x * x))


def gelu(x: Any, last: float = 0.254829592) -> Any:
    return 0.5 * x * (1 + rational_erf(x * ROOT, last))


def gelu_oracle(x: Any) -> Any:
    return 0.5 * x * (1 + special.erf(x * ROOT))


def gelu_by_elements(x: Any) -> Any:
    return 0.5 * x * (1 + np.array([math.erf(each * ROOT) for each in x.ravel()]).reshape(x.shape))


def gelu_by_vectorized(x: Any) -> Any:
    return 0.5 * x * (1 + VECTORIZED_ERF(x * ROOT))


def rational_tanh(x: Any, scale: float = 4.89352518554385e-03) -> Any:
    """Eigen's, and XLA's."""
    x = jnp.clip(x, -7.90531110763549805, 7.90531110763549805)
    s = x * x
    over = horner(
        s,
        -2.76076847742355e-16,
        2.00018790482477e-13,
        -8.60467152213735e-11,
        5.12229709037114e-08,
        1.48572235717979e-05,
        6.37261928875436e-04,
        4.89352455891786e-03,
    )
    return x * over / horner(s, 1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, scale)


def gelu_by_tanh(x: Any, xp: Any = jnp, cubic: float = 0.044715) -> Any:
    return 0.5 * x * (1 + xp.tanh(math.sqrt(2 / math.pi) * (x + cubic * x * x * x)))


def fast_rsqrt(x: Any, half: float = 0.5) -> Any:
    y = to_float(0x5F3759DF - (jax.lax.bitcast_convert_type(x, jnp.int32) >> 1))
    for _ in range(2):
        y = y * (1.5 - half * x * y * y)
    return y


def rsqrt_of_estimate(x: Any, half: float = 0.5) -> Any:
    """From the estimate of a device, which has 8 bits."""
    y = jax.lax.reduce_precision(jax.lax.rsqrt(x), 8, 7)
    for _ in range(2):
        y = y * (1.5 - half * x * y * y)
    return y


def exp2_by_reduction(x: Any, first: float = 6.931472028550421e-1) -> Any:
    """Cephes' exp2f."""
    whole = jnp.floor(x + 0.5)
    terms = 1.535336188319500e-4, 1.339887440266574e-3, 9.618437357674640e-3, 5.550332471162809e-2, 2.402264791363012e-1
    f = x - whole
    return (horner(f, *terms, first) * f + 1) * to_float((whole.astype(jnp.int32) + 127) << 23)


def atan2_by_polynomial(y: Any, x: Any, third: float = -3.33329491539e-1) -> Any:
    """Cephes' atanf."""
    a, b = jnp.abs(y), jnp.abs(x)
    ratio = jnp.minimum(a, b) / jnp.maximum(jnp.maximum(a, b), 1e-30)
    high = ratio > 0.4142135623730950
    z = jnp.where(high, (ratio - 1) / (ratio + 1), ratio)
    s = z * z
    angle = horner(s, 8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, third) * s * z + z
    angle = jnp.where(high, angle + math.pi / 4, angle)
    angle = jnp.where(a > b, math.pi / 2 - angle, angle)
    angle = jnp.where(x < 0, math.pi - angle, angle)
    return jnp.where(y < 0, -angle, angle)


def log1p_by_polynomial(x: Any, third: float = 3.3333331174e-1) -> Any:
    """Cephes' logf, near 1."""
    terms = 7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1
    return horner(x, *terms, 2.0000714765e-1, -2.4999993993e-1, third) * x * x * x - 0.5 * x * x + x


def sigmoid(x: Any, half: float = 0.5) -> Any:
    return 0.5 + 0.5 * jnp.tanh(half * x)


def softplus(x: Any, one: float = 1.0) -> Any:
    return jnp.where(x > 20, x, jnp.log(one + jnp.exp(jnp.minimum(x, 20))))


def sine_by_polynomial(x: Any, third: float = -1.6666654611e-1) -> Any:
    """Cephes' sinf, near 0."""
    s = x * x
    return horner(s, -1.9515295891e-4, 8.3321608736e-3, third) * s * x + x


def exp_by_exp2(x: Any, log2_e: float = 1.442695) -> Any:
    return jnp.exp2(log2_e * x)


def softmax_by_cubic(x: Any, first: float = 0.69512289) -> Any:
    """The exponential of an attention kernel that spares the function unit: 8.7e-5 off."""
    x = jnp.maximum((x - x.max(axis=-1, keepdims=True)) * 1.4426950408889634, -126.0)
    whole = jnp.floor(x)
    e = horner(x - whole, 0.07705805, 0.22764558, first, 1.0) * to_float((whole.astype(jnp.int32) + 127) << 23)
    return e / e.sum(axis=-1, keepdims=True)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@dataclass(frozen=True)
class Approximation:
    """A kernel that approximates its oracle, with a wrong constant for the keyword that its twin gets."""

    name: str
    kernel: Callable[..., Any]
    wrong: dict[str, float]
    oracle: Callable[..., Any]
    domain: tuple[float, float] = (-8, 8)
    dtype: str = "float32"
    functions: tuple[tuple[str, float], ...] = ()
    arguments: str = "x"


TABLE = (
    Approximation("rational erf", gelu, {"last": 0.254929592}, gelu_oracle),
    Approximation("rational erf, of one by one", gelu, {}, gelu_by_elements),
    Approximation("rational erf, of a vectorized one", gelu, {"last": 0.254929592}, gelu_by_vectorized,
                  dtype="bfloat16"),
    Approximation("rational tanh", rational_tanh, {"scale": 4.893e-03}, np.tanh),
    Approximation("GELU by tanh", gelu_by_tanh, {"cubic": 0.04471}, lambda x: gelu_by_tanh(x, np)),
    Approximation("fast rsqrt, two Newton steps", fast_rsqrt, {"half": 0.5001}, lambda x: 1 / np.sqrt(x), (1, 8),
                  functions=(("sqrt", 5e-6),)),
    Approximation("rsqrt of an estimate, two Newton steps", rsqrt_of_estimate, {"half": 0.5001},
                  lambda x: 1 / np.sqrt(x), (1, 8)),
    Approximation("exp2 by range reduction", exp2_by_reduction, {"first": 0.69315}, np.exp2, dtype="bfloat16"),
    Approximation("atan2 by a polynomial", atan2_by_polynomial, {"third": -0.33336},
                  lambda y, x: np.arctan2(y, x), arguments="yx"),
    Approximation("log1p by a polynomial", log1p_by_polynomial, {"third": 0.3334}, np.log1p, (-0.25, 0.4)),
    Approximation("sigmoid by tanh", sigmoid, {"half": 0.50001}, lambda x: 1 / (1 + np.exp(-x)), (-4, 4)),
    Approximation("softplus in two branches", softplus, {"one": 1.0001}, lambda x: np.logaddexp(0, x), (-30, 30)),
    Approximation("sine by a polynomial", sine_by_polynomial, {"third": -0.16667}, np.sin, (-0.7, 0.7)),
    Approximation("log2(e) to seven digits", exp_by_exp2, {"log2_e": 1.4427}, np.exp, dtype="bfloat16"),
    Approximation("exp by a cubic", softmax_by_cubic, {"first": 0.7}, softmax, dtype="bfloat16",
                  functions=(("exp", 1e-4),)),
)  # fmt: skip


def check(case: Approximation, functions: tuple[tuple[str, float], ...], **constants: float) -> Result:
    def compute(*values: jax.Array) -> jax.Array:
        result: jax.Array = case.kernel(*(each.astype(jnp.float32) for each in values), **constants)
        return result

    kernels = {"x": lambda x: elementwise(compute, x), "yx": lambda y, x: elementwise(compute, y, x)}
    arrays = {name: kt.array("n", case.dtype, domain=case.domain) for name in case.arguments}
    tolerance = kt.tolerance.rounding(functions=dict(functions))
    dims = {"n": kt.dim(values=(17,))}
    pairing = kt.oracle_for(kernels[case.arguments], dims=dims, tolerance=tolerance, **arrays)(case.oracle)
    return kt.check(pairing, backends=["interpret"], depth="quick", minimize=0)


def causes(result: Result) -> set[Any]:
    details = [each.record.detail for each in result.findings]
    return {each.cause and each.cause.what for each in details if isinstance(each, Mismatch)}


def remarks(result: Result) -> list[str]:
    return [each for each in Informativeness(result.records).remarks() if "ulps of float32" in each]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_an_approximation_is_right_and_its_twin_with_a_wrong_constant_is_not(case: Approximation) -> None:
    right = check(case, case.functions)
    assert right.ok, [each.message for each in right.findings[:2]]
    assert not case.wrong or ErrorCause.FORMULA in causes(check(case, case.functions, **case.wrong))


@pytest.mark.parametrize(("ulps", "right"), [(1.9, True), (4.1, False)])
def test_a_formula_is_wrong_from_four_ulps_of_float32_whatever_the_dtype(ulps: float, right: bool) -> None:
    factor = 1 + ulps * 2.0**-23  # up to twice as many ulps of a product
    result = check(Approximation("", lambda x: factor * x, {}, lambda x: 1.0 * x, dtype="bfloat16"), ())
    assert causes(result) == (set() if right else {ErrorCause.FORMULA})
    assert len(remarks(result)) == right
    assert all("by up to 4 ulps of float32 in " in each for each in remarks(result))


def test_a_kernel_of_float64_has_no_such_floor() -> None:
    for dtype, floored in (("float32", True), ("float64", False)):
        with jax.enable_x64(dtype == "float64"):
            pairing = kt.oracle_for(lambda x: x, x=kt.array("n", dtype))(lambda x: 3 * x)
            signature = next(iter(signatures(pairing, "quick")))
            x = np.ones(dict(signature.dims)["n"], dtype)
            found = expect(pairing, signature, {"x": x}, (ShapeDtype(x.shape, x.dtype),), bitwise=False)
        assert (found.floor is not None) is floored


def test_an_approximation_that_is_not_declared_is_a_finding_that_says_how_to_declare_it() -> None:
    cubic = next(case for case in TABLE if case.name == "exp by a cubic")
    result = check(cubic, ())
    words = "times the largest value even without rounding", 'kt.tolerance.rounding(functions={"exp": 1e-4})'
    assert all(each in result.findings[0].message for each in words), result.findings[0].message
    assert words[1] in str(result)


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        ({"gelu": 1e-4}, r"names 'gelu'; use one of arccos, .*, erf, .*, tanh$"),
        ({"exp": 0.0}, "0.0 for exp; give a relative error between 0 and 1"),
    ],
)
def test_a_declaration_of_an_approximation_is_checked(functions: dict[str, float], words: str) -> None:
    tolerance = kt.tolerance.rounding(functions=functions)
    with pytest.raises(kt.DeclarationError, match=words):
        kt.oracle_for(lambda x: x, x=kt.array("n"), tolerance=tolerance)(lambda x: x)


def test_errors_of_one_sign_add_up_in_a_sum_of_approximations() -> None:
    def too_small(x: Any) -> Any:
        return jnp.zeros_like(x) + (jnp.exp(x) * (1 - 0.9e-3)).sum()

    case = Approximation("", too_small, {}, lambda x: 0 * x + np.exp(x).sum())
    assert check(case, (("exp", 1e-3),)).ok
    assert not check(case, (("exp", 1e-4),)).ok


def test_the_figures_of_a_declaration_are_in_its_name() -> None:
    assert str(kt.tolerance.rounding(functions={"exp": 1e-4, "erf": 1e-6})) == "rounding(exp to 0.0001, erf to 1e-06)"


def summed_by_bin(x: jax.Array, at: jax.Array, wrong: bool) -> jax.Array:
    live = jnp.arange(len(x)) < len(x) - wrong  # the wrong kernel leaves out the last number

    def sums(x: Any, at: Any, live: Any) -> Any:
        terms = jnp.where(live[...], jnp.exp(60 * (x[...] + 1) - 60), 0)
        return jnp.where(at[...] == jnp.arange(4)[:, None], terms, 0).sum(axis=1)

    return whole(sums, jax.ShapeDtypeStruct((4,), x.dtype), x, at, live)


def summed_by_bin_oracle(x: Any, at: Any) -> Any:
    total = np.zeros(4)
    np.add.at(total, at, np.exp(60 * (x + 1) - 60))
    return total


@pytest.mark.parametrize("wrong", [False, True])
def test_equal_terms_that_an_oracle_adds_at_indices_may_all_be_rounded_alike(wrong: bool) -> None:
    pairing = kt.oracle_for(
        functools.partial(summed_by_bin, wrong=wrong),
        x=kt.array("n", "float32", domain=(-0.5, 0.5)),
        at=kt.indices("n", into=4),
        dims={"n": kt.dim(values=(257, 640))},
    )(summed_by_bin_oracle)
    judged = list(records(pairing, ["interpret"], group="numeric"))
    assert any(record.verdict.is_finding for record in judged) is wrong
    assert {record.tolerance for record in judged} == {"rounding()"}
