"""Error models: how far a right kernel may be from the oracle, element by element.

Each model measures a case once, on the oracle's side, and gives a `Bound` a float output. The bound becomes
numbers when it meets a `Precision`: what a backend and the kernel's own declarations do to values.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from kerneltest.dtypes import TF32, Array, FloatFormat, dtype, float_format, is_float

if TYPE_CHECKING:
    from kerneltest import pairing

FLOAT32 = float_format(np.dtype(np.float32))

Evaluate = Callable[[Mapping[str, Array]], tuple[Array, ...]]


@dataclass(frozen=True, slots=True)
class Precision:
    """What a backend does to a kernel's numbers.

    Attributes:
      dot_input: the format to which it rounds the operands of a matrix product; None where it keeps them.
      flushes: it treats subnormal float32 numbers as zero.
    """

    dot_input: FloatFormat | None = None
    flushes: bool = False


@dataclass(frozen=True, slots=True)
class Bound:
    """The largest absolute error of one output, before it is rounded to the output's dtype.

    Attributes:
      fixed: whatever the backend, in the output's units.
      products: |A||B| of a matrix product, times the roundoff of rounding both operands.
      operands: sum of |a| and |b| over the products, times the underflow of that rounding.
      roundings: how many roundings of the accumulation format may each underflow.
      accumulate: the accumulation format.
    """

    fixed: Array
    products: Array | None = None
    operands: Array | None = None
    roundings: float = 0.0
    accumulate: FloatFormat = FLOAT32

    def at(self, precision: Precision) -> Array:
        lost = self.accumulate.smallest_normal if precision.flushes else self.accumulate.smallest_subnormal / 2
        total = self.fixed + self.roundings * lost
        if precision.dot_input is not None and self.products is not None and self.operands is not None:
            u = precision.dot_input.unit_roundoff
            total = total + (2 * u + u * u) * self.products
            total = total + precision.dot_input.smallest_subnormal / 2 * self.operands
        return np.asarray(total)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a model is given of a case.

    Attributes:
      evaluate: the oracle, from leaves in float64 or int64 to its outputs.
      leaves: the case's array arguments, widened.
      values: the oracle's outputs for them.
      declared: the leaves' declarations.
      dims: the length of each dim.
      input_formats: the formats of the float leaves as the kernel gets them.
    """

    evaluate: Evaluate
    leaves: Mapping[str, Array]
    values: tuple[Array, ...]
    declared: Mapping[str, "pairing.Array"]
    dims: Mapping[str, int]
    input_formats: tuple[FloatFormat, ...]


class Tolerance(Protocol):
    """An error model. `str()` of it names it in reports, with its constants."""

    def misfit(self, leaves: Mapping[str, "pairing.Array"], dims: Mapping[str, "pairing.Dim"]) -> str:
        """Why the model does not fit the declaration, with the mend; "" if it does."""
        ...

    def bounds(self, measured: Measured) -> tuple[Bound, ...]:
        """A bound for each output."""
        ...


@dataclass(frozen=True, slots=True)
class Exact:
    """The correctly rounded result, bit for bit: `|error| <= 0` after rounding the oracle's value once."""

    def misfit(self, leaves: Mapping[str, "pairing.Array"], dims: Mapping[str, "pairing.Dim"]) -> str:
        return ""

    def bounds(self, measured: Measured) -> tuple[Bound, ...]:
        return tuple(Bound(np.zeros(v.shape)) for v in measured.values)

    def __str__(self) -> str:
        return "exact"


