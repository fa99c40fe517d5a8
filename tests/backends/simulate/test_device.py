"""The simulator agrees with the outputs of an H200 for cases of the suites, recorded by benchmarks/device_outputs.py.

They agree bit for bit if the IR defines every rounding: for kernels without a sum or a function, and for all structural
cases of the others whose arithmetic is exact. The order of sums and the device's exp and tanh are not defined. A sample
of the outputs of family `normal` may therefore differ by 2^-20 of the largest element (eight roundings of float32, for
a sum and a function) and by a rounding of the output's dtype; `COARSER` lists the kernels with larger differences.

The recording lacks the special and the other numeric families of kernels with a sum or a function, every depth but
quick, kernels that are not written for Triton, and the pairings that are `NEWER`.

Bugs that interpret mode cannot see are found and named, and their correct twins are not accused.
"""

import functools
from itertools import groupby
from pathlib import Path
from types import MappingProxyType

import jax
import numpy as np
import pytest

import kerneltest as kt
from benchmarks.device_outputs import (
    FIXTURE,
    SIMULATOR,
    Taken,
    arguments,
    chosen,
    digest,
    main,
    pairings,
    read,
    sample,
    taken,
    write,
)
from kerneltest.api import Result
from kerneltest.backends.base import Artifact, Executable
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import float_format
from kerneltest.plan.signatures import Signature
from kerneltest.trace.tracing import trace
from tests.memory_bugs import BUGS, Bug, N

FACTS, TAKEN = read(FIXTURE)
BY_PAIRING = {name: list(found) for name, found in groupby(TAKEN, key=lambda each: each.case.pairing_id)}
PAIRINGS = MappingProxyType(dict(pairings()))  # pytest would run the pairings of a dict as a suite
# Pairings without a recording. `python benchmarks/device_outputs.py` on a GPU records them.
NEWER = {name for name in PAIRINGS if name.startswith(("pipeline_", "hopper_"))}
# A weight whose exponential is off by an ulp may round to another TF32 number; 1,000 radians are off by 2^-15.
COARSER = {"attention.one_block": 2.0**-13, "attention.online": 2.0**-13, "rotary.rotated": 2.0**-17}


@functools.cache
def _computed(name: str) -> list[tuple[Taken, tuple[np.ndarray, ...]]]:
    (simulator,) = resolve([SIMULATOR])
    pairing, computed = PAIRINGS[name], []
    prepared: dict[Signature, Executable | Artifact] = {}
    for each in BY_PAIRING[name]:
        signature = each.case.signature
        if signature not in prepared:
            prepared[signature] = simulator.prepare(trace(pairing, signature))
        executable, leaves = prepared[signature], arguments(pairing, each.case)
        assert not isinstance(executable, Artifact)
        assert digest(leaves) == each.inputs, f"{_named(each)}: the device got other inputs: record its outputs again"
        computed.append((each, executable.run(leaves)))
    return computed


def _named(each: Taken) -> str:
    return f"{each.case.family.name} {each.case.target} {each.case.signature}"


def test_every_simulated_kernel_has_a_recording() -> None:
    simulated = {name for name, pairing in PAIRINGS.items() if next(chosen(name, pairing), None)}
    assert set(BY_PAIRING) == simulated - NEWER
    assert len(TAKEN) > 1_500
    assert FACTS["device"].startswith("NVIDIA H")
    assert FIXTURE.stat().st_size <= 100_000


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", [name for name, found in BY_PAIRING.items() if any(each.bits for each in found)])
def test_outputs_that_the_ir_defines_agree_bit_for_bit(name: str) -> None:
    for each, found in _computed(name):
        assert not each.bits or digest(found) == each.bits, _named(each)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", [name for name, found in BY_PAIRING.items() if any(each.sampled for each in found)])
def test_other_outputs_agree_within_a_rounding(name: str) -> None:
    for each, found in _computed(name):
        for theirs, ours in zip(each.sampled, map(sample, found) if each.sampled else (), strict=True):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), _named(each)
            got, expected = ours.astype(np.float64), theirs.astype(np.float64)
            part = COARSER.get(name, 2.0**-20) + 2 * float_format(ours.dtype).unit_roundoff
            bound = part * np.abs(expected).max(initial=0.0)
            assert np.abs(got - expected).max(initial=0.0) <= bound, _named(each)


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    (backend,) = resolve(["interpret"])
    found = [*taken("iota.blocked", PAIRINGS["iota.blocked"], backend), BY_PAIRING["softmax.fused"][0]]
    path = tmp_path / "taken.jsonl.gz"
    write(path, {"jax": "1"}, found)
    facts, again = read(path)
    assert facts == {"jax": "1"}
    assert [(each.case, each.inputs, each.bits) for each in again] == [(e.case, e.inputs, e.bits) for e in found]
    assert [digest(each.sampled) for each in again] == [digest(each.sampled) for each in found]
    assert found[0].bits
    assert found[-1].sampled


def test_only_outputs_of_a_device_are_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--backend", "interpret"])
    assert "is for what a device computed" in capsys.readouterr().err


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


@pytest.mark.sweep(10)
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


@pytest.mark.sweep(3)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_right_twin_is_not_accused(bug: Bug) -> None:
    result = _checked(bug, bug.right, ["interpret", *TARGETS])
    assert result.ok, result.findings[0].message


def test_there_are_enough_of_them() -> None:
    assert len(BUGS) >= 20
    assert {bug.verdict for bug in BUGS} == {"out_of_bounds", "race", "unwritten", "uninitialised"}
    assert all(isinstance(bug.oracle(np.arange(N)), np.ndarray) for bug in BUGS)
