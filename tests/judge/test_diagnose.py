"""Each rule is provoked by the mistake it names, and stays silent on others."""

from typing import Any

import numpy as np
import pytest

import kerneltest as kt
from kerneltest.judge.compare import compare
from kerneltest.judge.diagnose import Mismatch, diagnose, special_inputs
from kerneltest.judge.locate import Axis
from kerneltest.plan.signatures import signatures

M, N, K = 6, 16, 20


def _product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x @ y


DIMS = dict(m=kt.dim(values=(M,)), n=kt.dim(values=(N,)), k=kt.dim(values=(K,), block=8))
_PAIRINGS = {}  # in a dict, since pytest would run pairings of a module as a suite
_PAIRINGS["dot"] = kt.oracle_for(
    _product, x=kt.array("m k", "float32"), y=kt.array("k n", "float32"), dims=DIMS, tolerance=kt.tolerance.dot("k")
)(_product)
TILED = dict(m=kt.dim(values=(M,)), n=kt.dim(values=(N,), block=4))


def _masked(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return np.where(mask, x, 0)


_PAIRINGS["masked"] = kt.oracle_for(_masked, x=kt.array("m n", "float32"), mask=kt.mask("m n"), dims=TILED)(_masked)
RNG = np.random.default_rng(0)
X, Y = RNG.integers(-9, 9, (M, K)).astype(np.float32), RNG.integers(-9, 9, (K, N)).astype(np.float32)
A = (np.arange(M * N).reshape(M, N) + 1).astype(np.float32)
MASK = RNG.random((M, N)) < 0.5


def _diagnosed(name: str, arguments: dict[str, Any], actual: np.ndarray, *, interpreted: bool = True) -> str:
    pairing = _PAIRINGS[name]
    expected = np.asarray(pairing(**{k: v.astype(np.float64) if v.dtype != bool else v for k, v in arguments.items()}))
    comparison = compare(actual, expected, np.zeros(expected.shape), signed_zeros=False)
    assert comparison.wrong.any()
    axes = (Axis("m", M, None), Axis("n", N, 4))
    signature = signatures(pairing, "quick")[0]
    return diagnose(Mismatch(pairing, signature, arguments, 0, comparison, axes, interpreted))


def _lacking(block: slice, factor: float = 0) -> np.ndarray:
    x = X.copy()
    x[:, block] *= factor
    return x @ Y


def _with(values: np.ndarray, at: Any, value: Any) -> np.ndarray:
    changed = values.copy()
    changed[at] = value
    return changed


DOTS = dict(x=X, y=Y)
COPY = dict(x=A, mask=np.ones((M, N), bool))


@pytest.mark.parametrize(
    ("name", "arguments", "actual", "words"),
    [
        ("dot", DOTS, _lacking(slice(16, 20)), "the sum lacks the last block of k (from 16 to 20)"),
        ("dot", DOTS, _lacking(slice(0, 8)), "the sum lacks the first block of k (from 0 to 8)"),
        ("dot", DOTS, _lacking(slice(16, 20), 2), "the sum counts twice the last block of k (from 16 to 20)"),
        ("dot", DOTS, _lacking(slice(8, 16)), ""),
        ("dot", DOTS, _with(X @ Y, 3, np.nan), "NaN though no argument holds one"),
        ("dot", dict(x=_with(X, (0, 0), np.nan), y=Y), _with(X @ Y, 3, np.nan), ""),
        ("masked", dict(x=A, mask=MASK), A, "only where mask is false"),
        ("masked", dict(x=A, mask=MASK), np.where(MASK, A + 1, 5).astype(np.float32), ""),
        ("masked", COPY, 3 * A, "each is 3 times what it should be"),
        ("masked", COPY, A / 8, "each is 0.125 times what it should be"),
        ("masked", COPY, 3 * A + 1, ""),
        ("masked", COPY, A * np.float32(1 + 2.0**-21), ""),
        ("masked", COPY, np.concatenate([A[:, 4:8], A[:, :4], A[:, 8:]], 1),
         "blocks of n are permuted: block 0 holds block 1's, block 1 holds block 0's"),
        ("masked", dict(x=A * 10, mask=COPY["mask"]), np.minimum(A * 10, 256).astype(np.float32),
         "sums stop growing at about 256: they are accumulated in bfloat16"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_or_nothing_is_claimed(
    name: str, arguments: dict[str, Any], actual: np.ndarray, words: str
) -> None:
    found = _diagnosed(name, arguments, actual)
    assert found.startswith(words)
    assert bool(found) is bool(words)


def test_what_nobody_wrote_is_named_on_interpret_mode_alone() -> None:
    holes = _with(X @ Y, (slice(None), slice(12, 16)), np.nan)
    assert _diagnosed("dot", DOTS, holes)
    assert _diagnosed("dot", DOTS, holes, interpreted=False) == ""


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (_with(X, (3, 5), np.nan), "x[3, 5] is nan"),
        (_with(_with(X, (0, 1), np.inf), (2, 2), -np.inf), "x[0, 1] is inf; x[2, 2] is -inf"),
        (_with(X, 1, -np.inf), "x holds 20 NaNs or infinities"),
        (X, ""),
    ],
)
def test_the_special_values_among_the_inputs_are_named(x: np.ndarray, words: str) -> None:
    assert special_inputs({"x": x, "mask": MASK}) == words


def test_a_finding_carries_its_diagnosis() -> None:
    from tests.broken import BROKEN

    broken = next(b for b in BROKEN if b.name == "the last step of k is skipped")
    findings = kt.check(broken.broken(), depth="quick").findings
    diagnoses = [f.record.evidence.diagnosis for f in findings if f.record.evidence is not None]
    assert any(words.startswith("the sum lacks the last block of k") for words in diagnoses)
    assert any("\nthe sum lacks the last block of k" in finding.message for finding in findings)
