"""What users add in a conftest.py of their own: a right kernel passes it, and a broken one is found by it alone."""

import subprocess
from pathlib import Path

import pytest

from kerneltest.records.record_files import read_records
from kerneltest.records.schema import Record
from tests import forked
from tests.plugins import PLUGINS

ROOT = Path(__file__).parents[1]

CONFTEST = """
from dataclasses import dataclass, replace

import numpy as np

import kerneltest as kt


@kt.family(group="numeric", applies=lambda slot: slot.is_float_data)
def in_eighths(slot, rng):
    '''6 and 5 eighths.'''
    return slot.cast(np.full(slot.shape, 6.625))


@kt.family(group="numeric", applies=lambda slot: slot.is_float_data and slot.size == 1)
def careless(slot, rng):
    '''Forgets the dtype.'''
    return np.ones(slot.shape)


@kt.family(group="special", applies=lambda slot: slot.is_float_data and slot.size == 1)
def raising(slot, rng):
    '''Raises.'''
    raise IndexError("none left")


@kt.invariant(applies=lambda pairing, signature: "even" in pairing.name)
def negated(context):
    '''The function is even, so -x gives the same.'''
    checks = (kt.OutputCheck("of -x", context.by_oracle()),)
    yield kt.Variation(context.traced, tuple(-x for x in context.leaves), checks)


@kt.invariant(applies=lambda pairing, signature: "linear" in pairing.name)
def scaled(context):
    '''1024 times the input gives 1024 times the result.'''
    def smaller(outputs):
        return tuple(output / 1024 for output in outputs)
    leaves = tuple(1024 * x for x in context.leaves)
    yield kt.Variation(context.traced, leaves, (kt.OutputCheck("of 1024 x", context.as_plain_call(), take=smaller),))


@kt.invariant(applies=lambda pairing, signature: pairing.name == "faulty")
def dividing(context):
    '''Raises.'''
    yield 1 / 0


@kt.invariant(applies=lambda pairing, signature: pairing.name == "faulty")
def half_a_share(context):
    '''Takes less than it says.'''
    share = kt.OutputCheck("half", context.by_oracle(), take=lambda outputs: tuple(o[:1] for o in outputs))
    yield kt.Variation(context.traced, context.leaves, (share,))


@dataclass(frozen=True)
class Absolute:
    limit: float

    def misfit(self, leaves, dims):
        return "" if self.limit > 0 else "absolute(0) allows nothing: use kt.tolerance.exact()"

    def bounds(self, measured):
        return tuple(kt.Bound(np.full(value.shape, self.limit)) for value in measured.values)

    def __str__(self):
        return f"absolute({self.limit:g})"
"""

HEAD = """
import jax.numpy as jnp
import numpy as np

import kerneltest as kt
from conftest import Absolute
from tests.sample import elementwise

def paired(name, function, oracle, **more):
    def named(x):
        return oracle(x)
    named.__name__ = name
    kernel = lambda x: elementwise(function, x)
    options = dict(dims=dict(n=kt.dim(values=[3])), tolerance=kt.tolerance.exact()) | more
    return kt.oracle_for(kernel, x=kt.array("n", "float32", domain=(-8, 8)), **options)(named)
"""

SUITE = (
    HEAD
    + """
right = paired("right", lambda v: v + v, lambda x: 2 * x)
wrong_at_6_625 = paired("wrong_at_6_625", lambda v: v + v + (v == 6.625), lambda x: 2 * x)

even = paired("even", lambda v: v * v, lambda x: x * x, tolerance=kt.tolerance.conditioned())
linear = paired("linear", lambda v: v + v, lambda x: 2 * x)
linear_up_to_999 = paired("linear_up_to_999", lambda v: jnp.minimum(v + v, 999), lambda x: 2 * x)

near = paired("near", lambda v: jnp.tanh(v) + 1e-3, np.tanh, tolerance=Absolute(2e-3))
off = paired("off", lambda v: jnp.tanh(v) + 1e-2, np.tanh, tolerance=Absolute(2e-3))

short = paired("short", lambda v: v + v, lambda x: 2 * x, dims=dict(n=kt.dim(values=[1])))
faulty = paired("faulty", lambda v: v + v, lambda x: 2 * x)
"""
)


