"""Exceptions of the kernel, the oracle, JAX and kerneltest in each phase: the verdict, and the cases that it ends."""

from asyncio import CancelledError
from collections.abc import Iterable
from functools import cache, partial
from importlib import import_module
from pathlib import Path

import jax
import pytest

import kerneltest as kt
from kerneltest.core import processes
from kerneltest.core.failures import RecoveryWarning
from kerneltest.core.verdicts import GroupName, Verdict
from kerneltest.records.schema import Record
from tests.sample import whole

ORIGINS = {"kernel": "user_kernels", "oracle": "user_oracles", "JAX": "jax._src.injected", "kerneltest": "kerneltest.x"}

# The function that raises in each phase, the backend, and the verdict by who raised.
USERS, LOWERING = Verdict.RUNTIME_ERROR, Verdict.COMPILE_ERROR
ORACLES, LIMIT, OURS = Verdict.ORACLE_ERROR, Verdict.UNAVAILABLE, Verdict.INTERNAL_ERROR
RUN, LOWER = (USERS, USERS, USERS, OURS), (LOWERING, LOWERING, LOWERING, OURS)
PHASES = {
    "trace": ("kerneltest.trace.tracing.analyze", "interpret", (USERS, USERS, LIMIT, OURS)),
    "fill": ("kerneltest.plan.cases.fill_derived", "interpret", (ORACLES, ORACLES, ORACLES, OURS)),
    "oracle": ("kerneltest.oracle.evaluation.evaluate_oracle", "interpret", (ORACLES, ORACLES, ORACLES, OURS)),
    "check the oracle": ("kerneltest.oracle.evaluation._check_outputs", "interpret", (USERS, USERS, LIMIT, OURS)),
    "compile": ("kerneltest.backends.jitted.runnable", "interpret", (LOWERING, LOWERING, LIMIT, OURS)),
    "lower": ("kerneltest.backends.codegen.tiers.custom_calls", "lower:sm_90", (USERS, USERS, LIMIT, OURS)),
    "lower for a TPU": ("kerneltest.backends.tpu.tiers.module_bytes", "lower:tpu-v5e", (USERS, USERS, LIMIT, OURS)),
    "parse": ("kerneltest.backends.simulate.backend.parse_body", "simulate:sm_90", (USERS, USERS, LIMIT, OURS)),
    "simulate": ("kerneltest.backends.simulate.backend.output_arrays", "simulate:sm_90", (USERS, USERS, USERS, OURS)),
    "run": ("kerneltest.backends.jitted.jax.device_get", "interpret", (USERS, USERS, USERS, OURS)),
    "interpret for a TPU": (
        "kerneltest.backends.interpret_mosaic.run_filled",
        "interpret-tpu",
        (USERS, USERS, USERS, OURS),
    ),
    "judge": ("kerneltest.execute.claims.compare_outputs", "interpret", (USERS, USERS, LIMIT, OURS)),
    "round": ("kerneltest.numerics.rounding_bounds.spread_of", "interpret", (USERS, USERS, LIMIT, OURS)),
}


def make_pairing(factor: float = 2.0) -> kt.Pairing:
    """Returns the pairing of a kernel that multiplies by a factor with an oracle that doubles."""

    def doubled(x: jax.Array) -> jax.Array:
        return whole(lambda x_ref: x_ref[...] * factor, x, x)

    array = kt.array("n", "float32")
    return kt.oracle_for(doubled, x=array, dims=dict(n=kt.dim(values=(16,))))(lambda x: 2 * x)


@cache
def without_injection(backend: str, factor: float = 2.0) -> tuple[Record, ...]:
    return kt.check(make_pairing(factor), backends=[backend], depth="quick").records


class Injection:
    """A function that raises, after some calls, in place of another one."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, target: str, origin: str, after: int = 0, most: int = 10**9
    ) -> None:
        module, _, name = target.rpartition(".")
        owner = import_module(module) if not module.endswith(".jax") else jax
        self._left, self._most, self.raised = after, most, False
        # All frames belong to the origin.
        namespace = {"__name__": ORIGINS[origin], "original": getattr(owner, name), "is_due": self._is_due}
        folder = Path(jax.__file__).parent if origin == "JAX" else Path("injected")
        exec(compile(_RAISES, str(folder / "injected.py"), "exec"), namespace)
        monkeypatch.setattr(owner, name, namespace["run"])

    def _is_due(self) -> bool:
        self._left -= 1
        due = self._left < 0 and self._most > 0
        self._most -= due
        self.raised |= due
        return due


_RAISES = """
def run(*args, **keywords):
    if is_due():
        raise LookupError("injected")
    return original(*args, **keywords)
