"""Whatever was seen once is told: no second try that passes hides a wrong result or an exception."""

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.backends.interpret import NumpyEvaluation
from kerneltest.backends.registry import resolve
from kerneltest.core.details import ISSUES, Contradicted, Nondeterministic
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.execute import fuzz_group
from kerneltest.execute.batching import _run_one_by_one
from kerneltest.execute.cache import Cache
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_item
from kerneltest.execute.settings import RunSettings
from kerneltest.execute.verdict_key import find_key
from kerneltest.plan.explicit import AnyCase
from kerneltest.report.counts import contradiction_remarks
from tests.sample import double

DIMS = dict(n=kt.dim(values=(3,)))
CALLBACKS = {"pure": jax.pure_callback, "io": io_callback}


@dataclass(eq=False)
class Host:
    """The Python side of a kernel: it is wrong, or raises, in one of the calls that come from a line of kerneltest."""

    where: str  # a function in the stack, or "" for any call
    number: int
    raises: bool
    calls: int = 0
    happened: int = 0
    stack: list[str] = field(default_factory=list)

    def __call__(self, x: Any) -> Any:
        self.stack = [frame.name for frame in traceback.extract_stack() if "kerneltest" in frame.filename]
        self.calls += self.where in ("", *self.stack)
        if self.calls != self.number or self.happened:
            return np.asarray(x) * np.float32(2)
        self.happened += 1
        if self.raises:
            raise ValueError("it happened")
        return np.asarray(x) * np.float32(3)


def calling(host: Callable[..., Any], kind: str, **declared: Any) -> kt.Pairing:
    def kernel(x: jax.Array) -> Any:
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)

        def body(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...]

        return CALLBACKS[kind](host, shape, pl.pallas_call(body, out_shape=shape)(x))

    made: kt.Pairing = kt.oracle_for(kernel, x=kt.array("n", "float32"), dims=DIMS, **declared)(lambda x: 2 * x)
    return made


@pytest.mark.sweep(6)
@pytest.mark.parametrize("raises", [False, True], ids=["wrong", "raises"])
@pytest.mark.parametrize(
    ("kind", "where", "number"),
    [
        ("pure", "run_on_fast_path", 1),
        ("pure", "run_on_fast_path", 2),  # a family that runs twice
        ("pure", "run_on_fast_path", 7),
        ("pure", "run_on_fast_path", 30),
        ("pure", "judge_unchecked", 1),  # an invariant
        ("pure", "prepare_checked", 1),  # in NumPy
        ("pure", "run_jax_interpreter", 1),
        ("pure", "prepare_checked", 4),  # compared with compiled code
        ("pure", "_outputs", 2),  # the formula
        ("io", "judge_prepared", 3),
        ("io", "judge_prepared", 20),
    ],
)
def test_a_kernel_that_calls_back_and_errs_once_is_found(kind: str, where: str, number: int, raises: bool) -> None:
    host = Host(where, number, raises)
    result = kt.check(calling(host, kind), depth="quick")
    assert host.happened == 1
    (finding,) = result.findings
    if kind == "io":  # nothing ran it again
        return
    assert finding.verdict is Verdict.NONDETERMINISTIC
    if raises:
        assert "ValueError: it happened" in finding.message
    else:
        detail = finding.record.detail
        assert isinstance(detail, Nondeterministic)
        one, other = sorted([abs(float(detail.first)), abs(float(detail.second))])
        assert other == pytest.approx(1.5 * one)
        assert detail.first in finding.message
        assert detail.second in finding.message


def test_a_kernel_that_calls_back_and_is_right_has_no_findings() -> None:
    result = kt.check(calling(Host("", 0, False), "pure"), depth="quick")
    assert result.ok
    assert not [record for record in result.records if isinstance(record.detail, Contradicted)]


