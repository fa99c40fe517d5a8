"""Exceptions while the evidence of a finding is collected: they change no verdict."""

import pytest

import kerneltest as kt
from kerneltest.core.verdicts import Verdict
from tests.execute.test_exception_table import ORIGINS, Injection, make_pairing, without_injection

EVIDENCE = {
    "name the axes": "kerneltest.judge.mismatch_evidence.output_dims",
    "locate": "kerneltest.judge.mismatch_evidence.locate_mismatch",
    "diagnose": "kerneltest.judge.mismatch_evidence.diagnose",
    "list the inputs": "kerneltest.judge.mismatch_evidence.describe_special_inputs",
    "copy the inputs": "kerneltest.judge.mismatch_evidence.input_windows",
    "copy the output": "kerneltest.judge.mismatch_evidence.output_window",
    "compare the lowerings": "kerneltest.judge.mismatch_evidence.lowering_differences",
    "divide the bound": "kerneltest.execute.claims.budget_parts",
    "shrink": "kerneltest.localize.suspect_reduction.minimize",
    "localize": "kerneltest.localize.suspect_reduction.locate_fault",
}


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("phase", EVIDENCE)
def test_evidence_that_raises_changes_no_verdict(phase: str, origin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {record.case: record.verdict for record in without_injection("interpret", 3.0) if record.case}
    injection = Injection(monkeypatch, EVIDENCE[phase], origin)
    result = kt.check(make_pairing(3.0), backends=["interpret"], depth="quick", minimize=2)
    assert injection.raised
    assert {record.case: record.verdict for record in result.records if record.case} == before
    assert Verdict.MISMATCH in before.values()
    assert bool(result.internal_errors) is (origin == "kerneltest")
    assert all(record.case == "" for record in result.internal_errors)
    assert len(result.suspects) == 1
