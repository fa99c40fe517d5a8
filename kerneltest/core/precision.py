"""The arithmetic of backends: errors of functions, formats of matrix products, flushed subnormals.

Each backend names its `Precision` from this table. reports/precision/README.md lists the sources, and
`benchmarks/function_errors.py` measures a machine and checks its entry.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kerneltest.core.dtypes import TF32, Array, FloatFormat, float_format, parse_dtype

FLOAT32 = float_format(np.dtype(np.float32))


@dataclass(frozen=True, slots=True)
class Ulps:
    """The largest error of a function in float32, including its final rounding: 0.5 if it is correctly rounded.

    Attributes:
      relative: in ulps of the true result.
      absolute: in ulps of 1.0 (2**-23), in addition; for a result that is a small difference of larger terms.
      argument: an error of the first argument in its ulps, in addition; for an error that grows with the argument.
      source: the document or measurement behind the figures.
    """

    relative: float
    absolute: float = 0.0
    argument: float = 0.0
    source: str = field(default="", compare=False)

    def error(self, true: Array, moved: Array | float = 0.0) -> Array:
        """Returns the largest absolute error; `moved` is how far `argument` ulps of the first argument move results."""
        return self.relative * FLOAT32.ulp(true) + self.absolute * 2.0**-23 + moved

    def maximum(self, other: "Ulps") -> "Ulps":
        """Returns the larger of each error, for a function that may be computed in either of two ways."""
        return Ulps(
            max(self.relative, other.relative),
            max(self.absolute, other.absolute),
            max(self.argument, other.argument),
            " or ".join(dict.fromkeys((self.source, other.source))),
        )


@dataclass(frozen=True, slots=True)
class Precision:
    """The arithmetic of a backend.

    Attributes:
      name: the name that reports show.
      ulps: errors of float32 functions, by the name of the NumPy or SciPy ufunc.
      flushes: whether any operation may read a subnormal float32 input as 0 and return 0 for a subnormal result.
      flushing: names of the functions that may do so if `flushes` is false.
      dot_input: by operand dtype, the format to which operands of a matrix product are rounded if the kernel does not
        request a precision; operands of other dtypes are not rounded.
      truncates: whether that rounding truncates, which doubles its error, instead of rounding to nearest.
      narrow_products: whether operands computed from 16-bit arguments may be rounded to 16 bits for a product.
      exact_quotients: whether a quotient is exact if it is representable, and so is the product with the reciprocal.
      accumulate: by operand dtype, the format in which a matrix product is summed; float32 for other dtypes.
      flushes_atomics: whether an atomic addition of float32 reads subnormal numbers as 0, and returns 0 for them.
      aligns_subnormals: whether products are aligned as if zeros and subnormal operands were the least normal number.
      sums_once: whether a sum is rounded once, as if its terms were added in a wider format.
      approximated: by function, the relative error of an approximation that a kernel computes on purpose.
      bits_lost: by how many bits results are shorter than their format.
    """

    name: str
    ulps: Mapping[str, Ulps] = field(hash=False)
    flushes: bool = False
    flushing: frozenset[str] = frozenset()
    dot_input: Mapping[str, FloatFormat] = field(default_factory=dict, hash=False)
    truncates: bool = False
    narrow_products: bool = True
    exact_quotients: bool = False
    accumulate: Mapping[str, FloatFormat] = field(default_factory=dict, hash=False)
    flushes_atomics: bool = False
    aligns_subnormals: bool = False
    sums_once: bool = False
    approximated: Mapping[str, float] = field(default_factory=dict, hash=False)
    bits_lost: int = 0

    def operand_roundoff(self, dtype: str) -> float:
        """Returns the largest relative error of rounding an operand of a matrix product; 0 if it is not rounded."""
        return (1 + self.truncates) * self.dot_input[dtype].unit_roundoff if dtype in self.dot_input else 0.0

    def but(self, words: str, **changes: Any) -> "Precision":
        """Returns an arithmetic with other fields, which `words` add to its name."""
        return replace(self, name=f"{self.name}, {words}", **changes)

    def with_exact_dots(self) -> "Precision":
        """Returns the arithmetic of a kernel that requests `highest` precision of its products: operands are kept."""
        return self.but("exact products", dot_input={}) if self.dot_input else self

    def with_wide_products(self) -> "Precision":
        """Returns the arithmetic of a kernel in which no product has an operand that it rounded to 16 bits."""
        return self.but("wide products", narrow_products=False)

    def with_approximations(self, functions: Mapping[str, float]) -> "Precision":
        """Returns the arithmetic of a kernel that approximates functions, each with some relative error."""
        named = "".join(f", {name} to {error:g}" for name, error in functions.items())
        return replace(self, name=self.name + named, approximated=functions) if functions else self

    def never_exact(self) -> "Precision":
        """Returns the arithmetic of a machine that rounds even results that are representable."""
        inexact = {name: replace(ulps, relative=ulps.relative + 2.0**-20) for name, ulps in self.ulps.items()}
        return self.but("never exact", ulps=inexact, exact_quotients=False)

    def losing(self, bits: int) -> "Precision":
        """Returns the arithmetic of a machine whose results are shorter by some bits."""
        return self.but(f"less {bits} bits", bits_lost=bits)

    def combine(self, other: "Precision") -> "Precision":
        """Returns the arithmetic of a kernel that runs partly in `other`: the larger errors, and either's flushing."""
        both = {name: self.ulps[name].maximum(other.ulps[name]) for name in self.ulps.keys() & other.ulps.keys()}
        return replace(
            self,
            name=f"{self.name}, {other.name}",
            ulps={**self.ulps, **other.ulps, **both},
            flushes=self.flushes or other.flushes,
            flushing=self.flushing | other.flushing,
            exact_quotients=self.exact_quotients and other.exact_quotients,
        )