@pytest.mark.parametrize("number", [1, 2, 9])
@pytest.mark.parametrize("with_key", [False, True], ids=["judged", "fingerprinted"])
@pytest.mark.parametrize("of", ["oracle", "family"])
def test_what_an_oracle_or_a_family_raises_once_is_seen(of: str, with_key: bool, number: int) -> None:
    calls = [0]

    def err() -> None:
        calls[0] += 1
        if calls[0] == number:
            raise ValueError("it happened")

    def oracle(x: Any) -> Any:
        err()
        return 2 * x

    pairing = kt.oracle_for(double, x=kt.array("n", "float32"), dims=DIMS)(
        oracle if of == "oracle" else lambda x: 2 * x
    )
    items = plan_pairing(pairing, "t.py::p", resolve(["interpret"]), RunSettings(depth="quick")).items
    if of == "family":
        fill = type(next(iter(items[0].cases()))).fill
        patch = pytest.MonkeyPatch()
        patch.setattr(type(next(iter(items[0].cases()))), "fill", lambda case, made: (err(), fill(case, made))[1])
    cache = Cache()
    records = []
    try:
        for item in items:
            if with_key:
                find_key([item], cache)
            records += [outcome.record for outcome in run_item(item, cache)]
    finally:
        if of == "family":
            patch.undo()
    found = [record for record in records if record.verdict.is_finding]
    assert {record.verdict for record in found} == {Verdict.ORACLE_ERROR}
    assert all("ValueError" in record.message and "it happened" in record.message for record in found)


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    ("number", "said"),
    [
        *((number, "it must compute the same each time") for number in (2, 4, 12, 22)),
        *((-number, "raised ValueError the first time only: it happened") for number in (1, 2, 3)),  # on tracked arrays
    ],
)
@pytest.mark.parametrize("with_key", [False, True], ids=["judged", "fingerprinted"])
def test_an_oracle_that_errs_once_is_seen(number: int, said: str, with_key: bool) -> None:
    calls, tracked = [0], [0]

    def oracle(x: Any) -> Any:
        calls[0] += 1
        if not isinstance(x, np.ndarray):
            tracked[0] += 1
            if tracked[0] == -number:
                raise ValueError("it happened")
        return x * (3 if calls[0] == number else 2)

    pairing = kt.oracle_for(double, x=kt.array("n", "float32"), dims=DIMS)(oracle)
    items = plan_pairing(pairing, "t.py::p", resolve(["interpret"]), RunSettings(depth="quick")).items
    cache = Cache()
    if with_key:
        find_key(items, cache)
    records = [outcome.record for item in items for outcome in run_item(item, cache)]
    found = [record for record in records if record.verdict.is_finding]
    assert {record.verdict for record in found} == {Verdict.ORACLE_ERROR}
    assert said in found[0].message


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_kernel_that_raises_once_while_it_is_traced_is_seen(number: int) -> None:
    calls = [0]

    def kernel(x: jax.Array) -> Any:
        calls[0] += 1
        if calls[0] == number:
            raise ValueError("it happened")
        return double(x)

    try:
        result = kt.check(kt.oracle_for(kernel, x=kt.array("n", "float32"), dims=DIMS)(lambda x: 2 * x), depth="quick")
        said = [finding.message for finding in result.findings]
    except Failure as failure:  # while it was planned
        said = [str(failure)]
    assert said
    assert "ValueError" in said[0]
    assert "it happened" in said[0]


def test_a_kernel_that_is_wrong_only_where_numpy_has_subnormal_numbers_is_no_fault_of_kerneltest() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        x = x_ref[...]
        o_ref[...] = jnp.where((x != 0) & (jnp.abs(x) < 1e-38), 1.0, x)

    pairing = kt.oracle_for(lambda x: pl.pallas_call(body, out_shape=x)(x), x=kt.array("n", "float32"), dims=DIMS)
    result = kt.check(pairing(lambda x: x), depth="quick")
    assert result.ok
    assert "judged by JAX's interpreter" not in repr(result)


def test_where_only_numpy_s_evaluation_is_wrong_the_run_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run, calls = NumpyEvaluation.run_batch, [0]

    def run_batch(self: NumpyEvaluation, cases: Sequence[Any]) -> Any:
        calls[0] += 1
        return [tuple(output + (calls[0] == 1) for output in outputs) for outputs in run(self, cases)]

    monkeypatch.setattr(NumpyEvaluation, "run_batch", run_batch)
    result = kt.check(kt.oracle_for(double, x=kt.array("n", "float32"), dims=DIMS)(lambda x: 2 * x), depth="quick")
    found = [record for record in result.records if isinstance(record.detail, Contradicted)]
    assert result.ok
    assert found
    words = (
        f"{len(found)} case{'s' * (len(found) > 1)} judged by JAX's interpreter, since kerneltest's evaluation of the"
    )
    assert repr(result).count("judged by JAX's interpreter") == 1
    assert words in repr(result)
    of_jax = Contradicted("differs", "simulate:sm_90", "interpret")
    mixed = [replace(found[0], detail=of_jax, message=of_jax.text()), *found]
    remarks = contradiction_remarks(mixed)
    assert [remark.split(",")[0] for remark in remarks] == ["1 case judged by simulate:sm_90", words.split(",")[0]]
    assert [ISSUES in remark for remark in remarks] == [False, True]


