"""`kt.check`: verdicts other than wrong values, invalid arguments, declared xfails, reproduction of one case."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

import kerneltest as kt
from kerneltest.backends import interpret, jitted
from kerneltest.execute.expectations import REPEATED
from tests.found import findings
from tests.sample import double, elementwise, exponential, whole

SMALL = dict(n=kt.dim(values=(3, 5)))


def _make_pairing(oracle: Callable[..., Any], kernel: Callable[..., Any] = double, **more: Any) -> kt.Pairing:
    return kt.oracle_for(kernel, x=kt.array("n", "float32"), dims=SMALL, **more)(oracle)


def _raises(x: np.ndarray) -> np.ndarray:
    raise KeyError("gelu")


@pytest.mark.parametrize(
    ("oracle", "words"),
    [
        (_raises, "oracle _raises raised KeyError: 'gelu'"),
        (lambda x: x[None], "has shape (1, 3), the kernel's has (3,)"),
        (lambda x: (x, x), "returned 2 outputs, the kernel 1"),
        (lambda x: x * 1j, "has dtype complex128, the kernel's has float32: return float values"),
        (lambda x: "nothing", "has shape (), the kernel's has (3,)"),
    ],
)
def test_an_oracle_at_fault_is_named(oracle: Callable[..., Any], words: str) -> None:
    result = kt.check(_make_pairing(oracle), depth="quick")
    assert {finding.verdict for finding in result.findings} == {"oracle_error"}
    assert words in result.findings[0].message
    assert not result.ok


def test_an_oracle_that_gives_floats_for_integers_is_at_fault() -> None:
    pairing = kt.oracle_for(double, x=kt.array("n", "int32"))(lambda x: x * 2.0)
    (message,) = {finding.message for finding in kt.check(pairing, depth="quick").findings}
    assert "has dtype float64, the kernel's has int32: return integer values" in message


class _Model:
    def misfit(self, leaves: Any, dims: Any) -> str:
        return ""

    def bounds(self, measured: Any) -> Any:
        raise ZeroDivisionError("no terms")

    def __str__(self) -> str:
        return "untested"


def test_an_error_model_at_fault_is_named_with_the_oracle() -> None:
    pairing = _make_pairing(lambda x: 2 * x, tolerance=_Model())
    (message,) = {f.message for f in kt.check(pairing, depth="quick").findings if f.verdict == "oracle_error"}
    assert message == "error model untested of oracle <lambda> raised ZeroDivisionError: no terms"


def test_a_kernel_that_raises_for_one_signature_loses_nothing_else() -> None:
    def picky(x: jax.Array) -> jax.Array:
        if x.shape[0] == 5:
            raise ValueError("five is right out")
        return double(x)

    result = kt.check(_make_pairing(lambda x: 2 * x, picky, tolerance=kt.tolerance.exact()), depth="quick")
    assert {f.verdict for f in result.findings} == {"runtime_error"}
    assert all("five is right out" in f.message and "n=5" in f.message for f in result.findings)
    assert {r.signature for r in result.records if r.verdict == "pass"} == {"n=3,float32"}


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (NotImplementedError("Unimplemented primitive in Pallas GPU lowering: is_finite"), "unimplemented"),
        (RuntimeError("RESOURCE_EXHAUSTED: Shared memory size limit exceeded: 2097152"), "resource_exceeded"),
        (ValueError("all operations must have sizes that are a power of 2"), "compile_error"),
    ],
)
def test_what_stops_a_compilation_is_told_apart(
    error: Exception, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:

    def fails(*args: Any, **kwargs: Any) -> Any:
        raise error

    monkeypatch.setattr(jitted, "runnable", fails)
    result = kt.check(_make_pairing(lambda x: 2 * x), depth="quick")
    assert {f.verdict for f in result.findings} == {verdict}
    assert f"{type(error).__name__}: {error}" in result.findings[0].message


def _half_products(x_ref: Any, o_ref: Any) -> None:
    half = x_ref[...].astype(jnp.float16)
    preset = lax.DotAlgorithmPreset.F16_F16_F32
    o_ref[...] = lax.dot(half, half, precision=preset, preferred_element_type=jnp.float32)


def _added_at_once(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...]
    plgpu.atomic_add(o_ref, (0, 0), 1.0)


def _stored_reshaped(x_ref: Any, o_ref: Any) -> None:
    plgpu.store(o_ref.reshape(256), x_ref[...].reshape(256), mask=jnp.arange(256) < 200)


def _in_assembly(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = plgpu.approx_tanh(x_ref[...])


@pytest.mark.parametrize(
    ("body", "words", "lowers"),
    [
        (_half_products, "The precision 'F16_F16_F32' is not supported by dot_general on CPU (", True),
        (_added_at_once, "AttributeError: 'TypedInt' object has no attribute 'shape' (", True),
        (_stored_reshaped, "TypeError: broadcast_in_dim", False),
        (_in_assembly, "NotImplementedError: MLIR translation rule for primitive", True),
    ],
)
def test_what_jax_cannot_interpret_is_unavailable(body: Callable[..., Any], words: str, lowers: bool) -> None:
    def kernel(x: jax.Array) -> jax.Array:
        return pl.pallas_call(body, x)(x)

    square = kt.oracle_for(kernel, x=kt.array("n n", "float32"), dims=dict(n=kt.dim(values=(16,))))(lambda x: x)
    result = kt.check(square, depth="quick")
    assert {record.verdict for record in result.records} == {"unavailable"}
    (message,) = {record.message for record in result.records}
    assert message.startswith(f"JAX {jax.__version__} cannot interpret this, which is not the kernel's fault: ")
    assert words in message
    assert (result.ok, result.cases) == (False, 0)
    both = kt.check(square, backends=["interpret", "lower:sm_90"], depth="quick")
    assert (both.findings == ()) is lowers
    assert both.unavailable == {"interpret": message}
    assert both.cases == sum(record.backend == "lower:sm_90" for record in both.records)


def test_what_a_kernel_does_wrong_is_found_though_jax_raises_it() -> None:
    kernel = _make_pairing(lambda x: x, lambda x: whole(lambda x_ref: jnp.ones(3) + x_ref[0], x, x))
    findings = kt.check(kernel, depth="quick").findings
    assert {(f.verdict, f.signature) for f in findings if "Invalid shape for `swap`" in f.message} == {
        ("runtime_error", "n=5,float32")
    }


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (dict(backends=["cpu"]), "unknown backend 'cpu'; a CPU runs 'interpret'"),
        (dict(backends="interpet"), r"unknown backend 'interpet'; did you mean 'interpret'\?"),
        (dict(backends=["there"]), "unknown backend 'there'; known are interpret, interpret-mosaic-gpu, interpret-tpu"),
        (dict(depth="shallow"), "depth must be one of quick, standard, deep, not 'shallow'"),
        (dict(case="0123"), "has no case 0123 at depth standard with seed 0"),
    ],
)
def test_bad_input_lists_what_is_known(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        kt.check(_make_pairing(lambda x: 2 * x), **wrong)


def test_an_unavailable_backend_has_a_reason_and_is_not_ok() -> None:
    result = kt.check(_make_pairing(lambda x: 2 * x), backends=["rocm"], depth="quick")
    assert not result.ok
    assert not result.findings
    assert result.cases == 0
    assert "no rocm device" in result.unavailable["rocm"]


def test_a_finding_can_be_run_again_alone() -> None:
    pairing = _make_pairing(lambda x: 2 * x, _wrong_at_5)
    finding = kt.check(pairing, depth="quick").findings[0]
    again = kt.check(pairing, depth="quick", case=finding.record.case)
    assert again.cases == 1
    (same,) = again.findings
    assert same.message == finding.message
    assert all(np.array_equal(same.arguments[k], v) for k, v in finding.arguments.items())


def test_the_sign_of_a_zero_counts_only_where_it_is_declared() -> None:
    def positive(x: jax.Array) -> jax.Array:
        return elementwise(lambda v: jnp.where(v == 0, 0.0, v), x)

    lax = _make_pairing(lambda x: x, positive, tolerance=kt.tolerance.exact())
    assert kt.check(lax, depth="quick").ok
    strict = next(findings(replace(lax, signed_zeros=True), ["interpret"]))
    assert strict.verdict == "special_mismatch"
    rounded = next(findings(replace(lax, signed_zeros=True, tolerance=kt.tolerance.rounding()), ["interpret"]))
    assert rounded.detail.cause is None  # type: ignore[union-attr]


def _xfail(**more: Any) -> Any:
    return kt.xfail(reason="known", url="https://example.org/1", **more)


def _wrong_at_5(x: jax.Array) -> jax.Array:
    return double(x) + (x.shape[0] == 5)


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("xfail", "verdicts"),
    [
        (_xfail(verdict="mismatch"), {"pass", "xfail"}),
        (_xfail(verdict="mismatch", signature="n=5,*"), {"pass", "xfail"}),
        (_xfail(verdict="mismatch", signature="n=3,*"), {"pass", "mismatch", "xpass"}),
        (_xfail(verdict="mismatch", backend="cuda"), {"pass", "mismatch"}),
        (_xfail(verdict="race"), {"pass", "mismatch"}),
    ],
)
def test_an_xfail_holds_for_its_verdict_alone_and_must_occur(xfail: Any, verdicts: set[str]) -> None:
    pairing = _make_pairing(lambda x: 2 * x, _wrong_at_5, xfail=[xfail], tolerance=kt.tolerance.exact())
    structural = [r for r in kt.check(pairing, depth="quick").records if r.group == "structural"]
    assert {record.verdict for record in structural} == verdicts


def test_a_quarantined_case_is_never_launched() -> None:
    def deadly(x: jax.Array) -> jax.Array:
        pytest.fail("launched") if isinstance(x, np.ndarray) else None
        return double(x)

    crash = _xfail(verdict="crash", family="nan_*", signature="n=5,*")
    result = kt.check(_make_pairing(lambda x: 2 * x, deadly, xfail=[crash]), depth="quick")
    away = [record for record in result.records if record.verdict == "xfail"]
    assert {(r.family, r.signature) for r in away} == {
        (f, "n=5,float32") for f in ("nan_first", "nan_last", "nan_and_inf_in_one_tile")
    }
    assert all("Not run: an xfail declares crash. known (https://" in record.message for record in away)
    assert not any(record.compared for record in away)
    assert result.ok


def test_what_everything_masked_yields_is_declared_and_held_against_the_oracle() -> None:
    def softmax(x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.exp(x - x.max()) / np.exp(x - x.max()).sum()

    def kernel(x: jax.Array) -> jax.Array:
        return elementwise(lambda v: jnp.exp(v - v.max()) / jnp.exp(v - v.max()).sum(), x)

    pairing = _make_pairing(softmax, kernel, tolerance=kt.tolerance.conditioned(over="n"))
    assert kt.check(replace(pairing, all_masked="nan"), depth="quick").ok
    findings = kt.check(replace(pairing, all_masked="zeros"), depth="quick").findings
    assert {(f.verdict, f.family) for f in findings} == {("oracle_error", "all_masked_array")}
    assert "returns nan where everything is masked, but the pairing declares all_masked='zeros'" in findings[0].message


def test_structural_families_of_inexact_kernels_are_judged_by_the_bound() -> None:
    result = kt.check(_make_pairing(np.exp, exponential), depth="quick")
    assert result.ok, result.findings[0].message
    judged = {record.tolerance for record in result.records if record.group == "structural"}
    assert judged == {"rounding()"}


def test_the_oracle_and_the_compiler_are_asked_once_a_case_and_signature(monkeypatch: pytest.MonkeyPatch) -> None:

    calls = {"oracle": 0, "compile": 0}

    def oracle(x: np.ndarray) -> np.ndarray:
        calls["oracle"] += 1
        return 2 * x

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls["compile"] += 1
        return compile_for(*args, **kwargs)

    compile_for = interpret.compile_for
    monkeypatch.setattr(interpret, "compile_for", counted)
    result = kt.check(_make_pairing(oracle, tolerance=kt.tolerance.exact()), depth="quick")
    subnormal = sum(record.family == "subnormals" for record in result.records)
    repeated = sum(record.family in REPEATED for record in result.records)
    signatures = 2  # for each, the oracle also determines how large exact integers may be
    compiled = len({"the first signature", "outside of jit"})  # the evaluator is checked against these
    assert calls == {"oracle": result.cases + subnormal + repeated + signatures, "compile": compiled}


def test_other_bits_the_second_time_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from kerneltest.backends.jitted import Jitted

    once, runs = Jitted.run, iter(range(10**6))

    def drifting(self: Jitted, leaves: Any) -> Any:
        return tuple(output + (next(runs) == 1) for output in once(self, leaves))

    monkeypatch.setattr(Jitted, "run", drifting)
    findings = kt.check(_make_pairing(lambda x: 2 * x), depth="deep").findings  # compiles everything
    assert [finding.verdict for finding in findings] == ["nondeterministic"]
    assert "output 0: the same inputs gave" in findings[0].message


def test_an_input_that_was_written_to_is_found() -> None:
    from kerneltest.backends.jitted import Jitted
    from kerneltest.core.failures import Failure
    from kerneltest.core.precision import XLA_CPU

    def overwriting(x: jax.Array) -> tuple[jax.Array]:
        np.asarray(x).setflags(write=False)
        writable = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * x.size).from_address(x.unsafe_buffer_pointer()))
        writable[0] = 7
        return (x,)

    made = Jitted(overwriting, jax.devices("cpu")[0], XLA_CPU)
    with pytest.raises(Failure, match="the kernel wrote to its array argument 0") as caught:
        made.run([np.full(256, 1, np.float32)])
    assert caught.value.verdict == "input_modified"
