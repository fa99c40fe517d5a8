"""What a finding says of wrong values: another formula, too much rounding, or an unstable formula; and what passes."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.api import Result
from kerneltest.backends import registry
from kerneltest.backends.interpret import Interpret
from kerneltest.core.details import ErrorCause, Mismatch, MismatchCause
from kerneltest.core.failures import RecoveryWarning
from kerneltest.execute import formula
from kerneltest.judge.compare import compare
from kerneltest.judge.formula import fit_parameters, formula_cause, rounding_cause
from kerneltest.records.sharpness import Informativeness
from kerneltest.report.text.suspect_text import describe_suspect
from kerneltest.triage.symptoms import cause_of
from tests.found import findings
from tests.sample import elementwise

COLUMNS = 32
_erf = np.vectorize(math.erf, otypes=[float])


def _rows(function: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    return lambda x: elementwise(function, x)


def _check(
    kernel: Callable[..., Any], oracle: Callable[..., Any], dtype: str, limit: float = 10, **more: Any
) -> Result:
    x = kt.array(f"m {COLUMNS}", dtype, domain=(-limit, limit))
    pairing = kt.oracle_for(kernel, x=x, dims={"m": kt.dim(values=(3,))}, **more)(oracle)
    return kt.check(pairing, depth="quick")


def _causes(result: Result) -> set[ErrorCause | None]:
    details = (each.record.detail for each in result.findings)
    plain = [d for d in details if isinstance(d, Mismatch) and d.call in ("", "without rounding")]
    return {d.cause.what if d.cause is not None else None for d in plain}


def _softmax(x: Any, xp: Any = np, less: float = 0.0) -> Any:
    e = xp.exp(x - x.max(axis=1, keepdims=True))
    return e / (e.sum(axis=1, keepdims=True) + less)


def _in_float32(function: Callable[..., Any], **more: Any) -> Callable[[jax.Array], jax.Array]:
    return lambda x: function(x.astype(jnp.float32), jnp, **more)


def _centred(x: Any, xp: Any = np) -> Any:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / xp.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)


def _by_moments(x: Any, xp: Any = np) -> Any:
    mean = x.mean(axis=1, keepdims=True)
    variance = xp.maximum((x * x).mean(axis=1, keepdims=True) - mean * mean, 0)
    return (x - mean) / xp.sqrt(variance + 1e-5)


def _variance(x: Any) -> Any:
    return np.broadcast_to(x.var(axis=1, keepdims=True), x.shape)


def _by_welford(x: Any) -> Any:
    """Loses as much as rounding the inputs would, which two passes do not."""
    mean = squares = jnp.zeros_like(x[:, :1])
    for seen in range(COLUMNS):
        value = x[:, seen : seen + 1]
        shift = value - mean
        mean = mean + shift / (seen + 1)
        squares = squares + shift * (value - mean)
    return jnp.broadcast_to(squares / COLUMNS, x.shape)


def _by_squares(x: Any) -> Any:
    mean = x.mean(axis=1, keepdims=True)
    return jnp.broadcast_to((x * x).mean(axis=1, keepdims=True) - mean * mean, x.shape)


def _by_lerp(x: Any) -> Any:
    """The oracle below in another form: the difference is formed first, and both terms round elsewhere."""
    return x[:, ::-1] + jnp.float32(0.25) * (x - x[:, ::-1])


def _mean_of_first(x: Any, xp: Any = np, sign: float = 1.0) -> Any:
    """The softmax mean of the first eight columns; the others get a large negative bias."""
    logits = x + sign * xp.where(xp.arange(COLUMNS) < 8, 0.0, -0.7 * np.finfo(np.float32).max)
    weights = xp.exp(logits - logits.max(axis=1, keepdims=True))
    return (weights * x).sum(axis=1, keepdims=True) / weights.sum(axis=1, keepdims=True) + 0 * x


def _doubled_exp(x: Any) -> Any:
    return 2 * np.exp(x)


def _total(x: jax.Array) -> jax.Array:
    total = jax.lax.fori_loop(0, COLUMNS, lambda i, s: s + jax.lax.dynamic_slice_in_dim(x, i, 1, 1), x[:, :1] * 0)
    return jnp.broadcast_to(total, x.shape)


def _total_of_products(x: jax.Array) -> jax.Array:
    """Sums of a float32 input, by a product whose operands the kernel rounds to bfloat16."""
    ones = jnp.ones((COLUMNS, COLUMNS), jnp.bfloat16)
    return jnp.dot(x.astype(jnp.bfloat16), ones, preferred_element_type=jnp.float32)


def _totals(x: Any) -> Any:
    return np.broadcast_to(x.sum(axis=1, keepdims=True), x.shape)


def _by_halves(x: Any) -> Any:
    half = x.shape[1] // 2
    return jnp.broadcast_to(x, (x.shape[0], COLUMNS)) if not half else _by_halves(x[:, :half] + x[:, half:])


def _total_of_integers(x: jax.Array, first: int = 0) -> jax.Array:
    return jnp.broadcast_to(jnp.sum(x[:, first:], axis=1, keepdims=True), x.shape)


def _complement(x: jax.Array, factor: float) -> jax.Array:
    """A sigmoid, as a stable one is 0 though no float64 is: of large negative numbers."""
    return 1 - 1 / (1 + factor * jnp.exp(x))


def _fraction(x: Any) -> Any:
    return x * (120 / 127)


def _shortened(x: Any) -> Any:
    return x * (x / (np.abs(x) + 1))


def _butterflies(x: Any, xp: Any, sign: int = 1) -> Any:
    """A Walsh-Hadamard transform, scaled at the end."""
    parts = x[:, :, None]
    while (half := parts.shape[1] // 2) > 0:
        first, second = parts[:, :half], parts[:, half:]
        parts = xp.concatenate([first + second, sign * (first - second)], axis=2)
    return parts[:, 0] / x.shape[1]


def _transform(x: Any) -> Any:
    return x @ _butterflies(np.eye(COLUMNS), np)


def _mean_of_integers(x: Any) -> Any:
    total = x.astype("int32" if isinstance(x, jax.Array) else "int64").sum(axis=1, keepdims=True)
    return 0.1 * total + 0 * x


def _swish(x: Any, xp: Any = jnp, factor: float = float(jnp.bfloat16(1.702))) -> Any:
    return x / (1 + xp.exp(-factor * x))


def _leaky(x: Any) -> Any:
    return np.where(x > 0, x, x * 0.1)


def _tenth(x: Any) -> Any:
    return 0.1 * x


_COARSE_TENTH = np.float32(jnp.bfloat16(0.1))


def _wide(factor: Callable[[jax.Array], Any]) -> Callable[[jax.Array], jax.Array]:
    return lambda x: x.astype(jnp.float32) * factor(x)


def _shrunk(x: Any) -> Any:
    return np.sign(x) * np.maximum(np.abs(x) - 0.1, 0)


def _shrunk_by(threshold: Callable[[], Any], dtype: Any = None) -> Callable[[jax.Array], jax.Array]:
    return lambda x: jnp.sign(x) * jnp.maximum(jnp.abs(x.astype(dtype or x.dtype)) - threshold(), 0)


def _shrunk_by_16_bits(x: jax.Array) -> jax.Array:
    return (jnp.sign(x) * jnp.maximum(jnp.abs(x) - jnp.full(x.shape, 0.1, jnp.bfloat16), 0)).astype(x.dtype)


def _clipped(x: np.ndarray) -> np.ndarray:
    return np.clip(x, 0.1, 0.7) - 0.1


def _clipped_coarsely(x: jax.Array) -> jax.Array:
    return jnp.clip(x, 0.1, 0.7) - jnp.asarray(0.1, jnp.bfloat16).astype(x.dtype)


def _signs(x: Any) -> Any:
    return x / (np.abs(x) + 4e-8)


def _quantised(x: Any) -> Any:
    largest = np.abs(x).max(axis=1, keepdims=True)
    return np.rint(x / np.where(largest == 0, 1, largest / 127))


def _quantised_away(x: jax.Array) -> jax.Array:
    """The same, but halves are rounded away from zero."""
    largest = jnp.max(jnp.abs(x), axis=1, keepdims=True)
    y = x * (127 / jnp.where(largest == 0, 127.0, largest))
    return jnp.sign(y) * jnp.floor(jnp.abs(y) + 0.5)


def _inverse(x: Any) -> Any:
    return 1 / np.maximum(np.abs(x), 1e-3)


def _inverse_of_root(x: jax.Array) -> jax.Array:
    return jax.lax.rsqrt(jnp.maximum(x * x, 1e-6))


def _sigmoid(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1.0) / (1 + small)


_TURNS = np.cos(0.7 * 250 * np.arange(COLUMNS))


def _turned(x: Any) -> Any:
    return x * _TURNS


def _turned_by_position(dtype: Any) -> Callable[[jax.Array], jax.Array]:
    """Positions are counted, and kept in a dtype, as of rotary embeddings."""

    def turn(x: jax.Array) -> jax.Array:
        position = (250 * jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)).astype(dtype)
        return x * jnp.cos(position.astype(x.dtype) * 0.7)

    return turn


@dataclass(frozen=True)
class Case:
    """A kernel with its oracle, and the causes that its findings state: none for a right one."""

    name: str
    kernel: Callable[[jax.Array], jax.Array]
    oracle: Callable[..., Any]
    causes: frozenset[ErrorCause]
    dtype: str = "bfloat16"
    limit: float = 10
    output: str | None = None


FORMULA, ROUNDING, UNSTABLE, OVERFLOW, CONSTANT = (
    frozenset([ErrorCause(each)]) for each in ("formula", "rounding", "unstable", "overflow", "constant")
)
RIGHT: frozenset[ErrorCause] = frozenset()

CASES = (
    Case("softmax", _in_float32(_softmax), _softmax, RIGHT),
    Case("softmax with 1e-5 in its total", _in_float32(_softmax, less=1e-5), _softmax, FORMULA),
    Case("softmax with 1e-7 in its total", _in_float32(_softmax, less=1e-7), _softmax, RIGHT),
    Case("log2(e) to five digits", lambda x: jnp.exp2(x.astype(jnp.float32) * 1.4427), np.exp, FORMULA),
    Case("log2(e) in float32", lambda x: jnp.exp2(x.astype(jnp.float32) * np.float32(np.log2(np.e))), np.exp, RIGHT),
    Case("half away from zero", lambda x: jnp.sign(x) * jnp.floor(jnp.abs(x) + 0.5), np.rint, FORMULA),
    Case("a slope in float32", lambda x: jax.nn.leaky_relu(x, 0.1), _leaky, RIGHT, "float32"),
    Case("a slope in the input's 16 bits", lambda x: jax.nn.leaky_relu(x, 0.1), _leaky, RIGHT),
    Case("a slope that is chosen", lambda x: x * jnp.where(x > 0, 1.0, 0.1), _leaky, RIGHT, "float32"),
    Case("one in 16 bits", lambda x: x * jnp.where(x > 0, 1.0, 0.1).astype("float16"), _leaky, ROUNDING, "float32"),
    Case(
        "one in the input's", _wide(lambda x: jnp.where(x > 0, 1, 0.1).astype(x.dtype)), _leaky, RIGHT, output="float32"
    ),
    Case("a threshold in the input's 16 bits", _shrunk_by(lambda: 0.1), _shrunk, RIGHT, "float16"),
    Case("a threshold of four digits", _shrunk_by(lambda: 0.1001), _shrunk, FORMULA, "float16"),
    Case("a threshold of its author's 16 bits", _shrunk_by(lambda: np.float16(0.1)), _shrunk, RIGHT, "float16"),
    Case("one of four digits", _shrunk_by(lambda: np.float16(0.1001)), _shrunk, FORMULA | UNSTABLE, "float16"),
    Case("a slope of its author's 16 bits", lambda x: x * jnp.asarray(0.01, "bfloat16"), lambda x: 0.01 * x, RIGHT),
    Case("a slope of no decimal", lambda x: x * jnp.full(x.shape, 1 / 3, "bfloat16"), lambda x: x / 3, RIGHT),
    Case("a slope of two digits", lambda x: x * jnp.asarray(0.011, "bfloat16"), lambda x: 0.01 * x, FORMULA),
    Case("float32's slope of 16 bits", lambda x: x * np.float16(0.1), _tenth, CONSTANT, "float32"),
    Case("JAX's slope of 16 bits", lambda x: x * jnp.float16(0.1).astype("float32"), _tenth, CONSTANT, "float32"),
    *(
        Case(f"{name}, of {dtype} in float32, returned in {out or dtype}", _wide(made), _tenth, causes, dtype, 10, out)
        for name, made, dtype, causes in (
            ("NumPy's", lambda x: np.float16(0.1), "float16", RIGHT),
            ("NumPy's", lambda x: np.float16(0.1), "bfloat16", RIGHT),
            ("NumPy's of four digits", lambda x: np.float16(0.1002), "float16", FORMULA),
            ("JAX's", lambda x: jnp.float16(0.1), "float16", RIGHT),
            ("one of the input's dtype", lambda x: jnp.asarray(0.1, x.dtype), "float16", RIGHT),
            ("one of the input's dtype", lambda x: jnp.asarray(0.1, x.dtype), "bfloat16", RIGHT),
            ("one of the input's dtype and four digits", lambda x: jnp.asarray(0.1002, x.dtype), "float16", FORMULA),
        )
        for out in (None, "float32")
    ),
    Case("a factor of four digits in 16 bits", _swish, lambda x: _swish(x, np, 1.702), CONSTANT, "float32"),
    Case("one beside it", _swish, lambda x: _swish(x, np, 1.71), FORMULA, "float32"),
    Case("a coarser one", _wide(lambda x: _COARSE_TENTH), _tenth, CONSTANT, "float16", output="float32"),
    Case("a slope of three bits", lambda x: x * np.float32(0.3125), lambda x: 0.312 * x, FORMULA),
    Case(
        "a threshold rounded to 16 bits",
        _shrunk_by(lambda: jnp.float16(0.1), jnp.float32),
        _shrunk,
        RIGHT,
        "float16",
    ),
    Case("a threshold in 16 bits", _shrunk_by_16_bits, _shrunk, CONSTANT, "float32"),
    Case("decisions by one", lambda x: x > jnp.full(x.shape, 0.1, "bfloat16"), lambda x: x > 3, FORMULA, output="bool"),
    Case("limits in the input's 16 bits", lambda x: jnp.clip(x, 0.1, 0.7) - 0.1, _clipped, RIGHT, "float16"),
    Case("limits of four digits", lambda x: jnp.clip(x, 0.1, 0.7003) - 0.1, _clipped, FORMULA, "float16"),
    Case("limits in coarser 16 bits", _clipped_coarsely, _clipped, UNSTABLE, "float16"),
    Case("a threshold in coarser 16 bits", _shrunk_by_16_bits, _shrunk, CONSTANT, "float16"),
    Case("an epsilon in float16's subnormals", lambda x: x / (jnp.abs(x) + 4e-8), _signs, UNSTABLE, "float16"),
    Case("a slope of five digits", lambda x: jax.nn.leaky_relu(x, 0.10001), _leaky, FORMULA, "float32"),
    Case("halves of a scale away from zero", _quantised_away, _quantised, FORMULA, "float32", 1e6),
    Case("half to even", jnp.round, np.rint, RIGHT),
    Case("a lerp", _by_lerp, lambda x: 0.25 * x + 0.75 * x[:, ::-1], RIGHT, "float32"),
    Case(
        "an explicit rounding",
        lambda x: 2 * jax.lax.reduce_precision(jnp.exp(x), 8, 7),
        _doubled_exp,
        ROUNDING,
        "float32",
    ),
    Case(
        "a wrong factor beside one",
        lambda x: 2.1 * jax.lax.reduce_precision(jnp.exp(x), 8, 7),
        _doubled_exp,
        FORMULA,
        "float32",
    ),
    Case("a sum in 16 bits", _total, _totals, ROUNDING),
    Case("operands of a product in 16 bits", _total_of_products, _totals, ROUNDING, "float32"),
    Case("a sigmoid that overflows", lambda x: jnp.exp(x) / (1 + jnp.exp(x)), _sigmoid, OVERFLOW, "float32", 1e4),
    Case("a root of a square that overflows", _inverse_of_root, _inverse, OVERFLOW, "float32", 1e30),
    Case("a complement that cancels in float64", lambda x: _complement(x, 1), _sigmoid, UNSTABLE, "float32", 80),
    Case("a wrong one", lambda x: _complement(x, 1.001), _sigmoid, FORMULA | UNSTABLE, "float32", 80),
    Case("a sigmoid that cancels", lambda x: 0.5 + 0.5 * jnp.tanh(x / 2), _sigmoid, UNSTABLE, "float32", 80),
    Case("1 - tanh, 0 in float64", lambda x: 2 / (1 + jnp.exp(2 * x)), lambda x: 1 - np.tanh(x), RIGHT, "float32", 40),
    Case("a wrong one", lambda x: 2.1 / (1 + jnp.exp(2 * x)), lambda x: 1 - np.tanh(x), FORMULA, "float32", 40),
    Case("1 - erf, 0 in float64", lambda x: jax.scipy.special.erfc(x), lambda x: 1 - _erf(x), RIGHT, "float32", 8),
    Case("a mean of integers that overflow", _mean_of_integers, _mean_of_integers, OVERFLOW, "float32", 1e9),
    Case("a sum of integers that overflow", _total_of_integers, _totals, OVERFLOW, "int32", 2**31 - 1, "float32"),
    Case("one that lacks a term", lambda x: _total_of_integers(x, 1), _totals, FORMULA, "int32", 2**31 - 1, "float32"),
    Case("a sum by halves that overflows", _by_halves, _totals, RIGHT, "float32", 3e38),
    Case("a numerator that overflows near the end", lambda x: x * 120 / 127, _fraction, RIGHT, "float32", 3e38),
    Case("a square that overflows by far", lambda x: x * x / (jnp.abs(x) + 1), _shortened, OVERFLOW, "float32", 3e37),
    Case("a square that overflows", lambda x: x * x / (jnp.abs(x) + 1), _shortened, OVERFLOW, "float32", 1e30),
    Case("a transform that overflows near the end", lambda x: _butterflies(x, jnp), _transform, RIGHT, "float32", 3e38),
    Case("one of another sign", lambda x: _butterflies(x, jnp, -1), _transform, FORMULA, "float32", 1e30),
    Case("a variance by Welford", _by_welford, _variance, RIGHT, "float32", 1000),
    Case("a variance by squares", _by_squares, _variance, UNSTABLE, "float32", 1000),
    Case("layer norm", _in_float32(_centred), _centred, RIGHT, "float32", 1000),
    Case("angles of counted positions", _turned_by_position(jnp.float32), _turned, RIGHT, "float32"),
    Case("positions in 16 bits", _turned_by_position(jnp.bfloat16), _turned, ROUNDING, "float32"),
    Case("layer norm by moments", _in_float32(_by_moments), _centred, UNSTABLE, "float32", 1000),
)


@pytest.mark.usefixtures("values_alone")
@pytest.mark.sweep(8)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_finding_states_its_cause_and_a_right_kernel_has_none(case: Case, recwarn: Any) -> None:
    kernel = lambda x: elementwise(case.kernel, x, dtype=case.output)  # noqa: E731
    result = _check(kernel, case.oracle, case.dtype, case.limit)
    assert _causes(result) == case.causes, [each.message for each in result.findings[:2]]
    assert RecoveryWarning not in {each.category for each in recwarn}


def _distance(x: Any) -> Any:
    return abs(x) - 0.7


def _distance_beside_old_values(x: jax.Array) -> jax.Array:
    """The same, but for an output whose memory held numbers before."""

    def body(x_ref: Any, o_ref: Any) -> None:
        distance = _distance(x_ref[...])
        o_ref[...] = jnp.where(jnp.isnan(o_ref[...]), distance, distance * 1.0625)

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("kernel", "wrong"), [(_rows(_distance), set[str]()), (_distance_beside_old_values, {"old_output"})]
)
def test_a_literal_in_the_inputs_16_bits_is_right_in_every_call_and_excuses_nothing_else(
    kernel: Callable[[jax.Array], jax.Array], wrong: set[str], dtype: str
) -> None:
    pairing = kt.oracle_for(kernel, x=kt.array("n", dtype), dims={"n": kt.dim(values=(64,))})(_distance)
    assert {found.family for found in findings(pairing, ["interpret"])} == wrong


def _scaled_blocks(dtype: Any) -> Callable[..., jax.Array]:
    """Products of blocks, each of which has scales that are kept in a dtype."""

    def kernel(x: jax.Array, y: jax.Array, scales: jax.Array) -> jax.Array:
        def body(x_ref: Any, y_ref: Any, s_ref: Any, o_ref: Any) -> None:
            def step(i: Any, total: jax.Array) -> jax.Array:
                at = pl.ds(8 * i, 8)
                product = jnp.dot(x_ref[:, at], y_ref[at], preferred_element_type=jnp.float32)
                return total + product * s_ref[:, pl.ds(i, 1)].astype(dtype).astype(jnp.float32)

            o_ref[...] = jax.lax.fori_loop(0, 4, step, jnp.zeros((8, 8)))

        return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((8, 8), jnp.float32))(x, y, scales)

    return kernel


def _scaled_first(x: Any, y: Any, scales: Any) -> Any:
    return (x.reshape(8, 4, 8) * scales[:, :, None]).reshape(8, 32) @ y


@pytest.mark.usefixtures("values_alone")
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize(("kept", "causes"), [(jnp.float32, RIGHT), (jnp.bfloat16, ROUNDING)])
def test_a_scale_in_16_bits_is_too_much_rounding_beside_narrow_operands_that_are_exact(
    dtype: str, kept: Any, causes: frozenset[ErrorCause]
) -> None:
    declared = {"x": kt.array("8 32", dtype, domain=(-4, 4)), "y": kt.array("32 8", dtype, domain=(-4, 4))}
    scales = kt.array("8 4", "float32", domain=(0.01, 4))
    pairing = kt.oracle_for(_scaled_blocks(kept), **declared, scales=scales)(_scaled_first)
    result = kt.check(pairing, backends=["interpret"], depth="quick", minimize=0)
    assert _causes(result) == causes, [each.message for each in result.findings[:2]]


def test_the_element_that_a_finding_shows_is_the_one_whose_rounding_it_tells() -> None:
    result = _check(_rows(lambda x: jnp.exp(x.astype(jnp.bfloat16)).astype(x.dtype)), np.exp, "float32")
    shown = [(each.record.shown, cause.size) for each in result.findings if (cause := cause_of(each.record.detail))]
    assert len(shown) > 10
    for evidence, size in shown:
        assert abs(float(evidence.actual or 0) - float(evidence.expected or 0)) / evidence.bound == pytest.approx(size)


@pytest.mark.usefixtures("values_alone")
def test_a_bug_below_rounding_is_told_with_its_size() -> None:
    result = _check(_rows(_in_float32(_softmax, less=1e-5)), _softmax, "bfloat16")
    detail = result.findings[0].record.detail
    assert isinstance(detail, Mismatch)
    assert detail.cause is not None
    assert 1e-6 < detail.cause.size < 1.01e-5
    assert detail.text().startswith("without rounding: ")
    assert "it computes something else: off by " in detail.text()


@pytest.mark.usefixtures("values_alone")
def test_a_formula_that_40_bits_do_not_decide_admits_no_wrong_values() -> None:
    # Adding 2e38 loses the logit, so each 40-bit sample averages different columns.
    right = _check(_rows(lambda x: _mean_of_first(x, jnp)), _mean_of_first, "float32")
    assert right.ok
    wrong = _check(_rows(lambda x: _mean_of_first(x, jnp, -1.0)), _mean_of_first, "float32")
    passed = {each.family for each in wrong.records if not each.verdict.is_finding}
    assert passed == {"ones", "constant", "constant_rows"}


@pytest.mark.usefixtures("values_alone")
def test_every_case_says_whether_the_formula_was_asked() -> None:
    result = _check(_rows(_in_float32(_softmax)), _softmax, "bfloat16")
    asked = [each.formula for each in result.records if each.group in ("numeric", "special")]
    assert asked
    assert all(each is not None and each.compared and not each.unanswered for each in asked)
    assert max(each.bound_fraction or 0.0 for each in asked if each is not None) < 0.01


@pytest.mark.usefixtures("values_alone")
def test_another_tolerance_than_that_of_rounding_leaves_the_formula_unasked() -> None:
    kernel = _rows(_in_float32(_softmax, less=1e-7))
    result = _check(kernel, _softmax, "bfloat16", tolerance=kt.tolerance.ulp(4))
    assert result.ok
    assert not any(each.formula for each in result.records)


def test_a_kernel_that_rounds_on_purpose_is_not_accused() -> None:
    def kernel(x: jax.Array) -> jax.Array:
        bits = jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.int32)
        return jax.lax.bitcast_convert_type(bits & ~0xFFFF, jnp.float32)

    def oracle(x: np.ndarray) -> np.ndarray:
        return (x.astype(np.float32).view(np.int32) & ~0xFFFF).view(np.float32).astype(np.float64)

    assert _check(_rows(kernel), oracle, "float32").ok


def test_a_kernel_that_numpy_cannot_evaluate_is_judged_by_its_rounding_and_the_run_says_so() -> None:
    def kernel(x: jax.Array) -> jax.Array:
        def body(x_ref: Any, o_ref: Any) -> None:
            jax.debug.callback(lambda: None)
            o_ref[...] = jnp.exp(x_ref[...])

        result: jax.Array = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
        return result

    result = _check(kernel, np.exp, "float32")
    (remark,) = (each for each in Informativeness(result.records).remarks() if "only by their rounding" in each)
    assert "cases were judged only by their rounding: it cannot be evaluated in NumPy: " in remark


class _OffByOne:
    def __init__(self, right: Any) -> None:
        self._right, self.precision = right, right.precision

    def run(self, leaves: Any) -> Any:
        return tuple(output + 1 for output in self._right.run(leaves))


class _WrongBackend(Interpret):
    def __init__(self) -> None: ...

    def prepare(self, traced: Any) -> Any:
        return _OffByOne(super().prepare(traced))

    def fast_path(self, compiled: Any, count: Any) -> None:
        return None


def test_a_kernel_of_integers_that_a_backend_computes_wrongly_does_not_doubt_its_oracle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "REGISTRY", dict(registry.REGISTRY))
    kt.backend("wrong")(_WrongBackend)
    x = kt.array("n", "int32", domain=(-100, 100))
    pairing = kt.oracle_for(_rows(lambda x: 2 * x), x=x, dims={"n": kt.dim(values=(3, 8))})(lambda x: 2 * x)
    result = kt.check(pairing, backends=["wrong"], depth="quick")
    assert _causes(result) == {ErrorCause.BACKEND}
    (suspect,) = result.suspects
    assert "oracle" not in suspect.title
    text = "\n".join(describe_suspect(suspect).texts)
    assert "the backend computes something else: evaluated by NumPy, the kernel gives what is expected" in text
    assert "check the oracle" not in text


def test_an_index_that_a_backend_finds_elsewhere_is_not_called_a_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "REGISTRY", dict(registry.REGISTRY))
    kt.backend("wrong")(_WrongBackend)

    def kernel(x: jax.Array) -> Any:
        def body(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = jnp.exp(x_ref[...]).astype(jnp.int32)

        return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, np.int32))(x)

    x = kt.array("n", "float32", domain=(-3, 3))
    pairing = kt.oracle_for(kernel, x=x, dims={"n": kt.dim(values=(3, 8))})(lambda x: np.exp(x).astype(np.int32))
    assert _causes(kt.check(pairing, backends=["wrong"], depth="quick")) == {ErrorCause.BACKEND}


class _WrongCompiler(Interpret):
    """Compiles to code that is off by one; the kernel's evaluation in NumPy is right."""

    def __init__(self) -> None: ...

    def prepare(self, traced: Any) -> Any:
        return _OffByOne(super().prepare(traced))