# The largest errors of functions: on NVIDIA and AMD, of XLA on a CPU, and in the simulator. A plain number is
# `Ulps.relative`.
#
# CUDA states errors against the correctly rounded result; against the true one they are half an ulp larger. AMD's
# document states errors against the true result, over all inputs. XLA documents none: its errors were measured with JAX
# 0.10.2 and 0.12.0 on x86-64 (the figures in comments), then rounded up. The simulator computes functions of the IR in
# float64 and rounds once. Where JAX composes a function, the error is that of the parts, doubled if the result's ulp
# may be half as large.
_ERRORS: Mapping[str, tuple[float | Ulps, ...]] = {
    **dict.fromkeys(("add", "subtract", "multiply", "square"), (0.5,) * 4),
    **dict.fromkeys(("deg2rad", "rad2deg"), (1,) * 4),
    # 1.14 by a constant where XLA's simplifier multiplies by the reciprocal; otherwise 0.5
    "divide": (2.5, 0.5, 1.5, 0.5),
    "reciprocal": (2.5, 0.5, 0.5, 0.5),
    "sqrt": (1.5, 3, 0.5, 0.5),
    "rsqrt": (2.5, 2, 2, 0.5),  # 1.70
    "cbrt": (1.5, 2, 1.5, 0.5),  # 0.97
    "exp": (2.5, 3, 6, 0.5),  # 5.51 just below where it overflows, 1.01 elsewhere
    "exp2": (2.5, 3, Ulps(6, argument=1.5), 0.5),  # 68 at 126: it is exp(x * log(2)), and that product is rounded
    "expm1": (1.5, 3, 6.5, 0.5),  # 5.74
    "log": (1.5, 3, 1.5, 0.5),  # 1.19
    "log2": (6.5, 8, 2.5, 2.5),  # 2.33
    "log10": (4.5, 7.5, 3, 2.5),  # 2.76
    "log1p": (1.5, 2, 3, 0.5),  # 2.52
    "sin": (2.5, 4, 1, 0.5),  # 0.56
    "cos": (2.5, 4, 1, 0.5),  # 0.56
    "tan": (4.5, 5, 2, 0.5),  # 1.39
    "arcsin": (4.5, 4, 3, 0.5),  # 2.40
    "arccos": (3.5, 4, 2.5, 0.5),  # 2.28
    "arctan": (2.5, 5, 6, 0.5),  # 5.33 as `interpret` compiles it, 0.83 by default
    "arctan2": (3.5, 6, 6, 0.5),  # 1.48
    "sinh": (3.5, 4, Ulps(6, argument=1), 0.5),  # 24 at 88.7, 8.7 at 9: it is exp(x - log(2))
    "cosh": (2.5, 4, Ulps(6, argument=1), 0.5),  # 24
    "tanh": (2.5, 5, 5.5, 0.5),  # 4.90
    "arcsinh": (3.5, 4, 3.5, 0.5),  # 3.07
    "arccosh": (4.5, 4, 4.5, 0.5),  # 4.18
    "arctanh": (3.5, 5, 3.5, 0.5),  # 2.92
    # 0.63; 15 for x**20, which is a product
    "power": (Ulps(8.5, argument=1), Ulps(16, argument=1), Ulps(1.5, argument=1), Ulps(1.5, argument=1)),
    "hypot": (6, 6, 2.5, 3),  # 1.98
    "logaddexp": (Ulps(4, absolute=2), Ulps(5, absolute=3), Ulps(3, absolute=1), Ulps(2, absolute=1)),
    "logaddexp2": (Ulps(8, absolute=4), Ulps(10, absolute=5), Ulps(4, absolute=2), Ulps(3, absolute=1)),
    "expit": (8.5, 8, 3, 2.5),  # 2.39
    "erf": (2.5, 16, 8, 0.5),  # 6.71
    "erfc": (4.5, 16, Ulps(9, argument=2), 0.5),  # 64 at 8.9: it is made of exp(-x * x)
}
_IEEE = ("add", "subtract", "multiply", "square", "deg2rad", "rad2deg")
_COMPOSED = dict.fromkeys(("log2", "log10", "hypot", "logaddexp", "logaddexp2", "expit"), "composed by JAX")