"""


@pytest.fixture(autouse=True)
def _forget() -> None:
    """Kernels of other tests are equal to these, and what is cached of them would not be computed again."""
    from kerneltest.backends.codegen.tiers import _lower_once
    from kerneltest.backends.tpu.tiers import lower_call

    _lower_once.cache_clear()
    lower_call.cache_clear()


def _cases(records: Iterable[Record]) -> int:
    return sum(bool(record.case) for record in records)


@pytest.mark.sweep(13)
@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("phase", PHASES)
def test_an_exception_ends_its_case_with_the_verdict_of_who_raised(
    phase: str, origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, backend, verdicts = PHASES[phase]
    expected = verdicts[list(ORIGINS).index(origin)]
    planned = _cases(without_injection(backend))
    injection = Injection(monkeypatch, target, origin)
    result = kt.check(make_pairing(), backends=[backend], depth="quick")
    assert injection.raised
    assert _cases(result.records) == planned or expected is LIMIT
    # A form of the kernel that JAX makes, as under vmap, need not run.
    ended = {record.verdict for record in result.records if record.group != GroupName.INVARIANTS}
    assert ended - {Verdict.PASS} == {expected}, result.records[0].message
    assert not result.ok or expected is LIMIT
    if expected is OURS:
        assert not result.findings
        assert not result.suspects
        message = result.internal_errors[0].message
        assert "kerneltest raised LookupError while" in message
        assert "injected" in message


@pytest.mark.parametrize("phase", [name for name, (_, backend, _) in PHASES.items() if backend == "interpret"])
def test_an_exception_costs_no_other_case(phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, backend, _ = PHASES[phase]
    planned = [record.case for record in without_injection(backend)]
    injection = Injection(monkeypatch, target, "kerneltest", 3, 1)
    result = kt.check(make_pairing(), backends=[backend], depth="quick")
    records = [record for record in result.records if record.case]
    assert [record.case for record in records] == planned
    passed = [record for record in records if record.verdict is Verdict.PASS]
    shared = {record.signature for record in records if record.verdict is not Verdict.PASS}  # trace and executable
    assert injection.raised or phase in ("trace", "compile", "run")
    assert all(r.verdict is Verdict.PASS for r in records if r.signature not in shared)
    assert len(passed) >= len(planned) - 1 or phase in ("trace", "compile")


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_group_that_raises_ends_the_cases_that_are_left(origin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = _cases(without_injection("interpret"))
    Injection(monkeypatch, "kerneltest.execute.value_groups.prepare_ahead", origin)
    result = kt.check(make_pairing(), backends=["interpret"], depth="quick")
    assert _cases(result.records) == planned
    expected = {"JAX": LIMIT, "kerneltest": OURS}.get(origin, USERS)
    assert expected in {record.verdict for record in result.records}


def test_an_exception_while_a_group_lists_its_cases_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    Injection(monkeypatch, "kerneltest.execute.runner.quarantine_reason", "kerneltest")
    result = kt.check(make_pairing(), backends=["interpret"], depth="quick")
    assert not result.ok
    assert not result.findings
    assert f"{len(result.internal_errors)} internal error" in repr(result).partition("\n")[0]


RECOVERIES = {
    "prepare the evaluation": "kerneltest.backends.interpret.BatchedKernel",
    "check the evaluation": "kerneltest.execute.batching.compare",
    "evaluate": "kerneltest.execute.batching.run_batched",
}


@pytest.mark.parametrize("phase", RECOVERIES)
def test_a_fast_path_that_raises_costs_no_verdict_and_is_told_once(
    phase: str, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    check = partial(kt.check, make_pairing(), backends=["interpret"], depth="quick")
    before = [record.verdict for record in check().records]
    monkeypatch.setattr(processes, "_shown_warnings", set())
    injection = Injection(monkeypatch, RECOVERIES[phase], "kerneltest", 0, 1)
    result = check()
    assert injection.raised
    assert [record.verdict for record in result.records] == before
    (warned,) = [each for each in recwarn if each.category is RecoveryWarning]
    assert "LookupError while" in str(warned.message)


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "outcome",
    [SystemExit(0), GeneratorExit(), CancelledError(), pytest.skip.Exception("no"), pytest.exit.Exception("no", 0)],
)
def test_a_kernel_that_leaves_while_it_is_traced_is_a_finding(outcome: BaseException) -> None:
    def leaves(x: jax.Array) -> jax.Array:
        raise outcome

    result = kt.check(kt.oracle_for(leaves, x=kt.array("n", "float32"))(lambda x: x), depth="quick")
    assert {record.verdict for record in result.records if record.case} == {Verdict.RUNTIME_ERROR}