@pytest.mark.parametrize(
    ("oracle", "cause"), [(np.exp, ErrorCause.BACKEND), (lambda x: 5 * np.exp(x), ErrorCause.FORMULA)]
)
def test_compiled_code_that_differs_from_the_kernel_is_told_apart_from_a_wrong_kernel(
    oracle: Any, cause: ErrorCause, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "REGISTRY", dict(registry.REGISTRY))
    kt.backend("wrong")(_WrongCompiler)
    x = kt.array("n", "float32", domain=(-3, 3))
    pairing = kt.oracle_for(_rows(jnp.exp), x=x, dims={"n": kt.dim(values=(3, 8))})(oracle)
    result = kt.check(pairing, backends=["wrong"], depth="quick")
    assert {ErrorCause.FORMULA, ErrorCause.BACKEND} & _causes(result) == {cause}
    assert not any("insufficient precision" in suspect.title for suspect in result.suspects)


def test_an_exact_result_that_is_rounded_says_how_far() -> None:
    result = _check(_rows(lambda x: x.astype(jnp.bfloat16)), lambda x: 1.0 * x, "float32")
    assert _causes(result) == {ErrorCause.ROUNDING}
    details = [each.record.detail for each in result.findings]
    sizes = [each.cause.size for each in details if isinstance(each, Mismatch) and each.cause is not None]
    assert all(size is not None and 2 <= size <= 2**17 for size in sizes), sizes