# Returns the errors in a column, each with its source: one of its own, or that of all others.
def _column(number: int, others: str, own: dict[str, str]) -> dict[str, Ulps]:
    sources = dict.fromkeys(_ERRORS, others) | dict.fromkeys(_IEEE, "IEEE 754") | own
    figures = {name: errors[number] for name, errors in _ERRORS.items()}
    stated = {name: figure if isinstance(figure, Ulps) else Ulps(figure) for name, figure in figures.items()}
    return {name: replace(figure, source=sources[name]) for name, figure in stated.items()}


_PTX = "PTX ISA, div.full.f32"  # Triton emits this and sqrt.approx.ftz.f32, where CUDA would round correctly
_V_DIV = "AMDGPU code of Triton"  # v_div_scale_f32, v_div_fmas_f32, v_div_fixup_f32: correctly rounded
_NVIDIA = _column(
    0,
    "CUDA C++ Programming Guide, Mathematical Functions Appendix",
    {"sqrt": "CUDA C++ Programming Guide, -prec-sqrt=false", "divide": _PTX, "reciprocal": _PTX, **_COMPOSED},
)
_AMD = _column(1, "OCML User Guide, Supported functions", {"divide": _V_DIV, "reciprocal": _V_DIV, **_COMPOSED})
_XLA_CPU = _column(2, "measured with benchmarks/function_errors.py", {})
_SIMULATED = _column(
    3,
    "kerneltest/backends/simulate",
    {
        **dict.fromkeys(_IEEE[:4], "kerneltest/backends/simulate"),
        **dict.fromkeys(("deg2rad", "rad2deg", "power"), "composed by JAX"),
        **_COMPOSED,
    },
)

FUNCTIONS = frozenset(_NVIDIA) - frozenset("add subtract multiply square rsqrt".split())
"""The functions whose error the tables have, as NumPy and SciPy call them."""
NEVER_EXACT = frozenset("exp expm1 log1p tanh expit sin cos tan sinh cosh erf erfc".split())  # except at 0

XLA_CPU = Precision("XLA on a CPU", _XLA_CPU, flushes=True, exact_quotients=True)  # flushes: jax-ml/jax issue 16200
# Inside Pallas kernels. Functions flush through their approximations (ex2.approx.ftz.f32, sqrt.approx.ftz.f32).
# Hopper's wgmma sums products of float8 in about 14 bits: DeepSeek-V3 Technical Report, section 3.5.2; Blackwell's
# tcgen05 in 25, by DeepGEMM issue 176. Beside zeros and subnormal float16, sums lose 2^-38 |y| (measured). Atomic
# additions of float32 to global memory flush: PTX ISA, atom and red; so did those of an H200.
NVIDIA = Precision(
    "NVIDIA",
    _NVIDIA,
    flushing=frozenset(_NVIDIA) - {*_IEEE, "divide", "reciprocal"},
    dot_input={"float32": TF32},
    accumulate={"float8_e4m3fn": FloatFormat(14, -126, 127), "float8_e5m2": FloatFormat(14, -126, 127)},
    flushes_atomics=True,
    aligns_subnormals=True,
)
# expit is 1 / (1 + exp(-x)), whose exp overflows if the result is subnormal; OCML keeps subnormals. CDNA3's XF32 has
# the format of TF32, and is taken to truncate, since no document says how it rounds. Others keep float32.
AMD = Precision(
    "AMD", _AMD, flushing=frozenset({"expit"}), dot_input={"float32": TF32}, truncates=True, exact_quotients=True
)
SIMULATED = Precision(
    "simulated", _SIMULATED, flushing=frozenset({"expit"}), dot_input={"float32": TF32}, exact_quotients=True
)
# Not measured on a TPU, and no document states its errors, so all but those of IEEE 754 are assumed. It flushes, and
# multiplies in one pass of bfloat16 by default: https://docs.jax.dev/en/latest/jax.lax.html#jax.lax.Precision
TPU = Precision(
    "TPU, assumed",
    {name: _NVIDIA[name] for name in _IEEE},
    flushes=True,
    dot_input={"float32": float_format(parse_dtype("bfloat16"))},
)
# Outside Pallas kernels. Most functions are XLA's CPU formulas on top of the vendor's exp and log.
XLA_NVIDIA = replace(NVIDIA.combine(XLA_CPU), name="XLA on NVIDIA", flushes=False)
XLA_AMD = replace(AMD.combine(XLA_CPU), name="XLA on AMD", flushes=False)
