"""Bounds in closed form, of the values or of sums of the inputs."""

from collections.abc import Sequence

import numpy as np

from kerneltest.core.dtypes import Array, FloatFormat
from kerneltest.core.failures import DeclarationError
from kerneltest.numerics.bounds import Bound, gamma, magnitude, scale_magnitudes


def zero_bounds(values: Sequence[Array]) -> tuple[Bound, ...]:
    """Returns `|error| <= 0` for each output: the correctly rounded result, bit for bit."""
    return tuple(Bound(np.zeros(value.shape)) for value in values)


def ulp_bounds(values: Sequence[Array], n: float, fmt: FloatFormat) -> tuple[Bound, ...]:
    """Returns `|error| <= n u |f(x)|` for each output, u being twice the unit roundoff of `fmt`.

    Source: the definition of an ulp in Muller et al., Handbook of Floating-Point Arithmetic, 2nd ed., section 2.3.

    Args:
      values: the oracle's outputs.
      n: the error in ulps.
      fmt: the format of the kernel's arithmetic.
    """
    return tuple(
        Bound(n * 2 * fmt.unit_roundoff * magnitude(value), roundings=2 * n, accumulate=fmt) for value in values
    )


def specified_bounds(values: Sequence[Array], error: float, *, relative: bool) -> tuple[Bound, ...]:
    """Returns `|error| <= e` or, if it is relative, `|error| <= e |f(x)|` for each output."""
    sizes = (magnitude(value) if relative else np.ones(value.shape) for value in values)
    return tuple(Bound(error * size) for size in sizes)


def reduction_bound(
    terms: Array,
    dims: Sequence[str],
    over: Sequence[str],
    n: int,
    fmt: FloatFormat,
    shape: tuple[int, ...],
    output: str = "",
) -> Bound:
    """Returns `|error| <= gamma_n(u) sum |x|` of sums in any order.

    The bound is infinite where `sum |x|` exceeds the range of the format, since a partial sum may overflow. Along
    further axes of the output, which belong to sums of only some of the terms (cumulative sums, groups), the bound of
    the whole sum is repeated.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 4.2, equation 4.4.

    Args:
      terms: the terms x. Special values count as zero: they reach only sums that are special themselves.
      dims: the name of each axis of `terms`.
      over: the dims that are summed over.
      n: the number of terms of a sum, which is the product of their lengths.
      fmt: the format in which they are summed.
      shape: the output's shape.
      output: the output's dims, separated by spaces; by default the dims that remain, in their order, then any further
        axes.

    Raises:
      ValueError: the sums do not broadcast to `shape`.
    """
    summed = tuple(i for i, dim in enumerate(dims) if dim in over)
    remaining = [dim for dim in dims if dim not in over]
    size = magnitude(terms).sum(axis=summed)
    sums = np.where(size > fmt.overflow, np.inf, scale_magnitudes(gamma(n, fmt.unit_roundoff), size))
    if output:
        names = output.split()
        sums = sums.transpose([remaining.index(name) for name in names if name in remaining])
        sums = np.expand_dims(sums, tuple(i for i, name in enumerate(names) if name not in remaining))
    elif sums.ndim + len(summed) == len(shape):  # the output has the argument's axes
        sums = np.expand_dims(sums, summed)
    elif sums.shape == shape[: sums.ndim]:
        sums = np.expand_dims(sums, tuple(range(sums.ndim, len(shape))))
    if sums.ndim != len(shape) or any(length not in (1, m) for length, m in zip(sums.shape, shape, strict=True)):
        raise DeclarationError(
            f"reduction({' '.join(over)!r}) gives shape {sums.shape}, the oracle {shape}; say which dims the output "
            "has, as in kt.tolerance.reduction(..., output='m n')"
        )
    return Bound(np.broadcast_to(sums, shape), roundings=float(n), accumulate=fmt)
