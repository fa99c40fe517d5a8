"""Who raised an exception, from its traceback."""

import functools
from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest

from kerneltest.core.details import InternalError
from kerneltest.core.failures import (
    DeclarationError,
    Failure,
    Guard,
    Origin,
    assign_blame,
    iter_causes,
    origin_of,
    raises_for_user,
    underlying_exception,
)
from kerneltest.core.verdicts import Verdict
from kerneltest.core.work_budget import WorkBudget
from kerneltest.trace.jax_compat.source_lines import equations_being_lowered


def code_of(module: str, body: str = "raise ValueError('wrong')") -> Callable[..., None]:
    namespace: dict[str, object] = {"__name__": module, "np": np, "DeclarationError": DeclarationError}
    exec(compile(f"def run(inner=None):\n    {body}", f"/{module}.py", "exec"), namespace)
    return namespace["run"]  # type: ignore[return-value]


CALLS = "inner()"
OURS, USERS, JAXS, NUMPYS = "kerneltest.judge.injected", "user_kernels", "jax._src.injected", "numpy.injected"


@pytest.mark.parametrize(
    ("modules", "origin"),
    [
        ((OURS,), Origin.KERNELTEST),
        ((OURS, NUMPYS), Origin.KERNELTEST),
        ((OURS, USERS), Origin.USER),
        ((OURS, USERS, NUMPYS), Origin.USER),
        ((OURS, JAXS), Origin.JAX),
        ((OURS, JAXS, NUMPYS), Origin.JAX),
        ((OURS, USERS, JAXS), Origin.USER),
        ((OURS, JAXS, USERS), Origin.USER),
        ((OURS, USERS, JAXS, OURS), Origin.KERNELTEST),
        ((OURS, USERS, "kerneltest.declare.injected"), Origin.USER),
        ((OURS, "kerneltest.declare.injected"), Origin.KERNELTEST),
        ((OURS, USERS, "kerneltest.numerics.injected"), Origin.KERNELTEST),
    ],
    ids=lambda value: ">".join(each.partition(".")[0] for each in value) if isinstance(value, tuple) else None,
)
def test_the_innermost_frame_that_is_not_a_librarys_decides(modules: tuple[str, ...], origin: Origin) -> None:
    functions = [code_of(module, CALLS) for module in modules[:-1]]
    assert origin_of(_raised(functions, code_of(modules[-1]))) is origin


def _raised(functions: list[Callable[..., None]], last: Callable[..., None]) -> Exception:
    for function in reversed(functions):
        last = functools.partial(function, last)  # which has no frame of its own
    try:
        last()
    except ValueError as error:
        return error
    raise AssertionError("nothing raised")


def test_numpy_called_with_wrong_values_is_its_callers_fault() -> None:
    assert origin_of(_raised([], code_of(OURS, "np.zeros(2) + np.zeros(3)"))) is Origin.KERNELTEST
    assert origin_of(_raised([], code_of(USERS, "np.zeros(2) + np.zeros(3)"))) is Origin.USER


def test_a_declaration_that_is_wrong_is_the_users_whoever_notices() -> None:
    assert origin_of(_raised([], code_of(OURS, "raise DeclarationError('no such dim')"))) is Origin.USER


def _cycle(attribute: str, *errors: BaseException) -> BaseException:
    for error, cause in zip(errors, (*errors[1:], errors[0]), strict=True):
        setattr(error, attribute, cause)
    return errors[0]


@pytest.mark.parametrize("attribute", ["__cause__", "__context__"])
@pytest.mark.parametrize("length", [2, 3])
def test_each_exception_of_a_cycle_is_looked_at_once(attribute: str, length: int) -> None:
    errors = [ValueError(str(i)) for i in range(length)]
    first = _cycle(attribute, *errors)
    assert list(islice(iter_causes(first, contexts=True), 99)) == errors
    assert equations_being_lowered(first) == []


def test_failures_that_cause_each_other_come_from_nothing_else() -> None:
    one, other = Failure(Verdict.CRASH, "one"), Failure(Verdict.CRASH, "other")
    assert underlying_exception(_cycle("__cause__", one, other)) is None
    assert assign_blame(one, "running") is one


def test_a_call_of_user_code_with_wrong_arguments_is_the_users() -> None:
    call = code_of(OURS, CALLS)
    with pytest.raises(TypeError) as caught:
        call(lambda needed: needed)
    assert origin_of(caught.value) is Origin.KERNELTEST
    raises_for_user(call)
    assert origin_of(caught.value) is Origin.USER


@pytest.mark.parametrize(
    ("module", "verdict"),
    [(OURS, Verdict.INTERNAL_ERROR), (USERS, Verdict.RUNTIME_ERROR), (JAXS, Verdict.UNAVAILABLE)],
)
def test_a_verdict_follows_from_who_raised(module: str, verdict: Verdict) -> None:
    failure = assign_blame(_raised([code_of(OURS, CALLS)], code_of(module)), "judging its outputs")
    assert failure.verdict is verdict
    assert "judging its outputs" in str(failure)
    assert "ValueError" in str(failure)
    assert "wrong" in str(failure)


def test_a_failure_keeps_its_verdict_unless_kerneltest_raised_its_cause() -> None:
    stated = Failure(Verdict.RACE, "two programs write one element")
    assert assign_blame(stated, "running") is stated
    for module, verdict in ((USERS, Verdict.ORACLE_ERROR), (OURS, Verdict.INTERNAL_ERROR)):
        failure = Failure(Verdict.ORACLE_ERROR, "the oracle raised")
        failure.__cause__ = _raised([], code_of(module))
        assert assign_blame(failure, "evaluating the oracle").verdict is verdict


def test_too_little_memory_is_the_machines_limit() -> None:
    with pytest.raises(MemoryError) as caught:
        code_of(OURS, "raise MemoryError")()
    failure = assign_blame(caught.value, "judging its outputs")
    assert (failure.verdict, str(failure)) == (
        Verdict.UNAVAILABLE,
        "this machine has too little memory for judging its outputs",
    )


def test_an_internal_error_says_where_and_what_to_report() -> None:
    detail = assign_blame(_raised([], code_of(OURS)), "judging its outputs").detail
    assert isinstance(detail, InternalError)
    first, second = detail.text().splitlines()
    assert first == "kerneltest raised ValueError while judging its outputs: wrong (/kerneltest.judge.injected.py:2)"
    assert second.startswith("This is not the kernel's fault. Please report it at https://github.com/")
    assert "injected.py:2 in run" in detail.report_text()


def test_evidence_that_raises_or_exceeds_its_budget_is_left_out() -> None:
    failures: list[Failure] = []
    guard = Guard(failures, WorkBudget(60))
    assert guard.collect("counting", lambda: 3, 0) == 3
    assert guard.collect("counting", code_of(USERS), None) is None
    assert failures == []
    assert guard.collect("counting", code_of(OURS), None) is None
    assert [failure.verdict for failure in failures] == [Verdict.INTERNAL_ERROR]
    assert Guard(failures, WorkBudget(0)).collect("counting", lambda: 3, 0) == 0
    with pytest.raises(OSError, match="full"):
        guard.collect("saving", code_of(OURS, "raise OSError('full')"), None, OSError)