@dataclass(frozen=True, slots=True)
class Conditioned:
    """A backward-stable kernel: the exact result for inputs perturbed by a few roundings.

    `|error| <= factor * (max_s |f(x(1 + u e_s)) - f(x)| + u |f(x)|) + gamma_n |f(x)|`, with u the unit roundoff
    of `compute`, e_s random signs, and n the number of terms of the sums behind an element.

    Source: the first term estimates the componentwise condition number by sampling (Kenney and Laub, "Small-sample
    statistical condition estimates", 1994); that a stable algorithm's error is a small multiple of it is the
    backward error principle (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 1.5); gamma_n
    of like-signed terms is section 3.1 there.

    Attributes:
      factor: how many roundings may act as one worst perturbation.
      sums: dims over which like-signed terms are summed.
      compute: the format of the kernel's arithmetic; `input` for that of its arguments.
      samples: how many random perturbations.
    """

    factor: float = 8.0
    sums: tuple[str, ...] = ()
    compute: str = "float32"
    samples: int = 4

    def misfit(self, leaves: Mapping[str, "pairing.Array"], dims: Mapping[str, "pairing.Dim"]) -> str:
        for name in self.sums:
            if name not in dims:
                return f"conditioned(sums=...) names dim {name!r}, which no argument has; there are {', '.join(dims)}"
        return ""

    def bounds(self, measured: Measured) -> tuple[Bound, ...]:
        fmt = _format(self.compute, measured)
        u = fmt.unit_roundoff
        rng = np.random.Generator(np.random.PCG64(0))
        worst = [np.zeros(v.shape) for v in measured.values]
        for _ in range(self.samples):
            moved = {
                path: value * (1 + u * rng.choice((-1.0, 1.0), value.shape)) if is_float(value.dtype) else value
                for path, value in measured.leaves.items()
            }
            for i, (near, value) in enumerate(zip(measured.evaluate(moved), measured.values, strict=True)):
                worst[i] = np.maximum(worst[i], _distance(near, value))
        n = math.prod(measured.dims[name] for name in self.sums) if self.sums else 0
        return tuple(
            Bound(
                self.factor * (w + u * _magnitude(v)) + gamma(n, u) * _magnitude(v),
                roundings=self.factor,
                accumulate=fmt,
            )
            for w, v in zip(worst, measured.values, strict=True)
        )

    def __str__(self) -> str:
        sums = f", sums={' '.join(self.sums)}" if self.sums else ""
        return f"conditioned(factor={self.factor:g}, compute={self.compute}{sums})"


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
      contract: the dim that is summed over, in exactly two array arguments.
      accumulate: the format of the sum; `input` for that of the arguments.
      slope: the greatest slope of the function applied to the sum.
      output: the output's dims; by default those of the first operand, then those new in the second.
    """

    contract: str
    accumulate: str = "float32"
    slope: float = 1.0
    output: str = ""

    def misfit(self, leaves: Mapping[str, "pairing.Array"], dims: Mapping[str, "pairing.Dim"]) -> str:
        operands = [path for path, leaf in leaves.items() if self.contract in leaf.shape]
        if len(operands) != 2:
            return (
                f"dot(contract={self.contract!r}) needs exactly two array arguments with that dim, and "
                f"{len(operands)} have it ({', '.join(operands) or 'none'}); use conditioned(), or name another dim"
            )
        return ""

    def bounds(self, measured: Measured) -> tuple[Bound, ...]:
        fmt = _format(self.accumulate, measured)
        a, b = (path for path, leaf in measured.declared.items() if self.contract in leaf.shape)
        size_a, size_b = np.abs(measured.leaves[a]), np.abs(measured.leaves[b])
        products = self._product(measured, a, b, size_a, size_b)
        rounded = self._product(measured, a, b, _saturated(size_a), _saturated(size_b))
        ones_a, ones_b = np.ones_like(size_a), np.ones_like(size_b)
        operands = self._product(measured, a, b, size_a, ones_b) + self._product(measured, a, b, ones_a, size_b)
        products, operands = self.slope * products, self.slope * operands
        terms = measured.dims[self.contract] + 8
        with np.errstate(all="ignore"):
            fixed = gamma(terms, fmt.unit_roundoff) * products
            fixed = np.where(products > fmt.overflow, np.inf, fixed)
        (value,) = measured.values
        if fixed.shape != value.shape:
            raise ValueError(
                f"dot(contract={self.contract!r}) gives shape {fixed.shape}, the oracle {value.shape}; say which dims "
                "the output has, as in kt.dot(..., output='b m n')"
            )
        return (Bound(fixed, self.slope * rounded, operands, self.slope * terms, fmt),)

    def _product(self, measured: Measured, a: str, b: str, left: Array, right: Array) -> Array:
        axes_a, axes_b = measured.declared[a].shape, measured.declared[b].shape
        letters = {axis: chr(ord("a") + i) for i, axis in enumerate(dict.fromkeys(map(str, (*axes_a, *axes_b))))}
        kept = self.output.split() or [axis for axis in letters if axis != self.contract]
        spec = ["".join(letters[str(axis)] for axis in axes) for axes in (axes_a, axes_b, kept)]
        with np.errstate(all="ignore"):
            total = np.einsum(f"{spec[0]},{spec[1]}->{spec[2]}", left, right)
        return np.where(np.isnan(total), np.inf, total)  # inf * 0: nothing can be said

    def __str__(self) -> str:
        return f"dot(contract={self.contract}, accumulate={self.accumulate}, slope={self.slope:g})"


def exact() -> Tolerance:
    """Bit for bit the correctly rounded result; see `Exact`."""
    return Exact()


def conditioned(factor: float = 8.0, *, sums: str = "", compute: str = "float32", samples: int = 4) -> Tolerance:
    """A multiple of what the oracle does when its inputs are perturbed by one rounding; see `Conditioned`."""
    return Conditioned(factor, tuple(sums.split()), compute, samples)


def dot(contract: str, *, accumulate: str = "float32", slope: float = 1.0, output: str = "") -> Tolerance:
    """The closed form of an inner product over the dim `contract`; see `Dot`."""
    return Dot(contract, accumulate, slope, output)


def gamma(n: int, u: float) -> float:
    """`n u / (1 - n u)` (Higham, Lemma 3.1), infinite where `n u >= 1`: no digit is certain any more."""
    return n * u / (1 - n * u) if n * u < 1 else math.inf


def _saturated(size: Array) -> Array:
    return np.where(size >= TF32.overflow, np.inf, size)


def _format(name: str, measured: Measured) -> FloatFormat:
    if name != "input":
        return float_format(dtype(name))
    return max(measured.input_formats, key=lambda f: f.unit_roundoff, default=FLOAT32)


def _distance(near: Array, value: Array) -> Array:
    with np.errstate(all="ignore"):
        moved = np.abs(np.asarray(near, np.float64) - np.asarray(value, np.float64))
    # A finite value that its neighbour leaves altogether (an overflow, a NaN) has no finite condition.
    return np.where(np.isfinite(value), np.where(np.isnan(moved), np.inf, moved), 0.0)


def _magnitude(value: Array) -> Array:
    return np.where(np.isfinite(value), np.abs(np.asarray(value, np.float64)), 0.0)
