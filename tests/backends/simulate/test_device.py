"""The simulator against what an H200 computed for every case of the suites at depth quick (reports/h200).

Bit for bit where the IR defines every rounding: the kernels without a sum or a function, and every structural case of
the others whose arithmetic is exact. Elsewhere the order of sums and the device's exp and tanh are not defined; there
the outputs of family `normal` may differ by a rounding of each: 2^-20 of the largest element (eight roundings of
float32: a sum and a function), and a rounding of the output's dtype.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from benchmarks.device_outputs import ROOT, canonical, digest, outputs, pairings
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import float_format
from kerneltest.jaxprs.trace import trace
from kerneltest.plan.cases import Case

TAKEN = ROOT / "reports" / "h200"
DIGESTS: Mapping[str, Mapping[str, str]] = json.loads((TAKEN / "digests.json").read_text(encoding="utf-8"))["digests"]
SIMULATED = {name: pairing for name, pairing in pairings() if name in DIGESTS and "pipeline" not in name}
# The device was asked before there were these.
NEWER = {"below_sentinels", "signed_zeros_everywhere", "wide_magnitudes"}
DEFINED = {"iota.grid", "iota.blocked", "vector_add.whole", "vector_add.blocked"}


@functools.cache
def _computed(name: str) -> dict[Case, tuple[np.ndarray, ...]]:
    (backend,) = resolve(["simulate:sm_90"])
    return dict(outputs(SIMULATED[name], backend))


def test_the_records_cover_every_kernel_that_is_simulated() -> None:
    assert len(SIMULATED) >= 13
    assert {name.partition(".")[0] for name in SIMULATED} == {
        "vector_add",
        "iota",
        "matmul",
        "batched_matmul",
        "softmax",
    }
    assert Path(TAKEN, "normal.npz").stat().st_size < 2**21


@pytest.mark.parametrize("name", SIMULATED)
def test_what_the_ir_defines_agrees_bit_for_bit(name: str) -> None:
    pairing = SIMULATED[name]
    compared = 0
    for case, found in _computed(name).items():
        exact = case.family.group == "structural" and trace(pairing, case.signature).exact
        if (name in DEFINED or exact) and case.family.name not in NEWER:
            assert digest(found) == DIGESTS[name][case.id], (case.family.name, str(case.signature))
            compared += 1
    assert compared or name.startswith("softmax")


@pytest.mark.parametrize("name", [name for name in SIMULATED if not name.startswith("iota")])
def test_the_rest_agrees_within_a_rounding(name: str) -> None:
    compared = 0
    with np.load(TAKEN / "normal.npz", allow_pickle=False) as taken:
        for case, found in _computed(name).items():
            if case.family.name != "normal":
                continue
            for i, ours in enumerate(found):
                theirs = taken[f"{case.id}.{i}.{ours.dtype.name}"].view(ours.dtype).astype(np.float64)
                largest = np.abs(theirs).max(initial=0.0)
                bound = (2.0**-20 + 2 * float_format(ours.dtype).unit_roundoff) * largest
                assert np.abs(canonical(ours).astype(np.float64) - theirs).max(initial=0.0) <= bound, str(
                    case.signature
                )
                compared += ours.size
    assert compared
