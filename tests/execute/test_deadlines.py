"""Code that never ends, wherever it is called: while a pairing is planned, in a case, or in a case that runs again."""

import faulthandler
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.backends.registry import resolve
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.core.work_budget import JUDGED
from kerneltest.declare.pairing import Pairing
from kerneltest.execute import cache, planning
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.kernel_numbers import kernel_numbers, sum_formats
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_single_case
from kerneltest.execute.settings import RunSettings
from kerneltest.execute.value_groups import ValueGroup, affordable_long_signatures
from kerneltest.execute.watchdog import limit_time
from kerneltest.plan.explicit import AnyCase, ExplicitCase
from kerneltest.plan.signatures import Signature, signatures
from kerneltest.records.journal import Journal, Phase
from kerneltest.trace.tracing import trace
from tests.late import be_late, watched_closely

__all__ = ["watched_closely"]

SECONDS = 100  # far more than any step takes that ends

pytestmark = pytest.mark.usefixtures("watched_closely")


def _loop() -> None:
    be_late()
    while True:
        pass


def _sleep() -> None:
    be_late()
    time.sleep(9999)


def _wait() -> None:
    be_late()
    threading.Event().wait()


def _compute() -> None:
    be_late()
    while True:
        jnp.sin(1.0)


def _generate() -> Iterator[int]:
    while True:
        yield 1


def _sum() -> None:
    be_late()
    sum(_generate())


def _swallow() -> None:
    try:
        _sleep()
    except Exception as error:
        raise ValueError("a reason of its own") from error


class _Endless:
    def __str__(self) -> str:
        _sleep()
        return ""


def _double(x: jax.Array, before: Callable[[], object] = int) -> jax.Array:
    before()

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


def _pairing(kernel: Callable[..., Any], oracle: Callable[..., Any] = lambda x: x * 2, **declared: Any) -> Pairing:
    pair = kt.oracle_for(kernel, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(3, 5))), **declared)
    return pair(oracle)


_DECLARED: list[bool] = []


def _holds(n: int) -> bool:
    if _DECLARED:  # the declaration itself is a part of the module's import
        _sleep()
    return True


