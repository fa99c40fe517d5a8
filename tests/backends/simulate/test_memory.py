"""Bugs that interpret mode cannot see are found and named by the simulator, and their right twins are not accused."""

import jax
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.api import Result
from tests.memory_bugs import BUGS, Bug, N

TARGETS = ["simulate:sm_90", "simulate:gfx942"]
MASKED_BY_JAX = jax.__version_info__ >= (0, 12)


def _pairing(bug: Bug, kernel: object) -> kt.Pairing:
    declare = kt.oracle_for(
        kernel,  # type: ignore[arg-type]
        x=kt.array("n", bug.dtype, domain=(-20, 140) if bug.dtype == "int32" else None),
        dims=dict(n=kt.dim(values=(N,))),
    )
    return declare(bug.oracle)


def _checked(bug: Bug, kernel: object, backends: list[str]) -> Result:
    return kt.check(_pairing(bug, kernel), backends=backends, depth="quick")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_simulator_sees_what_interpret_mode_does_not(bug: Bug) -> None:
    if bug.name == "a block's tail left to the BlockSpec" and MASKED_BY_JAX:
        assert _checked(bug, bug.wrong, TARGETS).ok
        return
    interpreted = _checked(bug, bug.wrong, ["interpret"])
    # Where memory is poisoned on purpose, interpret mode sees some of them too.
    assert not [f.message for f in interpreted.findings if f.record.group != "invariants"]
    found = _checked(bug, bug.wrong, TARGETS).findings
    for target in TARGETS:
        messages = [finding.message for finding in found if finding.backend == target]
        assert {finding.verdict for finding in found if finding.backend == target} == {bug.verdict}, messages[:1]
        assert any(bug.words in message for message in messages), messages[:1]
        assert any("memory_bugs.py:" in message for message in messages) or bug.verdict == "unwritten"


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_right_twin_is_not_accused(bug: Bug) -> None:
    result = _checked(bug, bug.right, ["interpret", *TARGETS])
    assert result.ok, result.findings[0].message


def test_there_are_enough_of_them() -> None:
    assert len(BUGS) >= 20
    assert {bug.verdict for bug in BUGS} == {"out_of_bounds", "race", "unwritten", "uninitialised"}
    assert all(isinstance(bug.oracle(np.arange(N)), np.ndarray) for bug in BUGS)
