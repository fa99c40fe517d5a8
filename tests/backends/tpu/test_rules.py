"""What JAX, Mosaic and XLA say, in words for the author: what tests/corpus/tpu_compilers.py has no kernel for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kerneltest.backends.lowering_errors import match_rule, user_place
from kerneltest.backends.registry import resolve
from kerneltest.backends.tpu.errors import COMPILING, LOWERING
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.failures import Failure
from kerneltest.trace.tracing import trace_function

MOSAIC = "INTERNAL: Mosaic failed to compile TPU kernel with MLIR module name `k` HLO name `f.1`: "

# A message, the verdict, and a part of what it is told as.
LOWERED = [
    ("Unsigned integer dtype uint8 is not supported for dot_general (matmul)", "unimplemented", "products of uint8"),
    ("masked swap with non-32-bit data", "unimplemented", "masked stores lower only for 32-bit types"),
    ("Reductions over unsigned integers not implemented.", "unimplemented", "convert to int32 or float32"),
    ("Unsupported combination of input dtype (int32) and index_dtype (int32) for reduce_index", "unimplemented",
     "jnp.argmax and jnp.argmin lower only for float32"),
    ("Only float32 is supported", "unimplemented", "jnp.argmax and jnp.argmin lower only for float32"),
    ("The Pallas TPU lowering currently supports in memory space ANY only blocks having the same block shape as the "
     "array shape", "compile_error", "an argument that stays in main memory has no blocks"),
    ("SparseCore is not available on the current device (v4), but the kernel type is set to SparseCore.",
     "unimplemented", "this TPU has no SparseCores"),
    ("The current TPU does not have SparseCores", "unimplemented", "this TPU has no SparseCores"),
    ("DShapedArray(shape=(ShapedArray(int32[]), 128), dtype=float32)", "compile_error", "mask with jnp.where"),
]  # fmt: skip
COMPILED = [
    ("Core-parallel dimension 0 has iteration bound: 2, which is greater than the number of active cores: 1.",
     "compile_error", "dimension 0 of the grid is core-parallel and 2 long, but the number of cores is 1: use"),
    ("subcore_parallel is only supported on SparseCore.", "compile_error", "SUBCORE_PARALLEL is for SparseCores"),
    ("The contiguous inner slice in the DMA transfer must be divisible by 512 bytes.", "compile_error",
     "a copy moves whole rows of a tile"),
    ("Not implemented: Source and target leading tiles have different trailing dimensions", "compile_error",
     "a copy moves whole rows of a tile"),
    ("failed to legalize operation 'arith.addf': %8 = (vector<8x128x4xf8E4M3FN>)", "unimplemented",
     "no TPU has arith.addf for f8E4M3FN"),
    ("Unsupported type 'vector<8x128x8xf4E2M1FN>'", "unimplemented", "this TPU has no vectors of f4E2M1FN"),
    ("float acc with int lhs. Expected float lhs.", "unimplemented", "integers are multiplied only as int8"),
    ("While rewriting computation to not contain X{64|128} element types, XLA encountered an HLO: f64[8,128]{1,0}",
     "unimplemented", "an argument is f64"),
    ("Could not convert JSON string to proto: no such field: 'x'", "unavailable", "libtpu is older than this JAX"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "verdict", "words"), LOWERED)
def test_what_jax_says_is_told(text: str, verdict: str, words: str) -> None:
    told = match_rule(text, LOWERING)
    assert told is not None
    assert told.verdict == verdict
    assert words in told.words
    assert match_rule(text, COMPILING) is None


@pytest.mark.parametrize(("text", "verdict", "words"), COMPILED)
def test_what_mosaic_and_xla_say_is_told(text: str, verdict: str, words: str) -> None:
    told = match_rule(MOSAIC + text, COMPILING)
    assert told is not None
    assert told.verdict == verdict
    assert words in told.words
    assert match_rule(MOSAIC + text, LOWERING) is None


@pytest.mark.parametrize(("semantics", "words"), [
    (("parallel",), "dimension_semantics needs 'parallel' or 'arbitrary' for each dimension of the grid"),
    (("parallel", "sequential"), "dimension_semantics can be 'parallel' or 'arbitrary', not 'sequential'"),
])  # fmt: skip
def test_dimension_semantics_that_no_tpu_takes_are_told(semantics: tuple[str, ...], words: str) -> None:
    def function(x: jax.Array) -> list[jax.Array]:
        def double(x_ref: jax.Ref, o_ref: jax.Ref) -> None:
            o_ref[...] = x_ref[...] * 2

        block = pl.BlockSpec((8, 128), lambda i, j: (i, j))
        options = pltpu.CompilerParams(dimension_semantics=semantics)  # type: ignore[arg-type, unused-ignore]
        return [pl.pallas_call(double, grid=(2, 2), in_specs=[block], out_specs=block, out_shape=x,
                               compiler_params=options)(x)]  # fmt: skip

    traced = trace_function(function, (ShapeDtype((16, 256), np.dtype(jnp.float32)),), "")
    (backend,) = resolve(["lower:tpu-v5e"])
    with pytest.raises(Failure) as caught:
        backend.prepare(traced)
    assert words in str(caught.value)


def test_the_users_line_is_the_first_that_is_not_of_jax() -> None:
    inside = f'"{jax.__file__.replace("__init__", "numpy/x")}":7:1'
    text = f'at location: loc("dot:"(callsite({inside} at "kernel"("/home/me/kernels.py":25:17 to :74))))'
    assert user_place(text) == "/home/me/kernels.py:25"
    assert user_place("nothing") == ""