def test_an_integer_beside_the_right_one_is_twice_as_far_as_a_rounding() -> None:
    found = compare(np.array([27, 26], np.int32), np.array([26, 26]), np.zeros(2), signed_zeros=False)
    assert rounding_cause([found], None) == MismatchCause(ErrorCause.ROUNDING, 2.0)


def test_a_wrong_formula_is_as_wrong_as_its_wrong_elements_whatever_the_others_are() -> None:
    found = compare(np.array([3.0, 3e38]), np.array([2.0, 3e38]), np.full(2, 1e-9), signed_zeros=False)
    assert formula_cause([found], None) == MismatchCause(ErrorCause.FORMULA, 0.5)


@pytest.mark.parametrize(("size", "words"), [(1.0041, "1.004"), (1.2, "1.2"), (3.04, "3"), (321.4, "320"), (1.0, "1")])
def test_the_size_of_an_error_has_the_digits_that_make_it_one(size: float, words: str) -> None:
    assert f"it rounds {words} times" in MismatchCause(ErrorCause.ROUNDING, size).text()


def _read_again(factor: float) -> Callable[[Any], Any]:
    """A kernel that reads its input where it has written the output, in the same memory."""

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = 2.0 * x_ref[...]
        o_ref[...] = jnp.exp(factor * x_ref[...])

    return lambda x: pl.pallas_call(
        body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), input_output_aliases={0: 0}
    )(x)


