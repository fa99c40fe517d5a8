"""Dtypes that a kernel may use: names, floating-point formats, and conversions of values."""

import functools
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

DType = np.dtype[Any]
Array = np.ndarray[Any, DType]

_EXPONENT = 0x7FF << 52  # the exponent bits of float64


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A binary floating-point format."""

    precision: int  # significand bits, the hidden one included
    min_exponent: int  # exponent of the smallest normal number, so `2.0**min_exponent` is that number
    max_exponent: int  # exponent of the largest finite number

    @property
    def unit_roundoff(self) -> float:
        """The largest relative error of one rounding to nearest, `2**-precision`."""
        return 2.0**-self.precision

    @property
    def smallest_normal(self) -> float:
        """The smallest positive normal number."""
        return 2.0**self.min_exponent

    @property
    def smallest_subnormal(self) -> float:
        """The smallest positive number, and the spacing of the subnormal numbers."""
        return 2.0 ** (self.min_exponent - self.precision + 1)

    @property
    def overflow(self) -> float:
        """The smallest magnitude that rounds to infinity: half an ulp beyond the largest finite number."""
        return 2.0**self.max_exponent * (2.0 - self.unit_roundoff)

    def ulp(self, x: Array) -> Array:
        """Returns the spacing of the format's numbers at `|x|`, in float64; at least `smallest_subnormal`."""
        size = np.maximum(np.abs(np.asarray(x, np.float64)), self.smallest_normal)
        power = (size.view(np.int64) & _EXPONENT).view(np.float64)  # the largest power of two up to `size`
        finite = np.isfinite(power)
        return (power if finite.all() else np.where(finite, power, self.smallest_normal)) * 2.0 ** (1 - self.precision)


@dataclass(frozen=True, slots=True)
class ShapeDtype:
    """The shape and dtype of an array."""

    shape: tuple[int, ...]
    dtype: DType


# NVIDIA, "TensorFloat-32 in the A100 GPU": the exponent of float32 and 10 stored significand bits.
TF32 = FloatFormat(precision=11, min_exponent=-126, max_exponent=127)


class DtypeError(ValueError):
    """A dtype that an oracle cannot evaluate."""


class UnknownDtypeError(DtypeError):
    """A dtype name that NumPy and ml_dtypes do not know."""


@functools.cache
def parse_dtype(name: str) -> DType:
    """Returns a dtype of NumPy or ml_dtypes by name; an UnknownDtypeError, or DtypeError if float64 cannot hold it."""
    try:
        dtype = np.dtype(getattr(ml_dtypes, name, name))
    except TypeError as error:
        raise UnknownDtypeError(f"{name!r} is not a dtype of NumPy or ml_dtypes") from error
    if name.startswith("float6_"):
        raise DtypeError(f"{name} is not supported: XLA aborts the process when it compiles it")
    if dtype.name.startswith("float") and not is_float(dtype):
        raise DtypeError(f"{name} is not supported: JAX 0.12 has no such dtype")
    if not (is_float(dtype) or is_integer(dtype) or dtype == np.bool_):
        raise DtypeError(f"an oracle takes real numbers and booleans, not {name}")
    if dtype == np.uint64:
        raise DtypeError("an oracle computes integers in int64, which cannot hold every uint64")
    return dtype


def is_float(dtype: DType) -> bool:
    """Returns whether a dtype is floating-point, including those of ml_dtypes."""
    return bool(dtype.kind == "f") or _is_custom(dtype)


@functools.cache  # NumPy builds the name on each access
def _is_custom(dtype: DType) -> bool:
    return dtype.name in _CUSTOM_FLOATS


@functools.cache  # NumPy builds the name on each access
def is_promotable(dtype: DType) -> bool:
    """Returns whether a dtype is a float of 16 bits or more. Narrower ones are formats for storing."""
    return is_float(dtype) and dtype.itemsize > 1


def is_integer(dtype: DType) -> bool:
    """Returns whether a dtype is a signed or unsigned integer, including those of ml_dtypes."""
    return bool(dtype.kind in "iu") or dtype.name in ("int2", "uint2", "int4", "uint4")


def is_packed(dtype: DType) -> bool:
    """Returns whether a dtype has fewer than eight bits, so that XLA packs several values into a byte."""
    if dtype == np.bool_:
        return False
    return bool((ml_dtypes.finfo(dtype) if is_float(dtype) else ml_dtypes.iinfo(dtype)).bits < 8)


# Those of ml_dtypes that JAX has. A later release may add others, without a sign or a zero.
_CUSTOM_FLOATS = frozenset(
    "bfloat16 float4_e2m1fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2"
    " float8_e5m2fnuz float8_e8m0fnu".split()
)

# Names to suggest in place of one that is unknown.
DTYPE_NAMES = (
    *("float32", "float16", "float64", "int32", "int8", "int16", "int64", "uint8", "uint16", "uint32", "bool"),
    *sorted(_CUSTOM_FLOATS),
)


@functools.cache
def float_format(dtype: DType) -> FloatFormat:
    """Returns the format of a floating-point dtype."""
    info = ml_dtypes.finfo(dtype)
    return FloatFormat(int(info.nmant) + 1, int(info.minexp), int(info.maxexp) - 1)


def cast(values: Array, dtype: DType) -> Array:
    """Converts `values` (float64, int64 or bool) to `dtype`. Floats round to nearest, ties to even; integers wrap."""
    values = np.asarray(values)
    with np.errstate(all="ignore"):
        if values.dtype == np.float64 and _is_custom(dtype):
            # ml_dtypes converts to bfloat16 through float32 before its release 0.7, which rounds twice.
            ulp = float_format(dtype).ulp(values)
            values = np.where(np.isfinite(values), np.rint(values / ulp) * ulp, values)
        return values.astype(dtype)


def widen(values: Array) -> Array:
    """Converts `values` to the dtypes of oracles: floats to float64, integers to int64; copies booleans."""
    if is_float(values.dtype):
        return values.astype(np.float64)
    if is_integer(values.dtype):
        return values.astype(np.int64)
    return values.copy()


def flush_subnormals(values: Array) -> Array:
    """Returns `values` as a processor in flush-to-zero mode reads them, or `values` itself if it changes nothing.

    Magnitudes below the smallest normal number of float32 (of their own format, if that is wider) become zero. Narrower
    formats are computed in float32, so float16's subnormal numbers survive.
    """
    if not is_float(values.dtype):
        return values
    threshold = min(float_format(values.dtype).smallest_normal, 2.0**-126)
    size = np.abs(values.astype(np.float64))
    small = (size < threshold) & (size > 0)
    if not small.any():
        return values
    return np.where(small, np.copysign(values.dtype.type(0), values), values).astype(values.dtype)
