"""JAX's TPU interpreter keeps its globals after some failures; the next kernel gets new ones."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.failures import Failure
from kerneltest.trace.platform_dispatch import INTERPRETED_TPU, abstract_platform
from kerneltest.trace.tracing import Traced, trace_function

X = np.ones((32, 128), np.float32)
BLOCK = pl.BlockSpec((8, 128), lambda i: (i, 0))


def doubled(x: Any, *, fails: bool, parallel: bool, interpret: Any = False) -> Any:
    def receive(_: Any) -> None:
        if fails:
            raise RuntimeError("refused")

    def body(x: Any, o: Any) -> None:
        o[...] = x[...] * 2
        pl.when(pl.program_id(0) == 3)(lambda: jax.debug.callback(receive, pl.program_id(0)))  # so it is compiled

    parameters = pltpu.CompilerParams(dimension_semantics=("parallel" if parallel else "arbitrary",))
    return pl.pallas_call(
        body, grid=(4,), in_specs=[BLOCK], out_specs=BLOCK, out_shape=x, compiler_params=parameters, interpret=interpret
    )(x)


def traced(*, fails: bool, parallel: bool) -> Traced:
    with abstract_platform(INTERPRETED_TPU):
        inputs = (ShapeDtype(X.shape, X.dtype),)
        return trace_function(lambda x: [doubled(x, fails=fails, parallel=parallel)], inputs, "")


@pytest.mark.parametrize("by", ["a kernel under test", "a test that calls JAX's interpreter"])
@pytest.mark.parametrize("parallel", [False, True])
def test_a_failure_does_not_reach_the_next_kernel(by: str, parallel: bool) -> None:
    (backend,) = resolve(["interpret-tpu"])

    def fail() -> None:
        if by == "a kernel under test":
            backend.prepare(traced(fails=True, parallel=parallel)).run([X])
        np.asarray(doubled(X, fails=True, parallel=parallel, interpret=pltpu.InterpretParams()))

    with pytest.raises((Failure, jax.errors.JaxRuntimeError), match="refused"):
        fail()
    (output,) = backend.prepare(traced(fails=False, parallel=not parallel)).run([X])
    assert np.array_equal(np.asarray(output), 2 * X)


def test_neither_does_an_ordered_effect_that_failed_after_its_call_returned() -> None:
    def refuse(_: Any) -> None:
        raise RuntimeError("refused")

    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 500, lambda _, y: y @ y, x))(jnp.zeros((300, 300)))
    jax.jit(lambda x: io_callback(refuse, None, x[0, 0], ordered=True))(slow)
    (backend,) = resolve(["interpret-tpu"])
    (output,) = backend.prepare(traced(fails=False, parallel=False)).run([X])
    assert np.array_equal(np.asarray(output), 2 * X)
