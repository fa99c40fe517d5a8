"""Error models in closed form: each with its formula, its units and its source."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.declare.arguments import ArrayArgument
from kerneltest.declare.bounds import Bound, Measured, format_of, gamma, magnitude, saturated
from kerneltest.declare.dims import Dim


@dataclass(frozen=True, slots=True)
class Exact:
    """The correctly rounded result, bit for bit: `|error| <= 0` after rounding the oracle's value once."""

    def misfit(self, leaves: Mapping[str, ArrayArgument], dims: Mapping[str, Dim]) -> str:
        return ""

    def bounds(self, measured: Measured) -> tuple[Bound, ...]:
        return tuple(Bound(np.zeros(v.shape)) for v in measured.values)

    def __str__(self) -> str:
        return "exact"


@dataclass(frozen=True, slots=True)
class Ulp:
    """A result within `n` units in the last place: `|error| <= n u |f(x)|`, u twice the unit roundoff of `compute`.

    For one function of well-rounded arguments, such as an `exp` of which a vendor states the error. The output's own
    rounding is added by `Expectation.bound`. Source: the definition of an ulp as in Muller et al., Handbook of
    Floating-Point Arithmetic, 2nd ed., section 2.3.

    Attributes:
      n: in ulps of `compute`.
      compute: the format of the kernel's arithmetic; `input` for that of its arguments.
    """

    n: float
    compute: str = "float32"

    def misfit(self, leaves: Mapping[str, ArrayArgument], dims: Mapping[str, Dim]) -> str:
        return "" if self.n > 0 else f"ulp({self.n:g}) allows nothing: use exact()"

    def bounds(self, measured: Measured) -> tuple[Bound, ...]:
        fmt = format_of(self.compute, measured)
        return tuple(
            Bound(self.n * 2 * fmt.unit_roundoff * magnitude(v), roundings=2 * self.n, accumulate=fmt)
            for v in measured.values
        )

    def __str__(self) -> str:
        return f"ulp({self.n:g}, compute={self.compute})"


@dataclass(frozen=True, slots=True)
class Reduction:
    """A sum over dims of one array argument, in any order: `|error| <= gamma_n(u) sum |x|`.

    Unlike `Conditioned`, it does not ask that terms have one sign. Where `sum |x|` exceeds the accumulation format's
    range, a partial sum may overflow and nothing is asked.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 4.2, equation 4.4.

    Attributes:
      over: the dims that are summed over, in exactly one array argument.
      accumulate: the format of the sum; `input` for that of the arguments.
    """

    over: tuple[str, ...]
    accumulate: str = "float32"

    def misfit(self, leaves: Mapping[str, ArrayArgument], dims: Mapping[str, Dim]) -> str:
        having = [path for path, leaf in leaves.items() if set(self.over) <= set(leaf.shape)]
        if len(having) != 1:
            return (
                f"reduction({' '.join(self.over)!r}) needs exactly one array argument with these dims, and "
                f"{len(having)} have them ({', '.join(having) or 'none'}); use conditioned(over=...), or other dims"
            )
        return ""

    def bounds(self, measured: Measured) -> tuple[Bound, ...]:
        fmt = format_of(self.accumulate, measured)
        (path,) = (p for p, leaf in measured.declared.items() if set(self.over) <= set(leaf.shape))
        shape = measured.declared[path].shape
        axes = tuple(i for i, axis in enumerate(shape) if axis in self.over)
        n = math.prod(measured.dims[name] for name in self.over)
        (value,) = measured.values
        with np.errstate(all="ignore"):
            size = np.abs(measured.leaves[path]).sum(axis=axes)
            size = np.expand_dims(size, axes) if value.ndim == len(shape) else size
            fixed = np.where(size > fmt.overflow, np.inf, gamma(n, fmt.unit_roundoff) * np.nan_to_num(size, nan=0.0))
        if fixed.shape != value.shape:
            raise ValueError(f"{self} gives shape {fixed.shape}, the oracle {value.shape}: is that the sum's shape?")
        return (Bound(np.asarray(fixed), roundings=float(n), accumulate=fmt),)

    def __str__(self) -> str:
        return f"reduction({' '.join(self.over)}, accumulate={self.accumulate})"