PLANNED = {
    **{
        each.__name__: (_pairing(lambda x, each=each: _double(x, each)), "tracing the kernel")
        for each in (_loop, _sleep, _wait, _compute, _sum, _swallow)
    },
    "a static argument's text": (_pairing(lambda x, mode: _double(x, lambda: f"{mode}"),
                                          lambda x, mode: x * 2, mode=kt.static(end=_Endless())), "tracing the kernel"),
    "where=": (_pairing(_double, where=_holds), "planning the cases"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANNED)
def test_a_pairing_that_hangs_while_it_is_planned_ends_as_a_hang(name: str) -> None:
    pairing, phase = PLANNED[name]
    _DECLARED[:] = [True]
    result = kt.check(pairing, depth="quick", timeout=SECONDS)
    (found,) = result.findings
    assert (found.verdict, found.family) == (Verdict.HANG, "*")
    place = rf"{re.escape(Path(__file__).name)}:\d+"
    assert re.fullmatch(rf"no answer within {SECONDS} s while {phase} \(.*{place}\)", found.message)
    assert not result.ok


def _hang(x: jax.Array) -> jax.Array:
    raise Failure(Verdict.HANG, "no answer")  # as the watchdog raises it


def _hang_beside(x: jax.Array, y: jax.Array) -> jax.Array:
    return _hang(x)


def _hang_elsewhere(x: jax.Array) -> jax.Array:
    if jax.default_backend() == "cpu":
        raise ValueError("not on a CPU")
    return _hang(x)


def _planned(kernel: Callable[..., Any], **more: Any) -> tuple[Pairing, Signature]:
    pairing = kt.oracle_for(kernel, x=kt.array("n", "float32"), **more)(lambda x, y=0: x * 2)
    return pairing, signatures(pairing, "quick")[0]


PLANS: dict[str, Callable[[], object]] = {
    "numbers": lambda: kernel_numbers(*_planned(_hang)),
    "sums": lambda: sum_formats(*_planned(_hang)),
    "work": lambda: affordable_long_signatures(_planned(_hang)[0], "standard"),
    "platforms": lambda: trace(*_planned(_hang_elsewhere)),
}


@pytest.mark.parametrize("name", PLANS)
def test_what_plans_by_a_kernel_s_trace_passes_a_hang_on(name: str) -> None:
    with pytest.raises(Failure) as raised:
        PLANS[name]()
    assert raised.value.verdict is Verdict.HANG
    assert str(raised.value) == "no answer"


def test_in_the_user_s_process_the_timer_of_faulthandler_is_the_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as that of pytest's `faulthandler_timeout`."""
    used: list[str] = []
    for name in ("dump_traceback_later", "cancel_dump_traceback_later"):
        monkeypatch.setattr(faulthandler, name, lambda *args, name=name, **more: used.append(name))
    pairing = _pairing(_double)
    assert kt.check(pairing, depth="quick").ok
    signature = signatures(pairing, "quick")[0]
    kt.assert_conforms(pairing, ExplicitCase(pairing.name, signature, {"x": np.ones(signature.dims[0][1], np.float32)}))
    assert not used
    with limit_time(Journal(), SECONDS):
        pass
    assert len(used) == 2


def test_each_trace_and_each_group_of_a_plan_is_a_step_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a plan of many steps, each within the time limit, is no hang."""
    journal, traces, groups = Journal(), list[tuple[Phase, float]](), list[float]()

    def kernel(x: jax.Array) -> jax.Array:
        traces.append((journal.phase, journal.changed))
        return _double(x)

    class Noting(ValueGroup):
        def cases(self, item: Item) -> Iterator[AnyCase]:
            groups.append(journal.changed)
            return super().cases(item)

    registered = [*planning.ALL_GROUPS.entries(), Noting("structural"), Noting("special")]
    monkeypatch.setattr(planning.ALL_GROUPS, "entries", lambda: registered)
    pairing, _ = _planned(kernel)
    settings = RunSettings(depth="standard", timeout=SECONDS)
    plan_pairing(pairing, "t.py::p", resolve(["interpret", "simulate:sm_90"]), settings, journal)
    assert len(traces) > 1
    assert {phase for phase, _ in traces} == {Phase.TRACING}
    assert len({since for _, since in traces}) == len(traces)
    assert len(set(groups)) == len(groups) > 3


def test_a_case_that_is_judged_by_itself_ends_as_a_hang() -> None:
    """Such as one that `kerneltest repro` or `kt.assert_conforms` judges."""
    calls: list[None] = []

    def oracle(x: np.ndarray) -> np.ndarray:
        if calls:
            _sleep()
        return x * 2

    pairing = _pairing(_double, oracle)
    settings = RunSettings(depth="quick", timeout=SECONDS)
    (item, *_) = plan_pairing(pairing, "t.py::p", resolve(["interpret"]), settings).items
    calls.append(None)
    record = run_single_case(item, next(item.cases()), Cache()).record
    assert record.verdict is Verdict.HANG, record.message
    assert "test_deadlines.py:" in record.message


@pytest.mark.parametrize("drops", [1, 2])
def test_a_hang_that_compiled_code_drops_is_raised_again(drops: int) -> None:
    dropped: list[Exception] = []

    def dropping(x: jax.Array) -> jax.Array:
        be_late()
        while True:
            try:
                time.sleep(9999)
            except Exception as error:  # as the destructors and callbacks that compiled code calls
                if len(dropped) == drops:
                    raise
                dropped.append(error)

    (found,) = kt.check(_pairing(dropping), depth="quick", timeout=SECONDS).findings
    assert found.verdict is Verdict.HANG
    assert len(dropped) == drops


@pytest.mark.parametrize(("left", "share"), [(20.0, 1.0), (0.75, 0.75), (-0.25, -0.25)])
def test_evidence_of_a_finding_has_at_most_a_second_of_the_work_that_is_left(left: float, share: float) -> None:
    limits = cache.EvidenceLimits(Cache().process, left)
    found: list[str] = []
    with suppress(MemoryError), limits.guard() as guard:
        assert guard.failures is limits.process.internal_failures
        for work in (0.0, 0.5, 0.25, 0.25):
            guard.budget.spend(work)
            found.append(guard.collect("looking for evidence", lambda: "found", "left out"))
        raise MemoryError  # the work is spent, however it ends
    assert found == ["found" if spent < share else "left out" for spent in (0.0, 0.5, 0.75, 1.0)]
    assert limits.work == pytest.approx(left - 1.0 - JUDGED)
