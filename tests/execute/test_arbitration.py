"""An interpreter is believed against a kernel only if its lowered code, simulated, is wrong too."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

import kerneltest as kt
from kerneltest.backends.base import Executable
from kerneltest.backends.interpret import Interpret
from kerneltest.core.details import Contradicted
from kerneltest.core.verdicts import Verdict
from tests.sample import double, elementwise

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
def test_it_is_believed(oracle: Callable[..., Any], backends: list[str]) -> None:
    result = kt.check(pair(double, oracle, "x", domain=SMALL, dims=EIGHT), backends=backends, depth="quick")
    assert "interpret" in {finding.backend for finding in result.findings}
    assert not [record for record in result.records if isinstance(record.detail, Contradicted)]


@pytest.mark.usefixtures("wrong_interpreter")
def test_a_declared_fault_of_an_interpreter_stays_an_xfail() -> None:
    fault = kt.xfail("mismatch", backend="interpret", group="*", reason="a quarter", url="https://example.org/1")
    result = kt.check(
        pair(double, lambda x: 2 * x, "x", domain=SMALL, dims=EIGHT, xfail=[fault]), backends=BOTH, depth="quick"
    )
    assert result.ok
    assert Verdict.XFAIL in {record.verdict for record in result.records}
    assert not [record for record in result.records if isinstance(record.detail, Contradicted)]


def read_past_the_end(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = jnp.sum(plgpu.load(x_ref.at[jnp.arange(16)]))

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((1,), x.dtype))(x)


def cancelling_sigmoid(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: 0.5 + 0.5 * jnp.tanh(v / 2), x)


def sigmoid(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1.0) / (1 + small)


@pytest.mark.parametrize(
    "pairing",
    [
        pair(read_past_the_end, lambda x: np.sum(x, keepdims=True), "x", dims=EIGHT),
        pair(lambda x, y: elementwise(jnp.maximum, x, y), np.fmax, "x", "y", dims=EIGHT),
        pair(lambda x: elementwise(jnp.negative, x), lambda x: 0 - x, "x", dims=EIGHT, signed_zeros=True),
        kt.oracle_for(cancelling_sigmoid, x=kt.array("4 32", "float32", domain=(-80, 80)))(sigmoid),
    ],
    ids=["a fault", "a maximum that drops NaN", "a negative that loses the sign of zero", "rounding by chance"],
)
def test_wrong_values_that_lowered_code_does_not_show_stay_findings(pairing: kt.Pairing) -> None:
    result = kt.check(pairing, backends=BOTH, depth="quick")
    assert "interpret" in {finding.backend for finding in result.findings}
    assert not [record for record in result.records if isinstance(record.detail, Contradicted)]
