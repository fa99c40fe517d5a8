"""Cases for error models from a function and its arguments, without a kernel."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import kerneltest as kt
from kerneltest.core.dtypes import TF32, Array, float_format
from kerneltest.core.precision import Precision
from kerneltest.declare.arguments import ArrayArgument
from kerneltest.declare.error_models import Measured
from kerneltest.numerics.tracked import instrument

PLAIN, FLUSHING = Precision("plain", {}), Precision("flushing", {}, flushes=True)
ON_TENSOR_CORES = Precision("tensor cores", {}, dot_input={"float32": TF32})


def measured(
    function: Callable[..., Any],
    leaves: Mapping[str, Array],
    declared: Mapping[str, ArrayArgument],
    dims: Mapping[str, int],
) -> Measured:
    """Returns the case of `function`, whose only output is an array, on `leaves`."""

    def evaluate(named: Mapping[str, Array]) -> tuple[Array, ...]:
        return (np.asarray(function(**named)),)

    def in_kernel_dtypes(reference: Callable[..., Any]) -> tuple[Array, ...]:
        return (np.asarray(reference(**leaves)).astype(np.float64),)

    wide = {name: value.astype(np.float64) for name, value in leaves.items()}
    formats = {name: float_format(value.dtype) for name, value in leaves.items()}
    copied = instrument(function)
    return Measured(
        evaluate=evaluate,
        leaves=wide,
        values=evaluate(wide),
        declared=declared,
        dims=dims,
        formats=formats,
        watched=lambda given: (copied(**given),),
        oracle=function,
        in_kernel_dtypes=in_kernel_dtypes,
        form=lambda other: measured(other, leaves, declared, dims),
    )


def vector(function: Callable[..., Any], dtype: Any = np.float32, n: int = 1000, scale: float = 1.0) -> Measured:
    """Returns the case of a function of one vector of `n` normally distributed numbers."""
    leaves = {"x": (np.random.default_rng(0).normal(size=n) * scale).astype(dtype)}
    return measured(function, leaves, {"x": kt.array("n")}, dict(n=n))
