"""Matrix products: precisions, accumulators, layouts and sizes."""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
from jax import lax

from .base import BLOCK, FLOAT32, FLOATS, INTEGERS, NUMBERS, Probe, first_available, lax_function

_PRESETS = {
    "float32": "TF32_TF32_F32 TF32_TF32_F32_X3 F32_F32_F32 BF16_BF16_F32 BF16_BF16_F32_X3 BF16_BF16_F32_X6 "
    "BF16_BF16_F32_X9",
    "float64": "F64_F64_F64",
    "float16": "F16_F16_F16 F16_F16_F32",
    "bfloat16": "BF16_BF16_BF16 BF16_BF16_F32",
    "float8_e4m3fn": "ANY_F8_ANY_F8_F32 ANY_F8_ANY_F8_F32_FAST_ACCUM",
}


def probes() -> Iterator[Probe]:
    """Of group `dot`."""
    yield _dot("", NUMBERS)
    for name in ("HIGH", "HIGHEST"):
        yield _dot(f"[{name}]", NUMBERS, precision=f"Precision.{name}")
    for preset in dict.fromkeys(" ".join(_PRESETS.values()).split()):
        dtypes = tuple(dtype for dtype, presets in _PRESETS.items() if preset in presets.split())
        yield _dot(f"[{preset}]", dtypes, precision=f"DotAlgorithmPreset.{preset}")
    yield _dot("[to float32]", NUMBERS, accumulator="float32")
    yield _dot("[to float16]", ("float16", "bfloat16", "float32"), accumulator="float16")
    yield _dot("[to int32]", INTEGERS, accumulator="int32")
    yield _dot("[transposed]", ("float32", "float16", "int8"), contract=((0,), (1,)))
    yield _dot("[16x16x16]", NUMBERS, operands=((16, 16), (16, 16)))
    yield _dot("[8x8x8]", ("float32", "float16"), operands=((8, 8), (8, 8)))
    yield _dot("[batch]", ("float32", "float16"), ((2,), (1,)), ((0,), (0,)), ((2, *BLOCK), (2, *BLOCK)))
    yield _dot("[matrix by vector]", ("float32", "float16"), operands=(BLOCK, (32,)))
    yield _dot("[mixed]", ("float32",), operands=(BLOCK, (BLOCK, "float16")))
    yield Probe("pl.dot", "dot", lambda x, y: first_available("plt.dot", "pl.dot")(x, y), FLOATS, (BLOCK, BLOCK))
    yield Probe("ragged_dot", "dot", lax_function("ragged_dot"), FLOAT32, (BLOCK, (4, *BLOCK), ((4,), "int32")))
    yield Probe("conv_general_dilated", "dot", lax_function("conv", (1,), "SAME"), FLOAT32, ((4, 8, 16), (8, 8, 4)))


def _dot(
    variant: str,
    dtypes: tuple[str, ...],
    contract: Any = ((1,), (0,)),
    batch: Any = ((), ()),
    operands: Any = (BLOCK, BLOCK),
    precision: str = "",
    accumulator: str = "",
) -> Probe:
    def body(x: Any, y: Any) -> Any:
        chosen = first_available(f"lax.{precision}") if precision else None
        dtype = jnp.dtype(accumulator) if accumulator else None
        return lax.dot_general(x, y, (contract, batch), precision=chosen, preferred_element_type=dtype)

    return Probe(f"dot_general{variant}", "dot", body, dtypes, operands)
