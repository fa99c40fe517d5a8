"""Runs a function of arrays through the simulator, without an oracle."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

import kerneltest as kt
from kerneltest.backends.base import Executable
from kerneltest.backends.registry import resolve
from kerneltest.plan.signatures import signatures
from kerneltest.trace.tracing import trace

TARGETS = ("simulate:sm_90", "simulate:gfx942")


def simulated(kernel: Callable[..., Any], operands: list[np.ndarray], backend: str) -> tuple[np.ndarray, ...]:
    def call(**named: jax.Array) -> Any:
        return kernel(*named.values())

    names = [f"x{i}" for i in range(len(operands))]
    source = f"lambda {', '.join(names)}: call({', '.join(f'{n}={n}' for n in names)})"
    dims = {f"d{i}_{a}": kt.dim(values=(length,)) for i, x in enumerate(operands) for a, length in enumerate(x.shape)}
    arguments = {
        name: kt.array(" ".join(f"d{i}_{a}" for a in range(x.ndim)), x.dtype.name)
        for i, (name, x) in enumerate(zip(names, operands, strict=True))
    }
    pairing = kt.oracle_for(eval(source, {"call": call}), dims=dims, **arguments)(lambda **_: None)
    (stage,) = resolve([backend])
    executable: Executable = stage.prepare(trace(pairing, signatures(pairing, "quick")[0]))  # type: ignore[assignment]
    return executable.run(operands)


def elementwise_block(function: Callable[..., Any], out: str | None = None) -> Callable[..., jax.Array]:
    def kernel(*operands: jax.Array) -> jax.Array:
        def body(*refs: Any) -> None:
            refs[-1][...] = function(*(ref[...] for ref in refs[:-1])).astype(refs[-1].dtype)

        shape = jax.eval_shape(function, *operands)
        like = jax.ShapeDtypeStruct(shape.shape, out or shape.dtype)
        return pl.pallas_call(body, out_shape=like, compiler_params=plgpu.CompilerParams())(*operands)

    return kernel
