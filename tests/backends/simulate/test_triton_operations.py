"""Operations that only Triton's own frontend emits: the simulator computes what NumPy does."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt

triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402 - after it is known that there is Triton

N = 64
X = np.linspace(-3, 9, N).astype(np.float32)
X[5] = np.nan
NUMBERS = (np.arange(N, dtype=np.int32) * 2_654_435 ^ 77) - 2**26


@triton.jit
def apply(x, i, out, what: tl.constexpr, n: tl.constexpr):
    at = tl.arange(0, n)
    v, k = tl.load(x + at), tl.load(i + at)
    if what == "clamp":
        result = tl.clamp(v, -1.0, 2.0)
    elif what == "clamp, NaN kept":
        result = tl.clamp(v, -1.0, 2.0, propagate_nan=tl.PropagateNan.ALL)
    elif what == "square root":
        result = tl.sqrt_rn(tl.abs(v))
    elif what == "quotient":
        result = tl.div_rn(v, 3.0 + tl.abs(v))
    elif what == "high product":
        result = tl.umulhi(k, k + 5)
    elif what == "wide high product":
        result = tl.umulhi(k.to(tl.int64) << 30, k.to(tl.int64)).to(tl.int32)
    elif what == "histogram":
        result = tl.histogram(k & 15, n)
    elif what == "masked histogram":
        result = tl.histogram(k & 15, n, mask=at < 20)
    elif what == "gather":
        result = tl.gather(v, k & 31, 0)
    elif what == "sort":
        result = tl.sort(k)
    else:
        result = tl.cumsum(k, reverse=True)
    tl.store(out + at, result)


@triton.jit
def with_hints(x, out, n: tl.constexpr):
    at = tl.arange(0, n)
    tl.assume(tl.program_id(0) >= 0)
    v = tl.load(x + at, cache_modifier=".ca", eviction_policy="evict_first")
    tl.debug_barrier()
    tl.store(out + at, v + 1, cache_modifier=".cs")


@triton.jit
def with_returns(x, out, n: tl.constexpr):
    at = tl.program_id(0)
    if at >= n:
        return
    v = tl.load(x + at)
    if v > 2:
        tl.store(out + at, 2 * v)
        return
    if v < -2:
        tl.store(out + at, 3 * v)
        return
    tl.store(out + at, v + 1)


@pytest.mark.parametrize(
    ("kernel", "programs", "oracle"),
    [
        (with_hints, 1, lambda x: x + 1),
        (with_returns, N + 8, lambda x: np.where(x > 2, 2 * x, np.where(x < -2, 3 * x, x + 1))),
    ],
)
def test_hints_are_left_out_and_returns_end_a_program(kernel: Any, programs: int, oracle: Any) -> None:
    function = kt.triton_kernel(kernel, grid=(programs,), outputs={"out": "x"}, constants={"n": N})
    numbers = kt.array("n", "float32", domain=(-9, 9))
    pairing = kt.oracle_for(function, x=numbers, dims={"n": kt.dim(values=(N,))})(oracle)
    assert kt.check(pairing, backends=["simulate:sm_90"], depth="quick").ok


@triton.jit
def out_of_range(x, i, out, what: tl.constexpr, n: tl.constexpr):
    at = tl.arange(0, n)
    if what == "gather":
        result = tl.gather(tl.load(x + at), tl.load(i + at), 0)
    else:
        numbers = tl.load(i + at)
        result = tl.histogram(numbers, n, mask=numbers >= 0) if what == "masked" else tl.histogram(numbers, n)
    tl.store(out + at, result)


def counts(numbers: np.ndarray) -> np.ndarray:
    return np.bincount(numbers & 15, minlength=N).astype(np.int32)


WIDE = [(int(k) << 30) % 2**64 * (int(k) % 2**64) >> 64 for k in NUMBERS]


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("clamp", np.fmin(np.fmax(X, np.float32(-1)), np.float32(2))),
        ("clamp, NaN kept", np.clip(X, -1, 2)),
        ("square root", np.sqrt(np.abs(X))),
        ("quotient", X / (3 + np.abs(X))),
        (
            "high product",
            (NUMBERS.astype(np.uint32).astype(np.uint64) * (NUMBERS + 5).astype(np.uint32) >> 32).astype(np.uint32),
        ),
        ("wide high product", np.array([number % 2**32 for number in WIDE], np.uint32)),
        ("histogram", counts(NUMBERS)),
        ("masked histogram", counts(NUMBERS[:20])),
        ("gather", X[NUMBERS & 31]),
        ("sort", np.sort(NUMBERS)),
        ("sum from the end", np.cumsum(NUMBERS[::-1], dtype=np.int32)[::-1]),
    ],
)
def test_an_operation_computes_what_numpy_does(what: str, expected: np.ndarray) -> None:
    if what == "masked histogram" and triton.__version__ < "3.4":
        pytest.skip("this Triton's histogram has no mask")
    is_float = expected.dtype == np.float32
    outputs = {"out": "x" if is_float else "i"}
    kernel = kt.triton_kernel(apply, grid=(1,), outputs=outputs, constants={"what": what, "n": N})

    def oracle() -> np.ndarray:
        return expected if is_float else expected.astype(np.int64).astype(np.int32)

    def function() -> Any:
        return kernel(jnp.asarray(X), jnp.asarray(NUMBERS))

    result = kt.check(kt.oracle_for(function)(oracle), backends=["simulate:sm_90", "simulate:gfx942"], depth="quick")
    assert result.ok, str(result)
    assert result.cases >= 2


@pytest.mark.parametrize("what", ["gather", "histogram", "masked"])
@pytest.mark.parametrize("stray", [0, -1, N])
def test_what_is_out_of_range_is_undefined(what: str, stray: int) -> None:
    if what == "masked" and triton.__version__ < "3.4":
        pytest.skip("this Triton's histogram has no mask")
    numbers = np.arange(N, dtype=np.int32) // 2
    numbers[7] = stray
    outputs = {"out": "x" if what == "gather" else "i"}
    kernel = kt.triton_kernel(out_of_range, grid=(1,), outputs=outputs, constants={"what": what, "n": N})

    def function() -> Any:
        return kernel(jnp.arange(N, dtype=jnp.float32), jnp.asarray(numbers))

    def oracle() -> np.ndarray:
        inside = numbers[(numbers >= 0) & (numbers < N)]
        return np.clip(numbers, 0, N - 1).astype(np.float32) if what == "gather" else np.bincount(inside, minlength=N)

    result = kt.check(kt.oracle_for(function)(oracle), backends=["simulate:sm_90"], depth="quick")
    expected = set() if stray == 0 or (what == "masked" and stray < 0) else {"uninitialised"}
    assert {finding.verdict for finding in result.findings} == expected, str(result)
