"""The simulator agrees with the outputs of an H200 for cases of the suites, recorded by benchmarks/device_outputs.py.

They agree bit for bit if the IR defines every rounding: for kernels without a sum or a function, and for all structural
cases of the others whose arithmetic is exact. The order of sums and the device's exp and tanh are not defined. A sample
of the outputs of family `normal` may therefore differ by 2^-20 of the largest element (eight roundings of float32, for
a sum and a function) and by a rounding of the output's dtype; `COARSER` lists the kernels with larger differences.

The recording lacks the special and the other numeric families of kernels with a sum or a function, every depth but
quick, kernels that are not written for Triton, and the pairings that are `NEWER`.
"""

import functools
from itertools import groupby
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

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
from kerneltest.backends.base import Artifact, Executable
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import float_format
from kerneltest.plan.signatures import Signature
from kerneltest.trace.tracing import trace

FACTS, TAKEN = read(FIXTURE)
BY_PAIRING = {name: list(found) for name, found in groupby(TAKEN, key=lambda each: each.case.pairing_id)}
PAIRINGS = MappingProxyType(dict(pairings()))  # pytest would run the pairings of a dict as a suite
# Pairings without a recording. `python benchmarks/device_outputs.py` on a GPU records them.
NEWER = {name for name in PAIRINGS if name.startswith(("pipeline_", "hopper_", "in_triton.", "mosaic_rows."))}
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
