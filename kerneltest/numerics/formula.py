"""Bounds for a formula: how far two ways to compute the same may differ in arithmetic of 40 bits.

They are for kernels that are evaluated in float64, whose roundings are 8,000 times smaller.
"""

from dataclasses import replace

from kerneltest.core.dtypes import FloatFormat
from kerneltest.core.precision import FLOAT32, Precision, Ulps
from kerneltest.numerics.bounds import OracleCase
from kerneltest.numerics.rounding_bounds import RoundingLimit, rounding_bounds

FORMULA_FORMAT = FloatFormat(precision=40, min_exponent=-1021, max_exponent=1023)
NEGLIGIBLE = FORMULA_FORMAT.unit_roundoff
"""The relative difference up to which results agree, whatever the formula."""

_IN_FLOAT32 = 2.0 ** (FORMULA_FORMAT.precision - FLOAT32.precision)  # an ulp of float32, in those of 40 bits
_APPROXIMATION_ULPS = 0.5  # of float32: the error of a kernel's own approximation of a function

# Functions that can be made of each other, by their names in `Precision.ulps`.
_RELATED = (
    "exp exp2 expm1 power sinh cosh tanh expit logaddexp logaddexp2 erf erfc",
    "log log2 log10 log1p logaddexp logaddexp2 power arcsinh arccosh arctanh",
    "sqrt rsqrt cbrt power divide reciprocal hypot",
    "sin cos tan deg2rad rad2deg",
    "arcsin arccos arctan arctan2",
    "erf erfc",
)
_ALL = frozenset(name for names in _RELATED for name in names.split())


def formula_precision(functions: frozenset[str]) -> Precision:
    """Returns the arithmetic in which an oracle is compared with a kernel that is evaluated in float64.

    Functions are exact, except those that the kernel must approximate by itself, since it calls neither them nor any
    that they can be made of: these may be a few ulps of float32 off.

    Args:
      functions: the functions that the kernel calls, by their names in `Precision.ulps`.
    """
    made = {name for names in _RELATED if functions & set(names.split()) for name in names.split()} | functions
    approximated = sorted(_ALL - made)
    coarse = Ulps(_APPROXIMATION_ULPS * _IN_FLOAT32, source="the kernel's own approximation")
    ulps = {name: Ulps(0.5) for name in _ALL} | dict.fromkeys(approximated, coarse)
    return Precision(f"40 bits, approximated: {', '.join(approximated)}", ulps, exact_quotients=True)


def formula_bounds(case: OracleCase) -> tuple[RoundingLimit, ...]:
    """Returns the bound of each output, to be used with a `formula_precision`.

    Args:
      case: the oracle's side of the case.
    """
    formats = dict.fromkeys(case.formats, FORMULA_FORMAT)
    return rounding_bounds(replace(case, formats=formats), FORMULA_FORMAT, exact_dots=True)