def _pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    options = ("--kt-backends", "interpret", "--kt-depth", "quick", "-p", "no:cacheprovider", "-q")
    return forked.run(folder, "pytest", *PLUGINS, *options, *arguments)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    folder = tmp_path_factory.mktemp("project")
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (folder / "test_suite.py").write_text(SUITE, encoding="utf-8")
    run = _pytest(folder, "--kt-report", "out")
    assert "INCOMPLETE" not in run.stdout, run.stdout
    assert "Error" not in run.stderr
    return list(read_records(folder / "out"))


def _of(records: list[Record], pairing: str) -> list[Record]:
    return [record for record in records if record.pairing == f"test_suite.py::{pairing}"]


def _found_by(records: list[Record], pairing: str) -> set[tuple[str, str]]:
    return {(record.family, record.verdict) for record in _of(records, pairing) if record.verdict.is_finding}


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("right", "family"), [("right", "in_eighths"), ("even", "negated"), ("linear", "scaled"), ("near", "normal")]
)
def test_a_right_kernel_passes_what_is_added(records: list[Record], right: str, family: str) -> None:
    assert _found_by(records, right) == set()
    (record,) = [record for record in _of(records, right) if record.family == family]
    assert (record.verdict, record.compared) == ("pass", 3)


def test_a_family_finds_what_no_other_does(records: list[Record]) -> None:
    assert _found_by(records, "wrong_at_6_625") == {("in_eighths", "mismatch")}


def test_an_invariant_finds_what_no_family_does(records: list[Record]) -> None:
    assert _found_by(records, "linear_up_to_999") == {("scaled", "mismatch")}
    (record,) = [record for record in _of(records, "linear_up_to_999") if record.verdict.is_finding]
    assert record.message.startswith("of 1024 x: ")
    assert record.group == "invariants"


def test_an_invariant_is_asked_of_pairings_to_which_it_applies(records: list[Record]) -> None:
    asked = {record.pairing for record in records if record.family == "negated"}
    assert asked == {"test_suite.py::even"}


def test_a_tolerance_model_judges_and_is_named(records: list[Record]) -> None:
    numeric = [record for name in ("near", "off") for record in _of(records, name) if record.group == "numeric"]
    assert {record.tolerance for record in numeric} == {"absolute(0.002)"}
    assert ("normal", "mismatch") in _found_by(records, "off")
    used = [record.bound_fraction for record in _of(records, "near") if record.family == "normal"]
    assert used[0] == pytest.approx(0.5, rel=0.01)


def test_a_family_or_an_invariant_at_fault_costs_its_cases_and_is_named(records: list[Record]) -> None:
    assert _found_by(records, "short") == {("careless", "oracle_error"), ("raising", "oracle_error")}
    assert _found_by(records, "faulty") == {("dividing", "runtime_error"), ("half_a_share", "runtime_error")}
    messages = {record.family: record.message for record in records if record.verdict.is_finding}
    careless = "family careless raised DeclarationError: it returned float64[1] instead of float32[1]"
    assert messages["careless"] == careless
    assert messages["raising"].startswith("family raising raised IndexError: none left (conftest.py:")
    assert messages["dividing"].startswith("dividing raised ZeroDivisionError while ")
    assert "half_a_share raised DeclarationError while " in messages["half_a_share"]


def test_a_model_that_does_not_fit_fails_at_collection(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    suite = HEAD + "nothing = paired('nothing', lambda v: v, lambda x: x, tolerance=Absolute(0))"
    (tmp_path / "test_suite.py").write_text(suite, encoding="utf-8")
    run = _pytest(tmp_path)
    assert "DeclarationError: pairing 'nothing', tolerance: absolute(0) allows nothing: use kt.tolerance.exact()" in (
        run.stdout
    )


@pytest.mark.parametrize(
    ("decorator", "name"),
    [("family(group='numeric')", "normal"), ("family(group='masks')", "random_mask"), ("invariant()", "vmapped")],
)
def test_a_name_of_kerneltests_own_is_refused(tmp_path: Path, decorator: str, name: str) -> None:
    taken = f"import kerneltest as kt\n@kt.{decorator}\ndef {name}(*_):\n    yield\n"
    (tmp_path / "conftest.py").write_text(taken, encoding="utf-8")
    run = _pytest(tmp_path)
    assert f"the name '{name}' is taken by kerneltest." in run.stderr
