"""Proofs as cases of a run: one for each choice, with its verdict and what it says in the record."""

import pytest

from kerneltest.backends.registry import resolve
from kerneltest.core.verdicts import GroupName, Verdict
from kerneltest.execute.cache import Cache
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_item
from kerneltest.execute.settings import RunSettings
from kerneltest.extensions.proofs import solver
from kerneltest.records.schema import Record
from tests.extensions.proofs.copies import RIGHT, UNDECIDED, WRONG, Copy


def _proof(copy: Copy) -> Record:
    pairing = copy.pairing()
    items = plan_pairing(pairing, "p", resolve(["simulate:sm_90"]), RunSettings.of(depth="quick", prove=True)).items
    (item,) = (item for item in items if item.group.name == GroupName.PROOFS)
    (outcome,) = run_item(item, Cache())
    return outcome.record


def test_a_proof_is_a_pass_that_says_what_was_proved() -> None:
    record = _proof(RIGHT[0])
    assert record.verdict is Verdict.PASS
    assert record.compared == 1
    assert "proved in bounds" in record.message
    assert record.seconds > 0


def test_a_counterexample_has_the_simulator_s_words_and_the_sizes() -> None:
    record = _proof(WRONG[0][0])
    assert record.verdict is Verdict.OUT_OF_BOUNDS
    assert "store at o_ref offset 1 of 1 elements by program (0)" in record.message
    assert "first found at n=1" in record.message


def test_what_is_not_decided_is_unavailable() -> None:
    record = _proof(UNDECIDED[0][0])
    assert record.verdict is Verdict.UNAVAILABLE
    assert "not decided: tt.load" in record.message


def test_without_z3_the_record_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "find_spec", lambda name: None)
    record = _proof(RIGHT[0])
    assert record.verdict is Verdict.UNAVAILABLE
    assert "pip install 'kerneltest[prove]'" in record.message


@pytest.mark.parametrize(("backend", "prove"), [("simulate:sm_90", False), ("interpret", True), ("lower:sm_90", True)])
def test_nothing_is_proved_unasked_or_elsewhere(backend: str, prove: bool) -> None:
    items = plan_pairing(RIGHT[0].pairing(), "p", resolve([backend]), RunSettings.of(depth="quick", prove=prove)).items
    assert items
    assert GroupName.PROOFS not in {item.group.name for item in items}