def _moments_norm(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        values = x_ref[...].astype(jnp.float32)
        mean, square = (each.mean((0, 2), keepdims=True) for each in (values, values * values))
        o_ref[...] = ((values - mean) * jax.lax.rsqrt(square - mean * mean + 1e-5)).astype(o_ref.dtype)

    return pl.pallas_call(body, out_shape=x)(x)


def test_an_unstable_kernel_that_another_order_of_its_sums_makes_wrong_is_no_fault_of_kerneltest() -> None:
    def oracle(x: Any) -> Any:
        centred = x - x.mean((0, 2), keepdims=True)
        return centred / np.sqrt((centred * centred).mean((0, 2), keepdims=True) + 1e-5)

    pairing = kt.oracle_for(_moments_norm, x=kt.array("256 4 8", "float16"))(oracle)
    result = kt.check(pairing, backends=["interpret"], depth="quick", minimize=0)
    (remark,) = contradiction_remarks(result.records)
    assert "NumPy's order of the kernel's operations ends as mismatch: its formula is right, but loses" in remark
    assert ISSUES not in remark


@dataclass
class Batched:
    """An executable of a device that fails once, or at each case that has a number."""

    verdict: Verdict
    always: float = np.nan

    def run(self, leaves: Any) -> Any:
        if leaves[0] == self.always:
            raise Failure(self.verdict, "it happened")
        return leaves


@pytest.mark.parametrize(
    ("verdict", "always", "found"),
    [
        (Verdict.RUNTIME_ERROR, np.nan, "2 cases that ran at once ended as runtime_error: it happened"),
        (Verdict.OUT_OF_BOUNDS, np.nan, "2 cases that ran at once ended as out_of_bounds: it happened"),
        (Verdict.RUNTIME_ERROR, 2.0, ""),  # one of the cases is the cause
        (Verdict.RESOURCE_EXCEEDED, np.nan, ""),  # the batch was too large
    ],
)
def test_a_batch_that_fails_though_each_of_its_cases_runs_is_nondeterministic(
    verdict: Verdict, always: float, found: str
) -> None:
    pairing = kt.oracle_for(double, x=kt.array("n", "float32"), dims=DIMS)(lambda x: 2 * x)
    (item, *_) = plan_pairing(pairing, "t.py::p", resolve(["interpret"]), RunSettings(depth="quick")).items
    one, other, *_ = item.cases()
    inputs: dict[AnyCase, Any] = {one: (1.0,), other: (2.0,)}

    class Context:
        cache, case = Cache(), one

    def run() -> list[Any]:
        return _run_one_by_one(item.name, Context, Batched(verdict, always), inputs, Failure(verdict, "it happened"))  # type: ignore[arg-type]

    if found:
        with pytest.raises(Failure, match=found) as raised:
            run()
        assert raised.value.verdict is Verdict.NONDETERMINISTIC
    else:
        assert [isinstance(each, Failure) for each in run()] == [False, always == 2.0]


def test_a_drawn_case_that_fails_once_is_nondeterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    pairing = kt.oracle_for(double, x=kt.array("n", "float32"), dims=DIMS)(lambda x: 2 * x)
    settings = RunSettings(depth="quick", fuzz=4)
    planned = plan_pairing(pairing, "t.py::p", resolve(["interpret"]), settings).items
    item = next(each for each in planned if each.group.name == "fuzz")
    monkeypatch.setattr(fuzz_group, "_shrink", lambda item, case, *rest: case)
    calls = [0]

    def judge(case: AnyCase) -> Any:
        calls[0] += 1
        verdict = Verdict.MISMATCH if calls[0] == 2 else Verdict.PASS
        return fuzz_group.Outcome(item.record(verdict, "3 for 2" if calls[0] == 2 else "", case=case))

    outcomes = list(item.group.outcomes(item, list(item.cases()), Cache(), judge))
    (found,) = [outcome.record for outcome in outcomes if outcome.record.verdict.is_finding]
    assert found.verdict is Verdict.NONDETERMINISTIC
    assert "ended as mismatch, and then as pass: 3 for 2" in found.message
