"""Right kernels are proved, wrong ones get a counterexample that the simulator confirms, and others a reason."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kerneltest as kt
from kerneltest.core.targets import TARGETS
from kerneltest.extensions.proofs.proof_search import ProofKind, choices, prove_choice
from tests.corpus import TWINS
from tests.execute.test_addresses import COLUMNS, _flat
from tests.extensions.proofs.copies import RIGHT, UNDECIDED, WRONG, Copy

ROOT = Path(__file__).parents[3]


def _name(given: Any) -> str:
    return given.name if isinstance(given, Copy) else ""


@pytest.mark.parametrize("copy", RIGHT, ids=_name)
def test_a_right_kernel_is_proved(copy: Copy) -> None:
    (proof,) = kt.prove(copy.pairing())
    assert proof.kind is ProofKind.PROVED, str(proof)
    assert "as at the" in str(proof)


@pytest.mark.parametrize(("copy", "verdict", "words"), WRONG, ids=_name)
def test_a_wrong_kernel_gets_a_counterexample(copy: Copy, verdict: str, words: str) -> None:
    (proof,) = kt.prove(copy.pairing())
    assert proof.counterexample is not None, str(proof)
    assert proof.counterexample.verdict == verdict
    assert words in str(proof)


@pytest.mark.parametrize(("copy", "words"), UNDECIDED, ids=_name)
def test_what_cannot_be_followed_is_named(copy: Copy, words: str) -> None:
    (proof,) = kt.prove(copy.pairing())
    assert proof.kind is ProofKind.NOT_DECIDED, str(proof)
    assert words in proof.reason
    assert "copies.py:" in proof.reason


@pytest.mark.parametrize(("maximum", "kind"), [(2**33, ProofKind.COUNTEREXAMPLE), (2**30, ProofKind.PROVED)])
def test_a_product_that_wraps_is_found_where_the_declaration_admits_it(maximum: int, kind: ProofKind) -> None:
    declared = kt.oracle_for(
        _flat, x=kt.array("n", "float32"), dims={"n": kt.dim(multiple_of=COLUMNS, maximum=maximum)}
    )
    (proof,) = kt.prove(declared(lambda x: x))
    assert proof.kind is kind, str(proof)
    if kind is ProofKind.COUNTEREXAMPLE:
        assert "an index wraps around: 65,536 x 65,536 is past 2^31" in str(proof)


def test_a_proof_says_under_which_conditions_it_holds() -> None:
    (proof,) = kt.prove(RIGHT[0].pairing())
    said = str(proof)
    assert "float32, and n is declared in blocks of 16" in said
    assert "n from 1" in said
    assert "every array has fewer than 2^31 elements" in said


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(ValueError, match="sm_90"):
        kt.prove(RIGHT[0].pairing(), target="sm_1")


def test_pytest_does_not_import_z3() -> None:
    code = "import sys, kerneltest.pytest_plugin.hooks, kerneltest.execute.planning; print('z3' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_the_page_shows_what_is_said() -> None:
    wrong = TWINS["vector_add.blocked: the mask is <= and not <"]
    proof, counterexample = (
        prove_choice(pairing, choices(pairing)[0], TARGETS["sm_90"])[0] for pairing in (wrong.right(), wrong.broken())
    )
    page = re.sub(r"[\d.]+ s,", "", (ROOT / "docs" / "proofs.md").read_text(encoding="utf-8"))
    for said in (proof, counterexample):
        assert re.sub(r"[\d.]+ s,", "", str(said)) in page
