"""Functions of Python numbers are tracked like ufuncs under `np.vectorize`."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

import kerneltest as kt
from tests.sample import elementwise


def _gelu(x: Any) -> Any:
    return elementwise(lambda v: 0.5 * v * (1 + lax.erf(v * jnp.float32(math.sqrt(0.5)))), x)


def _gelu_of_bfloat16(x: Any) -> Any:
    return elementwise(lambda v: 0.5 * v * (1 + lax.erf((v * math.sqrt(0.5)).astype(jnp.bfloat16)).astype(v.dtype)), x)


def _checked(kernel: Any) -> Any:
    @kt.oracle_for(kernel, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(16, 64))))
    def gelu(x: np.ndarray) -> np.ndarray:
        return x * 0.5 * (1 + np.vectorize(math.erf, otypes=[float])(x / np.sqrt(2)))

    return kt.check(gelu, backends=["interpret"], depth="quick", minimize=0)


def test_what_follows_a_vectorized_function_is_rounded_too() -> None:
    result = _checked(_gelu)
    assert result.ok
    assert "not followed" not in " ".join(record.tolerance for record in result.records)


def test_a_coarse_one_is_found() -> None:
    assert not _checked(_gelu_of_bfloat16).ok