@dataclass(frozen=True, slots=True)
class Dot:
    """An inner product over one dim, then perhaps a function of bounded slope.

    `|error| <= slope * ((2 v + v^2) |A||B| + gamma_(k + 8)(u) |A||B|)`, with v the unit roundoff of the format to
    which a backend rounds the operands (TF32 for float32 on a GPU unless the kernel asks for more, else 0), u that
    of `accumulate`, and k the contracted length. Eight more roundings are for what is applied to the sum. Where
    |A||B| exceeds the accumulation format's range, a partial sum may overflow and the bound is infinite; so it is
    where a backend's rounding of an operand overflows, as float32's largest number does in TF32.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1 (inner products, any order
    of summation); Blanchard, Higham, Lopez, Mary, Pranesh, "Mixed Precision Block Fused Multiply-Add", 2020, for
    operands rounded on input.

    Attributes:
      over: the dim that is summed over, in exactly two array arguments.
      accumulate: the format of the sum; `input` for that of the arguments.
      slope: the greatest slope of the function applied to the sum.
      output: the output's dims; by default those of the first operand, then those new in the second.
      precision: the static argument whose option `highest` forbids a backend to round operands; "" without one. What
        it owes is then read from the case and not from the kernel, which may have ignored it.
    """

    over: tuple[str, ...]
    accumulate: str = "float32"
    slope: float = 1.0
    output: str = ""
    precision: str = ""

    @property
    def _dim(self) -> str:
        return " ".join(self.over)

    def misfit(self, leaves: Mapping[str, ArrayArgument], dims: Mapping[str, Dim]) -> str:
        operands = [path for path, leaf in leaves.items() if self._dim in leaf.shape]
        if len(operands) != 2:
            return (
                f"dot({self._dim!r}) needs exactly two array arguments with that dim, and "
                f"{len(operands)} have it ({', '.join(operands) or 'none'}); use conditioned(), or name another dim"
            )
        return ""

    def bounds(self, measured: Measured) -> tuple[Bound, ...]:
        fmt = format_of(self.accumulate, measured)
        a, b = (path for path, leaf in measured.declared.items() if self._dim in leaf.shape)
        size_a, size_b = np.abs(measured.leaves[a]), np.abs(measured.leaves[b])
        products = self._product(measured, a, b, size_a, size_b)
        rounded = self._product(measured, a, b, saturated(size_a), saturated(size_b))
        ones_a, ones_b = np.ones_like(size_a), np.ones_like(size_b)
        operands = self._product(measured, a, b, size_a, ones_b) + self._product(measured, a, b, ones_a, size_b)
        products, operands = self.slope * products, self.slope * operands
        terms = measured.dims[self._dim] + 8
        with np.errstate(all="ignore"):
            fixed = gamma(terms, fmt.unit_roundoff) * products
            fixed = np.where(products > fmt.overflow, np.inf, fixed)
        (value,) = measured.values
        if fixed.shape != value.shape:
            raise ValueError(
                f"dot({self._dim!r}) gives shape {fixed.shape}, the oracle {value.shape}; say which dims "
                "the output has, as in kt.tolerance.dot(..., output='b m n')"
            )
        if self.precision and self.precision not in measured.statics:
            raise ValueError(f"dot(precision={self.precision!r}) names no static argument of the kernel's")
        if self.precision and measured.statics[self.precision].lower() == "highest":
            return (Bound(fixed, roundings=self.slope * terms, accumulate=fmt),)
        return (Bound(fixed, self.slope * rounded, operands, self.slope * terms, fmt),)

    def _product(self, measured: Measured, a: str, b: str, left: Array, right: Array) -> Array:
        axes_a, axes_b = measured.declared[a].shape, measured.declared[b].shape
        letters = {axis: chr(ord("a") + i) for i, axis in enumerate(dict.fromkeys(map(str, (*axes_a, *axes_b))))}
        kept = self.output.split() or [axis for axis in letters if axis != self._dim]
        spec = ["".join(letters[str(axis)] for axis in axes) for axes in (axes_a, axes_b, kept)]
        with np.errstate(all="ignore"):
            total = np.einsum(f"{spec[0]},{spec[1]}->{spec[2]}", left, right)
        return np.where(np.isnan(total), np.inf, total)  # inf * 0: nothing can be said

    def __str__(self) -> str:
        return f"dot(over={self._dim}, accumulate={self.accumulate}, slope={self.slope:g})"
