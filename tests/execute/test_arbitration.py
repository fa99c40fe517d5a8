"""An interpreter is believed against a kernel only if its lowered code, simulated, is wrong too."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

import kerneltest as kt
from kerneltest.backends.base import Executable
from kerneltest.backends.interpret import Interpret
from kerneltest.backends.registry import resolve
from kerneltest.core.details import Contradicted, InternalError
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.item import Outcome
from kerneltest.trace.batched_interpreter.kernel_rules import BatchedKernel, KernelRules, LoweredRules
from kerneltest.trace.tracing import trace_function
from tests.found import records
from tests.sample import double, elementwise, whole

BOTH = ["interpret", "simulate:sm_90"]
EIGHT, SMALL = dict(n=kt.dim(values=(8,))), (-100, 100)


def pair(
    kernel: Callable[..., Any], oracle: Callable[..., Any], *names: str, domain: Any = None, **declared: Any
) -> kt.Pairing:
    arguments: dict[str, Any] = {name: kt.array("n", "float32", domain=domain) for name in names}
    made: kt.Pairing = kt.oracle_for(kernel, **arguments, **declared)(oracle)
    return made


class Quartered:
    def __init__(self, executable: Executable) -> None:
        self.executable, self.precision = executable, executable.precision

    def run(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(output / 4 + 1 for output in self.executable.run(leaves))


@pytest.fixture
def wrong_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = Interpret.prepare
    monkeypatch.setattr(Interpret, "prepare", lambda backend, traced: Quartered(prepare(backend, traced)))
    monkeypatch.setattr(Interpret, "fast_path", lambda *_: None)


@pytest.mark.usefixtures("wrong_interpreter")
def test_what_only_an_interpreter_computes_wrongly_is_a_remark_that_names_it() -> None:
    result = kt.check(pair(double, lambda x: 2 * x, "x", domain=SMALL, dims=EIGHT), backends=BOTH, depth="quick")
    passes = [record for record in result.records if isinstance(record.detail, Contradicted)]
    assert result.ok
    assert {record.verdict for record in passes} == {Verdict.PASS}
    assert all(record.compared for record in passes)
    assert repr(result).count("judged by simulate:sm_90") == 1
    assert "since interpret ends as mismatch: 8 of 8 elements wrong" in repr(result)
    excused = [record for record in result.records if record.family == "plain_call"]  # only interpreters run it
    assert {record.verdict for record in excused} == {Verdict.UNAVAILABLE}
    assert all("even the plain call is judged by simulate:sm_90" in record.message for record in excused)


@pytest.mark.usefixtures("wrong_interpreter")
@pytest.mark.parametrize(
    ("oracle", "backends"),
    [(lambda x: 2 * x, BOTH[:1]), (lambda x: 2 * x + 0.25, BOTH)],
    ids=["nothing else ran it", "the lowered code is wrong as well"],
)
def test_it_is_believed(oracle: Callable[..., Any], backends: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Outcome] = []  # with what NumPy makes of the known differences of lowered code: not needed
    name = "kerneltest.execute.arbitration._may_be_right_by_accident"
    monkeypatch.setattr(name, lambda outcome: compared.append(outcome))
    asked = list(records(pair(double, oracle, "x", domain=SMALL, dims=EIGHT), backends, group="structural"))
    assert any(record.backend == "interpret" and record.verdict.is_finding for record in asked)
    assert not [record for record in asked if isinstance(record.detail, Contradicted)]
    assert not compared


@pytest.mark.usefixtures("wrong_interpreter")
def test_a_declared_fault_of_an_interpreter_stays_an_xfail() -> None:
    fault = kt.xfail("mismatch", backend="interpret", group="*", reason="a quarter", url="https://example.org/1")
    result = kt.check(
        pair(double, lambda x: 2 * x, "x", domain=SMALL, dims=EIGHT, xfail=[fault]), backends=BOTH, depth="quick"
    )
    assert result.ok
    assert Verdict.XFAIL in {record.verdict for record in result.records}
    assert not [record for record in result.records if isinstance(record.detail, Contradicted)]


def summed(x: jax.Array, factor: int = 1) -> jax.Array:
    """Adds all numbers to the first element; JAX's interpreter keeps the last addition only."""

    def body(x_ref: Any, _: Any, o_ref: Any) -> None:
        plgpu.atomic_add(o_ref, (jnp.arange(8) // 8,), factor * jnp.maximum(x_ref[...], -100))

    return pl.pallas_call(body, out_shape=x, input_output_aliases={1: 0})(x, jnp.zeros_like(x))


@pytest.mark.parametrize(
    ("dtype", "backends"),
    [("float32", BOTH), ("float32", BOTH[:1]), ("int32", BOTH[:1])],  # JAX lowers a block of integers as floats
)
@pytest.mark.parametrize("factor", [1, 2])
def test_an_interpreter_that_loses_atomic_additions_is_not_believed(
    dtype: str, factor: int, backends: list[str]
) -> None:
    x = kt.array("n", dtype, domain=SMALL)
    pairing = kt.oracle_for(lambda x: summed(x, factor), x=x, dims=EIGHT)(
        lambda x: np.eye(8, dtype=x.dtype)[0] * x.sum()
    )
    asked = list(records(pairing, backends, group="structural"))
    assert any(record.verdict.is_finding for record in asked) == (factor != 1)
    assert any(isinstance(record.detail, Contradicted) for record in asked) == (factor == 1)


def masked_by_product(x: jax.Array, seen: jax.Array) -> jax.Array:
    """XLA's simplifier, which a tanh needs, makes a select of the product."""
    body = lambda x, seen: jnp.tanh(jnp.where(seen, x, 0)) + x * seen.astype(x.dtype)  # noqa: E731
    return whole(lambda x, seen: body(x[...], seen[...]), x, x, seen)


def masked(x: jax.Array, seen: jax.Array) -> jax.Array:
    return whole(lambda x, seen: jnp.where(seen[...], jnp.tanh(x[...]) + x[...], 0), x, x, seen)


@pytest.mark.parametrize(("kernel", "found"), [(masked_by_product, True), (masked, False)])
def test_a_nan_that_the_simplifier_of_xla_hides_is_the_kernels(kernel: Callable[..., Any], found: bool) -> None:
    pairing = kt.oracle_for(kernel, x=kt.array("n", "float32"), seen=kt.mask("n"), dims=EIGHT)(
        lambda x, seen: np.where(seen, np.tanh(x) + x, 0)
    )
    result = kt.check(pairing, backends=["interpret"], depth="quick", minimize=0)
    families = {finding.family for finding in result.findings}
    assert ("unread_values" in families and len(families) > 1) if found else not families
    assert {str(finding.verdict) for finding in result.findings} == ({"special_mismatch"} if found else set())


def read_past_the_end(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = jnp.sum(plgpu.load(x_ref.at[jnp.arange(16)]))

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((1,), x.dtype))(x)


def cancelling_sigmoid(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: 0.5 + 0.5 * jnp.tanh(v / 2), x)


def sigmoid(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1.0) / (1 + small)


@jax.custom_vjp
def added(x: jax.Array, y: jax.Array) -> jax.Array:
    return elementwise(jnp.add, x, y)


def clipped_gradient(x: jax.Array, g: jax.Array) -> tuple[jax.Array, jax.Array]:
    return g, elementwise(lambda g, x: g * jnp.maximum(jnp.sqrt(-jnp.abs(x) - 1), 1.0), g, x)


added.defvjp(lambda x, y: (added(x, y), x), clipped_gradient)


def elementwise_pair(function: Callable[..., Any], oracle: Callable[..., Any], **declared: Any) -> kt.Pairing:
    if function.__code__.co_argcount == 1:
        return pair(lambda x: elementwise(function, x), oracle, "x", dims=EIGHT, **declared)
    return pair(lambda x, y: elementwise(function, x, y), oracle, "x", "y", dims=EIGHT, **declared)


@pytest.mark.parametrize(
    "pairing",
    [
        pair(read_past_the_end, lambda x: np.sum(x, keepdims=True), "x", dims=EIGHT),
        kt.oracle_for(cancelling_sigmoid, x=kt.array("4 32", "float32", domain=(-80, 80)))(sigmoid),
        pair(added, lambda x, y: x + y, "x", "y", dims=EIGHT, grad=True),
        elementwise_pair(lambda x, y: jnp.maximum(x, y), np.fmax),
        elementwise_pair(
            lambda x, y: jnp.maximum(x, y) + jnp.minimum(x, y), lambda x, y: np.fmax(x, y) + np.fmin(x, y)
        ),
        elementwise_pair(lambda x: jnp.isnan(jnp.maximum(x, 0)).astype(x.dtype), lambda x: np.zeros_like(x)),
        elementwise_pair(lambda x: -x, lambda x: 0 - x, signed_zeros=True),
        elementwise_pair(lambda x: 1 / -x, lambda x: 1 / (0 - x)),
        elementwise_pair(lambda x: jnp.round(x) + 1, lambda x: np.rint(x)),
    ],
    ids=[
        "a fault",
        "rounding by chance",
        "a gradient that drops NaN",
        "a maximum that drops NaN",
        "two extremes that do",
        "a number made of one",
        "a negative that loses the sign of zero",
        "the reciprocal of one",
        "an operation without a lowering",
    ],
)
def test_wrong_values_that_lowered_code_does_not_show_stay_findings(pairing: kt.Pairing) -> None:
    result = kt.check(pairing, backends=BOTH, depth="quick", minimize=0)
    assert "interpret" in {finding.backend for finding in result.findings}
    assert not [record for record in result.records if isinstance(record.detail, Contradicted | InternalError)]


SPECIAL = np.array([0, -0.0, np.nan, np.inf, -np.inf, 1, -1, 2], np.float32)
FIRST, SECOND = (each.ravel() for each in np.meshgrid(SPECIAL, SPECIAL))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: -x,
        lambda x, y: jnp.sign(x),
        jnp.maximum,
        jnp.minimum,
        lambda x, y: lax.clamp(np.float32(0), x, y),
        lambda x, y: jnp.broadcast_to(jnp.max(x.reshape(16, 4), axis=1, keepdims=True), (16, 4)).reshape(64),
        lambda x, y: jnp.broadcast_to(jnp.argmax(x.reshape(16, 4), axis=1, keepdims=True), (16, 4)).reshape(64),
    ],
    ids=["neg", "sign", "max", "min", "clamp", "reduce_max", "argmax"],
)
def test_the_known_differences_of_lowered_code_are_those_of_the_simulator(function: Callable[..., Any]) -> None:
    inputs = (ShapeDtype((64,), np.dtype("float32")),) * 2
    traced = trace_function(lambda x, y: [elementwise(function, x, y)], inputs, "for a test")
    prepared: Any = resolve(BOTH[1:])[0].prepare(traced)
    (simulated,) = prepared.run([FIRST, SECOND])
    lowered, plain = (
        BatchedKernel(traced, rules)([FIRST[None], SECOND[None]])[0][0] for rules in (LoweredRules(), KernelRules())
    )
    np.testing.assert_array_equal(simulated, lowered)
    np.testing.assert_array_equal(np.signbit(simulated), np.signbit(lowered))
    assert plain.tobytes() != lowered.tobytes()