@pytest.mark.parametrize(("factor", "found"), [(1.0, False), (1 + 1e-6, True)])
def test_the_formula_of_a_kernel_that_works_in_place_is_that_of_a_device(factor: float, found: bool) -> None:
    declared = dict(x=kt.array("n", "float32", domain=(-1, 1)), dims={"n": kt.dim(values=(16,))})
    pairing = kt.oracle_for(_read_again(factor), **declared)(lambda x: np.exp(2 * x))
    result = kt.check(pairing, backends=["simulate:sm_90"], depth="quick", minimize=0)
    asked = [each.formula for each in result.records if each.formula]
    assert asked
    assert not any(each.unanswered for each in asked)
    assert bool(result.findings) is found


def test_a_rounded_constant_is_fitted_once_for_all_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[Any] = []

    def fit(*arguments: Any) -> Any:
        fits.append(fit_parameters(*arguments))
        return fits[-1]

    monkeypatch.setattr(formula, "fit_parameters", fit)
    kernel = lambda x: elementwise(lambda v: v * jnp.bfloat16(0.1).astype(jnp.float32), x)  # noqa: E731
    pairing = kt.oracle_for(kernel, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(5, 33))))(lambda x: x * 0.1)
    causes = [cause_of(each.record.detail) for each in kt.check(pairing, depth="quick").findings]
    told = [cause for cause in causes if cause is not None and cause.constants]
    assert {cause.constants for cause in told} == {("0.1 is rounded to bfloat16",)}
    assert (len(told) > 9, len(fits)) == (True, 1)
